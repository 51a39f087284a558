"""Use many servers behind one stdio server with the Python SDK; print what was seen, as one JSON line.

    python python_fleet.py legacy|modern FOLDER COMMAND ARGS...

Works with both lines of the SDK: 1.x knows only the older family. Each step is named on stderr before it begins, and
has a deadline, so that what fails or hangs has a name. The script judges nothing; tests/interop/servers/behind.rs does.
"""

import asyncio
import base64
import contextlib
import faulthandler
import gzip
import json
import os
import sys

from mcp import StdioServerParameters, types

try:
    from mcp import Client
except ImportError:
    Client = None

MODERN = "2026-07-28"
SERVERS = ["every", "files", "git", "memory", "new", "old", "time", "web"]
STEP_WITHIN_SECONDS = 60
LOOK_AGAIN_SECONDS = 0.025


class Story:
    def __init__(self, is_modern, folder):
        self.is_modern = is_modern
        self.folder = folder
        self.roots = [{"uri": "file:///first", "name": "the first root"}]
        self.logs = []
        self.changed = set()
        self.seen = {}
        self.client = None

    async def tell(self, connect):
        begin("connect")
        async with connect(self) as (self.client, _):
            await self.step("list", self.list)
            await self.step("call", self.call_each_server)
            await self.step("progress", self.progress)
            await self.step("resources", self.resources)
            await self.step("prompts", self.prompts)
            await self.step("completion", self.completion)
            await self.step("cancel", self.cancel)
            await self.step("list_changed", self.list_changed)
            await self.step("asked", self.refused if self.is_modern else self.asked)
            await self.step("asked by a modern server", self.asked_by_modern)
            if not self.is_modern:
                await self.step("log", self.log)
            begin("close")
        # What is told at the beginning is what the last run has learnt.
        begin("connect again")
        async with connect(self) as (_, instructions):
            self.seen["instructions"] = instructions
            begin("close again")
        return self.seen

    async def step(self, name, work):
        begin(name)
        try:
            await work()
        except BaseException:
            print(f"step {name} failed; seen so far: {json.dumps(self.seen)}", file=sys.stderr)
            raise

    # What the client answers and hears.

    async def elicit(self, context, params):
        return types.ElicitResult.model_validate({"action": "accept", "content": {"name": "Ada Löwe"}})

    async def sample(self, context, params):
        said = {"type": "text", "text": "a model’s words"}
        return types.CreateMessageResult.model_validate({"role": "assistant", "model": "none", "content": said})

    async def list_roots(self, context):
        return types.ListRootsResult.model_validate({"roots": self.roots})

    async def hear_log(self, params):
        self.logs.append(wire(params))

    async def hear(self, message):
        method = getattr(getattr(message, "root", message), "method", "")
        if method.endswith("/list_changed"):
            self.changed.add(method.split("/")[1])

    def callbacks(self):
        return {
            "elicitation_callback": self.elicit,
            "sampling_callback": self.sample,
            "list_roots_callback": self.list_roots,
            "logging_callback": self.hear_log,
            "message_handler": self.hear,
        }

    # What it does.

    async def names(self):
        return [tool.name for tool in (await self.client.list_tools()).tools]

    async def list(self):
        """Servers come up one by one; a list that lacks one is asked for again."""

        async def all_listed():
            names = await self.names()
            return all(any(name.startswith(server + "__") for name in names) for server in SERVERS) and names

        self.seen["names"] = await until(all_listed)

    async def call(self, tool, progress_callback=None, **arguments):
        result = wire(await self.client.call_tool(tool, arguments, progress_callback=progress_callback))
        error = (result.get("structuredContent") or {}).get("error") or {}
        text = [part.get("text") for part in result["content"]]
        return {"isError": result.get("isError"), "text": text, "code": error.get("code")}

    async def call_each_server(self):
        seen, call, folder = self.seen, self.call, self.folder
        seen["echo"] = await call("every__echo", message="hällo 🐦")
        seen["web"] = await call("web__echo", message="over HTTP")
        image = await self.client.call_tool("every__get-tiny-image", {})
        seen["image"] = wire(image)["content"][1]["type"]
        seen["file"] = await call("files__read_text_file", path=os.path.join(folder, "note.txt"))
        seen["outside"] = await call("files__read_text_file", path="/etc/hostname")
        seen["git"] = await call("git__git_status", repo_path=folder)
        entity = {"name": "a", "entityType": "b", "observations": []}
        seen["memory"] = await call("memory__create_entities", entities=[entity])
        seen["time"] = await call("time__get_current_time", timezone="UTC")
        seen["nowhere"] = await call("time__get_current_time", timezone="Nowhere")
        seen["ping"] = await call("server_ping")
        seen["modern_echo"] = await call("new__echo", text="from the newer family ✓")
        seen["unknown"] = await call("every__no-such-tool")

    async def progress(self):
        async def told(calling):
            steps = []

            async def heard(done, total, message):
                steps.append(done)

            return await calling(heard), steps

        self.seen["long"], self.seen["progress"] = await told(
            lambda heard: self.call("every__trigger-long-running-operation", heard, duration=0.2, steps=2)
        )
        self.seen["modern_steps"], self.seen["modern_progress"] = await told(
            lambda heard: self.call("new__steps", heard, steps=3)
        )

    async def resources(self):
        async def read(uri):
            return wire(await self.client.read_resource(uri))["contents"][0]["text"]

        seen = self.seen
        seen["resources"] = [entry["uri"] for entry in wire(await self.client.list_resources())["resources"]]
        templates = wire(await self.client.list_resource_templates())["resourceTemplates"]
        seen["templates"] = [entry["uriTemplate"] for entry in templates]
        seen["document"] = await read("demo://resource/static/document/features.md")
        # Two servers have it; the second is reached by its alias.
        aliases = [uri for uri in seen["resources"] if uri.startswith("colibri://web/") and "features.md" in uri]
        seen["alias"] = await read(aliases[0])
        seen["made"] = await read("demo://resource/dynamic/text/7")
        seen["modern_resource"] = await read("note://one")
        seen["modern_made"] = await read("note://by-template")
        seen["no_resource"] = await refusal(read("demo://nowhere"))

    async def prompts(self):
        async def get(prompt, **arguments):
            return wire(await self.client.get_prompt(prompt, arguments))["messages"][0]["content"]["text"]

        self.seen["prompts"] = [prompt.name for prompt in (await self.client.list_prompts()).prompts]
        self.seen["prompt"] = await get("every__args-prompt", city="Zürich")
        self.seen["modern_prompt"] = await get("new__greet", name="Ada")

    async def completion(self):
        async def complete(ref, name, value, context=None):
            answer = await self.client.complete(ref, {"name": name, "value": value}, context)
            return wire(answer)["completion"]["values"]

        def prompt(name):
            return types.PromptReference(type="ref/prompt", name=name)

        template = types.ResourceTemplateReference(
            type="ref/resource", uri="demo://resource/dynamic/text/{resourceId}"
        )
        team = prompt("every__completable-prompt")
        self.seen["completion"] = await complete(team, "department", "E")
        self.seen["completion_narrowed"] = await complete(team, "name", "D", {"department": "Sales"})
        self.seen["completion_of_template"] = await complete(template, "resourceId", "7")
        self.seen["modern_completion"] = await complete(prompt("new__greet"), "name", "A")

    async def cancel(self):
        """The server itself counts what reached it."""
        for server in ["old", "new"]:
            begun = asyncio.Event()

            async def heard(done, total, message):
                begun.set()

            # It says that it has begun: what is taken back earlier never reaches the server.
            waiting = asyncio.create_task(self.client.call_tool(server + "__wait", {}, progress_callback=heard))
            await begun.wait()
            await self.client.take_back(waiting)
            self.seen["left_" + server] = await refusal(waiting)

            async def taken_back():
                count = (await self.call(server + "__taken_back"))["text"][0]
                return count != "0" and count

            self.seen["taken_back_" + server] = await until(taken_back)

    async def list_changed(self):
        """A modern client on stdio is told nothing here: it may keep no list, and asks again."""
        self.changed.clear()
        await self.call("old__grow")
        await until(lambda: at_once(self.is_modern or "tools" in self.changed))

        async def is_listed():
            return "old__grown" in await self.names()

        await until(is_listed)
        self.seen["changed"] = sorted(self.changed)
        self.seen["grown"] = await self.call("old__grown")

        uri, data = "demo://resource/session/new.gz", "data:text/plain,a%20new%20resource"
        await self.call("every__gzip-file-as-resource", name="new.gz", data=data, outputType="resourceLink")
        await until(lambda: at_once(self.is_modern or "resources" in self.changed))

        async def resource_is_listed():
            return any(entry["uri"] == uri for entry in wire(await self.client.list_resources())["resources"])

        await until(resource_is_listed)
        self.seen["changed_resources"] = "resources" in self.changed
        blob = wire(await self.client.read_resource(uri))["contents"][0]["blob"]
        self.seen["grown_resource"] = gzip.decompress(base64.b64decode(blob)).decode()

    async def asked(self):
        """Servers of the older family ask, over stdio and over HTTP."""
        for server in ["every", "web"]:

            async def is_offered():
                return server + "__trigger-elicitation-request" in await self.names()

            await until(is_offered)
            self.seen["elicited_" + server] = await self.call(server + "__trigger-elicitation-request")
            sampled = await self.call(server + "__trigger-sampling-request", prompt="anything")
            self.seen["sampled_" + server] = sampled
            self.seen["roots_" + server] = await self.call(server + "__get-roots-list")
        self.roots.append({"uri": "file:///second", "name": "the second root"})
        await self.client.send_roots_list_changed()

        async def is_heard():
            listed = await self.call("every__get-roots-list")
            return "the second root" in listed["text"][0] and listed

        self.seen["roots_changed"] = await until(is_heard)

    async def refused(self):
        """Across families a server's own questions are refused, whatever this client could answer."""
        who = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}
        for method, params in [
            ("elicitation/create", who),
            ("sampling/createMessage", {"messages": [], "maxTokens": 1}),
            ("roots/list", {}),
        ]:
            self.seen["refused_" + method] = await self.call("old__ask", method=method, params=params)
        # It offers this only to those who can be asked.
        self.seen["not_offered"] = await self.call("every__trigger-sampling-request", prompt="anything")
        self.seen["after_refusals"] = await self.call("old__taken_back")

    async def asked_by_modern(self):
        self.seen["modern_asked"] = await self.call("new__ask")
        self.seen["modern_asked_all"] = await self.call("new__ask_all")

    async def log(self):
        await self.client.set_logging_level("warning")

        def logged(logger):
            return [told for told in self.logs if told["logger"] == logger]

        async def is_quiet():
            """Each server is told of the level on its own time; one that has not heard of it yet logs everything."""
            self.logs.clear()
            await self.call("old__log")
            await until(lambda: at_once(logged("old/loud")))
            return not logged("old/quiet")

        await until(is_quiet)
        told = logged("old/loud")[0]
        self.seen["log"] = {key: told[key] for key in ["level", "logger", "data"]}


def begin(step):
    """Name the step, and end the program if it takes too long: a connection that hangs may not let itself be cancelled."""
    print("step:", step, file=sys.stderr, flush=True)
    faulthandler.dump_traceback_later(STEP_WITHIN_SECONDS, exit=True)


def wire(value):
    """In wire spelling, whichever spelling this SDK gives its fields."""
    return value.model_dump(by_alias=True, mode="json")


async def at_once(value):
    return value


async def until(look):
    while True:
        found = await look()
        if found:
            return found
        await asyncio.sleep(LOOK_AGAIN_SECONDS)


async def refusal(work):
    try:
        await work
    except asyncio.CancelledError:
        return {"code": None, "message": "taken back"}
    except Exception as error:
        told = getattr(error, "error", None)
        return {"code": getattr(told, "code", None), "message": str(error)}


class SdkOne:
    """A session of the 1.x line, where it differs from a client of the 2.x line."""

    def __init__(self, session):
        self.session = session

    def __getattr__(self, name):
        return getattr(self.session, name)

    async def call_tool(self, *args, **kwargs):
        # This line has no other way to name a request that is to be taken back.
        asyncio.current_task().request_id = self.session._request_id
        return await self.session.call_tool(*args, **kwargs)

    async def read_resource(self, uri):
        from pydantic import AnyUrl

        return await self.session.read_resource(AnyUrl(uri))

    async def take_back(self, waiting):
        params = types.CancelledNotificationParams(requestId=waiting.request_id, reason="enough")
        notice = types.CancelledNotification(method="notifications/cancelled", params=params)
        await self.session.send_notification(types.ClientNotification(notice))
        waiting.cancel()


class SdkTwo:
    def __init__(self, client):
        self.client = client

    def __getattr__(self, name):
        return getattr(self.client, name)

    async def take_back(self, waiting):
        waiting.cancel()


def connect_sdk_one(parameters):
    import anyio
    from mcp import ClientSession
    from mcp.client.stdio import stdio_client

    @contextlib.asynccontextmanager
    async def connect(story):
        try:
            async with stdio_client(parameters) as (read, write):
                async with ClientSession(read, write, **story.callbacks()) as session:
                    hello = await session.initialize()
                    yield SdkOne(session), hello.instructions
        except* anyio.BrokenResourceError:
            # The SDK's own: it has closed its ear, and something was told before it closed the pipe.
            pass

    return connect


def connect_sdk_two(parameters, era):
    @contextlib.asynccontextmanager
    async def connect(story):
        mode = MODERN if era == "modern" else era
        async with Client(parameters, mode=mode, **story.callbacks()) as client:
            instructions = client.instructions
            if era == "modern":
                # Told to assume the modern family, this SDK never asks who it is talking to.
                instructions = (await client.session.send_discover(MODERN)).get("instructions")
            yield SdkTwo(client), instructions

    return connect


def main():
    era, folder, command, *args = sys.argv[1:]
    parameters = StdioServerParameters(command=command, args=args, env=dict(os.environ))
    if Client is None and era != "legacy":
        raise SystemExit(f"this SDK knows only the legacy family, not {era}")
    connect = connect_sdk_one(parameters) if Client is None else connect_sdk_two(parameters, era)
    print(json.dumps(asyncio.run(Story(era == "modern", folder).tell(connect))))


main()
