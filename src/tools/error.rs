//! How a tool's function says that it failed (pattern A) or refused (pattern B).

use std::backtrace::Backtrace;
use std::error::Error;

use serde_json::Value;

use crate::domain::failure::Refusal;

/// Every error converts with `?` and becomes `HANDLER_ERROR` with its message; a [`Refusal`]
/// becomes a pattern B answer. Not an `Error` itself, so that the conversion can be this general.
#[derive(Debug)]
pub enum ToolError {
    /// The tool could not do its work.
    Failed {
        /// What went wrong, the whole chain of causes in one line.
        message: String,
        /// What else is known.
        details: Option<Value>,
        /// Where it came from; shown only in mode TEST.
        backtrace: Box<Backtrace>,
    },
    /// The tool did its work, and the answer is no.
    Refused(Refusal),
}

impl ToolError {
    /// A failure in the tool's own words.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed {
            message: message.into(),
            details: None,
            backtrace: Box::new(Backtrace::force_capture()),
        }
    }

    /// A domain failure of a pattern A tool: `HANDLER_ERROR` with message `CODE: …` and `details.code`.
    pub fn coded(code: &'static str, message: &str) -> Self {
        let details = Some(serde_json::json!({ "code": code }));
        let backtrace = Box::new(Backtrace::force_capture());
        Self::Failed { message: format!("{code}: {message}"), details, backtrace }
    }
}

impl From<Refusal> for ToolError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl<E: Error> From<E> for ToolError {
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            message = format!("{message}: {error}");
            cause = error.source();
        }
        Self::failed(message)
    }
}
