//! What people are told of each server: where it is in its life, how it is reached, what it did.
//!
//! Owns: that telling, as plain values. Must not know: who reads them.

use serde::Serialize;

use super::queues::Crowd;
use super::roster::Fleet;
use super::tally::Tallied;

/// One server, for people and their programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServerReport {
    /// Its configured name.
    pub name: String,
    /// What stands before `__`.
    pub slug: String,
    /// One word for where it is in its life.
    pub state: &'static str,
    /// The transport, such as `stdio`.
    pub transport: &'static str,
    /// The protocol revision spoken.
    pub revision: Option<&'static str>,
    /// How long it has been ready.
    pub uptime_ms: Option<u64>,
    /// How often it was started again.
    pub restarts: u64,
    /// How many tools it listed.
    pub tools: usize,
    /// Calls on their way.
    pub in_flight: usize,
    /// What it was asked and what came of it.
    pub tally: Tallied,
    /// What went wrong last, and what is waited for.
    pub trouble: Option<String>,
}

impl Fleet {
    /// Every server, in the order of the configuration.
    pub fn report(&self) -> Vec<ServerReport> {
        let ships = self.ships();
        let report = |ship: &std::sync::Arc<super::ship::Ship>| {
            let (status, now) = (std::sync::Arc::clone(&ship.status().borrow()), ship.clock.now());
            ServerReport {
                name: ship.name.to_string(),
                slug: ship.slug.to_string(),
                state: if ship.is_off() { "off" } else { status.state.status() },
                transport: ship.transport,
                revision: status.live.as_ref().map(|live| live.session.revision().date),
                uptime_ms: status.state.up_since().map(|since| now.since(since).as_millis() as u64),
                restarts: status.connects.saturating_sub(1),
                tools: status.offered.tools.tools.len(),
                in_flight: ship.supervised.usage().calls(),
                tally: ship.tally.read(),
                trouble: status.state.trouble(now),
            }
        };
        ships.list.iter().map(report).collect()
    }

    /// How crowded each queue is.
    pub fn crowds(&self) -> Vec<Crowd> {
        self.queues().crowds()
    }
}
