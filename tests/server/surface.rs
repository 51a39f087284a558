//! Stories of the surface: what is listed, what each mode admits, and that every answer is what its
//! schema promised.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use colibri::app::SystemClock;
use colibri::domain::audit::{Durability, Payloads};
use colibri::domain::log::Logger;
use colibri::domain::mode::Mode;
use colibri::store::{ActionFilter, LedgerSink, Options, Store};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::tools;
use crate::support::library::bench;

/// SU-1, CO-2: a tool is listed with everything a client wants to know.
#[tokio::test]
async fn every_tool_is_listed_whole() {
    let (builder, mut bench) = bench();
    let mut server = builder.build();
    tools::register(&mut server);
    bench.start(&mut server).await;
    let listed = bench.client.tools().await;
    let names: Vec<&str> = listed.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["echo", "misbehave", "server_health", "server_ping", "write_note"]);
    for tool in &listed {
        let input = &tool["inputSchema"];
        assert_eq!(
            (&input["type"], &input["additionalProperties"]),
            (&json!("object"), &json!(false)),
            "{tool}"
        );
        assert!(input["properties"].is_object(), "{tool}");
        assert_eq!(tool["outputSchema"]["type"], "object", "{tool}");
        assert!(!tool.to_string().contains(r#""format":"uint"#), "no formats of Rust: {tool}");
    }
    for own in &listed[2..4] {
        assert!(own["title"].as_str().is_some_and(|title| !title.is_empty()), "{own}");
        assert!(own["description"].as_str().is_some_and(|text| text.len() > 20), "{own}");
        assert_eq!(
            own["annotations"],
            json!({ "readOnlyHint": true, "destructiveHint": false, "idempotentHint": true, "openWorldHint": false })
        );
    }
    assert_eq!((&listed[4]["title"], &listed[4]["description"]), (&json!("Write"), &json!("Writes a note.")));
    assert_eq!(
        listed[4]["annotations"],
        json!({ "readOnlyHint": false, "destructiveHint": true, "idempotentHint": false, "openWorldHint": false })
    );
}

/// CO-9, SU-1, SU-5: every success, failure and refusal matches the output schema that was listed, and
/// the schema refuses what is none of them.
#[tokio::test]
async fn every_answer_matches_the_schema_that_was_listed() {
    for mode in [Mode::Full, Mode::Test] {
        let (builder, mut bench) = bench();
        let mut server = builder.mode(mode).build();
        tools::register(&mut server);
        bench.start(&mut server).await;
        let mut schemas = HashMap::new();
        for tool in bench.client.tools().await {
            let name = tool["name"].as_str().unwrap().to_owned();
            schemas.insert(name, jsonschema::draft202012::new(&tool["outputSchema"]).unwrap());
        }
        let hows =
            ["fail", "fail_with_code", "fail_with_text", "refuse", "panic_later", "behave", "no_such_way"];
        let mut calls: Vec<(&str, Value)> = hows.map(|how| ("misbehave", json!({ "how": how }))).to_vec();
        calls.extend([
            ("echo", json!({ "text": "hello" })),
            ("echo", json!({})),
            ("server_ping", json!({})),
            ("server_ping", json!({ "x": 1 })),
            ("server_health", json!({})),
            ("server_health", json!({ "x": 1 })),
        ]);
        for verb in [None, Some("exit"), Some("enter")] {
            if let Some(verb) = verb {
                bench.sink.fail(verb);
            }
            for (tool, arguments) in &calls {
                let envelope = bench.client.envelope(tool, arguments).await;
                let problems: Vec<String> =
                    schemas[*tool].iter_errors(&envelope).map(|error| error.to_string()).collect();
                assert_eq!(problems, [] as [&str; 0], "{tool} {arguments}: {envelope}");
            }
        }
        for wrong in [
            json!({ "ok": true }),
            json!({ "ok": false, "data": {} }),
            json!({ "ok": true, "data": { "text": "x" }, "error": { "code": "HANDLER_ERROR", "message": "" } }),
            json!({ "ok": false, "error": { "code": "SOMETHING_ELSE", "message": "" } }),
            json!({ "ok": true, "data": { "ok": false, "error": { "code": "ERR_UNDECLARED", "message": "" } } }),
        ] {
            assert!(!schemas["misbehave"].is_valid(&wrong), "{wrong}");
        }
    }
}

/// CO-13: a mode limits what is listed, and what is hidden cannot be called either.
#[tokio::test]
async fn a_mode_limits_what_is_listed_and_called() {
    let all = ["echo", "misbehave", "server_health", "server_ping", "write_note"];
    let table: &[(Mode, &[&str], [bool; 3])] = &[
        (Mode::Full, &all, [true, true, false]),
        (Mode::Test, &all, [true, true, true]),
        (Mode::Readonly, &["echo", "misbehave", "server_health", "server_ping"], [false, true, false]),
        (Mode::Minimal, &["server_health", "server_ping"], [false, false, false]),
    ];
    for (mode, admitted, [mutating_tools, servers, backtraces]) in table {
        let (builder, mut bench) = bench();
        let mut server = builder.mode(*mode).build();
        tools::register(&mut server);
        bench.start(&mut server).await;
        let listed = bench.client.tools().await;
        assert_eq!(listed.iter().map(|tool| tool["name"].as_str().unwrap()).collect::<Vec<_>>(), *admitted);
        for tool in all {
            let envelope = bench.client.envelope(tool, &json!({})).await;
            let refused = envelope["error"]["code"] == "TOOL_NOT_ADMITTED";
            assert_eq!(refused, !admitted.contains(&tool), "{mode} {tool}: {envelope}");
        }
        let health = bench.client.envelope("server_health", &json!({})).await;
        assert_eq!((&health["data"]["mode"], &health["data"]["tools"]), (&json!(mode), &json!(admitted)));
        assert_eq!(
            health["data"]["capabilities"],
            json!({ "mutating_tools": mutating_tools, "servers": servers, "backtraces": backtraces })
        );
    }
}

fn options(database: PathBuf) -> Options {
    Options {
        database,
        durability: Durability::Strict,
        payloads: Payloads::default(),
        version: "9.9.9-test".to_owned(),
        clock: Arc::new(SystemClock::start()),
        logger: Logger::silent(),
    }
}

/// SU-13: a ledger that cannot be written, or not be read, is `failing`, and the reason is said.
#[tokio::test]
async fn health_tells_what_is_wrong_with_the_ledger() {
    for (database, reason) in
        [("a_folder", "the ledger cannot be written: "), ("ledger.db", "the ledger cannot be read: ")]
    {
        let folder = TempDir::new().unwrap();
        std::fs::create_dir(folder.path().join("a_folder")).unwrap();
        let (store, closing) = Store::open(options(folder.path().join(database))).unwrap();
        if store.ready().await.is_ok() {
            std::fs::remove_file(folder.path().join(database)).unwrap();
        }
        let (builder, mut bench) = bench();
        let mut server = builder.store(store).build();
        bench.start(&mut server).await;
        let health = bench.client.envelope("server_health", &json!({})).await;
        assert_eq!(health["data"]["status"], "failing", "{health}");
        let reasons = health["data"]["reasons"].as_array().unwrap();
        assert!(reasons.iter().any(|said| said.as_str().unwrap().starts_with(reason)), "{reasons:?}");
        server.stop().await;
        closing.close().await;
    }
}

/// SU-13, CO-13: with a ledger, `server_health` tells its state; the ledger is written in every mode.
#[tokio::test]
async fn health_tells_the_state_of_the_ledger() {
    for mode in Mode::ALL {
        let folder = TempDir::new().unwrap();
        let (store, closing) = Store::open(options(folder.path().join("ledger.db"))).unwrap();
        let (builder, mut bench) = bench();
        let sink = LedgerSink::new(store.clone());
        let mut server = builder.mode(mode).audit_sink(sink).store(store.clone()).build();
        tools::register(&mut server);
        bench.start(&mut server).await;
        bench.client.envelope("server_ping", &json!({})).await;
        bench.client.envelope("server_ping", &json!({ "x": 1 })).await;
        let health = bench.client.envelope("server_health", &json!({})).await;
        let ledger = &health["data"]["ledger"];
        assert_eq!((&health["data"]["status"], &health["data"]["reasons"]), (&json!("ok"), &json!([])));
        assert_eq!(
            (&ledger["writable"], &ledger["open_entries"], &ledger["lost_exits"]),
            (&json!(true), &json!(1), &json!(0))
        );
        // Two pairs, the enter of this call, and the log's own first record.
        assert_eq!(ledger["records"], 6, "{mode}: {ledger}");
        assert_eq!(ledger["path"], folder.path().join("ledger.db").display().to_string());
        let actions =
            store.reader().unwrap().actions(&ActionFilter { limit: 10, ..ActionFilter::default() }).unwrap();
        let mut outcomes: Vec<&str> = actions.iter().map(|action| &*action.outcome).collect();
        outcomes.sort_unstable();
        assert_eq!(outcomes, ["ok", "ok", "rejected"]);
        server.stop().await;
        closing.close().await;
    }
}
