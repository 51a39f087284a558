//! The keys of one server, as the structs they become.
//!
//! Owns: names, types, ranges, defaults and words of every key below `mcpServers.<name>`.
//! Must not know: the spellings of other clients (see `dialect`), variables (see `expand`), files.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::keys::Millis;
use super::secret::{Expanded, Secret};

/// One server: a program to start, or an address to reach.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ServerConfig {
    /// How to talk to it. By default `stdio` with a `command`, `http` with a `url`, `websocket` if that begins with `ws`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub transport: Option<Transport>,
    /// The program to start; an array is the program and its first arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub command: Option<Expanded>,
    /// Its arguments.
    pub args: Vec<Expanded>,
    /// Its environment, beside the few variables every server gets. Values are never shown.
    pub env: BTreeMap<String, Secret>,
    /// A file of `NAME=value` lines for its environment, over which `env` wins; relative to the file that names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env_file: Option<Expanded>,
    /// Its working directory; relative to the file that names it. By default colibri's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<Expanded>,
    /// Its address.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub url: Option<Expanded>,
    /// Headers sent to it. Values are never shown.
    pub headers: BTreeMap<String, Secret>,
    /// How to sign in to it, where it demands OAuth and the defaults do not do.
    pub oauth: OAuthConfig,
    /// The tools to offer, with `*` as wildcard; none named means all.
    pub tools_allowed: Vec<String>,
    /// The tools to withhold, with `*` as wildcard; it wins over `toolsAllowed`.
    pub tools_denied: Vec<String>,
    /// Whether the server is configured but not used.
    pub disabled: bool,
    /// Whether colibri's start fails when this server's does.
    pub required: bool,
    /// When it is started.
    pub start: Start,
    /// Whether clients may join one connection.
    pub shared: bool,
    /// How long one process lives.
    pub isolation: Isolation,
    /// The processes that wait for calls, in `call` isolation.
    pub pool: Pool,
    /// How to find out whether it is well.
    pub health_probe: HealthProbe,
    /// The queue of its calls: `default`, or one that `queues` defines.
    pub queue: String,
    /// How long a call may take without progress. By default `mcpTimeout`.
    pub timeout: Millis,
    /// How long a call may take in all, however much progress it reports.
    pub max_total_timeout: Millis,
    /// How long one attempt to connect may take. By default `mcpTimeout`.
    pub connect_timeout: Millis,
    /// How long a call waits for the server to be ready.
    pub acquire_timeout: Millis,
    /// How long an unused connection stays open.
    pub idle_close: Millis,
    /// How often it is probed; 0 turns it off.
    #[schemars(range(min = 0))]
    pub probe_interval: Millis,
    /// How long a probe may take.
    pub probe_timeout: Millis,
    /// What is done about tools and instructions that are not what they were when the server was first seen, or new.
    pub pin: Strictness,
    /// What is done about a result that does not fit the tool's own output schema.
    pub validate_output: Strictness,
    /// When a lost server is started again: `"default"`, `"bounded"`, or an object.
    #[serde(deserialize_with = "preset_or_rules")]
    #[schemars(with = "Either<RestartPreset, Restart>")]
    pub restart: Restart,
    /// What it may touch: `"standard"`, `"strict"`, `"off"`, or an object.
    #[serde(deserialize_with = "level_or_rules")]
    #[schemars(with = "Either<SandboxLevel, Sandbox>")]
    pub sandbox: Sandbox,
    /// What it may use, together with everything it starts.
    pub limits: ServerLimits,
    /// What differs for single tools, by the tool's own name.
    pub tools: BTreeMap<String, ToolConfig>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            transport: None,
            command: None,
            args: Vec::new(),
            env: BTreeMap::new(),
            env_file: None,
            cwd: None,
            url: None,
            headers: BTreeMap::new(),
            oauth: OAuthConfig::default(),
            tools_allowed: Vec::new(),
            tools_denied: Vec::new(),
            disabled: false,
            required: false,
            start: Start::default(),
            shared: true,
            isolation: Isolation::default(),
            pool: Pool::default(),
            health_probe: HealthProbe::default(),
            queue: "default".to_owned(),
            timeout: Millis(30_000),
            max_total_timeout: Millis(600_000),
            connect_timeout: Millis(30_000),
            acquire_timeout: Millis(60_000),
            idle_close: Millis(300_000),
            probe_interval: Millis(30_000),
            probe_timeout: Millis(3_000),
            pin: Strictness::default(),
            validate_output: Strictness::default(),
            restart: Restart::default(),
            sandbox: Sandbox::default(),
            limits: ServerLimits::default(),
            tools: BTreeMap::new(),
        }
    }
}

/// How colibri talks to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// A child process, by its standard input and output.
    Stdio,
    /// Streamable HTTP.
    Http,
    /// The older HTTP with server-sent events.
    Sse,
    /// A WebSocket.
    Websocket,
}

/// How to sign in to a server. Other clients' keys here are ignored with a warning.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct OAuthConfig {
    /// A client registered beforehand. Without one, colibri registers itself where it may.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub client_id: Option<Expanded>,
    /// Its secret, best as `${VAR}`. It is never shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<Secret>,
    /// A file with its private key in PEM, in place of a secret; only with `grant` clientCredentials. Relative to the file that names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub client_key_file: Option<Expanded>,
    /// The https address of a document that describes the client, for authorization servers that read one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub client_metadata_url: Option<String>,
    /// What to ask for, in place of what the server says: a list, or one text with blanks between.
    #[serde(deserialize_with = "text_or_list")]
    #[schemars(with = "Either<String, Vec<String>>")]
    pub scopes: Vec<String>,
    /// The port on 127.0.0.1 to which the browser is sent back. By default any that is free.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65_535))]
    pub callback_port: Option<u16>,
    /// On whose behalf.
    pub grant: OAuthGrant,
    /// Whether the authorization server may lie in a private network though the server's address does not say so.
    pub allow_private_addresses: bool,
}

/// On whose behalf a token is had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OAuthGrant {
    /// A person's, who signs in once with `colibri auth login`.
    #[default]
    Person,
    /// The client's own, with `clientId` and `clientSecret` or `clientKeyFile`; nobody is asked.
    ClientCredentials,
}

/// When a server is started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Start {
    /// With colibri.
    #[default]
    Eager,
    /// With the first call.
    OnUse,
}

/// How long one process of a server lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Isolation {
    /// As long as it is used.
    #[default]
    Shared,
    /// As long as one client's session.
    Session,
    /// As long as one call. A server with a `url` is called from a worker process that lives as long.
    Call,
}

/// Processes that are started before they are needed, for `call` isolation. One more is there in any case: it lists
/// the tools and tells how the server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Pool {
    /// How many wait; 0 starts each with its call.
    #[schemars(range(max = 32))]
    pub size: u32,
    /// How long one waits before it is replaced.
    pub max_age: Millis,
    /// How many calls one serves, as long as they end well.
    #[schemars(range(min = 1, max = 1000))]
    pub max_uses: u32,
}

impl Default for Pool {
    fn default() -> Self {
        Self { size: 2, max_age: Millis(300_000), max_uses: 1 }
    }
}

/// How to find out whether a server is well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum HealthProbe {
    /// A ping, or what the server has in its place.
    #[default]
    Ping,
    /// Listing its tools.
    ListTools,
}

/// What is done about a server that does not keep its word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Strictness {
    /// It is reported.
    #[default]
    Report,
    /// It is reported and refused.
    Enforce,
}

/// When a lost server is started again. The preset gives what the other keys leave out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Restart {
    /// What to start from.
    pub preset: RestartPreset,
    /// The delay before each attempt; the last one repeats.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), inner(range(min = 0)))]
    pub delays: Option<Vec<Millis>>,
    /// Growing delays, in place of `delays`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exponential: Option<Exponential>,
    /// How many attempts in a row before giving up.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_attempts: Option<u32>,
    /// By how much a delay may be lengthened at random, as a fraction of it. By default 0.2.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1))]
    pub jitter: Option<f64>,
    /// How long a server must stay up for its attempts to be forgotten. By default 60000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stable: Option<Millis>,
}

/// What a restart policy starts from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum RestartPreset {
    /// After 0, 1, 2, 5, 10, 30, 60 s and every 60 s from then on, for ever.
    #[default]
    Default,
    /// After 1 s, doubling up to 30 s, ten times.
    Bounded,
}

/// Delays that grow by a factor.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Exponential {
    /// The first delay.
    pub initial: Millis,
    /// What each delay is multiplied by.
    #[schemars(range(min = 1, max = 10))]
    pub factor: f64,
    /// The longest delay.
    pub max: Millis,
}

/// What a server may touch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Sandbox {
    /// What to start from.
    pub level: SandboxLevel,
    /// Which files.
    pub filesystem: Filesystem,
    /// Which hosts: `"none"`, `"full"`, or a list of `host:port`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// Layers of protection that this machine may lack; a layer not named here must hold.
    pub allow_degraded: Vec<String>,
}

/// How much of the sandbox must hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SandboxLevel {
    /// Process, environment and resource limits always; files and network as asked for.
    #[default]
    Standard,
    /// Every layer, no network unless `network` says so, a private directory.
    Strict,
    /// None; put on record.
    Off,
}

/// Which files a server may touch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Filesystem {
    /// Paths it may read.
    pub allow_read: Vec<String>,
    /// Paths it may read and write.
    pub allow_write: Vec<String>,
    /// Paths it may not read.
    pub deny_read: Vec<String>,
    /// Paths it may not write.
    pub deny_write: Vec<String>,
}

/// Which hosts a server may reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Network {
    /// None, or all.
    Whole(NetworkWhole),
    /// These, as `host:port`.
    Hosts(Vec<String>),
    /// As other clients write it.
    Domains(NetworkDomains),
}

/// No network, or all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum NetworkWhole {
    /// No host.
    None,
    /// Every host.
    Full,
}

/// Hosts by name, as other clients write them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct NetworkDomains {
    /// Hosts it may reach.
    pub allowed_domains: Vec<String>,
    /// Hosts it may not reach.
    pub denied_domains: Vec<String>,
}

/// What a server may use, together with everything it starts. What is absent has a default that
/// depends on `isolation`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ServerLimits {
    /// Resident memory, in MB.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_048_576))]
    pub memory_mb: Option<u32>,
    /// Processes and threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65_536))]
    pub processes: Option<u32>,
    /// Processor time, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_592_000))]
    pub cpu_seconds: Option<u32>,
    /// The longest file it may write, in MB.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_048_576))]
    pub file_size_mb: Option<u32>,
    /// Open files, per process.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 16, max = 1_048_576))]
    pub open_files: Option<u32>,
    /// The longest output before its connection is closed, in MB.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub output_mb: Option<u32>,
}

/// What differs for one tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolConfig {
    /// The queue of its calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// How long a call may take without progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Millis>,
    /// What a call may use, in `call` isolation.
    pub limits: ServerLimits,
    /// Whether a failed call may be repeated though it may have had an effect.
    pub retry: bool,
    /// What clients are told about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
}

/// A word, or the object it stands for.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum Either<W, R> {
    Word(W),
    Rules(R),
}

fn preset_or_rules<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Restart, D::Error> {
    Ok(match Either::deserialize(deserializer)? {
        Either::Word(preset) => Restart { preset, ..Restart::default() },
        Either::Rules(rules) => rules,
    })
}

fn level_or_rules<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Sandbox, D::Error> {
    Ok(match Either::deserialize(deserializer)? {
        Either::Word(level) => Sandbox { level, ..Sandbox::default() },
        Either::Rules(rules) => rules,
    })
}

fn text_or_list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(match Either::<String, Vec<String>>::deserialize(deserializer)? {
        Either::Word(text) => text.split_whitespace().map(ToOwned::to_owned).collect(),
        Either::Rules(list) => list,
    })
}
