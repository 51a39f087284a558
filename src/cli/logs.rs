//! `colibri logs`: what a server said, and what was said of it.

use serde_json::{Value, json};

use crate::domain::operator::Request;

use super::Session;
use super::fault::Fault;
use super::operate::{Line, Which};
use super::out;
use super::serve::block_on;

pub(super) const EXAMPLES: &str = "\
Examples:
  colibri logs github           the last lines: its stderr, and colibri's own about it
  colibri logs github -f        and those to come
  colibri logs github --json    one JSON object a line";

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The server's name
    server: String,
    /// Go on with lines as they come
    #[arg(short, long)]
    follow: bool,
    #[command(flatten)]
    which: Which,
}

pub(super) fn run(session: &Session, arguments: &Arguments) -> Result<(), Fault> {
    let Arguments { server, follow, which } = arguments;
    let request = Request::Logs { server: server.clone(), follow: *follow };
    block_on(async {
        let running = which.pick(session).await?;
        let each = |line| print(line, session.json, brief);
        running.stream(&request, *follow, each).await.map(drop)
    })?
}

/// Prints one line of a stream; tells whether somebody still reads.
pub(super) fn print(line: Line, json: bool, brief: impl Fn(&Value) -> String) -> Result<bool, Fault> {
    match line {
        Line::One(one) if json => out::json_if_read(&one),
        Line::One(one) => out::line_if_read(&out::visible(&brief(&one))),
        Line::Missed(count) if json => out::json_if_read(&json!({ "missed": count })),
        Line::Missed(count) => {
            out::talk(&format!("({count} are missing here: they came too fast)")).map(|()| true)
        }
    }
}

fn brief(line: &Value) -> String {
    let text = |key: &str| line[key].as_str().unwrap_or_default();
    format!("{}  {:<7}  {}", text("at"), text("from"), text("text"))
}
