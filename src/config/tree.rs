//! A configuration file as a tree whose every node knows its place.
//!
//! Owns: reading JSONC, lines and columns, and the excerpt that shows a place without showing a
//! secret. Must not know: what any key means.

use std::ops::Range;
use std::path::{Path, PathBuf};

use jsonc_parser::ast;
use jsonc_parser::common::Ranged;
use jsonc_parser::{CollectOptions, ParseOptions};
use serde_json::{Number, Value};

use super::problem::{Origin, Problem};
use super::schema::is_key;

/// JSON with comments and trailing commas, as editors know it; none of the looser habits.
pub(super) const SYNTAX: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_trailing_commas: true,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// How much of a long line an excerpt shows on either side of the place, in characters.
const EXCERPT_CHARS_EACH_SIDE: usize = 50;

/// A longer line was not written by a person, and is not read by one.
const EXCERPT_LINE_BYTES_MAX: usize = 4096;

/// Bytes of the text, from and up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub start: usize,
    pub end: usize,
}

/// A value and its place.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub span: Span,
    pub tree: Tree,
}

/// What a value is. Numbers keep their text until somebody knows what they must be.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Tree {
    Null,
    Bool(bool),
    Number(String),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Field>),
}

/// One `"name": value` of an object, in file order, repeated names included.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Field {
    pub name: String,
    pub name_span: Span,
    pub value: Node,
}

impl Node {
    /// The value of a field, or an element of a list by its number.
    pub(super) fn get(&self, name: &str) -> Option<&Node> {
        match &self.tree {
            Tree::Map(fields) => fields.iter().find(|field| field.name == name).map(|field| &field.value),
            Tree::List(items) => items.get(name.parse::<usize>().ok()?),
            _ => None,
        }
    }

    pub(super) fn text(&self) -> Option<&str> {
        match &self.tree {
            Tree::Text(text) => Some(text),
            _ => None,
        }
    }

    /// As plain JSON, without the fields that are `null`: they say the same as absent ones.
    pub(super) fn to_json(&self) -> Value {
        match &self.tree {
            Tree::Null => Value::Null,
            Tree::Bool(value) => Value::Bool(*value),
            Tree::Number(text) => text.parse::<Number>().map_or(Value::Null, Value::Number),
            Tree::Text(text) => Value::String(text.clone()),
            Tree::List(items) => items.iter().map(Self::to_json).collect(),
            Tree::Map(fields) => {
                let set = fields.iter().filter(|field| field.value.tree != Tree::Null);
                Value::Object(set.map(|field| (field.name.clone(), field.value.to_json())).collect())
            }
        }
    }
}

/// The text of a file, for saying where something is.
pub(super) struct Source {
    path: PathBuf,
    text: String,
    line_starts: Vec<usize>,
}

impl Source {
    pub(super) fn new(path: PathBuf, text: String) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        let line_starts = std::iter::once(0).chain(ends).collect();
        Self { path, text, line_starts }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The whole file as one object; an empty file is an empty object.
    pub(super) fn parse(&self) -> Result<Vec<Field>, Problem> {
        // A byte order mark is an editor's habit and no part of the text; blanks keep the places.
        let text = match self.text.strip_prefix('\u{feff}') {
            Some(rest) => format!("   {rest}"),
            None => self.text.clone(),
        };
        let parsed = jsonc_parser::parse_to_ast(&text, &CollectOptions::default(), &SYNTAX);
        let problem = match parsed.map(|parsed| parsed.value.as_ref().map(node)) {
            Ok(None) => return Ok(Vec::new()),
            Ok(Some(Node { tree: Tree::Map(fields), .. })) => return Ok(fields),
            Ok(Some(other)) => self.problem(other.span, None, "expected an object", "wrap the file in `{ }`"),
            Err(error) => {
                let span = self.within(error.range().start, error.range().end);
                let what = error.kind().to_string().to_lowercase();
                let remedy = "the file is JSON in which comments and trailing commas are allowed";
                self.problem(span, None, format!("not valid JSON: {what}"), remedy)
            }
        };
        Err(problem)
    }

    /// A problem at a place, with its excerpt. `plain` is what the excerpt may show unmasked: a key or a
    /// single value, for a group may hold anything.
    pub(super) fn problem(
        &self,
        span: Span,
        plain: Option<Span>,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Problem {
        let excerpt = self.excerpt(span, plain);
        Problem { excerpt, ..Problem::new(self.place(span), message, remedy) }
    }

    /// `colibri.json:3:11`.
    pub(super) fn place(&self, span: Span) -> String {
        let (line, before) = self.line_and_before(span.start);
        format!("{}:{line}:{}", self.path.display(), before.chars().count() + 1)
    }

    pub(super) fn origin(&self, span: Span) -> Origin {
        Origin::File { path: self.path.clone(), line: self.line_and_before(span.start).0 }
    }

    /// The line a byte is in, and the text of that line before it.
    fn line_and_before(&self, at: usize) -> (usize, &str) {
        let line = self.line_starts.partition_point(|start| *start <= at).max(1);
        (line, self.text.get(self.line_starts[line - 1]..at).unwrap_or_default())
    }

    fn excerpt(&self, span: Span, plain: Option<Span>) -> Option<String> {
        let (line, before) = self.line_and_before(span.start);
        let start = self.line_starts[line - 1];
        let text = self.text[start..].lines().next().unwrap_or_default();
        if text.len() > EXCERPT_LINE_BYTES_MAX {
            return None;
        }
        let plain = plain.filter(|plain| !self.text[plain.start..].starts_with(['{', '[']));
        let plain = plain.map(|plain| plain.start.saturating_sub(start)..plain.end.saturating_sub(start));
        let before = before.chars().count();
        let length = self.text.get(span.start..span.end).map_or(1, |text| text.chars().count().max(1));
        let from = before.saturating_sub(EXCERPT_CHARS_EACH_SIDE);
        let shown = masked(text, &plain.unwrap_or(0..0));
        let window = shown.chars().map(|c| if c.is_control() { ' ' } else { c });
        let window: String = window.skip(from).take(3 * EXCERPT_CHARS_EACH_SIDE).collect();
        let carets = length.min(window.chars().count().saturating_sub(before - from)).max(1);
        let (number, margin) = (line.to_string(), " ".repeat(line.to_string().len()));
        let (gap, carets) = (" ".repeat(before - from), "^".repeat(carets));
        Some(format!("  {number} | {window}\n  {margin} | {gap}{carets}"))
    }

    /// A span that lies in the text and on character boundaries, whatever the parser said.
    fn within(&self, start: usize, end: usize) -> Span {
        let start = self.text.floor_char_boundary(start);
        Span { start, end: self.text.ceil_char_boundary(end).max(start) }
    }
}

fn node(value: &ast::Value<'_>) -> Node {
    let tree = match value {
        ast::Value::NullKeyword(_) => Tree::Null,
        ast::Value::BooleanLit(literal) => Tree::Bool(literal.value),
        ast::Value::NumberLit(literal) => Tree::Number(literal.value.to_owned()),
        ast::Value::StringLit(literal) => Tree::Text(literal.value.clone().into_owned()),
        ast::Value::Array(array) => Tree::List(array.elements.iter().map(node).collect()),
        ast::Value::Object(object) => Tree::Map(object.properties.iter().map(field).collect()),
    };
    Node { span: span(value), tree }
}

fn field(property: &ast::ObjectProp<'_>) -> Field {
    let (name, name_span) = match &property.name {
        ast::ObjectPropName::String(name) => (name.value.clone().into_owned(), span(name)),
        ast::ObjectPropName::Word(name) => (name.value.to_owned(), span(name)),
    };
    Field { name, name_span, value: node(&property.value) }
}

fn span(ranged: &impl Ranged) -> Span {
    Span { start: ranged.start(), end: ranged.end() }
}

/// A line in which only keys that colibri knows, numbers, `true`, `false`, `null` and punctuation can
/// be read, and what is `plain`. A line with a slip in it may have its quotes in the wrong places, so
/// bare words are masked too, and what merely stands where a key would is not taken for one.
fn masked(line: &str, plain: &Range<usize>) -> String {
    let mut shown = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' => string_length(rest),
            _ if is_word(first) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            _ => first.len_utf8(),
        };
        let (token, after) = rest.split_at(length);
        let is_harmless = match first {
            '"' => is_key(token.trim_matches('"')),
            _ if !token.contains(char::is_alphanumeric) => true,
            _ => matches!(token, "true" | "false" | "null") || token.parse::<f64>().is_ok(),
        };
        if is_harmless || plain.contains(&(line.len() - rest.len())) {
            shown.push_str(token);
        } else {
            shown.extend(token.chars().map(|c| if c == '"' { '"' } else { '*' }));
        }
        rest = after;
    }
    shown
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '+' | '/' | '=')
}

/// Up to and including the closing quote, or to the end of the line.
fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '"' if !escaped => return at + 1,
            _ => escaped = c == '\\' && !escaped,
        }
    }
    text.len()
}
