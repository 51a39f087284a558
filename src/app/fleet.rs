//! The servers of a configuration, as the fleet they become.

use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::config::{
    self, Config, Isolation, Loaded, Origin, Queue, RestartPreset, Secret, Server, ServerConfig, State,
    Strictness,
};
use crate::domain::audit::CallId;
use crate::domain::chronicle::{Chronicle, Fact};
use crate::domain::filter::Filter;
use crate::domain::health::ServerFacts;
use crate::domain::life::{Delays, Policy, Restart};
use crate::domain::log::Logger;
use crate::domain::mask::Masks;
use crate::domain::merkle::Hash;
use crate::domain::mode::Mode;
use crate::domain::names::NAME_CHARS_DEFAULT;
use crate::domain::queue::Bounds;
use crate::fleet::bus::Bus;
use crate::fleet::credentials::Credentials;
use crate::fleet::oauth::Absent;
use crate::fleet::roster::{Common, Fleet, Kept, Lives, Member, Plan, Registry, Start, Terms, ToolSettings};
use crate::mcp::request::Client;
use crate::serve::Front;
use crate::store::{LedgerChronicle, Store};

use super::confine::policy_for;
use super::lives::{Maker, lending, scouts};
use super::oauth::oauth;
use super::reach::Families;
use super::server::Berth;

/// States of servers that are configured and not used.
const BROKEN: &str = "broken";
const DISABLED: &str = "disabled";

/// The secrets of a configuration: what is in the environments and headers of its servers, and what was filled in
/// anywhere else.
pub(super) fn secrets(loaded: &Loaded) -> impl Iterator<Item = &str> {
    let configs = loaded.config.servers.iter().filter_map(|server| match &server.state {
        State::Ready(config) => Some(config),
        State::Disabled { .. } => None,
    });
    let secrets = configs.flat_map(|config| {
        config.env.values().chain(config.headers.values()).chain(&config.oauth.client_secret)
    });
    secrets.chain(loaded.filled_in()).map(Secret::expose)
}

/// Where servers are made ready: what a plan is made with, now and when the configuration changes.
pub(super) struct Yard {
    store: Store,
    front: Front,
    chronicle: Arc<LedgerChronicle>,
    logger: Logger,
    /// Under which configurations are compared.
    key: [u8; 32],
}

/// Starts supervising what the configuration names and the mode allows. Returns at once; nobody waits
/// for a server.
pub(super) fn start(
    loaded: &Loaded,
    store: &Store,
    berth: Berth,
    masks: Arc<Masks>,
    logger: &Logger,
) -> Option<(Fleet, Yard)> {
    let config = &loaded.config;
    if config.mode == Mode::Minimal {
        return None;
    }
    let mut key = [0; 32];
    // Without randomness a comparison in memory is as good as before.
    let _ = getrandom::fill(&mut key);
    let chronicle = Arc::new(LedgerChronicle::new(store.clone()));
    let yard = Yard {
        store: store.clone(),
        front: berth.front,
        chronicle: Arc::clone(&chronicle),
        logger: logger.clone(),
        key,
    };
    let common = Common {
        init_concurrency: config.init_concurrency,
        naming: config.naming,
        name_chars_max: NAME_CHARS_DEFAULT,
        reserved: berth.reserved,
        clock: Arc::clone(&berth.clock),
        health: berth.health,
        bus: Bus::new(berth.clock),
        chronicle,
        logger: logger.clone(),
        registry: Registry::default(),
        masks,
        stopping: berth.stopping,
    };
    Some((Fleet::start(yard.plan(loaded), common), yard))
}

impl Yard {
    /// What the configuration asks of the fleet.
    pub(super) fn plan(&self, loaded: &Loaded) -> Plan {
        let mut plan = Plan::default();
        for server in &loaded.config.servers {
            match self.member(server, loaded) {
                Ok(member) => plan.members.push(member),
                Err(absent) => {
                    // What ran goes on as it was: a mistake in the file ends nothing.
                    if absent.state == BROKEN {
                        let (slug, after) = (server.slug.as_str().into(), plan.members.len());
                        plan.kept.push(Kept { slug, after });
                    }
                    plan.absent.push(absent);
                }
            }
        }
        let bounds = |queue: &Queue| Bounds {
            concurrent: queue.concurrent as usize,
            max_waiting: queue.max_waiting as usize,
            max_wait: queue.max_wait.duration(),
        };
        plan.queues =
            loaded.config.queues.iter().map(|(name, queue)| (name.as_str().into(), bounds(queue))).collect();
        plan
    }

    /// Puts on record which configuration counts from now on.
    pub(super) async fn record(&self, loaded: &Loaded) {
        let files =
            loaded.files.iter().filter_map(|file| Some((file.path.display().to_string(), file.digest?)));
        let files: Vec<(String, Hash)> = files.collect();
        if files.is_empty() {
            return;
        }
        let servers = loaded.config.servers.iter().filter(|server| matches!(server.state, State::Ready(_)));
        let fact =
            Fact::ConfigurationLoaded { files, servers: servers.map(|server| server.name.clone()).collect() };
        if let Err(error) = self.chronicle.put(CallId(Uuid::now_v7()), fact).await {
            self.logger.error(format_args!("[colibri] the configuration is not on record: {error}"));
        }
    }

    /// The server as a member, or why it is none.
    fn member(&self, server: &Server, loaded: &Loaded) -> Result<Member, ServerFacts> {
        let absent = |state: &'static str, is_down: bool, trouble: String| {
            if state != DISABLED {
                self.logger.warn(format_args!("[mcp:{}] not started: {trouble}", server.name));
            }
            ServerFacts {
                name: server.name.clone(),
                state,
                is_down,
                tools: 0,
                trouble: Some(trouble),
                changed: Vec::new(),
                unpinned: 0,
            }
        };
        let broken = |reason: String| absent(BROKEN, true, reason);
        match &server.state {
            State::Ready(configured) if server.trusted => {
                self.ready(server, configured, loaded).map_err(broken)
            }
            State::Ready(_) => Err(absent("untrusted", false, server.distrust().unwrap_or_default())),
            State::Disabled { reason, broken: true } => Err(broken(reason.clone())),
            State::Disabled { reason, broken: false } => Err(absent(DISABLED, false, reason.clone())),
        }
    }

    /// What makes this server the same one later. Paths in its entry are relative to its file; and who must accept
    /// what has changed is asked by name.
    fn identity(&self, server: &Server, configured: &ServerConfig) -> Hash {
        let mut digest = Sha256::new();
        digest.update(configured.identity(&self.key).in_memory().0);
        if let Origin::File { path, .. } = &server.origin {
            digest.update(path.parent().unwrap_or(path).as_os_str().as_encoded_bytes());
        }
        if configured.pin == Strictness::Enforce {
            digest.update([0]);
            digest.update(&server.name);
        }
        Hash(digest.finalize().into())
    }

    fn ready(&self, server: &Server, configured: &ServerConfig, loaded: &Loaded) -> Result<Member, String> {
        let client = Client {
            name: "colibri".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            capabilities: serde_json::json!({}),
        };
        let maker = Maker {
            name: server.name.as_str().into(),
            slug: server.slug.as_str().into(),
            configured: Arc::new(configured.clone()),
            credentials: credentials(server, configured, &loaded.config, &self.logger),
            client: Arc::new(client),
            memory: Arc::new(Families::new(self.store.clone(), configured)),
            face: Arc::new(self.front.clone()),
        };
        let settings = maker.settings(scouts(policy_for(server, configured, loaded)?, configured));
        let settings = settings.map_err(|cause| cause.to_string())?;
        let lives = match configured.isolation {
            Isolation::Shared => Lives::Used,
            Isolation::Session => Lives::Session(maker.recipe(policy_for(server, configured, loaded)?)?),
            Isolation::Call => Lives::Call(lending(&maker, server, configured, loaded)?),
        };
        let identity = self.identity(server, configured);
        Ok(Member { identity, settings, terms: terms(configured, lives)? })
    }
}

fn terms(configured: &ServerConfig, lives: Lives) -> Result<Terms, String> {
    let filter = Filter::new(&configured.tools_allowed, &configured.tools_denied);
    let tools = configured.tools.iter().map(|(tool, set)| {
        let settings = ToolSettings {
            timeout: set.timeout.map(config::Millis::duration),
            queue: set.queue.as_deref().map(Into::into),
            retry: set.retry,
            instructions: set.instructions.clone(),
        };
        (tool.clone(), settings)
    });
    Ok(Terms {
        filter: filter.map_err(|error| error.to_string())?,
        start: match configured.start {
            config::Start::Eager => Start::Eager,
            config::Start::OnUse => Start::OnUse,
        },
        shared: configured.shared,
        required: configured.required,
        lives,
        timeout: configured.timeout.duration(),
        max_total_timeout: configured.max_total_timeout.duration(),
        acquire_timeout: configured.acquire_timeout.duration(),
        queue: configured.queue.as_str().into(),
        tools: tools.collect(),
        enforce_output: configured.validate_output == Strictness::Enforce,
    })
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

pub(super) fn life_of(configured: &ServerConfig) -> Policy {
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
