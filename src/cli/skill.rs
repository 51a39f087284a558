//! `colibri skill`: the skills there are, one of them, and whether one keeps to the format.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::app;
use crate::call::{Caller, Calls, Reply};
use crate::config::os_user;
use crate::domain::audit::Principal;
use crate::domain::skill::{Diagnostic, FILE, Finding, Severity, Weight, shown, validate};

use super::Session;
use super::fault::{Exit, Fault};
use super::out;
use super::serve::runtime;

pub(super) const EXAMPLES: &str = "\
Examples:
  colibri skill list                          what was found here, in your home and in configured folders
  colibri skill list --search pdf             only those with `pdf` in their name or description
  colibri skill show tidy-up                  one skill with its files and its text
  colibri skill validate .agents/skills/tidy-up   does it keep to the Agent Skills format? exit code 6 if not";

/// More than any `SKILL.md` that colibri reads.
const BYTES_MAX: u64 = 1 << 20;

/// Of a description in a table.
const CELL_CHARS_MAX: usize = 72;

#[derive(clap::Subcommand)]
pub(super) enum Command {
    /// List the skills that were found; on record like any other call
    List {
        /// Only those with this text in their name or description
        #[arg(long, value_name = "TEXT")]
        search: Option<String>,
        /// Only those that name this capability
        #[arg(long, value_name = "WORD")]
        capability: Option<String>,
    },
    /// Show one skill; on record like any other call
    Show {
        /// Its name
        name: String,
    },
    /// Check a skill strictly; needs no ledger
    Validate {
        /// Its folder, or its SKILL.md
        path: PathBuf,
    },
}

pub(super) fn run(session: &Session, command: Command) -> Result<(), Fault> {
    match command {
        Command::List { search, capability } => list(session, search.as_deref(), capability.as_deref()),
        Command::Show { name } => show(session, &name),
        Command::Validate { path } => check(&path, session.json),
    }
}

fn list(session: &Session, search: Option<&str>, capability: Option<&str>) -> Result<(), Fault> {
    let mut arguments = json!({ "limit": 200 });
    for (key, value) in [("search", search), ("capability", capability)] {
        if let Some(value) = value {
            arguments[key] = value.into();
        }
    }
    let mut rows = Vec::new();
    with_calls(session, async |calls, caller| {
        loop {
            let call =
                calls.arrival("skill_list", Some(body(&arguments)), caller.clone(), CancellationToken::new());
            let page = told(calls.run(call).await, session.json)?;
            if !session.json {
                rows.extend(page["skills"].as_array().into_iter().flatten().map(row));
                warn(&page["diagnostics"])?;
            }
            match page.get("next_cursor") {
                Some(next) => arguments["cursor"] = next.clone(),
                None => return Ok(()),
            }
        }
    })?;
    if session.json { Ok(()) } else { out::table(&["NAME", "VERSION", "SOURCE", "DESCRIPTION"], &rows) }
}

fn show(session: &Session, name: &str) -> Result<(), Fault> {
    let data = with_calls(session, async |calls, caller| {
        let arguments = body(&json!({ "name": name }));
        let call = calls.arrival("skill_show", Some(arguments), caller, CancellationToken::new());
        told(calls.run(call.of_method()).await, session.json)
    })?;
    if session.json {
        return Ok(());
    }
    let skill = &data["skill"];
    for key in ["name", "description", "version", "source", "path", "digest"] {
        if let Some(value) = skill[key].as_str() {
            out::line(&format!("{key:<12} {}", shown(value)))?;
        }
    }
    for warning in skill["warnings"].as_array().into_iter().flatten() {
        out::line(&format!("{:<12} {}", "warning", shown(text(warning))))?;
    }
    for file in data["files"].as_array().into_iter().flatten() {
        out::line(&format!("{:<12} {}  {} bytes", "file", shown(text(&file["uri"])), file["size"]))?;
    }
    out::line("")?;
    let visible = |line: &str| line.split('\t').map(shown).collect::<Vec<_>>().join("\t");
    text(&data["body"]).lines().try_for_each(|line| out::line(&visible(line)))
}

/// Opens the call path, makes the calls, and closes it whatever they came to.
fn with_calls<T>(
    session: &Session,
    work: impl AsyncFnOnce(&Calls, Caller) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let (loaded, logger) = session.load()?;
    runtime()?.block_on(async {
        let (calls, closing) = app::calls(&loaded.config, &logger).await?;
        let principal = Arc::new(Principal { client: "colibri skill".to_owned(), user: os_user() });
        let done = work(&calls, Caller { principal, revision: "cli" }).await;
        closing.close().await;
        done
    })
}

/// The data of an answer; for machines the whole envelope is printed on the way.
fn told(reply: Reply, json: bool) -> Result<Value, Fault> {
    let Reply::Envelope { body, is_error } = reply else {
        return Err(Fault::new(Exit::Usage, "skills are not offered in this mode"));
    };
    let envelope: Value = serde_json::from_slice(&body).unwrap_or_default();
    if json {
        out::bytes(&[&body[..], b"\n"].concat())?;
    }
    match (is_error, json) {
        (false, _) => Ok(envelope["data"].clone()),
        (true, true) => Err(Fault::told(Exit::ToolError)),
        (true, false) => Err(Fault::new(Exit::ToolError, shown(text(&envelope["error"]["message"])))),
    }
}

fn row(skill: &Value) -> Vec<String> {
    let words = text(&skill["description"]).split_whitespace().collect::<Vec<_>>().join(" ");
    let description = match words.char_indices().nth(CELL_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &words[..end]),
        None => words,
    };
    [text(&skill["name"]), text(&skill["version"]), text(&skill["source"]), &description].map(shown).into()
}

/// Diagnostics are talk: they do not stand between the rows of a table.
fn warn(diagnostics: &Value) -> Result<(), Fault> {
    for told in diagnostics.as_array().into_iter().flatten() {
        let line = told["line"].as_u64().map(|line| format!(":{line}")).unwrap_or_default();
        let (path, message) = (shown(text(&told["path"])), shown(text(&told["message"])));
        writeln!(std::io::stderr(), "colibri: {}: {path}{line}: {message}", text(&told["severity"]))?;
    }
    Ok(())
}

fn check(path: &Path, json: bool) -> Result<(), Fault> {
    let problems = problems(path);
    if json {
        out::json(&json!({ "valid": problems.is_empty(), "problems": problems }))?;
    }
    let count = problems.len();
    for Diagnostic { path, line, message, .. } in problems.iter().filter(|_| !json) {
        let line = line.map(|line| format!(":{line}")).unwrap_or_default();
        out::line(&format!("{path}{line}: {message}"))?;
    }
    match count {
        0 if json => Ok(()),
        0 => out::line("valid"),
        _ if json => Err(Fault::told(Exit::VerificationFailed)),
        1 => Err(Fault::new(Exit::VerificationFailed, "1 problem")),
        _ => Err(Fault::new(Exit::VerificationFailed, format!("{count} problems"))),
    }
}

/// Everything in which a skill departs from the format; for its author all of it counts.
fn problems(path: &Path) -> Vec<Diagnostic> {
    let file = if path.is_dir() { path.join(FILE) } else { path.to_owned() };
    let name = file.to_string_lossy();
    let folder =
        file.parent().map(|folder| if folder.as_os_str().is_empty() { Path::new(".") } else { folder });
    let folder = folder.and_then(|folder| folder.canonicalize().ok());
    let folder = folder.as_deref().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    let findings = match read(&file) {
        Ok(text) => validate(&text, &folder),
        Err(message) => vec![Finding { weight: Weight::Error, line: None, message }],
    };
    findings
        .into_iter()
        .map(|finding| Diagnostic { severity: Severity::Error, ..finding.at(&name) })
        .collect()
}

fn read(path: &Path) -> Result<String, String> {
    let cannot = |error: std::io::Error| format!("cannot be read: {error}");
    if path.file_name().is_none_or(|name| name != FILE) {
        return Err(format!("the file of a skill is called {FILE}"));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(cannot)?;
    if !file.metadata().map_err(cannot)?.is_file() {
        return Err("is no regular file".to_owned());
    }
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(format!("longer than {BYTES_MAX} bytes"));
    }
    String::from_utf8(bytes)
        .map_err(|error| format!("not valid UTF-8 at byte {}", error.utf8_error().valid_up_to()))
}

fn body(arguments: &Value) -> Bytes {
    arguments.to_string().into_bytes().into()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
