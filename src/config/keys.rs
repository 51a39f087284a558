//! The keys of `colibri.json` outside its servers, as the structs they become.
//!
//! Owns: names, types, ranges, defaults and words of every top-level key. The checker, the published
//! schema and `docs/config.md` are all derived from here, so a key is added in one place.
//! Must not know: files, the environment, where a value came from.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::server::ServerConfig;
use crate::domain::audit::{Durability, OnExitFailure, Payloads};
use crate::domain::log::Level;
use crate::domain::mode::Mode;
use crate::domain::names::Naming;

/// The configuration of colibri.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct File {
    /// The schema of this file, for editors. colibri does not read it.
    #[serde(rename = "$schema", skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    /// How much of its surface colibri offers.
    #[schemars(extend("x-env" = "COLIBRI_MODE", "x-flag" = "--mode"))]
    pub mode: Mode,
    /// How much is said on stderr.
    #[schemars(extend("x-env" = "COLIBRI_LOG", "x-flag" = "--log"))]
    pub log: Level,
    /// The database file; relative to the file that names it. By default `colibri.db` in the user's
    /// data directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1),
        extend("x-env" = "COLIBRI_DB_PATH", "x-flag" = "--database", "x-trusted" = true)
    )]
    pub database: Option<String>,
    /// How long connecting to a server may take, and a call to it, unless the server says otherwise.
    #[schemars(extend("x-env" = "COLIBRI_MCP_TIMEOUT", "x-flag" = "--mcp-timeout"))]
    pub mcp_timeout: Millis,
    /// How long colibri's own start may take; past it, exit code 75.
    #[schemars(extend("x-env" = "COLIBRI_STARTUP_TIMEOUT_MS", "x-flag" = "--startup-timeout"))]
    pub startup_timeout: Millis,
    /// How many servers start at the same time.
    #[schemars(range(min = 1, max = 256))]
    pub init_concurrency: u32,
    /// What is put on record, and how firmly.
    #[schemars(extend("x-trusted" = true))]
    pub audit: Audit,
    /// How much colibri accepts.
    pub limits: Limits,
    /// How a server's tools are named to clients.
    pub naming: Naming,
    /// Further folders to look for skills in; relative to the file that names them.
    #[schemars(length(max = 64), inner(length(min = 1)), extend("x-trusted" = true))]
    pub skills: Vec<String>,
    /// Named queues: calls that may run at the same time, and calls that may wait.
    pub queues: BTreeMap<String, Queue>,
    /// The servers, by name. What other clients' READMEs call `mcpServers` can be pasted here.
    #[serde(skip_serializing)]
    pub mcp_servers: BTreeMap<String, ServerConfig>,
}

impl Default for File {
    fn default() -> Self {
        Self {
            schema: None,
            mode: Mode::default(),
            log: Level::Info,
            database: None,
            mcp_timeout: Millis(30_000),
            startup_timeout: Millis(30_000),
            init_concurrency: 8,
            audit: Audit::default(),
            limits: Limits::default(),
            naming: Naming::default(),
            skills: Vec::new(),
            queues: BTreeMap::new(),
            mcp_servers: BTreeMap::new(),
        }
    }
}

/// What is put on record, and how firmly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Audit {
    /// When a record must be on disk.
    pub durability: Durability,
    /// How much of arguments and results is kept beside the record, which holds only their digests.
    pub payloads: Payloads,
    /// What becomes of a call whose end could not be recorded.
    pub on_exit_failure: OnExitFailure,
    /// Whether every thought must name an open session.
    pub require_session: bool,
}

/// How much colibri accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Limits {
    /// The longest message, in bytes: from 64 KiB to 64 MiB.
    #[schemars(range(min = 65_536, max = 67_108_864))]
    pub frame_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { frame_bytes: 4 << 20 }
    }
}

/// A named queue: first come, first served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Queue {
    /// How many calls run at the same time.
    #[schemars(range(min = 1, max = 4096))]
    pub concurrent: u32,
    /// How many may wait; one more is refused.
    #[serde(default = "default_max_waiting")]
    #[schemars(range(max = 65_536))]
    pub max_waiting: u32,
    /// How long one may wait.
    #[serde(default = "default_max_wait")]
    pub max_wait: Millis,
}

fn default_max_waiting() -> u32 {
    256
}

fn default_max_wait() -> Millis {
    Millis(60_000)
}

/// A span of time, written as a whole number of milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub u64);

/// Almost 25 days: what a signed 32-bit timer holds, and longer than any deadline helps.
const MILLIS_MAX: u64 = i32::MAX as u64;

impl Millis {
    /// The same span, as the standard library measures it.
    pub fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl JsonSchema for Millis {
    fn schema_name() -> Cow<'static, str> {
        "Millis".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": 1, "maximum": MILLIS_MAX, "x-unit": "ms" })
    }
}
