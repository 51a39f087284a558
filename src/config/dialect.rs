//! The spellings other clients use for the keys of a server, folded into ours.
//!
//! Owns: the table of spellings. After folding, nobody else needs to know that they exist.

use std::collections::BTreeSet;

use super::tree::{Field, Node, Span, Tree};

/// How the value under another client's key becomes the value under ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// It is the same.
    Same,
    /// `true` means `false`.
    Inverted,
    /// Seconds become milliseconds.
    Seconds,
    /// Names of variables to hand on: `["A"]` becomes `{"A": "${A}"}`.
    Names,
    /// Headers by variable: `{"H": "A"}` becomes `{"H": "${A}"}`.
    Variables,
    /// The variable of a bearer token becomes the header.
    Bearer,
}

/// Their key, our key, and how.
pub(super) const KEYS: &[(&str, &str, How)] = &[
    ("transport", "type", How::Same),
    ("transportType", "type", How::Same),
    ("cmd", "command", How::Same),
    ("envs", "env", How::Same),
    ("environment", "env", How::Same),
    ("env_vars", "env", How::Names),
    ("env_keys", "env", How::Names),
    ("env_file", "envFile", How::Same),
    ("workingDirectory", "cwd", How::Same),
    ("serverUrl", "url", How::Same),
    ("httpUrl", "url", How::Same),
    ("uri", "url", How::Same),
    ("http_headers", "headers", How::Same),
    ("env_http_headers", "headers", How::Variables),
    ("bearer_token_env_var", "headers", How::Bearer),
    ("tool_timeout_sec", "timeout", How::Seconds),
    ("startup_timeout_sec", "connectTimeout", How::Seconds),
    ("startupTimeout", "connectTimeout", How::Same),
    ("enabled", "disabled", How::Inverted),
    ("includeTools", "toolsAllowed", How::Same),
    ("enabledTools", "toolsAllowed", How::Same),
    ("enabled_tools", "toolsAllowed", How::Same),
    ("available_tools", "toolsAllowed", How::Same),
    ("excludeTools", "toolsDenied", How::Same),
    ("disabledTools", "toolsDenied", How::Same),
    ("disabled_tools", "toolsDenied", How::Same),
];

/// Their word for a transport, and ours.
pub(super) const TYPES: &[(&str, &str)] = &[
    ("streamable-http", "http"),
    ("streamableHttp", "http"),
    ("streamable_http", "http"),
    ("remote", "http"),
    ("local", "stdio"),
    ("ws", "websocket"),
];

/// The fields of a server under our names. Two spellings of one key are an error unless they add up.
pub(super) fn fold(fields: Vec<Field>) -> Result<Vec<Field>, String> {
    let mut names = BTreeSet::new();
    let mut folded: Vec<Field> = Vec::with_capacity(fields.len());
    for field in fields.into_iter().filter(|field| field.value.tree != Tree::Null) {
        let theirs = field.name.clone();
        if !names.insert(theirs.clone()) {
            return Err(format!("`{theirs}` is given twice; keep one"));
        }
        for ours in translate(field) {
            let Some(known) = folded.iter_mut().find(|known| known.name == ours.name) else {
                folded.push(ours);
                continue;
            };
            match (&mut known.value.tree, ours.value.tree) {
                (Tree::Map(all), Tree::Map(more)) => all.extend(more),
                // The rest of an array `command` stands before `args`, whichever comes first.
                (Tree::List(all), Tree::List(more)) if ours.name == "args" && theirs != "args" => {
                    all.splice(0..0, more);
                }
                (Tree::List(all), Tree::List(more)) if ours.name == "args" => all.extend(more),
                _ => return Err(format!("`{theirs}` says `{}` a second time; keep one", ours.name)),
            }
        }
    }
    Ok(folded)
}

/// One field under our name; an array `command` is two.
fn translate(mut field: Field) -> Vec<Field> {
    let mut how = How::Same;
    if let Some((_, ours, known)) = KEYS.iter().find(|(theirs, ..)| *theirs == field.name) {
        (field.name, how) = ((*ours).to_owned(), *known);
    }
    field.value.tree = convert(how, field.value.tree, field.value.span);
    match (field.name.as_str(), &mut field.value.tree) {
        ("type", Tree::Text(word)) => {
            if let Some((_, ours)) = TYPES.iter().find(|(theirs, _)| theirs == word) {
                *word = (*ours).to_owned();
            }
        }
        ("tools", Tree::List(_)) => "toolsAllowed".clone_into(&mut field.name),
        ("command", Tree::List(words)) if !words.is_empty() => {
            let arguments = words.split_off(1);
            let program = words.remove(0);
            let span = field.value.span;
            let value = Node { span, tree: Tree::List(arguments) };
            let args = Field { name: "args".to_owned(), name_span: field.name_span, value };
            return vec![Field { value: program, ..field }, args];
        }
        _ => {}
    }
    vec![field]
}

/// A value that does not have the shape `how` expects is left for the checker to complain about.
fn convert(how: How, tree: Tree, span: Span) -> Tree {
    let variable = |name: &str| Tree::Text(format!("${{{name}}}"));
    match (how, tree) {
        (How::Inverted, Tree::Bool(value)) => Tree::Bool(!value),
        (How::Seconds, Tree::Number(text)) => match text.parse::<f64>() {
            Ok(seconds) => Tree::Number(format!("{:.0}", seconds * 1000.0)),
            Err(_) => Tree::Number(text),
        },
        (How::Names, Tree::List(items)) if items.iter().all(|item| item.text().is_some()) => {
            let fields = items.into_iter().filter_map(|item| {
                let name = item.text()?.to_owned();
                let value = Node { span: item.span, tree: variable(&name) };
                Some(Field { name, name_span: item.span, value })
            });
            Tree::Map(fields.collect())
        }
        (How::Variables, Tree::Map(mut fields)) => {
            for field in &mut fields {
                if let Some(name) = field.value.text() {
                    field.value.tree = variable(name);
                }
            }
            Tree::Map(fields)
        }
        (How::Bearer, Tree::Text(name)) => {
            let value = Node { span, tree: Tree::Text(format!("Bearer ${{{name}}}")) };
            Tree::Map(vec![Field { name: "Authorization".to_owned(), name_span: span, value }])
        }
        (_, tree) => tree,
    }
}
