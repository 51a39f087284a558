//! The twelve scenarios of a provider's life, against real processes with a script each, through the binary; and a server
//! over the network that goes away and comes back.
//!
//! | | scenario | story |
//! |---|---|---|
//! | 1 | connect and discover | [`the_twelve`] |
//! | 2 | version mismatch | [`versions_that_do_not_meet`] |
//! | 3 | invocation succeeds | [`the_twelve`] |
//! | 4 | invocation times out | [`the_twelve`], [`a_deaf_server_is_ended_and_started_again`] |
//! | 5 | invocation crashes | [`the_twelve`] |
//! | 6 | unknown tool | [`the_twelve`] |
//! | 7 | invalid input | [`the_twelve`] |
//! | 8 | disconnection is detected | [`lost_found_and_given_up`] |
//! | 9 | reconnection succeeds | [`lost_found_and_given_up`], [`a_server_over_the_network_comes_back`] |
//! | 10 | reconnection is exhausted | [`lost_found_and_given_up`] |
//! | 11 | events and their correlation ids | [`the_twelve`], [`lost_found_and_given_up`] |
//! | 12 | terminate leaves nothing | every one of them |
#![expect(clippy::unwrap_used, reason = "a story ends at the first surprise")]

use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::canary::{Web, call, state};
use super::children::processes;
use crate::cli::run;
use crate::hostile::child::{Colibri, Home};
use crate::support::until;

/// A server of the older family whose tools do what their names say. What it offers is in the file `offers` of its home,
/// which it reads with every start; with a file `down` beside it, it does not start.
const SERVER: &str = r#"
import json, os, sys, time

home = os.environ["HOME"]
if os.path.exists(os.path.join(home, "down")):
    sys.stderr.write("I am down\n")
    sys.exit(3)
with open(os.path.join(home, "offers")) as file:
    offers = file.read().split()

def say(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()

def tool(name):
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}
    plain = {"type": "object"}
    output = {"type": "object", "properties": {"twice": {"type": "integer"}}}
    return {"name": name, "description": "It does: " + name, "inputSchema": schema if name == "double" else plain, **({"outputSchema": output} if name == "double" else {})}

for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    answer = {"jsonrpc": "2.0", "id": request["id"]}
    method, params = request["method"], request.get("params", {})
    name = params.get("name", "")
    if method == "initialize":
        answer["result"] = {"protocolVersion": sys.argv[1], "capabilities": {"tools": {}}}
    elif method == "ping":
        answer["result"] = {}
    elif method == "tools/list":
        answer["result"] = {"tools": [tool(name) for name in offers]}
    elif method != "tools/call":
        answer["error"] = {"code": -32601, "message": "no such method"}
    elif name == "double":
        twice = 2 * params["arguments"]["n"]
        answer["result"] = {"content": [{"type": "text", "text": str(twice)}], "structuredContent": {"twice": twice}}
    elif name == "fail":
        answer["result"] = {"content": [{"type": "text", "text": "it is broken"}], "isError": True}
    elif name == "error":
        answer["error"] = {"code": -32000, "message": "not today"}
    elif name == "delay":
        continue
    elif name == "deaf":
        time.sleep(600)
    elif name == "crash":
        sys.stderr.write("I cannot go on\n")
        sys.stderr.flush()
        os._exit(9)
    elif name == "garbage":
        sys.stdout.write("this is no message\n{\"half\": \n[]\n{\"id\": 12345, \"jsonrpc\": \"2.0\", \"result\": {}}\n")
        answer["result"] = {"content": [{"type": "text", "text": "after the garbage"}]}
    elif name == "flood":
        sys.stderr.write("words\n" * 200000)
        for number in range(2000):
            say({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "debug", "data": "x" * 100}})
        answer["result"] = {"content": [{"type": "text", "text": "after the flood"}]}
    elif name == "disconnect":
        os.close(1)
        time.sleep(600)
    say(answer)
"#;

/// A colibri with that server as `s`, and what else its entry says.
struct Stage {
    colibri: Colibri,
    mark: String,
    next: u64,
}

impl Stage {
    fn start(offers: &str, revision: &str, beside: &Value) -> Self {
        let (home, mark) = (Home::new(), format!("scenario-{}", uuid::Uuid::now_v7()));
        std::fs::write(home.path().join("offers"), offers).unwrap();
        let mut entry = json!({ "command": "python3", "args": ["-c", SERVER, revision, mark], "env": { "HOME": home.path() } });
        for (key, value) in beside.as_object().unwrap() {
            entry[key] = value.clone();
        }
        let file = home.path().join("servers.json");
        std::fs::write(&file, json!({ "mcpServers": { "s": entry } }).to_string()).unwrap();
        let mut command = home.command();
        command.arg("--config").arg(&file).arg("serve");
        let mut colibri = Colibri::spawn(home, command);
        colibri.initialize("2025-11-25");
        Self { colibri, mark, next: 1 }
    }

    #[track_caller]
    fn await_state(&self, expected: &str) {
        until(expected, || (state(&self.colibri.home, "s") == expected).then_some(()));
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        let id = self.next;
        self.next += 1;
        self.colibri
            .send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string());
        loop {
            let answer = self.colibri.answer();
            if answer["id"] == id {
                return answer;
            }
        }
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        self.ask("tools/call", &json!({ "name": tool, "arguments": arguments }))
    }

    /// The code that a call fails with, and the whole error.
    #[track_caller]
    fn fails(&mut self, tool: &str, arguments: &Value) -> (String, Value) {
        let answer = self.call(tool, arguments);
        let error = answer["result"]["structuredContent"]["error"].clone();
        (error["code"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned(), error)
    }

    fn events(&self, topic: &str) -> Vec<Value> {
        let ran = run(&self.colibri.home, &["events", "--json", "--topic", topic]);
        ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn process(&self) -> u32 {
        let status = run(&self.colibri.home, &["server", "list", "--json"]).json();
        let pid = status["servers"][0]["pid"].as_u64().unwrap_or_else(|| panic!("{status}"));
        pid.try_into().unwrap()
    }

    fn kill(&self) {
        let pid = i32::try_from(self.process()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    }

    /// Ends it, and finds nothing of the server.
    #[track_caller]
    fn finish(self) {
        self.colibri.finish();
        assert_eq!(processes(&self.mark), Vec::<PathBuf>::new());
    }
}

/// SB-1, SB-2, SB-5, SB-7, SB-11, SB-12: what is found, what succeeds, and each way to fail, with its code, whether it is worth
/// another attempt, whether it had an effect; each is told as an event under the id that the client got; nothing that one
/// call does hurts the next.
#[test]
fn the_twelve() {
    let all = "double fail error delay crash garbage flood disconnect";
    let mut stage = Stage::start(all, "2025-06-18", &json!({ "tools": { "delay": { "timeout": 1500 } } }));
    stage.await_state("ready");
    let listed = stage.ask("tools/list", &json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap();
    let double = tools.iter().find(|tool| tool["name"] == "s__double").expect("it is listed");
    assert_eq!(
        (&double["description"], &double["inputSchema"]["required"]),
        (&"It does: double".into(), &json!(["n"]))
    );
    assert_eq!(double["outputSchema"]["properties"]["twice"]["type"], "integer");
    assert_eq!(
        tools.iter().filter(|tool| tool["name"].as_str().is_some_and(|name| name.starts_with("s__"))).count(),
        8
    );
    let found = stage.events("provider.mcp.tools.discovered").remove(0);
    assert_eq!(found["payload"]["count"], 8, "{found}");

    let doubled = stage.call("s__double", &json!({ "n": 21 }));
    assert_eq!(doubled["result"]["structuredContent"]["twice"], 42, "{doubled}");
    let mut ids = vec![(doubled["result"]["_meta"]["colibri/correlationId"].clone(), Value::Null)];
    for (tool, arguments, code, retryable, executed) in [
        ("s__delay", json!({}), "PROVIDER_TIMEOUT", true, "unknown"),
        ("s__crash", json!({}), "PROVIDER_CRASHED", true, "unknown"),
        ("s__dubble", json!({}), "PROVIDER_TOOL_NOT_FOUND", false, "no"),
        ("s__double", json!({ "n": "many" }), "PROVIDER_INVALID_INPUT", false, "no"),
        ("s__disconnect", json!({}), "PROVIDER_CRASHED", true, "unknown"),
    ] {
        let answer = stage.call(tool, &arguments);
        let error = &answer["result"]["structuredContent"]["error"];
        assert_eq!(error["code"], code, "{tool}: {answer}");
        assert_eq!(
            (&error["details"]["retryable"], &error["details"]["executed"]),
            (&retryable.into(), &executed.into())
        );
        assert_eq!(answer["result"]["isError"], true);
        if code == "PROVIDER_CRASHED" && tool == "s__crash" {
            assert_eq!(error["details"]["stderr"].as_str().map(str::trim), Some("I cannot go on"), "{error}");
        }
        ids.push((answer["result"]["_meta"]["colibri/correlationId"].clone(), json!(code)));
        let doubled = stage.call("s__double", &json!({ "n": 1 }));
        assert_eq!(doubled["result"]["structuredContent"]["twice"], 2, "after {tool}: {doubled}");
    }
    assert_eq!(stage.call("s__fail", &json!({}))["result"]["isError"], true);
    assert_eq!(
        stage.call("s__error", &json!({}))["error"],
        json!({ "code": -32_000, "message": "not today" })
    );
    for tool in ["garbage", "flood"] {
        let answer = stage.call(&format!("s__{tool}"), &json!({}));
        assert_eq!(answer["result"]["content"][0]["text"], format!("after the {tool}"), "{answer}");
    }

    let told = stage.events("provider.mcp.tool.*");
    for (id, code) in &ids {
        let of_it: Vec<&Value> = told.iter().filter(|event| event["correlation_id"] == *id).collect();
        assert!(id.is_string() && of_it.len() == 1, "{id} {code}: {of_it:?}");
        assert_eq!(of_it[0]["payload"]["code"], *code, "{of_it:?}");
    }
    let failed: Vec<&Value> =
        told.iter().filter(|event| event["topic"] == "provider.mcp.tool.failed").collect();
    let sequence: Vec<u64> = failed.iter().filter_map(|event| event["sequence"].as_u64()).collect();
    assert_eq!(sequence, (1..=sequence.len() as u64).collect::<Vec<_>>());
    for code in ["PROVIDER_TOOL_ERROR", "PROVIDER_EXECUTE_FAILED"] {
        assert!(failed.iter().any(|event| event["payload"]["code"] == code), "{code}: {failed:?}");
    }
    stage.finish();
}

/// SB-1, SB-12, PR-9: a server that speaks no revision of ours is not used; both sides' revisions are named, and nothing is
/// tried until something changes.
#[test]
fn versions_that_do_not_meet() {
    let mut stage = Stage::start("double", "1999-01-01", &json!({}));
    stage.await_state("blocked");
    let (code, error) = stage.fails("s__double", &json!({ "n": 1 }));
    assert_eq!(code, "PROVIDER_INIT_FAILED");
    let said = error["message"].as_str().unwrap();
    assert!(said.contains("1999-01-01") && said.contains("2025-11-25"), "{said}");
    assert_eq!(error["details"]["retryable"], false);
    assert_eq!(processes(&stage.mark), Vec::<PathBuf>::new(), "nothing of it is kept");
    stage.finish();
}

/// SB-5, SB-12, PR-8: a server that is deaf after a call ran out of time is ended, with its process, and a new one is there.
#[test]
fn a_deaf_server_is_ended_and_started_again() {
    let beside = json!({ "tools": { "deaf": { "timeout": 300 } }, "probeTimeout": 500 });
    let mut stage = Stage::start("double deaf", "2025-06-18", &beside);
    stage.await_state("ready");
    let before = stage.process();
    assert_eq!(stage.fails("s__deaf", &json!({})).0, "PROVIDER_TIMEOUT");
    until("the deaf one is gone", || (!PathBuf::from(format!("/proc/{before}")).exists()).then_some(()));
    let doubled = stage.call("s__double", &json!({ "n": 3 }));
    assert_eq!(doubled["result"]["structuredContent"]["twice"], 6, "{doubled}");
    assert_ne!(stage.process(), before);
    stage.finish();
}

/// SB-7, SB-8, SB-9, SB-12: a server that is killed is degraded, comes back with what it offers now, and when it does not come back
/// is given up after its attempts; each is told in order, and one episode has one id.
#[test]
fn lost_found_and_given_up() {
    let beside = json!({ "restart": { "delays": [50], "maxAttempts": 3, "jitter": 0 } });
    let mut stage = Stage::start("double old", "2025-06-18", &beside);
    stage.await_state("ready");
    std::fs::write(stage.colibri.home.path().join("offers"), "double new").unwrap();
    stage.kill();
    let back = until("it is back", || stage.events("provider.mcp.reconnected").pop());
    let lost = stage.events("provider.mcp.disconnected").remove(0);
    assert_eq!(lost["correlation_id"], back["correlation_id"]);
    assert!(lost["payload"]["reason"].is_string() && back["payload"]["attempts"] == 1, "{lost} {back}");
    let refreshed = until("the catalog follows", || stage.events("provider.mcp.tools.refreshed").pop());
    assert_eq!(refreshed["correlation_id"], back["correlation_id"], "one episode");
    assert_eq!(
        (&refreshed["payload"]["added"], &refreshed["payload"]["removed"]),
        (&json!(["new"]), &json!(["old"]))
    );
    assert_eq!(stage.fails("s__old", &json!({})).0, "PROVIDER_TOOL_NOT_FOUND");

    std::fs::write(stage.colibri.home.path().join("down"), "").unwrap();
    stage.kill();
    let over = until("it is given up", || stage.events("provider.mcp.reconnect.exhausted").pop());
    assert_eq!(over["payload"]["attempts"], 3, "{over}");
    let (code, error) = stage.fails("s__double", &json!({ "n": 1 }));
    assert_eq!(
        (code.as_str(), &error["details"]["executed"]),
        ("PROVIDER_UNAVAILABLE", &"no".into()),
        "{error}"
    );
    let health = stage.events("provider.health.changed");
    let steps: Vec<&str> = health.iter().filter_map(|event| event["payload"]["to"].as_str()).collect();
    assert_eq!(steps, ["degraded", "healthy", "degraded", "healthy", "degraded", "unavailable"]);
    stage.finish();
}

/// PR-1, PR-9, PR-17: a server over HTTP that goes away and comes back on the same port is found again; calls meanwhile fail
/// with a code that says so, and another server does not notice.
#[test]
fn a_server_over_the_network_comes_back() {
    let home = Home::new();
    std::fs::write(home.path().join("open"), "").unwrap();
    std::fs::write(home.path().join("offers"), "double").unwrap();
    let web = Web::start(0, home.path());
    let port = web.port;
    let servers = json!({
        "web": { "url": format!("http://127.0.0.1:{port}/mcp"), "acquireTimeout": 500, "restart": { "delays": [100] },
            "probeInterval": 5000 },
        "s": { "command": "python3", "args": ["-c", SERVER, "2025-06-18"], "env": { "HOME": home.path() } },
    });
    let file = home.path().join("servers.json");
    std::fs::write(&file, json!({ "mcpServers": servers }).to_string()).unwrap();
    let mut command = home.command();
    command.arg("--config").arg(&file).arg("serve");
    let mut colibri = Colibri::spawn(home, command);
    colibri.initialize("2025-11-25");
    for name in ["web", "s"] {
        until("both are ready", || (state(&colibri.home, name) == "ready").then_some(()));
    }
    assert_eq!(call(&mut colibri, 1, "web__echo")["result"]["content"][0]["text"], "from the web");
    drop(web);
    for id in 2..4 {
        let gone = call(&mut colibri, id, "web__echo");
        let error = &gone["result"]["structuredContent"]["error"];
        assert_eq!(
            (&error["code"], &error["details"]["retryable"]),
            (&"PROVIDER_UNAVAILABLE".into(), &true.into()),
            "{gone}"
        );
    }
    let web = Web::start(port, colibri.home.path());
    let mut id = 100;
    until("it is found again", || {
        id += 1;
        call(&mut colibri, id, "web__echo")["result"]["content"].is_array().then_some(())
    });
    assert_eq!(
        call(&mut colibri, 99, "s__double")["result"]["structuredContent"]["error"]["code"],
        "PROVIDER_INVALID_INPUT"
    );
    drop(web);
    colibri.finish();
}
