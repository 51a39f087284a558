//! A tool as the outside sees it.

use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;

/// What a tool promises about its effects, so that a client can decide whether to ask a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "MCP names these four hints")]
pub struct Annotations {
    /// It changes nothing.
    #[serde(rename = "readOnlyHint")]
    pub read_only: bool,
    /// It may remove or overwrite something.
    #[serde(rename = "destructiveHint")]
    pub destructive: bool,
    /// Asking twice is the same as asking once.
    #[serde(rename = "idempotentHint")]
    pub idempotent: bool,
    /// It reaches beyond colibri.
    #[serde(rename = "openWorldHint")]
    pub open_world: bool,
}

/// A tool's entry in `tools/list`, before a protocol revision decides which fields it shows.
#[derive(Clone, Debug)]
pub struct Definition {
    /// Unique.
    pub name: Arc<str>,
    /// For people.
    pub title: String,
    /// For models.
    pub description: String,
    /// The JSON Schema of the arguments; the same that validates them.
    pub input_schema: Value,
    /// The JSON Schema of the whole structured result.
    pub output_schema: Value,
    /// See [`Annotations`].
    pub annotations: Annotations,
}

/// A tool in a list.
#[derive(Clone, Debug)]
pub enum Listed {
    /// One of colibri's own.
    Native(Arc<Definition>),
    /// A server's, whose definition is passed on as it is.
    Proxied {
        /// As clients call it.
        name: Arc<str>,
        /// Its whole definition under that name, as raw JSON.
        definition: Bytes,
    },
}

impl Listed {
    /// As clients call it.
    pub fn name(&self) -> &Arc<str> {
        match self {
            Self::Native(definition) => &definition.name,
            Self::Proxied { name, .. } => name,
        }
    }
}

/// A name that no native tool may have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid tool name: {0}")]
pub struct InvalidToolName(pub String);

/// Native names are `[a-z_][a-z0-9_]*` without `__`, which separates a server from its tool.
pub fn check_native_name(name: &str) -> Result<(), InvalidToolName> {
    let mut chars = name.chars();
    let first = chars.next().is_some_and(|c| c.is_ascii_lowercase() || c == '_');
    let rest = chars.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if first && rest && !name.contains("__") { Ok(()) } else { Err(InvalidToolName(name.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn native_names_are_plain_and_never_look_proxied() {
        for good in ["server_ping", "_x", "a1"] {
            assert_eq!(check_native_name(good), Ok(()));
        }
        for bad in ["", "server-ping", "Server", "1a", "a__b", "__", "é", "a b"] {
            assert_eq!(check_native_name(bad).unwrap_err().to_string(), format!("invalid tool name: {bad}"));
        }
    }
}
