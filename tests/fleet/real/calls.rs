//! Queues, deadlines and what is taken back, with real processes.

use std::collections::BTreeSet;
use std::path::Path;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::stage::{Stage, text, told};
use crate::cli::run;
use crate::support::until;

/// How many run and wait in a queue, as `status` tells.
fn crowd(stage: &Stage, queue: &str) -> (u64, u64) {
    let status = run(&stage.colibri.home, &["status", "--json"]).json();
    let queues = status["colibris"][0]["queues"].as_array().cloned().unwrap_or_default();
    let found = queues.iter().find(|found| found["queue"] == queue).cloned().unwrap_or_default();
    let count = |key: &str| found[key].as_u64().unwrap_or(u64::MAX);
    (count("running"), count("waiting"))
}

fn is(answer: &Value, code: &str, executed: &str) {
    assert_eq!(told(answer), (code.to_owned(), executed.to_owned()), "{answer}");
}

/// PR-10, PR-11, SB-5: in a queue of one: who has waited for `maxWait` is turned away, who runs out of time while it waits
/// was not sent either, who is taken back leaves at once, and its place is free; a tool with a queue of its own does not
/// wait; how many run and wait can be seen. When the one that runs is taken back, the next has its turn.
#[test]
fn a_queue_of_one() {
    let queues = json!({ "one": { "concurrent": 1, "maxWaiting": 1, "maxWait": 60_000 }, "brief": { "concurrent": 1, "maxWait": 200 },
        "other": { "concurrent": 1 } });
    let entry = json!({ "queue": "one", "tools": {
        "free": { "queue": "other" }, "hasty": { "timeout": 200 } } });
    let brief = json!({ "queue": "brief" });
    let servers = [("s", "hang free hasty a", entry), ("t", "hang a", brief)];
    let mut stage = Stage::start(&servers, &json!({ "queues": queues }));
    for server in ["s", "t"] {
        stage.await_state(server, "ready");
    }
    let (runs, holds) = (stage.send_call("s__hang", &json!({})), stage.send_call("t__hang", &json!({})));
    until("one runs in each", || {
        (crowd(&stage, "one") == (1, 0) && crowd(&stage, "brief") == (1, 0)).then_some(())
    });
    let waited = stage.call("t__a", &json!({}));
    is(&waited, "PROVIDER_CONCURRENCY_EXCEEDED", "no");
    assert_eq!(waited["result"]["structuredContent"]["error"]["details"]["reason"], "max_wait", "{waited}");
    is(&stage.call("s__hasty", &json!({})), "PROVIDER_TIMEOUT", "no");
    let waits = stage.send_call("s__a", &json!({}));
    until("one waits", || (crowd(&stage, "one") == (1, 1)).then_some(()));
    is(&stage.call("s__hasty", &json!({})), "PROVIDER_CONCURRENCY_EXCEEDED", "no");
    assert_eq!(text(&stage.call("s__free", &json!({}))), "free");
    stage.cancel(waits);
    until("who is taken back leaves", || (crowd(&stage, "one") == (1, 0)).then_some(()));
    let next = stage.send_call("s__a", &json!({}));
    until("another waits", || (crowd(&stage, "one") == (1, 1)).then_some(()));
    stage.cancel(runs);
    let answer = stage.answer(next);
    assert_eq!(text(&answer), "a", "{answer}");
    stage.cancel(holds);
    until("nobody is left", || {
        (crowd(&stage, "one") == (0, 0) && crowd(&stage, "brief") == (0, 0)).then_some(())
    });
    assert_eq!(stage.count("s", "tools/call"), 3, "what was not let in was not sent: {:?}", stage.heard("s"));
    assert_eq!(stage.count("t", "tools/call"), 1);
    stage.colibri.finish();
}

/// PR-10: those that wait are served in the order in which their calls came.
#[test]
fn first_come_first_served() {
    let entry = json!({ "queue": "one" });
    let mut stage =
        Stage::start(&[("s", "hang a b c d e", entry)], &json!({ "queues": { "one": { "concurrent": 1 } } }));
    stage.await_state("s", "ready");
    let runs = stage.send_call("s__hang", &json!({}));
    until("one runs", || (crowd(&stage, "one") == (1, 0)).then_some(()));
    let mut unanswered: BTreeSet<u64> =
        ["a", "b", "c", "d", "e"].map(|tool| stage.send_call(&format!("s__{tool}"), &json!({}))).into();
    until("all others wait", || (crowd(&stage, "one") == (1, 5)).then_some(()));
    stage.cancel(runs);
    while !unanswered.is_empty() {
        let answer = stage.colibri.answer();
        unanswered.retain(|id| answer["id"] != *id);
    }
    let heard = stage.heard("s");
    let order: Vec<&str> = heard.iter().filter_map(|line| line.strip_prefix("tools/call ")).collect();
    assert_eq!(order, ["hang", "a", "b", "c", "d", "e"]);
    stage.colibri.finish();
}

/// PR-11, PR-15: a process is told that a call is taken back, and by whom: its client, or its deadline; once each, though the
/// client says it twice. When colibri ends, so does the process: whether it has the time to write down that it was told so
/// is its own affair, and a server in memory shows it.
#[test]
fn what_is_taken_back_reaches_the_process() {
    let servers = [("s", "hang a", json!({})), ("t", "hang", json!({ "timeout": 1500 }))];
    let mut stage = Stage::start(&servers, &json!({}));
    for server in ["s", "t"] {
        stage.await_state(server, "ready");
    }
    is(&stage.call("t__hang", &json!({})), "PROVIDER_TIMEOUT", "unknown");
    until("its deadline", || (stage.count("t", "notifications/cancelled timeout") == 1).then_some(()));
    let cancelled = stage.send_call("s__hang", &json!({}));
    until("it is under way", || (stage.count("s", "tools/call") == 1).then_some(()));
    stage.cancel(cancelled);
    stage.cancel(cancelled);
    until("the client", || (stage.count("s", "notifications/cancelled client") == 1).then_some(()));
    assert_eq!(text(&stage.call("s__a", &json!({}))), "a");
    stage.send_call("s__hang", &json!({}));
    until("another is under way", || (stage.count("s", "tools/call") == 3).then_some(()));
    let process = stage.await_state("s", "ready")["pid"].clone();
    stage.colibri.signal(Signal::TERM);
    stage.colibri.rest();
    assert_eq!(stage.colibri.exit_code(), 0, "{}", stage.colibri.log());
    until("its process is gone", || (!Path::new(&format!("/proc/{process}")).exists()).then_some(()));
    let heard = stage.heard("s");
    let reasons: Vec<&str> =
        heard.iter().filter_map(|line| line.strip_prefix("notifications/cancelled ")).collect();
    assert!(matches!(reasons[..], ["client"] | ["client", "shutdown"]), "{heard:?}");
}

/// SB-5: progress gives a call new time, again and again, up to `maxTotalTimeout`.
#[test]
fn progress_gives_time() {
    let entry = |total: u64| json!({ "timeout": 3000, "maxTotalTimeout": total });
    let servers = [("s", "steps", entry(60_000)), ("t", "steps", entry(3200))];
    let mut stage = Stage::start(&servers, &json!({}));
    for (server, code) in [("s", "ok"), ("t", "PROVIDER_TIMEOUT")] {
        stage.await_state(server, "ready");
        let params = json!({ "name": format!("{server}__steps"), "arguments": { "n": 16, "s": 0.25 },
            "_meta": { "progressToken": "mine" } });
        let answer = stage.ask("tools/call", &params);
        assert_eq!(told(&answer).0, code, "{server}: {answer}");
    }
    stage.colibri.finish();
}

/// SB-5, PR-9: after a timeout a process that is nobody else's is ended and started again, and not asked whether it is well.
#[test]
fn a_process_of_ones_own_is_started_again_after_a_timeout() {
    let entry = json!({ "shared": false, "tools": { "hang": { "timeout": 1500 } }, "probeInterval": 0 });
    let mut stage = Stage::start(&[("s", "hang a", entry)], &json!({}));
    let before = stage.await_state("s", "ready")["pid"].clone();
    is(&stage.call("s__hang", &json!({})), "PROVIDER_TIMEOUT", "unknown");
    until("its process is gone", || (!Path::new(&format!("/proc/{before}")).exists()).then_some(()));
    assert_eq!(text(&stage.call("s__a", &json!({}))), "a");
    assert_eq!((stage.starts("s").len(), stage.count("s", "ping")), (2, 0), "{:?}", stage.heard("s"));
    stage.colibri.finish();
}
