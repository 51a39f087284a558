//! What it takes to hold a value against a schema that somebody else wrote.
//!
//! Owns: the count of that work before any of it is done, and its bounds. A schema of a hundred lines can ask for more
//! steps than there are atoms (`$ref`s that double, recursion that branches), so the steps are counted without being
//! taken: each part of the schema once, for each depth of a value.
//! Must not know: how schemas are compiled, or whose they are.

mod graph;
mod pattern;

use serde_json::Value;

use graph::{Graph, Node, size};

/// Parts of one schema, and values that it lists. The largest that people write have some thousands.
pub const PARTS_MAX: usize = 10_000;

/// Parts that apply to one and the same value inside each other: `allOf` in `$ref` in `anyOf` …
pub const NESTED_MAX: usize = 100;

/// What all regular expressions of one schema may come to, in characters that are matched one after the other.
pub const PATTERNS_MAX: u64 = 8_192;

/// What all of them may be as they are written, in bytes.
const PATTERN_BYTES_MAX: usize = 32 << 10;

/// Classes such as `\w` in them: each makes their compiler read the whole expression again.
const CLASSES_MAX: usize = 128;

/// Values of any kind in a schema, whether anything refers to them or not: all of them are read.
const VALUES_MAX: u64 = 50_000;

/// Parts that ask what others have left over (`unevaluatedProperties`). They are compiled inside each other, and
/// every way to another part anew.
const LEFT_OVER_MAX: usize = 16;

/// Depth of a value. Frames that are deeper are refused before they come here.
const DEPTH_MAX: usize = 128;

/// Checks inside each other, each a few frames of one thread's stack.
const STACK_MAX: u64 = 500;

/// Steps that are taken at once, where the call is served: some milliseconds at most, if each of them leaves a complaint.
const CHEAP_MAX: u64 = 1 << 18;

/// Steps that are taken at all, of some 50 ns each: some seconds of a thread that nobody else waits for.
const STEPS_MAX: u64 = 1 << 26;

/// Checks that may each leave a complaint behind, which takes microseconds and is kept until the last one is found. Beyond
/// it only yes or no is found out.
const COMPLAINTS_MAX: u64 = 1 << 17;

/// Why a schema is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Excess {
    /// It is too large.
    #[error("it has more than {PARTS_MAX} parts, or they refer to each other more often than that")]
    Parts,
    /// Its parts are nested too deep, or without end.
    #[error("more than {NESTED_MAX} of its parts apply to the same value inside each other")]
    Nested,
    /// Its regular expressions are too large.
    #[error("its regular expressions are too large")]
    Patterns,
    /// It asks too often, or of too many, what was left over.
    #[error(
        "`unevaluatedProperties` or `unevaluatedItems` stands more than {LEFT_OVER_MAX} times, or over too many parts"
    )]
    LeftOver,
    /// Even the smallest value would take too long.
    #[error("its parts refer to each other in so many ways that no value could be checked against it")]
    Steps,
}

/// How thoroughly a value can be held against a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thorough {
    /// With everything that is wrong.
    Words,
    /// Whether it fits.
    YesOrNo,
    /// Not at all.
    Not,
}

/// The work that a schema asks for, by the depth of the place in a value.
#[derive(Clone, Debug)]
pub struct Effort {
    levels: Vec<Level>,
    /// Of the level that asks for most.
    most: Level,
    is_light: bool,
}

/// What one place of a value at some depth costs at most.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    steps: u64,
    stack: u64,
}

impl Effort {
    /// Counts it; linear in the size of the schema.
    pub fn of(schema: &Value) -> Result<Self, Excess> {
        if size(schema) > VALUES_MAX {
            return Err(Excess::Parts);
        }
        let graph = Graph::of(schema)?;
        let order = graph.inside_out()?;
        let mut now = places(&graph.nodes, &order, |_, node| Level { steps: node.weight, stack: 1 });
        let first = now.iter().map(|level| level.steps).collect::<Vec<_>>();
        let left_over = || graph.nodes.iter().zip(&first).filter(|(node, _)| node.is_left_over);
        if left_over().count() > LEFT_OVER_MAX || left_over().any(|(_, steps)| *steps > PARTS_MAX as u64) {
            return Err(Excess::LeftOver);
        }
        let mut levels = vec![now[0]];
        // A schema that does not refer to itself has nothing to say from some depth on.
        while levels.len() <= DEPTH_MAX && now.iter().any(|level| level.steps > 0) {
            let keys =
                places(&graph.nodes, &order, |at, node| below(&node.keys, &now, first[at], levels.len()));
            let items =
                places(&graph.nodes, &order, |at, node| below(&node.items, &now, first[at], levels.len()));
            // A value is an object or a list.
            now = keys.into_iter().zip(items).map(|(key, item)| key.or(item)).collect();
            levels.push(now[0]);
        }
        let most = levels.iter().fold(Level::default(), |most, level| most.or(*level));
        if levels[0].steps > STEPS_MAX {
            return Err(Excess::Steps);
        }
        let is_light = left_over().next().is_none() && !graph.has_long_patterns;
        Ok(Self { levels, most, is_light })
    }

    /// Whether it is compiled in no time, and not far into itself.
    pub fn is_light(&self) -> bool {
        self.is_light
    }

    /// Whether any value of so many bytes is checked in no time, with all that is wrong with it.
    pub fn is_cheap(&self, bytes: usize) -> bool {
        let steps = self.most.steps.saturating_mul(self.most.stack).saturating_mul(bytes as u64);
        steps <= CHEAP_MAX && self.most.stack <= STACK_MAX
    }

    /// How thoroughly this value can be checked.
    pub fn thorough(&self, value: &Value) -> Thorough {
        let mut sum = Sum::default();
        self.add(value, 0, 0, &mut sum);
        if sum.steps > STEPS_MAX || sum.stack > STACK_MAX {
            Thorough::Not
        } else if sum.checks.saturating_mul(sum.stack) > COMPLAINTS_MAX {
            Thorough::YesOrNo
        } else {
            Thorough::Words
        }
    }

    fn add(&self, value: &Value, key_bytes: usize, depth: usize, sum: &mut Sum) {
        let level = self.levels.get(depth).copied().unwrap_or_default();
        let text_bytes = value.as_str().map_or(0, str::len);
        let size = 1 + (key_bytes + text_bytes) as u64;
        sum.steps = sum.steps.saturating_add(level.steps.saturating_mul(size));
        sum.checks = sum.checks.saturating_add(level.steps);
        sum.stack = sum.stack.max(level.stack);
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.add(item, 0, depth + 1, sum)),
            Value::Object(members) => {
                members.iter().for_each(|(key, value)| self.add(value, key.len(), depth + 1, sum));
            }
            _ => {}
        }
    }
}

#[derive(Default)]
struct Sum {
    /// By the bytes that each looks at.
    steps: u64,
    checks: u64,
    stack: u64,
}

impl Level {
    /// The dearer of both, in each way.
    fn or(self, other: Self) -> Self {
        Self { steps: self.steps.max(other.steps), stack: self.stack.max(other.stack) }
    }

    /// Both.
    fn and(self, other: Self) -> Self {
        Self { steps: self.steps.saturating_add(other.steps), stack: self.stack.max(other.stack) }
    }
}

/// For each part of the schema, with all parts that apply to the same value.
fn places(nodes: &[Node], order: &[usize], own: impl Fn(usize, &Node) -> Level) -> Vec<Level> {
    let mut levels = vec![Level::default(); nodes.len()];
    for &at in order {
        let node = &nodes[at];
        let mut level = own(at, node);
        for &inner in &node.here {
            let inner = levels[inner];
            // What is left over can only be known when the others are asked once more.
            level = level.and(inner);
            if node.is_left_over {
                level = level.and(inner);
            }
            level.stack = level.stack.max(inner.stack + u64::from(inner.stack > 0));
        }
        levels[at] = level;
    }
    levels
}

/// What a part asks of one member of a value: one of these, and all of those.
fn below(children: &graph::Children, now: &[Level], first: u64, depth: usize) -> Level {
    let one = children.one_of.iter().fold(Level::default(), |most, child| most.or(now[*child]));
    let mut level = children.all_of.iter().fold(one, |sum, child| sum.and(now[*child]));
    if children.is_left_over && depth == 1 {
        level.steps = level.steps.saturating_add(first);
    }
    level.stack += u64::from(level.stack > 0);
    level
}

#[cfg(test)]
mod tests;
