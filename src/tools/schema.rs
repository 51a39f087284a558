//! The JSON Schemas of a native tool, derived from its types.

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use crate::domain::failure::code;

/// The schema of the arguments: an object that admits no unknown key. `None` if `A` is no such object.
pub(super) fn input<A: JsonSchema>() -> Option<Value> {
    let mut schema = generate::<A>();
    let object = schema.as_object_mut()?;
    if object.get("type") != Some(&json!("object")) {
        return None;
    }
    // A map takes keys that nobody knows; closing its schema would leave a tool that takes none.
    if object.get("additionalProperties").is_some_and(|open| open != false) {
        return None;
    }
    object.entry("properties").or_insert_with(|| json!({}));
    object.insert("additionalProperties".to_owned(), json!(false));
    Some(schema)
}

/// The schema of the whole envelope, since that is what the structured content is.
pub(super) fn envelope<O: JsonSchema>(refusals: &[&str], failures: &[&str]) -> Value {
    let mut data = generate::<O>();
    let definitions = data.as_object_mut().and_then(|object| object.remove("$defs"));
    if !refusals.is_empty() {
        data = json!({ "anyOf": [data, refusal(refusals)] });
    }
    let mut details = json!({ "type": "object" });
    if !failures.is_empty() {
        details["properties"] = json!({ "code": { "enum": failures } });
    }
    let mut envelope = json!({
        "type": "object",
        "required": ["ok"],
        "oneOf": [
            one_branch("data", true, data),
            one_branch("error", false, json!({
                "type": "object",
                "required": ["code", "message"],
                "properties": {
                    "code": { "enum": code::ALL },
                    "message": { "type": "string" },
                    "details": details,
                },
                "additionalProperties": false,
            })),
        ],
    });
    if let Some(definitions) = definitions {
        envelope["$defs"] = definitions;
    }
    envelope
}

/// `{ok: <ok>, <field>: …}` and nothing else.
fn one_branch(field: &str, ok: bool, value: Value) -> Value {
    let mut properties = Map::new();
    properties.insert("ok".to_owned(), json!({ "const": ok }));
    properties.insert(field.to_owned(), value);
    json!({ "type": "object", "required": ["ok", field], "properties": properties, "additionalProperties": false })
}

/// The pattern B answer inside `data`. Codes carry fields of their own, so `error` stays open.
fn refusal(codes: &[&str]) -> Value {
    let error = json!({
        "type": "object",
        "required": ["code", "message"],
        "properties": { "code": { "enum": codes }, "message": { "type": "string" } },
    });
    one_branch("error", false, error)
}

fn generate<T: JsonSchema>() -> Value {
    let schema: Schema = SchemaGenerator::new(SchemaSettings::draft2020_12()).into_root_schema_for::<T>();
    let mut value = schema.to_value();
    if let Some(object) = value.as_object_mut() {
        // 2020-12 is MCP's default dialect; named, it makes draft-07 validators in the field refuse.
        object.remove("$schema");
        object.remove("title");
    }
    forget_rust_formats(&mut value);
    value
}

/// `uint64` and its kin are formats of Rust, not of JSON Schema; strict validators refuse them.
fn forget_rust_formats(value: &mut Value) {
    match value {
        Value::Object(object) => {
            let is_rusts = |format: &Value| {
                format.as_str().is_some_and(|f| {
                    f.starts_with("uint") || f.starts_with("int") || f == "double" || f == "float"
                })
            };
            if object.get("format").is_some_and(is_rusts) {
                object.remove("format");
            }
            object.values_mut().for_each(forget_rust_formats);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_rust_formats),
        _ => {}
    }
}
