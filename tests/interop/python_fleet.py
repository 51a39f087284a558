"""Call the tools of many servers behind one stdio server with the Python SDK; print what was seen, as one JSON line.

    python python_fleet.py legacy|auto|modern FOLDER COMMAND ARGS...

The script judges nothing; tests/interop/behind.rs does.
"""

import asyncio
import json
import os
import sys
import time

MODERN = "2026-07-28"
SERVERS = ["every", "files", "git", "memory", "time", "web"]
DEADLINE_SECONDS = 60


async def story(call_tool, list_tools, folder):
    names = await all_listed(list_tools)
    progress = []

    async def heard(done, total, message):
        progress.append(done)

    async def call(tool, progress_callback=None, **arguments):
        result = await call_tool(tool, arguments, progress_callback=progress_callback)
        wire = result.model_dump(by_alias=True, mode="json")
        return {"isError": wire.get("isError"), "text": [part.get("text") for part in wire["content"]]}

    return {
        "names": names,
        "echo": await call("every__echo", message="hällo 🐦"),
        "web": await call("web__echo", message="over HTTP"),
        "image": (await call_tool("every__get-tiny-image", {})).model_dump(by_alias=True, mode="json")["content"][1]["type"],
        "long": await call("every__trigger-long-running-operation", heard, duration=0.2, steps=2),
        "progress": progress,
        "file": await call("files__read_text_file", path=os.path.join(folder, "note.txt")),
        "outside": await call("files__read_text_file", path="/etc/hostname"),
        "git": await call("git__git_status", repo_path=folder),
        "memory": await call("memory__create_entities", entities=[{"name": "a", "entityType": "b", "observations": []}]),
        "time": await call("time__get_current_time", timezone="UTC"),
        "nowhere": await call("time__get_current_time", timezone="Nowhere"),
        "ping": await call("server_ping"),
    }


async def all_listed(list_tools):
    """Servers come up one by one; a list that lacks one is asked for again."""
    until = time.monotonic() + DEADLINE_SECONDS
    while True:
        names = [tool.name for tool in (await list_tools()).tools]
        lacking = [name for name in SERVERS if not any(tool.startswith(name + "__") for tool in names)]
        if not lacking or time.monotonic() > until:
            return names
        await asyncio.sleep(0.05)


async def with_sdk_one(parameters, folder):
    from mcp import ClientSession
    from mcp.client.stdio import stdio_client

    async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        return await story(session.call_tool, session.list_tools, folder)


async def with_sdk_two(parameters, era, folder):
    from mcp import Client

    async with Client(parameters, mode=MODERN if era == "modern" else era) as client:
        return await story(client.call_tool, client.list_tools, folder)


def main():
    from mcp import StdioServerParameters

    era, folder, command, *args = sys.argv[1:]
    parameters = StdioServerParameters(command=command, args=args, env=dict(os.environ))
    try:
        from mcp import Client  # noqa: F401
    except ImportError:
        story = with_sdk_one(parameters, folder)
    else:
        story = with_sdk_two(parameters, era, folder)
    print(json.dumps(asyncio.run(story)))


main()
