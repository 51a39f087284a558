//! What a command fails with: a message for people, an exit code for scripts.

use std::io::Write;
use std::process::ExitCode;

use crate::app::{RunError, StartError};
use crate::config::ConfigError;
use crate::domain::log::{visible, visible_json};
use crate::store::StoreError;

/// The documented exit codes that are not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    Unexpected = 1,
    Usage = 2,
    AuthenticationNeeded = 3,
    Unreachable = 4,
    ToolError = 5,
    VerificationFailed = 6,
    ConfigInvalid = 7,
    DoctorFoundProblems = 8,
    StoreUnusable = 9,
    StartupTimeout = 75,
}

/// A failed command.
#[derive(Debug)]
pub(super) struct Fault {
    exit: u8,
    /// Empty if the command has said everything already.
    message: String,
}

impl Fault {
    pub(super) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit: exit as u8, message: message.into() }
    }

    /// The exit code of a program that was run for somebody, and what there is to say about it.
    pub(super) fn of_program(code: u8, message: impl Into<String>) -> Self {
        Self { exit: code, message: message.into() }
    }

    /// A failure whose whole story is already on stdout.
    pub(super) fn told(exit: Exit) -> Self {
        Self::new(exit, "")
    }

    /// The same exit code, for a failure that has been told elsewhere.
    pub(super) fn silenced(self) -> Self {
        Self { exit: self.exit, message: String::new() }
    }

    /// Says it once, at the top, and chooses the exit code.
    pub(super) fn tell(&self, json: bool) -> ExitCode {
        if !self.message.is_empty() {
            let line = if json {
                let told = serde_json::json!({ "error": { "exit": self.exit, "message": self.message } });
                visible_json(&told.to_string())
            } else {
                // Line by line: a configuration error shows the line of the file, and a caret.
                let shown: Vec<String> = self.message.lines().map(visible).collect();
                format!("colibri: {}", shown.join("\n"))
            };
            let _ = writeln!(std::io::stderr(), "{line}");
        }
        ExitCode::from(self.exit)
    }
}

impl From<ConfigError> for Fault {
    fn from(error: ConfigError) -> Self {
        Self::new(Exit::ConfigInvalid, error.to_string())
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        let exit = if matches!(error, StoreError::NotFound(_)) { Exit::Usage } else { Exit::StoreUnusable };
        Self::new(exit, error.to_string())
    }
}

impl From<RunError> for Fault {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Store(error) => error.into(),
            RunError::Start(StartError::Timeout) => {
                Self::new(Exit::StartupTimeout, StartError::Timeout.to_string())
            }
            error @ RunError::Required { .. } => Self::new(Exit::Unreachable, error.to_string()),
            RunError::Start(error) => {
                let cause =
                    std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
                Self::new(Exit::Unexpected, format!("{error}{cause}"))
            }
        }
    }
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Self {
        Self::new(Exit::Unexpected, error.to_string())
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.message)
    }
}
