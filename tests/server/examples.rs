//! Stories of what a library user writes: how little it is, and that the examples do what they say.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use colibri::tools::Registry;
use serde_json::{Value, json};

use super::small_tool;

/// CO-2: a native tool — arguments, function, registration, imports and all — takes under 20 lines.
#[tokio::test]
async fn a_tool_takes_under_twenty_lines() {
    let source = include_str!("small_tool.rs");
    assert!(source.lines().count() < 20, "{} lines", source.lines().count());

    let mut registry = Registry::default();
    small_tool::register(&mut registry).unwrap();
    assert_eq!(registry.names().collect::<Vec<_>>(), [("divide", false)]);
    let tool = registry.into_tools().next().unwrap();
    assert_eq!(format!("{tool:?}"), "Tool(divide)");
    let mut keys = tool.definition.input_schema["required"].as_array().unwrap().clone();
    keys.sort_by_key(ToString::to_string);
    assert_eq!(keys, ["dividend", "divisor"]);
}

/// CO-2, CO-16: the example of a tool serves it.
#[test]
fn the_custom_tool_example_serves_its_tool() {
    let output = run(
        "custom_tool",
        &[("word_count", json!({ "text": "to be or not to be" })), ("word_count", json!({}))],
    );
    assert!(output.status.success(), "{output:?}");
    let [counted, refused] = envelopes(&output).try_into().unwrap();
    assert_eq!(counted, json!({ "ok": true, "data": { "words": 6, "distinct": 4 } }));
    assert_eq!(refused["error"]["code"], "INVALID_PARAMS");
}

/// CO-10: the example of a sink tells every call on stderr.
#[test]
fn the_audit_sink_example_tells_every_call() {
    let output = run("audit_sink", &[("server_ping", json!({})), ("server_ping", json!({ "x": 1 }))]);
    assert!(output.status.success(), "{output:?}");
    let told = String::from_utf8(output.stderr).unwrap();
    let after_id = |line: &'_ str| line.split_once(' ').expect("an id first").1.to_owned();
    let told: Vec<String> =
        told.lines().filter_map(|line| line.strip_prefix("audit: ")).map(after_id).collect();
    assert_eq!(
        told,
        [
            "server_ping {} for an example's test",
            "server_ping ended ok",
            r#"server_ping {"x":1} for an example's test"#,
            "server_ping ended rejected (INVALID_PARAMS)",
        ]
    );
}

/// Runs an example with these calls, one after the other, until it has answered them all.
fn run(example: &str, calls: &[(&str, Value)]) -> Output {
    let mut child = Command::new(built(example))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let client = json!({ "name": "an example's test", "version": "1" });
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
    writeln!(stdin, "{}", json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }))
        .unwrap();
    for (id, (name, arguments)) in calls.iter().enumerate() {
        let params = json!({ "name": name, "arguments": arguments });
        writeln!(
            stdin,
            "{}",
            json!({ "jsonrpc": "2.0", "id": id + 1, "method": "tools/call", "params": params })
        )
        .unwrap();
    }
    drop(stdin);
    child.wait_with_output().unwrap()
}

/// `cargo test` and `cargo nextest run` build the examples beside the tests.
fn built(example: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(|deps| deps.parent()).expect("target/<profile>/deps");
    let path = profile.join("examples").join(example);
    assert!(path.exists(), "{} is not built: cargo build --examples", path.display());
    path
}

/// The envelopes of the calls, in the order of their ids.
fn envelopes(output: &Output) -> Vec<Value> {
    let stdout = std::str::from_utf8(&output.stdout).unwrap();
    let mut frames: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    frames.sort_by_key(|frame| frame["id"].as_u64());
    frames[1..].iter().map(|frame| frame["result"]["structuredContent"].clone()).collect()
}
