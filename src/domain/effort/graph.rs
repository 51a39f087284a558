//! A schema as the parts that are really checked, and which of them ask which.
//!
//! Owns: which keyword applies a schema to the same value, to its members or to its items; where a `$ref` leads.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::pattern::{classes, length};
use super::{CLASSES_MAX, Excess, NESTED_MAX, PARTS_MAX, PATTERN_BYTES_MAX, PATTERNS_MAX};

/// Parts that somebody else wrote down for all: the schema of schemas. It is known, and not looked into.
const KNOWN: [&str; 2] = ["http://json-schema.org/", "https://json-schema.org/"];

/// What one place costs when it is held against the schema of schemas.
const KNOWN_WEIGHT: u64 = 256;

/// Documents in which it is looked for where references lead, all of them together.
const LOOKS_MAX: usize = 100_000;

/// Regular expressions that are compiled in no time.
const PATTERN_BYTES_LIGHT: usize = 2 << 10;
const CLASSES_LIGHT: usize = 32;

/// Parts with an address of their own; every other is looked for in each of them.
const IDS_MAX: usize = 500;

/// All parts of a schema; the first is the whole.
pub(super) struct Graph {
    pub(super) nodes: Vec<Node>,
    /// Whether its regular expressions take their time to compile.
    pub(super) has_long_patterns: bool,
}

/// One part.
#[derive(Default)]
pub(super) struct Node {
    /// Its own work at one place, without that of other parts.
    pub(super) weight: u64,
    /// Parts that apply to the same value.
    pub(super) here: Vec<usize>,
    pub(super) keys: Children,
    pub(super) items: Children,
    /// Whether it asks what the others have left over.
    pub(super) is_left_over: bool,
}

/// Parts that apply to what is inside a value.
#[derive(Default)]
pub(super) struct Children {
    /// Only one of these, whichever member it is.
    pub(super) one_of: Vec<usize>,
    /// All of these.
    pub(super) all_of: Vec<usize>,
    pub(super) is_left_over: bool,
}

impl Graph {
    pub(super) fn of(schema: &Value) -> Result<Self, Excess> {
        let mut names = Names::default();
        names.collect(schema);
        if names.with_id.len() > IDS_MAX {
            return Err(Excess::Parts);
        }
        let mut reader = Reader {
            root: schema,
            names,
            known: HashMap::new(),
            waiting: Vec::new(),
            references: 0,
            looked_at: 0,
            values: 0,
            patterns: 0,
            pattern_bytes: 0,
            classes: 0,
        };
        reader.place(schema)?;
        let mut nodes: Vec<Node> = Vec::new();
        let mut extra = Vec::new();
        while let Some(part) = reader.waiting.get(nodes.len()).copied() {
            nodes.push(reader.read(part, &mut extra)?);
        }
        for (at, weight) in extra {
            nodes[at].weight = nodes[at].weight.saturating_add(weight);
        }
        let has_long_patterns = reader.pattern_bytes > PATTERN_BYTES_LIGHT || reader.classes > CLASSES_LIGHT;
        Ok(Self { nodes, has_long_patterns })
    }

    /// The parts in an order in which each comes behind those that it asks about the same value.
    pub(super) fn inside_out(&self) -> Result<Vec<usize>, Excess> {
        let mut order = Order { nodes: &self.nodes, heights: vec![None; self.nodes.len()], done: Vec::new() };
        for at in 0..self.nodes.len() {
            order.visit(at, 0)?;
        }
        Ok(order.done)
    }
}

struct Order<'a> {
    nodes: &'a [Node],
    /// How many are inside each other, of those that are done.
    heights: Vec<Option<usize>>,
    done: Vec<usize>,
}

impl Order<'_> {
    /// One that is inside itself is found by its depth, too.
    fn visit(&mut self, at: usize, outside: usize) -> Result<usize, Excess> {
        if let Some(height) = self.heights[at] {
            return Ok(height);
        }
        let mut height = 0;
        for &inner in &self.nodes[at].here {
            if outside >= NESTED_MAX {
                return Err(Excess::Nested);
            }
            height = height.max(1 + self.visit(inner, outside + 1)?);
        }
        if height > NESTED_MAX {
            return Err(Excess::Nested);
        }
        self.heights[at] = Some(height);
        self.done.push(at);
        Ok(height)
    }
}

struct Reader<'a> {
    root: &'a Value,
    names: Names<'a>,
    /// By its address in memory: a part that many refer to is one part.
    known: HashMap<*const Value, usize>,
    /// In the order of their places; those behind the last node are still to be read.
    waiting: Vec<&'a Value>,
    references: usize,
    /// Documents in which it was looked for where a reference leads.
    looked_at: usize,
    /// Those that are listed: compiling them takes its time, too.
    values: u64,
    patterns: u64,
    pattern_bytes: usize,
    classes: usize,
}

impl<'a> Reader<'a> {
    fn place(&mut self, part: &'a Value) -> Result<usize, Excess> {
        let next = self.waiting.len();
        let at = *self.known.entry(std::ptr::from_ref(part)).or_insert(next);
        if at == next {
            if next == PARTS_MAX {
                return Err(Excess::Parts);
            }
            self.waiting.push(part);
        }
        Ok(at)
    }

    fn read(&mut self, part: &'a Value, extra: &mut Vec<(usize, u64)>) -> Result<Node, Excess> {
        let mut node = Node { weight: 1, ..Node::default() };
        let Some(members) = part.as_object() else { return Ok(node) };
        for (keyword, value) in members {
            match keyword.as_str() {
                "allOf" | "anyOf" | "oneOf" => self.each(list(value), &mut node.here)?,
                "not" | "if" | "then" | "else" => self.each([value], &mut node.here)?,
                "dependentSchemas" | "dependencies" => self.each(values(value), &mut node.here)?,
                "$ref" | "$dynamicRef" | "$recursiveRef" => self.follow(value, &mut node)?,
                "properties" => {
                    node.weight += values(value).count() as u64;
                    self.each(values(value), &mut node.keys.one_of)?;
                }
                "additionalProperties" => self.each([value], &mut node.keys.one_of)?,
                "propertyNames" => self.each([value], &mut node.keys.all_of)?,
                "patternProperties" => {
                    for (pattern, part) in value.as_object().into_iter().flatten() {
                        let (weight, at) = (self.pattern(pattern)?, self.place(part)?);
                        extra.push((at, weight));
                        node.keys.all_of.push(at);
                    }
                }
                "prefixItems" | "additionalItems" | "items" => {
                    let parts = if value.is_array() { list(value) } else { std::slice::from_ref(value) };
                    self.each(parts, &mut node.items.one_of)?;
                }
                "contains" => self.each([value], &mut node.items.all_of)?,
                "unevaluatedProperties" => {
                    (node.is_left_over, node.keys.is_left_over) = (true, true);
                    self.each([value], &mut node.keys.all_of)?;
                }
                "unevaluatedItems" => {
                    (node.is_left_over, node.items.is_left_over) = (true, true);
                    self.each([value], &mut node.items.all_of)?;
                }
                "pattern" => node.weight += value.as_str().map_or(Ok(0), |text| self.pattern(text))?,
                "enum" | "const" | "required" | "dependentRequired" => {
                    let size = size(value);
                    node.weight += size;
                    self.values += size;
                    if self.values > PARTS_MAX as u64 {
                        return Err(Excess::Parts);
                    }
                }
                _ => {}
            }
        }
        Ok(node)
    }

    fn each(
        &mut self,
        parts: impl IntoIterator<Item = &'a Value>,
        into: &mut Vec<usize>,
    ) -> Result<(), Excess> {
        for part in parts {
            into.push(self.place(part)?);
        }
        Ok(())
    }

    /// Wherever it may lead: which of several it is depends on addresses, and more is counted rather than less. One
    /// that leads nowhere is not this file's trouble, since nothing is compiled from it.
    fn follow(&mut self, reference: &Value, node: &mut Node) -> Result<(), Excess> {
        let Some(reference) = reference.as_str() else { return Ok(()) };
        let (base, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let fragment = decoded(fragment);
        let documents = self.names.documents(base);
        // Looking is work too: many names, each asked by many, would be a product.
        self.looked_at += documents.len();
        if self.looked_at > LOOKS_MAX {
            return Err(Excess::Parts);
        }
        if documents.is_empty() && KNOWN.iter().any(|known| base.starts_with(known)) {
            node.weight += KNOWN_WEIGHT;
        }
        let root = base.is_empty() || matches!(last_segment(base).as_str(), "" | "." | "..");
        let documents = documents.iter().copied().chain(root.then_some(self.root));
        let targets: Vec<&'a Value> = if fragment.is_empty() || fragment.starts_with('/') {
            documents.filter_map(|document| document.pointer(&fragment)).collect()
        } else {
            self.names.anchors.get(&*fragment).cloned().unwrap_or_default()
        };
        self.references += targets.len();
        if self.references > PARTS_MAX {
            return Err(Excess::Parts);
        }
        self.each(targets, &mut node.here)
    }

    /// What a regular expression adds to one step. They are matched in one pass, so that only their length counts.
    fn pattern(&mut self, pattern: &str) -> Result<u64, Excess> {
        let length = length(pattern);
        self.patterns = self.patterns.saturating_add(length);
        self.pattern_bytes += pattern.len();
        self.classes += classes(pattern);
        let is_bounded = self.patterns <= PATTERNS_MAX
            && self.pattern_bytes <= PATTERN_BYTES_MAX
            && self.classes <= CLASSES_MAX;
        if is_bounded { Ok(1 + length / 8) } else { Err(Excess::Patterns) }
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn values(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_object().into_iter().flat_map(Map::values)
}

/// How many values there are in one, itself included.
pub(super) fn size(value: &Value) -> u64 {
    match value {
        Value::Array(items) => items.iter().map(size).sum::<u64>() + 1,
        Value::Object(members) => members.values().map(size).sum::<u64>() + 1,
        _ => 1,
    }
}

/// Parts that others can refer to by a name.
#[derive(Default)]
struct Names<'a> {
    anchors: HashMap<&'a str, Vec<&'a Value>>,
    /// By the last segment of their `$id`: relative ones need no more, and whole ones end in it.
    ids: HashMap<String, Vec<&'a Value>>,
    with_id: Vec<&'a Value>,
}

impl<'a> Names<'a> {
    fn collect(&mut self, value: &'a Value) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.collect(item)),
            Value::Object(members) => {
                for anchor in ["$anchor", "$dynamicAnchor"] {
                    if let Some(name) = members.get(anchor).and_then(Value::as_str) {
                        self.anchors.entry(name).or_default().push(value);
                    }
                }
                if let Some(id) = members.get("$id").and_then(Value::as_str) {
                    self.ids.entry(last_segment(id)).or_default().push(value);
                    self.with_id.push(value);
                }
                members.values().for_each(|member| self.collect(member));
            }
            _ => {}
        }
    }

    /// The documents in this one that an address may mean; without one, whichever the reference stands in.
    fn documents(&self, address: &str) -> &[&'a Value] {
        if address.is_empty() {
            return &self.with_id;
        }
        self.ids.get(&last_segment(address)).map_or(&[], Vec::as_slice)
    }
}

fn last_segment(address: &str) -> String {
    let path = address.split('#').next().unwrap_or_default();
    decoded(path.rsplit('/').next().unwrap_or_default())
}

/// Without the escapes of URIs.
fn decoded(fragment: &str) -> String {
    let mut bytes = Vec::with_capacity(fragment.len());
    let mut rest = fragment.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        let escaped = (byte == b'%').then(|| behind.get(..2)).flatten();
        let escaped = escaped.and_then(|digits| std::str::from_utf8(digits).ok());
        match escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(escaped) => (bytes.push(escaped), rest = &behind[2..]).1,
            None => (bytes.push(byte), rest = behind).1,
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
