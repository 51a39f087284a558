//! `colibri reload`: a running colibri reads its configuration again.

use serde_json::Value;

use crate::domain::operator::Request;

use super::Session;
use super::fault::Fault;
use super::operate::{LATER, Which, ask};
use super::out;

pub(super) const EXAMPLES: &str = "\
Examples:
  colibri reload               servers that are new are started, those that are gone end, the rest goes on
  colibri reload --pid 4711    of several that run, this one";

#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    which: Which,
}

pub(super) fn run(session: &Session, arguments: &Arguments) -> Result<(), Fault> {
    let answer = ask(session, &arguments.which, &Request::Reload, LATER)?;
    if session.json {
        return out::json(&answer);
    }
    let changed: Vec<&str> =
        answer["changed"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if changed.is_empty() {
        return out::line("nothing has changed");
    }
    changed.iter().try_for_each(|change| out::line(&out::visible(change)))
}
