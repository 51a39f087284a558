//! A server as a configuration without a word about it would have it, for benches that build fleets by hand. Nobody
//! probes it, and what it spoke is not remembered.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use colibri::domain::chronicle::NoChronicle;
use colibri::domain::clock::Clock;
use colibri::domain::filter::Filter;
use colibri::domain::life::{Policy, Restart};
use colibri::domain::log::Logger;
use colibri::domain::merkle::Hash;
use colibri::domain::names::{NAME_CHARS_DEFAULT, Naming};
use colibri::fleet::bus::Bus;
use colibri::fleet::link::Opener;
use colibri::fleet::roster::{Common, Lives, Member, Registry, Start, Terms};
use colibri::fleet::supervisor::{Probe, Settings};
use colibri::mcp::request::Client;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// What the members of a fleet share.
pub(super) fn common(clock: &Arc<dyn Clock>) -> Common {
    Common {
        init_concurrency: 8,
        naming: Naming::Prefixed,
        name_chars_max: NAME_CHARS_DEFAULT,
        reserved: Vec::new(),
        clock: Arc::clone(clock),
        health: watch::Sender::new(Vec::new()),
        bus: Bus::new(Arc::clone(clock)),
        chronicle: Arc::new(NoChronicle),
        logger: Logger::silent(),
        registry: Registry::default(),
        masks: Arc::default(),
        stopping: CancellationToken::new(),
    }
}

/// A member whose connections live so.
pub(super) fn member(settings: Settings, lives: Lives) -> Member {
    let terms = Terms {
        filter: Filter::default(),
        start: Start::Eager,
        shared: false,
        required: false,
        lives,
        timeout: Duration::from_secs(30),
        max_total_timeout: Duration::from_mins(10),
        acquire_timeout: Duration::from_mins(1),
        queue: "default".into(),
        tools: BTreeMap::new(),
        enforce_output: false,
    };
    Member { identity: Hash([0; 32]), settings, terms }
}

/// How a server is supervised that is reached by this.
pub(super) fn settings(name: &str, opener: Box<dyn Opener>) -> Settings {
    let client =
        Client { name: "bench".to_owned(), version: "1".to_owned(), capabilities: serde_json::json!({}) };
    Settings {
        name: name.into(),
        slug: name.into(),
        opener,
        policy: Policy { restart: Restart::preset_default(), probe_interval: None },
        probe: Probe::Ping,
        probe_timeout: Duration::from_secs(3),
        connect_timeout: Duration::from_secs(30),
        idle_close: None,
        client: Arc::new(client),
        memory: None,
        key: None,
        is_unconfined: false,
        pin_enforced: false,
        face: None,
    }
}
