//! Texts that must not be shown as they are used.
//!
//! Owns: [`Secret`], never shown at all, and [`Expanded`], shown as it was written.
//! Must not know: where either comes from.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, Serializer};

/// The value of an environment variable or a header. It prints as `***` by every road, so that a
/// log line or a listing cannot give it away by accident.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub(super) String);

impl Secret {
    /// The text itself, for the one who hands it to the server.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("***")
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for Secret {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Secret".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

/// A text with its variables filled in. It prints as the file has it, since a `${TOKEN}` among the
/// arguments of a command is as secret as one in its environment.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Expanded {
    written: String,
    pub(super) value: String,
}

impl Expanded {
    /// The text with its variables filled in.
    pub fn value(&self) -> &str {
        &self.value
    }
}

impl fmt::Display for Expanded {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.written)
    }
}

impl fmt::Debug for Expanded {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.written, out)
    }
}

impl Serialize for Expanded {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.written)
    }
}

impl<'de> Deserialize<'de> for Expanded {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = String::deserialize(deserializer)?;
        Ok(Self { value: written.clone(), written })
    }
}

impl JsonSchema for Expanded {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Expanded".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}
