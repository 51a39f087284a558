//! A server of its own process that does what files tell it to, and a colibri with some of them.
#![expect(clippy::unwrap_used, reason = "a story ends at the first surprise")]

use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::cli::run;
use crate::hostile::child::{Colibri, Home};
use crate::support::until;

/// Its first argument is its name, and its files begin with it. Before it starts it looks for `down` (then it ends), `mute`
/// (then it says nothing) and `modern` (then it is of the newer family); while it runs, for `refuses` (no pings) and `slow`
/// (pings take their time). What it offers is in `offers`, two on a page, and what it hears it writes to `heard`. A tool does
/// what its name says, and any other answers with its own name. After `deafen` this process, and not the one that follows
/// it, answers neither pings nor lists.
const SERVER: &str = r#"
import json, os, sys, threading, time

home, name, lock, me = os.environ["HOME"], sys.argv[1], threading.Lock(), os.urandom(8).hex()
deaf_to = set()

def path(word):
    return os.path.join(home, name + "." + word)

def has(word):
    return os.path.exists(path(word))

def words(word):
    with open(path(word)) as file:
        return file.read().split()

def note(line):
    with open(path("heard"), "a") as file:
        file.write(line + "\n")

def say(message):
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()

note("start %d" % (time.monotonic() * 1000))
if has("down"):
    sys.exit(3)
if has("mute"):
    time.sleep(600)
modern = has("modern")
meta = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if modern else {}

def text(said):
    return {"content": [{"type": "text", "text": said}], "me": me, **meta}

def later(ident, seconds, result):
    def wait():
        time.sleep(seconds)
        say({"id": ident, "result": result})
    threading.Thread(target=wait, daemon=True).start()

def steps(ident, token, count, seconds):
    def walk():
        for step in range(count):
            time.sleep(seconds)
            say({"method": "notifications/progress", "params": {"progressToken": token, "progress": step + 1}})
        say({"id": ident, "result": text("steps")})
    threading.Thread(target=walk, daemon=True).start()

def call(ident, params):
    tool, given = params["name"], params.get("arguments", {})
    if tool == "hang":
        return
    if tool == "leave":
        os._exit(7)
    if tool == "slow":
        return later(ident, given["s"], text("slow"))
    if tool == "steps":
        return steps(ident, params["_meta"]["progressToken"], given["n"], given["s"])
    if tool == "deafen":
        deaf_to.update(["ping", "tools/list"])
    if tool == "change":
        with open(path("offers"), "w") as file:
            file.write(" ".join(given["tools"]))
        say({"method": "notifications/tools/list_changed"})
    say({"id": ident, "result": text(tool + given.get("pad", ""))})

def answer(ident, method, params):
    if method == "server/discover" and modern:
        return {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, **meta}
    if method == "initialize" and not modern:
        offers = {"tools": {"listChanged": True}, **({"resources": {}} if has("resources") else {})}
        said = {"instructions": "I am " + name + "."} if has("instructions") else {}
        return {"protocolVersion": "2025-06-18", "capabilities": offers, **said}
    if method == "tools/list":
        offers, begin = words("offers"), int(params.get("cursor", "0"))
        tools = [{"name": tool, "inputSchema": {"type": "object"}} for tool in offers[begin:begin + 2]]
        return {"tools": tools, **({"nextCursor": str(begin + 2)} if begin + 2 < len(offers) else {}), **meta}
    if method == "resources/list":
        return {"resources": [{"uri": uri, "name": uri} for uri in words("resources")]}
    if method == "resources/templates/list":
        return {"resourceTemplates": []}
    if method == "resources/read":
        return {"contents": [{"uri": params["uri"], "text": "of " + name}]}
    return {} if method == "ping" and not has("refuses") and not modern else None

for line in sys.stdin:
    request = json.loads(line)
    method, params, ident = request.get("method", ""), request.get("params", {}), request.get("id")
    note((method + " " + params.get("reason", params.get("name", ""))).strip())
    if ident is None or method in deaf_to:
        continue
    if method == "tools/call":
        call(ident, params)
        continue
    result = answer(ident, method, params)
    if method == "ping" and has("slow") and result is not None:
        later(ident, 1.5, result)
    elif result is None:
        say({"id": ident, "error": {"code": -32601, "message": "no such method"}})
    else:
        say({"id": ident, "result": result})

# Words at the very end, when nobody should care any more.
say({"method": "notifications/tools/list_changed"})
say({"id": 1, "result": {}})
note("end")
"#;

/// A colibri with such servers, and a client that has begun.
pub(super) struct Stage {
    pub(super) colibri: Colibri,
    next: u64,
}

impl Stage {
    /// Servers by name, each with the tools it offers and what its entry says beside; and what the file says beside them.
    pub(super) fn start(servers: &[(&str, &str, Value)], beside: &Value) -> Self {
        Self::start_in(Home::new(), servers, beside, &[])
    }

    /// The same in a home that may have been used before, with these flags.
    pub(super) fn start_in(
        home: Home,
        servers: &[(&str, &str, Value)],
        beside: &Value,
        flags: &[&str],
    ) -> Self {
        // As text: the order of the file counts.
        let mut entries = Vec::new();
        for (name, offers, beside) in servers {
            std::fs::write(home.path().join(format!("{name}.offers")), offers).unwrap();
            let mut entry = json!({ "command": "python3", "args": ["-c", SERVER, name] });
            entry["env"] = json!({ "HOME": home.path() });
            for (key, value) in beside.as_object().unwrap() {
                entry[key] = value.clone();
            }
            entries.push(format!("{}: {entry}", json!(name)));
        }
        let beside =
            beside.as_object().unwrap().iter().map(|(key, value)| format!(", {}: {value}", json!(key)));
        let whole =
            format!(r#"{{ "mcpServers": {{ {} }}{} }}"#, entries.join(", "), beside.collect::<String>());
        let file = home.path().join("servers.json");
        std::fs::write(&file, whole).unwrap();
        let mut command = home.command();
        command.arg("--config").arg(&file).args(flags).arg("serve");
        let mut colibri = Colibri::spawn(home, command);
        colibri.initialize("2025-11-25");
        Self { colibri, next: 1 }
    }

    fn path(&self, server: &str, word: &str) -> PathBuf {
        self.colibri.home.path().join(format!("{server}.{word}"))
    }

    pub(super) fn set(&self, server: &str, word: &str) {
        std::fs::write(self.path(server, word), "").unwrap();
    }

    pub(super) fn unset(&self, server: &str, word: &str) {
        std::fs::remove_file(self.path(server, word)).unwrap();
    }

    /// What a server has heard, in its order.
    pub(super) fn heard(&self, server: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.path(server, "heard")).unwrap_or_default();
        text.lines().map(|line| line.trim_end().to_owned()).collect()
    }

    /// How often it has heard what begins so.
    pub(super) fn count(&self, server: &str, begins: &str) -> usize {
        self.heard(server).iter().filter(|line| line.starts_with(begins)).count()
    }

    /// When each of its processes began, in milliseconds of one clock.
    pub(super) fn starts(&self, server: &str) -> Vec<u64> {
        let heard = self.heard(server);
        heard.iter().filter_map(|line| line.strip_prefix("start ")?.parse().ok()).collect()
    }

    /// What `server list` says of it.
    pub(super) fn standing(&self, server: &str) -> Value {
        let servers = run(&self.colibri.home, &["server", "list", "--json"]).json()["servers"].take();
        let servers = servers.as_array().cloned().unwrap_or_default();
        servers.into_iter().find(|found| found["name"] == server).unwrap_or_default()
    }

    #[track_caller]
    pub(super) fn await_state(&self, server: &str, state: &str) -> Value {
        until(&format!("{server} is {state}"), || {
            Some(self.standing(server)).filter(|found| found["state"] == state)
        })
    }

    /// The events of a topic that are about a server.
    pub(super) fn events(&self, server: &str, topic: &str) -> Vec<Value> {
        let ran = run(&self.colibri.home, &["events", "--json", "--topic", topic]);
        let all = ran.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        all.filter(|event| event["server"] == server).collect()
    }

    /// Ends the process of a server, as a crash does.
    pub(super) fn kill(&self, server: &str) {
        let pid = self.standing(server)["pid"].as_u64().unwrap();
        kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
    }

    pub(super) fn send(&mut self, method: &str, params: &Value) -> u64 {
        let id = self.next;
        self.next += 1;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.colibri.send(&request.to_string());
        id
    }

    pub(super) fn send_call(&mut self, tool: &str, arguments: &Value) -> u64 {
        self.send("tools/call", &json!({ "name": tool, "arguments": arguments }))
    }

    /// The answer to that request; what comes before it is let pass.
    pub(super) fn answer(&mut self, id: u64) -> Value {
        loop {
            let answer = self.colibri.answer();
            if answer["id"] == id {
                return answer;
            }
        }
    }

    pub(super) fn ask(&mut self, method: &str, params: &Value) -> Value {
        let id = self.send(method, params);
        self.answer(id)
    }

    pub(super) fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        self.ask("tools/call", &json!({ "name": tool, "arguments": arguments }))
    }

    /// The client takes a call back.
    pub(super) fn cancel(&mut self, id: u64) {
        let params = json!({ "requestId": id });
        let told = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
        self.colibri.send(&told.to_string());
    }

    /// The names of the tools of servers that are listed.
    pub(super) fn listed(&mut self) -> Vec<String> {
        let list = self.ask("tools/list", &json!({}));
        let tools = list["result"]["tools"].as_array().cloned().unwrap();
        let names = tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned());
        names.filter(|name| name.contains("__")).collect()
    }

    /// Ends it, and gives its home.
    pub(super) fn leave(mut self) -> Home {
        let home = std::mem::replace(&mut self.colibri.home, Home::new());
        std::fs::write(self.colibri.home.path().join("stderr"), "").unwrap();
        self.colibri.finish();
        home
    }
}

/// What a call is told: `ok`, or the code, and whether it had an effect.
pub(super) fn told(answer: &Value) -> (String, String) {
    let error = &answer["result"]["structuredContent"]["error"];
    let word = |value: &Value, none: &str| value.as_str().unwrap_or(none).to_owned();
    (word(&error["code"], "ok"), word(&error["details"]["executed"], ""))
}

/// The words of a result.
pub(super) fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_default()
}
