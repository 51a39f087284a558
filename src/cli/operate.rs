//! What every command needs that speaks to a running colibri, and what is done to one of its servers.
//!
//! Owns: which of several colibris is meant, and the words of the answers for people.

mod accept;
mod line;
mod show;

use std::time::Duration;

use serde_json::{Value, json};

use crate::domain::operator::Request;

use super::Session;
use super::fault::{Exit, Fault};
use super::out;
use super::serve::block_on;

pub(super) use accept::{Accepted, accept};
pub(super) use line::{Line, Running, all};
pub(super) use show::{row, server_rows, span};

/// How long an answer may take that waits for no server.
pub(super) const SOON: Duration = Duration::from_secs(5);

/// How long one may take that waits for a server: its own limits end it before.
pub(super) const LATER: Duration = Duration::from_mins(2);

/// Which colibri is meant.
#[derive(clap::Args)]
pub(super) struct Which {
    /// The process to speak to, if several run; see `colibri status`
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
}

/// A server of it.
#[derive(clap::Args)]
pub(super) struct Named {
    /// The server's name
    server: String,
    #[command(flatten)]
    which: Which,
}

impl Which {
    /// The colibri that is meant: the only one, or the one that is named.
    pub(super) async fn pick(&self, session: &Session) -> Result<Running, Fault> {
        let mut running = all(session).await?;
        if let Some(pid) = self.pid {
            let place = running.iter().position(|one| one.pid == pid);
            let none = || {
                Fault::new(
                    Exit::Usage,
                    format!("no colibri has the process number {pid}; {}", seen(&running)),
                )
            };
            return Ok(running.swap_remove(place.ok_or_else(none)?));
        }
        match running.len() {
            1 => Ok(running.remove(0)),
            0 => Err(none_runs()),
            _ => Err(Fault::new(
                Exit::Usage,
                format!("several colibris run; name one with --pid: {}", seen(&running)),
            )),
        }
    }
}

/// There is nobody to ask.
pub(super) fn none_runs() -> Fault {
    let what =
        "no colibri of yours is running: an MCP client starts one with `colibri serve`, and so can you";
    Fault::new(Exit::Unreachable, what)
}

fn seen(running: &[Running]) -> String {
    let pids: Vec<String> = running.iter().map(|one| one.pid.to_string()).collect();
    format!(
        "{} (`colibri status` tells them apart)",
        if pids.is_empty() { "none".to_owned() } else { pids.join(", ") }
    )
}

/// One question to the colibri that is meant.
pub(super) fn ask(
    session: &Session,
    which: &Which,
    request: &Request,
    patience: Duration,
) -> Result<Value, Fault> {
    block_on(async { which.pick(session).await?.ask(request, patience).await })?
}

/// `colibri server list`.
pub(super) fn list(session: &Session, which: &Which) -> Result<(), Fault> {
    let status = ask(session, which, &Request::Status, SOON)?;
    if session.json {
        return out::json(&json!({ "servers": status["servers"] }));
    }
    server_rows(&status["servers"])
}

/// `colibri server show`.
pub(super) fn show(session: &Session, named: &Named) -> Result<(), Fault> {
    let request = Request::Show { server: named.server.clone() };
    let shown = ask(session, &named.which, &request, SOON)?;
    if session.json { out::json(&shown) } else { show::closely(&shown) }
}

/// `colibri server restart`.
pub(super) fn restart(session: &Session, named: &Named) -> Result<(), Fault> {
    let request = Request::Restart { server: named.server.clone() };
    let report = ask(session, &named.which, &request, LATER)?;
    let is_up = matches!(report["state"].as_str(), Some("ready" | "probing"));
    if session.json {
        out::json(&report)?;
        return if is_up { Ok(()) } else { Err(Fault::told(Exit::Unreachable)) };
    }
    let told = told(&report);
    if is_up { out::line(&told) } else { Err(Fault::new(Exit::Unreachable, told)) }
}

/// `colibri server disable`.
pub(super) fn disable(session: &Session, named: &Named) -> Result<(), Fault> {
    let request = Request::Disable { server: named.server.clone() };
    let report = ask(session, &named.which, &request, SOON)?;
    if session.json {
        return out::json(&report);
    }
    out::line(&told(&report))?;
    out::talk(
        "until `colibri server enable`, or until this colibri ends; `\"disabled\": true` in its entry holds for good",
    )
}

/// `colibri server enable`.
pub(super) fn enable(session: &Session, named: &Named) -> Result<(), Fault> {
    let request = Request::Enable { server: named.server.clone() };
    let report = ask(session, &named.which, &request, LATER)?;
    if session.json { out::json(&report) } else { out::line(&told(&report)) }
}

/// `colibri server test`.
pub(super) fn test(session: &Session, named: &Named) -> Result<(), Fault> {
    let request = Request::Test { server: named.server.clone() };
    let tested = ask(session, &named.which, &request, LATER)?;
    let name = out::visible(tested["name"].as_str().unwrap_or(&named.server));
    let is_well = tested["well"] == true;
    if session.json {
        out::json(&tested)?;
        return if is_well { Ok(()) } else { Err(Fault::told(Exit::Unreachable)) };
    }
    if !is_well {
        let why = tested["error"].as_str().unwrap_or("no reason is known");
        return Err(Fault::new(Exit::Unreachable, format!("`{name}` is not well: {why}")));
    }
    let connected =
        tested["connect_ms"].as_u64().map(|ms| format!(", connected in {ms} ms")).unwrap_or_default();
    let latency = tested["latency_us"].as_f64().unwrap_or_default() / 1000.0;
    out::line(&format!(
        "`{name}` is well: revision {}, {} tools, everything listed in {} ms, latency {latency:.1} ms{connected}",
        tested["revision"].as_str().unwrap_or("?"),
        tested["tools"],
        tested["list_ms"],
    ))
}

/// One server in one line.
fn told(report: &Value) -> String {
    let text = |key: &str| out::visible(report[key].as_str().unwrap_or("?"));
    let trouble =
        report["trouble"].as_str().map(|why| format!(": {}", out::visible(why))).unwrap_or_default();
    match report["state"].as_str() {
        Some("ready") => format!("`{}` is ready with {} tools", text("name"), report["tools"]),
        _ => format!("`{}` is {}{trouble}", text("name"), text("state")),
    }
}
