//! A whole log in one text that can be written and checked as it streams.
//!
//! ```text
//! colibri/ledger-bundle@v1
//! origin example.com/log
//! records 2
//! {"first":"record"}
//! {"second":"record"}
//!
//! example.com/log
//! 2
//! <root>
//!
//! — example.com/log <signature>
//! ```
//!
//! Owns: that form, and the verdict on it. Must not know: what a record says.

use std::fmt;

use crate::domain::ledger::RECORD_BYTES_MAX;
use crate::domain::merkle::{Frontier, Hash, leaf_hash};
use crate::domain::note::{Checkpoint, NOTE_BYTES_MAX, NoteError, VerifyingKey, decimal};

/// One line with its newline. A reader need not buffer more before it feeds the verifier.
pub const LINE_BYTES_MAX: usize = RECORD_BYTES_MAX + 1;

const TITLE: &str = "colibri/ledger-bundle@v1";

/// How a bundle begins. The records follow, one a line; then an empty line and the signed checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleHeader {
    /// The log's name.
    pub origin: String,
    /// How many records follow: all that the checkpoint covers.
    pub records: u64,
}

impl fmt::Display for BundleHeader {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{TITLE}\norigin {}\nrecords {}\n", self.origin, self.records)
    }
}

/// Checks a bundle line by line, in constant memory.
#[derive(Debug, Default)]
pub struct BundleVerifier {
    state: State,
    /// Lines so far, for the errors.
    lines: u64,
}

/// What a line turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// One of the three at the beginning.
    Header,
    /// A record. It is only proved once [`BundleVerifier::finish`] says so.
    Record {
        /// Its place in the log.
        index: u64,
        /// Its hash.
        leaf: Hash,
    },
    /// The empty line, or one of the checkpoint's.
    Checkpoint,
}

/// What a bundle proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleVerdict {
    /// The signed state that the records add up to, exactly.
    pub checkpoint: Checkpoint,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Title,
    Origin,
    Count {
        origin: String,
    },
    Records {
        header: BundleHeader,
        frontier: Frontier,
    },
    Note {
        header: BundleHeader,
        frontier: Frontier,
        note: String,
    },
    /// A line was wrong. No later line makes that good.
    Refused,
}

impl BundleVerifier {
    /// Takes the next line, with its newline. After an error the bundle is refused for good.
    pub fn push(&mut self, line: &[u8]) -> Result<Part, BundleError> {
        self.lines += 1;
        let state = std::mem::replace(&mut self.state, State::Refused);
        let Some(line) = line.strip_suffix(b"\n") else {
            return Err(if line.len() >= LINE_BYTES_MAX {
                self.malformed("it is too long")
            } else {
                self.malformed("it has no end: the file was cut")
            });
        };
        if line.len() >= LINE_BYTES_MAX {
            return Err(self.malformed("it is too long"));
        }
        if line.contains(&b'\n') {
            return Err(self.malformed("it is more than one line"));
        }
        let (state, part) = self.next(state, line)?;
        self.state = state;
        Ok(part)
    }

    /// The verdict, after the last line.
    pub fn finish(self, keys: &[VerifyingKey]) -> Result<BundleVerdict, BundleError> {
        let State::Note { header, frontier, note } = self.state else {
            return Err(BundleError::Cut { lines: self.lines });
        };
        let checkpoint = Checkpoint::open(&note, keys)?;
        if checkpoint.origin != header.origin {
            return Err(BundleError::WrongLog { announced: header.origin, signed: checkpoint.origin });
        }
        if checkpoint.size != header.records {
            return Err(BundleError::WrongSize { records: header.records, signed: checkpoint.size });
        }
        let computed = frontier.root();
        if checkpoint.root != computed {
            return Err(BundleError::WrongRoot { computed, signed: checkpoint.root });
        }
        Ok(BundleVerdict { checkpoint })
    }

    fn next(&self, state: State, line: &[u8]) -> Result<(State, Part), BundleError> {
        match state {
            State::Title if line == TITLE.as_bytes() => Ok((State::Origin, Part::Header)),
            State::Title => Err(self.malformed("it is not `colibri/ledger-bundle@v1`")),
            State::Origin => match self.word(line, "origin ")? {
                Some(origin) => Ok((State::Count { origin: origin.to_owned() }, Part::Header)),
                None => Err(self.malformed("it is not `origin NAME`")),
            },
            State::Count { origin } => match self.word(line, "records ")?.and_then(decimal) {
                Some(records) => {
                    let header = BundleHeader { origin, records };
                    Ok((State::Records { header, frontier: Frontier::default() }, Part::Header))
                }
                None => Err(self.malformed("it is not `records N`")),
            },
            State::Records { header, frontier } => self.record(line, header, frontier),
            State::Note { header, frontier, mut note } => {
                note.push_str(self.text(line)?);
                note.push('\n');
                if note.len() > NOTE_BYTES_MAX {
                    return Err(self.malformed("the checkpoint is too long"));
                }
                Ok((State::Note { header, frontier, note }, Part::Checkpoint))
            }
            State::Refused => Err(self.malformed("an earlier line was refused already")),
        }
    }

    fn record(
        &self,
        line: &[u8],
        header: BundleHeader,
        mut frontier: Frontier,
    ) -> Result<(State, Part), BundleError> {
        let index = frontier.size();
        match (index < header.records, line.is_empty()) {
            (true, false) => {
                let leaf = leaf_hash(line);
                frontier.append(leaf);
                Ok((State::Records { header, frontier }, Part::Record { index, leaf }))
            }
            (true, true) => Err(BundleError::TooFew { announced: header.records, found: index }),
            (false, false) => Err(BundleError::TooMany { announced: header.records, line: self.lines }),
            (false, true) => Ok((State::Note { header, frontier, note: String::new() }, Part::Checkpoint)),
        }
    }

    fn word<'a>(&self, line: &'a [u8], key: &str) -> Result<Option<&'a str>, BundleError> {
        Ok(self.text(line)?.strip_prefix(key))
    }

    fn text<'a>(&self, line: &'a [u8]) -> Result<&'a str, BundleError> {
        str::from_utf8(line).map_err(|_| self.malformed("it is not UTF-8"))
    }

    fn malformed(&self, what: &'static str) -> BundleError {
        BundleError::Malformed { line: self.lines, what }
    }
}

/// Why a bundle proves nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    /// It is no bundle, or a damaged one.
    #[error("not a ledger bundle: line {line}: {what}")]
    Malformed {
        /// Counted from 1.
        line: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// It ends before its checkpoint.
    #[error("the bundle ends after {lines} lines, before its checkpoint: the file was cut")]
    Cut {
        /// How many lines there were.
        lines: u64,
    },
    /// Records are missing.
    #[error("the bundle announces {announced} records and has {found}")]
    TooFew {
        /// How many it announces.
        announced: u64,
        /// How many it has.
        found: u64,
    },
    /// There are records that the checkpoint does not cover.
    #[error("the bundle announces {announced} records, but line {line} is one more")]
    TooMany {
        /// How many it announces.
        announced: u64,
        /// Where the first beyond them stands.
        line: u64,
    },
    /// The checkpoint is not to be believed.
    #[error(transparent)]
    Checkpoint(#[from] NoteError),
    /// Records of one log under the checkpoint of another.
    #[error("the bundle is of the log `{announced}`, its checkpoint of `{signed}`")]
    WrongLog {
        /// The log it announces.
        announced: String,
        /// The log that was signed for.
        signed: String,
    },
    /// The checkpoint covers fewer or more records than there are.
    #[error("the bundle has {records} records, its checkpoint covers {signed}")]
    WrongSize {
        /// How many records there are.
        records: u64,
        /// How many were signed for.
        signed: u64,
    },
    /// A record was changed, or its place.
    #[error("the records add up to root {computed}, but {signed} was signed: some record was changed")]
    WrongRoot {
        /// What they add up to.
        computed: Hash,
        /// What was signed.
        signed: Hash,
    },
}
