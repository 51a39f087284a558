//! Files, `COLIBRI_*` and flags, turned into one checked [`Config`].
//!
//! Owns: the only reading of the environment, the keys and their meaning, and the words in which a
//! mistake is told. Holding a [`Config`] proves that it was checked; nothing here is written to disk.
//! Uses: `domain`. Must not know: who uses a value, or that servers are processes.
//!
//! The structs in `keys` and `server` are the one source: from them come the schema that files are
//! checked against, the published one, and the tables of `docs/config.md`.

mod check;
mod dialect;
mod expand;
mod keys;
mod layers;
mod problem;
mod process;
#[cfg(test)]
mod reference;
mod schema;
mod secret;
mod server;
mod servers;
mod tree;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde_json::json;

pub use keys::{Audit, Limits, Millis, Queue};
pub use layers::Looked;
pub use problem::{ConfigError, Origin, Problem};
pub use process::{expand, from_process, inherited_environment, os_user, variable};
pub use schema::schema;
pub use secret::{Expanded, Secret};
pub use server::{
    Exponential, Filesystem, HealthProbe, Isolation, Network, NetworkDomains, NetworkWhole, OAuthConfig,
    OAuthGrant, Pool, Restart, RestartPreset, Sandbox, SandboxLevel, ServerConfig, ServerLimits, Start,
    Strictness, ToolConfig, Transport,
};
pub use servers::{Server, State};

pub use crate::domain::names::{Naming, slug};

use crate::domain::audit::{Durability, OnExitFailure};
use crate::domain::log::Level;
use crate::domain::mode::Mode;
use crate::domain::skill::Places;
use expand::Variables;
use keys::File;
use layers::{Layer, Values};
use problem::Report;

/// What the command line says, as it was typed; it is checked here, like everything else.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// `--config`: the only file to read.
    pub config: Option<PathBuf>,
    /// `--mode`.
    pub mode: Option<String>,
    /// `--log`.
    pub log: Option<String>,
    /// `--database`.
    pub database: Option<PathBuf>,
    /// `--mcp-timeout`, in ms.
    pub mcp_timeout: Option<String>,
    /// `--startup-timeout`, in ms.
    pub startup_timeout: Option<String>,
}

impl Flags {
    fn get(&self, key: &str) -> Option<String> {
        match key {
            "mode" => self.mode.clone(),
            "log" => self.log.clone(),
            "database" => self.database.as_ref().map(|path| path.to_string_lossy().into_owned()),
            "mcpTimeout" => self.mcp_timeout.clone(),
            "startupTimeout" => self.startup_timeout.clone(),
            _ => None,
        }
    }
}

/// Everything that can be configured, checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// How much of its surface colibri offers.
    pub mode: Mode,
    /// How much is said on stderr.
    pub log: Level,
    /// The database file.
    pub database: PathBuf,
    /// Where colibri keeps what else it keeps.
    pub data_dir: PathBuf,
    /// How long connecting to a server may take, and a call to it, where it does not say otherwise.
    pub mcp_timeout: Duration,
    /// How long colibri's own start may take.
    pub startup_timeout: Duration,
    /// How many servers start at the same time.
    pub init_concurrency: usize,
    /// What is put on record, and how firmly.
    pub audit: Audit,
    /// How much colibri accepts.
    pub limits: Limits,
    /// How a server's tools are named to clients.
    pub naming: Naming,
    /// Where skills are looked for.
    pub skills: Places,
    /// Named queues.
    pub queues: BTreeMap<String, Queue>,
    /// The servers, strongest file first, in file order.
    pub servers: Vec<Server>,
}

/// A configuration, and how it came about.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// What to run with.
    pub config: Config,
    /// What is off, though colibri can go on.
    pub warnings: Vec<Problem>,
    /// Where files were looked for, strongest first.
    pub files: Vec<Looked>,
    values: Vec<Value>,
}

/// One effective value, for a listing. Secrets in it are masked.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Value {
    /// `audit.durability`.
    pub key: String,
    /// What counts.
    pub value: serde_json::Value,
    /// Who said so.
    pub origin: Origin,
}

impl Loaded {
    /// Every effective value with its origin, in the order of their keys; the servers last.
    pub fn values(&self) -> &[Value] {
        &self.values
    }
}

/// Reads the files and puts everything together. `env`, `cwd` and `home` are arguments, so that only
/// [`from_process`] knows the real ones.
pub fn load(
    flags: &Flags,
    env: &BTreeMap<String, String>,
    cwd: &Path,
    home: Option<&Path>,
) -> Result<Loaded, ConfigError> {
    let mut report = Report::default();
    layers::check_variables(env, &mut report);
    let mut files = layers::places(flags, env, cwd, home);
    let mut layers = Vec::new();
    for place in &mut files {
        match Layer::read(place, flags.config.is_some()) {
            Ok(layer) => layers.extend(layer),
            Err(problem) => report.error(problem),
        }
    }
    let mut values = Values::default();
    values.add_process(flags, env, &mut report);
    let mut servers = Vec::new();
    for layer in &mut layers {
        servers.push(layer.take_servers(&mut report));
        values.add_file(layer, &mut report);
    }
    let mut report = report.sound()?;
    // Every value has passed the checker, so this fails only where it and the structs disagree.
    let file: File = serde_json::from_value(values.to_json())
        .map_err(|error| Problem::new("colibri", error.to_string(), "please report this"))?;
    let paths = paths(&file, &values, env, cwd, home, &mut report);
    check_audit(file.audit, &values, &mut report);
    let mut collector = servers::Collector::new(&file, Variables::new(env, cwd, home));
    for (layer, fields) in layers.iter().zip(servers) {
        collector.add(&layer.source, layer.trusted, fields, &mut report);
    }
    let servers = collector.finish(&mut report);
    let warnings = report.finish()?;
    let values = listing(&file, &paths.database, &values, &servers);
    Ok(Loaded { config: config(file, paths, servers), warnings, files, values })
}

fn config(file: File, paths: Paths, servers: Vec<Server>) -> Config {
    Config {
        mode: file.mode,
        log: file.log,
        database: paths.database,
        data_dir: paths.data_dir,
        mcp_timeout: file.mcp_timeout.duration(),
        startup_timeout: file.startup_timeout.duration(),
        init_concurrency: file.init_concurrency as usize,
        audit: file.audit,
        limits: file.limits,
        naming: file.naming,
        skills: paths.skills,
        queues: file.queues,
        servers,
    }
}

struct Paths {
    database: PathBuf,
    data_dir: PathBuf,
    skills: Places,
}

/// Where data goes and skills come from. What a file names is relative to it, otherwise to where one is.
fn paths(
    file: &File,
    values: &Values,
    env: &BTreeMap<String, String>,
    cwd: &Path,
    home: Option<&Path>,
    report: &mut Report,
) -> Paths {
    let resolve = |key: &str, path: &String| {
        let base = match values.get(&[key.to_owned()]).map(|found| &found.origin) {
            Some(Origin::File { path, .. }) => path.parent().unwrap_or(cwd),
            _ => cwd,
        };
        match (path.strip_prefix("~/"), home) {
            (Some(below), Some(home)) => home.join(below),
            _ => base.join(path),
        }
    };
    let named = file.database.as_ref().map(|path| resolve("database", path));
    let skills = Places {
        project: Some(cwd.to_owned()),
        configured: file.skills.iter().map(|path| resolve("skills", path)).collect(),
        home: home.map(Path::to_owned),
    };
    let data_dir =
        layers::user_folder(env, "XDG_DATA_HOME", home, ".local/share").map(|path| path.join("colibri"));
    let beside = named.as_ref().and_then(|path| path.parent()).map(Path::to_owned);
    let data_dir = data_dir.or(beside).unwrap_or_else(|| {
        let message = "there is no home directory, so there is no place for data";
        report.error(Problem::new("HOME", message, "set HOME, XDG_DATA_HOME or COLIBRI_DB_PATH"));
        PathBuf::new()
    });
    Paths { database: named.unwrap_or_else(|| data_dir.join("colibri.db")), data_dir, skills }
}

/// A reply that is already gone cannot be turned into a failure.
fn check_audit(audit: Audit, values: &Values, report: &mut Report) {
    if audit.on_exit_failure == OnExitFailure::Fail && audit.durability != Durability::Strict {
        let key = ["audit".to_owned(), "onExitFailure".to_owned()];
        let origin = values.get(&key).map_or(Origin::Default, |found| found.origin.clone());
        let message = "`audit.onExitFailure` \"fail\" needs `audit.durability` \"strict\"";
        report.error(Problem::new(origin.to_string(), message, "set both, or neither"));
    }
}

fn listing(file: &File, database: &Path, values: &Values, servers: &[Server]) -> Vec<Value> {
    let mut all = json!(file);
    all["database"] = json!(database);
    let mut listed = Vec::new();
    let mut list = |key: Vec<String>, value: &serde_json::Value| {
        let origin = values.get(&key).map_or(Origin::Default, |found| found.origin.clone());
        listed.push(Value { key: layers::shown(&key), value: value.clone(), origin });
    };
    for (name, value) in all.as_object().into_iter().flatten() {
        match value {
            serde_json::Value::Object(group) => {
                for (inner, value) in group {
                    list(vec![name.clone(), inner.clone()], value);
                }
            }
            value => list(vec![name.clone()], value),
        }
    }
    listed.extend(servers.iter().map(|server| Value {
        key: format!("mcpServers.{}", server.name),
        value: match &server.state {
            State::Ready(config) => json!(config),
            State::Disabled { reason, .. } => json!({ "disabled": reason }),
        },
        origin: server.origin.clone(),
    }));
    listed
}
