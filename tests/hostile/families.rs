//! Two families of the protocol on one connection, and the confusions between them.

use serde_json::json;

use super::child::{Colibri, PING, call, initialize, modern, request};

/// Batches belong to 2025-03-26 alone.
#[test]
fn a_batch_is_for_one_revision_only() {
    let batch = format!(
        "[{PING},{},7,{}]",
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        call(5, "server_ping")
    );
    let many = |count: usize| format!("[{}]", vec![PING; count].join(","));
    for (revision, expected) in [
        ("2024-11-05", "null -32600"),
        ("2025-03-26", r#"["ping" ok, null -32600, 5 ok]"#),
        ("2025-06-18", "null -32600"),
        ("2025-11-25", "null -32600"),
        ("2026-07-28", "null -32600"),
    ] {
        let mut colibri = Colibri::start();
        if revision == "2026-07-28" {
            assert_eq!(colibri.ask(&modern(0, "server/discover", json!({}))), "0 ok");
        } else {
            colibri.initialize(revision);
        }
        assert_eq!(colibri.ask(&batch), expected, "{revision}");
        assert_eq!(colibri.ask("[]"), "null -32600", "{revision}");
        assert_eq!(colibri.ask(&many(101)), "null -32600", "{revision}");
        assert_eq!(colibri.ask(&many(10_000)), "null -32600", "{revision}");
        assert_eq!(
            colibri.ask("[[]]"),
            if expected.starts_with('[') { "[null -32600]" } else { "null -32600" }
        );
        // Nothing to answer, so no answer: not even an empty array.
        if revision == "2025-03-26" {
            colibri.send(r#"[{"jsonrpc":"2.0","method":"a"},{"jsonrpc":"2.0","id":1,"result":{}}]"#);
        }
        colibri.assert_lives();
        assert!(colibri.finish().is_empty());
    }
}

/// Before `initialize` a legacy client may only ping; afterwards both families live side by side.
#[test]
fn both_families_share_one_connection() {
    let mut colibri = Colibri::start();
    let steps = [
        (call(1, "server_ping"), "1 -32602"), // Not begun.
        (request(1, "tools/list", &json!({})), "1 -32602"),
        (PING.to_owned(), "\"ping\" ok"),
        (modern(1, "tools/call", json!({ "name": "server_ping" })), "1 ok"),
        (modern(1, "server/discover", json!({})), "1 ok"),
        (call(1, "server_ping"), "1 -32602"), // Still not begun.
        (request(1, "initialize", &json!({})), "1 -32602"),
        (initialize("2025-06-18"), "0 ok"),
        (initialize("2025-06-18"), "0 -32600"),
        (call(2, "server_ping"), "2 ok"),
        (modern(3, "tools/list", json!({})), "3 ok"),
        (request(4, "tools/list", &json!({})), "4 ok"),
        (request(5, "logging/setLevel", &json!({ "level": "debug" })), "5 ok"),
        (request(5, "server/discover", &json!({})), "5 -32601"),
        (modern(6, "ping", json!({})), "6 -32601"),
        (modern(6, "initialize", json!({ "protocolVersion": "2025-11-25" })), "6 -32601"),
        (modern(6, "logging/setLevel", json!({ "level": "debug" })), "6 -32601"),
        (modern(6, "no/such", json!({})), "6 -32601"),
        (modern(7, "tools/call", json!({ "name": "no_such" })), "7 -32602"),
    ];
    for (frame, expected) in steps {
        assert_eq!(colibri.ask(&frame), expected, "{frame}");
    }
    // Interleaved without waiting: each answer finds its request.
    let frames: Vec<String> = (10..210)
        .map(|id| match id % 4 {
            0 => call(id, "server_ping"),
            1 => modern(id, "tools/call", json!({ "name": "server_ping" })),
            2 => request(id, "tools/list", &json!({})),
            _ => modern(id, "tools/list", json!({})),
        })
        .collect();
    colibri.send(&frames.join("\n"));
    let answers: Vec<_> = frames.iter().map(|_| colibri.answer()).collect();
    for answer in &answers {
        let id = answer["id"].as_u64().unwrap();
        let result = &answer["result"];
        assert_eq!(result.get("resultType").is_some(), id % 2 == 1, "the family of {id}");
        assert_eq!(result.get("tools").is_some(), id % 4 >= 2, "the method of {id}");
    }
    let mut ids: Vec<_> = answers.iter().map(|answer| answer["id"].as_u64().unwrap()).collect();
    ids.sort_unstable();
    assert!(ids.into_iter().eq(10..210));
    assert!(colibri.finish().is_empty());
}

/// What a modern request must say, and what it is told if it does not.
#[test]
fn a_modern_request_says_all_it_must() {
    let mut colibri = Colibri::start();
    let with = |meta: serde_json::Value| request(1, "tools/list", &json!({ "_meta": meta }));
    let version = "io.modelcontextprotocol/protocolVersion";
    let capabilities = "io.modelcontextprotocol/clientCapabilities";
    for (meta, expected) in [
        (json!({ version: "2026-07-28", capabilities: {} }), "1 ok"),
        (json!({ version: "2026-07-28" }), "1 -32602"),
        (json!({ version: "2026-07-28", capabilities: [] }), "1 -32602"),
        (json!({ version: "2026-07-28", capabilities: null }), "1 -32602"),
        (json!({ version: 20_260_728, capabilities: {} }), "1 -32602"),
        (json!({ version: "2025-11-25", capabilities: {} }), "1 -32022"),
        (json!({ version: "", capabilities: {} }), "1 -32022"),
        (json!([version]), "1 -32602"),
    ] {
        assert_eq!(colibri.ask(&with(meta.clone())), expected, "{meta}");
    }
    colibri.send(&with(json!({ version: "2027-01-01", capabilities: {} })));
    let error = &colibri.answer()["error"];
    assert_eq!(error["code"], -32022);
    assert_eq!(error["data"], json!({ "supported": ["2026-07-28"], "requested": "2027-01-01" }));
    assert!(colibri.finish().is_empty());
}
