//! The audit port: what is told about every call, before it runs and after it ended.
//!
//! The call path tells; a sink records. The store implements the port with the ledger; a library
//! user may hand in a sink of their own.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::clock::{Moment, Timestamp};
use super::failure::Failure;

/// The name of one call, made on arrival: a UUID of version 7, so that ids sort by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallId(pub Uuid);

impl fmt::Display for CallId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(out)
    }
}

/// On whose behalf a call is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Principal {
    /// What the client calls itself. Told, not proved.
    pub client: String,
    /// The operating-system user that colibri runs as.
    pub user: String,
}

/// How a call ended, or that it has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Not ended yet. Never written: it is the absence of an end.
    Running,
    /// It did what was asked.
    Ok,
    /// It failed.
    Error,
    /// It was refused before it ran.
    Rejected,
    /// Its deadline passed.
    Timeout,
    /// The client or a shutdown cancelled it.
    Cancelled,
    /// colibri died while it ran.
    Unknown,
}

impl Outcome {
    /// As it stands in records and listings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Ok => "ok",
            Self::Error => "error",
            Self::Rejected => "rejected",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Unknown => "unknown",
        }
    }
}

/// Told before a call is dispatched.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Enter {
    /// Joins this to its [`Exit`].
    pub call: CallId,
    /// The tool, as the client named it.
    pub tool: Arc<str>,
    /// The arguments, as raw JSON: validated, or as they came if the call was rejected.
    pub arguments: Bytes,
    /// Who asked.
    pub principal: Arc<Principal>,
    /// The protocol revision the client speaks.
    pub revision: &'static str,
    /// When the call arrived.
    pub at: Moment,
}

impl Enter {
    /// All that is known of a call when it arrives.
    pub fn new(
        call: CallId,
        tool: Arc<str>,
        arguments: Bytes,
        principal: Arc<Principal>,
        revision: &'static str,
        at: Moment,
    ) -> Self {
        Self { call, tool, arguments, principal, revision, at }
    }
}

/// Told after a call ended, however it ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Exit {
    /// Joins this to its [`Enter`].
    pub call: CallId,
    /// The tool, as the client named it.
    pub tool: Arc<str>,
    /// When it ended.
    pub at: Moment,
    /// From arrival to end, on the monotonic clock.
    pub duration: Duration,
    /// How it ended.
    pub outcome: Outcome,
    /// What the client was answered, as raw JSON.
    pub body: Bytes,
    /// Why it failed; absent on success.
    pub error: Option<Failure>,
}

impl Exit {
    /// The end of the call that `enter` began.
    pub fn of(enter: &Enter, at: Moment, outcome: Outcome, body: Bytes, error: Option<Failure>) -> Self {
        let duration = at.since_boot.saturating_sub(enter.at.since_boot);
        Self { call: enter.call, tool: Arc::clone(&enter.tool), at, duration, outcome, body, error }
    }

    /// The result, if there is one.
    pub fn result(&self) -> Option<&Bytes> {
        self.error.is_none().then_some(&self.body)
    }
}

/// Why a sink could not record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AuditError(pub String);

/// The last time a record could not be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditTrouble {
    /// When.
    pub at: Timestamp,
    /// Which stage, and why.
    pub message: String,
}

/// A boxed future: the port is used through `dyn`, so that layers stay free of type parameters.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Where calls are put on record.
pub trait AuditSink: Send + Sync + 'static {
    /// Stage 3. Until this returns `Ok`, the call does not run.
    fn enter<'a>(&'a self, event: &'a Enter) -> Pending<'a, Result<(), AuditError>>;

    /// Stage 5. Its failure is logged; the call's own outcome stands.
    fn exit<'a>(&'a self, event: &'a Exit) -> Pending<'a, Result<(), AuditError>>;

    /// Stage 5 of a call that was refused before stage 3: the whole pair at once.
    fn rejected<'a>(&'a self, enter: &'a Enter, exit: &'a Exit) -> Pending<'a, Result<(), AuditError>> {
        Box::pin(async move {
            self.enter(enter).await?;
            self.exit(exit).await
        })
    }
}

/// The sink of a library user who wants no record.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoAudit;

impl AuditSink for NoAudit {
    fn enter<'a>(&'a self, _: &'a Enter) -> Pending<'a, Result<(), AuditError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn exit<'a>(&'a self, _: &'a Exit) -> Pending<'a, Result<(), AuditError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// When a record must be on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Durability {
    /// The enter record before the call is forwarded; the exit record does not hold the reply.
    #[default]
    Admission,
    /// The exit record too, before the reply.
    Strict,
    /// Committed at once, on disk a moment later: a power cut may lose the newest records.
    Relaxed,
}

/// How much of arguments and results is kept beside the log. The record seals them whole either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Payloads {
    /// Nothing but digests.
    None,
    /// The first 4 KiB.
    #[default]
    Truncated,
    /// All of it.
    Full,
}

/// What becomes of a call whose end could not be recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OnExitFailure {
    /// Its outcome stands; the failure is logged and shown in `server_health`.
    #[default]
    Log,
    /// It fails with `AUDIT_EXIT_FAILED`. Needs `audit.durability` `strict`.
    Fail,
}

impl Payloads {
    /// Enough to recognise a call, little enough to keep for years.
    pub const TRUNCATED_BYTES: usize = 4 << 10;

    /// How many bytes of a body of this length are kept.
    pub fn kept(self, length: usize) -> usize {
        match self {
            Self::None => 0,
            Self::Truncated => length.min(Self::TRUNCATED_BYTES),
            Self::Full => length,
        }
    }
}
