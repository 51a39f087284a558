//! Stage 2: arguments against the very schema that `tools/list` shows.

use std::borrow::Cow;
use std::fmt;

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::types::JsonType;
use jsonschema::{PatternOptions, ValidationError, Validator};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::domain::failure::{ISSUES_MAX, Issue};
use crate::domain::nearest::nearest;

/// A compiled schema, and what it says about keys.
#[derive(Debug)]
pub(super) struct Arguments {
    validator: Validator,
    schema: Value,
}

impl Arguments {
    /// Compiles once, when the tool is registered.
    pub(super) fn compile(schema: &Value) -> Result<Self, String> {
        // An engine that never backtracks: a server that chooses both pattern and text must not hold up the others.
        let options = jsonschema::draft202012::options().with_pattern_options(PatternOptions::regex());
        let validator = options.build(schema).map_err(|error| error.to_string())?;
        Ok(Self { validator, schema: schema.clone() })
    }

    /// The arguments as a value, or what is wrong with them.
    pub(super) fn check(&self, raw: &[u8]) -> Result<Value, Vec<Issue>> {
        let Strict(value) = serde_json::from_slice(raw).map_err(|error| vec![whole(error.to_string())])?;
        let issues: Vec<Issue> = self
            .validator
            .iter_errors(&value)
            .take(ISSUES_MAX)
            .flat_map(|error| self.issues(&error))
            .collect();
        if issues.is_empty() { Ok(value) } else { Err(issues) }
    }

    fn issues(&self, error: &ValidationError<'_>) -> Vec<Issue> {
        let at = error.instance_path().as_str();
        match error.kind() {
            ValidationErrorKind::AdditionalProperties { unexpected } => {
                unexpected.iter().take(ISSUES_MAX).map(|key| self.unknown_key(at, key)).collect()
            }
            ValidationErrorKind::AnyOf { context } if meant(context).is_some() => {
                meant(context).into_iter().flatten().flat_map(|error| self.issues(error)).collect()
            }
            _ => vec![Issue { path: at.to_owned(), message: error.to_string() }],
        }
    }

    fn unknown_key(&self, at: &str, key: &str) -> Issue {
        let known = self.keys_at(at);
        let hint: Cow<'_, str> = match nearest(key, known.iter().copied()) {
            Some(known) => format!(": did you mean `{known}`?").into(),
            None if at.is_empty() && known.is_empty() => ": this tool takes no arguments".into(),
            None => "".into(),
        };
        Issue {
            path: format!("{at}/{}", pointer_segment(key)),
            message: format!("unknown key `{key}`{hint}"),
        }
    }

    /// The keys that the object at that place may have, as far as nested objects name theirs.
    fn keys_at(&self, at: &str) -> Vec<&str> {
        let object = at.split('/').skip(1).fold(&self.schema, |schema, key| &schema["properties"][key]);
        object["properties"].as_object().into_iter().flat_map(Map::keys).map(String::as_str).collect()
    }
}

/// An optional argument is "this or null" in its schema. Who did not write null meant this, and is told
/// what is wrong with it rather than that it is neither.
fn meant<'a>(branches: &'a [Vec<ValidationError<'static>>]) -> Option<&'a [ValidationError<'static>]> {
    let is_null = |branch: &[ValidationError<'static>]| {
        branch.iter().any(|error| {
            matches!(error.kind(), ValidationErrorKind::Type { kind: TypeKind::Single(JsonType::Null) })
        })
    };
    match branches {
        [this, other] if is_null(other) && !is_null(this) => Some(this),
        _ => None,
    }
}

pub(super) fn whole(message: String) -> Issue {
    Issue { path: String::new(), message }
}

/// RFC 6901: `~` and `/` are escaped inside a JSON Pointer.
fn pointer_segment(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// A JSON value in which no object has a key twice: a parser that keeps the last and a reader who
/// sees the first would otherwise disagree on what was asked.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Strict)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Strict(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some((key, Strict(value))) = entries.next_entry::<String, Strict>()? {
            if object.contains_key(&key) {
                return Err(A::Error::custom(format!("the key `{key}` appears twice")));
            }
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use serde::de::value::BytesDeserializer;

    use super::*;

    /// CO-5: the reader of arguments takes JSON and nothing else.
    #[test]
    fn what_is_no_json_value_is_refused() {
        let bytes = BytesDeserializer::<serde_json::Error>::new(b"x");
        let error = Strict::deserialize(bytes).err().expect("no JSON value");
        assert_eq!(error.to_string(), "invalid type: byte array, expected a JSON value");
    }
}
