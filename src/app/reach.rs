//! How a configured server is reached: from the words of its configuration to something that opens a
//! link.

use std::ffi::OsString;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::config::{Config, ServerConfig, Transport, inherited_environment};
use crate::domain::audit::Pending;
use crate::domain::log::Logger;
use crate::domain::merkle::Hash;
use crate::fleet::bridge::Memory;
use crate::fleet::credentials::Credentials;
use crate::fleet::error::Cause;
use crate::fleet::link::stdio::{Children, Stdio};
use crate::fleet::link::worker::Worker;
use crate::fleet::link::{Carrier, Opener};
use crate::fleet::web::Endpoint;
use crate::mcp::lines::FRAME_BYTES_MAX;
use crate::mcp::revision::Family;
use crate::sandbox::{Policy, Spec};
use crate::store::{Closing, Store};

use super::run::store_options;
use super::worker::{environment as environment_of_workers, is_for_workers};

const LEGACY: &str = "legacy";
const MODERN: &str = "modern";

/// What a server spoke the last time, kept in the store under its effective configuration.
pub struct Families {
    store: Store,
    server: Hash,
}

impl Families {
    /// The memory of one server.
    pub fn new(store: Store, server: &ServerConfig) -> Self {
        Self { store, server: key(server) }
    }
}

/// The memory of one server, for a command that needs nothing else of the store. None if the store
/// cannot be had: it costs a probe.
pub fn families(config: &Config, logger: &Logger, server: &ServerConfig) -> Option<(Families, Closing)> {
    let (store, closing) = Store::open(store_options(config, logger)).ok()?;
    Some((Families::new(store, server), closing))
}

impl Memory for Families {
    fn recall(&self) -> Pending<'_, Option<Family>> {
        let (store, server) = (self.store.clone(), self.server);
        Box::pin(async move {
            let read = tokio::task::spawn_blocking(move || store.reader()?.family(server)).await;
            match read.ok()?.ok()??.as_str() {
                LEGACY => Some(Family::Legacy),
                MODERN => Some(Family::Modern),
                _ => None,
            }
        })
    }

    fn remember(&self, family: Family) -> Pending<'_, ()> {
        let name = if family == Family::Legacy { LEGACY } else { MODERN };
        Box::pin(async move {
            // It costs a probe the next time, and nothing else.
            let _ = self.store.remember_family(self.server, name).await;
        })
    }
}

/// One effective configuration. What is secret in it is masked before it is hashed.
pub(super) fn key(server: &ServerConfig) -> Hash {
    let written = serde_json::to_vec(server).expect("a configuration always serialises");
    Hash(Sha256::digest(written).into())
}

/// The link that a configuration asks for. `credentials` are asked by a server on the network, unless a
/// header says who we are; a program runs under `policy`, and so does a worker, which shows the server's `name`.
pub fn opener(
    name: &str,
    server: &ServerConfig,
    credentials: Option<Arc<dyn Credentials>>,
    policy: Policy,
) -> Result<Box<dyn Opener>, Cause> {
    match (&server.url, &server.command) {
        (Some(url), _) => {
            let mut endpoint = Endpoint::new(url.value())?;
            for (name, value) in &server.headers {
                endpoint = endpoint.with_header(name, value.expose())?;
            }
            if let Some(credentials) = credentials {
                endpoint = endpoint.with_credentials(credentials);
            }
            let carrier = carrier(&endpoint, server.transport);
            if !is_for_workers(server) {
                return Ok(carrier.opener(endpoint));
            }
            let (name, environment, children) =
                (name.to_owned(), environment_of_workers(&policy), Children::default());
            Ok(Box::new(Worker { name, endpoint, carrier, environment, policy, children }))
        }
        (None, Some(command)) => Ok(Box::new(Stdio {
            spec: Spec {
                program: command.value().into(),
                arguments: server.args.iter().map(|argument| argument.value().into()).collect(),
                environment: environment(server),
                directory: server.cwd.as_ref().map(|directory| directory.value().into()),
            },
            policy,
            frame_bytes_max: FRAME_BYTES_MAX,
            children: Children::default(),
        })),
        (None, None) => Err(Cause::Invalid("it has neither `command` nor `url`".to_owned())),
    }
}

fn carrier(endpoint: &Endpoint, transport: Option<Transport>) -> Carrier {
    match transport {
        Some(Transport::Sse) => Carrier::Sse,
        Some(Transport::Websocket) => Carrier::WebSocket,
        Some(Transport::Http) => Carrier::Http,
        Some(Transport::Stdio) | None => Carrier::of(endpoint),
    }
}

/// What every server inherits, and over it what is configured.
fn environment(server: &ServerConfig) -> Vec<(OsString, OsString)> {
    let mut environment = inherited_environment();
    environment.retain(|(name, _)| name.to_str().is_none_or(|name| !server.env.contains_key(name)));
    environment.extend(
        server.env.iter().map(|(name, value)| (OsString::from(name), OsString::from(value.expose()))),
    );
    environment
}
