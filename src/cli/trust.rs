//! `colibri trust`: lets files of a working directory start programs, once somebody has seen which.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::config::{
    ConfigError, Loaded, Preview, PreviewedServer, Problem, TrustRecord, from_process, preview,
};
use crate::fleet::web::shown;

use super::Session;
use super::consent::{agreed, can_be_asked};
use super::fault::{Exit, Fault};
use super::out;

pub(super) const EXAMPLES: &str = "\
Examples:
  colibri trust                         look at the files found here, and decide
  colibri trust ../other/.mcp.json      one file
  colibri trust --yes colibri.json      without being asked, for scripts
  colibri trust --list                  what is trusted, and what changed since
  colibri trust --revoke colibri.json   take it back

A file is trusted as it is now, at its place: once it changes it starts nothing until it is trusted again.
What lies in an envFile, and the programs themselves, are not part of that. A file that is named with --config
needs no trust.";

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The files [default: colibri.json and .mcp.json of the working directory]
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    /// List what is trusted
    #[arg(long, conflicts_with_all = ["files", "yes", "revoke"])]
    list: bool,
    /// Trust this file no longer
    #[arg(long, value_name = "FILE", conflicts_with_all = ["files", "yes"])]
    revoke: Option<PathBuf>,
}

pub(super) fn run(session: &Session, arguments: &Arguments) -> Result<(), Fault> {
    if session.flags.config.is_some() {
        return Err(Fault::new(Exit::Usage, "a file that is named with --config needs no trust"));
    }
    // What is wrong with a file is told when that file is looked at, so that one can be taken back.
    let record = crate::config::trust_record(&session.flags)?;
    if arguments.list {
        return list(session, &record);
    }
    if let Some(path) = &arguments.revoke {
        return revoke(session, &record, path);
    }
    let files = if arguments.files.is_empty() {
        found(&from_process(&session.flags)?)
    } else {
        arguments.files.clone()
    };
    if files.is_empty() {
        return if session.json {
            out::json(&json!({ "files": [] }))
        } else {
            out::line("there is nothing here that waits for trust")
        };
    }
    let mut done = Vec::new();
    for path in &files {
        done.push(decide(session, &record, path, arguments.yes)?);
    }
    if session.json { out::json(&json!({ "files": done })) } else { Ok(()) }
}

/// The files of the working directory that nobody trusts.
fn found(loaded: &Loaded) -> Vec<PathBuf> {
    let waiting = loaded.files.iter().filter(|looked| looked.found && !looked.trusted);
    waiting.map(|looked| looked.path.clone()).collect()
}

/// Shows one file, asks about it, and puts the answer on record.
fn decide(session: &Session, record: &TrustRecord, path: &Path, yes: bool) -> Result<Value, Fault> {
    let seen = preview(path)?;
    if !session.json {
        show(path, &seen)?;
    }
    if !yes && (session.json || !can_be_asked()) {
        if session.json {
            out::json(&json!({ "files": [described(path, &seen, false)] }))?;
        }
        let what =
            "nothing was trusted: nobody can be asked here; if you have seen what it starts, add --yes";
        return Err(Fault::new(Exit::Usage, what));
    }
    let is_trusted = yes || agreed("Trust this file, as it is now?")?;
    if is_trusted {
        record.add(seen.file.clone())?;
    }
    if !session.json {
        let path = out::visible(&path.display().to_string());
        out::line(&if is_trusted { format!("trusted {path}") } else { format!("{path} is not trusted") })?;
    }
    Ok(described(path, &seen, is_trusted))
}

fn show(path: &Path, seen: &Preview) -> Result<(), Fault> {
    let said = |text: &str| out::line(&out::visible(text));
    said(&path.display().to_string())?;
    if seen.servers.is_empty() {
        said("  starts nothing")?;
    }
    for server in &seen.servers {
        said(&format!("  {}", server.name))?;
        for line in lines(server) {
            said(&format!("    {line}"))?;
        }
    }
    for (key, value) in &seen.settings {
        said(&format!("  also sets {key} to {value}"))?;
    }
    Ok(())
}

/// What there is to know about a server before it is started.
fn lines(server: &PreviewedServer) -> Vec<String> {
    let mut lines = Vec::new();
    if !server.command.is_empty() {
        let words: Vec<String> = server.command.iter().map(|word| quoted(word)).collect();
        lines.push(format!("starts   {}", words.join(" ")));
    }
    lines.extend(server.url.as_ref().map(|url| format!("reaches  {}", shown(url))));
    lines.extend(server.cwd.as_ref().map(|folder| format!("in       {folder}")));
    if !server.env.is_empty() {
        lines.push(format!("with     {} (values are not shown)", server.env.join(", ")));
    }
    lines.extend(server.env_file.as_ref().map(|path| format!("with     the variables of {path}")));
    if !server.headers.is_empty() {
        lines.push(format!("sends    {} (values are not shown)", server.headers.join(", ")));
    }
    for (name, places) in &server.variables {
        lines.push(format!("fills in your {name}: {}", places.join(", ")));
    }
    if !server.loaders.is_empty() {
        let names = server.loaders.join(", ");
        lines.push(format!("CAREFUL  {names}: what runs in the program can depend on this"));
    }
    lines.extend(server.oauth.as_ref().map(|oauth| format!("signs in {oauth}")));
    lines.extend(server.sandbox.as_ref().map(|sandbox| format!("sandbox  {sandbox}")));
    if server.disabled {
        lines.push("turned off, for now".to_owned());
    }
    lines.extend(server.wrong.as_ref().map(|wrong| format!("cannot be started as it is: {wrong}")));
    lines
}

/// A word in quotes where it would otherwise look like several, or like none.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| !c.is_whitespace() && !matches!(c, '\'' | '"' | '\\');
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

fn described(path: &Path, seen: &Preview, is_trusted: bool) -> Value {
    let servers = seen.servers.iter().map(|server| {
        let mut told = json!(server);
        told["url"] = json!(server.url.as_deref().map(shown));
        told
    });
    json!({
        "path": path, "canonicalPath": seen.file.path, "sha256": seen.file.digest.to_string(), "trusted": is_trusted,
        "servers": servers.collect::<Vec<_>>(), "settings": seen.settings.iter().cloned().collect::<serde_json::Map<_, _>>(),
    })
}

fn list(session: &Session, record: &TrustRecord) -> Result<(), Fault> {
    let files = record.files().unwrap_or_else(|problem| {
        let _ = out::talk(&format!("colibri: warning: {}", out::visible(&problem.line())));
        Vec::new()
    });
    if session.json {
        let files = files.iter().map(|file| {
            json!({ "path": file.path, "sha256": file.digest.to_string(), "standing": file.standing() })
        });
        return out::json(&json!({ "files": files.collect::<Vec<_>>() }));
    }
    if files.is_empty() {
        return out::line("no file is trusted");
    }
    let rows = files.iter().map(|file| {
        let standing = json!(file.standing()).as_str().unwrap_or_default().to_owned();
        vec![standing, file.digest.to_string()[..12].to_owned(), file.path.display().to_string()]
    });
    out::table(&["STANDING", "SHA-256", "FILE"], &rows.collect::<Vec<_>>())
}

fn revoke(session: &Session, record: &TrustRecord, path: &Path) -> Result<(), Fault> {
    // A file that is gone can be taken back all the same, by the place it had.
    let place = std::fs::canonicalize(path).or_else(|_| std::path::absolute(path))?;
    let was_trusted = record.revoke(&place)?;
    if !was_trusted {
        let what = format!("{} was not trusted; see `colibri trust --list`", place.display());
        return Err(Fault::new(Exit::Usage, what));
    }
    if session.json {
        out::json(&json!({ "path": place, "revoked": true }))
    } else {
        out::line(&format!("no longer trusted: {}", out::visible(&place.display().to_string())))
    }
}

impl From<Problem> for Fault {
    fn from(problem: Problem) -> Self {
        ConfigError::from(problem).into()
    }
}
