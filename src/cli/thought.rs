//! `colibri thought`: why something was done, put on record by a person.

use std::io::Read;

use clap::builder::PossibleValuesParser;
use serde_json::{Value, json};

use crate::config::os_user;
use crate::domain::thought::Kind;

use super::Session;
use super::fault::{Exit, Fault};
use super::invoke::invoke;
use super::out;
use super::task::{cell, more, said, word};

pub(super) const EXAMPLES: &str = "\
Examples:
  colibri thought add --task 019f… --type decision \"SQLite: one file, no server\"
  git log -1 --format=%B | colibri thought add --task 019f… --type reflection -
  colibri thought list --task 019f…
  colibri audit prove --record 019f…                  a file that proves one thought offline";

/// The name on record.
const CLIENT: &str = "colibri thought";

/// Four bytes for each of the characters that a thought may have, and one to see that there are more.
const CONTENT_BYTES_MAX: u64 = 4 * 32_000 + 1;

/// How much of a thought a table shows.
const SHOWN_CHARS_MAX: usize = 72;

#[derive(clap::Subcommand)]
pub(super) enum Command {
    /// Put a reason on record
    Add(Add),
    /// List reasons, in the order they were recorded
    List(List),
}

#[derive(clap::Args)]
pub(super) struct Add {
    /// The reason, in full; `-` reads it from stdin
    text: String,
    /// The task it is about
    #[arg(long, value_name = "ID")]
    task: String,
    #[arg(long = "type", value_name = "TYPE", value_parser = kinds(), ignore_case = true, help = "What kind of reason it is")]
    kind: String,
    /// Who thinks it [default: the user]
    #[arg(short, long, value_name = "NAME")]
    agent: Option<String>,
    /// The session it belongs to
    #[arg(long, value_name = "ID")]
    session: Option<String>,
}

#[derive(clap::Args)]
pub(super) struct List {
    /// Only of this task
    #[arg(long, value_name = "ID")]
    task: Option<String>,
    /// Only of this session
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Only of this agent
    #[arg(short, long, value_name = "NAME")]
    agent: Option<String>,
    #[arg(long = "type", value_name = "TYPE", value_parser = kinds(), ignore_case = true, help = "Only of this type")]
    kind: Option<String>,
    /// At most this many
    #[arg(short = 'n', long, value_parser = clap::value_parser!(u32).range(1..=200))]
    limit: Option<u32>,
    /// Where the page before ended
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
}

pub(super) fn run(session: &Session, command: Command) -> Result<(), Fault> {
    match command {
        Command::Add(new) => {
            let Add { text, task, kind, agent, session: of } = new;
            let content = if text == "-" { from_stdin()? } else { text };
            let ask = said([
                ("type", json!(kind.to_lowercase())),
                ("task_id", json!(task)),
                ("agent_id", json!(agent.unwrap_or_else(user))),
                ("content", json!(content)),
                ("session_id", json!(of)),
            ]);
            invoke(session, CLIENT, "thought_record", &ask, |thought| {
                out::line(&out::visible(word(&thought["id"])))
            })
        }
        Command::List(query) => {
            let List { task, session: of, agent, kind, limit, cursor } = query;
            let ask = said([
                ("task_id", json!(task)),
                ("session_id", json!(of)),
                ("agent_id", json!(agent)),
                ("type", json!(kind.map(|name| name.to_lowercase()))),
                ("limit", json!(limit)),
                ("cursor", json!(cursor)),
            ]);
            invoke(session, CLIENT, "thought_record_list", &ask, |page| {
                table(&page["records"])?;
                more(&page["next_cursor"], "colibri thought list")
            })
        }
    }
}

pub(super) fn table(records: &Value) -> Result<(), Fault> {
    let row = |thought: &Value| {
        let mut row =
            ["index", "timestamp", "type", "agent_id", "id"].map(|key| cell(&thought[key])).to_vec();
        row.push(thought["content"].as_str().map_or_else(|| "(erased)".to_owned(), in_short));
        row
    };
    let rows: Vec<_> = records.as_array().into_iter().flatten().map(row).collect();
    out::table(&["RECORD", "AT", "TYPE", "AGENT", "THOUGHT", "TEXT"], &rows)
}

/// The first line, or as much of it as a table can bear.
fn in_short(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let shown: String = line.chars().take(SHOWN_CHARS_MAX).collect();
    if shown.len() < text.trim_end().len() { shown + "…" } else { shown }
}

fn from_stdin() -> Result<String, Fault> {
    let mut text = String::new();
    let read = std::io::stdin().take(CONTENT_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|error| Fault::new(Exit::Usage, format!("cannot read the reason from stdin: {error}")))?;
    Ok(text.trim_end_matches('\n').to_owned())
}

/// The user's name, without the number that belongs to the record of the call.
fn user() -> String {
    let user = os_user();
    user.split('(').next().unwrap_or(&user).to_owned()
}

fn kinds() -> PossibleValuesParser {
    Kind::ALL.map(Kind::name).into()
}
