//! Why a request to a server failed, and what that means for trying again.

use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::domain::ledger::clip;
use crate::mcp::error::code;

/// What went wrong with one attempt.
#[derive(Clone, Debug, PartialEq, thiserror::Error, serde::Serialize, serde::Deserialize)]
pub enum Cause {
    /// The server answered a JSON-RPC error.
    #[error("{message} ({code})")]
    Answered {
        /// Its code.
        code: i32,
        /// Its message.
        message: String,
        /// The whole error, as raw JSON.
        raw: String,
    },
    /// No answer within the deadline.
    #[error("no answer within {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// The server was not reached: no such host, refused, no trust in its certificate.
    #[error("{0}")]
    Unreachable(String),
    /// The network failed on the way; whether the request arrived is not known.
    #[error("{0}")]
    Network(String),
    /// The server, or something in front of it, answered with a status instead of a message.
    #[error("the server answered HTTP {status}{text}")]
    Http {
        /// The status.
        status: u16,
        /// `: ` and the beginning of what it said, or nothing.
        text: String,
        /// How long it asked to be left alone.
        retry_after: Option<Duration>,
    },
    /// The server has forgotten the session, and did not look at the request.
    #[error("the server has forgotten the session")]
    SessionLost,
    /// This many requests wait for answers already.
    #[error("{0} requests wait for answers already")]
    Busy(usize),
    /// The link is gone for good: a child that ended, a socket that closed.
    #[error("the connection ended: {0}")]
    Gone(String),
    /// The bridge was closed by its owner.
    #[error("the bridge is closed")]
    Closed,
    /// What the server said is not MCP.
    #[error("the server does not speak MCP: {0}")]
    Protocol(String),
    /// The two sides have no protocol revision in common.
    #[error("no common protocol version: the server offers {server}, colibri speaks {ours}")]
    Version {
        /// What the server offered.
        server: String,
        /// What we speak.
        ours: String,
    },
    /// The server wants to know who we are, and cannot be told without a person's help.
    #[error("{0}")]
    Unauthorized(String),
    /// The address or a header is none.
    #[error("{0}")]
    Invalid(String),
    /// The server could not be started.
    #[error("cannot start {program}: {reason}")]
    Start {
        /// What was to be started.
        program: String,
        /// Why it was not.
        reason: String,
    },
}

/// What an attempt's failure means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may go better next time.
    Transient,
    /// It may go better, but not on this connection.
    Lost,
    /// It will go the same way.
    Final,
}

/// Whether the server may have done what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executed {
    /// Surely not: the request never reached what would have done it.
    No,
    /// Perhaps.
    Unknown,
}

impl Executed {
    /// Of two attempts together.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        if self == Self::No { other } else { self }
    }
}

impl Cause {
    /// The same, of a request that was not sent: it had no effect, and another connection may take it.
    pub(super) fn unsent(self) -> Self {
        match self {
            Self::Closed => Self::Unreachable("the connection was closed before it was sent".to_owned()),
            other => other,
        }
    }

    /// Exhaustive on purpose: a new cause must say here, at compile time, what it means.
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::Answered { code, .. } => match *code {
                // -32001 and -32000 are what SDKs call a timeout and a closed connection.
                code::INTERNAL_ERROR | -32_001 | -32_000 => Verdict::Transient,
                _ => Verdict::Final,
            },
            Self::Http { status: 429 | 502..=504, .. }
            | Self::TimedOut(_)
            | Self::Unreachable(_)
            | Self::Network(_)
            | Self::Busy(_) => Verdict::Transient,
            Self::Gone(_) | Self::SessionLost => Verdict::Lost,
            Self::Closed
            | Self::Http { .. }
            | Self::Protocol(_)
            | Self::Version { .. }
            | Self::Unauthorized(_)
            | Self::Invalid(_)
            | Self::Start { .. } => Verdict::Final,
        }
    }

    /// Exhaustive on purpose, too.
    pub fn executed(&self) -> Executed {
        match self {
            Self::Unreachable(_)
            | Self::SessionLost
            | Self::Busy(_)
            | Self::Closed
            | Self::Version { .. }
            | Self::Unauthorized(_)
            | Self::Invalid(_)
            | Self::Start { .. }
            // What refuses a request before it is looked at: a router, a rate limit.
            | Self::Http { status: 404 | 405 | 413 | 415 | 429, .. } => Executed::No,
            Self::Answered { .. }
            | Self::TimedOut(_)
            | Self::Network(_)
            | Self::Http { .. }
            | Self::Gone(_)
            | Self::Protocol(_) => Executed::Unknown,
        }
    }

    /// How long the server asked to be left alone.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Http { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// The `error` of an answer.
    pub(super) fn answered(raw: &Bytes) -> Self {
        #[derive(serde::Deserialize)]
        struct Answered<'a> {
            code: i32,
            // A message that is no text must not cost the code.
            #[serde(borrow)]
            message: Option<&'a RawValue>,
        }
        match serde_json::from_slice::<Answered<'_>>(raw) {
            Ok(Answered { code, message }) => {
                let raw_message = message.map(RawValue::get).unwrap_or_default();
                let message = serde_json::from_str(raw_message).unwrap_or_else(|_| raw_message.to_owned());
                let message = clip(&message).to_owned();
                Self::Answered { code, message, raw: String::from_utf8_lossy(raw).into_owned() }
            }
            Err(error) => Self::Protocol(format!("an error without a code: {error}")),
        }
    }
}
