//! The tables of `docs/config.md`, made from the schema, and the test that they are up to date.
//!
//! To update the page after a change of keys: `UPDATE_DOCS=1 cargo test --lib config::reference`.

use std::fmt::Write;
use std::path::Path;

use serde_json::Value;

use super::check::{expectation, join, words};
use super::dialect;
use super::schema::{FILE, server};

#[test]
fn the_reference_page_says_what_the_schema_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/config.md");
    let page = std::fs::read_to_string(&path).expect("docs/config.md is part of the project");
    let mut fresh = page.clone();
    for (name, table) in [("keys", keys()), ("server", server_keys()), ("dialects", dialects())] {
        fresh = replace(&fresh, name, &table);
    }
    #[expect(clippy::disallowed_methods, reason = "a switch of this test, not of colibri")]
    let update = std::env::var_os("UPDATE_DOCS").is_some();
    if update {
        std::fs::write(&path, &fresh).expect("docs/config.md can be written");
    } else {
        assert!(
            page == fresh,
            "docs/config.md is out of date: UPDATE_DOCS=1 cargo test --lib config::reference"
        );
    }
}

/// A number without an upper bound would be one nobody thought about, and a key without words one
/// nobody can look up.
#[test]
fn every_key_has_words_and_every_number_has_bounds() {
    let mut rows = Vec::new();
    flatten(&FILE, "", &mut rows);
    flatten(server(), "", &mut rows);
    for (path, schema) in rows {
        assert!(schema["description"].is_string(), "{path} has no words");
        if expectation(schema).contains("number") {
            assert!(schema["minimum"].is_number() && schema["maximum"].is_number(), "{path} has no bounds");
        }
    }
}

fn replace(page: &str, name: &str, table: &str) -> String {
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- /{name} -->"));
    let (before, rest) = page.split_once(&begin).expect("the page has the opening mark");
    let (_, after) = rest.split_once(&end).expect("the page has the closing mark");
    format!("{before}{begin}{table}{end}{after}")
}

fn keys() -> String {
    let mut rows = Vec::new();
    flatten(&FILE, "", &mut rows);
    let mut table = "| key | value | default | meaning |\n|---|---|---|---|\n".to_owned();
    for (path, schema) in rows {
        row(&mut table, &path, schema);
    }
    table += "\n| key | variable | flag |\n|---|---|---|\n";
    for (key, schema) in FILE["properties"].as_object().expect("a file is an object") {
        if let (Some(env), Some(flag)) = (schema["x-env"].as_str(), schema["x-flag"].as_str()) {
            writeln!(table, "| `{key}` | `{env}` | `{flag}` |").expect("a string takes everything");
        }
    }
    table
}

fn server_keys() -> String {
    let mut rows = Vec::new();
    flatten(server(), "", &mut rows);
    let mut table = "| key | value | default | meaning |\n|---|---|---|---|\n".to_owned();
    for (path, schema) in rows {
        row(&mut table, &path, schema);
    }
    table
}

fn dialects() -> String {
    let mut table = "| here | elsewhere |\n|---|---|\n".to_owned();
    let mut ours: Vec<&str> = dialect::KEYS.iter().map(|(_, ours, _)| *ours).collect();
    ours.dedup();
    for ours in ours {
        let theirs =
            dialect::KEYS.iter().filter(|(_, key, _)| *key == ours).map(|(theirs, _, how)| match how {
                dialect::How::Same => format!("`{theirs}`"),
                dialect::How::Inverted => format!("`{theirs}` (the opposite)"),
                dialect::How::Seconds => format!("`{theirs}` (seconds)"),
                dialect::How::Names => format!("`{theirs}` (names of variables to hand on)"),
                dialect::How::Variables => format!("`{theirs}` (each from a variable)"),
                dialect::How::Bearer => format!("`{theirs}` (the variable of a bearer token)"),
            });
        let theirs = theirs.collect::<Vec<_>>().join(", ");
        writeln!(table, "| `{ours}` | {theirs} |").expect("a string takes everything");
    }
    for (theirs, ours) in dialect::TYPES {
        writeln!(table, "| `\"type\": \"{ours}\"` | `\"type\": \"{theirs}\"` |")
            .expect("a string takes everything");
    }
    table
}

/// Every key with its schema, groups before what is in them. Servers have a table of their own.
fn flatten<'a>(schema: &'a Value, path: &str, rows: &mut Vec<(String, &'a Value)>) {
    for (name, key) in schema["properties"].as_object().into_iter().flatten() {
        let path = join(path, name);
        rows.push((path.clone(), key));
        let choices = key["anyOf"].as_array().into_iter().flatten();
        for object in choices.chain([key]) {
            flatten(object, &path, rows);
            if name != "mcpServers" {
                flatten(&object["additionalProperties"], &format!("{path}.<name>"), rows);
            }
        }
    }
}

fn row(table: &mut String, path: &str, schema: &Value) {
    let default = match &schema["default"] {
        Value::Null | Value::Object(_) => String::new(),
        value => format!("`{value}`"),
    };
    let mut meaning = schema["description"].as_str().unwrap_or_default().replace('\n', " ");
    let choices = schema["anyOf"].as_array().into_iter().flatten();
    for words_here in choices.chain([schema]).filter(|schema| !words(schema).is_empty()) {
        for choice in words_here["oneOf"].as_array().into_iter().flatten() {
            let (word, what) = (&choice["const"], choice["description"].as_str().unwrap_or_default());
            write!(meaning, "<br>`{word}`: {}", what.replace('\n', " ")).expect("a string takes everything");
        }
    }
    let value = expectation(schema).replace('|', "\\|");
    writeln!(table, "| `{path}` | {value} | {default} | {meaning} |").expect("a string takes everything");
}
