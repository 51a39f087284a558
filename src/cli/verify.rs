//! `colibri verify`: a proof, a session, a bundle or a checkpoint, checked without any database.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::domain::note::{Checkpoint, NOTE_BYTES_MAX, VerifyingKey};
use crate::domain::proof::bundle::{BundleVerifier, LINE_BYTES_MAX};
use crate::domain::proof::session::{self, SessionVerdict, SessionVerifier};
use crate::domain::proof::{InclusionProof, PROOF_BYTES_MAX};

use super::Session;
use super::fault::{Exit, Fault};
use super::out;

pub(super) const EXAMPLES: &str = "\
Examples:
  colibri verify record-4.tlog-proof --key \"$(cat auditor.key)\"
  colibri verify session-storage.proof --key auditor.key
  colibri verify ledger.bundle --key auditor.key
  colibri verify record-4.tlog-proof --key auditor.key --record record.json

The key is what `colibri audit key show` prints on the machine that keeps the ledger. Get it from
somebody you trust, not from the same hands as the file.";

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// A .tlog-proof, a session's proof, a bundle of `audit export`, or a signed checkpoint
    file: PathBuf,
    /// The public key, or a file with one key a line
    #[arg(long, value_name = "KEY")]
    key: String,
    /// The record's bytes, for a proof that does not carry them
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

pub(super) fn run(session: &Session, arguments: &Arguments) -> Result<(), Fault> {
    let keys = keys(&arguments.key)?;
    let mut file = BufReader::new(open(&arguments.file)?);
    let first = file.fill_buf().map_err(|error| unreadable(&arguments.file, &error))?;
    let verdict = if first.starts_with(b"c2sp.org/tlog-proof@v1\n") {
        proof(file, arguments, &keys)?
    } else if first.starts_with(b"colibri/ledger-bundle@v1\n") {
        bundle(file, &arguments.file, &keys)?
    } else if first.starts_with(b"colibri/session-proof@v1\n") {
        return print_session(&sealed(file, &arguments.file, &keys)?, session.json);
    } else {
        let text = read(file, &arguments.file, NOTE_BYTES_MAX)?;
        let checkpoint = Checkpoint::open(&text, &keys).map_err(refused)?;
        Verdict { what: "checkpoint", index: None, checkpoint, record: None }
    };
    verdict.print(session.json)
}

struct Verdict {
    what: &'static str,
    index: Option<u64>,
    checkpoint: Checkpoint,
    record: Option<String>,
}

impl Verdict {
    fn print(&self, as_json: bool) -> Result<(), Fault> {
        let Self { what, index, checkpoint: Checkpoint { origin, size, root }, record } = self;
        if as_json {
            return out::json(&json!({
                "valid": true, "what": what, "log": origin, "size": size, "root": root, "index": index, "record": record,
            }));
        }
        let about = index.map(|index| format!("record {index} is in ")).unwrap_or_default();
        out::line(&format!("valid {what}: {about}{} at {size} records\nroot {root}", out::visible(origin)))?;
        record.as_ref().map_or(Ok(()), |record| out::line(&out::visible(record)))
    }
}

fn proof(file: impl Read, arguments: &Arguments, keys: &[VerifyingKey]) -> Result<Verdict, Fault> {
    let text = read(file, &arguments.file, PROOF_BYTES_MAX)?;
    let proof: InclusionProof = text.parse().map_err(refused)?;
    let record = match (&arguments.record, &proof.extra) {
        (Some(path), _) => {
            read(open(path)?, path, LINE_BYTES_MAX)?.trim_end_matches('\n').as_bytes().to_vec()
        }
        (None, Some(record)) => record.clone(),
        (None, None) => {
            return Err(Fault::new(
                Exit::Usage,
                "the proof does not carry its record; give it with --record FILE",
            ));
        }
    };
    let checkpoint = proof.verify(&record, keys).map_err(refused)?;
    let record = Some(String::from_utf8_lossy(&record).into_owned());
    Ok(Verdict { what: "proof", index: Some(proof.index), checkpoint, record })
}

fn bundle(file: impl BufRead, path: &Path, keys: &[VerifyingKey]) -> Result<Verdict, Fault> {
    let mut verifier = BundleVerifier::default();
    each_line(file, path, LINE_BYTES_MAX, |line| verifier.push(line).map(drop).map_err(refused))?;
    let verdict = verifier.finish(keys).map_err(refused)?;
    Ok(Verdict { what: "bundle", index: None, checkpoint: verdict.checkpoint, record: None })
}

fn sealed(file: impl BufRead, path: &Path, keys: &[VerifyingKey]) -> Result<SessionVerdict, Fault> {
    let mut verifier = SessionVerifier::default();
    each_line(file, path, session::LINE_BYTES_MAX, |line| verifier.push(line).map_err(refused))?;
    verifier.finish(keys).map_err(refused)
}

fn print_session(verdict: &SessionVerdict, as_json: bool) -> Result<(), Fault> {
    let SessionVerdict { session, records, root, sealed_at, index, checkpoint } = verdict;
    let Checkpoint { origin, size, root: log_root } = checkpoint;
    if as_json {
        return out::json(&json!({
            "valid": true, "what": "session", "session": session, "records": records, "sessionRoot": root,
            "sealedAt": sealed_at, "log": origin, "size": size, "root": log_root, "index": index,
        }));
    }
    out::line(&format!(
        "valid session: {} (records: {records}) was sealed at {} by record {index}, which is in {origin} at {size} records\nroot {root}",
        out::visible(session),
        out::visible(sealed_at),
    ))
}

/// Feeds a file line by line; a line without an end within the bound is fed as far as it was read.
fn each_line(
    mut file: impl BufRead,
    path: &Path,
    bytes_max: usize,
    mut push: impl FnMut(&[u8]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut bounded = (&mut file).take(bytes_max as u64 + 1);
        if bounded.read_until(b'\n', &mut line).map_err(|error| unreadable(path, &error))? == 0 {
            return Ok(());
        }
        push(&line)?;
    }
}

/// The key itself, or a file of keys.
fn keys(text: &str) -> Result<Vec<VerifyingKey>, Fault> {
    let bad = |error| Fault::new(Exit::Usage, format!("--key: {error}"));
    match text.trim().parse::<VerifyingKey>() {
        Ok(key) => Ok(vec![key]),
        Err(_) if Path::new(text).is_file() => {
            let listed = read(open(Path::new(text))?, Path::new(text), 1 << 20)?;
            listed.lines().filter(|line| !line.is_empty()).map(|line| line.parse().map_err(bad)).collect()
        }
        Err(error) => Err(bad(error)),
    }
}

fn open(path: &Path) -> Result<File, Fault> {
    File::open(path).map_err(|error| unreadable(path, &error))
}

fn read(file: impl Read, path: &Path, bytes_max: usize) -> Result<String, Fault> {
    let no_such_file = |what| Fault::new(Exit::VerificationFailed, format!("{} {what}", path.display()));
    let mut bytes = Vec::new();
    file.take(bytes_max as u64 + 1).read_to_end(&mut bytes).map_err(|error| unreadable(path, &error))?;
    if bytes.len() > bytes_max {
        return Err(no_such_file("is longer than any such file can be"));
    }
    String::from_utf8(bytes).map_err(|_| no_such_file("is not UTF-8, as every such file is"))
}

fn unreadable(path: &Path, error: &std::io::Error) -> Fault {
    Fault::new(Exit::Usage, format!("cannot read {}: {error}", path.display()))
}

fn refused(error: impl std::error::Error) -> Fault {
    let mut message = format!("refused: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        message = format!("{message}: {error}");
        cause = error.source();
    }
    Fault::new(Exit::VerificationFailed, message)
}
