//! Thoughts: the reasons on record, one chain per task.
//!
//! Owns: what a thought's hash covers, and when a chain is broken. The hash covers everything the
//! thought means; the text itself enters it as a salted digest, so that it can be erased.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::audit::CallId;
use super::failure::Refusal;
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

/// The refusal of what names a session that is not there.
pub fn no_session(id: &str) -> Refusal {
    let shown: String = id.chars().take(64).collect();
    Refusal::new(
        code::SESSION_NOT_FOUND,
        format!("there is no session {shown}; begin one with audit_session_start"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SU-9: the hash covers all of a thought's meaning: whatever of it is changed, it changes.
    #[test]
    fn the_hash_covers_all_of_the_meaning() {
        let thought = thought("one", Hash::ZERO);
        let edits: [fn(&mut Thought); 8] = [
            |thought| thought.agent_id.push('x'),
            |thought| thought.content.digest = Hash([7; 32]),
            |thought| thought.id.push('x'),
            |thought| thought.prev_hash = Hash([7; 32]),
            |thought| thought.session_id = None,
            |thought| thought.task_id.push('x'),
            |thought| thought.timestamp.push('x'),
            |thought| thought.kind = Kind::Plan,
        ];
        for (number, edit) in edits.iter().enumerate() {
            let mut changed = thought.clone();
            edit(&mut changed);
            assert_ne!(changed.hash_of(), thought.hash, "edit {number} is not covered");
        }
    }

    /// SU-9: what is hashed is RFC 8785 canonical JSON, recomputed here by an independent canonicaliser.
    #[test]
    fn what_is_hashed_is_canonical_json() {
        let mut thought = thought("é \"q\"\n", Hash::ZERO);
        for session_id in [Some("s".to_owned()), None] {
            thought.session_id = session_id;
            let meaning = serde_json::json!({
                "type": thought.kind, "timestamp": thought.timestamp, "task_id": thought.task_id,
                "session_id": thought.session_id, "prev_hash": thought.prev_hash, "id": thought.id,
                "content": thought.content.digest, "agent_id": thought.agent_id,
            });
            let canonical = serde_json_canonicalizer::to_vec(&meaning).unwrap();
            assert_eq!(thought.hash_of(), Hash(Sha256::digest(canonical).into()));
        }
    }

    /// SU-9, SU-10: a chain is broken where a link, a hash or a text is wrong, and counts on.
    #[test]
    fn a_chain_tells_its_first_broken_thought() {
        let first = thought("one", Hash::ZERO);
        let second = thought("two", first.hash);
        let third = thought("three", second.hash);
        let walk = |thoughts: &[(&Thought, bool)]| {
            let mut chain = Chain::default();
            for (thought, agrees) in thoughts {
                chain.next(thought, *agrees);
            }
            (chain.record_count, chain.broken_count, chain.first_broken_at)
        };
        let id = |thought: &Thought| Some(thought.id.clone());
        assert_eq!(walk(&[]), (0, 0, None));
        assert_eq!(walk(&[(&first, true), (&second, true), (&third, true)]), (3, 0, None));
        assert_eq!(walk(&[(&first, true), (&second, false), (&third, true)]), (3, 1, id(&second)));
        assert_eq!(walk(&[(&first, true), (&third, true)]), (2, 1, id(&third)), "one is missing");
        assert_eq!(walk(&[(&second, true), (&third, true)]), (2, 1, id(&second)), "the first is missing");
        assert_eq!(walk(&[(&first, true), (&third, true), (&second, true)]), (3, 2, id(&third)));
        let mut forged = second.clone();
        forged.agent_id = "eve".to_owned();
        assert_eq!(walk(&[(&first, true), (&forged, true), (&third, true)]), (3, 1, id(&forged)));
        let mut chain = Chain::default();
        chain.next(&first, true);
        chain.unreadable("x");
        chain.ends_wrong("y");
        assert_eq!((chain.record_count, chain.broken_count), (2, 2));
        assert_eq!((chain.first_broken_at.as_deref(), chain.last), (Some("x"), Some(first.hash)));
    }

    fn thought(text: &str, prev_hash: Hash) -> Thought {
        Thought {
            agent_id: "ada".to_owned(),
            call: CallId(uuid::Uuid::nil()),
            content: Sealed::new(&[7; 16], text.as_bytes(), text.len()),
            hash: Hash::ZERO,
            id: format!("id of {text}"),
            prev_hash,
            session_id: Some("s".to_owned()),
            task_id: "t".to_owned(),
            timestamp: "2026-11-15T20:55:00.000Z".to_owned(),
            kind: Kind::Decision,
        }
        .sealed()
    }
}
