//! `colibri audit`: read, verify, prove and export the ledger.

mod export;
mod list;
mod repair;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use crate::store::{Broken, Paths, Reader, TaskChain, Verdict};

use super::Session;
use super::fault::{Exit, Fault};
use super::out;

pub(super) const EXAMPLES: &str = "\
Examples:
  colibri audit list --outcome error            the newest calls that failed
  colibri audit show 17                         call 17: who, what, when, and what is kept of it
  colibri audit tail -f                         records as they are written
  colibri audit verify                          derive everything again from the bytes
  colibri audit prove --index 4                 write record-4.tlog-proof
  colibri audit prove --record 019f…            the same, for a thought by its id
  colibri audit prove --session storage         write session-storage.proof
  colibri audit export -o ledger.bundle         the whole log, for an auditor
  colibri audit key show                        the public key to verify with";

#[derive(clap::Subcommand)]
pub(super) enum Command {
    /// List calls, the newest first
    List(list::ListArguments),
    /// Show one call, or one record
    Show(list::ShowArguments),
    /// Print the newest records, and with -f those to come
    Tail(list::TailArguments),
    /// Derive everything again from the records' bytes, and compare
    Verify,
    /// Write a file that proves one record, or a sealed session, offline
    Prove(export::ProveArguments),
    /// Write the whole log with its checkpoint, for `colibri verify`
    Export(export::ExportArguments),
    /// Show or replace the key that signs checkpoints
    #[command(subcommand)]
    Key(repair::KeyCommand),
    /// Give up a log that cannot be used, and open another that names it
    AcceptLoss(repair::AcceptLossArguments),
}

pub(super) fn run(session: &Session, command: Command) -> Result<(), Fault> {
    let json = session.json;
    match command {
        Command::List(arguments) => list::list(&reader(session)?, &arguments, json),
        Command::Show(arguments) => list::show(&reader(session)?, &arguments, json),
        Command::Tail(arguments) => list::tail(&reader(session)?, &arguments, json),
        Command::Verify => verify(&reader(session)?, json),
        Command::Prove(arguments) => export::prove(&reader(session)?, &arguments),
        Command::Export(arguments) => export::export(&reader(session)?, &arguments),
        Command::Key(command) => repair::key(session, &command),
        Command::AcceptLoss(arguments) => repair::accept_loss(session, &arguments),
    }
}

fn reader(session: &Session) -> Result<Reader, Fault> {
    let (loaded, _) = session.load()?;
    Ok(Reader::open(&Paths::beside(&loaded.config.database))?)
}

fn verify(reader: &Reader, json: bool) -> Result<(), Fault> {
    let verdict = verify_with_progress(reader)?;
    // The chains of reasons are made of records: where those are broken, there is nothing to add.
    let chains = if verdict.valid { reader.verify_trail()? } else { Vec::new() };
    let broken: Vec<&TaskChain> = chains.iter().filter(|task| task.chain.broken_count > 0).collect();
    let valid = verdict.valid && broken.is_empty();
    if json {
        let mut told = serde_json::to_value(&verdict).expect("a verdict serialises");
        told["valid"] = valid.into();
        let ids: Vec<&str> = broken.iter().map(|task| task.task_id.as_str()).collect();
        if verdict.valid {
            told["trail"] = serde_json::json!({ "tasks": chains.len(), "broken_tasks": ids });
        }
        out::json(&told)?;
    } else if valid {
        let Verdict { record_count, signed, checkpoints, bodies, log, root, .. } = &verdict;
        out::line(&format!(
            "intact: {record_count} records of {}, {signed} of them signed\nroot {root}\n\
             {checkpoints} checkpoints, {bodies} kept bodies and the reasons of {} tasks agree",
            out::visible(log),
            chains.len()
        ))?;
    } else {
        let count = verdict.broken_count + broken.len() as u64;
        out::line(&format!("BROKEN in {count} places of {}", out::visible(&verdict.log)))?;
        for Broken { index, what } in &verdict.broken {
            out::line(&out::visible(&format!("  at {index}: {what}")))?;
        }
        for task in broken {
            out::lines(&format!("  the reasons of task {} are not those on record", task.task_id))?;
        }
    }
    if valid { Ok(()) } else { Err(Fault::told(Exit::VerificationFailed)) }
}

/// Long work shows that it goes on, to whoever watches.
pub(super) fn verify_with_progress(reader: &Reader) -> Result<Verdict, Fault> {
    let watched = std::io::stderr().is_terminal();
    let verdict = reader.verify(&mut |done, all| {
        if watched && all > 10_000 {
            let _ = write!(std::io::stderr(), "\r{done} of {all} records\x1b[K");
        }
        true
    })?;
    if watched {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
    Ok(verdict)
}

/// Writes to a file, or with `-` to stdout.
fn write_file(path: &PathBuf, text: &str) -> Result<(), Fault> {
    if path.as_os_str() == "-" {
        return out::text(text);
    }
    std::fs::write(path, text)
        .map_err(|error| Fault::new(Exit::Unexpected, format!("cannot write {}: {error}", path.display())))
}
