//! How long the processes of a configured server live, and under which limits each of them runs.
//!
//! Owns: the settings of every connection of a server, made as often as they are needed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::config::{
    HealthProbe, Loaded, Millis, SandboxLevel, Server, ServerConfig, ServerLimits, Strictness,
};
use crate::domain::face::Face;
use crate::fleet::bridge::Memory;
use crate::fleet::credentials::Credentials;
use crate::fleet::error::Cause;
use crate::fleet::roster::{Apart, Lending, PoolBounds};
use crate::fleet::supervisor::{Probe, Settings};
use crate::fleet::terms::Recipe;
use crate::mcp::request::Client;
use crate::sandbox::Policy;

use super::confine::policy_for;
use super::fleet::life_of;
use super::reach::{key, opener};
use super::worker::is_for_workers;

/// What the settings of a server's connections are made of.
#[derive(Clone)]
pub(super) struct Maker {
    pub(super) name: Arc<str>,
    pub(super) slug: Arc<str>,
    pub(super) configured: Arc<ServerConfig>,
    pub(super) credentials: Option<Arc<dyn Credentials>>,
    pub(super) client: Arc<Client>,
    pub(super) memory: Arc<dyn Memory>,
    pub(super) face: Arc<dyn Face>,
}

impl Maker {
    /// The settings of one connection, whose process runs under that policy.
    pub(super) fn settings(&self, policy: Policy) -> Result<Settings, Cause> {
        let configured = &*self.configured;
        Ok(Settings {
            name: Arc::clone(&self.name),
            slug: Arc::clone(&self.slug),
            opener: opener(&self.name, configured, self.credentials.clone(), policy)?,
            policy: life_of(configured),
            probe: match configured.health_probe {
                HealthProbe::Ping => Probe::Ping,
                HealthProbe::ListTools => Probe::ListTools,
            },
            probe_timeout: configured.probe_timeout.duration(),
            connect_timeout: configured.connect_timeout.duration(),
            idle_close: Some(configured.idle_close.duration()),
            client: Arc::clone(&self.client),
            memory: Some(Arc::clone(&self.memory)),
            key: Some(key(configured)),
            is_unconfined: (configured.command.is_some() || is_for_workers(configured))
                && configured.sandbox.level == SandboxLevel::Off,
            pin_enforced: configured.pin == Strictness::Enforce,
            face: Some(Arc::clone(&self.face)),
        })
    }

    /// The same, as often as it is needed.
    pub(super) fn recipe(&self, policy: Policy) -> Result<Recipe, String> {
        self.settings(policy.clone()).map_err(|cause| cause.to_string())?;
        let maker = self.clone();
        let again = "the same words have made a link before";
        Ok(Arc::new(move || maker.settings(policy.clone()).expect(again)))
    }
}

/// The policy of the connection that lists the tools: it lives on, so the time that one call may take does not bound
/// it. A limit that somebody wrote does.
pub(super) fn scouts(mut policy: Policy, configured: &ServerConfig) -> Policy {
    if configured.limits.cpu_seconds.is_none() {
        policy.limits.cpu = None;
    }
    policy
}

/// The pools of a server in `call` isolation: one for most tools, and one without stock for every set of limits that
/// single tools have.
pub(super) fn lending(
    maker: &Maker,
    server: &Server,
    configured: &ServerConfig,
    loaded: &Loaded,
) -> Result<Lending, String> {
    let recipe = |limits: ServerLimits| {
        let lived = ServerConfig { limits, timeout: longest(configured), ..configured.clone() };
        maker.recipe(policy_for(server, &lived, loaded)?)
    };
    let mut apart: BTreeMap<String, (ServerLimits, BTreeSet<String>)> = BTreeMap::new();
    for (tool, set) in &configured.tools {
        let limits = over(set.limits, configured.limits);
        if limits != configured.limits {
            let (_, tools) = apart.entry(format!("{limits:?}")).or_insert((limits, BTreeSet::new()));
            tools.insert(tool.clone());
        }
    }
    let apart = apart.into_values().map(|(limits, tools)| Ok(Apart { tools, recipe: recipe(limits)? }));
    let pool = &configured.pool;
    Ok(Lending {
        bounds: PoolBounds {
            size: pool.size as usize,
            max_age: pool.max_age.duration(),
            max_uses: pool.max_uses.max(1),
        },
        recipe: recipe(configured.limits)?,
        apart: apart.collect::<Result<_, String>>()?,
    })
}

/// The longest time that the calls of one process may take together: any of them may be of the slowest tool.
fn longest(configured: &ServerConfig) -> Millis {
    let tools = configured.tools.values().filter_map(|set| set.timeout);
    let longest = tools.chain([configured.timeout]).map(|timeout| timeout.0).max().unwrap_or_default();
    Millis(longest.saturating_mul(configured.pool.max_uses.into()))
}

/// A tool's own limits, and the server's where it has none.
fn over(own: ServerLimits, server: ServerLimits) -> ServerLimits {
    ServerLimits {
        memory_mb: own.memory_mb.or(server.memory_mb),
        processes: own.processes.or(server.processes),
        cpu_seconds: own.cpu_seconds.or(server.cpu_seconds),
        file_size_mb: own.file_size_mb.or(server.file_size_mb),
        open_files: own.open_files.or(server.open_files),
        output_mb: own.output_mb.or(server.output_mb),
    }
}
