//! A server's result against the schema that its own tool promised.
//!
//! Only the structured content is looked at, and only if there is a promise. The effect has happened, so a result that
//! breaks it is passed on and told of, unless its owner wants it refused.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use crate::domain::failure::Issue;
use crate::domain::provider::ProviderError;
use crate::mcp::raw::Members;

use super::schemas;
use super::validate::{Arguments, Wrong, whole};

/// What breaks the promise; nothing if the result keeps it, or is not one that must.
pub(super) async fn broken(schema: &Arc<Arguments>, result: &Bytes) -> Vec<Issue> {
    match Promised::of(result) {
        Promised::Content(content) => {
            schemas::check(schema, content).await.err().map(Wrong::issues).unwrap_or_default()
        }
        Promised::Missing => {
            vec![whole("there is no `structuredContent`, though the tool has an output schema".to_owned())]
        }
        Promised::Nothing => Vec::new(),
    }
}

/// What a result is that is none yet.
const INPUT_REQUIRED: &str = "input_required";

/// What a result has of what was promised.
#[derive(PartialEq, Eq)]
pub(super) enum Promised {
    /// It need not have any.
    Nothing,
    Missing,
    Content(Bytes),
}

impl Promised {
    pub(super) fn of(result: &Bytes) -> Self {
        let Some(members) = Members::of(result) else { return Self::Nothing };
        if let Some(content) = members.get("structuredContent") {
            return Self::Content(result.slice_ref(content.get().as_bytes()));
        }
        // A tool that wants to know something first has not promised anything yet.
        let kind = members.get("resultType").and_then(|kind| serde_json::from_str::<String>(kind.get()).ok());
        if kind.as_deref() == Some(INPUT_REQUIRED) { Self::Nothing } else { Self::Missing }
    }
}

/// The first of them, for people.
pub(super) fn told(issues: &[Issue]) -> String {
    let first = issues.first().map(|issue| format!("{}: {}", issue.path, issue.message)).unwrap_or_default();
    let more = issues.len().saturating_sub(1);
    let first = first.trim_start_matches(": ");
    if more == 0 { first.to_owned() } else { format!("{first} (and {more} more)") }
}

/// The refusal of a result, with the result: what it tells of has happened.
pub(super) fn refused(issues: Vec<Issue>, result: &Bytes) -> ProviderError {
    let original: Value = serde_json::from_slice(result).unwrap_or_default();
    ProviderError::InvalidOutput { issues, original }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SB-2: what a server says of the kind of its result does not free it from its promise; the word can be written
    /// in more ways than one, and a legacy client does not know it.
    #[test]
    fn structured_content_is_always_looked_at() {
        let content = Promised::Content(Bytes::from_static(b"{}"));
        for kind in ["complete", "\\u0063omplete", "x", "input_required"] {
            let result = Bytes::from(format!(r#"{{"resultType":"{kind}","structuredContent":{{}}}}"#));
            assert!(Promised::of(&result) == content, "{kind}");
        }
        let kind = |text: &str| Promised::of(&Bytes::from(format!(r#"{{"resultType":{text}}}"#)));
        assert!(kind(r#""input_required""#) == Promised::Nothing);
        assert!(kind(r#""complete""#) == Promised::Missing);
        assert!(kind("7") == Promised::Missing);
        assert!(Promised::of(&Bytes::from_static(b"{}")) == Promised::Missing);
    }
}
