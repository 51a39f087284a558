//! What a failed call says: one shape, two audiences. `code` is for machines and stable, `message`
//! is for people.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;

/// The codes of pattern A: colibri's own middleware refused or failed the call.
pub mod code {
    /// The arguments do not fit the tool's schema; `details.issues` says where.
    pub const INVALID_PARAMS: &str = "INVALID_PARAMS";
    /// The tool itself failed, or panicked.
    pub const HANDLER_ERROR: &str = "HANDLER_ERROR";
    /// The call could not be put on record, so it did not run.
    pub const AUDIT_ENTER_FAILED: &str = "AUDIT_ENTER_FAILED";
    /// The call ran, but its end could not be put on record (`audit.onExitFailure: "fail"` only).
    pub const AUDIT_EXIT_FAILED: &str = "AUDIT_EXIT_FAILED";
    /// The mode does not admit the tool.
    pub const TOOL_NOT_ADMITTED: &str = "TOOL_NOT_ADMITTED";

    /// All of them, for the docs and the schemas.
    pub const ALL: [&str; 5] =
        [INVALID_PARAMS, HANDLER_ERROR, AUDIT_ENTER_FAILED, AUDIT_EXIT_FAILED, TOOL_NOT_ADMITTED];
}

/// `{code, message, details?}`.
#[derive(Clone, Debug, PartialEq, Serialize, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Failure {
    /// Stable, for machines.
    pub code: Cow<'static, str>,
    /// For people: what happened and what to do.
    pub message: String,
    /// What else is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
}

impl Failure {
    /// A failure without details.
    pub fn new(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), details: None }
    }

    /// The same, with details.
    #[must_use]
    pub fn with(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }
}

/// One thing wrong with the arguments of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Issue {
    /// Where, as a JSON Pointer; empty for the arguments as a whole.
    pub path: String,
    /// What, and where possible what to write instead.
    pub message: String,
}

/// More issues than this help nobody.
pub const ISSUES_MAX: usize = 20;

/// Longer words about one issue help nobody: they repeat a client's own megabytes to it, several times.
pub const ISSUE_CHARS_MAX: usize = 300;

/// `INVALID_PARAMS` with its issue list.
pub fn invalid_params(mut issues: Vec<Issue>) -> Failure {
    issues.truncate(ISSUES_MAX);
    for issue in &mut issues {
        shorten(&mut issue.path);
        shorten(&mut issue.message);
    }
    let message = match issues.as_slice() {
        [only] if only.path.is_empty() => format!("invalid arguments: {}", only.message),
        [only] => format!("invalid arguments: {}: {}", only.path, only.message),
        many => format!("invalid arguments: {} issues, listed in details.issues", many.len()),
    };
    Failure::new(code::INVALID_PARAMS, message).with(serde_json::json!({ "issues": issues }))
}

fn shorten(text: &mut String) {
    if let Some((end, _)) = text.char_indices().nth(ISSUE_CHARS_MAX) {
        text.truncate(end);
        text.push('…');
    }
}

/// Pattern B: the tool worked and its answer is "no". It travels inside a success envelope,
/// `{ok:true,data:{ok:false,error:{code,message,…}}}`, extra fields directly in `error`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Refusal {
    /// One of the codes the tool declared.
    pub code: &'static str,
    /// For people: what happened and what to do.
    pub message: String,
    /// Fields that this code carries.
    #[serde(flatten)]
    pub extra: serde_json::Map<String, Value>,
}

impl Refusal {
    /// A refusal without extra fields.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), extra: serde_json::Map::new() }
    }

    /// The same, with one more field.
    #[must_use]
    pub fn field(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.extra.insert(name.to_owned(), value.into());
        self
    }
}
