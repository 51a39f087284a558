//! Stage 2: arguments against the very schema that `tools/list` shows.

use std::borrow::Cow;
use std::fmt;

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::types::JsonType;
use jsonschema::{PatternOptions, ValidationError, Validator};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::domain::effort::{Effort, Thorough};
use crate::domain::failure::{ISSUES_MAX, Issue};
use crate::domain::nearest::nearest;

/// A compiled schema, and what it says about keys.
#[derive(Debug)]
pub(super) struct Arguments {
    validator: Validator,
    schema: Value,
    effort: Effort,
}

/// Why a value is not known to fit.
#[derive(Debug)]
pub(super) enum Wrong {
    /// It does not.
    Broken(Vec<Issue>),
    /// Nobody knows, and why not.
    Unchecked(String),
}

impl Arguments {
    /// Compiles once, when the tool is registered or first called.
    pub(super) fn compile(schema: &Value) -> Result<Self, String> {
        // Before anything is compiled: that can be costly, too.
        let effort = Effort::of(schema).map_err(|error| error.to_string())?;
        // An engine that never backtracks: a server that chooses both pattern and text must not hold up the others.
        let options = jsonschema::draft202012::options().with_pattern_options(PatternOptions::regex());
        let validator = options.build(schema).map_err(|error| error.to_string())?;
        Ok(Self { validator, schema: schema.clone(), effort })
    }

    /// Whether text of this length is checked in no time.
    pub(super) fn is_cheap(&self, raw: &[u8]) -> bool {
        self.effort.is_cheap(raw.len())
    }

    /// The arguments as a value, or what is wrong with them.
    pub(super) fn check(&self, raw: &[u8]) -> Result<Value, Wrong> {
        let Strict(value) =
            serde_json::from_slice(raw).map_err(|error| Wrong::Broken(vec![whole(error.to_string())]))?;
        let thorough = if self.is_cheap(raw) { Thorough::Words } else { self.effort.thorough(&value) };
        let issues: Vec<Issue> = match thorough {
            Thorough::Words => {
                let errors = self.validator.iter_errors(&value).take(ISSUES_MAX);
                errors.flat_map(|error| self.issues(&error)).collect()
            }
            // Each complaint is kept until the last is found, and there may be one for each of a million values.
            Thorough::YesOrNo if self.validator.is_valid(&value) => Vec::new(),
            Thorough::YesOrNo => vec![whole("it does not fit, and is too large to say where".to_owned())],
            Thorough::Not => return Err(Wrong::Unchecked("it would take too long".to_owned())),
        };
        if issues.is_empty() { Ok(value) } else { Err(Wrong::Broken(issues)) }
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

impl Wrong {
    /// As issues, where not to know is as bad as to know.
    pub(super) fn issues(self) -> Vec<Issue> {
        match self {
            Self::Broken(issues) => issues,
            Self::Unchecked(reason) => vec![whole(format!("it cannot be checked: {reason}"))],
        }
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
    use serde_json::json;

    use super::*;

    /// SB-2: the deepest check that is admitted fits the stack of a thread, with words and without; one that is deeper is
    /// not made.
    #[test]
    fn a_check_fits_the_stack() {
        for keyword in ["allOf", "anyOf", "oneOf"] {
            let steps = 45;
            let mut parts: Map<String, Value> = (0..steps)
                .map(|at| {
                    (format!("a{at}"), json!({ keyword: [{ "$ref": format!("#/$defs/a{}", at + 1) }] }))
                })
                .collect();
            parts.insert(format!("a{steps}"), json!({ "type": "array", "items": { "$ref": "#/$defs/a0" } }));
            let schema =
                Arguments::compile(&json!({ "$ref": "#/$defs/a0", "$defs": parts })).expect("usable");
            let deep = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
            let wrong = |depth: usize| "[".repeat(depth) + "1" + &"]".repeat(depth);
            assert!(schema.check(deep(5).as_bytes()).is_ok(), "{keyword}");
            assert!(matches!(schema.check(wrong(4).as_bytes()), Err(Wrong::Broken(_))), "{keyword}");
            let all: Value = serde_json::from_str(&wrong(4)).expect("JSON");
            assert!(!schema.validator.is_valid(&all), "{keyword}");
            assert!(matches!(schema.check(deep(60).as_bytes()), Err(Wrong::Unchecked(_))), "{keyword}");
        }
    }

    /// CO-5: the reader of arguments takes JSON and nothing else.
    #[test]
    fn what_is_no_json_value_is_refused() {
        let bytes = BytesDeserializer::<serde_json::Error>::new(b"x");
        let error = Strict::deserialize(bytes).err().expect("no JSON value");
        assert_eq!(error.to_string(), "invalid type: byte array, expected a JSON value");
    }
}
