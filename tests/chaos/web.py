"""An MCP server over HTTP whose port closes for a while, again and again, as its seed has it.

    python3 web.py PORT SEED MARK
"""

import http.server
import json
import random
import sys
import threading

port, seed = int(sys.argv[1]), sys.argv[2]
dice = random.Random(f"{seed} {port}")
TOOLS = [{"name": "work", "inputSchema": {"type": "object"}}]
never = threading.Event()


class Server(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method, answer = request["method"], {"result": {}}
        if "id" not in request:
            return self.say(202, b"")
        if method == "server/discover":
            answer = {"error": {"code": -32601, "message": "no such method"}}
        elif method == "initialize":
            answer["result"] = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
        elif method == "tools/list":
            answer["result"] = {"tools": TOOLS}
        elif method == "tools/call":
            answer["result"] = {"content": [{"type": "text", "text": "web"}]}
        self.say(200, json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer}).encode())

    def do_GET(self):
        self.say(405, b"")

    do_DELETE = do_GET

    def say(self, status, body):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        # So that a closed port is a closed server: nobody goes on talking on an old connection.
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Door(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False


while True:
    door = Door(("127.0.0.1", port), Server)
    threading.Thread(target=door.serve_forever, args=(0.02,), daemon=True).start()
    never.wait(dice.uniform(1.0, 3.0))
    door.shutdown()
    door.server_close()
    never.wait(dice.uniform(0.2, 1.5))
