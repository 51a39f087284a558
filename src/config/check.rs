//! A tree against a schema, with a finding for everything that does not fit.
//!
//! Owns: the walk and its words. It knows the part of JSON Schema that the structs of `keys` and
//! `server` give rise to, and no more. Must not know: any key by name.

use std::collections::BTreeSet;

use serde_json::Value;

use super::tree::{Field, Node, Span, Tree};
use crate::domain::nearest::nearest;

/// Something that does not fit.
#[derive(Debug)]
pub(super) struct Finding {
    /// Where in the text.
    pub span: Span,
    /// What, with the key it is about.
    pub message: String,
    /// What to do.
    pub remedy: String,
    /// How bad.
    pub weight: Weight,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weight {
    /// It must be mended.
    Wrong,
    /// An unknown key that looks like a slip of the hand for a known one.
    Slip,
    /// An unknown key that looks like no known one.
    Stranger,
}

/// Names longer than this are nobody's slip of the hand, and are cut when shown.
const NAME_CHARS_SHOWN: usize = 60;

/// Everything in `node` that does not fit `schema`. `path` names the node for people.
pub(super) fn check(schema: &Value, node: &Node, path: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    walk(schema, node, path, &mut findings);
    findings
}

fn walk(schema: &Value, node: &Node, path: &str, findings: &mut Vec<Finding>) {
    if let Some(choices) = schema["anyOf"].as_array() {
        return match choices.iter().find(|choice| admits(choice, node)) {
            Some(choice) => walk(choice, node, path, findings),
            None => findings.push(wrong(schema, node, path)),
        };
    }
    if !admits(schema, node) {
        return findings.push(wrong(schema, node, path));
    }
    match &node.tree {
        Tree::Text(text) => {
            let words = words(schema);
            if !words.is_empty() && !words.contains(&text.as_str()) {
                findings.push(unknown_word(&words, text, node.span, path));
            } else if schema["minLength"].as_u64() > Some(0) && text.is_empty() {
                findings.push(wrong(schema, node, path));
            }
        }
        Tree::Number(text) if !in_range(schema, text) => findings.push(wrong(schema, node, path)),
        Tree::List(items) => {
            let (min, max) = (schema["minItems"].as_u64(), schema["maxItems"].as_u64());
            if min.is_some_and(|min| (items.len() as u64) < min)
                || max.is_some_and(|max| (items.len() as u64) > max)
            {
                findings.push(wrong(schema, node, path));
            }
            for (number, item) in items.iter().enumerate() {
                walk(&schema["items"], item, &format!("{path}[{number}]"), findings);
            }
        }
        Tree::Map(fields) => walk_fields(schema, node.span, fields, path, findings),
        Tree::Null | Tree::Bool(_) | Tree::Number(_) => {}
    }
}

fn walk_fields(schema: &Value, span: Span, fields: &[Field], path: &str, findings: &mut Vec<Finding>) {
    let mut seen = BTreeSet::new();
    for field in fields.iter().filter(|field| field.value.tree != Tree::Null) {
        let path = join(path, &short(&field.name));
        if !seen.insert(&field.name) {
            let message = format!("`{path}` is given twice");
            findings.push(Finding {
                span: field.name_span,
                message,
                remedy: "keep one".into(),
                weight: Weight::Wrong,
            });
        }
        match (schema["properties"].get(&field.name), &schema["additionalProperties"]) {
            (Some(known), _) => walk(known, &field.value, &path, findings),
            (None, open @ Value::Object(_)) => walk(open, &field.value, &path, findings),
            (None, closed) => findings.push(unknown_key(schema, closed == &Value::Bool(false), field, &path)),
        }
    }
    for required in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !fields.iter().any(|field| field.name == required && field.value.tree != Tree::Null) {
            let message = format!("`{path}` lacks `{required}`");
            findings.push(Finding {
                span,
                message,
                remedy: format!("add `{required}`"),
                weight: Weight::Wrong,
            });
        }
    }
}

/// `a.b`, or `b` at the root.
pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// What fits, in words: `a whole number of ms from 1 to 2147483647`.
pub(super) fn expectation(schema: &Value) -> String {
    if let Some(choices) = schema["anyOf"].as_array() {
        let choices = choices.iter().filter(|choice| choice["type"] != "null").map(expectation);
        return either(&choices.collect::<Vec<_>>());
    }
    let words = words(schema);
    if !words.is_empty() {
        return either(&words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>());
    }
    match types(schema).first().copied() {
        Some("integer") => format!("a whole number{}{}", unit(schema), range(schema)),
        Some("number") => format!("a number{}", range(schema)),
        Some("boolean") => "true or false".into(),
        Some("string") if schema["minLength"].is_u64() => "a string that is not empty".into(),
        Some("string") => "a string".into(),
        Some("array") if schema["items"]["type"] == "string" => format!("a list of strings{}", range(schema)),
        Some("array") => format!("a list{}", range(schema)),
        _ => "an object".into(),
    }
}

/// The words a schema allows; none if it is not about words.
pub(super) fn words(schema: &Value) -> Vec<&str> {
    let constants =
        schema["oneOf"].as_array().into_iter().flatten().filter_map(|choice| choice["const"].as_str());
    let listed = schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
    constants.chain(listed).collect()
}

fn types(schema: &Value) -> Vec<&str> {
    match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(many) => many.iter().filter_map(Value::as_str).collect(),
        _ if !words(schema).is_empty() => vec!["string"],
        _ => Vec::new(),
    }
}

fn admits(schema: &Value, node: &Node) -> bool {
    if let Some(choices) = schema["anyOf"].as_array() {
        return choices.iter().any(|choice| admits(choice, node));
    }
    let types = types(schema);
    match &node.tree {
        Tree::Null => types.contains(&"null"),
        Tree::Bool(_) => types.contains(&"boolean"),
        Tree::Number(text) if is_whole(text) => types.contains(&"integer") || types.contains(&"number"),
        Tree::Number(_) => types.contains(&"number"),
        Tree::Text(_) => types.contains(&"string"),
        Tree::List(_) => types.contains(&"array"),
        Tree::Map(_) => types.contains(&"object"),
    }
}

fn is_whole(number: &str) -> bool {
    number.strip_prefix('-').unwrap_or(number).bytes().all(|byte| byte.is_ascii_digit())
}

/// Every limit we have is far below 2^53, so that comparing as floating point is exact enough.
fn in_range(schema: &Value, number: &str) -> bool {
    let Ok(number) = number.parse::<f64>() else { return false };
    schema["minimum"].as_f64().is_none_or(|min| min <= number)
        && schema["maximum"].as_f64().is_none_or(|max| number <= max)
}

fn unit(schema: &Value) -> String {
    schema["x-unit"].as_str().map(|unit| format!(" of {unit}")).unwrap_or_default()
}

fn range(schema: &Value) -> String {
    let bound = |name: &str, list: &str| {
        Some(&schema[name])
            .filter(|bound| !bound.is_null())
            .or(Some(&schema[list]))
            .filter(|bound| !bound.is_null())
    };
    match (bound("minimum", "minItems"), bound("maximum", "maxItems")) {
        (Some(min), Some(max)) => format!(" from {min} to {max}"),
        (Some(min), None) => format!(", {min} or more"),
        (None, Some(max)) => format!(", {max} or less"),
        (None, None) => String::new(),
    }
}

fn wrong(schema: &Value, node: &Node, path: &str) -> Finding {
    // The found value is named by its kind alone: it may be a secret in the wrong place.
    let found = match &node.tree {
        Tree::Null => "null".to_owned(),
        Tree::Bool(value) => value.to_string(),
        Tree::Number(text) if text.len() <= 20 => text.clone(),
        Tree::Number(_) => "a longer number".to_owned(),
        Tree::Text(text) if text.is_empty() => "an empty string".to_owned(),
        Tree::Text(_) => "a string".to_owned(),
        Tree::List(items) => format!("a list of {}", items.len()),
        Tree::Map(_) => "an object".to_owned(),
    };
    let expected = expectation(schema);
    let message = format!("`{path}`: expected {expected}, found {found}");
    Finding {
        span: node.span,
        message,
        remedy: "change it, or remove it for the default".into(),
        weight: Weight::Wrong,
    }
}

fn unknown_word(words: &[&str], text: &str, span: Span, path: &str) -> Finding {
    let name = path.rsplit('.').next().unwrap_or(path);
    let message = format!("unknown {name} `{}`: use {}", short(text), either(words));
    let remedy = match nearest(&short(text), words.iter().copied()) {
        Some(word) => format!("did you mean `{word}`?"),
        None => "change it, or remove it for the default".into(),
    };
    Finding { span, message, remedy, weight: Weight::Wrong }
}

fn unknown_key(schema: &Value, closed: bool, field: &Field, path: &str) -> Finding {
    let known: Vec<&str> =
        schema["properties"].as_object().into_iter().flat_map(|map| map.keys()).map(String::as_str).collect();
    let near = nearest(&short(&field.name), known.iter().copied());
    let remedy = match near {
        Some(near) => format!("did you mean `{near}`?"),
        None if closed => format!("known here: {}", known.join(", ")),
        None => "it is ignored".into(),
    };
    let weight = match near {
        _ if closed => Weight::Wrong,
        Some(_) => Weight::Slip,
        None => Weight::Stranger,
    };
    let message = format!("unknown key `{path}`");
    Finding { span: field.name_span, message, remedy, weight }
}

/// A text as it can be shown in one line.
pub(super) fn short(text: &str) -> String {
    let shown = text.chars().take(NAME_CHARS_SHOWN).map(|c| if c.is_control() { ' ' } else { c });
    let mut shown: String = shown.collect();
    if text.chars().nth(NAME_CHARS_SHOWN).is_some() {
        shown.push('…');
    }
    shown
}

/// `a, b or c`.
fn either<T: AsRef<str>>(items: &[T]) -> String {
    let items: Vec<&str> = items.iter().map(AsRef::as_ref).collect();
    match items.as_slice() {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [all @ .., last] => format!("{} or {last}", all.join(", ")),
    }
}
