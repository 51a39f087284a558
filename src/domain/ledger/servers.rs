//! The records about servers and their tools, fields in canonical order.
//!
//! `call` is the correlation id in each: that of the call, or, without one, that of the connection's
//! episode.

use serde::{Deserialize, Serialize};

use super::{CallId, Hash};
use crate::domain::pin::PinnedBy;

/// A server does something else.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerChanged {
    /// The correlation id.
    pub call: CallId,
    /// What it did.
    pub from: String,
    /// For people: what is wrong, if something is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its name in the configuration.
    pub server: String,
    /// What it does.
    pub to: String,
}

/// A server's process ended, with everything it had started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerEnded {
    /// The correlation id.
    pub call: CallId,
    /// For people: how.
    pub how: String,
    /// The limit that it went beyond, if that is why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// Its name in the configuration.
    pub server: String,
}

/// Definitions of tools were pinned: from now on, others are told or refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolPinned {
    /// Why it was believed.
    pub by: PinnedBy,
    /// The correlation id.
    pub call: CallId,
    /// The server's name in the configuration.
    pub server: String,
    /// Which; as many as fit one record.
    pub tools: Vec<PinnedTool>,
}

/// One definition that was pinned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PinnedTool {
    /// Of its definition; see `pin::digest`.
    pub digest: Hash,
    /// As its server calls it; see `ledger::identify`.
    pub tool: String,
}

/// A tool's definition is not the one that was pinned, or nobody has seen it before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolChanged {
    /// The correlation id.
    pub call: CallId,
    /// Whether it cannot be called until it is accepted.
    pub enforced: bool,
    /// The digest now.
    pub found: Hash,
    /// How many more tools were found so at the same time, without a record of their own.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: u64,
    /// The digest that was pinned; none for a tool that is new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<Hash>,
    /// The server's name in the configuration.
    pub server: String,
    /// As its server calls it.
    pub tool: String,
}

/// A result does not fit its tool's output schema.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutputMismatched {
    /// The correlation id.
    pub call: CallId,
    /// For people: the first of what does not fit.
    pub message: String,
    /// The server's name in the configuration.
    pub server: String,
    /// As its server calls it.
    pub tool: String,
}

/// A server runs with less of a sandbox than it would have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SandboxDegraded {
    /// The correlation id.
    pub call: CallId,
    /// The layers that are missing, as a person allowed; as many as fit.
    pub layers: Vec<String>,
    /// Whether there is no sandbox at all, as a person asked.
    pub off: bool,
    /// The server's name in the configuration.
    pub server: String,
}

/// A configuration took effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConfigurationLoaded {
    /// The correlation id.
    pub call: CallId,
    /// How many files it was read from.
    pub file_count: u64,
    /// Which, in the order of their precedence; as many as fit.
    pub files: Vec<LoadedFile>,
    /// How many servers it has.
    pub server_count: u64,
    /// Which; as many as fit.
    pub servers: Vec<String>,
}

/// A file of a configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadedFile {
    /// SHA-256 of its bytes.
    pub digest: Hash,
    /// Where it lies.
    pub path: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}
