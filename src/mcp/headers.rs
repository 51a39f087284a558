//! What of a message is repeated in HTTP headers: names, the encoding of values, and the arguments of
//! a tool that its schema wants mirrored (`x-mcp-header`).

use std::borrow::Cow;
use std::collections::HashSet;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

/// The revision a request is written in.
pub const PROTOCOL_VERSION: &str = "mcp-protocol-version";
/// The session of the older family.
pub const SESSION_ID: &str = "mcp-session-id";
/// The method of a request.
pub const METHOD: &str = "mcp-method";
/// What a request is about: a tool's or prompt's name, a resource's address.
pub const NAME: &str = "mcp-name";
/// What stands before the name of a mirrored argument.
pub const PARAM_PREFIX: &str = "mcp-param-";

const SENTINEL: (&str, &str) = ("=?base64?", "?=");

/// One argument that a server wants to see in a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// The header, in full.
    pub header: String,
    /// Where the value stands in the arguments.
    pub path: Vec<String>,
}

/// A value as a header can carry it: as it is, or in base64 where it is not plain.
pub fn encode(value: &str) -> Cow<'_, str> {
    let plain = value.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let padded = value.trim_matches(' ') != value;
    let looks_encoded = value.starts_with(SENTINEL.0) && value.ends_with(SENTINEL.1);
    if plain && !padded && !looks_encoded {
        return Cow::Borrowed(value);
    }
    Cow::Owned(format!("{}{}{}", SENTINEL.0, BASE64_STANDARD.encode(value), SENTINEL.1))
}

/// Which arguments a tool's input schema wants mirrored. An error says why the schema is invalid, and
/// with it the tool.
pub fn mirrors(schema: &Value) -> Result<Vec<Mirror>, String> {
    let mut found = Vec::new();
    look(schema, &mut Vec::new(), true, &mut found)?;
    let mut seen = HashSet::new();
    match found.iter().find(|mirror| !seen.insert(mirror.header.as_str())) {
        Some(twice) => Err(format!("two arguments want the header `{}`", twice.header)),
        None => Ok(found),
    }
}

/// The headers of one call: each value that is there, encoded.
pub fn mirrored(mirrors: &[Mirror], arguments: &Value) -> Vec<(String, String)> {
    let value = |mirror: &Mirror| {
        let value = mirror.path.iter().try_fold(arguments, |value, key| value.get(key))?;
        let text = match value {
            Value::String(text) => encode(text).into_owned(),
            Value::Bool(yes) => yes.to_string(),
            Value::Number(number) => whole(number)?,
            _ => return None,
        };
        Some((mirror.header.clone(), text))
    };
    mirrors.iter().filter_map(value).collect()
}

/// An integer in decimal, however it was written.
fn whole(number: &serde_json::Number) -> Option<String> {
    if number.is_i64() || number.is_u64() {
        return Some(number.to_string());
    }
    let float = number.as_f64().filter(|float| float.fract() == 0.0)?;
    Some(format!("{float:.0}"))
}

/// `reachable`: every step from the root was a key of `properties`. As deep as a frame can be, which
/// the scanner bounds.
fn look(
    schema: &Value,
    path: &mut Vec<String>,
    reachable: bool,
    found: &mut Vec<Mirror>,
) -> Result<(), String> {
    match schema {
        Value::Object(keywords) => {
            if let Some(name) = keywords.get("x-mcp-header") {
                found.push(Mirror { header: header(name, schema, path, reachable)?, path: path.clone() });
            }
            for (keyword, below) in keywords {
                match (keyword.as_str(), below) {
                    ("properties", Value::Object(properties)) => {
                        for (name, property) in properties {
                            path.push(name.clone());
                            look(property, path, reachable, found)?;
                            path.pop();
                        }
                    }
                    // What these hold is data, not a schema.
                    ("x-mcp-header" | "default" | "const" | "enum" | "examples", _) => {}
                    _ => look(below, path, false, found)?,
                }
            }
            Ok(())
        }
        Value::Array(schemas) => schemas.iter().try_for_each(|schema| look(schema, path, false, found)),
        _ => Ok(()),
    }
}

fn header(name: &Value, schema: &Value, path: &[String], reachable: bool) -> Result<String, String> {
    let place = path.join(".");
    let name = name.as_str().ok_or_else(|| format!("`x-mcp-header` of `{place}` is not a text"))?;
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err(format!("`x-mcp-header` of `{place}` is no header name"));
    }
    if !reachable || path.is_empty() {
        return Err(format!("`x-mcp-header` \"{name}\" stands where no call can be sure to have a value"));
    }
    match schema["type"].as_str() {
        Some("string" | "integer" | "boolean") => Ok(format!("{PARAM_PREFIX}{}", name.to_ascii_lowercase())),
        _ => Err(format!("`x-mcp-header` of `{place}`: only a string, integer or boolean can be mirrored")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The table of the specification.
    #[test]
    fn values_are_plain_or_base64() {
        for (value, encoded) in [
            ("us-west1", "us-west1"),
            ("a b", "a b"),
            ("a\tb", "=?base64?YQli?="),
            ("", ""),
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
            ("=?base64?open", "=?base64?open"),
        ] {
            assert_eq!(encode(value), encoded, "{value:?}");
        }
    }

    fn object(properties: &Value) -> Value {
        json!({ "type": "object", "properties": properties })
    }

    #[test]
    fn arguments_are_mirrored_where_they_have_a_value() {
        let schema = object(&json!({
            "region": { "type": "string", "x-mcp-header": "Region" },
            "count": { "type": "integer", "x-mcp-header": "Count" },
            "dry": { "type": "boolean", "x-mcp-header": "Dry" },
            "deep": object(&json!({ "er": { "type": "string", "x-mcp-header": "Deep" } })),
            "none": { "type": "string", "x-mcp-header": "None" },
            "plain": { "type": "string" },
        }));
        let mirrors = mirrors(&schema).expect("all is well");
        let arguments =
            json!({ "region": "ü", "count": 42.0, "dry": false, "deep": { "er": "x" }, "none": null });
        let mut headers = mirrored(&mirrors, &arguments);
        headers.sort();
        let expected = [
            ("mcp-param-count", "42"),
            ("mcp-param-deep", "x"),
            ("mcp-param-dry", "false"),
            ("mcp-param-region", "=?base64?w7w=?="),
        ];
        assert_eq!(headers, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn a_schema_that_asks_for_the_impossible_is_invalid() {
        let text = |header: &str| json!({ "type": "string", "x-mcp-header": header });
        for (schema, reason) in [
            (object(&json!({ "a": text("") })), "no header name"),
            (object(&json!({ "a": text("a b") })), "no header name"),
            (object(&json!({ "a": text("a\r\nb") })), "no header name"),
            (object(&json!({ "a": text("X"), "b": text("x") })), "two arguments"),
            (object(&json!({ "a": { "type": "number", "x-mcp-header": "A" } })), "only a string"),
            (object(&json!({ "a": { "type": "object", "x-mcp-header": "A" } })), "only a string"),
            (object(&json!({ "a": { "type": "string", "x-mcp-header": 7 } })), "not a text"),
            (object(&json!({ "a": { "type": "array", "items": text("A") } })), "no call can be sure"),
            (object(&json!({ "a": { "anyOf": [text("A")] } })), "no call can be sure"),
            (json!({ "type": "string", "x-mcp-header": "A" }), "no call can be sure"),
            (json!({ "type": "object", "$defs": { "a": text("A") } }), "no call can be sure"),
        ] {
            let error = mirrors(&schema).expect_err(reason);
            assert!(error.contains(reason), "{error}");
        }
        // A property with the name of the annotation is only a property.
        let named = object(&json!({ "x-mcp-header": { "type": "string" } }));
        assert_eq!(mirrors(&named), Ok(Vec::new()));
    }
}
