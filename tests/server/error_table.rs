//! The error table of the core, as one table: which stage fails, what the client sees, what the sink
//! is told, and what people are told.

use colibri::domain::audit::OnExitFailure;
use colibri::domain::mode::Mode;
use serde_json::{Value, json};

use super::tools;
use crate::support::library::{Bench, Seen, bench};

/// One call that goes wrong.
struct Row {
    /// The verbs of the sink that fail.
    sink_fails: &'static [&'static str],
    policy: OnExitFailure,
    mode: Mode,
    /// `tool arguments`
    call: &'static str,
    client: &'static str,
    sink: &'static [&'static str],
    /// What the log and `server_health` say, without `[colibri]` and without the call's id.
    told: &'static [&'static str],
}

const FINE: Row = Row {
    sink_fails: &[],
    policy: OnExitFailure::Log,
    mode: Mode::Full,
    call: r#"echo {"text":"hello"}"#,
    client: r#"ok {"text":"hello"}"#,
    sink: &["enter echo", "exit echo ok"],
    told: &[],
};

const TABLE: &[Row] = &[
    FINE,
    // Before stage 1: the gate.
    Row {
        call: r#"ehco {"text":"hello"}"#,
        client: "-32602 unknown tool `ehco`; did you mean `echo`?",
        sink: &["rejected ehco rejected UNKNOWN_TOOL"],
        ..FINE
    },
    Row {
        call: "launch_rocket {}",
        client: "-32602 unknown tool `launch_rocket`",
        sink: &["rejected launch_rocket rejected UNKNOWN_TOOL"],
        ..FINE
    },
    Row {
        mode: Mode::Readonly,
        call: r#"write_note {"text":"hello"}"#,
        client: "error TOOL_NOT_ADMITTED: `write_note` is not admitted in mode READONLY; set COLIBRI_MODE=FULL to use it",
        sink: &["rejected write_note rejected TOOL_NOT_ADMITTED"],
        ..FINE
    },
    // Stage 2: validate.
    Row {
        call: r#"echo {"text":7}"#,
        client: r#"error INVALID_PARAMS: invalid arguments: /text: 7 is not of type "string""#,
        sink: &["rejected echo rejected INVALID_PARAMS"],
        ..FINE
    },
    Row {
        sink_fails: &["rejected"],
        call: r#"echo {"text":7}"#,
        client: r#"error INVALID_PARAMS: invalid arguments: /text: 7 is not of type "string""#,
        sink: &["rejected echo rejected INVALID_PARAMS"],
        told: &["the record of a rejected call failed for echo: no ink for rejected"],
        ..FINE
    },
    // Stage 3: audit enter. The handler never runs; the sink is told of the end.
    Row {
        sink_fails: &["enter"],
        client: "error AUDIT_ENTER_FAILED: the call was not run, because it could not be put on record: no ink for enter",
        sink: &["enter echo", "exit echo error AUDIT_ENTER_FAILED"],
        told: &["audit enter failed for echo: no ink for enter"],
        ..FINE
    },
    Row {
        sink_fails: &["enter", "exit"],
        client: "error AUDIT_ENTER_FAILED: the call was not run, because it could not be put on record: no ink for enter",
        sink: &["enter echo", "exit echo error AUDIT_ENTER_FAILED"],
        told: &[
            "audit enter failed for echo: no ink for enter",
            "audit exit failed for echo: no ink for exit",
        ],
        ..FINE
    },
    // Stage 4: dispatch.
    Row {
        call: r#"misbehave {"how":"fail"}"#,
        client: "error HANDLER_ERROR: cannot read the page: the dog ate it",
        sink: &["enter misbehave", "exit misbehave error HANDLER_ERROR"],
        ..FINE
    },
    Row {
        call: r#"misbehave {"how":"fail_with_code"}"#,
        client: "error HANDLER_ERROR: ERR_NOT_FOUND: no such thought",
        sink: &["enter misbehave", "exit misbehave error HANDLER_ERROR"],
        ..FINE
    },
    Row {
        call: r#"misbehave {"how":"panic_at_once"}"#,
        client: "error HANDLER_ERROR: the tool panicked: out of ideas at once",
        sink: &["enter misbehave", "exit misbehave error HANDLER_ERROR"],
        ..FINE
    },
    Row {
        call: r#"misbehave {"how":"panic_later"}"#,
        client: "error HANDLER_ERROR: the tool panicked: out of ideas after 1 await",
        sink: &["enter misbehave", "exit misbehave error HANDLER_ERROR"],
        ..FINE
    },
    Row {
        call: r#"misbehave {"how":"panic_without_words"}"#,
        client: "error HANDLER_ERROR: the tool panicked: a panic without words",
        sink: &["enter misbehave", "exit misbehave error HANDLER_ERROR"],
        ..FINE
    },
    // Stage 4, pattern B: a success envelope around a no; the record says error.
    Row {
        call: r#"misbehave {"how":"refuse"}"#,
        client: r#"error ok {"error":{"code":"ERR_WRITEBACK_REQUIRED","message":"write first","missing_fields":"a"},"ok":false}"#,
        sink: &["enter misbehave", "exit misbehave error ERR_WRITEBACK_REQUIRED"],
        ..FINE
    },
    // Stage 5: audit exit. Told, and the call's own outcome stands.
    Row { sink_fails: &["exit"], told: &["audit exit failed for echo: no ink for exit"], ..FINE },
    Row {
        sink_fails: &["exit"],
        call: r#"misbehave {"how":"fail"}"#,
        client: "error HANDLER_ERROR: cannot read the page: the dog ate it",
        sink: &["enter misbehave", "exit misbehave error HANDLER_ERROR"],
        told: &["audit exit failed for misbehave: no ink for exit"],
        ..FINE
    },
    // Stage 5, `onExitFailure: "fail"`.
    Row { policy: OnExitFailure::Fail, ..FINE },
    Row {
        sink_fails: &["exit"],
        policy: OnExitFailure::Fail,
        client: "error AUDIT_EXIT_FAILED: the call ran (ok), but its end is not on record: no ink for exit",
        told: &["audit exit failed for echo: no ink for exit"],
        ..FINE
    },
    Row {
        sink_fails: &["exit"],
        policy: OnExitFailure::Fail,
        call: r#"misbehave {"how":"fail"}"#,
        client: "error AUDIT_EXIT_FAILED: the call ran (error), but its end is not on record: no ink for exit",
        sink: &["enter misbehave", "exit misbehave error HANDLER_ERROR"],
        told: &["audit exit failed for misbehave: no ink for exit"],
        ..FINE
    },
];

/// T-16, T-18, CO-3, CO-5, CO-6, CO-7, CO-8, CO-9, CO-10, SU-5, SU-13: the whole table. After each row
/// the next call works, and `server_health` is as well as the record is.
#[tokio::test]
async fn every_stage_fails_as_the_table_says() {
    for row in TABLE {
        let (builder, mut bench) = bench();
        let mut server = builder.mode(row.mode).on_exit_failure(row.policy).build();
        tools::register(&mut server);
        bench.start(&mut server).await;
        row.sink_fails.iter().for_each(|verb| bench.sink.fail(verb));

        let (tool, arguments) = row.call.split_once(' ').expect("a tool and its arguments");
        let params = format!(r#"{{"name":"{tool}","arguments":{arguments}}}"#);
        let id = bench.client.begin_raw("tools/call", &params);
        let answer = bench.client.answer(id).await;
        let which = format!("{} with {:?} failing", row.call, row.sink_fails);
        assert_eq!(brief(&answer), row.client, "{which}");
        assert_eq!(bench.sink.briefs(), row.sink, "{which}");
        assert_eq!(told(&bench), row.told, "{which}");
        check_health(&mut bench, row, &which).await;
    }
}

/// What the client sees, in a line.
fn brief(answer: &Value) -> String {
    if let Some(error) = answer.get("error") {
        return format!("{} {}", error["code"], error["message"].as_str().unwrap());
    }
    let result = crate::support::library::result(answer);
    let envelope = &result["structuredContent"];
    let error = if result["isError"] == true { "error " } else { "" };
    match envelope["error"]["code"].as_str() {
        Some(code) => format!("{error}{code}: {}", envelope["error"]["message"].as_str().unwrap()),
        None => format!("{error}ok {}", envelope["data"]),
    }
}

/// What people are told, after the two lines of every start.
fn told(bench: &Bench) -> Vec<String> {
    let id = match &bench.sink.seen()[0] {
        Seen::Enter(enter) | Seen::Rejected(enter, _) => enter.call.to_string(),
        Seen::Exit(exit) => exit.call.to_string(),
    };
    let lines = bench.log.lines();
    lines[2..].iter().map(|line| line.replace("[colibri] ", "").replace(&format!(" {id}"), "")).collect()
}

async fn check_health(bench: &mut Bench, row: &Row, which: &str) {
    bench.sink.recover();
    let health = bench.client.envelope("server_health", &json!({})).await;
    let last = row.told.last();
    assert_eq!(health["data"]["status"], if last.is_some() { "degraded" } else { "ok" }, "{which}");
    let shown = health["data"]["last_audit_error"]["message"].as_str().unwrap_or_default();
    let (stage, reason) = last.map_or(("", ""), |told| told.split_once(": ").expect("a stage and a reason"));
    assert!(shown.starts_with(stage) && shown.ends_with(reason), "{which}: {shown}");
    let reasons = health["data"]["reasons"].as_array().expect("a list");
    assert_eq!(reasons.len(), usize::from(last.is_some()), "{which}: {reasons:?}");
}
