//! What can be asked of tasks. These are the argument types of the task tools: their schemas are
//! the limits.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::{Priority, Status, Task};

/// One line: no control characters, nothing that turns the direction of text.
pub const LINE: &str = "^[^\\u0000-\\u001f\\u007f-\\u009f\\u2028-\\u202e\\u2066-\\u2069]*$";
/// Several lines: tabs and newlines are allowed.
pub const LINES: &str =
    "^[^\\u0000-\\u0008\\u000b\\u000c\\u000e-\\u001f\\u007f-\\u009f\\u202a-\\u202e\\u2066-\\u2069]*$";

/// A task to be created. It begins in INIT.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct New {
    /// What is to be done, in one line.
    #[schemars(length(min = 1, max = 256), regex(pattern = LINE))]
    pub title: String,
    /// The rest of it.
    #[serde(default)]
    #[schemars(length(max = 8000), regex(pattern = LINES))]
    pub description: Option<String>,
    /// How urgent it is; medium if absent.
    #[serde(default)]
    pub priority: Option<Priority>,
    /// Free words to find it by.
    #[serde(default)]
    pub labels: Option<Labels>,
    /// Who works on it.
    #[serde(default)]
    #[schemars(length(min = 1, max = 128), regex(pattern = LINE))]
    pub assignee: Option<String>,
    /// What it belongs to.
    #[serde(default)]
    #[schemars(length(min = 1, max = 128), regex(pattern = LINE))]
    pub project_id: Option<String>,
    /// Ids of tasks that must end first.
    #[serde(default)]
    pub depends_on: Option<Needs>,
}

/// Free words.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Labels(
    #[schemars(length(max = 64), inner(length(min = 1, max = 64), regex(pattern = LINE)))] pub Vec<String>,
);

/// Ids of tasks.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Needs(#[schemars(length(max = 256), inner(length(min = 1, max = 64)))] pub Vec<String>);

/// What to change. Absent fields stay; null empties a field that can be empty.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct Patch {
    /// A new title.
    #[serde(default)]
    #[schemars(length(min = 1, max = 256), regex(pattern = LINE))]
    pub title: Option<String>,
    /// The next status, if the state machine allows it.
    #[serde(default)]
    pub status: Option<Status>,
    /// A new description, or null.
    #[serde(default, deserialize_with = "even_null")]
    #[schemars(length(max = 8000), regex(pattern = LINES))]
    pub description: Option<Option<String>>,
    /// A new priority.
    #[serde(default)]
    pub priority: Option<Priority>,
    /// All labels from now on.
    #[serde(default)]
    pub labels: Option<Labels>,
    /// Who works on it from now on, or null.
    #[serde(default, deserialize_with = "even_null")]
    #[schemars(length(min = 1, max = 128), regex(pattern = LINE))]
    pub assignee: Option<Option<String>>,
    /// What it belongs to from now on, or null.
    #[serde(default, deserialize_with = "even_null")]
    #[schemars(length(min = 1, max = 128), regex(pattern = LINE))]
    pub project_id: Option<Option<String>>,
    /// All tasks that must end first, from now on.
    #[serde(default)]
    pub depends_on: Option<Needs>,
}

/// `null` is said, and absent is not said.
#[expect(clippy::option_option, reason = "absent, null and a value are three things to say")]
fn even_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// Which tasks to list, in the order of their creation.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
pub struct Query {
    /// Only with this status.
    #[serde(default)]
    pub status: Option<Status>,
    /// Only of this project.
    #[serde(default)]
    #[schemars(length(min = 1, max = 128))]
    pub project_id: Option<String>,
    /// Only of this assignee.
    #[serde(default)]
    #[schemars(length(min = 1, max = 128))]
    pub assignee: Option<String>,
    /// Only with this label.
    #[serde(default)]
    #[schemars(length(min = 1, max = 64))]
    pub label: Option<String>,
    /// Only of this priority.
    #[serde(default)]
    pub priority: Option<Priority>,
    /// At most this many; 50 if absent.
    #[serde(default)]
    #[schemars(range(min = 1, max = 200))]
    pub limit: Option<u32>,
    /// Where the page before ended: its `next_cursor`.
    #[serde(default)]
    #[schemars(length(min = 1, max = 32), regex(pattern = "^[0-9]+$"))]
    pub cursor: Option<String>,
    /// `brief` (the default) or everything.
    #[serde(default)]
    pub fields: Fields,
}

/// How much of each task to show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Fields {
    /// Enough to choose one.
    #[default]
    Brief,
    /// Everything.
    Full,
}

/// What can be done now.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
pub struct NextActions {
    /// Only what this agent may take: unassigned, its own, or given back.
    #[serde(default)]
    #[schemars(length(min = 1, max = 128), regex(pattern = LINE))]
    pub agent_id: Option<String>,
    /// Only of this project.
    #[serde(default)]
    #[schemars(length(min = 1, max = 128))]
    pub project_id: Option<String>,
    /// At most this many; 10 if absent.
    #[serde(default)]
    #[schemars(range(min = 1, max = 50))]
    pub limit: Option<u32>,
    /// Take the best one: it is assigned to `agent_id` for 30 minutes, and to nobody else.
    #[serde(default)]
    pub claim: bool,
}

/// A task in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum Listed {
    /// Everything.
    Full(Box<Task>),
    /// Enough to choose one.
    Brief(Brief),
}

/// A task, in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Brief {
    /// A UUID.
    pub id: String,
    /// What is to be done.
    pub title: String,
    /// Where it is.
    pub status: Status,
    /// How urgent it is.
    pub priority: Priority,
    /// Who works on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assignee: Option<String>,
    /// How many tasks must end first.
    pub blocked_by: u64,
    /// Grows with every change.
    pub version: u64,
}

impl From<Task> for Brief {
    fn from(task: Task) -> Self {
        let Task { id, title, status, priority, assignee, blocked_by, version, .. } = task;
        Self { id, title, status, priority, assignee, blocked_by, version }
    }
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Page {
    /// The tasks.
    pub tasks: Vec<Listed>,
    /// Give it as `cursor` to go on; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}
