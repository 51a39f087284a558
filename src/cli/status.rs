//! `colibri status`: every colibri that runs, and how its servers are.

use serde_json::{Value, json};

use crate::domain::operator::Request;

use super::Session;
use super::fault::{Exit, Fault};
use super::operate::{SOON, all, none_runs, row, server_rows, span};
use super::out;
use super::serve::block_on;

pub(super) const EXAMPLES: &str = "\
Examples:
  colibri status           every colibri of yours that runs, with its servers
  colibri status --json    for machines";

pub(super) fn run(session: &Session) -> Result<(), Fault> {
    let statuses = block_on(async {
        let mut statuses = Vec::new();
        for one in all(session).await? {
            // One that hangs is told of; it must not hide the others.
            statuses.push(match one.ask(&Request::Status, SOON).await {
                Ok(status) => status,
                Err(fault) => json!({ "pid": one.pid, "error": fault.to_string() }),
            });
        }
        Ok::<_, Fault>(statuses)
    })??;
    if statuses.is_empty() {
        return Err(none_runs());
    }
    if session.json {
        out::json(&json!({ "colibris": statuses }))?;
    } else {
        for (place, status) in statuses.iter().enumerate() {
            if place > 0 {
                out::line("")?;
            }
            print(status)?;
        }
    }
    let hangs = statuses.iter().any(|status| status["error"].is_string());
    if hangs { Err(Fault::told(Exit::Unreachable)) } else { Ok(()) }
}

fn print(status: &Value) -> Result<(), Fault> {
    let pid = &status["pid"];
    if let Some(error) = status["error"].as_str() {
        return out::line(&format!("colibri     pid {pid}: {}", out::visible(error)));
    }
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let up = span(status["uptime_ms"].as_u64().unwrap_or_default());
    let about = format!("{}, pid {pid}, {}, up {up}", text(&status["version"]), text(&status["mode"]));
    row("colibri", &about.into())?;
    let starter = &status["started_by"];
    row("started by", &format!("{} (pid {})", text(&starter["name"]), starter["pid"]).into())?;
    row("directory", &status["directory"])?;
    row("database", &status["database"])?;
    server_rows(&status["servers"])
}
