//! `colibri task`: what is to be done, for people at a terminal.

use clap::builder::PossibleValuesParser;
use serde_json::{Map, Value, json};

use crate::domain::task::{Priority, Status};

use super::Session;
use super::fault::Fault;
use super::invoke::invoke;
use super::out;

pub(super) const EXAMPLES: &str = "\
Examples:
  colibri task create \"Write the report\" --priority high --label docs
  colibri task create \"Publish it\" --depends-on \"$(colibri task create \"Proofread it\")\"
  colibri task next --agent ada --claim               the best task that is free, for you alone
  colibri task update 019f… --status GATHER --version 2
  colibri task update 019f… --clear assignee
  colibri task list --status INIT --json

Status goes INIT, GATHER, ANALYZE, PLAN, APPLY, VERIFY, DONE. VERIFY may go back to GATHER; everything
open may become CANCELLED. DONE needs a reason on record: see `colibri thought add`.";

/// The name on record.
const CLIENT: &str = "colibri task";

#[derive(clap::Subcommand)]
pub(super) enum Command {
    /// Create a task
    Create(Box<Create>),
    /// List tasks, in the order of their creation
    List(Box<List>),
    /// Show one task
    Show {
        /// Its id
        id: String,
    },
    /// Change a task
    Update(Box<Update>),
    /// What can be done now, best first
    Next(Next),
}

#[derive(clap::Args)]
pub(super) struct Create {
    /// What is to be done, in one line
    title: String,
    /// The rest of it
    #[arg(short, long, value_name = "TEXT")]
    description: Option<String>,
    #[arg(short, long, value_parser = priorities(), ignore_case = true, help = "How urgent it is [default: medium]")]
    priority: Option<String>,
    /// A word to find it by; may be given often
    #[arg(short, long = "label", value_name = "WORD")]
    labels: Vec<String>,
    /// Who works on it
    #[arg(short, long, value_name = "NAME")]
    assignee: Option<String>,
    /// What it belongs to
    #[arg(long, value_name = "ID")]
    project: Option<String>,
    /// A task that must end first; may be given often
    #[arg(long, value_name = "ID")]
    depends_on: Vec<String>,
}

#[derive(clap::Args)]
pub(super) struct List {
    #[arg(short, long, value_parser = statuses(), ignore_case = true, help = "Only with this status")]
    status: Option<String>,
    #[arg(short, long, value_parser = priorities(), ignore_case = true, help = "Only of this priority")]
    priority: Option<String>,
    /// Only with this label
    #[arg(short, long, value_name = "WORD")]
    label: Option<String>,
    /// Only of this assignee
    #[arg(short, long, value_name = "NAME")]
    assignee: Option<String>,
    /// Only of this project
    #[arg(long, value_name = "ID")]
    project: Option<String>,
    /// At most this many
    #[arg(short = 'n', long, value_parser = clap::value_parser!(u32).range(1..=200))]
    limit: Option<u32>,
    /// Where the page before ended
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
    /// Everything about each task; only --json shows it
    #[arg(long)]
    full: bool,
}

#[derive(clap::Args)]
pub(super) struct Update {
    /// Its id
    id: String,
    #[arg(short, long, value_parser = statuses(), ignore_case = true, help = "The next status")]
    status: Option<String>,
    /// A new title
    #[arg(short, long)]
    title: Option<String>,
    /// A new description
    #[arg(short, long, value_name = "TEXT")]
    description: Option<String>,
    #[arg(short, long, value_parser = priorities(), ignore_case = true, help = "A new priority")]
    priority: Option<String>,
    /// A label from now on, instead of those it has; may be given often
    #[arg(short, long = "label", value_name = "WORD")]
    labels: Vec<String>,
    /// Who works on it from now on
    #[arg(short, long, value_name = "NAME")]
    assignee: Option<String>,
    /// What it belongs to from now on
    #[arg(long, value_name = "ID")]
    project: Option<String>,
    /// A task that must end first, instead of those it waits for; may be given often
    #[arg(long, value_name = "ID")]
    depends_on: Vec<String>,
    /// A field to empty; may be given often
    #[arg(long, value_name = "FIELD", value_parser = ["description", "labels", "assignee", "project", "depends-on"])]
    clear: Vec<String>,
    /// The version that was read; if the task has another, nothing is changed
    #[arg(long, value_name = "N")]
    version: Option<u64>,
}

#[derive(clap::Args)]
pub(super) struct Next {
    /// Only what this agent may take
    #[arg(short, long, value_name = "NAME", required_if_eq("claim", "true"))]
    agent: Option<String>,
    /// Only of this project
    #[arg(long, value_name = "ID")]
    project: Option<String>,
    /// Take the best one: it is the agent's alone for 30 minutes
    #[arg(long)]
    claim: bool,
    /// At most this many
    #[arg(short = 'n', long, value_parser = clap::value_parser!(u32).range(1..=50))]
    limit: Option<u32>,
}

pub(super) fn run(session: &Session, command: Command) -> Result<(), Fault> {
    match command {
        Command::Create(new) => invoke(session, CLIENT, "task_create", &create(*new), |task| {
            out::line(&out::visible(word(&task["id"])))
        }),
        Command::List(query) => invoke(session, CLIENT, "task_list", &list(*query), |page| {
            table(&page["tasks"])?;
            more(&page["next_cursor"], "colibri task list")
        }),
        Command::Show { id } => invoke(session, CLIENT, "task_get", &json!({ "id": id }), whole),
        Command::Update(change) => invoke(session, CLIENT, "task_update", &update(*change), |task| {
            let (id, status) = (out::visible(word(&task["id"])), word(&task["status"]));
            out::line(&format!("{id} is {status} now, version {}", task["version"]))
        }),
        Command::Next(ask) => {
            let Next { agent, project, claim, limit } = ask;
            let ask = said([
                ("agent_id", json!(agent)),
                ("project_id", json!(project)),
                ("limit", json!(limit)),
                ("claim", if claim { json!(true) } else { Value::Null }),
            ]);
            invoke(session, CLIENT, "task_next_actions", &ask, |next| actions(next, claim))
        }
    }
}

fn create(new: Create) -> Value {
    let Create { title, description, priority, labels, assignee, project, depends_on } = new;
    said([
        ("title", json!(title)),
        ("description", json!(description)),
        ("priority", json!(priority.map(|name| name.to_lowercase()))),
        ("labels", some(&labels)),
        ("assignee", json!(assignee)),
        ("project_id", json!(project)),
        ("depends_on", some(&depends_on)),
    ])
}

fn list(query: List) -> Value {
    let List { status, priority, label, assignee, project, limit, cursor, full } = query;
    said([
        ("status", json!(status.map(|name| name.to_uppercase()))),
        ("priority", json!(priority.map(|name| name.to_lowercase()))),
        ("label", json!(label)),
        ("assignee", json!(assignee)),
        ("project_id", json!(project)),
        ("limit", json!(limit)),
        ("cursor", json!(cursor)),
        ("fields", if full { json!("full") } else { Value::Null }),
    ])
}

fn update(change: Update) -> Value {
    let Update { id, status, title, description, priority, labels, assignee, project, depends_on, .. } =
        change;
    let mut patch = said([
        ("status", json!(status.map(|name| name.to_uppercase()))),
        ("title", json!(title)),
        ("description", json!(description)),
        ("priority", json!(priority.map(|name| name.to_lowercase()))),
        ("labels", some(&labels)),
        ("assignee", json!(assignee)),
        ("project_id", json!(project)),
        ("depends_on", some(&depends_on)),
    ]);
    for field in change.clear {
        match field.as_str() {
            "labels" => patch["labels"] = json!([]),
            "depends-on" => patch["depends_on"] = json!([]),
            "project" => patch["project_id"] = Value::Null,
            other => patch[other] = Value::Null,
        }
    }
    let mut ask = said([("version", json!(change.version))]);
    ask["id"] = json!(id);
    ask["patch"] = patch;
    ask
}

/// Only what was said: a flag that is absent is a key that is absent.
pub(super) fn said<const N: usize>(pairs: [(&str, Value); N]) -> Value {
    let said = pairs.into_iter().filter(|(_, value)| !value.is_null());
    Value::Object(said.map(|(key, value)| (key.to_owned(), value)).collect::<Map<_, _>>())
}

fn some(list: &[String]) -> Value {
    if list.is_empty() { Value::Null } else { json!(list) }
}

fn table(tasks: &Value) -> Result<(), Fault> {
    let row = |task: &Value| {
        ["id", "status", "priority", "assignee", "blocked_by", "title"].map(|key| cell(&task[key])).to_vec()
    };
    let rows: Vec<_> = tasks.as_array().into_iter().flatten().map(row).collect();
    out::table(&["TASK", "STATUS", "PRIORITY", "ASSIGNEE", "BLOCKED BY", "TITLE"], &rows)
}

fn whole(task: &Value) -> Result<(), Fault> {
    for key in FIELDS.iter().filter(|key| is_something(&task[**key])) {
        let shown = match &task[*key] {
            Value::Array(list) => list.iter().map(cell).collect::<Vec<_>>().join(", "),
            other => cell(other),
        };
        let lines: Vec<_> = shown.lines().map(out::visible).collect();
        out::line(&format!("{key:<12} {}", lines.join(MARGIN)))?;
    }
    Ok(())
}

/// A task's fields as people look for them.
const FIELDS: [&str; 17] = [
    "id",
    "title",
    "description",
    "status",
    "attempt",
    "priority",
    "labels",
    "assignee",
    "lease_until",
    "project_id",
    "depends_on",
    "blocked_by",
    "dependants",
    "thoughts",
    "version",
    "created_at",
    "updated_at",
];

/// Lines after the first begin where the first does.
const MARGIN: &str = "\n             ";

fn actions(next: &Value, claim: bool) -> Result<(), Fault> {
    match next.get("claimed") {
        Some(task) => {
            let (id, until) = (out::visible(word(&task["id"])), out::visible(word(&task["lease_until"])));
            return out::line(&format!(
                "{id} is yours until {until}: {}",
                out::visible(word(&task["title"]))
            ));
        }
        None if claim => return out::line("nothing is free now"),
        None => {}
    }
    let row = |task: &Value| ["id", "status", "title", "why"].map(|key| cell(&task[key])).to_vec();
    let rows: Vec<_> = next["actions"].as_array().into_iter().flatten().map(row).collect();
    out::table(&["TASK", "STATUS", "TITLE", "WHY"], &rows)
}

/// Where a list goes on, told to people who have seen its first page.
pub(super) fn more(cursor: &Value, command: &str) -> Result<(), Fault> {
    match cursor.as_str() {
        Some(cursor) => out::talk(&format!("more: {command} --cursor {cursor}, with the same filters")),
        None => Ok(()),
    }
}

pub(super) fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub(super) fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn is_something(value: &Value) -> bool {
    !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty())
}

fn statuses() -> PossibleValuesParser {
    Status::ALL.map(Status::name).into()
}

fn priorities() -> PossibleValuesParser {
    Priority::ALL.map(Priority::name).into()
}
