//! Ledger records: what is written, and the exact bytes it is written as.
//!
//! A record is canonical JSON (RFC 8785): every struct here declares its fields in sorted order and
//! holds only strings, booleans and integers below 2^53, so that plain serialisation *is* the
//! canonical form; a test compares it with an independent canonicaliser. Bodies (arguments,
//! results) are not part of a record. They enter it as salted digests and live beside the log, so
//! that they can be erased without breaking a proof. `ledger/servers` has the records about servers
//! and their tools.

mod servers;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::audit::{CallId, Outcome, Principal};
use super::merkle::Hash;
use super::thought::Thought;

pub use self::servers::{
    ConfigurationLoaded, LoadedFile, OutputMismatched, PinnedTool, SandboxDegraded, ServerChanged,
    ServerEnded, ToolChanged, ToolPinned,
};

/// The version of the record format.
pub const FORMAT: u8 = 1;

/// A leaf must fit a C2SP entry bundle, whose length prefix has 16 bits.
pub const RECORD_BYTES_MAX: usize = (1 << 16) - 1;

/// Names that come from outside are clipped to this in records; their whole length is the
/// client's to waste, not the log's.
pub const NAME_BYTES_MAX: usize = 256;

/// One record, fields in canonical order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Wall clock, RFC 3339 in UTC, for people. Order is the index, never the clock.
    pub at: String,
    /// What happened: `event` and `facts`.
    #[serde(flatten)]
    pub event: Event,
    /// Its place in the log, without gaps.
    pub index: u64,
    /// The log's origin, so that no record can be moved to another log.
    pub log: String,
    /// The leaf hash of the record before it; [`Hash::ZERO`] for the first.
    pub prev: Hash,
    /// See [`FORMAT`].
    pub v: u8,
}

impl Record {
    /// The bytes that are stored, hashed and proved.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and integers always serialise")
    }
}

/// What every record says, whatever its event: enough to verify records of a newer colibri.
#[derive(Debug, Deserialize)]
pub struct Common {
    /// See [`Record::at`].
    pub at: String,
    /// The event's name.
    pub event: String,
    /// See [`Record::index`].
    pub index: u64,
    /// See [`Record::log`].
    pub log: String,
    /// See [`Record::prev`].
    pub prev: Hash,
}

/// Everything that can be on record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", content = "facts")]
pub enum Event {
    /// The first record of every log.
    #[serde(rename = "log.opened")]
    LogOpened(LogOpened),
    /// A call is about to run, or was refused.
    #[serde(rename = "call.enter")]
    CallEnter(CallEnter),
    /// A call ended.
    #[serde(rename = "call.exit")]
    CallExit(CallExit),
    /// The key that signs checkpoints was replaced.
    #[serde(rename = "key.rotated")]
    KeyRotated(KeyRotated),
    /// A task was created, changed or claimed.
    #[serde(rename = "task.changed")]
    TaskChanged(TaskChanged),
    /// A reason was given.
    #[serde(rename = "thought.recorded")]
    ThoughtRecorded(Thought),
    /// A session began.
    #[serde(rename = "session.started")]
    SessionStarted(SessionStarted),
    /// A session was sealed.
    #[serde(rename = "session.finalized")]
    SessionFinalized(SessionFinalized),
    /// A skill was met for the first time, or has changed.
    #[serde(rename = "skill.seen")]
    SkillSeen(SkillSeen),
    /// A server does something else.
    #[serde(rename = "server.changed")]
    ServerChanged(ServerChanged),
    /// A server's process ended.
    #[serde(rename = "server.ended")]
    ServerEnded(ServerEnded),
    /// Definitions of tools were pinned.
    #[serde(rename = "tool.pinned")]
    ToolPinned(ToolPinned),
    /// A tool's definition is not the one that was pinned.
    #[serde(rename = "tool.changed")]
    ToolChanged(ToolChanged),
    /// A result does not fit its tool's output schema.
    #[serde(rename = "output.mismatched")]
    OutputMismatched(OutputMismatched),
    /// A server runs with less of a sandbox than it would have.
    #[serde(rename = "sandbox.degraded")]
    SandboxDegraded(SandboxDegraded),
    /// A configuration took effect.
    #[serde(rename = "configuration.loaded")]
    ConfigurationLoaded(ConfigurationLoaded),
}

/// A log begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogOpened {
    /// The public key that signs its checkpoints, as a C2SP verifier key.
    pub key: String,
    /// The log it replaces, after a loss that a person accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predecessor: Option<Predecessor>,
    /// The colibri that opened it.
    pub version: String,
}

/// The last that is known of a log that was given up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Predecessor {
    /// The newest checkpoint seen of it, as a signed note; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
    /// Its origin, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Why it was given up: what colibri refused with.
    pub reason: String,
}

/// Stage 3 of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallEnter {
    /// The arguments.
    pub args: Sealed,
    /// The correlation id.
    pub call: CallId,
    /// Monotonic clock, milliseconds since the process started.
    pub mono_ms: u64,
    /// Who asked.
    pub principal: Principal,
    /// The process that serves it; recovery asks whether it still lives.
    pub process: String,
    /// The protocol revision the client speaks.
    pub revision: String,
    /// The call's number; enter and exit share it.
    pub sequence_no: u64,
    /// The tool.
    pub tool: String,
}

/// Stage 5 of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallExit {
    /// The correlation id.
    pub call: CallId,
    /// The error code, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// From arrival to end, on the monotonic clock; absent if nobody saw the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// How it ended.
    pub outcome: Outcome,
    /// What the client was answered; absent if nobody saw the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Sealed>,
    /// The call's number; enter and exit share it.
    pub sequence_no: u64,
}

/// One key hands over to the next. The checkpoint that covers this record is signed by the old one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeyRotated {
    /// The key from now on.
    pub new: String,
    /// The key until now.
    pub old: String,
}

/// A task changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskChanged {
    /// The call that changed it.
    pub call: CallId,
    /// `created`, `updated` or `claimed`.
    pub change: String,
    /// The whole task after the change, as JSON, kept beside the record.
    pub content: Sealed,
    /// Where it is now.
    pub status: String,
    /// Its id.
    pub task: String,
    /// Its version now.
    pub version: u64,
}

/// A session began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionStarted {
    /// The call that began it.
    pub call: CallId,
    /// What it is for, as text kept beside the record.
    pub intent: Sealed,
    /// Its id.
    pub session: String,
    /// The task it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
}

/// A session was sealed: nothing can be added to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionFinalized {
    /// The call that sealed it.
    pub call: CallId,
    /// How many records it has.
    pub record_count: u64,
    /// The RFC 6962 root over its records' bytes, in order.
    pub root: Hash,
    /// Its id.
    pub session: String,
}

/// A skill, as it was when it was met.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SkillSeen {
    /// The call that met it.
    pub call: CallId,
    /// Its folder, and every file with its digest and size, as JSON kept beside the record.
    pub content: Sealed,
    /// SHA-256 over what `sha256sum` prints for its files in the order of their paths.
    pub digest: Hash,
    /// How many files that covers.
    pub files: u64,
    /// Its name.
    pub name: String,
    /// Whose folder it lies in: `project`, `configured` or `user`.
    pub source: String,
}

/// A body, as the record knows it: salted, so that short or guessable bodies stay private and the
/// body can be erased with its salt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sealed {
    /// SHA-256 over salt and raw bytes.
    pub digest: Hash,
    /// How long the body is.
    pub size: u64,
    /// The part that is kept beside the log; absent if none is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stored: Option<Stored>,
}

/// The kept part of a body.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stored {
    /// SHA-256 over salt and the kept bytes.
    pub digest: Hash,
    /// How much is kept, from the start.
    pub size: u64,
}

/// Random bytes that make a digest say nothing about its body.
pub type Salt = [u8; 16];

impl Sealed {
    /// Seals a body of which the first `kept` bytes are stored.
    pub fn new(salt: &Salt, body: &[u8], kept: usize) -> Self {
        let digest = salted(salt, body);
        let stored = (kept > 0).then(|| Stored {
            digest: if kept == body.len() { digest } else { salted(salt, &body[..kept]) },
            size: kept as u64,
        });
        Self { digest, size: body.len() as u64, stored }
    }
}

/// SHA-256 over salt and bytes.
pub fn salted(salt: &[u8], bytes: &[u8]) -> Hash {
    Hash(Sha256::new().chain_update(salt).chain_update(bytes).finalize().into())
}

/// The text, clipped to [`NAME_BYTES_MAX`] at a character's border.
pub fn clip(text: &str) -> &str {
    &text[..text.floor_char_boundary(NAME_BYTES_MAX)]
}

/// A name as records know it: itself, or, if it is longer than [`NAME_BYTES_MAX`], its beginning and
/// its digest. What is shortened stays longer than any name that is not, so that no two names meet.
pub fn identify(name: &str) -> Cow<'_, str> {
    if name.len() <= NAME_BYTES_MAX {
        return Cow::Borrowed(name);
    }
    let digest = Hash(Sha256::digest(name).into());
    Cow::Owned(format!("{}…{digest}", clip(name)))
}

impl Hash {
    /// What stands before the first record: nothing, written as 64 zeros.
    pub const ZERO: Self = Self([0; 32]);
}

impl Serialize for Hash {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
