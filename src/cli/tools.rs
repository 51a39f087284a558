//! `colibri tools`: what is served.

use serde_json::json;

use crate::call::Calls;
use crate::domain::nearest::nearest;
use crate::domain::tool::Definition;

use super::Session;
use super::fault::{Exit, Fault};
use super::invoke::at_desk;
use super::out;

pub(super) const EXAMPLES: &str = "\
Examples:
  colibri tools                    the tools that the mode admits
  colibri tools show server_ping   one tool with its schemas
  colibri tools --json             for machines";

#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List the tools (the default)
    List,
    /// Show one tool with its schemas
    Show {
        /// Its name
        tool: String,
    },
}

pub(super) fn run(session: &Session, arguments: Arguments) -> Result<(), Fault> {
    at_desk(session, "colibri tools", async |desk| match arguments.command.unwrap_or(Command::List) {
        Command::List => list(&desk.calls.definitions(), session.json),
        Command::Show { tool } => {
            let whole = whole(&find(&desk.calls, &tool)?);
            if session.json { out::json(&whole) } else { out::pretty(&whole) }
        }
    })
}

/// The tool of that name, or a fault that names the nearest.
pub(super) fn find(calls: &Calls, name: &str) -> Result<Definition, Fault> {
    let definitions = calls.definitions();
    definitions.iter().find(|definition| &*definition.name == name).cloned().ok_or_else(|| {
        let hint = nearest(name, definitions.iter().map(|definition| &*definition.name));
        let hint =
            hint.map_or_else(|| "see `colibri tools`".to_owned(), |known| format!("did you mean `{known}`?"));
        Fault::new(Exit::Usage, format!("unknown tool `{}`; {hint}", out::visible(name)))
    })
}

fn list(definitions: &[Definition], json: bool) -> Result<(), Fault> {
    if json {
        let tools: Vec<_> = definitions.iter().map(whole).collect();
        return out::json(&json!({ "tools": tools }));
    }
    let row = |tool: &Definition| {
        let effect = if tool.annotations.read_only { "reads" } else { "changes" };
        vec![
            tool.name.to_string(),
            effect.to_owned(),
            tool.description.split(['.', ';']).next().unwrap_or("").to_owned(),
        ]
    };
    out::table(&["TOOL", "EFFECT", "WHAT IT DOES"], &definitions.iter().map(row).collect::<Vec<_>>())
}

fn whole(tool: &Definition) -> serde_json::Value {
    json!({
        "name": &*tool.name,
        "title": tool.title,
        "description": tool.description,
        "annotations": tool.annotations,
        "inputSchema": tool.input_schema,
        "outputSchema": tool.output_schema,
    })
}
