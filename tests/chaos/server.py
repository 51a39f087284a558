"""An MCP server that misbehaves at random, as its seed has it; with chaos 0 it behaves.

    python3 server.py NAME SEED CHAOS MARK
"""

import json
import os
import random
import sys
import time

name, seed, chaos = sys.argv[1], sys.argv[2], float(sys.argv[3])
# How often it was started is part of the seed, so that a second life is not the first one again.
starts = os.path.join(os.environ["HOME"], name + ".starts")
with open(starts, "a+") as file:
    file.write("x")
    file.flush()
    life = os.path.getsize(starts)
dice = random.Random(f"{seed} {name} {life}")
extra = 0


def say(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def happens(share):
    return dice.random() < chaos * share


def tools():
    names = ["work"] + [f"extra{number}" for number in range(extra)]
    return [{"name": each, "inputSchema": {"type": "object"}} for each in names]


for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    answer = {"id": request["id"], "result": {}}
    method = request["method"]
    if method == "server/discover":
        if happens(0.2):
            sys.exit(3)
        answer = {"id": request["id"], "error": {"code": -32601, "message": "no such method"}}
    elif method == "initialize":
        if happens(0.1):
            sys.exit(4)
        answer["result"] = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {"listChanged": True}}}
    elif method == "tools/list":
        answer["result"] = {"tools": tools()}
    elif method == "tools/call":
        answer["result"] = {"content": [{"type": "text", "text": name}]}
        if happens(0.05):
            os._exit(5)
        if happens(0.05):
            continue
        if happens(0.02):
            time.sleep(3)
        if happens(0.05):
            sys.stdout.write("this is no message\n{\"half\": \n")
        if happens(0.03):
            sys.stdout.write("x" * (5 << 20) + "\n")
        if happens(0.03):
            sys.stdout.write("junk that is no message\n" * (3 << 20 >> 5))
        if happens(0.004):
            while True:
                sys.stdout.write("a line without an end " * 4096)
        if happens(0.05):
            sys.stderr.write("a flood of words\n" * 5000)
        if happens(0.08):
            answer = {"id": request["id"], "error": {"code": -32603, "message": "a bad day"}}
        if happens(0.05):
            say({"id": 999999, "result": {}})
        if happens(0.1):
            extra = dice.randrange(5)
            say({"method": "notifications/tools/list_changed"})
    say(answer)
