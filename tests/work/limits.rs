//! The limits of every field: the last value that fits, and the first that does not.

use serde_json::{Value, json};

use super::client::{Client, Family, Home};

/// SU-8, SU-15: texts and lists, at their limit and one beyond.
#[test]
fn every_field_has_its_limit() {
    let home = Home::new();
    let client = &mut Client::start(&home, Family::Modern);
    // Four bytes and two UTF-16 units each: characters are what is counted.
    let text = |length: usize| json!("𝄞".repeat(length));
    let list = |count: usize| (0..count).map(|number| json!(number.to_string())).collect::<Value>();
    let mut ids = Vec::new();
    for number in 0..257 {
        ids.push(client.ok("task_create", &json!({ "title": number.to_string() }))["id"].clone());
    }
    let task = ids[0].clone();
    let needs = |count: usize| json!(ids[1..].iter().cycle().take(count).collect::<Vec<_>>());
    let fields: [(&str, &str, Value, Value); 17] = [
        ("task_create", "title", text(256), text(257)),
        ("task_create", "description", text(8000), text(8001)),
        ("task_create", "labels", list(64), list(65)),
        ("task_create", "labels", json!([text(64)]), json!([text(65)])),
        ("task_create", "depends_on", needs(256), needs(257)),
        ("task_create", "assignee", text(128), text(129)),
        ("task_create", "project_id", text(128), text(129)),
        ("task_update", "title", text(256), text(257)),
        ("task_update", "description", text(8000), text(8001)),
        ("task_update", "labels", list(64), list(65)),
        ("task_update", "depends_on", needs(256), needs(257)),
        ("task_update", "assignee", text(128), text(129)),
        ("task_list", "limit", json!(200), json!(201)),
        ("task_next_actions", "agent_id", text(128), text(129)),
        ("thought_record", "content", text(32_000), text(32_001)),
        ("thought_record", "agent_id", text(128), text(129)),
        ("audit_session_start", "intent", text(2000), text(2001)),
    ];
    for (tool, field, fits, too_much) in fields {
        client.ok(tool, &with(tool, field, &fits, &task));
        let error = client.refused(tool, &with(tool, field, &too_much, &task), "INVALID_PARAMS");
        let path = error["details"]["issues"][0]["path"].as_str().unwrap();
        assert!(path.contains(field), "{tool}.{field}: {path}");
    }
    let whole = client.ok("task_get", &json!({ "id": task }));
    assert_eq!(whole["title"], text(256), "what fits is kept to the last character");
    assert_eq!(whole["depends_on"].as_array().unwrap().len(), 256);
}

/// SU-8: a title cannot move a cursor, hide its end or turn the direction of the text around it.
#[test]
fn hostile_characters_are_refused() {
    let home = Home::new();
    let client = &mut Client::start(&home, Family::Legacy);
    let task = client.ok("task_create", &json!({ "title": "x" }))["id"].clone();
    let everywhere = ["\0", "\u{1b}[2J", "\u{7f}", "\u{85}", "\u{202e}evil", "\u{2066}", "\u{2069}"];
    let in_one_line = ["\n", "\r", "\t", "end\n", "\u{2028}", "\u{2029}"];
    let lines =
        [("task_create", "description"), ("thought_record", "content"), ("audit_session_start", "intent")];
    let line = [
        ("task_create", "title"),
        ("task_create", "assignee"),
        ("task_create", "project_id"),
        ("task_create", "labels"),
        ("task_update", "title"),
        ("task_next_actions", "agent_id"),
        ("thought_record", "agent_id"),
        ("audit_session_start", "session_id"),
    ];
    let cases = |fields: &[(&'static str, &'static str)], texts: &[&str]| -> Vec<_> {
        let pair = |&(tool, field)| texts.iter().map(move |text| (tool, field, (*text).to_owned()));
        fields.iter().flat_map(pair).collect::<Vec<_>>()
    };
    for (tool, field, text) in
        [cases(&line, &everywhere), cases(&line, &in_one_line), cases(&lines, &everywhere)].concat()
    {
        let value = if field == "labels" { json!([text]) } else { json!(text) };
        client.refused(tool, &with(tool, field, &value, &task), "INVALID_PARAMS");
    }
    for (tool, field) in lines {
        client.ok(tool, &with(tool, field, &json!("tab\tline\nline\u{2029}"), &task));
    }
}

/// Arguments that fit, but for one field.
fn with(tool: &str, field: &str, value: &Value, task: &Value) -> Value {
    let mut arguments = match tool {
        "task_create" => json!({ "title": "x" }),
        "task_update" => json!({ "id": task, "patch": {} }),
        "thought_record" => json!({ "type": "plan", "task_id": task, "agent_id": "a", "content": "c" }),
        "audit_session_start" => json!({ "intent": "x" }),
        _ => json!({}),
    };
    if tool == "task_update" {
        arguments["patch"][field] = value.clone();
    } else {
        arguments[field] = value.clone();
    }
    arguments
}
