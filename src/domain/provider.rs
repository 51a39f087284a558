//! Why colibri failed a proxied call: one taxonomy, for every server and every transport.
//!
//! Owns: the `PROVIDER_*` codes, what each means for whoever wants to try again, and how it is told.
//! Must not know: how a failure was noticed. Whoever noticed it chose the variant; no text is searched.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use super::audit::Outcome;
use super::failure::{Failure, Issue, invalid_params};

/// The codes, stable.
pub mod code {
    /// Start or handshake failed for a reason that only a change can cure.
    pub const INIT_FAILED: &str = "PROVIDER_INIT_FAILED";
    /// The server is not connected, or its link was lost.
    pub const UNAVAILABLE: &str = "PROVIDER_UNAVAILABLE";
    /// The deadline passed.
    pub const TIMEOUT: &str = "PROVIDER_TIMEOUT";
    /// The server's process ended during the call.
    pub const CRASHED: &str = "PROVIDER_CRASHED";
    /// The queue was full, or the call waited in it for too long.
    pub const CONCURRENCY_EXCEEDED: &str = "PROVIDER_CONCURRENCY_EXCEEDED";
    /// The server answered a JSON-RPC error.
    pub const EXECUTE_FAILED: &str = "PROVIDER_EXECUTE_FAILED";
    /// A rule forbids the tool.
    pub const POLICY_DENIED: &str = "PROVIDER_POLICY_DENIED";
    /// The server has no such tool.
    pub const TOOL_NOT_FOUND: &str = "PROVIDER_TOOL_NOT_FOUND";
    /// The arguments do not fit the tool's schema.
    pub const INVALID_INPUT: &str = "PROVIDER_INVALID_INPUT";
    /// The result does not fit the tool's schema.
    pub const INVALID_OUTPUT: &str = "PROVIDER_INVALID_OUTPUT";
    /// The client or a shutdown cancelled the call.
    pub const CANCELLED: &str = "PROVIDER_CANCELLED";
    /// The server was removed, or colibri is stopping.
    pub const TERMINATED: &str = "PROVIDER_TERMINATED";
    /// The tool itself said that it failed.
    pub const TOOL_ERROR: &str = "PROVIDER_TOOL_ERROR";

    /// All of them, in the order of the contract.
    pub const ALL: [&str; 13] = [
        INIT_FAILED,
        UNAVAILABLE,
        TIMEOUT,
        CRASHED,
        CONCURRENCY_EXCEEDED,
        EXECUTE_FAILED,
        POLICY_DENIED,
        TOOL_NOT_FOUND,
        INVALID_INPUT,
        INVALID_OUTPUT,
        CANCELLED,
        TERMINATED,
        TOOL_ERROR,
    ];
}

/// How much of a dead server's last words a failure repeats.
pub const LAST_WORDS_BYTES_MAX: usize = 2 << 10;

/// JSON-RPC's own code for a server that failed inside.
const INTERNAL_ERROR: i32 = -32_603;

/// Why a proxied call failed. The texts in it come from outside: they are clipped and free of secrets
/// before they get here.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ProviderError {
    /// Start or handshake failed for a reason that only a change can cure.
    #[error("it cannot be started: {0}")]
    InitFailed(Arc<str>),
    /// The server is not connected, or its link was lost.
    #[error("{}: {why}{}", .reason.words(), aged(.age.as_ref()))]
    Unavailable {
        /// In which way.
        reason: Unavailable,
        /// For people: what happened.
        why: Arc<str>,
        /// How long it has been so.
        age: Option<Duration>,
    },
    /// The deadline passed.
    #[error("no answer within {} ms{}", .limit.as_millis(), if *.sent { "" } else { ": it waited until then and was not sent" })]
    TimedOut {
        /// The deadline, counted from the call's arrival or its last sign of progress.
        limit: Duration,
        /// Whether the request may have reached the server.
        sent: bool,
    },
    /// The server's process ended during the call.
    #[error("its process ended: {how}")]
    Crashed {
        /// For people: exit code or signal.
        how: Arc<str>,
        /// The limit that ended it, if one did.
        limit: Option<Limit>,
        /// The tail of what it wrote to stderr.
        last_words: Arc<str>,
    },
    /// The queue was full, or the call waited in it for too long.
    #[error("{crowd} in queue `{queue}`", crowd = .crowded.words())]
    ConcurrencyExceeded {
        /// Which queue.
        queue: Arc<str>,
        /// Which of the two.
        crowded: Crowded,
    },
    /// The server answered a JSON-RPC error. The client gets that error; this is for everyone else.
    #[error("it answered error {code}: {message}")]
    ExecuteFailed {
        /// The server's code.
        code: i32,
        /// The server's message.
        message: Arc<str>,
    },
    /// A rule forbids the tool.
    #[error("{} forbids it", .0.words())]
    PolicyDenied(Rule),
    /// The server has no such tool.
    #[error("it has no tool `{tool}`{}", meant(.nearest.as_deref()))]
    ToolNotFound {
        /// The name that was asked for.
        tool: Arc<str>,
        /// One that may have been meant.
        nearest: Option<Arc<str>>,
    },
    /// The arguments do not fit the tool's schema.
    #[error("{}", invalid_params(.0.clone()).message)]
    InvalidInput(Vec<Issue>),
    /// The result does not fit the tool's schema, and `validateOutput` is `enforce`.
    #[error("the result does not fit the tool's own output schema")]
    InvalidOutput {
        /// Where it does not.
        issues: Vec<Issue>,
        /// The result, since the effect has happened.
        original: Value,
    },
    /// The call was cancelled.
    #[error("cancelled by {}", .by.words())]
    Cancelled {
        /// By whom.
        by: Canceller,
        /// Whether the server never saw it.
        queued: bool,
    },
    /// The server was removed, or colibri is stopping.
    #[error("it is being stopped")]
    Terminated,
    /// The tool itself said `isError`. The client gets its result; this is for everyone else.
    #[error("the tool reported an error")]
    ToolError,
}

/// In which way a server is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// It was lost, and is being started again.
    RestartInProgress,
    /// It was lost, and an attempt to start it again has failed; another may follow.
    RestartFailed,
    /// It has not been ready yet; attempts go on.
    InitFailed,
    /// The link was lost, or given up, while the call was on it.
    LinkLost {
        /// Whether the request may have reached the server.
        sent: bool,
    },
}

/// Which limit ended a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Resident memory of the tree.
    Memory,
    /// Processor time.
    Cpu,
    /// Processes and threads.
    Processes,
    /// The length of a file.
    FileSize,
    /// The length of its output.
    Output,
}

/// How a queue refused a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crowded {
    /// As many wait as may.
    Full,
    /// It waited as long as it may.
    Waited,
}

/// Which rule forbids a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// colibri's mode.
    Mode,
    /// `toolsAllowed` and `toolsDenied`.
    Filter,
    /// Its definition changed since it was first seen.
    Pin,
    /// The client's profile.
    Profile,
    /// A person said no, or nobody answered.
    Approval,
    /// Its server was turned off.
    Off,
}

/// Who cancelled a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canceller {
    /// Its client.
    Client,
    /// colibri's stop.
    Shutdown,
}

/// Whether the server did what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Executed {
    /// It did.
    Yes,
    /// It surely did not.
    No,
    /// Nobody can know.
    Unknown,
}

/// What a failure means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meaning {
    /// One of [`code`].
    pub code: &'static str,
    /// Whether it may go better next time.
    pub retryable: bool,
    /// Whether the server did what was asked.
    pub executed: Executed,
    /// In which way, where a code has several.
    pub reason: Option<&'static str>,
    /// How the call stands in the ledger.
    pub outcome: Outcome,
}

impl ProviderError {
    /// Exhaustive on purpose: a new failure must say here, at compile time, what it means.
    pub fn meaning(&self) -> Meaning {
        use Executed::{No, Unknown, Yes};
        let told = |code, retryable, executed, reason, outcome| Meaning {
            code,
            retryable,
            executed,
            reason,
            outcome,
        };
        match self {
            Self::InitFailed(_) => told(code::INIT_FAILED, false, No, None, Outcome::Error),
            Self::Unavailable { reason, .. } => {
                let sent = matches!(reason, Unavailable::LinkLost { sent: true });
                let executed = if sent { Unknown } else { No };
                told(code::UNAVAILABLE, true, executed, Some(reason.name()), Outcome::Error)
            }
            Self::TimedOut { sent, .. } => {
                told(code::TIMEOUT, true, if *sent { Unknown } else { No }, None, Outcome::Timeout)
            }
            Self::Crashed { limit, .. } => {
                told(code::CRASHED, true, Unknown, limit.map(Limit::name), Outcome::Error)
            }
            Self::ConcurrencyExceeded { crowded, .. } => {
                told(code::CONCURRENCY_EXCEEDED, true, No, Some(crowded.name()), Outcome::Error)
            }
            Self::ExecuteFailed { code, .. } => {
                told(code::EXECUTE_FAILED, *code == INTERNAL_ERROR, Unknown, None, Outcome::Error)
            }
            Self::PolicyDenied(rule) => {
                told(code::POLICY_DENIED, false, No, Some(rule.name()), Outcome::Rejected)
            }
            Self::ToolNotFound { .. } => told(code::TOOL_NOT_FOUND, false, No, None, Outcome::Rejected),
            Self::InvalidInput(_) => told(code::INVALID_INPUT, false, No, None, Outcome::Rejected),
            Self::InvalidOutput { .. } => told(code::INVALID_OUTPUT, false, Yes, None, Outcome::Error),
            Self::Cancelled { by, queued } => {
                let executed = if *queued { No } else { Unknown };
                told(code::CANCELLED, false, executed, Some(by.name()), Outcome::Cancelled)
            }
            Self::Terminated => told(code::TERMINATED, false, No, None, Outcome::Error),
            Self::ToolError => told(code::TOOL_ERROR, false, Yes, None, Outcome::Error),
        }
    }

    /// Stable, for machines.
    pub fn code(&self) -> &'static str {
        self.meaning().code
    }

    /// Whether it may go better next time. Whether to try by oneself also depends on
    /// [`Self::executed`].
    pub fn retryable(&self) -> bool {
        self.meaning().retryable
    }

    /// Whether the server did what was asked.
    pub fn executed(&self) -> Executed {
        self.meaning().executed
    }

    /// In which way, where a code has several.
    pub fn reason(&self) -> Option<&'static str> {
        self.meaning().reason
    }

    /// For clients: `{code, message, details: {retryable, executed, reason?, …}}`.
    pub fn failure(&self, server: &str) -> Failure {
        let Meaning { code, retryable, executed, reason, .. } = self.meaning();
        let mut details = json!({ "retryable": retryable, "executed": executed });
        if let Some(reason) = reason {
            details["reason"] = json!(reason);
        }
        match self {
            Self::Unavailable { age: Some(age), .. } => {
                details["age_ms"] = json!(u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
            }
            Self::Crashed { last_words, .. } if !last_words.is_empty() => {
                details["stderr"] = json!(tail(last_words));
            }
            Self::InvalidInput(issues) => details["issues"] = listed(issues),
            Self::InvalidOutput { issues, original } => {
                details["issues"] = listed(issues);
                details["original"] = original.clone();
            }
            _ => {}
        }
        Failure::new(code, format!("server `{server}`: {self}")).with(details)
    }

    /// What stands as structured content, and as text beside it: `{ok:false, error:{…}}`.
    pub fn structured_content(&self, server: &str) -> Value {
        json!({ "ok": false, "error": self.failure(server) })
    }

    /// For consumers of text: `(tool failed: timeout)`.
    pub fn text(&self, server: &str) -> String {
        match self {
            Self::TimedOut { .. } => "(tool failed: timeout)".to_owned(),
            _ => format!("(tool failed: server `{server}`: {self})"),
        }
    }
}

impl Unavailable {
    fn name(self) -> &'static str {
        match self {
            Self::RestartInProgress => "mcp_restart_in_progress",
            Self::RestartFailed => "mcp_restart_failed",
            Self::InitFailed => "init_failed",
            Self::LinkLost { .. } => "link_lost",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::RestartInProgress => "it is being restarted",
            Self::RestartFailed => "restarting it has failed",
            Self::InitFailed => "it has not started",
            Self::LinkLost { .. } => "the connection was lost",
        }
    }
}

impl Limit {
    /// For machines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpu => "cpu",
            Self::Processes => "processes",
            Self::FileSize => "file_size",
            Self::Output => "output",
        }
    }
}

impl Crowded {
    fn name(self) -> &'static str {
        match self {
            Self::Full => "queue_full",
            Self::Waited => "max_wait",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Full => "too many calls wait",
            Self::Waited => "it waited for too long",
        }
    }
}

impl Rule {
    fn name(self) -> &'static str {
        match self {
            Self::Mode => "mode",
            Self::Filter => "filter",
            Self::Pin => "pin",
            Self::Profile => "profile",
            Self::Approval => "approval",
            Self::Off => "off",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Mode => "colibri's mode",
            Self::Filter => "the server's list of tools (`toolsAllowed`, `toolsDenied`)",
            Self::Pin => "a changed definition, not accepted yet (`colibri server accept`),",
            Self::Profile => "the client's profile",
            Self::Approval => "a missing approval",
            Self::Off => "its server, which was turned off (`colibri server enable`),",
        }
    }
}

impl Canceller {
    /// For machines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Shutdown => "shutdown",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Client => "the client",
            Self::Shutdown => "colibri's stop",
        }
    }
}

/// Bounded as for native tools.
fn listed(issues: &[Issue]) -> Value {
    invalid_params(issues.to_vec()).details.map_or(Value::Null, |mut details| details["issues"].take())
}

fn aged(age: Option<&Duration>) -> String {
    age.map_or(String::new(), |age| format!(" (for {} s)", age.as_secs()))
}

fn meant(nearest: Option<&str>) -> String {
    nearest.map_or(String::new(), |nearest| format!("; did you mean `{nearest}`?"))
}

/// The last part: what is said last explains the end.
fn tail(text: &str) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(LAST_WORDS_BYTES_MAX))..]
}

#[cfg(test)]
mod tests;
