//! Schemas that are built to cost: the server that wrote them pays, and nobody else.

use serde_json::{Value, json};

use super::children::started;
use super::promises::{call, python};

/// Its tools have schemas that ask for more steps than anybody can take.
const COSTLY: &str = r##"
def doubling(length):
    parts = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(length)}
    return {"type": "object", "$ref": "#/$defs/a0", "$defs": {**parts, f"a{length}": {"required": ["n"]}}}
lists = {"allOf": [{"items": {"$ref": "#/$defs/l"}}] * 2}
branching = {"type": "object", "properties": {"n": {"$ref": "#/$defs/l"}}, "$defs": {"l": lists}}
plain = {"type": "object"}
def left_over(length):
    link = lambda n: {"$ref": f"#/$defs/a{n}", "unevaluatedProperties": False}
    parts = {f"a{n}": {"additionalProperties": link(n + 1)} for n in range(length)}
    return {"type": "object", "additionalProperties": link(0), "$defs": {**parts, f"a{length}": {}}}
tools = [
    {"name": "left_over", "inputSchema": left_over(3000)},
    {"name": "a_little_left_over", "inputSchema": left_over(15)},
    {"name": "classes", "inputSchema": {"type": "object", "properties": {"n": {"pattern": "\\s" * 8192}}}},
    {"name": "doubling", "inputSchema": doubling(40)},
    {"name": "branching", "inputSchema": branching},
    {"name": "promising", "inputSchema": plain, "outputSchema": doubling(40)},
    {"name": "growing", "inputSchema": plain, "outputSchema": branching},
]
"##;

/// Lists in lists, so deep that recursion that branches would never end.
fn deep() -> Value {
    json!({ "n": (0..60).fold(json!([]), |value, _| json!([value])) })
}

/// SB-2: a tool whose input schema cannot be checked by anybody is left out and told of; one whose check would take too
/// long for the arguments at hand is called without, since its server checks them; a result is told of or refused.
/// Without bounds each of these calls holds a thread for ever; and one list of tools (`left_over`) once ended the whole of
/// colibri, by a stack that was too small to compile it.
#[test]
fn a_schema_that_is_built_to_cost_holds_up_nobody() {
    let costly = python(COSTLY, "tools", r#"{"content": [], "structuredContent": given}"#);
    let server = json!({ "command": "python3", "args": ["-c", costly] });
    let mut strict = server.clone();
    strict["validateOutput"] = json!("enforce");
    let mut colibri = started(&json!({ "mcpServers": { "costly": server, "strict": strict } }));
    colibri.initialize("2025-11-25");
    for (id, tool) in [(10, "costly__branching"), (11, "costly__promising"), (12, "costly__growing")] {
        let result = call(&mut colibri, id, tool, &deep());
        assert_eq!(result["structuredContent"], deep(), "{tool}");
        let note = result["_meta"]["colibri/outputMismatch"].as_str();
        assert_eq!(note, (id == 12).then_some("it cannot be checked: it would take too long"), "{tool}");
    }
    for (id, tool, why) in [(20, "promising", "in so many ways"), (21, "growing", "too long")] {
        let result = call(&mut colibri, id, &format!("strict__{tool}"), &deep());
        let error = &result["structuredContent"]["error"];
        assert_eq!(error["code"], "PROVIDER_INVALID_OUTPUT", "{error}");
        assert!(error["details"]["issues"].to_string().contains(why), "{error}");
    }
    // Shallow ones are checked as ever, and what does not fit is refused.
    let fits = call(&mut colibri, 30, "strict__growing", &json!({ "n": [[1]] }));
    assert_eq!(fits["structuredContent"], json!({ "n": [[1]] }), "{fits}");
    let little = call(&mut colibri, 31, "strict__a_little_left_over", &json!({}));
    assert_eq!(little["structuredContent"], json!({}), "{little}");
    for (id, tool) in [(32, "doubling"), (33, "left_over"), (34, "classes")] {
        let unknown = call(&mut colibri, id, &format!("costly__{tool}"), &json!({}));
        let code = &unknown["structuredContent"]["error"]["code"];
        assert_eq!(code, "PROVIDER_TOOL_NOT_FOUND", "{tool}: {unknown}");
    }
    colibri.end_input();
    assert_eq!(colibri.exit_code(), 0);
    let log = colibri.log();
    assert!(log.contains("doubling: its input schema: its parts refer to each other"), "{log}");
    assert!(log.contains("left_over: its input schema: `unevaluatedProperties`"), "{log}");
}
