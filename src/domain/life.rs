//! The life of a server: what it is doing, what news of it changes, and when to look again.
//!
//! Owns: the state machine of one connection, its restart policy as data, and the words derived from
//! a state (health, status, duty). Whoever supervises a server waits for news or for
//! [`State::next_wake`], asks [`State::on`] what that makes of it, and acts on [`State::duty`].
//! Must not know: clocks, dice, tasks, transports. Time and chance are arguments.

mod answer;
mod policy;
mod step;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::clock::Moment;

pub use policy::{Delays, Policy, Restart};
use step::Step;

/// So many periodic probes that fail in a row make a server degraded, and start it again.
pub const FAILED_PROBES_DEGRADED: u32 = 3;

/// So many checks that fail in a row make a server unavailable: connects, and the periodic probes
/// that failed before them. A connect counts because every attempt ends with a probe of its own.
pub const FAILED_CHECKS_UNAVAILABLE: u32 = 5;

/// Which connection of a server a piece of news is about. Grows with every attempt to connect.
pub type Generation = u64;

/// Where a server is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The connection that counts. News of any other is late and changes nothing.
    pub generation: Generation,
    /// What it is doing.
    pub phase: Phase,
}

/// What a server is doing, with exactly what is true meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing, until it is wanted.
    Idle,
    /// An attempt to connect is under way: a first one, or, if it was ready before, a restart.
    Connecting {
        /// When this attempt began.
        since: Moment,
        /// What came before it.
        outage: Outage,
    },
    /// It serves calls.
    Ready {
        /// Since when, and how well.
        up: Uptime,
        /// When the next periodic probe is due.
        probe_at: Option<Moment>,
    },
    /// It serves calls, and a probe is under way. There is never more than one.
    Probing {
        /// Since when it is up, and how well.
        up: Uptime,
        /// When the probe began.
        since: Moment,
        /// Whether a call ran out of time: then one failed probe is enough.
        after_timeout: bool,
    },
    /// It waits before the next attempt.
    Backoff {
        /// When that attempt is due.
        until: Moment,
        /// What came before it.
        outage: Outage,
    },
    /// All attempts failed. It waits for [`Event::Restart`].
    Exhausted {
        /// When it gave up.
        since: Moment,
        /// What came before.
        outage: Outage,
    },
    /// It failed in a way that no repetition cures. It waits for [`Event::Restart`].
    Blocked {
        /// When it failed.
        since: Moment,
        /// What has to change.
        lasting: Lasting,
        /// What happened.
        outage: Outage,
    },
    /// Its connection is being ended on purpose.
    Closing {
        /// When that began.
        since: Moment,
        /// What comes after.
        then: Then,
    },
    /// The end.
    Closed,
}

/// A ready server's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uptime {
    /// When it became ready.
    pub since: Moment,
    /// How many restarts led here since the last stable period; the next loss adds to them.
    pub attempt: u32,
    /// Periodic probes that failed in a row.
    pub failed_probes: u32,
}

/// The time during which a server is not ready, though it is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outage {
    /// When it was lost, or when its start began.
    pub since: Moment,
    /// Whether it was ready before.
    pub was_ready: bool,
    /// The number of the restart under way or waited for; 0 is the first connect of a start. Counted
    /// since the last stable period, so that a server that dies young is waited for ever longer.
    pub attempt: u32,
    /// Periodic probes that failed in a row before it was lost.
    pub failed_probes: u32,
    /// Connects that failed in a row.
    pub failed_connects: u32,
    /// For people: what went wrong last. Nothing has yet when a start begins.
    pub reason: Option<Arc<str>>,
}

/// What comes after a deliberate close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Rest until wanted.
    Idle,
    /// A new start: it was wanted again meanwhile.
    Start,
    /// The end.
    Closed,
}

/// A failure that lasts until something changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Lasting {
    /// The configuration cannot work.
    BadConfiguration,
    /// There is no such program.
    CommandNotFound,
    /// The server refuses who we are: 401 or 403.
    NotAuthorized,
    /// The two sides have no protocol version in common.
    VersionMismatch,
}

/// What can happen to a server. Reasons are for people and must be clipped by whoever reads them
/// from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It is to be used: colibri starts, or a call arrived.
    Wanted,
    /// Nobody has used it for so long that it may rest.
    Unused,
    /// An attempt succeeded: connected, probed once, and its tools are listed. Not before.
    Listed(Generation),
    /// An attempt failed.
    ConnectFailed(Generation, Failure),
    /// The connection ended by itself, or is no longer to be trusted (a call of a dedicated server
    /// ran out of time).
    Lost(Generation, Arc<str>),
    /// A call of a shared server ran out of time: is it well?
    CallTimedOut(Generation),
    /// The probe under way was answered.
    ProbePassed(Generation),
    /// The probe under way was not answered, or not well.
    ProbeFailed(Generation, Arc<str>),
    /// The time of [`State::next_wake`] may have come.
    Woke,
    /// A person asks for a new connection, or what it depends on has changed. The past is forgotten.
    Restart(Arc<str>),
    /// It is to end, for good.
    Close,
    /// The deliberate close is complete: nothing of the connection is left.
    Ended(Generation),
}

/// Why an attempt to connect failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// For people.
    pub reason: Arc<str>,
    /// What has to change before another attempt makes sense; `None` if it may go better next time.
    pub lasting: Option<Lasting>,
}

impl State {
    /// A server that nobody has asked for yet.
    pub fn new() -> Self {
        Self { generation: 0, phase: Phase::Idle }
    }

    /// What an event makes of it. `dice` is in [0, 1) and lengthens delays.
    #[must_use]
    pub fn on(self, event: Event, now: Moment, policy: &Policy, dice: f64) -> Self {
        if event.generation().is_some_and(|generation| generation != self.generation) {
            return self;
        }
        let step = Step { generation: self.generation, now, policy, dice };
        match (self.phase, event) {
            (Phase::Closed, _) => step.stay(Phase::Closed),
            (Phase::Closing { since, then }, event) => step.closing(since, then, &event),
            (_, Event::Close) => step.close(Then::Closed),

            (Phase::Idle, Event::Wanted) => step.connect(step.outage(None)),
            (Phase::Backoff { until, outage }, Event::Woke) if until.since_boot <= now.since_boot => {
                step.connect(outage)
            }
            (Phase::Connecting { outage, .. }, Event::Listed(_)) => {
                step.ready(Uptime { since: now, attempt: outage.attempt, failed_probes: 0 })
            }
            (Phase::Connecting { outage, .. }, Event::ConnectFailed(_, failure)) => {
                step.failed(outage, failure)
            }
            // The connection ended before it was one.
            (Phase::Connecting { outage, .. }, Event::Lost(_, reason)) => {
                step.failed(outage, Failure { reason, lasting: None })
            }

            (Phase::Ready { up, .. } | Phase::Probing { up, .. }, Event::Lost(_, reason)) => {
                step.lost(up, reason)
            }
            (Phase::Ready { up, probe_at: Some(at) }, Event::Woke) if at.since_boot <= now.since_boot => {
                step.stay(Phase::Probing { up, since: now, after_timeout: false })
            }
            (Phase::Ready { up, .. }, Event::CallTimedOut(_)) => {
                step.stay(Phase::Probing { up, since: now, after_timeout: true })
            }
            // The probe under way answers for this call too.
            (Phase::Probing { up, since, .. }, Event::CallTimedOut(_)) => {
                step.stay(Phase::Probing { up, since, after_timeout: true })
            }
            (Phase::Probing { up, .. }, Event::ProbePassed(_)) => {
                step.ready(Uptime { failed_probes: 0, ..up })
            }
            (Phase::Probing { up, after_timeout, .. }, Event::ProbeFailed(_, reason)) => {
                step.probe_failed(up, after_timeout, reason)
            }

            // What has given up keeps saying so.
            (phase @ (Phase::Idle | Phase::Exhausted { .. } | Phase::Blocked { .. }), Event::Unused) => {
                step.stay(phase)
            }
            (_, Event::Unused) => step.close(Then::Idle),
            (phase, Event::Restart(reason)) => step.restart(&phase, reason),
            // Late or idle news.
            (phase, _) => step.stay(phase),
        }
    }

    /// When to look again with [`Event::Woke`], if nothing happens before.
    pub fn next_wake(&self) -> Option<Moment> {
        match &self.phase {
            Phase::Ready { probe_at, .. } => *probe_at,
            Phase::Backoff { until, .. } => Some(*until),
            Phase::Idle
            | Phase::Connecting { .. }
            | Phase::Probing { .. }
            | Phase::Exhausted { .. }
            | Phase::Blocked { .. }
            | Phase::Closing { .. }
            | Phase::Closed => None,
        }
    }

    /// What its supervisor must have under way. A connection of any other generation must be ended.
    pub fn duty(&self) -> Duty {
        let generation = self.generation;
        match &self.phase {
            Phase::Connecting { .. } => Duty::Connect(generation),
            Phase::Ready { .. } => Duty::Serve(generation),
            Phase::Probing { .. } => Duty::Probe(generation),
            Phase::Closing { .. } => Duty::Close(generation),
            Phase::Idle
            | Phase::Backoff { .. }
            | Phase::Exhausted { .. }
            | Phase::Blocked { .. }
            | Phase::Closed => Duty::Rest,
        }
    }

    /// How well it is. Derived, so that it cannot disagree with the state.
    pub fn health(&self) -> Health {
        match &self.phase {
            // A third failed probe has ended the connection, so what is left of it is well enough.
            Phase::Ready { .. } | Phase::Probing { .. } => Health::Healthy,
            Phase::Connecting { outage, .. } | Phase::Backoff { outage, .. } => outage.health(),
            Phase::Idle
            | Phase::Exhausted { .. }
            | Phase::Blocked { .. }
            | Phase::Closing { .. }
            | Phase::Closed => Health::Unavailable,
        }
    }

    /// Whether it is down by somebody's wish, not by any failure.
    pub fn is_at_rest(&self) -> bool {
        matches!(self.phase, Phase::Idle | Phase::Closing { .. } | Phase::Closed)
    }

    /// One word for people.
    pub fn status(&self) -> &'static str {
        match &self.phase {
            Phase::Idle => "idle",
            Phase::Connecting { outage: Outage { was_ready: false, .. }, .. } => "connecting",
            Phase::Connecting { .. } => "restarting",
            Phase::Ready { .. } => "ready",
            Phase::Probing { .. } => "probing",
            Phase::Backoff { .. } => "backoff",
            Phase::Exhausted { .. } => "exhausted",
            Phase::Blocked { .. } => "blocked",
            Phase::Closing { .. } => "closing",
            Phase::Closed => "closed",
        }
    }

    /// What went wrong last, and what is waited for, in a sentence for people. `None` if all is well.
    pub fn trouble(&self, now: Moment) -> Option<String> {
        let why = |reason: &Option<Arc<str>>| reason.as_deref().unwrap_or("no reason is known").to_owned();
        match &self.phase {
            Phase::Connecting { outage, .. } => outage.reason.as_deref().map(str::to_owned),
            Phase::Backoff { until, outage } => {
                let wait = shown(until.since(now));
                Some(format!("{}; attempt {} in {wait}", why(&outage.reason), outage.attempt))
            }
            Phase::Exhausted { outage, .. } => Some(format!(
                "{}; gave up after {} attempts: restart it by hand",
                why(&outage.reason),
                outage.attempt
            )),
            Phase::Blocked { lasting, outage, .. } => {
                Some(format!("{}; {}", why(&outage.reason), lasting.remedy()))
            }
            Phase::Idle
            | Phase::Ready { .. }
            | Phase::Probing { .. }
            | Phase::Closing { .. }
            | Phase::Closed => None,
        }
    }
}

impl Default for State {
    fn default() -> Self {
        Self::new()
    }
}

/// What a supervisor must have under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// Nothing: no connection may be left.
    Rest,
    /// One attempt to connect, as that generation.
    Connect(Generation),
    /// The connection of that generation, serving calls.
    Serve(Generation),
    /// The same, and one probe on it.
    Probe(Generation),
    /// Ending whatever connection there is; then [`Event::Ended`] of that generation.
    Close(Generation),
}

/// How well a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// It serves calls, and its tools are known.
    Healthy,
    /// It is starting, or was lost and is being brought back.
    Degraded,
    /// It does not serve calls, and nobody should wait for it.
    Unavailable,
}

impl Health {
    /// As it stands on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Degraded => "degraded",
            Self::Unavailable => "unavailable",
        }
    }
}

impl fmt::Display for Health {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl Outage {
    fn health(&self) -> Health {
        if self.failed_probes.saturating_add(self.failed_connects) < FAILED_CHECKS_UNAVAILABLE {
            Health::Degraded
        } else {
            Health::Unavailable
        }
    }
}

impl Lasting {
    /// What is waited for.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::BadConfiguration => "waits for its configuration to change",
            Self::CommandNotFound => "waits for a restart once it is installed, or another configuration",
            Self::NotAuthorized => "waits for other credentials",
            Self::VersionMismatch => "waits for a restart with another version of the server",
        }
    }
}

impl Event {
    /// The connection it is news of, if it is of one.
    fn generation(&self) -> Option<Generation> {
        match self {
            Self::Listed(generation)
            | Self::ConnectFailed(generation, _)
            | Self::Lost(generation, _)
            | Self::CallTimedOut(generation)
            | Self::ProbePassed(generation)
            | Self::ProbeFailed(generation, _)
            | Self::Ended(generation) => Some(*generation),
            Self::Wanted | Self::Unused | Self::Woke | Self::Restart(_) | Self::Close => None,
        }
    }
}

/// A span as people say it: `5 s`, or `300 ms` below a second.
fn shown(span: Duration) -> String {
    if span < Duration::from_secs(1) {
        format!("{} ms", span.as_millis())
    } else {
        format!("{} s", span.as_secs_f64().round())
    }
}

#[cfg(test)]
mod tests;
