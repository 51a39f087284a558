//! Listing a server's tools: all pages, no further than is sensible, and one bad tool costs no other.

use colibri::fleet::bridge::{Bridge, Cause, Tools};
use serde_json::{Value, json};

use super::{Do, Script, connect};

fn tool(name: &str) -> Value {
    json!({
        "name": name, "title": "T", "description": "what it does", "inputSchema": { "type": "object" },
        "outputSchema": { "type": "object" }, "annotations": { "readOnlyHint": true }, "x-unknown": [1.0],
    })
}

fn page(tools: &[Value], next: Option<&str>) -> Do {
    let mut page = json!({ "tools": tools });
    if let Some(next) = next {
        page["nextCursor"] = next.into();
    }
    Do::Result(page)
}

async fn listed(script: &Script, pages: Vec<Do>) -> Result<Tools, Cause> {
    script.lists.lock().expect("sound").extend(pages);
    let bridge: Bridge = connect(script).await.expect("it connects");
    bridge.tools().await.map_err(|error| error.source)
}

/// SB-1: all pages, in the server's order, each definition whole and found by its name.
#[tokio::test(start_paused = true)]
async fn every_page_is_read_and_every_definition_kept() {
    let script = Script::legacy([]);
    let pages =
        vec![page(&[tool("b"), tool("a")], Some("1")), page(&[], Some("2")), page(&[tool("c")], Some(""))];
    let tools = listed(&script, pages).await.expect("it lists");
    let names: Vec<&str> = tools.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["b", "a", "c"]);
    let kept: Value =
        serde_json::from_str(tools.get("a").expect("it is there").definition.get()).expect("JSON");
    assert_eq!(kept, tool("a"));
    assert!(tools.get("d").is_none());
    let seen = script.seen.lock().expect("sound");
    let cursors: Vec<&Value> = seen
        .iter()
        .filter(|message| message["method"] == "tools/list")
        .map(|message| &message["params"]["cursor"])
        .collect();
    assert_eq!(cursors, [&Value::Null, &json!("1"), &json!("2")]);
}

/// SB-1: a list without end, by a cursor that comes again or by pages on pages, is given up.
#[tokio::test(start_paused = true)]
async fn a_list_without_end_is_given_up() {
    let again = vec![page(&[tool("a")], Some("1")), page(&[tool("b")], Some("1"))];
    let error = listed(&Script::legacy([]), again).await.expect_err("it goes round");
    assert!(error.to_string().contains("the same cursor came twice"), "{error}");

    let on_and_on = (0..1001).map(|number| page(&[], Some(&number.to_string()))).collect();
    let error = listed(&Script::legacy([]), on_and_on).await.expect_err("it never ends");
    assert!(error.to_string().contains("more than 1000 pages"), "{error}");

    let many: Vec<Value> = (0..20_001).map(|number| tool(&number.to_string())).collect();
    let error = listed(&Script::legacy([]), vec![page(&many, None)]).await.expect_err("too many");
    assert!(error.to_string().contains("more than 20000 tools"), "{error}");
}

/// SB-1: what cannot be used is left out with its reason, and the rest is kept.
#[tokio::test(start_paused = true)]
async fn one_bad_tool_costs_no_other() {
    let with = |name: &str, schema: Value| json!({ "name": name, "inputSchema": schema });
    let header =
        json!({ "type": "object", "properties": { "a": { "type": "number", "x-mcp-header": "A" } } });
    let elsewhere = json!({ "type": "object", "properties": { "a": { "$ref": "http://127.0.0.1:1/x" } } });
    let tools = [
        tool("good"),
        tool("good"),
        json!({ "name": "none" }),
        json!({ "inputSchema": { "type": "object" } }),
        json!("text"),
        with("true", json!(true)),
        with("array", json!({ "type": "array" })),
        with("broken", json!({ "type": "object", "properties": { "a": { "type": 7 } } })),
        with("header", header),
        with("elsewhere", elsewhere),
    ];
    for (script, kept) in [
        (Script::modern([]), vec!["good", "elsewhere"]),
        // Before 2026-07-28 the annotation means nothing.
        (Script::legacy([]), vec!["good", "header", "elsewhere"]),
    ] {
        let listed = listed(&script, vec![page(&tools, None)]).await.expect("it lists");
        let names: Vec<&str> = listed.tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, kept);
        assert_eq!(listed.left_out.len(), tools.len() - kept.len(), "{:?}", listed.left_out);
    }
}
