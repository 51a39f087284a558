//! A server's result against the schema that its own tool promised.
//!
//! Only the structured content is looked at, and only if there is a promise. The effect has happened, so a result that
//! breaks it is passed on and told of, unless its owner wants it refused.

use bytes::Bytes;
use serde_json::Value;

use crate::domain::failure::Issue;
use crate::domain::provider::ProviderError;
use crate::mcp::raw::Members;

use super::validate::{Arguments, whole};

/// What breaks the promise; nothing if the result keeps it, or is not one that must.
pub(super) fn broken(schema: &Arguments, result: &[u8]) -> Vec<Issue> {
    let Some(members) = Members::of(result) else { return Vec::new() };
    // A tool that wants to know something first has not promised anything yet.
    if members.get("resultType").is_some_and(|kind| kind.get() != r#""complete""#) {
        return Vec::new();
    }
    match members.get("structuredContent") {
        Some(content) => schema.check(content.get().as_bytes()).err().unwrap_or_default(),
        None => {
            vec![whole("there is no `structuredContent`, though the tool has an output schema".to_owned())]
        }
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
