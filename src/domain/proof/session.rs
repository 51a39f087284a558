//! One sealed session in one text that can be written and checked as it streams.
//!
//! ```text
//! colibri/session-proof@v1
//! session storage
//! records 2
//! {"first":"thought"}
//! {"second":"thought"}
//!
//! c2sp.org/tlog-proof@v1
//! extra <the record that sealed the session, in base64>
//! index 37
//! <hashes>
//!
//! <signed checkpoint>
//! ```
//!
//! The second half is an ordinary proof of one record: the one that says under which root the session
//! was sealed. The first half adds up to that root, so the one signature speaks for all of it.
//!
//! Owns: that form, and the verdict on it. Must not know: files.

use std::fmt;

use crate::domain::ledger::{Event, RECORD_BYTES_MAX, Record, SessionFinalized};
use crate::domain::merkle::{Frontier, Hash, leaf_hash};
use crate::domain::note::{Checkpoint, VerifyingKey, decimal};

use super::{InclusionProof, MalformedProof, PROOF_BYTES_MAX, VerifyError};

/// One line with its newline. A reader need not buffer more before it feeds the verifier; the longest
/// is the one that carries the sealing record.
pub const LINE_BYTES_MAX: usize = PROOF_BYTES_MAX;

const TITLE: &str = "colibri/session-proof@v1";

/// How the file begins. The records follow, one a line; then an empty line and the proof of the record
/// that sealed them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionHeader {
    /// The session's id.
    pub session: String,
    /// How many records follow: all that it was sealed with.
    pub records: u64,
}

impl fmt::Display for SessionHeader {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{TITLE}\nsession {}\nrecords {}\n", self.session, self.records)
    }
}

/// Checks a session's file line by line, in constant memory.
#[derive(Debug, Default)]
pub struct SessionVerifier {
    state: State,
    /// Lines so far, for the errors.
    lines: u64,
}

/// What a session's file proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionVerdict {
    /// The session's id.
    pub session: String,
    /// How many records it was sealed with.
    pub records: u64,
    /// The root that they add up to, and that it was sealed under.
    pub root: Hash,
    /// When it was sealed.
    pub sealed_at: String,
    /// The index of the record that sealed it.
    pub index: u64,
    /// The signed state of the log that covers that record.
    pub checkpoint: Checkpoint,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Title,
    Session,
    Count {
        session: String,
    },
    Records {
        header: SessionHeader,
        tree: Frontier,
    },
    Proof {
        header: SessionHeader,
        tree: Frontier,
        proof: String,
    },
    /// A line was wrong. No later line makes that good.
    Refused,
}

impl SessionVerifier {
    /// Takes the next line, with its newline. After an error the file is refused for good.
    pub fn push(&mut self, line: &[u8]) -> Result<(), SessionError> {
        self.lines += 1;
        let state = std::mem::replace(&mut self.state, State::Refused);
        let line = match str::from_utf8(line).map(|line| line.strip_suffix('\n')) {
            Ok(Some(line)) if !line.contains('\n') => line,
            Ok(Some(_)) => return Err(self.malformed("it is more than one line")),
            Ok(None) => return Err(self.malformed("it has no end: the file was cut, or it is too long")),
            Err(_) => return Err(self.malformed("it is not UTF-8")),
        };
        self.state = self.next(state, line)?;
        Ok(())
    }

    /// The verdict, after the last line.
    pub fn finish(self, keys: &[VerifyingKey]) -> Result<SessionVerdict, SessionError> {
        let State::Proof { header, tree, proof } = self.state else {
            return Err(SessionError::Cut { lines: self.lines });
        };
        let proof: InclusionProof = proof.parse()?;
        let record = proof.extra.as_deref().ok_or(SessionError::NotASeal)?;
        let checkpoint = proof.verify(record, keys)?;
        // From here on the sealing record is what was signed; the rest must agree with it.
        let (sealed, sealed_at) = seal(record).ok_or(SessionError::NotASeal)?;
        if sealed.session != header.session {
            return Err(SessionError::WrongSession { announced: header.session, sealed: sealed.session });
        }
        if sealed.record_count != header.records {
            return Err(SessionError::WrongCount { announced: header.records, sealed: sealed.record_count });
        }
        let computed = tree.root();
        if sealed.root != computed {
            return Err(SessionError::WrongRoot { computed, sealed: sealed.root });
        }
        let SessionHeader { session, records } = header;
        Ok(SessionVerdict { session, records, root: computed, sealed_at, index: proof.index, checkpoint })
    }

    fn next(&self, state: State, line: &str) -> Result<State, SessionError> {
        match state {
            State::Title if line == TITLE => Ok(State::Session),
            State::Title => Err(self.malformed("it is not `colibri/session-proof@v1`")),
            State::Session => match line.strip_prefix("session ") {
                Some(session) => Ok(State::Count { session: session.to_owned() }),
                None => Err(self.malformed("it is not `session ID`")),
            },
            State::Count { session } => match line.strip_prefix("records ").and_then(decimal) {
                Some(records) => {
                    let header = SessionHeader { session, records };
                    Ok(State::Records { header, tree: Frontier::default() })
                }
                None => Err(self.malformed("it is not `records N`")),
            },
            State::Records { header, tree } => self.record(line, header, tree),
            State::Proof { header, tree, mut proof } => {
                if proof.len() + line.len() >= PROOF_BYTES_MAX {
                    return Err(self.malformed("the proof is too long"));
                }
                proof.push_str(line);
                proof.push('\n');
                Ok(State::Proof { header, tree, proof })
            }
            State::Refused => Err(self.malformed("an earlier line was refused already")),
        }
    }

    fn record(&self, line: &str, header: SessionHeader, mut tree: Frontier) -> Result<State, SessionError> {
        let found = tree.size();
        match (found < header.records, line.is_empty()) {
            (true, false) if line.len() > RECORD_BYTES_MAX => Err(self.malformed("it is too long")),
            (true, false) if !is_of_session(line, &header.session) => {
                Err(SessionError::Stranger { line: self.lines, session: header.session })
            }
            (true, false) => {
                tree.append(leaf_hash(line.as_bytes()));
                Ok(State::Records { header, tree })
            }
            (true, true) => Err(SessionError::TooFew { announced: header.records, found }),
            (false, false) => Err(SessionError::TooMany { announced: header.records, line: self.lines }),
            (false, true) => Ok(State::Proof { header, tree, proof: String::new() }),
        }
    }

    fn malformed(&self, what: &'static str) -> SessionError {
        SessionError::Malformed { line: self.lines, what }
    }
}

/// Whether it is a thought that names the session, and whose own hash holds.
fn is_of_session(line: &str, session: &str) -> bool {
    match serde_json::from_str::<Record>(line).map(|record| record.event) {
        Ok(Event::ThoughtRecorded(thought)) => {
            thought.session_id.as_deref() == Some(session) && thought.hash == thought.hash_of()
        }
        _ => false,
    }
}

/// What the record says, if it sealed a session, and when.
fn seal(record: &[u8]) -> Option<(SessionFinalized, String)> {
    let record: Record = serde_json::from_slice(record).ok()?;
    match record.event {
        Event::SessionFinalized(sealed) => Some((sealed, record.at)),
        _ => None,
    }
}

/// Why a session's file proves nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// It is no such file, or a damaged one.
    #[error("not a session's proof: line {line}: {what}")]
    Malformed {
        /// Counted from 1.
        line: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// It ends before its proof.
    #[error("the file ends after {lines} lines, before its proof: it was cut")]
    Cut {
        /// How many lines there were.
        lines: u64,
    },
    /// A record that is no thought of the session, or not the one that was recorded.
    #[error("line {line} is no sound record of session `{session}`")]
    Stranger {
        /// Counted from 1.
        line: u64,
        /// The session that it should be of.
        session: String,
    },
    /// Records are missing.
    #[error("the file announces {announced} records and has {found}")]
    TooFew {
        /// How many it announces.
        announced: u64,
        /// How many it has.
        found: u64,
    },
    /// There are records that the session was not sealed with.
    #[error("the file announces {announced} records, but line {line} is one more")]
    TooMany {
        /// How many it announces.
        announced: u64,
        /// Where the first beyond them stands.
        line: u64,
    },
    /// The second half is no proof.
    #[error(transparent)]
    Proof(#[from] MalformedProof),
    /// The sealing record is not in the signed log.
    #[error(transparent)]
    NotProved(#[from] VerifyError),
    /// The record that is proved seals nothing.
    #[error("the proved record is not one that sealed a session")]
    NotASeal,
    /// The seal of another session.
    #[error("the file is of session `{announced}`, its seal of `{sealed}`")]
    WrongSession {
        /// The session it announces.
        announced: String,
        /// The session that was sealed.
        sealed: String,
    },
    /// The session was sealed with fewer or more records.
    #[error("the file has {announced} records, and the session was sealed with {sealed}")]
    WrongCount {
        /// How many there are.
        announced: u64,
        /// How many were sealed.
        sealed: u64,
    },
    /// A record was changed, or its place.
    #[error("the records add up to root {computed}, but {sealed} was sealed: some record was changed")]
    WrongRoot {
        /// What they add up to.
        computed: Hash,
        /// What was sealed.
        sealed: Hash,
    },
}
