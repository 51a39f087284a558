//! What an auditor is handed: one record's proof, a sealed session, or a whole log as a bundle.
//!
//! Owns: the text of these files and the verdict on them. A record is bytes here, nothing more.
//! Uses: `merkle` for the hashes, `note` for the checkpoint that all end with.
//! Must not know: files. Who reads or writes them feeds text.

pub mod bundle;
pub mod session;

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::ledger::RECORD_BYTES_MAX;
use super::merkle::{Hash, ProofError, leaf_hash, verify_inclusion};
use super::note::{Checkpoint, NOTE_BYTES_MAX, NoteError, VerifyingKey, decimal};

/// Hashes of one proof: the height of a tree of 2^64 records.
pub const HASHES_MAX: usize = 64;
/// One proof's text: the record in base64, the hashes at 45 characters a line, the checkpoint, and
/// the fixed words.
pub const PROOF_BYTES_MAX: usize = RECORD_BYTES_MAX.div_ceil(3) * 4 + HASHES_MAX * 45 + NOTE_BYTES_MAX + 128;

const TITLE: &str = "c2sp.org/tlog-proof@v1";

/// The proof that one record is in a log: a `.tlog-proof` file (c2sp.org/tlog-proof).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InclusionProof {
    /// colibri puts the record itself here, so that the file needs no other. Nothing vouches for it
    /// until [`Self::verify`] was given the same bytes.
    pub extra: Option<Vec<u8>>,
    /// Which record of the log, counted from 0.
    pub index: u64,
    /// The siblings on the way from the leaf to the root.
    pub hashes: Vec<Hash>,
    /// The note that signs the root.
    pub checkpoint: String,
}

impl InclusionProof {
    /// Checks that exactly these bytes are that record of the log that one of the keys speaks for,
    /// and tells which state of the log that was.
    pub fn verify(&self, record: &[u8], keys: &[VerifyingKey]) -> Result<Checkpoint, VerifyError> {
        let checkpoint = Checkpoint::open(&self.checkpoint, keys)?;
        verify_inclusion(leaf_hash(record), self.index, checkpoint.size, &self.hashes, checkpoint.root)?;
        Ok(checkpoint)
    }
}

/// Why a record is not proved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// The checkpoint is not to be believed.
    #[error(transparent)]
    Checkpoint(#[from] NoteError),
    /// The checkpoint is good, but it does not cover this record.
    #[error(transparent)]
    Proof(#[from] ProofError),
}

impl fmt::Display for InclusionProof {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{TITLE}")?;
        if let Some(extra) = &self.extra {
            writeln!(out, "extra {}", BASE64_STANDARD.encode(extra))?;
        }
        writeln!(out, "index {}", self.index)?;
        self.hashes.iter().try_for_each(|hash| writeln!(out, "{}", hash.to_base64()))?;
        write!(out, "\n{}", self.checkpoint)
    }
}

impl FromStr for InclusionProof {
    type Err = MalformedProof;

    /// Accepts exactly what [`fmt::Display`] writes. The checkpoint is only read by
    /// [`InclusionProof::verify`].
    fn from_str(text: &str) -> Result<Self, MalformedProof> {
        if text.len() > PROOF_BYTES_MAX {
            return Err(MalformedProof { line: 1, what: "the file is too long" });
        }
        let mut lines = Lines { rest: text, number: 0 };
        if lines.next()? != TITLE {
            return Err(lines.error("the first line is not `c2sp.org/tlog-proof@v1`"));
        }
        let mut line = lines.next()?;
        let mut extra = None;
        if let Some(base64) = line.strip_prefix("extra ") {
            extra = Some(decode_extra(base64).map_err(|what| lines.error(what))?);
            line = lines.next()?;
        }
        let index = line.strip_prefix("index ").and_then(decimal);
        let index =
            index.ok_or_else(|| lines.error("`index N` is missing, or N is no plain decimal number"))?;
        let mut hashes = Vec::new();
        loop {
            match lines.next()? {
                "" => break,
                _ if hashes.len() == HASHES_MAX => return Err(lines.error("there are too many hashes")),
                line => hashes.push(Hash::from_base64(line).map_err(|_| lines.error("no base64 SHA-256"))?),
            }
        }
        Ok(Self { extra, index, hashes, checkpoint: lines.rest.to_owned() })
    }
}

/// A text that is no proof, told apart from a proof that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a log proof: line {line}: {what}")]
pub struct MalformedProof {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong there.
    pub what: &'static str,
}

struct Lines<'a> {
    rest: &'a str,
    number: usize,
}

impl<'a> Lines<'a> {
    fn next(&mut self) -> Result<&'a str, MalformedProof> {
        self.number += 1;
        let (line, rest) = self.rest.split_once('\n').ok_or_else(|| self.error("the file ends too early"))?;
        self.rest = rest;
        Ok(line)
    }

    fn error(&self, what: &'static str) -> MalformedProof {
        MalformedProof { line: self.number, what }
    }
}

fn decode_extra(base64: &str) -> Result<Vec<u8>, &'static str> {
    let extra = BASE64_STANDARD.decode(base64).map_err(|_| "`extra` is not followed by base64")?;
    if extra.len() > RECORD_BYTES_MAX { Err("`extra` is longer than a record may be") } else { Ok(extra) }
}
