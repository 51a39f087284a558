//! `colibri skill`: the skills there are, one of them, and whether one keeps to the format.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::domain::skill::{Diagnostic, FILE, Finding, Severity, Weight, validate};

use super::Session;
use super::fault::{Exit, Fault};
use super::invoke::at_desk;
use super::out::{self, visible};

pub(super) const EXAMPLES: &str = "\
Examples:
  colibri skill list                          what was found here, in your home and in configured folders
  colibri skill list --search pdf             only those with `pdf` in their name or description
  colibri skill show tidy-up                  one skill with its files and its text
  colibri skill validate .agents/skills/tidy-up   does it keep to the Agent Skills format? exit code 6 if not";

/// On record as who asks.
const CLIENT: &str = "colibri skill";

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
    at_desk(session, CLIENT, async |desk| {
        loop {
            let answer = desk.call("skill_list", arguments.to_string()).await?;
            answer.tell(session.json, |page| {
                rows.extend(page["skills"].as_array().into_iter().flatten().map(row));
                warn(&page["diagnostics"])
            })?;
            match answer.inner().get("next_cursor") {
                Some(cursor) => arguments["cursor"] = cursor.clone(),
                None => return Ok(()),
            }
        }
    })?;
    if session.json { Ok(()) } else { out::table(&["NAME", "VERSION", "SOURCE", "DESCRIPTION"], &rows) }
}

fn show(session: &Session, name: &str) -> Result<(), Fault> {
    let arguments = json!({ "name": name }).to_string();
    let answer = at_desk(session, CLIENT, async |desk| desk.call_hidden("skill_show", arguments).await)?;
    answer.tell(session.json, print)
}

fn print(data: &Value) -> Result<(), Fault> {
    let skill = &data["skill"];
    for key in ["name", "description", "version", "source", "path", "digest"] {
        if let Some(value) = skill[key].as_str() {
            out::line(&format!("{key:<12} {}", visible(value)))?;
        }
    }
    for warning in skill["warnings"].as_array().into_iter().flatten() {
        out::line(&format!("{:<12} {}", "warning", visible(text(warning))))?;
    }
    for file in data["files"].as_array().into_iter().flatten() {
        out::line(&format!("{:<12} {}  {} bytes", "file", visible(text(&file["uri"])), file["size"]))?;
    }
    out::line("")?;
    let tabbed = |line: &str| line.split('\t').map(visible).collect::<Vec<_>>().join("\t");
    text(&data["body"]).lines().try_for_each(|line| out::line(&tabbed(line)))
}

fn row(skill: &Value) -> Vec<String> {
    let words = text(&skill["description"]).split_whitespace().collect::<Vec<_>>().join(" ");
    let description = match words.char_indices().nth(CELL_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &words[..end]),
        None => words,
    };
    [text(&skill["name"]), text(&skill["version"]), text(&skill["source"]), &description].map(visible).into()
}

/// Diagnostics are talk: they do not stand between the rows of a table.
fn warn(diagnostics: &Value) -> Result<(), Fault> {
    for told in diagnostics.as_array().into_iter().flatten() {
        let line = told["line"].as_u64().map(|line| format!(":{line}")).unwrap_or_default();
        let (path, message) = (visible(text(&told["path"])), visible(text(&told["message"])));
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
        out::line(&visible(&format!("{path}{line}: {message}")))?;
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

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
