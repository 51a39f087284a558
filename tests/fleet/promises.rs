//! What a tool promises of its results, and what colibri's start promises of its servers.

use bytes::Bytes;
use colibri::call::Reply;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::children::{ask, started};
use super::news::next;
use super::offers::{caller, path_of};
use super::support::{Scripted, fleet, member};
use crate::hostile::child::Colibri;

/// Where colibri says how a result breaks a promise.
const NOTE: &str = "colibri/outputMismatch";

/// A server in Python that has these tools and answers a call with this result, both as expressions; what the second says
/// of `given` are the call's arguments. More may be said first.
pub(super) fn python(first: &str, tools: &str, result: &str) -> String {
    format!(
        r#"import json, sys
{first}
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    method, answer = request["method"], {{"result": {{}}}}
    if method == "server/discover":
        answer = {{"error": {{"code": -32601, "message": "no"}}}}
    elif method == "initialize":
        answer = {{"result": {{"protocolVersion": "2025-06-18", "capabilities": {{"tools": {{}}}}}}}}
    elif method == "tools/list":
        answer = {{"result": {{"tools": {tools}}}}}
    elif method == "tools/call":
        given = request["params"]["arguments"]
        answer = {{"result": {result}}}
    print(json.dumps({{"jsonrpc": "2.0", "id": request["id"], **answer}}), flush=True)
"#
    )
}

/// Its tool promises a number, and gives what it is asked for.
fn promising(extra: &Value) -> Value {
    let promise =
        r#"promise = {"type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"]}"#;
    let tools = r#"[{"name": "give", "inputSchema": {"type": "object"}, "outputSchema": promise}]"#;
    let script = python(promise, tools, r#"{"content": [], **given}"#);
    let mut entry = json!({ "command": "python3", "args": ["-c", script] });
    for (key, value) in extra.as_object().expect("an object") {
        entry[key] = value.clone();
    }
    entry
}

pub(super) fn call(colibri: &mut Colibri, id: u64, tool: &str, arguments: &Value) -> Value {
    ask(colibri, id, "tools/call", &json!({ "name": tool, "arguments": arguments }))["result"].take()
}

/// SB-2: a result that breaks its tool's own promise is passed on, since the effect has happened, with a note beside it
/// and a record; `validateOutput: "enforce"` refuses it, with the original. One that keeps it, and one that tells of an
/// error, are passed on as they are.
#[test]
fn a_broken_promise_is_told_or_refused() {
    let servers = json!({
        "told": promising(&json!({})),
        "strict": promising(&json!({ "validateOutput": "enforce" })),
    });
    let mut colibri = started(&json!({ "mcpServers": servers }));
    colibri.initialize("2025-11-25");
    let kept = json!({ "structuredContent": { "n": 1.50 } });
    let broken = json!({ "structuredContent": { "n": "one" } });
    let error = json!({ "isError": true });
    for (id, server) in [(10, "told"), (20, "strict")] {
        let tool = format!("{server}__give");
        for (offset, well) in [(0, &kept), (1, &error)] {
            let result = call(&mut colibri, id + offset, &tool, well);
            assert_eq!(result["structuredContent"], well["structuredContent"], "{result}");
            assert!(result["_meta"][NOTE].is_null(), "{result}");
        }
    }
    let told = call(&mut colibri, 30, "told__give", &broken);
    assert_eq!(told["structuredContent"], json!({ "n": "one" }));
    assert!(told["_meta"][NOTE].as_str().is_some_and(|note| note.contains("/n")), "{told}");
    let told = call(&mut colibri, 31, "told__give", &json!({}));
    assert!(told["_meta"][NOTE].as_str().is_some_and(|note| note.contains("structuredContent")), "{told}");
    let refused = call(&mut colibri, 32, "strict__give", &broken);
    let error = &refused["structuredContent"]["error"];
    assert_eq!((&refused["isError"], &error["code"]), (&json!(true), &json!("PROVIDER_INVALID_OUTPUT")));
    assert_eq!(error["details"]["executed"], "yes", "{error}");
    assert_eq!(error["details"]["original"]["structuredContent"], json!({ "n": "one" }), "{error}");
    // What was put on record before this one is there when it is answered.
    call(&mut colibri, 33, "server_ping", &json!({}));
    colibri.end_input();
    assert_eq!(colibri.exit_code(), 0);
    let mut tail = colibri.home.command();
    tail.args(["audit", "tail", "--json", "-n", "100"]);
    let records = String::from_utf8(tail.output().expect("it runs").stdout).expect("UTF-8");
    assert_eq!(records.matches("output.mismatched").count(), 3, "{records}");
}

/// SB-2, SB-11: the same in memory: an unknown tool and arguments that do not fit are refused before anything is sent; a
/// result that does not fit is passed on with a note and an event, or refused with the original. Each is on record.
#[tokio::test(start_paused = true)]
async fn what_goes_in_and_what_comes_out_is_checked() {
    let server = Scripted::new(&["echo"]);
    let number = |most: u64| json!({ "type": "object", "properties": { "n": { "type": "integer", "maximum": most } } });
    server.define("echo", &number(100), &number(5));
    let mut strict = member("strict", &server);
    (strict.terms.enforce_output, strict.terms.shared) = (true, false);
    let fleet = fleet(vec![member("told", &server), strict]);
    let (_, mut heard) = fleet.fleet.bus().subscribe();
    let (calls, sink) = path_of(&fleet);
    let run = async |tool: &str, n: Value| {
        let arguments = Bytes::from(json!({ "n": n }).to_string());
        let call = calls.arrival(tool, Some(arguments), caller(), CancellationToken::new());
        match calls.run(call).await {
            Reply::Result { note, .. } => {
                (if note.is_some() { "noted" } else { "ok" }.to_owned(), Value::Null)
            }
            Reply::Envelope { body, .. } => {
                let error = serde_json::from_slice::<Value>(&body).expect("JSON")["error"].take();
                (error["code"].as_str().expect("a code").to_owned(), error["details"].clone())
            }
            other => panic!("{other:?}"),
        }
    };
    let (code, _) = run("told__ecko", json!(1)).await;
    assert_eq!(code, "PROVIDER_TOOL_NOT_FOUND");
    let (code, details) = run("told__echo", json!("many")).await;
    assert_eq!((code.as_str(), &details["issues"][0]["path"]), ("PROVIDER_INVALID_INPUT", &json!("/n")));
    assert_eq!((server.called(), &details["executed"]), (0, &json!("no")), "nothing was sent");
    assert_eq!(run("told__echo", json!(3)).await.0, "ok");
    assert_eq!(run("strict__echo", json!(3)).await.0, "ok");
    assert_eq!(run("told__echo", json!(9)).await.0, "noted");
    let event = next(&mut heard, "provider.mcp.tool.output_mismatch").await;
    assert_eq!(event.server, "told");
    let (code, details) = run("strict__echo", json!(9)).await;
    assert_eq!((code.as_str(), &details["executed"]), ("PROVIDER_INVALID_OUTPUT", &json!("yes")));
    assert_eq!(details["original"]["structuredContent"], json!({ "n": 9 }));
    assert_eq!(server.called(), 4);
    let ends = sink.briefs().into_iter().filter(|brief| !brief.starts_with("enter"));
    let ends: Vec<String> =
        ends.map(|brief| brief.split(' ').skip(2).collect::<Vec<_>>().join(" ")).collect();
    let expected = [
        "rejected PROVIDER_TOOL_NOT_FOUND",
        "rejected PROVIDER_INVALID_INPUT",
        "ok",
        "ok",
        "ok",
        "error PROVIDER_INVALID_OUTPUT",
    ];
    assert_eq!(ends, expected);
}

/// PR-2: colibri's start fails when that of a required server does, and says which and why.
#[test]
fn a_required_server_is_required() {
    let gone = json!({ "command": "no-such-program-here", "required": true });
    let mut colibri = started(&json!({ "mcpServers": { "vital": gone } }));
    let code = colibri.exit_code();
    let said = colibri.log();
    assert_eq!(code, 4, "{said}");
    assert!(said.contains("`vital` is required") && said.contains("no-such-program-here"), "{said}");
}
