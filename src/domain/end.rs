//! How a server's process ended, as a value: the error, the event, the ledger and the status all say
//! the same.

use serde::{Deserialize, Serialize};

use super::provider::Limit;

/// How a process that colibri had started ended, together with everything it had started itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "camelCase")]
pub enum End {
    /// It left by itself.
    Exited {
        /// Its exit code.
        code: i32,
    },
    /// A signal that nobody here had sent.
    Crashed {
        /// Which one.
        signal: i32,
    },
    /// colibri had no more use for it.
    Asked,
    /// It ran longer than it may.
    Wall,
    /// It used more processor time than it may.
    Cpu,
    /// It held more memory than it may, all its processes together.
    Memory,
    /// It had more processes and threads than it may.
    Processes,
    /// It wrote a file longer than it may.
    FileSize,
    /// It said more than it may.
    Output,
    /// colibri went away.
    Lifeline,
    /// It was never started: a layer of its sandbox could not be had.
    Policy {
        /// The layer.
        layer: String,
        /// What the machine said.
        cause: String,
        /// What to do.
        remedy: String,
    },
    /// It was never started: its program could not be executed.
    NotStarted {
        /// What the machine said.
        cause: String,
        /// Whether the machine had too much to do, so that it may go better a little later.
        is_passing: bool,
    },
    /// What kept it was killed from outside, and so was it.
    Lost,
}

impl End {
    /// The word for machines.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Exited { .. } => "exited",
            Self::Crashed { .. } => "crashed",
            Self::Asked => "asked",
            Self::Wall => "wall",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Processes => "processes",
            Self::FileSize => "fileSize",
            Self::Output => "output",
            Self::Lifeline => "lifeline",
            Self::Policy { .. } => "policy",
            Self::NotStarted { .. } => "notStarted",
            Self::Lost => "lost",
        }
    }

    /// The limit that ended it, if one did. Exhaustive on purpose: a new end must say here what it means.
    pub fn limit(&self) -> Option<Limit> {
        match self {
            Self::Cpu => Some(Limit::Cpu),
            Self::Memory => Some(Limit::Memory),
            Self::Processes => Some(Limit::Processes),
            Self::FileSize => Some(Limit::FileSize),
            Self::Output => Some(Limit::Output),
            // How long a server may live is nobody's limit; a call's deadline is told as what it is.
            Self::Wall
            | Self::Exited { .. }
            | Self::Crashed { .. }
            | Self::Asked
            | Self::Lifeline
            | Self::Policy { .. }
            | Self::NotStarted { .. }
            | Self::Lost => None,
        }
    }

    /// Whether the program ever ran.
    pub fn ran(&self) -> bool {
        !matches!(self, Self::Policy { .. } | Self::NotStarted { .. })
    }
}

impl std::fmt::Display for End {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exited { code } => write!(out, "it ended with code {code}"),
            Self::Crashed { signal } => write!(out, "it was ended by signal {signal}"),
            Self::Asked => out.write_str("it was asked to end"),
            Self::Wall => out.write_str("it ran longer than it may"),
            Self::Cpu => out.write_str("it used more processor time than it may"),
            Self::Memory => out.write_str("it held more memory than it may"),
            Self::Processes => out.write_str("it had more processes and threads than it may"),
            Self::FileSize => out.write_str("it wrote a file longer than it may"),
            Self::Output => out.write_str("it said more than it may"),
            Self::Lifeline => out.write_str("it lost the process that had started it"),
            Self::Policy { layer, cause, remedy } => {
                write!(
                    out,
                    "it was not started, because the sandbox layer `{layer}` is missing: {cause}; {remedy}"
                )
            }
            Self::NotStarted { cause, .. } => write!(out, "it could not be started: {cause}"),
            Self::Lost => out.write_str("its sandbox was killed from outside"),
        }
    }
}
