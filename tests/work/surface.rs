//! The tools as a client sees them: what is listed, what each gives, how each refuses.

use serde_json::{Value, json};

use super::client::{Client, FAMILIES, Family, Home};

/// Each tool, and whether it only reads, may be repeated, and destroys.
const TOOLS: [(&str, bool, bool, bool); 14] = [
    ("audit_session_start", false, false, false),
    ("audit_verify_chain", true, true, false),
    ("merkle_finalize", false, false, false),
    ("merkle_root", true, true, false),
    ("server_health", true, true, false),
    ("server_ping", true, true, false),
    ("skill_list", true, true, false),
    ("task_create", false, false, false),
    ("task_get", true, true, false),
    ("task_list", true, true, false),
    ("task_next_actions", false, false, false),
    ("task_update", false, false, false),
    ("thought_record", false, false, false),
    ("thought_record_list", true, true, false),
];

/// SU-1: each tool is listed with everything a client needs to know of it.
#[test]
fn every_tool_is_listed_whole() {
    for family in FAMILIES {
        let home = Home::new();
        let client = Client::start(&home, family);
        for (name, read_only, idempotent, destructive) in TOOLS {
            let tool = client.tools.get(name).unwrap_or_else(|| panic!("{name} is not listed"));
            let entry = &tool.entry;
            for key in ["title", "description"] {
                assert!(entry[key].as_str().is_some_and(|text| !text.is_empty()), "{name} has no {key}");
            }
            assert_eq!(entry["inputSchema"]["type"], "object", "{name}");
            assert_eq!(entry["inputSchema"]["additionalProperties"], false, "{name}");
            assert_eq!(entry["outputSchema"]["type"], "object", "{name}");
            let hints = ["readOnlyHint", "idempotentHint", "destructiveHint"];
            let shown = hints.map(|hint| entry["annotations"][hint].as_bool().unwrap_or(false));
            assert_eq!(shown, [read_only, idempotent, destructive], "{name}");
        }
    }
}

/// SU-1, SU-5, SU-15: every tool of tasks, reasons and proofs does its work over a pipe, in both families; the client
/// checks each answer against the schema that the server published.
#[test]
fn every_tool_works_in_both_families() {
    for family in FAMILIES {
        let home = Home::new();
        let client = &mut Client::start(&home, family);
        let task = full_task(client);
        let id = &task["id"];
        assert_eq!(client.ok("task_get", &json!({ "id": id })), task);
        let patch =
            json!({ "status": "GATHER", "assignee": null, "labels": ["x", "a", "x"], "description": null });
        let changed = client.ok("task_update", &json!({ "id": id, "patch": patch, "version": 1 }));
        assert_eq!(changed["status"], "GATHER");
        assert_eq!(changed["version"], 2);
        assert_eq!(changed["labels"], json!(["a", "x"]));
        assert_eq!([&changed["assignee"], &changed["description"]], [&Value::Null; 2]);

        let listed = client.ok("task_list", &json!({ "label": "a", "fields": "full" }));
        assert_eq!(listed["tasks"], json!([changed]));
        let brief = client.ok("task_list", &json!({ "priority": "high" }));
        assert_eq!(brief["tasks"][0].as_object().unwrap().len(), 6, "brief is small: {brief}");

        let next = client.ok("task_next_actions", &json!({ "agent_id": "ada", "claim": true }));
        assert_eq!(next["claimed"]["id"], *id);
        assert_eq!(next["actions"][0]["why"], "unblocked, high priority, already with ada");

        let session = client.ok("audit_session_start", &json!({ "intent": "why", "task_id": id }));
        let session = &session["session_id"];
        let reason = json!({ "type": "plan", "task_id": id, "agent_id": "ada", "content": "a\nb", "session_id": session });
        let thought = client.ok("thought_record", &reason);
        let page = client.ok(
            "thought_record_list",
            &json!({ "task_id": id, "session_id": session, "agent_id": "ada", "type": "plan" }),
        );
        assert_eq!(page, json!({ "records": [thought] }));
        let one = client.ok("audit_verify_chain", &json!({ "task_id": id }));
        assert_eq!(one, json!({ "valid": true, "record_count": 1, "broken_count": 0 }));
        let all = client.ok("audit_verify_chain", &json!({}));
        assert_eq!(all["by_task"][0]["task_id"], *id);
        assert_eq!([&all["valid"], &all["ledger"]["valid"]], [true, true]);
        let sealed = client.ok("merkle_finalize", &json!({ "session_id": session }));
        let root = client.ok("merkle_root", &json!({ "session_id": session }));
        assert_eq!([&sealed["root"], &sealed["record_count"]], [&root["root"], &json!(1)]);
    }
}

fn full_task(client: &mut Client) -> Value {
    let need = client.ok("task_create", &json!({ "title": "first" }));
    client.ok("task_update", &json!({ "id": need["id"], "patch": { "status": "CANCELLED" } }));
    let task = client.ok(
        "task_create",
        &json!({
            "title": "Über 日本 🎉", "description": "one\n\ttwo", "priority": "high", "labels": ["a"],
            "assignee": "ada", "project_id": "p", "depends_on": [need["id"], need["id"]],
        }),
    );
    assert_eq!(task["depends_on"], json!([need["id"]]));
    assert_eq!([&task["blocked_by"], &task["attempt"], &task["version"]], [&json!(0), &json!(1), &json!(1)]);
    assert_eq!([&task["status"], &task["title"]], ["INIT", "Über 日本 🎉"]);
    task
}

/// SU-15: what each tool refuses before it runs, and how it says so.
#[test]
fn every_tool_rejects_what_does_not_fit() {
    let home = Home::new();
    let client = &mut Client::start(&home, Family::Legacy);
    let reason = |key: &str, value: Value| {
        let mut reason = json!({ "type": "plan", "task_id": "t", "agent_id": "a", "content": "c" });
        reason[key] = value;
        reason
    };
    let cases = [
        ("task_create", json!({}), "", "\"title\" is a required property"),
        ("task_create", json!({ "title": "x", "status": "DONE" }), "/status", "unknown key `status`"),
        ("task_create", json!({ "title": "x", "lables": [] }), "/lables", "did you mean `labels`?"),
        ("task_create", json!({ "title": 7 }), "/title", "7 is not of type \"string\""),
        ("task_create", json!({ "title": "x", "priority": "urgent" }), "/priority", "urgent"),
        ("task_get", json!({ "id": "" }), "/id", "shorter than 1 character"),
        ("task_get", json!({ "task_id": "x" }), "/task_id", "unknown key `task_id`"),
        ("task_update", json!({ "id": "x" }), "", "\"patch\" is a required property"),
        (
            "task_update",
            json!({ "id": "x", "patch": { "asignee": "a" } }),
            "/patch/asignee",
            "did you mean `assignee`?",
        ),
        ("task_update", json!({ "id": "x", "patch": { "status": "done" } }), "/patch/status", "done"),
        ("task_update", json!({ "id": "x", "patch": {}, "version": -1 }), "/version", "-1"),
        ("task_list", json!({ "limit": 0 }), "/limit", "0 is less than the minimum of 1"),
        ("task_list", json!({ "limit": 201 }), "/limit", "201 is greater than the maximum of 200"),
        ("task_list", json!({ "cursor": "x" }), "/cursor", "does not match"),
        ("task_list", json!({ "fields": "some" }), "/fields", "some"),
        ("task_next_actions", json!({ "limit": 51 }), "/limit", "51"),
        ("task_next_actions", json!({ "claim": "yes" }), "/claim", "not of type \"boolean\""),
        ("thought_record", json!({ "content": "c" }), "", "required property"),
        ("thought_record", reason("type", json!("guess")), "/type", "guess"),
        ("thought_record", reason("content", json!("")), "/content", "shorter than 1 character"),
        ("thought_record_list", json!({ "type": "guess" }), "/type", "guess"),
        ("thought_record_list", json!({ "limit": 1.5 }), "/limit", "1.5"),
        ("audit_verify_chain", json!({ "taskid": "x" }), "/taskid", "did you mean `task_id`?"),
        ("audit_session_start", json!({}), "", "\"intent\" is a required property"),
        ("merkle_finalize", json!({}), "", "\"session_id\" is a required property"),
        ("merkle_root", json!({ "session_id": null }), "/session_id", "null"),
        ("skill_list", json!({ "serach": "x" }), "/serach", "did you mean `search`?"),
        ("server_ping", json!({ "x": 1 }), "/x", "this tool takes no arguments"),
        ("server_health", json!([]), "", "[] is not of type \"object\""),
    ];
    for (tool, arguments, path, says) in &cases {
        let error = client.refused(tool, arguments, "INVALID_PARAMS");
        let issues = error["details"]["issues"].as_array().unwrap();
        let fits =
            |issue: &Value| issue["path"] == *path && issue["message"].as_str().unwrap().contains(says);
        assert!(issues.iter().any(fits), "{tool} {arguments}: no issue at `{path}` says `{says}`: {error}");
    }
    for (tool, ..) in TOOLS {
        assert!(cases.iter().any(|(rejecting, ..)| *rejecting == tool), "{tool} has no reject test");
    }
    assert_eq!(client.ok("task_list", &json!({})), json!({ "tasks": [] }), "nothing was half-stored");
}

/// SU-8: pages meet without a gap or an overlap, also while tasks are created and changed between them.
#[test]
fn pages_of_tasks_are_stable() {
    let home = Home::new();
    let client = &mut Client::start(&home, Family::Modern);
    let mut created = Vec::new();
    for number in 0..7 {
        let labels = if number % 2 == 0 { json!(["even"]) } else { json!([]) };
        let task = client.ok("task_create", &json!({ "title": number.to_string(), "labels": labels }));
        created.push(task["id"].clone());
    }
    let pages = |client: &mut Client, mut ask: Value| {
        let mut seen = Vec::new();
        loop {
            let page = client.ok("task_list", &ask);
            seen.extend(page["tasks"].as_array().unwrap().iter().map(|task| task["id"].clone()));
            client.ok("task_update", &json!({ "id": seen[0], "patch": { "title": "changed" } }));
            match page.get("next_cursor") {
                Some(cursor) => ask["cursor"] = cursor.clone(),
                None => return seen,
            }
        }
    };
    assert_eq!(pages(client, json!({ "limit": 3 })), created);
    assert_eq!(pages(client, json!({ "limit": 7 })), created, "a full last page has no cursor");
    let even: Vec<_> = created.iter().step_by(2).cloned().collect();
    assert_eq!(pages(client, json!({ "limit": 1, "label": "even" })), even);
}

/// SU-9: reasons are listed in the order of the record, page by page.
#[test]
fn pages_of_reasons_are_stable() {
    let home = Home::new();
    let client = &mut Client::start(&home, Family::Legacy);
    let task = client.ok("task_create", &json!({ "title": "x" }))["id"].clone();
    let mut recorded = Vec::new();
    for number in 0..5 {
        let reason =
            json!({ "type": "plan", "task_id": task, "agent_id": "a", "content": number.to_string() });
        recorded.push(client.ok("thought_record", &reason));
    }
    let mut ask = json!({ "task_id": task, "limit": 2 });
    let mut seen = Vec::new();
    loop {
        let page = client.ok("thought_record_list", &ask);
        seen.extend(page["records"].as_array().unwrap().iter().cloned());
        match page.get("next_cursor") {
            Some(cursor) => ask["cursor"] = cursor.clone(),
            None => break,
        }
    }
    assert_eq!(seen, recorded);
    let chained = recorded.windows(2).all(|pair| pair[1]["prev_hash"] == pair[0]["hash"]);
    assert!(chained, "each follows the one before: {recorded:?}");
    assert_eq!(recorded[0]["prev_hash"], "0".repeat(64));
}
