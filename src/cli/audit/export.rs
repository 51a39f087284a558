//! What leaves the machine: a proof of one record, or the whole log as a bundle.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::domain::proof::bundle::{BundleHeader, BundleVerifier};
use crate::store::Reader;

use super::super::fault::{Exit, Fault};
use super::super::out;
use super::write_file;

/// Records read at once, so that memory stays flat however long the log is.
const RANGE_RECORDS: u64 = 1024;

type Write<'w> = Box<dyn FnMut(&str) -> Result<(), Fault> + 'w>;

#[derive(clap::Args)]
pub(crate) struct ProveArguments {
    /// The record, by its index
    #[arg(long, value_name = "N")]
    index: u64,
    /// Where to write it; `-` is stdout [default: record-N.tlog-proof]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(clap::Args)]
pub(crate) struct ExportArguments {
    /// Where to write it; `-` is stdout
    #[arg(short, long, value_name = "FILE", default_value = "ledger.bundle")]
    output: PathBuf,
}

pub(super) fn prove(reader: &Reader, arguments: &ProveArguments) -> Result<(), Fault> {
    let ProveArguments { index, output } = arguments;
    let proof = reader.prove(*index)?;
    // What would be refused is not handed out.
    proof.verify(proof.extra.as_deref().unwrap_or_default(), &reader.keys()?).map_err(broken)?;
    let output = output.clone().unwrap_or_else(|| format!("record-{index}.tlog-proof").into());
    write_file(&output, &proof.to_string())?;
    told(&output, &format!("record {index}"))
}

pub(super) fn export(reader: &Reader, arguments: &ExportArguments) -> Result<(), Fault> {
    let output = &arguments.output;
    let signed = reader.checkpoint()?;
    let (origin, records) = (signed.checkpoint.origin, signed.checkpoint.size);
    let header = BundleHeader { origin, records }.to_string();
    let failed = |error: std::io::Error| {
        Fault::new(Exit::Unexpected, format!("cannot write {}: {error}", output.display()))
    };
    let mut write: Write<'_> = if output.as_os_str() == "-" {
        Box::new(out::text)
    } else {
        let mut file = File::create(output).map_err(failed)?;
        Box::new(move |text| file.write_all(text.as_bytes()).map_err(failed))
    };
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
    verifier.finish(&reader.keys()?).map_err(broken)?;
    told(output, &format!("{records} records"))
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
