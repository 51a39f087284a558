//! The rules of the frontmatter, field by field.

use serde_json::{Map, Value};

use super::{Finding, Skill};
use crate::domain::log::{steers, visible};

const NAME_CHARS_MAX: usize = 64;
const DESCRIPTION_CHARS_MAX: usize = 1024;
const COMPATIBILITY_CHARS_MAX: usize = 500;

/// Beyond this it is no name, whatever one tolerates.
const NAME_CHARS_TOLERATED: usize = 256;

/// In lists; more say nothing more.
const CAPABILITIES_MAX: usize = 32;
const WORD_CHARS_MAX: usize = 64;

/// The fields of the Agent Skills format.
const KNOWN: [&str; 6] = ["name", "description", "license", "compatibility", "metadata", "allowed-tools"];

const RESERVED: &str = "io.modelcontextprotocol/";

type Fields = Map<String, Value>;

/// Everything that is wrong with the fields, wherever the file lies.
pub(super) fn check(fields: &Fields, yaml: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let line = |key: &str| line_of(yaml, key);
    findings.extend(name(fields.get("name"), line("name")));
    findings.extend(description(fields.get("description"), line("description")));
    findings.extend(text_within(fields, "compatibility", COMPATIBILITY_CHARS_MAX, line("compatibility")));
    for key in ["license", "entrypoint"] {
        findings.extend(text_within(fields, key, usize::MAX, line(key)));
    }
    findings.extend(metadata(fields.get("metadata"), line("metadata")));
    if fields.get("allowed-tools").is_some_and(|value| !value.is_string()) {
        let message = "`allowed-tools` is not one text: write the names with spaces between them";
        findings.push(Finding::strict(line("allowed-tools"), message));
    }
    if let Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) = fields.get("version") {
        findings.push(Finding::warning(line("version"), "`version` is neither a text nor a number"));
    }
    if fields.get("capabilities").is_some_and(|value| words(value).is_none()) {
        let message = "`capabilities` is not a list of words, and is ignored";
        findings.push(Finding::warning(line("capabilities"), message));
    }
    for key in fields.keys().filter(|key| !KNOWN.contains(&key.as_str())) {
        let key = visible(&head(key));
        let message = format!("`{key}` is no field of the Agent Skills format: put it under `metadata`");
        findings.push(Finding::strict(line(&key), message));
    }
    findings
}

/// Whether the skill lies where its name says.
pub(super) fn check_folder(fields: &Fields, yaml: &str, folder: &str) -> Option<Finding> {
    let name = fields.get("name")?.as_str().filter(|name| *name != folder)?;
    let message = format!(
        "the name `{}` differs from its folder `{}`: make them equal",
        visible(&head(name)),
        visible(&head(folder))
    );
    Some(Finding::warning(line_of(yaml, "name"), message))
}

/// The skill that sound fields make.
pub(super) fn skill(frontmatter: Fields, yaml: &str, is_sound: bool) -> Option<Skill> {
    let name = frontmatter.get("name")?.as_str()?.to_owned();
    let description = frontmatter.get("description")?.as_str()?.trim();
    let description = description.chars().take(DESCRIPTION_CHARS_MAX).collect();
    let inside = |key: &str| frontmatter.get("metadata").and_then(|metadata| metadata.get(key));
    let version = match frontmatter.get("version").or_else(|| inside("version")) {
        Some(Value::String(text)) => Some(cut(text)),
        // As it was written: 1.10 is not 1.1.
        Some(Value::Number(number)) => Some(written(yaml, "version").unwrap_or_else(|| number.to_string())),
        _ => None,
    };
    let capabilities = frontmatter.get("capabilities").or_else(|| inside("capabilities"));
    let capabilities = capabilities.and_then(words).unwrap_or_default();
    Some(Skill { name, description, version, capabilities, frontmatter, is_sound })
}

fn name(value: Option<&Value>, line: Option<u32>) -> Option<Finding> {
    let text = match value {
        None | Some(Value::Null) => {
            return Some(Finding::error(line, "`name` is missing: give it the name of its folder"));
        }
        Some(Value::String(text)) => text,
        Some(_) => return Some(Finding::error(line, "`name` is not a text: put it in quotes")),
    };
    let (length, quoted) = (text.chars().count(), visible(&head(text)));
    if text.trim().is_empty() {
        return Some(Finding::error(line, "`name` is empty: give it the name of its folder"));
    }
    if text.chars().any(steers) {
        return Some(Finding::error(line, format!("the name `{quoted}` has characters that cannot be seen")));
    }
    if length > NAME_CHARS_TOLERATED {
        return Some(Finding::error(
            line,
            format!("`name` has {length} characters: at most {NAME_CHARS_MAX}"),
        ));
    }
    if length > NAME_CHARS_MAX {
        let message = format!("`name` has {length} characters: at most {NAME_CHARS_MAX}");
        return Some(Finding::warning(line, message));
    }
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let what = if !text.chars().all(is_allowed) {
        "may only have a-z, 0-9 and hyphens"
    } else if text.starts_with('-') || text.ends_with('-') {
        "may not begin or end with a hyphen"
    } else if text.contains("--") {
        "may not have two hyphens in a row"
    } else {
        return None;
    };
    Some(Finding::warning(line, format!("the name `{quoted}` {what}")))
}

fn description(value: Option<&Value>, line: Option<u32>) -> Option<Finding> {
    let text = match value {
        None | Some(Value::Null) => "",
        Some(Value::String(text)) => text.trim(),
        Some(_) => return Some(Finding::error(line, "`description` is not a text: put it in quotes")),
    };
    if text.is_empty() {
        let message = "`description` is missing: say what the skill does and when to use it";
        return Some(Finding::error(line, message));
    }
    let length = text.chars().count();
    (length > DESCRIPTION_CHARS_MAX).then(|| {
        let message = format!("`description` has {length} characters: at most {DESCRIPTION_CHARS_MAX}");
        Finding::warning(line, message)
    })
}

fn text_within(fields: &Fields, key: &str, chars_max: usize, line: Option<u32>) -> Option<Finding> {
    let message = match fields.get(key)? {
        Value::String(text) if text.trim().is_empty() => format!("`{key}` is empty: fill it or leave it out"),
        Value::String(text) if text.chars().count() <= chars_max => return None,
        Value::String(text) => {
            format!("`{key}` has {} characters: at most {chars_max}", text.chars().count())
        }
        _ => format!("`{key}` is not a text: put it in quotes"),
    };
    Some(Finding::warning(line, message))
}

fn metadata(value: Option<&Value>, line: Option<u32>) -> Option<Finding> {
    let Value::Object(map) = value? else {
        return Some(Finding::warning(line, "`metadata` is not a list of `key: value` lines"));
    };
    let message = map.iter().find_map(|(key, value)| {
        let quoted = visible(&head(key));
        if key.starts_with(RESERVED) {
            Some(format!("`metadata.{quoted}`: keys that begin with `{RESERVED}` are reserved"))
        } else if value.is_string() {
            None
        } else {
            Some(format!("`metadata.{quoted}` is not a text: put it in quotes"))
        }
    });
    message.map(|message| Finding::warning(line, message))
}

/// A list of words, or words in one text.
fn words(value: &Value) -> Option<Vec<String>> {
    let all: Vec<&str> = match value {
        Value::Array(items) => items.iter().map(Value::as_str).collect::<Option<_>>()?,
        Value::String(text) => text.split([' ', ',']).filter(|word| !word.is_empty()).collect(),
        _ => return None,
    };
    Some(all.into_iter().take(CAPABILITIES_MAX).map(cut).collect())
}

fn cut(text: &str) -> String {
    text.chars().take(WORD_CHARS_MAX).collect()
}

/// Enough of a text to recognise it.
fn head(text: &str) -> String {
    let mut head: String = text.chars().take(WORD_CHARS_MAX + 1).collect();
    if head.chars().count() > WORD_CHARS_MAX {
        head.pop();
        head.push('…');
    }
    head
}

/// The line of the file on which a top-level field begins; the frontmatter begins on line 2.
fn line_of(yaml: &str, key: &str) -> Option<u32> {
    (2..).zip(yaml.lines()).find(|(_, line)| after_key(line, key).is_some()).map(|(number, _)| number)
}

/// The value of a top-level field, as it stands there.
fn written(yaml: &str, key: &str) -> Option<String> {
    let value = yaml.lines().find_map(|line| after_key(line, key))?;
    let value = value.split(" #").next().unwrap_or_default().trim();
    value.parse::<f64>().is_ok().then(|| cut(value))
}

fn after_key<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.strip_prefix(key)?.trim_start().strip_prefix(':')
}
