"""A server on the Python SDK, with one tool for each thing that a story looks at.

    python python_host.py websocket|http

Works with both lines of the SDK: only 1.x has WebSocket, and only 2.x is asked for HTTP. It listens on
a port of the system's choice; whoever started it finds out which.
"""

import asyncio
import base64
import sys

import uvicorn

try:
    from mcp.server.mcpserver import Context, MCPServer
except ImportError:
    from mcp.server.fastmcp import Context
    from mcp.server.fastmcp import FastMCP as MCPServer
from mcp.types import ImageContent

server = MCPServer("python-host")
taken = {"back": 0}


@server.tool(structured_output=False)
def echo(text: str) -> str:
    return text


@server.tool(structured_output=False)
def fail() -> str:
    raise RuntimeError("it failed, as asked")


@server.tool(structured_output=False)
def big(bytes: int) -> str:
    return "x" * bytes


@server.tool(name="bytes", structured_output=False)
def all_bytes() -> ImageContent:
    data = base64.b64encode(bytes(range(256))).decode()
    return ImageContent.model_validate({"type": "image", "data": data, "mimeType": "image/x-all-bytes"})


@server.tool(structured_output=False)
async def steps(steps: int, context: Context) -> str:
    for step in range(1, steps + 1):
        await context.report_progress(step, steps)
    return f"{steps} steps"


@server.tool(structured_output=False)
async def wait() -> str:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        taken["back"] += 1
        raise
    return "never"


@server.tool(structured_output=False)
def taken_back() -> str:
    return str(taken["back"])


def websocket():
    from mcp.server.websocket import websocket_server
    from starlette.applications import Starlette
    from starlette.routing import WebSocketRoute

    inner = server._mcp_server

    class Endpoint:
        """An application: a function would get a socket that the SDK wants to open itself."""

        async def __call__(self, scope, receive, send):
            async with websocket_server(scope, receive, send) as (read, write):
                await inner.run(read, write, inner.create_initialization_options())

    return Starlette(routes=[WebSocketRoute("/ws", Endpoint())])


app = {"websocket": websocket, "http": lambda: server.streamable_http_app()}[sys.argv[1]]()
uvicorn.run(app, host="127.0.0.1", port=0, log_level="warning", timeout_graceful_shutdown=1)
