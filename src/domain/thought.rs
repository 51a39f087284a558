//! Thoughts: the reasons on record, one chain per task.
//!
//! Owns: what a thought's hash covers, and when a chain is broken. The hash covers everything the
//! thought means; the text itself enters it as a salted digest, so that it can be erased.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::audit::CallId;
use super::ledger::Sealed;
use super::merkle::Hash;

/// The codes with which sessions and thoughts are refused.
pub mod code {
    /// There is no such session.
    pub const SESSION_NOT_FOUND: &str = "ERR_SESSION_NOT_FOUND";
    /// A session of that id exists.
    pub const SESSION_EXISTS: &str = "ERR_SESSION_EXISTS";
    /// The session is sealed; nothing can be added.
    pub const SESSION_FINALIZED: &str = "ERR_SESSION_FINALIZED";
    /// The session was sealed before.
    pub const ALREADY_FINALIZED: &str = "ERR_ALREADY_FINALIZED";
    /// The session is not sealed yet.
    pub const NOT_FINALIZED: &str = "ERR_NOT_FINALIZED";
    /// The session has no records to seal.
    pub const NO_RECORDS: &str = "ERR_NO_RECORDS";
    /// `audit.requireSession` is set, and none was named.
    pub const SESSION_REQUIRED: &str = "ERR_SESSION_REQUIRED";
}

/// What kind of reason it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Kind {
    /// What will be done.
    Plan,
    /// What was found.
    Analysis,
    /// What was chosen, and why.
    Decision,
    /// What was learnt.
    Reflection,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Plan, Self::Analysis, Self::Decision, Self::Reflection];

    /// As it stands on the wire and in the store.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Analysis => "analysis",
            Self::Decision => "decision",
            Self::Reflection => "reflection",
        }
    }
}

/// A thought, as the ledger knows it: fields in canonical order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Thought {
    /// Who thought it.
    pub agent_id: String,
    /// The call that recorded it.
    pub call: CallId,
    /// The text.
    pub content: Sealed,
    /// Covers all the rest; see [`Thought::hash_of`].
    pub hash: Hash,
    /// A UUID.
    pub id: String,
    /// The hash of the thought before it in the task's chain; zeros for the first.
    pub prev_hash: Hash,
    /// The session it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The task it is about.
    pub task_id: String,
    /// When, RFC 3339.
    pub timestamp: String,
    /// What kind of reason it is.
    #[serde(rename = "type")]
    pub kind: Kind,
}

impl Thought {
    /// The hash, recomputed: SHA-256 over the canonical JSON of everything the thought means.
    pub fn hash_of(&self) -> Hash {
        #[derive(Serialize)]
        struct Covered<'a> {
            agent_id: &'a str,
            content: Hash,
            id: &'a str,
            prev_hash: Hash,
            session_id: Option<&'a str>,
            task_id: &'a str,
            timestamp: &'a str,
            #[serde(rename = "type")]
            kind: Kind,
        }
        let covered = Covered {
            agent_id: &self.agent_id,
            content: self.content.digest,
            id: &self.id,
            prev_hash: self.prev_hash,
            session_id: self.session_id.as_deref(),
            task_id: &self.task_id,
            timestamp: &self.timestamp,
            kind: self.kind,
        };
        let canonical = serde_json::to_vec(&covered).expect("strings always serialise");
        Hash(Sha256::digest(canonical).into())
    }

    /// With its hash computed.
    #[must_use]
    pub fn sealed(mut self) -> Self {
        self.hash = self.hash_of();
        self
    }
}

/// One task's chain, walked in order.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    last: Option<Hash>,
    /// How many thoughts were walked.
    pub record_count: u64,
    /// How many of them are broken.
    pub broken_count: u64,
    /// The id of the first that is.
    pub first_broken_at: Option<String>,
}

impl Chain {
    /// The next thought; `body_agrees` tells whether the text beside it is the one it seals.
    pub fn next(&mut self, thought: &Thought, body_agrees: bool) {
        let follows = thought.prev_hash == self.last.unwrap_or(Hash::ZERO);
        if !(follows && body_agrees && thought.hash_of() == thought.hash) {
            self.breaks(&thought.id);
        }
        self.record_count += 1;
        self.last = Some(thought.hash);
    }

    /// A thought that cannot even be read.
    pub fn unreadable(&mut self, id: &str) {
        self.breaks(id);
        self.record_count += 1;
    }

    /// What is broken beyond the thoughts themselves: the chain's end is not the one kept.
    pub fn ends_wrong(&mut self, id: &str) {
        self.breaks(id);
    }

    /// The hash of the last thought walked.
    pub fn last(&self) -> Hash {
        self.last.unwrap_or(Hash::ZERO)
    }

    fn breaks(&mut self, id: &str) {
        self.broken_count += 1;
        self.first_broken_at.get_or_insert_with(|| id.to_owned());
    }
}
