//! The servers of a configuration, as the fleet they become.

use std::sync::Arc;
use std::time::Duration;

use crate::config::{
    self, Config, HealthProbe, Isolation, Loaded, RestartPreset, Server, ServerConfig, State, Strictness,
};
use crate::domain::filter::Filter;
use crate::domain::life::{Delays, Policy, Restart};
use crate::domain::log::Logger;
use crate::domain::mode::Mode;
use crate::domain::names::NAME_CHARS_DEFAULT;
use crate::fleet::credentials::Credentials;
use crate::fleet::oauth::Absent;
use crate::fleet::roster::{Common, Fleet, Member, Start, ToolSettings};
use crate::fleet::supervisor::{Probe, Settings};
use crate::mcp::request::Client;
use crate::store::Store;

use super::confine::policy_for;
use super::oauth::oauth;
use super::reach::{Families, opener};
use super::server::Berth;

/// Starts supervising what the configuration names and the mode allows. Returns at once; nobody waits
/// for a server.
pub(super) fn start(loaded: &Loaded, store: &Store, berth: Berth, logger: &Logger) -> Option<Fleet> {
    let config = &loaded.config;
    if config.mode == Mode::Minimal {
        return None;
    }
    let members = config.servers.iter().filter_map(|server| member(server, loaded, store, logger));
    let members: Vec<Member> = members.collect();
    let common = Common {
        init_concurrency: config.init_concurrency,
        naming: config.naming,
        name_chars_max: NAME_CHARS_DEFAULT,
        reserved: berth.reserved,
        clock: berth.clock,
        health: berth.health,
        logger: logger.clone(),
    };
    (!members.is_empty()).then(|| Fleet::start(members, common))
}

fn member(server: &Server, loaded: &Loaded, store: &Store, logger: &Logger) -> Option<Member> {
    let name = &server.name;
    let configured = match &server.state {
        State::Ready(configured) if server.trusted => configured,
        State::Ready(_) => {
            logger.warn(format_args!("[mcp:{name}] not started: {}", server.distrust().unwrap_or_default()));
            return None;
        }
        State::Disabled { reason, broken: true } => {
            logger.warn(format_args!("[mcp:{name}] not started: {reason}"));
            return None;
        }
        State::Disabled { .. } => return None,
    };
    let refused = |reason: String| {
        logger.warn(format_args!("[mcp:{name}] not started: {reason}"));
    };
    if let Some(promise) = not_kept_yet(configured) {
        refused(format!("{promise} is not built yet, and colibri does not promise what it cannot hold"));
        return None;
    }
    let credentials = credentials(server, configured, &loaded.config, logger);
    let confined = policy_for(server, configured, loaded).map_err(refused).ok()?;
    let opener =
        opener(configured, credentials, confined).map_err(|cause| refused(cause.to_string())).ok()?;
    let filter = Filter::new(&configured.tools_allowed, &configured.tools_denied);
    let filter = filter.map_err(|error| refused(error.to_string())).ok()?;
    let client = Client {
        name: "colibri".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        capabilities: serde_json::json!({}),
    };
    let settings = Settings {
        name: name.as_str().into(),
        opener,
        policy: life_of(configured),
        probe: match configured.health_probe {
            HealthProbe::Ping => Probe::Ping,
            HealthProbe::ListTools => Probe::ListTools,
        },
        probe_timeout: configured.probe_timeout.duration(),
        connect_timeout: configured.connect_timeout.duration(),
        client: Arc::new(client),
        memory: Some(Arc::new(Families::new(store.clone(), configured))),
    };
    let tools = configured.tools.iter().map(|(tool, set)| {
        let timeout = set.timeout.map(config::Millis::duration);
        (tool.clone(), ToolSettings { timeout, retry: set.retry })
    });
    Some(Member {
        settings,
        slug: server.slug.as_str().into(),
        filter,
        start: match configured.start {
            config::Start::Eager => Start::Eager,
            config::Start::OnUse => Start::OnUse,
        },
        timeout: configured.timeout.duration(),
        acquire_timeout: configured.acquire_timeout.duration(),
        tools: tools.collect(),
    })
}

/// What an entry asks for and nobody would do: leaving it out in silence would be a lie.
fn not_kept_yet(configured: &ServerConfig) -> Option<&'static str> {
    let asked = [
        (configured.isolation != Isolation::Shared, "`isolation` other than `shared`"),
        (!configured.shared, "`shared: false`"),
        (configured.pin == Strictness::Enforce, "`pin: \"enforce\"`"),
        (configured.validate_output == Strictness::Enforce, "`validateOutput: \"enforce\"`"),
        (configured.required, "`required`"),
        (configured.queue != "default", "`queue`"),
    ];
    asked.into_iter().find_map(|(asks, promise)| asks.then_some(promise))
}

/// What was stored by `colibri auth login`. Nobody is at hand to sign in anew.
fn credentials(
    server: &Server,
    configured: &ServerConfig,
    config: &Config,
    logger: &Logger,
) -> Option<Arc<dyn Credentials>> {
    let url = configured.url.as_ref()?;
    let person = Arc::new(Absent);
    let signed_in = oauth(&server.name, url.value(), Some(configured), &config.data_dir, person, logger);
    signed_in.ok().map(|signed_in| Arc::new(signed_in) as Arc<dyn Credentials>)
}

fn life_of(configured: &ServerConfig) -> Policy {
    let set = &configured.restart;
    let preset = match set.preset {
        RestartPreset::Default => Restart::preset_default(),
        RestartPreset::Bounded => Restart::preset_bounded(),
    };
    let table = set
        .delays
        .as_ref()
        .map(|delays| Delays::Table(delays.iter().map(|delay| delay.duration()).collect()));
    let growing = set.exponential.map(|growing| Delays::Exponential {
        initial: growing.initial.duration(),
        factor: growing.factor,
        max: growing.max.duration(),
    });
    let restart = Restart {
        delays: table.or(growing).unwrap_or(preset.delays),
        max_attempts: set.max_attempts.or(preset.max_attempts),
        jitter: set.jitter.unwrap_or(preset.jitter),
        stable: set.stable.map_or(preset.stable, config::Millis::duration),
    };
    let interval = configured.probe_interval.duration();
    Policy { restart, probe_interval: (interval > Duration::ZERO).then_some(interval) }
}
