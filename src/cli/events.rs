//! `colibri events`: what happened to the servers and their calls, and what happens.

use serde_json::Value;

use crate::domain::operator::Request;

use super::Session;
use super::fault::Fault;
use super::logs::print;
use super::operate::Which;
use super::out;
use super::serve::block_on;

pub(super) const EXAMPLES: &str = "\
Examples:
  colibri events                                         the last events
  colibri events --follow                                and those to come
  colibri events --topic 'provider.mcp.tool.*' --json    calls only, one JSON object a line";

/// How much of a value is shown; `--json` has the rest.
const VALUE_CHARS_MAX: usize = 80;

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Go on with events as they happen
    #[arg(short, long)]
    follow: bool,
    /// Only topics like this one, with `*` for anything
    #[arg(long, value_name = "GLOB")]
    topic: Option<String>,
    #[command(flatten)]
    which: Which,
}

pub(super) fn run(session: &Session, arguments: &Arguments) -> Result<(), Fault> {
    let Arguments { follow, topic, which } = arguments;
    let request = Request::Events { follow: *follow, topic: topic.clone() };
    block_on(async {
        let running = which.pick(session).await?;
        let each = |line| print(line, session.json, brief);
        running.stream(&request, *follow, each).await.map(drop)
    })?
}

/// One line for people.
fn brief(event: &Value) -> String {
    let text = |key: &str| event[key].as_str().unwrap_or_default();
    let payload = event["payload"].as_object().into_iter().flatten().map(|(key, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{key}={}", out::head(&value, VALUE_CHARS_MAX))
    });
    let payload: Vec<String> = payload.collect();
    let (at, topic, server, id) = (text("timestamp"), text("topic"), text("server"), text("correlation_id"));
    format!("{at}  {topic}  {server}  {}  [{id}]", payload.join(" "))
}
