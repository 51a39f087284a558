//! What a configuration asks of one server, as plain values.
//!
//! Owns: the words of it. Must not know: files, or how any of it is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::domain::filter::Filter;
use crate::domain::merkle::Hash;

use super::supervisor::Settings;

/// One server of the fleet.
pub struct Member {
    /// Its effective configuration, secrets included. A member that comes again with the same is the same.
    pub identity: Hash,
    /// How it is supervised.
    pub settings: Settings,
    /// What concerns calls to it.
    pub terms: Terms,
}

/// What concerns calls to a server.
pub struct Terms {
    /// Which of its tools are offered.
    pub filter: Filter,
    /// When it is started.
    pub start: Start,
    /// Whether a member with the same configuration may use the same connection. Only where [`Lives::Used`].
    pub shared: bool,
    /// Whether colibri's start fails when this server's does.
    pub required: bool,
    /// How long one connection serves.
    pub lives: Lives,
    /// How long a call may take without progress.
    pub timeout: Duration,
    /// How long a call may take in all.
    pub max_total_timeout: Duration,
    /// How long a call waits for the server to be ready.
    pub acquire_timeout: Duration,
    /// The queue of its calls.
    pub queue: Arc<str>,
    /// What differs for single tools, by their own names.
    pub tools: BTreeMap<String, ToolSettings>,
    /// Whether a result that does not fit its tool's output schema is refused, and not only reported.
    pub enforce_output: bool,
}

/// When a server is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With colibri.
    Eager,
    /// With the first call.
    OnUse,
}

/// What differs for one tool.
#[derive(Clone, Debug, Default)]
pub struct ToolSettings {
    /// How long a call may take.
    pub timeout: Option<Duration>,
    /// The queue of its calls.
    pub queue: Option<Arc<str>>,
    /// Whether a failed call may be repeated though it may have had an effect.
    pub retry: bool,
    /// What clients are told about it.
    pub instructions: Option<String>,
}

/// How long one connection of a server serves. The one that [`Member::settings`] describes is there in any case: it
/// lists what the server offers, and tells how the server is.
#[derive(Default)]
pub enum Lives {
    /// As long as it is used, for everybody.
    #[default]
    Used,
    /// As long as one client's session.
    Session(Recipe),
    /// As long as one call.
    Call(Lending),
}

/// Makes the settings of one more connection to the same server. Nothing in them is shared with any other: who ends
/// one waits for nobody else's.
pub type Recipe = Arc<dyn Fn() -> Settings + Send + Sync>;

/// Connections that are lent to one call each.
pub struct Lending {
    /// How many wait, and for how long.
    pub bounds: Bounds,
    /// How they are made.
    pub recipe: Recipe,
    /// Tools whose processes have limits of their own. Nobody waits in advance for these: each is started on demand.
    pub apart: Vec<Apart>,
}

/// Tools with the same limits of their own.
pub struct Apart {
    /// Which, by their own names.
    pub tools: BTreeSet<String>,
    /// How a connection for one of them is made.
    pub recipe: Recipe,
}

/// The bounds of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// How many connections wait for calls.
    pub size: usize,
    /// How long one may wait before it is replaced.
    pub max_age: Duration,
    /// How many calls one serves, as long as they end well.
    pub max_uses: u32,
}
