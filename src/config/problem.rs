//! What is wrong with a configuration, and where a value came from.
//!
//! Owns: the words for both, for people and for `--json`. Must not know: how either was found out.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// More problems than this help nobody, and a file can hold a hundred thousand.
const PROBLEMS_MAX: usize = 100;

/// Where a value came from, the strongest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// This flag.
    Flag(&'static str),
    /// This environment variable.
    Env(&'static str),
    /// This file, at this line.
    File {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
    },
    /// Nobody said otherwise.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) => write!(out, "flag {name}"),
            Self::Env(name) => write!(out, "env {name}"),
            Self::File { path, line } => write!(out, "{}:{line}", path.display()),
            Self::Default => out.write_str("default"),
        }
    }
}

/// One thing that is wrong. As an error it stops colibri; as a warning it is told and outlived.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The file, the variable or the flag: `colibri.json:3:11`, `COLIBRI_MODE`.
    pub place: String,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub remedy: String,
    /// The line and a caret under the place, with everything masked that may be a secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excerpt: Option<String>,
}

impl Problem {
    /// A problem that has no line to show.
    pub(super) fn new(
        place: impl Into<String>,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { place: place.into(), message: message.into(), remedy: remedy.into(), excerpt: None }
    }

    /// A problem with a file as a whole.
    pub(super) fn of_file(path: &Path, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(path.display().to_string(), message, remedy)
    }

    /// All but the excerpt, for a log.
    pub fn line(&self) -> String {
        let (place, message) = (&self.place, &self.message);
        if self.remedy.is_empty() {
            format!("{place}: {message}")
        } else {
            format!("{place}: {message}; {}", self.remedy)
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.line())?;
        match &self.excerpt {
            Some(excerpt) => write!(out, "\n{excerpt}"),
            None => Ok(()),
        }
    }
}

/// A configuration that colibri does not start with: everything that is wrong, not the first thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{}", join(.problems))]
pub struct ConfigError {
    /// At least one.
    pub problems: Vec<Problem>,
}

fn join(problems: &[Problem]) -> String {
    problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n")
}

/// What was found so far, of both kinds, each bounded.
#[derive(Debug, Default)]
pub(super) struct Report {
    errors: Vec<Problem>,
    warnings: Vec<Problem>,
}

impl Report {
    pub(super) fn error(&mut self, problem: Problem) {
        push(&mut self.errors, problem);
    }

    /// The same; the problem is only made if there is room for it, since an excerpt has its price.
    pub(super) fn error_with(&mut self, problem: impl FnOnce() -> Problem) {
        if self.errors.len() <= PROBLEMS_MAX {
            self.error(problem());
        }
    }

    pub(super) fn warn(&mut self, problem: Problem) {
        push(&mut self.warnings, problem);
    }

    /// See [`Report::error_with`].
    pub(super) fn warn_with(&mut self, problem: impl FnOnce() -> Problem) {
        if self.warnings.len() <= PROBLEMS_MAX {
            self.warn(problem());
        }
    }

    /// Itself, if there are only warnings.
    pub(super) fn sound(self) -> Result<Self, ConfigError> {
        if self.errors.is_empty() { Ok(self) } else { Err(ConfigError { problems: self.errors }) }
    }

    /// The warnings, if there are only warnings.
    pub(super) fn finish(self) -> Result<Vec<Problem>, ConfigError> {
        self.sound().map(|report| report.warnings)
    }
}

impl From<Problem> for ConfigError {
    fn from(problem: Problem) -> Self {
        Self { problems: vec![problem] }
    }
}

fn push(list: &mut Vec<Problem>, problem: Problem) {
    if list.len() < PROBLEMS_MAX {
        list.push(problem);
    } else if list.len() == PROBLEMS_MAX {
        list.push(Problem::new("colibri", "there are more problems like these", "mend these first"));
    }
}
