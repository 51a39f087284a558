//! What leaves the machine: a proof of one record, a sealed session, or the whole log as a bundle.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::domain::ledger::{Event, Record};
use crate::domain::proof::InclusionProof;
use crate::domain::proof::bundle::{BundleHeader, BundleVerifier};
use crate::domain::proof::session::{SessionHeader, SessionVerifier};
use crate::store::{Reader, Seal, Signed};

use super::super::fault::{Exit, Fault};
use super::super::out;
use super::write_file;

/// Records read at once, so that memory stays flat however long the log is.
const RANGE_RECORDS: u64 = 1024;

type Write<'w> = Box<dyn FnMut(&str) -> Result<(), Fault> + 'w>;

#[derive(clap::Args)]
pub(crate) struct ProveArguments {
    #[command(flatten)]
    what: What,
    /// Where to write it; `-` is stdout [default: record-N.tlog-proof or session-ID.proof]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct What {
    /// The record, by its index
    #[arg(long, value_name = "N")]
    index: Option<u64>,
    /// The record of a thought, by the thought's id
    #[arg(long, value_name = "ID")]
    record: Option<String>,
    /// A sealed session with all of its records, by its id
    #[arg(long, value_name = "ID")]
    session: Option<String>,
}

#[derive(clap::Args)]
pub(crate) struct ExportArguments {
    /// Where to write it; `-` is stdout
    #[arg(short, long, value_name = "FILE", default_value = "ledger.bundle")]
    output: PathBuf,
}

pub(super) fn prove(reader: &Reader, arguments: &ProveArguments) -> Result<(), Fault> {
    let output = arguments.output.clone();
    let proof = match &arguments.what {
        What { session: Some(id), .. } => return prove_session(reader, id, output),
        What { record: Some(id), .. } => prove_thought(reader, id)?,
        What { index, .. } => reader.prove(index.unwrap_or_default())?,
    };
    // What would be refused is not handed out.
    proof.verify(proof.extra.as_deref().unwrap_or_default(), &reader.keys()?).map_err(broken)?;
    let index = proof.index;
    let output = output.unwrap_or_else(|| format!("record-{index}.tlog-proof").into());
    write_file(&output, &proof.to_string())?;
    told(&output, &format!("record {index}"))
}

fn prove_thought(reader: &Reader, id: &str) -> Result<InclusionProof, Fault> {
    let index = reader.thought_index(id)?;
    let index = index.ok_or_else(|| unknown(&format!("there is no thought {}", out::visible(id))))?;
    let proof = reader.prove(index)?;
    match event(&proof) {
        Some(Event::ThoughtRecorded(thought)) if thought.id == id => Ok(proof),
        _ => Err(of_an_earlier_log("the thought")),
    }
}

/// What the proved record says.
fn event(proof: &InclusionProof) -> Option<Event> {
    let record: Record = serde_json::from_slice(proof.extra.as_deref()?).ok()?;
    Some(record.event)
}

/// A sealed session: checked whole before the first byte is written.
fn prove_session(reader: &Reader, id: &str, output: Option<PathBuf>) -> Result<(), Fault> {
    let shown = out::visible(id);
    let session = reader.session(id)?.ok_or_else(|| unknown(&format!("there is no session {shown}")))?;
    let Some(Seal { record_count: records, index, .. }) = session.seal else {
        let remedy = format!("session {shown} is open; seal it with: colibri session finalize {shown}");
        return Err(unknown(&remedy));
    };
    let header = SessionHeader { session: id.to_owned(), records }.to_string();
    let proof = reader.prove(index)?;
    if !matches!(event(&proof), Some(Event::SessionFinalized(sealed)) if sealed.session == id) {
        return Err(of_an_earlier_log("the session"));
    }
    let each_line = |write: &mut dyn FnMut(&str) -> Result<(), Fault>| {
        let mut done = write(&header);
        reader.each_session_record(id, |bytes| {
            if done.is_ok() {
                done = write(&format!("{bytes}\n"));
            }
        })?;
        done?;
        write(&format!("\n{proof}"))
    };
    let mut verifier = SessionVerifier::default();
    each_line(&mut |text| {
        text.split_inclusive('\n').try_for_each(|line| verifier.push(line.as_bytes())).map_err(broken)
    })?;
    verifier.finish(&reader.keys()?).map_err(broken)?;
    let output = output.unwrap_or_else(|| format!("session-{}.proof", as_file_name(id)).into());
    let mut write = writer(&output)?;
    each_line(&mut write)?;
    drop(write);
    told(&output, &format!("session {shown} (records: {records})"))
}

pub(super) fn export(reader: &Reader, arguments: &ExportArguments) -> Result<(), Fault> {
    let signed = reader.checkpoint()?;
    let records = signed.checkpoint.size;
    // Written beside it and put in its place when it is whole: what is refused must not cost the bundle
    // that was there before. Under a name that nobody knows: a link laid there could lead anywhere.
    let is_stdout = arguments.output.as_os_str() == "-";
    let partial = if is_stdout {
        arguments.output.clone()
    } else {
        with_suffix(&arguments.output, &format!(".{}.partial", Uuid::now_v7().simple()))
    };
    let written = write_bundle(reader, &partial, signed);
    let placed = if is_stdout {
        written
    } else {
        let placed = written.and_then(|()| Ok(std::fs::rename(&partial, &arguments.output)?));
        placed.inspect_err(|_| drop(std::fs::remove_file(&partial)))
    };
    placed?;
    told(&arguments.output, &format!("{records} records"))
}

fn write_bundle(reader: &Reader, output: &Path, signed: Signed) -> Result<(), Fault> {
    let (origin, records) = (signed.checkpoint.origin, signed.checkpoint.size);
    let header = BundleHeader { origin, records }.to_string();
    let mut write = writer(output)?;
    // Checked as it is written: what would be refused is not handed out unnoticed.
    let mut verifier = BundleVerifier::default();
    let mut write = |text: &str| {
        text.split_inclusive('\n')
            .try_for_each(|line| verifier.push(line.as_bytes()).map(drop))
            .map_err(broken)?;
        write(text)
    };
    write(&header)?;
    let mut next = 0;
    while next < records {
        let rows = reader.records(next, RANGE_RECORDS.min(records - next))?;
        if rows.is_empty() {
            let what = format!("record {next} is missing; run `colibri audit verify`");
            return Err(Fault::new(Exit::VerificationFailed, what));
        }
        next += rows.len() as u64;
        write(&rows.iter().map(|row| row.bytes.clone() + "\n").collect::<String>())?;
    }
    write(&format!("\n{}", signed.note))?;
    verifier.finish(&reader.keys()?).map(drop).map_err(broken)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Writes to a file piece by piece, or with `-` to stdout.
fn writer(output: &Path) -> Result<Write<'_>, Fault> {
    let failed = |error: std::io::Error| {
        Fault::new(Exit::Unexpected, format!("cannot write {}: {error}", output.display()))
    };
    if output.as_os_str() == "-" {
        return Ok(Box::new(out::text));
    }
    let mut file = File::create(output).map_err(failed)?;
    Ok(Box::new(move |text| file.write_all(text.as_bytes()).map_err(failed)))
}

/// Only what every file system takes; an id may hold anything.
fn as_file_name(id: &str) -> String {
    let fits = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    id.chars().map(fits).collect()
}

fn unknown(what: &str) -> Fault {
    Fault::new(Exit::Usage, what)
}

fn of_an_earlier_log(what: &str) -> Fault {
    unknown(&format!(
        "{what} is on record in an earlier log that was given up; only the newest can be proved"
    ))
}

/// The ledger is not what was signed, so that nothing can be proved from it.
fn broken(error: impl std::fmt::Display) -> Fault {
    let message = format!("the ledger is broken: {error}; run `colibri audit verify`");
    Fault::new(Exit::VerificationFailed, message)
}

/// Says what to do next, to people.
fn told(output: &Path, what: &str) -> Result<(), Fault> {
    if output.as_os_str() != "-" {
        let file = output.display();
        writeln!(
            std::io::stderr(),
            "wrote {what} to {file}; check it with: colibri verify {file} --key \"$(colibri audit key show)\""
        )?;
    }
    Ok(())
}
