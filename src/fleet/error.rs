//! Why a request to a server failed, and what that means for trying again.

use std::time::Duration;

use crate::mcp::error::code;

/// What went wrong with one attempt.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
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
    /// The network or the server's side of it failed; it may work again.
    #[error("{0}")]
    Network(String),
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

impl Cause {
    /// Exhaustive on purpose: a new cause must say here, at compile time, what it means.
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::Answered { code, .. } => match *code {
                // -32001 and -32000 are what SDKs call a timeout and a closed connection.
                code::INTERNAL_ERROR | -32_001 | -32_000 => Verdict::Transient,
                _ => Verdict::Final,
            },
            Self::TimedOut(_) | Self::Network(_) => Verdict::Transient,
            Self::Gone(_) => Verdict::Lost,
            Self::Closed
            | Self::Protocol(_)
            | Self::Version { .. }
            | Self::Unauthorized(_)
            | Self::Start { .. } => Verdict::Final,
        }
    }
}
