//! Why a server's tool could not be called: one taxonomy, decided by one exhaustive match each for the
//! code, for trying again, and for whether it may have had an effect.

use serde::Serialize;
use serde_json::{Value, json};

use super::failure::Failure;

/// A proxied call that did not end with the tool's own success.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Provider {
    /// What decides.
    pub kind: Kind,
    /// For people.
    pub message: String,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Start or handshake failed for a reason that only a change can cure.
    InitFailed,
    /// Not connected.
    Unavailable(Down),
    /// The deadline passed.
    Timeout,
    /// The process ended during the call.
    Crashed,
    /// The server answered a JSON-RPC error, which is relayed as it is.
    ExecuteFailed {
        /// Its code.
        code: i32,
        /// The whole error, as raw JSON.
        raw: String,
    },
    /// The mode forbids the tool.
    PolicyDenied,
    /// The arguments do not fit the tool's schema.
    InvalidInput,
    /// The client or a shutdown cancelled it.
    Cancelled {
        /// Whether it had been sent.
        sent: bool,
    },
    /// The server was removed, or colibri is stopping.
    Terminated,
    /// The tool itself said that it failed; its result is passed on unchanged.
    ToolError,
}

/// Why a server is not connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Down {
    /// It is being started again.
    Restarting,
    /// It could not be started again.
    RestartFailed,
    /// It has never been ready.
    NotStarted,
    /// The connection was lost with the call on it.
    LinkLost,
}

/// Whether the server may have done what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Executed {
    /// Surely not.
    No,
    /// Perhaps.
    Unknown,
    /// Surely.
    Yes,
}

impl Provider {
    /// A failure of that kind.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// Stable, for machines.
    pub fn code(&self) -> &'static str {
        match self.kind {
            Kind::InitFailed => "PROVIDER_INIT_FAILED",
            Kind::Unavailable(_) => "PROVIDER_UNAVAILABLE",
            Kind::Timeout => "PROVIDER_TIMEOUT",
            Kind::Crashed => "PROVIDER_CRASHED",
            Kind::ExecuteFailed { .. } => "PROVIDER_EXECUTE_FAILED",
            Kind::PolicyDenied => "PROVIDER_POLICY_DENIED",
            Kind::InvalidInput => "PROVIDER_INVALID_INPUT",
            Kind::Cancelled { .. } => "PROVIDER_CANCELLED",
            Kind::Terminated => "PROVIDER_TERMINATED",
            Kind::ToolError => "PROVIDER_TOOL_ERROR",
        }
    }

    /// Whether it may go better later.
    pub fn retryable(&self) -> bool {
        match self.kind {
            Kind::Unavailable(_) | Kind::Timeout | Kind::Crashed => true,
            // JSON-RPC's internal error, and no other.
            Kind::ExecuteFailed { code, .. } => code == -32_603,
            Kind::InitFailed
            | Kind::PolicyDenied
            | Kind::InvalidInput
            | Kind::Cancelled { .. }
            | Kind::Terminated
            | Kind::ToolError => false,
        }
    }

    /// Whether it may have had an effect.
    pub fn executed(&self) -> Executed {
        match self.kind {
            Kind::InitFailed
            | Kind::Unavailable(Down::Restarting | Down::RestartFailed | Down::NotStarted)
            | Kind::PolicyDenied
            | Kind::InvalidInput
            | Kind::Cancelled { sent: false }
            | Kind::Terminated => Executed::No,
            Kind::Unavailable(Down::LinkLost)
            | Kind::Timeout
            | Kind::Crashed
            | Kind::ExecuteFailed { .. }
            | Kind::Cancelled { sent: true } => Executed::Unknown,
            Kind::ToolError => Executed::Yes,
        }
    }

    /// More exactly why, where a code has several reasons.
    pub fn reason(&self) -> Option<&'static str> {
        match self.kind {
            Kind::Unavailable(down) => Some(match down {
                Down::Restarting => "mcp_restart_in_progress",
                Down::RestartFailed => "mcp_restart_failed",
                Down::NotStarted => "init_failed",
                Down::LinkLost => "link_lost",
            }),
            _ => None,
        }
    }

    /// As the record and the client see it.
    pub fn failure(&self) -> Failure {
        let mut details = json!({ "retryable": self.retryable(), "executed": self.executed() });
        if let Some(reason) = self.reason() {
            details["reason"] = Value::from(reason);
        }
        Failure::new(self.code(), self.message.clone()).with(details)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SB-11: the table, row by row: code, retryable, executed, reason.
    #[test]
    fn the_taxonomy() {
        let error = |code| Kind::ExecuteFailed { code, raw: "{}".to_owned() };
        for (kind, row) in [
            (Kind::InitFailed, "PROVIDER_INIT_FAILED false no"),
            (Kind::Unavailable(Down::Restarting), "PROVIDER_UNAVAILABLE true no mcp_restart_in_progress"),
            (Kind::Unavailable(Down::RestartFailed), "PROVIDER_UNAVAILABLE true no mcp_restart_failed"),
            (Kind::Unavailable(Down::NotStarted), "PROVIDER_UNAVAILABLE true no init_failed"),
            (Kind::Unavailable(Down::LinkLost), "PROVIDER_UNAVAILABLE true unknown link_lost"),
            (Kind::Timeout, "PROVIDER_TIMEOUT true unknown"),
            (Kind::Crashed, "PROVIDER_CRASHED true unknown"),
            (error(-32_603), "PROVIDER_EXECUTE_FAILED true unknown"),
            (error(-32_602), "PROVIDER_EXECUTE_FAILED false unknown"),
            (Kind::PolicyDenied, "PROVIDER_POLICY_DENIED false no"),
            (Kind::InvalidInput, "PROVIDER_INVALID_INPUT false no"),
            (Kind::Cancelled { sent: false }, "PROVIDER_CANCELLED false no"),
            (Kind::Cancelled { sent: true }, "PROVIDER_CANCELLED false unknown"),
            (Kind::Terminated, "PROVIDER_TERMINATED false no"),
            (Kind::ToolError, "PROVIDER_TOOL_ERROR false yes"),
        ] {
            let failure = Provider::new(kind, "why").failure();
            let details = failure.details.expect("it always has them");
            let mut told = format!(
                "{} {} {}",
                failure.code,
                details["retryable"],
                details["executed"].as_str().expect("a word")
            );
            if let Some(reason) = details["reason"].as_str() {
                told = format!("{told} {reason}");
            }
            assert_eq!(told, row);
        }
    }
}
