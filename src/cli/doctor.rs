//! `colibri doctor`: what is well, what is not, and what to do about it.

use std::fs::File;
use std::io::Write;

use serde::Serialize;
use serde_json::json;
use uuid::Uuid;

use crate::app::policy_for;
use crate::config::{Loaded, Server, State, from_process};
use crate::sandbox::policy::Network;
use crate::sandbox::{Policy, control_groups, examine};
use crate::store::{Paths, Reader, StoreError};

use super::Session;
use super::audit::verify_with_progress;
use super::fault::{Exit, Fault};
use super::out;
use super::serve::block_on;

pub(super) const EXAMPLES: &str = "\
Examples:
  colibri doctor           check everything; exit code 8 if something is wrong
  colibri doctor --json    for machines";

/// One thing that was looked at.
#[derive(Serialize)]
struct Check {
    name: &'static str,
    well: bool,
    finding: String,
}

impl Check {
    fn well(name: &'static str, finding: impl Into<String>) -> Self {
        Self { name, well: true, finding: finding.into() }
    }

    fn ill(name: &'static str, finding: impl Into<String>) -> Self {
        Self { name, well: false, finding: finding.into() }
    }
}

pub(super) fn run(session: &Session) -> Result<(), Fault> {
    let mut checks = Vec::new();
    match from_process(&session.flags) {
        Err(error) => checks.push(Check::ill("configuration", error.to_string())),
        Ok(loaded) => {
            checks.extend(configuration(&loaded));
            checks.extend(confinement(&loaded));
            let paths = Paths::beside(&loaded.config.database);
            checks.push(folder(&paths));
            checks.extend(ledger(&paths));
        }
    }
    checks.extend(sandbox()?);
    let all_well = checks.iter().all(|check| check.well);
    if session.json {
        out::json(&json!({ "well": all_well, "checks": checks }))?;
    } else {
        for Check { name, well, finding } in &checks {
            out::lines(&format!("{} {name:<14} {finding}", if *well { "ok " } else { "BAD" }))?;
        }
    }
    if all_well { Ok(()) } else { Err(Fault::told(Exit::DoctorFoundProblems)) }
}

/// Every layer of the sandbox, by a canary that was sent through it. A machine that lacks a layer which
/// only `strict` needs is well all the same.
fn sandbox() -> Result<Vec<Check>, Fault> {
    let usual = Policy::default().needs();
    let (mut holding, mut missing) = (Vec::new(), Vec::new());
    for (layer, verdict) in block_on(examine())? {
        let (name, remedy) = (layer.name(), layer.remedy());
        match verdict {
            Ok(()) => holding.push(name),
            Err(why) if usual.contains(&layer) => {
                missing.push(Check::ill("sandbox", format!("{name} is missing ({why}): {remedy}")));
            }
            Err(why) => missing.push(Check::well(
                "sandbox",
                format!("{name} is missing ({why}), which `strict` needs: {remedy}"),
            )),
        }
    }
    missing.push(Check::well("sandbox", format!("limits: watched; {}", control_groups())));
    if !holding.is_empty() {
        missing.insert(0, Check::well("sandbox", format!("holding: {}", holding.join(", "))));
    }
    Ok(missing)
}

fn configuration(loaded: &Loaded) -> Vec<Check> {
    let found: Vec<String> = loaded
        .files
        .iter()
        .filter(|looked| looked.found)
        .map(|looked| looked.path.display().to_string())
        .collect();
    let from = if found.is_empty() { "no file, all defaults".to_owned() } else { found.join(", ") };
    let mut checks = vec![Check::well("configuration", from)];
    checks.extend(loaded.warnings.iter().map(|warning| Check::ill("configuration", warning.line())));
    checks.extend(loaded.config.servers.iter().filter_map(|server| {
        match &server.state {
            // Not to start what nobody looked at is as it should be; a file that changed has its warning above.
            State::Ready(_) => server
                .distrust()
                .map(|why| Check::well("server", format!("{} is not started: {why}", server.name))),
            State::Disabled { reason, .. } => {
                Some(Check::ill("server", format!("{} is disabled: {reason}", server.name)))
            }
        }
    }));
    checks
}

/// What each server's sandbox asks for and cannot have, and what a list of hosts means: who does not use the
/// proxy reaches nobody, and nothing says so in the server's own words.
fn confinement(loaded: &Loaded) -> Vec<Check> {
    let of = |server: &Server| {
        let State::Ready(configured) = &server.state else { return None };
        match policy_for(server, configured, loaded) {
            Err(why) => Some(Check::ill("server", format!("{} will not be started: {why}", server.name))),
            // Who goes to it is colibri's own program, which ignores nothing.
            Ok(_) if configured.command.is_none() => None,
            Ok(policy) => match policy.network() {
                Network::Hosts(hosts) => {
                    let names: Vec<String> = hosts.allowed.iter().map(ToString::to_string).collect();
                    Some(Check::well(
                        "server",
                        format!(
                            "{} reaches {} alone, by HTTP_PROXY and HTTPS_PROXY; a program that ignores them reaches \
                             nobody",
                            server.name,
                            names.join(", ")
                        ),
                    ))
                }
                Network::None | Network::Full => None,
            },
        }
    };
    loaded.config.servers.iter().filter_map(of).collect()
}

/// Whether the ledger's folder can be written: by writing.
fn folder(paths: &Paths) -> Check {
    let Some(folder) = paths.database.parent().filter(|folder| folder.exists()) else {
        return Check::well("data folder", "not there yet; the first start makes it");
    };
    // A name that nobody knows in advance, and no file that is there already: a link could lead anywhere.
    let trial = folder.join(format!(".colibri-doctor-{}", Uuid::now_v7().simple()));
    let written = File::create_new(&trial)
        .and_then(|mut file| file.write_all(b"can this be written?"))
        .and_then(|()| std::fs::remove_file(&trial));
    match written {
        Ok(()) => Check::well("data folder", folder.display().to_string()),
        Err(error) => Check::ill("data folder", format!("{} cannot be written: {error}", folder.display())),
    }
}

fn ledger(paths: &Paths) -> Vec<Check> {
    let reader = match Reader::open(paths) {
        Ok(reader) => reader,
        Err(StoreError::NotFound(_)) => {
            return vec![Check::well("ledger", "not there yet; the first start makes it")];
        }
        Err(error) => return vec![Check::ill("ledger", error.to_string())],
    };
    let mut checks = vec![match reader.integrity_check() {
        Ok(findings) if findings == ["ok"] => Check::well("database", "SQLite's integrity check passes"),
        Ok(findings) => Check::ill("database", format!("{}; restore a backup", findings.join("; "))),
        Err(error) => Check::ill("database", error.to_string()),
    }];
    checks.push(match verify_with_progress(&reader) {
        Ok(verdict) if verdict.valid => Check::well(
            "ledger",
            format!("{} records, all intact; {} signed", verdict.record_count, verdict.signed),
        ),
        Ok(verdict) => {
            let first = verdict.broken.first().map(|broken| format!("at {}: {}", broken.index, broken.what));
            let count = verdict.broken_count;
            Check::ill(
                "ledger",
                format!(
                    "broken in {count} places, first {}; see `colibri audit verify`",
                    first.unwrap_or_default()
                ),
            )
        }
        Err(fault) => Check::ill("ledger", fault.to_string()),
    });
    checks.push(match crate::store::signing_key_is_usable(paths) {
        Ok(()) => Check::well("signing key", paths.key.display().to_string()),
        Err(error) => Check::ill("signing key", error.to_string()),
    });
    checks
}
