//! What is different between two definitions, for a person who decides.
//!
//! Owns: where they differ, part by part, and how one is laid out for reading.
//! Must not know: how it is printed. Hidden characters are still in it.

use std::collections::BTreeSet;

use serde_json::Value;

use super::canonical::canonical;

/// One part that is different.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Where, as a JSON Pointer; empty for the whole.
    pub at: String,
    /// What stood there, as JSON.
    pub before: Option<String>,
    /// What stands there, as JSON.
    pub after: Option<String>,
}

/// Where two definitions differ. None if one of them means different things to different readers: then only
/// its bytes tell.
pub fn differences(before: &str, after: &str) -> Option<Vec<Difference>> {
    let mut found = Vec::new();
    compare(&meant(before)?, &meant(after)?, String::new(), &mut found);
    Some(found)
}

/// A definition over several lines; as it came, if it means different things to different readers.
pub fn readable(definition: &str) -> String {
    let laid_out = meant(definition).and_then(|value| serde_json::to_string_pretty(&value).ok());
    laid_out.unwrap_or_else(|| definition.to_owned())
}

/// The one meaning, in one spelling.
fn meant(definition: &str) -> Option<Value> {
    serde_json::from_str(&canonical(definition.as_bytes())?).ok()
}

fn compare(before: &Value, after: &Value, at: String, found: &mut Vec<Difference>) {
    match (before, after) {
        (before, after) if before == after => {}
        (Value::Object(one), Value::Object(other)) => {
            let names: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            for name in names {
                let at = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
                step(one.get(name), other.get(name), at, found);
            }
        }
        (Value::Array(one), Value::Array(other)) => {
            for place in 0..one.len().max(other.len()) {
                step(one.get(place), other.get(place), format!("{at}/{place}"), found);
            }
        }
        (before, after) => {
            found.push(Difference { at, before: Some(before.to_string()), after: Some(after.to_string()) });
        }
    }
}

fn step(before: Option<&Value>, after: Option<&Value>, at: String, found: &mut Vec<Difference>) {
    match (before, after) {
        (Some(before), Some(after)) => compare(before, after, at, found),
        (before, after) => {
            let text = |value: Option<&Value>| value.map(ToString::to_string);
            found.push(Difference { at, before: text(before), after: text(after) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(before: &str, after: &str) -> String {
        let Some(found) = differences(before, after) else { return "none".to_owned() };
        let told = |one: Difference| {
            let text = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
            format!("{} {} {}", one.at, text(one.before), text(one.after))
        };
        found.into_iter().map(told).collect::<Vec<_>>().join("; ")
    }

    /// SU-4: a person sees each part that is different, and no part that is only spelt otherwise.
    #[test]
    fn what_is_different_is_told_part_by_part() {
        for (before, after, expected) in [
            (r#"{"a":1}"#, r#"{ "a":1.0 }"#, ""),
            (r#"{"a":1,"b":[1,2]}"#, r#"{"b":[1,3,4],"c":{}}"#, "/a 1 -; /b/1 2 3; /b/2 - 4; /c - {}"),
            (r#"{"a/b~":{"x":"y"}}"#, r#"{"a/b~":{"x":null}}"#, r#"/a~1b~0/x "y" null"#),
            (r#""old""#, r#""new""#, r#" "old" "new""#),
            (r#"{"a":1,"a":2}"#, r#"{"a":2}"#, "none"),
        ] {
            assert_eq!(told(before, after), expected, "{before} {after}");
        }
    }

    #[test]
    fn what_is_ambiguous_is_shown_as_it_came() {
        assert_eq!(readable(r#"{"a":1,"a":2}"#), r#"{"a":1,"a":2}"#);
        assert_eq!(readable(r#"{"a":[]}"#), "{\n  \"a\": []\n}");
    }
}
