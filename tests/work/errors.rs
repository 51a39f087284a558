//! Every code that a tool may answer with: documented, and produced here.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use colibri::domain::codes;
use serde_json::{Value, json};

use super::client::{Client, Family, Home};

/// A tool and one of its codes.
type Answer = (String, String);

/// SU-6, SU-5: every code that a tool publishes is the answer to some call.
#[test]
fn every_documented_code_is_produced() {
    let home = Home::new();
    let client = &mut Client::start(&home, Family::Modern);
    let documented: BTreeSet<Answer> =
        client.tools.iter().flat_map(|(name, tool)| codes_of(name, &tool.entry)).collect();
    let mut produced = BTreeSet::new();
    refuse_tasks(client, &mut produced);
    refuse_sessions(client, &mut produced);
    // Nothing but a setting leads to this one.
    std::fs::write(home.path().join("strict.json"), r#"{ "audit": { "requireSession": true } }"#).unwrap();
    let strict = &mut Client::start_with(&home, Family::Legacy, &["--config", "strict.json"]);
    let task = strict.ok("task_create", &json!({ "title": "x" }))["id"].clone();
    let reason = json!({ "type": "plan", "task_id": task, "agent_id": "a", "content": "c" });
    refuse(strict, &mut produced, "thought_record", &reason, "ERR_SESSION_REQUIRED");
    assert_eq!(produced, documented, "produced (left) and documented (right)");
}

fn refuse_tasks(client: &mut Client, produced: &mut BTreeSet<Answer>) {
    let create = |client: &mut Client| client.ok("task_create", &json!({ "title": "x" }))["id"].clone();
    let (one, two) = (create(client), create(client));
    let needs_ghost = json!({ "title": "x", "depends_on": [one, "ghost"] });
    let error = refuse(client, produced, "task_create", &needs_ghost, "ERR_NOT_FOUND");
    assert_eq!(error["id"], "ghost");
    refuse(client, produced, "task_get", &json!({ "id": "ghost" }), "ERR_NOT_FOUND");
    refuse(client, produced, "task_update", &json!({ "id": "ghost", "patch": {} }), "ERR_NOT_FOUND");
    let update = |patch: Value| json!({ "id": one, "patch": patch });
    let error = refuse(
        client,
        produced,
        "task_update",
        &update(json!({ "status": "DONE" })),
        "ERR_INVALID_TRANSITION",
    );
    assert_eq!(error["from"], "INIT");
    assert_eq!(error["to"], "DONE");
    assert_eq!(error["allowed"], json!(["GATHER", "CANCELLED"]));
    let stale = json!({ "id": one, "patch": { "title": "y" }, "version": 9 });
    let error = refuse(client, produced, "task_update", &stale, "ERR_CONFLICT");
    assert_eq!([&error["expected"], &error["found"]], [9, 1]);
    for status in ["GATHER", "ANALYZE", "PLAN", "APPLY", "VERIFY"] {
        client.ok("task_update", &update(json!({ "status": status })));
    }
    let error = refuse(
        client,
        produced,
        "task_update",
        &update(json!({ "status": "DONE" })),
        "ERR_WRITEBACK_REQUIRED",
    );
    assert_eq!(error["missing_fields"], json!(["thought_record"]));
    client.ok("task_update", &json!({ "id": two, "patch": { "depends_on": [one] } }));
    let error = refuse(client, produced, "task_update", &update(json!({ "depends_on": [two] })), "ERR_CYCLE");
    assert_eq!(error["cycle"], json!([one, two, one]));
    let error = refuse(client, produced, "task_update", &update(json!({ "depends_on": [one] })), "ERR_CYCLE");
    assert_eq!(error["cycle"], json!([one, one]));
}

fn refuse_sessions(client: &mut Client, produced: &mut BTreeSet<Answer>) {
    let task = client.ok("task_create", &json!({ "title": "x" }))["id"].clone();
    let start = |id: &str| json!({ "intent": "x", "session_id": id });
    let named = |id: &str| json!({ "session_id": id });
    let reason = |task: &Value, session: &str| json!({ "type": "plan", "task_id": task, "agent_id": "a", "content": "c", "session_id": session });
    client.ok("audit_session_start", &start("s"));
    refuse(client, produced, "audit_session_start", &start("s"), "ERR_SESSION_EXISTS");
    let about_ghost = json!({ "intent": "x", "task_id": "ghost" });
    refuse(client, produced, "audit_session_start", &about_ghost, "ERR_NOT_FOUND");
    refuse(client, produced, "merkle_finalize", &named("ghost"), "ERR_SESSION_NOT_FOUND");
    refuse(client, produced, "merkle_finalize", &named("s"), "ERR_NO_RECORDS");
    refuse(client, produced, "merkle_root", &named("ghost"), "ERR_SESSION_NOT_FOUND");
    refuse(client, produced, "merkle_root", &named("s"), "ERR_NOT_FINALIZED");
    refuse(client, produced, "thought_record", &reason(&json!("ghost"), "s"), "ERR_NOT_FOUND");
    refuse(client, produced, "thought_record", &reason(&task, "ghost"), "ERR_SESSION_NOT_FOUND");
    client.ok("thought_record", &reason(&task, "s"));
    client.ok("merkle_finalize", &named("s"));
    refuse(client, produced, "merkle_finalize", &named("s"), "ERR_ALREADY_FINALIZED");
    let error = refuse(client, produced, "thought_record", &reason(&task, "s"), "ERR_SESSION_FINALIZED");
    assert_eq!(error["code"], "HANDLER_ERROR");
    assert!(error["message"].as_str().unwrap().starts_with("ERR_SESSION_FINALIZED: session s is sealed"));
    refuse(client, produced, "thought_record_list", &json!({ "task_id": "ghost" }), "ERR_NOT_FOUND");
    refuse(client, produced, "thought_record_list", &named("ghost"), "ERR_SESSION_NOT_FOUND");
    refuse(client, produced, "audit_verify_chain", &json!({ "task_id": "ghost" }), "ERR_NOT_FOUND");
}

#[track_caller]
fn refuse(
    client: &mut Client,
    produced: &mut BTreeSet<Answer>,
    tool: &str,
    arguments: &Value,
    code: &str,
) -> Value {
    produced.insert((tool.to_owned(), code.to_owned()));
    client.refused(tool, arguments, code)
}

/// CO-13, SU-5: what the mode does not admit is refused by name; the list stays, the claim does not.
#[test]
fn a_mode_that_changes_nothing_says_so() {
    let home = Home::new();
    drop(Client::start(&home, Family::Legacy));
    let client = &mut Client::start_with(&home, Family::Legacy, &["--mode", "READONLY"]);
    for tool in ["task_create", "task_update", "thought_record", "audit_session_start", "merkle_finalize"] {
        assert!(!client.tools.contains_key(tool), "{tool} is listed");
        client.refused(tool, &json!({}), "TOOL_NOT_ADMITTED");
    }
    assert_eq!(client.ok("task_next_actions", &json!({})), json!({ "actions": [] }));
    assert_eq!(client.tools["task_next_actions"].entry["annotations"]["readOnlyHint"], true);
    let claim = json!({ "agent_id": "ada", "claim": true });
    let error = client.refused("task_next_actions", &claim, "HANDLER_ERROR");
    assert_eq!(error["message"], "mode READONLY lists what is next, but claims nothing");
}

/// SU-6: the page lists every code of every tool as the server publishes them. `UPDATE_DOCS=1` rewrites it.
#[test]
fn the_page_of_errors_is_made_from_the_code() {
    let home = Home::new();
    let client = Client::start(&home, Family::Modern);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/errors.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let made = [
        ("calls", of_calls()),
        ("servers", meanings(&codes::OF_SERVERS)),
        ("codes", of_tools()),
        ("tools", by_tool(&client)),
    ];
    let made = made.iter().fold(page.clone(), |page, (mark, table)| replace(&page, mark, table));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, made).unwrap();
    } else {
        assert_eq!(page, made, "run `UPDATE_DOCS=1 cargo test --test stories page_of_errors`");
    }
}

/// What stands between `<!-- mark -->` and the next empty line is made from the code.
fn replace(page: &str, mark: &str, table: &str) -> String {
    let mark = format!("<!-- {mark} -->\n");
    let (head, rest) = page.split_once(&mark).unwrap_or_else(|| panic!("docs/errors.md has no `{mark}`"));
    let tail = rest.find("\n\n").map_or("", |end| &rest[end + 1..]);
    format!("{head}{mark}{table}{tail}")
}

fn of_calls() -> String {
    meanings(&codes::OF_CALLS)
}

fn of_tools() -> String {
    meanings(&codes::OF_TOOLS)
}

fn meanings(codes: &[codes::Code]) -> String {
    let mut table = "| code | meaning | carries |\n|---|---|---|\n".to_owned();
    for codes::Code { name, meaning, carries } in codes {
        writeln!(table, "| `{name}` | {meaning} | {carries} |").unwrap();
    }
    table
}

fn by_tool(client: &Client) -> String {
    let mut table = "| tool | pattern of its own codes | codes |\n|---|---|---|\n".to_owned();
    for (name, tool) in &client.tools {
        let (refusals, failures) = published(&tool.entry);
        let pattern = if !refusals.is_empty() {
            "B"
        } else if failures.is_empty() {
            ""
        } else {
            "A"
        };
        let mut shown = Vec::new();
        for code in refusals.iter().chain(&failures) {
            assert!(
                codes::OF_TOOLS.iter().any(|known| known.name == code),
                "say in domain/codes.rs what {code} means"
            );
            shown.push(format!("`{code}`"));
        }
        writeln!(table, "| `{name}` | {pattern} | {} |", shown.join(", ")).unwrap();
    }
    table
}

fn codes_of(tool: &str, entry: &Value) -> Vec<Answer> {
    let (refusals, failures) = published(entry);
    refusals.into_iter().chain(failures).map(|code| (tool.to_owned(), code)).collect()
}

/// The codes of pattern B and of pattern A, as the tool's output schema lists them.
fn published(entry: &Value) -> (Vec<String>, Vec<String>) {
    let schema = &entry["outputSchema"]["oneOf"];
    let list = |codes: &Value| {
        let codes = codes["properties"]["code"]["enum"].as_array().into_iter().flatten();
        codes.map(|code| code.as_str().unwrap().to_owned()).collect()
    };
    let refusals = list(&schema[0]["properties"]["data"]["anyOf"][1]["properties"]["error"]);
    let failures = list(&schema[1]["properties"]["error"]["properties"]["details"]);
    (refusals, failures)
}
