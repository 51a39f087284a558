//! The same rules with real processes on the real clock, where the paused one has shown them exactly.

mod calls;
mod inside;
mod lives;
mod probes;
mod stage;
mod words;

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::children::{processes, started};
use crate::hostile::child::Colibri;

/// Waits as long as it is told before it begins, and answers each call after as long as the call says.
const WORKER: &str = r#"
import json, os, sys, time, threading
time.sleep(float(sys.argv[1]))
lock, me = threading.Lock(), os.urandom(8).hex()
def say(message):
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()
def work(ident, seconds):
    time.sleep(seconds)
    say({"id": ident, "result": {"content": [{"type": "text", "text": me}]}})
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    method, ident = request["method"], request["id"]
    if method == "server/discover":
        say({"id": ident, "error": {"code": -32601, "message": "no"}})
    elif method == "initialize":
        say({"id": ident, "result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}})
    elif method == "tools/list":
        say({"id": ident, "result": {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ["work", "secret"]]}})
    elif method == "tools/call":
        threading.Thread(target=work, args=(ident, request["params"]["arguments"].get("s", 0))).start()
    else:
        say({"id": ident, "result": {}})
"#;

fn worker(start: &str, mark: &str, extra: &Value) -> Value {
    let mut entry = json!({ "command": "python3", "args": ["-c", WORKER, start, mark] });
    for (key, value) in extra.as_object().expect("an object") {
        entry[key] = value.clone();
    }
    entry
}

fn serving(file: &Value) -> Colibri {
    let mut colibri = started(file);
    colibri.initialize("2025-11-25");
    colibri
}

fn send(colibri: &mut Colibri, id: u64, tool: &str, arguments: &Value) {
    let params = json!({ "name": tool, "arguments": arguments });
    let call = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
    colibri.send(&call.to_string());
}

/// The answers to these calls, in the order in which they came.
fn answers(colibri: &mut Colibri, count: usize) -> Vec<Value> {
    let is_answer = |message: &Value| message["id"].is_u64();
    std::iter::repeat_with(|| colibri.answer()).filter(is_answer).take(count).collect()
}

fn code(answer: &Value) -> &str {
    answer["result"]["structuredContent"]["error"]["code"].as_str().unwrap_or("ok")
}

/// PR-3, PR-4, PR-6: two entries with one configuration are one process with tools under both names; `shared: false` has
/// its own; what is denied is neither listed nor callable.
#[test]
fn one_process_for_one_configuration() {
    let mark = format!("joined-{}", std::process::id());
    let (one, own) = (worker("0", &mark, &json!({})), worker("0", &mark, &json!({ "shared": false })));
    let denying = worker("0", &mark, &json!({ "toolsDenied": ["sec*"] }));
    let file = json!({ "mcpServers": { "a": one, "b": one, "own": own, "deny": denying } });
    let mut colibri = serving(&file);
    let mut told = Vec::new();
    for (id, tool) in [(1, "a__work"), (2, "b__work"), (3, "own__work"), (4, "deny__secret")] {
        send(&mut colibri, id, tool, &json!({}));
        told.extend(answers(&mut colibri, 1));
    }
    let process = |answer: &Value| answer["result"]["content"][0]["text"].clone();
    assert_eq!(process(&told[0]), process(&told[1]));
    assert_ne!(process(&told[0]), process(&told[2]));
    assert_eq!(code(&told[3]), "PROVIDER_POLICY_DENIED", "{}", told[3]);
    // Each has its guard beside it, whose command line is the same.
    assert!(processes(&mark).len() >= 3);
    colibri.finish();
    assert!(processes(&mark).is_empty());
}

/// PR-10: one at a time; one more than may wait is turned away at once, and was not sent.
#[test]
fn a_queue_bounds_real_calls() {
    let entry = worker("0", "queue", &json!({ "queue": "one" }));
    let queue = json!({ "one": { "concurrent": 1, "maxWaiting": 1 } });
    let mut colibri = serving(&json!({ "queues": queue, "mcpServers": { "q": entry } }));
    send(&mut colibri, 1, "q__work", &json!({}));
    answers(&mut colibri, 1);
    let begun = Instant::now();
    for id in 2..5 {
        send(&mut colibri, id, "q__work", &json!({ "s": 1.5 }));
    }
    let answers = answers(&mut colibri, 3);
    // In which order they reached the queue is the scheduler's choice; who came last is told first.
    let told: Vec<&str> = answers.iter().map(code).collect();
    assert_eq!(told, ["PROVIDER_CONCURRENCY_EXCEEDED", "ok", "ok"]);
    assert!(begun.elapsed() >= Duration::from_secs(3), "one after the other");
    colibri.finish();
}

/// PR-5, PR-7: a call waits for a server that is still starting, and the list does not; who has waited long enough is told
/// so, the next at once; when it is there after all, calls work.
#[test]
fn a_server_that_starts_slowly_is_waited_for() {
    let (slow, slower) =
        (worker("1", "slow", &json!({})), worker("6", "slower", &json!({ "acquireTimeout": 500 })));
    let mut colibri = serving(&json!({ "mcpServers": { "slow": slow, "slower": slower } }));
    send(&mut colibri, 1, "slow__work", &json!({}));
    colibri.send(&json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {} }).to_string());
    let came = answers(&mut colibri, 2);
    assert_eq!((&came[0]["id"], &came[1]["id"]), (&json!(2), &json!(1)), "the list waits for nobody");
    assert_eq!(code(&came[1]), "ok");
    for id in [3, 4] {
        send(&mut colibri, id, "slower__work", &json!({}));
        assert_eq!(code(&answers(&mut colibri, 1)[0]), "PROVIDER_UNAVAILABLE");
    }
    let mut id = 10;
    // The story's watchdog bounds this.
    loop {
        send(&mut colibri, id, "slower__work", &json!({}));
        if code(&answers(&mut colibri, 1)[0]) == "ok" {
            break;
        }
        id += 1;
    }
    colibri.finish();
}
