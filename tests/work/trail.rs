//! The decision trail against somebody who can write to the database.

use colibri::store::{Paths, Reader};
use rusqlite::Connection;
use serde_json::{Value, json};

use super::client::{Client, Family, Home};

/// SU-9, SU-10: whatever is changed around a reason is found, in the chain of its task and in the whole trail.
#[test]
fn a_touched_reason_is_found() {
    let cases: [(&str, &str); 8] = [
        (
            "the text",
            "UPDATE body SET kept = CAST('another' AS BLOB) WHERE place = (SELECT max(place) FROM thought)",
        ),
        (
            "the record",
            "UPDATE record SET bytes = replace(bytes, 'ada', 'eve') WHERE bytes LIKE '%thought.recorded%'",
        ),
        (
            "the newest taken off the table",
            "DELETE FROM thought WHERE place = (SELECT max(place) FROM thought)",
        ),
        (
            "the oldest taken off the table",
            "DELETE FROM thought WHERE place = (SELECT min(place) FROM thought)",
        ),
        ("its id", "UPDATE thought SET id = 'x' WHERE place = (SELECT min(place) FROM thought)"),
        ("the end of the chain", "UPDATE task SET last_hash = zeroblob(32)"),
        ("the count", "UPDATE task SET thoughts = 1"),
        ("the record gone", "DELETE FROM record WHERE place = (SELECT min(place) FROM thought)"),
    ];
    for (what, sql) in cases {
        let (home, task) = recorded();
        edit(&home, sql);
        let reader = reader(&home);
        let one = reader.verify_task(&task).unwrap().unwrap();
        assert_ne!(one.chain.broken_count, 0, "{what}, in its task's chain: {one:?}");
        assert!(one.chain.first_broken_at.is_some(), "{what}: {one:?}");
        let all = reader.verify_trail().unwrap();
        assert_ne!(all[0].chain.broken_count, 0, "{what}, in the trail: {all:?}");
    }
}

/// SU-10: a chain that was taken out of every table is still in the log, and missed.
#[test]
fn a_hidden_chain_is_missed() {
    for sql in [
        "DELETE FROM thought; UPDATE task SET thoughts = 0, last_hash = zeroblob(32)",
        "DELETE FROM thought; DELETE FROM task",
    ] {
        let (home, _) = recorded();
        edit(&home, sql);
        let all = reader(&home).verify_trail().unwrap();
        assert_eq!(all[0].chain.record_count, 3, "{sql}: {all:?}");
        assert_ne!(all[0].chain.broken_count, 0, "{sql}: {all:?}");
    }
}

/// SU-10: an erased text breaks nothing, and the trail says that it is gone.
#[test]
fn an_erased_text_breaks_nothing() {
    let (home, task) = recorded();
    edit(&home, "DELETE FROM body WHERE place = (SELECT max(place) FROM thought)");
    let client = &mut Client::start(&home, Family::Legacy);
    assert_eq!(client.ok("audit_verify_chain", &json!({ "task_id": task }))["valid"], true);
    assert_eq!(client.ok("audit_verify_chain", &json!({}))["valid"], true);
    let listed = client.ok("thought_record_list", &json!({ "task_id": task }));
    assert_eq!(
        [&listed["records"][1]["content"], &listed["records"][2]["content"]],
        [&json!("two"), &Value::Null]
    );
}

/// Three reasons of one task, and the server gone.
fn recorded() -> (Home, String) {
    let home = Home::new();
    let client = &mut Client::start(&home, Family::Legacy);
    let task = client.ok("task_create", &json!({ "title": "x" }))["id"].as_str().unwrap().to_owned();
    for content in ["one", "two", "three"] {
        let reason = json!({ "type": "plan", "task_id": task, "agent_id": "ada", "content": content });
        client.ok("thought_record", &reason);
    }
    (home, task)
}

fn edit(home: &Home, sql: &str) {
    Connection::open(home.database()).unwrap().execute_batch(sql).unwrap();
}

/// Reads without a writer: a ledger whose end was touched is refused by one.
fn reader(home: &Home) -> Reader {
    Reader::open(&Paths::beside(&home.database())).unwrap()
}
