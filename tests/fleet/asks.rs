//! The other direction: a server asks the client, and tells it things, through a real colibri.

use serde_json::{Value, json};

use super::children::started;
use crate::hostile::child::Colibri;

/// A server of the older family that asks whatever its tool is called like, and tells what it was answered.
const ASKING: &str = r#"
import json, sys

def say(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()

def hear():
    line = sys.stdin.readline()
    if not line:
        sys.exit()
    return json.loads(line)

def take_back():
    say({"id": "back", "method": "elicitation/create", "params": {}})
    while hear().get("method") != "notifications/roots/list_changed":
        pass
    say({"method": "notifications/cancelled", "params": {"requestId": "back"}})

asked = {"elicit": "elicitation/create", "sample": "sampling/createMessage", "roots": "roots/list", "odd": "odd/ask"}
able, level, changes = {}, None, 0
while True:
    request = hear()
    method, ident = request.get("method"), request.get("id")
    if method == "notifications/roots/list_changed":
        changes += 1
    if ident is None:
        continue
    result = {}
    if method == "server/discover":
        say({"id": ident, "error": {"code": -32601, "message": "no"}})
        continue
    if method == "initialize":
        able = request["params"]["capabilities"]
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}, "logging": {}}, "serverInfo": {"name": "asking", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in [*asked, "able", "log", "back"]]}
    elif method == "logging/setLevel":
        level = request["params"]["level"]
    elif method == "tools/call":
        name = request["params"]["name"]
        if name == "able":
            text = json.dumps({"able": able, "level": level, "changes": changes})
        elif name == "back":
            take_back()
            text = "taken back"
        elif name == "log":
            say({"method": "notifications/message", "params": {"level": "info", "logger": "db", "data": "1.50"}})
            text = "logged"
        else:
            say({"id": "q-" + name, "method": asked[name], "params": {"n": 1}})
            answer = hear()
            while answer.get("id") != "q-" + name:
                answer = hear()
            text = json.dumps(answer.get("result", answer.get("error")))
        result = {"content": [{"type": "text", "text": text}]}
    say({"id": ident, "result": result})
"#;

fn serving() -> Colibri {
    started(&json!({ "mcpServers": { "s": { "command": "python3", "args": ["-c", ASKING] } } }))
}

fn send(colibri: &mut Colibri, message: &Value) {
    colibri.send(&message.to_string());
}

/// The next message that this is true of.
fn next(colibri: &mut Colibri, is_it: impl Fn(&Value) -> bool) -> Value {
    loop {
        let message = colibri.answer();
        if is_it(&message) {
            return message;
        }
    }
}

fn begin(colibri: &mut Colibri, capabilities: &Value) {
    let client = json!({ "name": "test", "version": "1" });
    let params =
        json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": client });
    send(colibri, &json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }));
    next(colibri, |message| message["id"] == 0);
    send(colibri, &json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
}

fn call(colibri: &mut Colibri, id: u64, tool: &str) {
    let params = json!({ "name": tool, "arguments": {} });
    send(colibri, &json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }));
}

fn text(answer: &Value) -> Value {
    let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

/// PR-11, SB-5: within one family a server asks for a person's input, a model's words and roots, and gets the client's
/// own answer, errors too; what no server may ask is refused.
#[test]
fn a_server_asks_its_client() {
    let mut colibri = serving();
    begin(&mut colibri, &json!({ "elicitation": {}, "sampling": {}, "roots": { "listChanged": true } }));
    for (id, tool, method) in [
        (1, "s__elicit", "elicitation/create"),
        (2, "s__sample", "sampling/createMessage"),
        (3, "s__roots", "roots/list"),
    ] {
        call(&mut colibri, id, tool);
        let question = next(&mut colibri, |message| message["method"] == method);
        assert_eq!(question["params"], json!({ "n": 1, "_meta": { "colibri/server": "s" } }));
        let answer = json!({ "said": method, "n": id });
        send(&mut colibri, &json!({ "jsonrpc": "2.0", "id": question["id"], "result": answer }));
        let answered = next(&mut colibri, |message| message["id"] == id);
        assert_eq!(text(&answered), answer);
    }
    call(&mut colibri, 4, "s__elicit");
    let question = next(&mut colibri, |message| message["method"] == "elicitation/create");
    let error = json!({ "code": -1, "message": "not today" });
    send(&mut colibri, &json!({ "jsonrpc": "2.0", "id": question["id"], "error": error }));
    assert_eq!(text(&next(&mut colibri, |message| message["id"] == 4)), error);
    call(&mut colibri, 5, "s__odd");
    assert_eq!(text(&next(&mut colibri, |message| message["id"] == 5))["code"], -32601);
}

/// PR-11: a question that its server takes back is taken back from the client. It used to stay with it for ten minutes, and
/// with it stood the deadlines of every call.
#[test]
fn a_question_can_be_taken_back() {
    let mut colibri = serving();
    begin(&mut colibri, &json!({ "elicitation": {} }));
    call(&mut colibri, 1, "s__back");
    let question = next(&mut colibri, |message| message["method"] == "elicitation/create");
    send(&mut colibri, &json!({ "jsonrpc": "2.0", "method": "notifications/roots/list_changed" }));
    let back = next(&mut colibri, |message| message["method"] == "notifications/cancelled");
    assert_eq!(back["params"]["requestId"], question["id"]);
    call(&mut colibri, 2, "s__able");
    next(&mut colibri, |message| message["id"] == 2);
}

/// PR-11: a server knows what the client can do, is told its wishes, and says whose log messages they are.
#[test]
fn a_server_knows_its_client() {
    let mut colibri = serving();
    begin(&mut colibri, &json!({ "roots": { "listChanged": true }, "experimental": { "x": {} } }));
    call(&mut colibri, 1, "s__able");
    let known = text(&next(&mut colibri, |message| message["id"] == 1));
    assert_eq!(known["able"], json!({ "roots": { "listChanged": true } }));
    send(&mut colibri, &json!({ "jsonrpc": "2.0", "method": "notifications/roots/list_changed" }));
    let level = json!({ "level": "warning" });
    send(&mut colibri, &json!({ "jsonrpc": "2.0", "id": 2, "method": "logging/setLevel", "params": level }));
    next(&mut colibri, |message| message["id"] == 2);
    let mut id = 10;
    loop {
        call(&mut colibri, id, "s__able");
        let known = text(&next(&mut colibri, |message| message["id"] == id));
        if (&known["level"], &known["changes"]) == (&json!("warning"), &json!(1)) {
            break;
        }
        id += 1;
    }
    call(&mut colibri, 3, "s__log");
    let told = next(&mut colibri, |message| message["method"] == "notifications/message");
    assert_eq!(told["params"], json!({ "level": "info", "logger": "s/db", "data": "1.50" }));
    // What the client has not said it can do is not asked of it.
    call(&mut colibri, 4, "s__sample");
    let refused = next(&mut colibri, |message| message["id"] == 4 || message["method"].is_string());
    assert_eq!(text(&refused)["code"], -32601);
}

/// PR-11: across families a server's own questions are refused: a modern client is never asked.
#[test]
fn a_modern_client_is_not_asked() {
    let mut colibri = serving();
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": {}, "sampling": {} },
    });
    for (id, tool) in [(1, "s__elicit"), (2, "s__sample"), (3, "s__roots")] {
        let params = json!({ "name": tool, "arguments": {}, "_meta": meta });
        send(&mut colibri, &json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }));
        let refused = next(&mut colibri, |_| true);
        assert_eq!(refused["id"], id, "nothing else was said: {refused}");
        assert_eq!(text(&refused)["code"], -32601);
    }
    let params = json!({ "name": "s__able", "arguments": {}, "_meta": meta });
    send(&mut colibri, &json!({ "jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": params }));
    assert_eq!(text(&next(&mut colibri, |_| true))["able"], json!({}), "it was promised nothing");
}

/// A server of the newer family, whose tool wants to know something first.
const WANTING: &str = r#"
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    method, params = request["method"], request.get("params", {})
    meta = params.get("_meta", {})
    result = {"resultType": "complete"}
    if method == "server/discover":
        result |= {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "serverInfo": {"name": "w", "version": "1"}, "ttlMs": 0, "cacheScope": "private"}
    elif method == "tools/list":
        result |= {"tools": [{"name": "ask", "inputSchema": {"type": "object"}}], "ttlMs": 0, "cacheScope": "private"}
    elif "inputResponses" in params:
        said = {"responses": params["inputResponses"], "state": params["requestState"], "able": meta["io.modelcontextprotocol/clientCapabilities"]}
        result |= {"content": [{"type": "text", "text": json.dumps(said)}]}
    else:
        result = {"resultType": "input_required", "inputRequests": {"q": {"method": "elicitation/create", "params": {"message": "Name?"}}}, "requestState": "s-1.50"}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"#;

fn wanting() -> Colibri {
    started(&json!({ "mcpServers": { "w": { "command": "python3", "args": ["-c", WANTING] } } }))
}

/// PR-11: a modern client gets what a modern tool wants to know as its result, and calls again with the answers and the
/// state, which reach the server as they are, with what the client can do.
#[test]
fn input_goes_in_rounds_between_modern_ones() {
    let mut colibri = wanting();
    let able = json!({ "elicitation": { "form": {} } });
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": able,
    });
    let params = json!({ "name": "w__ask", "arguments": {}, "_meta": meta });
    send(&mut colibri, &json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }));
    let wants = next(&mut colibri, |message| message["id"] == 1);
    assert_eq!(wants["result"]["resultType"], "input_required", "{wants}");
    assert_eq!(wants["result"]["inputRequests"]["q"]["method"], "elicitation/create");
    let responses = json!({ "q": { "action": "accept", "content": { "name": "Ada" } } });
    let params = json!({
        "name": "w__ask", "arguments": {}, "_meta": meta,
        "inputResponses": responses, "requestState": wants["result"]["requestState"],
    });
    send(&mut colibri, &json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params }));
    let done = next(&mut colibri, |message| message["id"] == 2);
    assert_eq!(text(&done), json!({ "responses": responses, "state": "s-1.50", "able": able }), "{done}");
}

/// PR-11: and a client of the older family is asked what a modern tool wants to know.
#[test]
fn a_legacy_client_is_asked_for_a_modern_server() {
    let mut colibri = wanting();
    begin(&mut colibri, &json!({ "elicitation": {} }));
    call(&mut colibri, 1, "w__ask");
    let question = next(&mut colibri, |message| message["method"] == "elicitation/create");
    // The person who answers sees who asks.
    let by = json!({ "colibri/server": "w" });
    assert_eq!(question["params"], json!({ "message": "[w] Name?", "_meta": by }));
    let answer = json!({ "action": "decline" });
    send(&mut colibri, &json!({ "jsonrpc": "2.0", "id": question["id"], "result": answer }));
    let done = next(&mut colibri, |message| message["id"] == 1);
    assert_eq!(text(&done)["responses"], json!({ "q": answer }), "{done}");
    assert_eq!(text(&done)["able"], json!({ "elicitation": {} }));
}
