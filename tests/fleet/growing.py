"""A server of the newer family, on stdio or, with `http` as its argument, at an address that it prints.

Its tool `grow` gives it one more tool, and it tells whoever listens.
"""

import http.server, json, queue, sys, threading

tools, listens, lock = ["grow"], {}, threading.Lock()

def told(ident, method, params):
    meta = {"io.modelcontextprotocol/subscriptionId": ident}
    return {"jsonrpc": "2.0", "method": method, "params": {**params, "_meta": meta}}

def answer(request, say):
    """Says what a request leads to; false if it stays open."""
    method, ident, result = request["method"], request["id"], {"resultType": "complete"}
    if method == "server/discover":
        result |= {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {"listChanged": True}}}
    elif method == "tools/list":
        result |= {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in tools]}
    elif method == "tools/call":
        result |= {"content": []}
        tools.append("grown%d" % len(tools))
        for other, tell in list(listens.items()):
            tell(told(other, "notifications/tools/list_changed", {}))
    elif method == "subscriptions/listen":
        wanted = request["params"]["notifications"]
        say(told(ident, "notifications/subscriptions/acknowledged", {"notifications": wanted}))
        listens[ident] = say
        return False
    say({"jsonrpc": "2.0", "id": ident, "result": result})
    return True

class Face(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        said = queue.Queue()
        self.send_response(200 if "id" in request else 202)
        if "id" not in request:
            self.send_header("content-length", "0")
            return self.end_headers()
        if answer(request, said.put):
            body = json.dumps(said.get()).encode()
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            return self.wfile.write(body)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        while True:
            try:
                event = "data: " + json.dumps(said.get(timeout=0.2)) + "\n\n"
            except queue.Empty:
                event = ": still here\n\n"
            try:
                self.wfile.write(event.encode())
            except OSError:
                return listens.pop(request["id"], None)

def line(message):
    with lock:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()

if sys.argv[1:] == ["http"]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Face)
    server.daemon_threads = True
    line("http://127.0.0.1:%d/mcp" % server.server_port)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()
else:
    for text in sys.stdin:
        request = json.loads(text)
        if "id" in request:
            answer(request, line)
