//! The JSON Schema of `colibri.json`.
//!
//! Owns: the schema derived from the structs of `keys` and `server`, which is what files are checked
//! against, and the published form of it, which also knows the spellings of other clients.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::dialect;
use super::keys::File;

/// What the published schema is known by.
pub(super) const ID: &str = "urn:colibri:config";

/// What files are checked against. Nothing in it is a reference, so that a walk needs no lookup.
pub(super) static FILE: LazyLock<Value> = LazyLock::new(|| {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<File>().to_value()
});

/// The same, of one server.
pub(super) fn server() -> &'static Value {
    &FILE["properties"]["mcpServers"]["additionalProperties"]
}

/// The published schema. It also admits what is folded in from other clients, so that an editor
/// complains about nothing that colibri accepts.
pub fn schema() -> Value {
    let mut schema = FILE.clone();
    schema["$id"] = json!(ID);
    schema["title"] = json!("colibri.json");
    let mut server = schema["properties"]["mcpServers"]["additionalProperties"].take();
    for (theirs, ours, how) in dialect::KEYS {
        let mut alias =
            if *how == dialect::How::Same { server["properties"][*ours].clone() } else { json!({}) };
        alias["description"] = json!(format!("Another client's spelling of `{ours}`."));
        alias["deprecated"] = json!(true);
        server["properties"][*theirs] = alias;
    }
    let words = server["properties"]["type"]["anyOf"][0]["oneOf"].as_array_mut();
    words.expect("`type` is an optional word").extend(dialect::TYPES.iter().map(|(theirs, ours)| {
        json!({ "const": theirs, "description": format!("Another client's word for `{ours}`."), "type": "string" })
    }));
    let text_list = json!({ "type": "array", "items": { "type": "string" } });
    for name in ["command", "tools"] {
        let ours = server["properties"][name].take();
        server["properties"][name] =
            json!({ "description": ours["description"], "anyOf": [ours, text_list] });
    }
    schema["properties"]["mcpServers"]["additionalProperties"] = server;
    schema["properties"]["servers"] = schema["properties"]["mcpServers"].clone();
    schema
}

/// Whether a name is one of ours or of the spellings we know, wherever it may stand.
pub(super) fn is_key(name: &str) -> bool {
    static KEYS: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
        let mut keys = BTreeSet::new();
        collect_keys(&schema(), &mut keys);
        keys
    });
    KEYS.contains(name)
}

fn collect_keys(schema: &Value, keys: &mut BTreeSet<String>) {
    for (name, value) in schema.as_object().into_iter().flatten() {
        if name == "properties" {
            keys.extend(value.as_object().into_iter().flatten().map(|(key, _)| key.clone()));
        }
        collect_keys(value, keys);
    }
    schema.as_array().into_iter().flatten().for_each(|item| collect_keys(item, keys));
}
