//! `colibri config`: what counts, where it came from, and what is wrong with it.

use serde_json::json;

use crate::config::{Loaded, from_process, schema};

use super::Session;
use super::fault::Fault;
use super::out;

pub(super) const EXAMPLES: &str = "\
Examples:
  colibri config show --origin     every value, and which file, variable or flag said so
  colibri config check             every problem, with file, line and remedy
  colibri config schema > colibri.schema.json
  colibri config path              where files are looked for";

#[derive(clap::Subcommand)]
pub(super) enum Command {
    /// Show the effective configuration; secrets are masked
    Show {
        /// Also say where each value came from
        #[arg(long)]
        origin: bool,
    },
    /// Check the configuration
    Check,
    /// Print the JSON Schema of colibri.json
    Schema,
    /// Print where files are looked for, the strongest first
    Path,
}

pub(super) fn run(session: &Session, command: &Command) -> Result<(), Fault> {
    let json = session.json;
    match command {
        Command::Schema => {
            if json {
                out::json(&schema())
            } else {
                out::pretty(&schema())
            }
        }
        Command::Show { origin } => show(&session.load()?.0, *origin, json),
        Command::Check => check(&from_process(&session.flags)?, json),
        Command::Path => path(&from_process(&session.flags)?, json),
    }
}

fn show(loaded: &Loaded, origin: bool, json: bool) -> Result<(), Fault> {
    if json {
        return out::json(&json!({ "values": loaded.values() }));
    }
    let row = |value: &crate::config::Value| {
        let mut row = vec![value.key.clone(), value.value.to_string()];
        row.extend(origin.then(|| value.origin.to_string()));
        row
    };
    let heads: &[&str] = if origin { &["KEY", "VALUE", "ORIGIN"] } else { &["KEY", "VALUE"] };
    out::table(heads, &loaded.values().iter().map(row).collect::<Vec<_>>())
}

fn check(loaded: &Loaded, json: bool) -> Result<(), Fault> {
    if json {
        return out::json(&json!({ "valid": true, "warnings": loaded.warnings }));
    }
    for warning in &loaded.warnings {
        out::lines(&format!("warning: {warning}"))?;
    }
    out::line(&format!("the configuration is valid, with {} warnings", loaded.warnings.len()))
}

fn path(loaded: &Loaded, json: bool) -> Result<(), Fault> {
    if json {
        return out::json(&json!({ "files": loaded.files }));
    }
    loaded.files.iter().try_for_each(|looked| {
        out::line(&format!(
            "{:<9} {}",
            if looked.found { "found" } else { "not found" },
            out::visible(&looked.path.display().to_string())
        ))
    })
}
