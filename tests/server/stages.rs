//! Stories of the five stages, seen from both ends: what the client is answered, what the sink is told.

use std::sync::Arc;
use std::time::Duration;

use colibri::app::Server;
use colibri::domain::audit::Outcome;
use colibri::domain::mode::Mode;
use serde_json::{Value, json};

use super::tools;
use crate::support::library::{Bench, Recorder, Seen, StepClock, TwoVerbs, bench};

/// T-12, T-13, CO-15: a ping says version, mode and uptime.
#[tokio::test]
async fn a_ping_tells_version_mode_and_uptime() {
    let (builder, mut bench) = bench();
    let mut server = builder.build();
    bench.start(&mut server).await;
    let envelope = bench.client.envelope("server_ping", &json!({})).await;
    assert_eq!(envelope["ok"], true);
    let data = &envelope["data"];
    assert_eq!((&data["version"], &data["mode"]), (&json!(env!("CARGO_PKG_VERSION")), &json!("FULL")));
    let first = data["uptime_ms"].as_u64().expect("a count of milliseconds, never negative");
    let later = bench.client.envelope("server_ping", &json!({})).await;
    assert!(later["data"]["uptime_ms"].as_u64() > Some(first), "it counts");
}

/// T-13, CO-15: a clock that is behind the boot instant makes no negative uptime.
#[tokio::test]
async fn uptime_is_never_negative() {
    let (builder, mut bench) = bench();
    let mut server = builder.boot(Duration::from_hours(1)).build();
    bench.start(&mut server).await;
    let envelope = bench.client.envelope("server_ping", &json!({})).await;
    assert_eq!(envelope["data"]["uptime_ms"], 0);
}

/// T-14, T-15, CO-6, CO-8: one enter and one exit, joined by an id, with a duration and a result.
#[tokio::test]
async fn a_successful_call_leaves_one_enter_and_one_exit() {
    let (builder, mut bench) = bench();
    let mut server = builder.build();
    bench.start(&mut server).await;
    let result = bench.client.call("server_ping", &json!({})).await;

    let seen = bench.sink.seen();
    let [Seen::Enter(enter), Seen::Exit(exit)] = seen.as_slice() else { panic!("{:?}", bench.sink.briefs()) };
    assert_eq!((&*enter.tool, &*exit.tool), ("server_ping", "server_ping"));
    assert_eq!(enter.call, exit.call);
    assert_eq!(result["_meta"]["colibri/correlationId"], enter.call.to_string());
    assert_eq!(&*enter.arguments, b"{}");
    // The clock steps once for the arrival, once for the uptime, once for the end.
    assert_eq!(exit.duration, Duration::from_millis(2));
    assert_eq!(exit.at.wall.0 - enter.at.wall.0, 2);
    assert_eq!((exit.outcome, exit.error.as_ref()), (Outcome::Ok, None));
    let told: Value = serde_json::from_slice(exit.result().expect("a success has a result")).unwrap();
    assert_eq!(told, result["structuredContent"], "the record is what the client was answered");
}

/// T-16, CO-7, CO-8: the exit of a failed call has the error, and no result.
#[tokio::test]
async fn a_failed_call_is_told_with_its_error_and_without_a_result() {
    let (builder, mut bench) = bench();
    let mut server = builder.build();
    tools::register(&mut server);
    bench.start(&mut server).await;
    let result = bench.client.call("misbehave", &json!({ "how": "fail" })).await;
    assert_eq!(result["isError"], true);
    let exit = bench.sink.exits().remove(0);
    assert_eq!(exit.result(), None);
    let error = exit.error.expect("why it failed");
    assert_eq!(error.to_string(), "HANDLER_ERROR: cannot read the page: the dog ate it");
    assert_eq!(json!({ "ok": false, "error": error }), result["structuredContent"]);
}

/// T-17, CO-4: two calls of one tool at once: the second enters when the first has left.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_calls_of_one_tool_do_not_interleave() {
    let (builder, mut bench) = bench();
    let mut server = builder.build();
    bench.start(&mut server).await;
    let ids = [0; 2].map(|_| bench.client.begin_call("server_ping", &json!({})));
    for id in ids {
        assert_eq!(bench.client.answer(id).await["result"]["isError"], false);
    }
    let pair = ["enter server_ping", "exit server_ping ok"];
    assert_eq!(bench.sink.briefs(), [pair, pair].concat());
    let calls: Vec<_> = bench.sink.exits().iter().map(|exit| exit.call).collect();
    assert_eq!(bench.sink.enters().iter().map(|enter| enter.call).collect::<Vec<_>>(), calls);
}

/// T-18, CO-5, CO-10: arguments that do not fit: the handler never runs, and a sink of two verbs is
/// told exactly one pair, the raw arguments and the error.
#[tokio::test]
async fn a_rejected_call_is_one_pair_for_a_sink_of_two_verbs() {
    let recorder = Recorder::default();
    let (builder, mut bench) = bench();
    let mut server = builder.audit_sink(TwoVerbs(recorder.clone())).build();
    tools::register(&mut server);
    bench.start(&mut server).await;
    let envelope = bench.client.envelope("echo", &json!({ "txet": 1 })).await;
    assert_eq!((&envelope["ok"], &envelope["error"]["code"]), (&json!(false), &json!("INVALID_PARAMS")));
    assert_eq!(recorder.briefs(), ["enter echo", "exit echo rejected INVALID_PARAMS"]);
    assert_eq!(&*recorder.enters()[0].arguments, br#"{"txet":1}"#);
    assert_eq!(recorder.enters()[0].call, recorder.exits()[0].call);
}

/// CO-10: the default `rejected` writes no exit after an enter that failed.
#[tokio::test]
async fn the_default_of_rejected_stops_at_a_failed_enter() {
    let recorder = Recorder::default();
    let (builder, mut bench) = bench();
    let mut server = builder.audit_sink(TwoVerbs(recorder.clone())).build();
    tools::register(&mut server);
    bench.start(&mut server).await;
    recorder.fail("enter");
    let envelope = bench.client.envelope("echo", &json!({})).await;
    assert_eq!(envelope["error"]["code"], "INVALID_PARAMS", "nothing ran, so the answer stands");
    assert_eq!(recorder.briefs(), ["enter echo"]);
}

/// CO-3: nothing runs around the stages: the sink has been told of the enter before the handler
/// begins, and of no exit before it ended.
#[tokio::test]
async fn the_handler_runs_between_enter_and_exit() {
    let (builder, mut bench) = bench();
    let mut server = builder.build();
    let gate = tools::Gate::register(&mut server);
    bench.start(&mut server).await;
    let id = bench.client.begin_call("gate", &json!({}));
    bench.sink.told("enter gate").await;
    assert_eq!(bench.sink.briefs(), ["enter gate"]);
    gate.permits.add_permits(1);
    bench.client.answer(id).await;
    assert_eq!(bench.sink.briefs(), ["enter gate", "exit gate ok"]);
}

async fn failing_in(mode: Mode) -> (Bench, Server) {
    let (builder, mut bench) = bench();
    let clock = Arc::new(StepClock::default());
    let mut server = builder.mode(mode).clock(clock).build();
    tools::register(&mut server);
    bench.start(&mut server).await;
    (bench, server)
}

/// CO-7: a backtrace is shown in mode TEST and nowhere else; other details stay beside it.
#[tokio::test]
async fn a_backtrace_is_shown_in_mode_test_alone() {
    for mode in [Mode::Full, Mode::Test] {
        let (mut bench, _server) = failing_in(mode).await;
        for (how, other_details) in
            [("fail", None), ("fail_with_code", Some(json!("ERR_NOT_FOUND"))), ("fail_with_text", None)]
        {
            let mut envelope = bench.client.envelope("misbehave", &json!({ "how": how })).await;
            let details = &mut envelope["error"]["details"];
            let backtrace = details["backtrace"].take();
            assert_eq!(backtrace.is_string(), mode == Mode::Test, "{mode} {how}: {details}");
            if let Some(text) = backtrace.as_str() {
                assert!(text.contains("misbehave"), "it leads to the tool: {text}");
            }
            assert_eq!(details.get("code").cloned(), other_details, "{mode} {how}");
        }
        let alive = bench.client.envelope("misbehave", &json!({ "how": "behave" })).await;
        assert_eq!(alive["data"]["text"], "Behave");
    }
}
