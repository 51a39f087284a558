//! What a configuration asks of all servers together, and who may use whose connection.
//!
//! Owns: the plan of a fleet, what a new one changes, and the registry of connections.
//! Must not know: how a server is started, or why a plan changes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde::Serialize;

use crate::domain::health::ServerFacts;
use crate::domain::merkle::Hash;
use crate::domain::queue::Bounds;

use super::supervisor::Supervised;
use super::terms::Member;

/// What a configuration asks of a fleet.
#[derive(Default)]
pub struct Plan {
    /// The servers, in the order of the configuration.
    pub members: Vec<Member>,
    /// Servers that stay as they are, if they are there: their new entries cannot be used. In the order of the
    /// configuration too.
    pub kept: Vec<Kept>,
    /// Servers that are configured and not used, as people should see them.
    pub absent: Vec<ServerFacts>,
    /// The bounds of the queues, by name.
    pub queues: BTreeMap<Arc<str>, Bounds>,
}

/// A server that stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Which.
    pub slug: Arc<str>,
    /// How many members stand before it.
    pub after: usize,
}

/// What a new plan changed, by the names of the servers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// New ones.
    pub added: Vec<String>,
    /// Those with another configuration.
    pub changed: Vec<String>,
    /// Those that are gone.
    pub removed: Vec<String>,
    /// How many are as they were.
    pub unchanged: usize,
}

impl Summary {
    /// For people.
    pub fn told(&self) -> Vec<String> {
        let kinds = [("added", &self.added), ("changed", &self.changed), ("removed", &self.removed)];
        let told = kinds.iter().filter(|(_, names)| !names.is_empty());
        let mut told: Vec<String> =
            told.map(|(what, names)| format!("{what}: {}", names.join(", "))).collect();
        told.push(format!("unchanged: {}", self.unchanged));
        told
    }
}

/// Connections by effective configuration, so that nobody starts the same server twice.
#[derive(Clone, Default)]
pub struct Registry(Arc<Mutex<BTreeMap<Hash, Supervised>>>);

impl Registry {
    /// The connection of this configuration; started, if nobody has it yet.
    pub(super) fn join(&self, identity: Hash, start: impl FnOnce() -> Supervised) -> Supervised {
        let mut known = self.0.lock().expect("nothing panics while it holds the registry");
        known.retain(|_, supervised| !supervised.is_over());
        if let Some(joined) = known.get(&identity).and_then(Supervised::join) {
            return joined;
        }
        let supervised = start();
        known.insert(identity, supervised.clone());
        supervised
    }
}
