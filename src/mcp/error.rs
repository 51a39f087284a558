//! The errors MCP has numbers for.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::{Value, json};

use super::revision::{Family, MODERN, Revision};

/// JSON-RPC and MCP error codes.
pub mod code {
    /// The frame is not JSON.
    pub const PARSE_ERROR: i32 = -32_700;
    /// The frame is JSON but no valid message.
    pub const INVALID_REQUEST: i32 = -32_600;
    /// No such method in this revision.
    pub const METHOD_NOT_FOUND: i32 = -32_601;
    /// The method does not take these params.
    pub const INVALID_PARAMS: i32 = -32_602;
    /// colibri failed, not the client.
    pub const INTERNAL_ERROR: i32 = -32_603;
    /// Before 2026-07-28: there is no such resource.
    pub const RESOURCE_NOT_FOUND: i32 = -32_002;
    /// HTTP only: a header contradicts the body.
    pub const HEADER_MISMATCH: i32 = -32_020;
    /// The request needs a capability that the client did not declare.
    pub const MISSING_CLIENT_CAPABILITY: i32 = -32_021;
    /// The request names a revision that colibri does not speak.
    pub const UNSUPPORTED_PROTOCOL_VERSION: i32 = -32_022;
}

/// How much of what a client wrote is repeated to it: enough to recognise, too little to amplify.
const QUOTE_CHARS_MAX: usize = 100;

/// The `error` member of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, thiserror::Error)]
#[error("{message} ({code})")]
pub struct Error {
    /// One of [`code`].
    pub code: i32,
    /// For people: what is wrong and what to do.
    pub message: Cow<'static, str>,
    /// For machines, where the code defines it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl Error {
    /// -32700.
    pub fn parse(what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(code::PARSE_ERROR, what)
    }

    /// -32600.
    pub fn invalid_request(what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(code::INVALID_REQUEST, what)
    }

    /// -32601.
    pub fn unknown_method(method: &str) -> Self {
        Self::new(code::METHOD_NOT_FOUND, format!("unknown method: {}", quote(method)))
    }

    /// -32602.
    pub fn invalid_params(what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(code::INVALID_PARAMS, what)
    }

    /// -32603.
    pub fn internal(what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(code::INTERNAL_ERROR, what)
    }

    /// There is no such resource, in the code of the revision.
    pub fn resource_not_found(what: impl Into<Cow<'static, str>>, revision: &Revision) -> Self {
        let is_legacy = revision.family == Family::Legacy;
        Self::new(if is_legacy { code::RESOURCE_NOT_FOUND } else { code::INVALID_PARAMS }, what)
    }

    /// -32022, with what would be spoken.
    pub fn unsupported_version(requested: &str) -> Self {
        let requested = quote(requested);
        let message = format!("unsupported protocol version: {requested}");
        let data = json!({ "supported": [MODERN.date], "requested": requested });
        Self { data: Some(data), ..Self::new(code::UNSUPPORTED_PROTOCOL_VERSION, message) }
    }

    fn new(code: i32, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into(), data: None }
    }
}

/// The head of what a client wrote.
fn quote(text: &str) -> &str {
    text.char_indices().nth(QUOTE_CHARS_MAX).map_or(text, |(end, _)| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_repeats_only_the_head_of_what_a_client_wrote() {
        let long = "é".repeat(5_000);
        let error = Error::unsupported_version(&long);
        assert_eq!(error.data, Some(json!({ "supported": ["2026-07-28"], "requested": "é".repeat(100) })));
        assert_eq!(Error::unknown_method("tools/frobnicate").message, "unknown method: tools/frobnicate");
    }
}
