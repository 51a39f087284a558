"""Drive a stdio server with the Python SDK and print what was seen, as one JSON line.

    python python_client.py legacy|auto|modern COMMAND ARGS...

Works with both lines of the SDK: 1.x knows only the handshake ("legacy"), 2.x both families.
The script judges nothing; tests/interop.rs does.
"""

import asyncio
import json
import os
import sys

import jsonschema

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
        "worked": await every_tool(call_tool, tools.tools),
    }


async def every_tool(call_tool, tools):
    """A day's work with every tool, each answer held against the schema that was listed for it."""
    schemas = {}
    for tool in tools:
        wire = tool.model_dump(by_alias=True, mode="json")
        schemas[wire["name"]] = jsonschema.Draft202012Validator(wire["outputSchema"])
    worked = set()

    async def call(name, **arguments):
        result = seen(await call_tool(name, arguments))
        schemas[name].validate(result["structuredContent"])
        assert not result["isError"], (name, result)
        worked.add(name)
        return result["structuredContent"]["data"]

    session = (await call("audit_session_start", intent="a day's work"))["session_id"]
    task = (await call("task_create", title="Do the work", labels=["day"]))["id"]
    await call("task_next_actions", agent_id="sdk", claim=True)
    for status in ("GATHER", "ANALYZE", "PLAN", "APPLY", "VERIFY"):
        await call("task_update", id=task, patch={"status": status})
    refused = seen(await call_tool("task_update", {"id": task, "patch": {"status": "DONE"}}))
    schemas["task_update"].validate(refused["structuredContent"])
    assert refused["isError"] and refused["structuredContent"]["ok"], refused
    assert refused["structuredContent"]["data"]["error"]["code"] == "ERR_WRITEBACK_REQUIRED", refused
    await call(
        "thought_record", type="decision", task_id=task, agent_id="sdk", content="done by hand", session_id=session
    )
    await call("task_update", id=task, patch={"status": "DONE"})
    await call("task_get", id=task)
    await call("task_list", label="day", fields="full")
    await call("thought_record_list", task_id=task)
    sealed = await call("merkle_finalize", session_id=session)
    assert (await call("merkle_root", session_id=session))["root"] == sealed["root"]
    assert (await call("audit_verify_chain"))["valid"]
    await call("skill_list")
    await call("server_health")
    await call("server_ping")
    return sorted(worked)


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
