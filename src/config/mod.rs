//! Files, `COLIBRI_*` and flags, turned into one checked [`Config`].
//!
//! Owns: the only reading of the environment, the keys and their meaning, and the words in which a
//! mistake is told. Holding a [`Config`] proves that it was checked. Written to disk are, by a person's
//! command alone, the record of trusted files and the servers of a file.
//! Uses: `domain`. Must not know: who uses a value, or that servers are processes.
//!
//! The structs in `keys` and `server` are the one source: from them come the schema that files are
//! checked against, the published one, and the tables of `docs/config.md`.

mod check;
mod dialect;
mod edit;
mod env_file;
mod expand;
mod files;
mod identity;
mod keys;
mod layers;
mod preview;
mod problem;
mod process;
#[cfg(test)]
mod reference;
mod schema;
mod secret;
mod server;
mod servers;
mod tree;
mod trust;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde_json::json;

pub use edit::{Edited, Editor, Scope};
pub use files::is_in_own_folder;
pub use identity::Identity;
pub use keys::{Audit, Limits, Millis, Queue};
pub use layers::Looked;
pub use preview::{Preview, PreviewedServer, preview};
pub use problem::{ConfigError, Origin, Problem};
pub use process::{
    Surroundings, expand, from_process, inherited_environment, os_user, trust_record, variable,
};
pub use schema::schema;
pub use secret::{Expanded, Secret};
pub use server::{
    Exponential, Filesystem, HealthProbe, Isolation, Network, NetworkDomains, NetworkWhole, OAuthConfig,
    OAuthGrant, Pool, Restart, RestartPreset, Sandbox, SandboxLevel, ServerConfig, ServerLimits, Start,
    Strictness, ToolConfig, Transport,
};
pub use servers::{Server, State};
pub use trust::{Standing, TrustRecord, TrustedFile, command_for};

pub use crate::domain::names::{Naming, slug};

use crate::domain::audit::{Durability, OnExitFailure};
use crate::domain::log::Level;
use crate::domain::merkle::Hash;
use crate::domain::mode::Mode;
use crate::domain::skill::Places;
use expand::Variables;
use keys::File;
use layers::{FILE_BYTES_MAX, Layer, Read, Values};
use problem::Report;
use trust::Trusted;

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
    /// Where trusted files are recorded; nowhere, if there is no place for data.
    pub trust: Option<TrustRecord>,
    env_files: BTreeMap<PathBuf, Option<Hash>>,
    filled_in: BTreeMap<String, Secret>,
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
    /// What variables of the environment gave to the arguments and addresses of servers: it may be as secret there as
    /// in a header.
    pub fn filled_in(&self) -> impl Iterator<Item = &Secret> {
        self.filled_in.values()
    }

    /// The `envFile`s that count, and digests of what is in them, if they could be read.
    pub fn env_files(&self) -> &BTreeMap<PathBuf, Option<Hash>> {
        &self.env_files
    }

    /// Every effective value with its origin, in the order of their keys; the servers last.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// Every file whose change may change this: those that were looked for, there or not, the `envFile`s
    /// that were read, and the record of trusted files.
    pub fn watched(&self) -> Vec<PathBuf> {
        let looked = self.files.iter().map(|looked| looked.path.clone());
        let trust = self.trust.iter().map(|record| record.path().to_owned());
        looked.chain(trust).chain(self.env_files.keys().cloned()).collect()
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
    load_from(&|path| files::read(path, FILE_BYTES_MAX), flags, env, cwd, home)
}

/// The same, with the bytes of files had by `read`: so can be asked what would be.
fn load_from(
    read: Read<'_>,
    flags: &Flags,
    env: &BTreeMap<String, String>,
    cwd: &Path,
    home: Option<&Path>,
) -> Result<Loaded, ConfigError> {
    let mut report = Report::default();
    layers::check_variables(env, &mut report);
    let mut files = layers::places(flags, env, cwd, home);
    let trust = TrustRecord::find(flags, env, cwd, home);
    let mut layers = layers(read, &mut files, Trusted::new(trust.clone()), flags, &mut report);
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
        collector.add(layer, fields, &mut report);
    }
    let env_files = std::mem::take(&mut collector.env_files);
    let filled_in = std::mem::take(&mut collector.filled_in);
    let servers = collector.finish(&mut report);
    let warnings = report.finish()?;
    let values = listing(&file, &paths.database, &values, &servers);
    Ok(Loaded { config: config(file, paths, servers), warnings, files, trust, env_files, filled_in, values })
}

/// The files that are there, each judged by the bytes that are then used.
fn layers(
    read: Read<'_>,
    files: &mut [Looked],
    mut trusted: Trusted,
    flags: &Flags,
    report: &mut Report,
) -> Vec<Layer> {
    let mut layers: Vec<Layer> = Vec::new();
    for place in files {
        match Layer::read(place, flags.config.is_some(), read, &mut trusted) {
            Ok(layer) => layers.extend(layer),
            Err(problem) => report.error(problem),
        }
    }
    for layer in layers.iter().filter(|layer| layer.changed) {
        let path = layer.source.path();
        let message = format!("changed since it was trusted: {}", command_for(path));
        report.warn(Problem::of_file(path, message, "until then it starts nothing"));
    }
    if let Some(problem) = trusted.problem {
        report.warn(problem);
    }
    layers
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
            State::Ready(config) => {
                let mut shown = json!(config);
                if let Some(why) = server.distrust() {
                    shown["notStarted"] = json!(why);
                }
                shown
            }
            State::Disabled { reason, .. } => json!({ "disabled": reason }),
        },
        origin: server.origin.clone(),
    }));
    listed
}
