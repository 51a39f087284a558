//! What people are told of each server: where it is in its life, how it is reached, what it did.
//!
//! Owns: that telling, as plain values. Must not know: who reads them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use crate::domain::ledger::clip;
use crate::domain::life::{Lasting, Phase};
use crate::domain::log::{Level, visible};

use super::queues::Crowd;
use super::roster::Fleet;
use super::ship::{Calling, Failed, Ship};
use super::supervisor::{Counts, Surroundings};
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
    /// The process that colibri started for it, or the helper that keeps that process.
    pub pid: Option<u32>,
    /// How long it has been ready.
    pub uptime_ms: Option<u64>,
    /// How often it was started again.
    pub restarts: u64,
    /// What was done for it.
    #[serde(flatten)]
    pub counts: Counts,
    /// How many tools it listed.
    pub tools: usize,
    /// Calls on their way.
    pub in_flight: usize,
    /// The queue of its calls.
    pub queue: String,
    /// What it was asked and what came of it.
    pub tally: Tallied,
    /// What went wrong last, and what is waited for.
    pub trouble: Option<String>,
    /// The last line of its stderr.
    pub last_words: Option<String>,
}

impl Ship {
    pub(super) fn report(&self) -> ServerReport {
        let (status, now) = (Arc::clone(&self.status().borrow()), self.clock.now());
        ServerReport {
            name: self.name.to_string(),
            slug: self.slug.to_string(),
            state: if self.is_off() { "off" } else { status.state.status() },
            transport: self.transport,
            revision: status.live.as_ref().map(|live| live.session.revision().date),
            pid: status.live.as_ref().and_then(|live| live.session.connection().pid()),
            uptime_ms: status.state.up_since().map(|since| now.since(since).as_millis() as u64),
            restarts: status.connects.saturating_sub(1),
            counts: status.counts,
            tools: status.offered.tools.tools.len(),
            in_flight: self.supervised.usage().calls(),
            queue: self.terms.queue.to_string(),
            tally: self.tally.read(),
            trouble: status.state.trouble(now),
            last_words: self.supervised.logbook().last_words(),
        }
    }
}

impl Fleet {
    /// Every server, in the order of the configuration.
    pub fn report(&self) -> Vec<ServerReport> {
        self.ships().list.iter().map(|ship| ship.report()).collect()
    }

    /// How crowded each queue is.
    pub fn crowds(&self) -> Vec<Crowd> {
        self.queues().crowds()
    }

    /// What has to change before it makes sense to try this server again, if something has.
    pub fn lasting(&self, server: &str) -> Option<Lasting> {
        let ship = self.named(server).ok()?;
        match ship.status().borrow().state.phase {
            Phase::Blocked { lasting, .. } => Some(lasting),
            _ => None,
        }
    }
}

impl Fleet {
    /// How long it took; and, for who looks closer still, what was said, without secrets.
    pub(super) fn log_call(
        &self,
        ship: &Ship,
        calling: &Calling<'_>,
        outcome: &Result<Bytes, Failed>,
        took: Duration,
    ) {
        let Surroundings { logger, masks, .. } = self.surroundings();
        if !logger.shows(Level::Debug) {
            return;
        }
        let (name, what, took) = (&ship.name, visible(calling.what.name()), took.as_millis());
        let ended = match outcome {
            Ok(result) => format!("{} bytes", result.len()),
            Err(failed) => failed.error.code().to_owned(),
        };
        logger.debug(format_args!("[mcp:{name}] {what}: {took} ms, {ended}"));
        if logger.shows(Level::Trace) {
            let shown = |body: &[u8]| visible(clip(&masks.text(&String::from_utf8_lossy(body))));
            logger.trace(format_args!("[mcp:{name}] {what} asked: {}", shown(calling.what.body())));
            if let Ok(result) = outcome {
                logger.trace(format_args!("[mcp:{name}] {what} answered: {}", shown(result)));
            }
        }
    }
}
