"""Drive a stdio server with the Python SDK and print what was seen, as one JSON line.

    python python_client.py legacy|auto|modern COMMAND ARGS...

Works with both lines of the SDK: 1.x knows only the handshake ("legacy"), 2.x both families.
The script judges nothing; tests/interop.rs does.
"""

import asyncio
import json
import os
import sys

MODERN = "2026-07-28"
BAD_ARGUMENTS = {"pong": 1}


async def story(call_tool, list_tools, protocol, server):
    tools = await list_tools()
    unknown = None
    try:
        await call_tool("no_such_tool", {})
    except Exception as error:
        unknown = protocol_error(error)
    return {
        "protocol": protocol,
        "server": server,
        "tools": [tool.name for tool in tools.tools],
        "ping": seen(await call_tool("server_ping", {})),
        "bad": seen(await call_tool("server_ping", BAD_ARGUMENTS)),
        "unknown": unknown,
    }


def seen(result):
    """A tool result in wire spelling, whichever spelling this SDK gives its fields."""
    wire = result.model_dump(by_alias=True, mode="json")
    return {key: wire.get(key) for key in ("isError", "structuredContent", "content")}


def protocol_error(error):
    data = getattr(error, "error", None)
    if data is None:
        raise error
    return {"code": data.code, "message": data.message}


async def with_sdk_one(parameters):
    from mcp import ClientSession
    from mcp.client.stdio import stdio_client

    async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
        hello = await session.initialize()
        return await story(
            session.call_tool, session.list_tools, hello.protocolVersion, hello.serverInfo.name
        )


async def with_sdk_two(parameters, era):
    from mcp import Client

    mode = MODERN if era == "modern" else era
    async with Client(parameters, mode=mode) as client:
        info = client.server_info
        return await story(
            client.call_tool, client.list_tools, client.protocol_version, info and info.name
        )


async def main():
    from mcp import StdioServerParameters

    era, command, *arguments = sys.argv[1:]
    parameters = StdioServerParameters(command=command, args=arguments, env=dict(os.environ))
    try:
        from mcp import Client  # noqa: F401
    except ImportError:
        if era != "legacy":
            raise SystemExit(f"this SDK knows only the legacy family, not {era}")
        report = await with_sdk_one(parameters)
    else:
        report = await with_sdk_two(parameters, era)
    print(json.dumps(report))


asyncio.run(main())
