//! The binary with servers on the network in `call` isolation: each call from a worker process of its own.
#![expect(clippy::unwrap_used, reason = "a story ends at the first surprise")]

mod old_events;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::canary::Web;
use super::children::{ask, processes, serving, started};
use crate::bridge::network::mcp::{Call, Carrier, answer, response};
use crate::bridge::network::wire::{Server, Step};
use crate::hostile::child::Colibri;
use crate::support::until;

/// A name that no other story has: a worker shows it in its command line.
fn mark(story: &str) -> String {
    format!("{story}-{}", std::process::id())
}

fn entry(url: &str, more: &Value) -> Value {
    let mut entry = json!({ "url": url, "isolation": "call" });
    entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    entry
}

fn call(colibri: &mut Colibri, id: u64, tool: &str, arguments: &Value) -> Value {
    ask(colibri, id, "tools/call", &json!({ "name": tool, "arguments": arguments }))
}

/// Sends a call and goes on.
fn begin(colibri: &mut Colibri, id: u64, tool: &str) {
    let params = json!({ "name": tool, "arguments": {} });
    colibri
        .send(&json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }).to_string());
}

fn answer_to(colibri: &mut Colibri, id: u64) -> Value {
    loop {
        let answer = colibri.answer();
        if answer["id"] == id {
            return answer;
        }
    }
}

/// A server that answers each call when it is let.
async fn held() -> (Server, Arc<Notify>) {
    let go_on = Arc::new(Notify::new());
    let waits = Arc::clone(&go_on);
    let script = move |call: &Call| {
        vec![Step::Wait(Arc::clone(&waits)), Step::Send(Carrier::Json.whole(&call.good()))]
    };
    (Carrier::Json.serve(script).await, go_on)
}

/// Waits until a server has so many workers.
fn workers(mark: &str, count: usize) -> BTreeSet<PathBuf> {
    let what = format!("there are {count} workers of {mark}");
    until(&what, || Some(processes(mark)).filter(|found| found.len() == count)).into_iter().collect()
}

fn kill(process: &Path) {
    let pid = process.file_name().and_then(|name| name.to_str()?.parse().ok()).and_then(Pid::from_raw);
    kill_process(pid.unwrap(), Signal::KILL).unwrap();
}

/// SB-4: over every transport, named or found out, of either family: tools are listed and called, each call from a
/// worker of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_transport_is_called_from_workers() {
    let good = |carrier: Carrier| move |call: &Call| vec![Step::Send(carrier.whole(&call.good()))];
    let modern = Carrier::Json.serve(good(Carrier::Json)).await;
    let socket = Carrier::Socket.serve(good(Carrier::Socket)).await;
    let old = format!("http://{}/sse", old_events::serve().await);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("open"), "").unwrap();
    let web = Web::start(0, folder.path());
    let legacy = format!("http://127.0.0.1:{}/mcp", web.port);
    let (modern_url, socket_url) = (modern.url(), Carrier::Socket.url(&socket));
    let none = json!({});
    let rows = [
        ("modern", modern_url.as_str(), none.clone(), "t"),
        ("legacy", legacy.as_str(), json!({ "type": "http" }), "echo"),
        ("socket", socket_url.as_str(), none.clone(), "t"),
        ("sse", old.as_str(), json!({ "type": "sse" }), "t"),
        ("found", old.as_str(), none, "t"),
    ];
    let mark = |name: &str| mark(&format!("transport-{name}"));
    let servers = rows.iter().map(|(name, url, more, _)| (mark(name), entry(url, more))).collect();
    let mut colibri = serving(&Value::Object(servers));
    let mut id = 0;
    for (name, _, _, tool) in &rows {
        let mark = mark(name);
        // The scout, and two that wait.
        let mut seen = workers(&mark, 3);
        for _ in 0..3 {
            id += 1;
            let answer = call(&mut colibri, id, &format!("{mark}__{tool}"), &json!({}));
            assert!(answer["result"]["content"].is_array(), "{name}: {answer}");
            let before = seen.len();
            until("another takes the place of the one that was used", || {
                seen.extend(processes(&mark));
                (seen.len() > before).then_some(())
            });
        }
        workers(&mark, 3);
    }
    let listed = ask(&mut colibri, 1000, "tools/list", &json!({}));
    for (name, _, _, tool) in &rows {
        let full = format!("{}__{tool}", mark(name));
        let tools = listed["result"]["tools"].as_array().unwrap();
        assert!(tools.iter().any(|tool| tool["name"] == full.as_str()), "{full} in {listed}");
    }
    colibri.finish();
    for (name, ..) in &rows {
        assert_eq!(processes(&mark(name)), Vec::<PathBuf>::new(), "{name}");
    }
}

/// SB-4, SB-5: two calls at the same time are two processes; one of them killed fails its own call, as a crash, and the
/// other is answered; the server itself goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_worker_takes_one_call_with_it() {
    let (server, go_on) = held().await;
    let mark = mark("killed");
    let entry = entry(&server.url(), &json!({ "pool": { "size": 0 } }));
    let mut colibri = serving(&json!({ (mark.as_str()): entry }));
    let tool = format!("{mark}__t");
    begin(&mut colibri, 1, &tool);
    until("the first is called", || (server.count("tools/call") == 1).then_some(()));
    let first = workers(&mark, 2);
    begin(&mut colibri, 2, &tool);
    until("the second is called", || (server.count("tools/call") == 2).then_some(()));
    let both = workers(&mark, 3);
    let second: Vec<_> = both.difference(&first).collect();
    assert_eq!(second.len(), 1);
    kill(second[0]);
    let crashed = answer_to(&mut colibri, 2);
    let error = &crashed["result"]["structuredContent"]["error"];
    assert_eq!(error["code"], "PROVIDER_CRASHED", "{crashed}");
    assert_eq!(
        (&error["details"]["retryable"], &error["details"]["executed"]),
        (&json!(true), &json!("unknown"))
    );
    assert!(error["message"].as_str().unwrap().contains("its worker was killed by signal 9"), "{crashed}");
    go_on.notify_one();
    go_on.notify_one();
    assert!(answer_to(&mut colibri, 1)["result"]["content"].is_array());
    let scout = workers(&mark, 1);
    assert!(scout.is_subset(&first), "the scout was not touched");
    colibri.finish();
}

/// What a server does with a call, by its argument `do`; its tool `silent` says nothing.
fn misbehave(call: &Call) -> Vec<Step> {
    let asked: Value = serde_json::from_slice(&call.raw).unwrap();
    if asked["params"]["name"] == "silent" {
        return vec![Step::Hold];
    }
    let status = |head: &str, body: &str| vec![Step::Send(response(head, body))];
    let json = "200 OK\ncontent-type: application/json";
    match asked["params"]["arguments"]["do"].as_str().unwrap_or_default() {
        "garbage" => status(json, "<html>"),
        "huge" => status(json, &answer(call.id, &format!("[\"{}\"]", "x".repeat(5 << 20)))),
        "reset" => vec![Step::Reset],
        "status" => status("500 Internal Server Error", "oh"),
        "refuse" => status("401 Unauthorized", ""),
        "redirect" => status("302 Found\nlocation: /elsewhere", ""),
        "error" => {
            let error = r#""error":{"code":-32007,"message":"no","data":1.50}"#;
            status(json, &format!(r#"{{"jsonrpc":"2.0","id":{},{error}}}"#, call.id))
        }
        _ => status(json, &call.good()),
    }
}

/// SB-4, SB-11: a caller is told the very same, word for word, whether its server is called from a worker or not; and
/// after each failure the server goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_is_told_the_same_with_and_without_a_worker() {
    let others = Carrier::Json.script(misbehave);
    let server = Server::start(move |heard| {
        if heard.asks() != "tools/list" {
            return others(heard);
        }
        let tools = ["t", "silent"].map(|name| json!({ "name": name, "inputSchema": { "type": "object" } }));
        let id = heard.envelope().id.as_u64().unwrap();
        vec![Step::Send(Carrier::Json.whole(&answer(id, &json!({ "tools": tools }).to_string())))]
    })
    .await;
    // Only who waits in vain has little time. A worker that was called well is there for the next call.
    let few = json!({ "tools": { "silent": { "timeout": 1500 } }, "pool": { "size": 1, "maxUses": 2 } });
    let mut shared = entry(&server.url(), &few);
    shared["isolation"] = json!("shared");
    let mut colibri = serving(&json!({ "inside": shared, "worker": entry(&server.url(), &few) }));
    let mut id = 0;
    let faults = [
        "garbage", "huge", "reset", "status", "refuse", "redirect", "error", "nothing", "silence", "nothing",
    ];
    for fault in faults {
        let tool = if fault == "silence" { "silent" } else { "t" };
        let [inside, worker] = ["inside", "worker"].map(|name| {
            id += 1;
            let told = call(&mut colibri, id, &format!("{name}__{tool}"), &json!({ "do": fault }));
            assert!(told["error"].is_object() || told["result"].is_object(), "{told}");
            let is_good = told["result"]["isError"].is_null() && told["error"].is_null();
            assert_eq!(is_good, fault == "nothing", "{fault}: {told}");
            let error = told["result"]["structuredContent"]["error"].to_string() + &told["error"].to_string();
            error.replace(name, "NAME")
        });
        assert_eq!(inside, worker, "{fault}");
    }
    colibri.finish();
}

/// PR-16, SB-4: what is secret in an address and its headers reaches the server, and is in no command line and no
/// environment of any process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_shows_no_secret() {
    let canaries = ["c4n4ry-h34d3r", "c4n4ry-p4ssw0rd", "c4n4ry-qu3ry"];
    let server = Carrier::Json.serve(|call| vec![Step::Send(Carrier::Json.whole(&call.good()))]).await;
    let mark = mark("secret");
    let url = format!("http://ada:{}@{}/mcp?key={}", canaries[1], server.address, canaries[2]);
    let entry = entry(&url, &json!({ "headers": { "x-key": canaries[0] } }));
    let mut colibri = serving(&json!({ (mark.as_str()): entry }));
    let answer = call(&mut colibri, 1, &format!("{mark}__t"), &json!({}));
    assert!(answer["result"]["content"].is_array(), "{answer}");
    let heard = server.heard();
    let of_call = heard.iter().find(|heard| heard.asks() == "tools/call").unwrap();
    assert_eq!(of_call.header("x-key"), Some(canaries[0]));
    assert!(of_call.target.contains(canaries[2]) && of_call.header("authorization").is_some());
    workers(&mark, 3);
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        for place in ["cmdline", "environ"] {
            let shown = std::fs::read(process.path().join(place)).unwrap_or_default();
            let shown = String::from_utf8_lossy(&shown).into_owned();
            assert!(!canaries.iter().any(|canary| shown.contains(canary)), "{place}: {shown}");
        }
    }
    let log = colibri.log();
    assert!(!canaries.iter().any(|canary| log.contains(canary)), "{log}");
    colibri.finish();
}

/// SB-4, SB-6: when colibri ends, asked or killed, in the middle of a call, no worker is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_worker_outlives_colibri() {
    for signal in [Signal::TERM, Signal::KILL] {
        let (server, _held) = held().await;
        let mark = mark(&format!("left-{}", signal.as_raw()));
        let mut colibri = serving(&json!({ (mark.as_str()): entry(&server.url(), &json!({})) }));
        begin(&mut colibri, 1, &format!("{mark}__t"));
        until("it is called", || (server.count("tools/call") == 1).then_some(()));
        // The scout, the one that is called from, and two that wait.
        workers(&mark, 4);
        colibri.signal(signal);
        colibri.rest();
        colibri.exit_code();
        workers(&mark, 0);
    }
}

/// SB-3, SB-4: what an entry says of its sandbox holds for its workers: `off` takes nothing from them, `standard` covers
/// colibri's own files, and under `strict` they have no network but the way to their server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_run_in_the_sandbox_of_their_entry() {
    let server = Carrier::Json.serve(|call| vec![Step::Send(Carrier::Json.whole(&call.good()))]).await;
    let levels = ["off", "standard", "strict"];
    let of = |level: &str| mark(&format!("level-{level}"));
    let entries = levels.map(|level| (of(level), entry(&server.url(), &json!({ "sandbox": level }))));
    let mut colibri = serving(&Value::Object(entries.into_iter().collect()));
    let database = colibri.home.database();
    for (id, level) in (1..).zip(levels) {
        let answer = call(&mut colibri, id, &format!("{}__t", of(level)), &json!({}));
        assert!(answer["result"]["content"].is_array(), "{level}: {answer}");
        let worker = workers(&of(level), 3).pop_first().unwrap();
        let own = |what: &str| {
            let of = |process: &Path| std::fs::read_link(process.join("ns").join(what)).unwrap();
            of(&worker) != of(Path::new("/proc/self"))
        };
        assert_eq!((own("mnt"), own("pid"), own("net")), (level != "off", level != "off", level == "strict"));
        let seen = worker.join("root").join(database.strip_prefix("/").unwrap());
        let is_seen = std::fs::read(seen).is_ok_and(|bytes| bytes.starts_with(b"SQLite format 3"));
        assert_eq!(is_seen, level == "off", "{level}");
        let status = std::fs::read_to_string(worker.join("status")).unwrap();
        assert_eq!(status.contains("NoNewPrivs:\t1"), level != "off", "{level}");
        assert_eq!(status.contains("Seccomp:\t2"), level == "strict", "{level}");
    }
    colibri.finish();
}

/// SB-3, SB-4: what cannot be held is refused where it is written: a plain WebSocket does not go through the door of a
/// limited network.
#[test]
fn what_a_limited_network_cannot_carry_is_refused() {
    let entry = entry("ws://127.0.0.1:9/mcp", &json!({ "sandbox": { "network": "none" } }));
    let colibri = started(&json!({ "mcpServers": { "plain": entry } }));
    until("it is told", || {
        colibri.log().contains("[mcp:plain] not started: ws://127.0.0.1:9/mcp").then_some(())
    });
    colibri.finish();
}
