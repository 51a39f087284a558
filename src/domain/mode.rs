//! The four modes, and what each admits.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How much of its surface a colibri offers. The ledger is written in every mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Mode {
    /// Everything.
    #[default]
    Full,
    /// No tool that changes anything.
    Readonly,
    /// Everything, and backtraces in the errors.
    Test,
    /// Only `server_ping` and `server_health`; no server is started.
    Minimal,
}

/// The only tools of [`Mode::Minimal`].
const MINIMAL_TOOLS: [&str; 2] = ["server_health", "server_ping"];

impl Mode {
    /// All of them, in the order people meet them.
    pub const ALL: [Self; 4] = [Self::Full, Self::Readonly, Self::Test, Self::Minimal];

    /// Whether a native tool is listed and callable.
    pub fn admits(self, tool: &str, mutates: bool) -> bool {
        match self {
            Self::Full | Self::Test => true,
            Self::Readonly => !mutates,
            Self::Minimal => MINIMAL_TOOLS.contains(&tool),
        }
    }

    /// Whether an error may carry a backtrace.
    pub fn shows_backtraces(self) -> bool {
        self == Self::Test
    }

    /// The name, as it stands in `COLIBRI_MODE` and on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "FULL",
            Self::Readonly => "READONLY",
            Self::Test => "TEST",
            Self::Minimal => "MINIMAL",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// A mode nobody knows. There is no silent fall-back: a typo must not widen the surface.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown mode `{0}`: use FULL, READONLY, TEST or MINIMAL")]
pub struct UnknownMode(pub String);

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Self, UnknownMode> {
        Self::ALL.into_iter().find(|mode| mode.name() == text).ok_or_else(|| UnknownMode(text.to_owned()))
    }
}
