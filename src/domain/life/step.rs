//! The single steps of a server's life: connect, be ready, be lost, try again, close.
//!
//! Owns: what each step makes of the counters. Which event leads to which step is in the parent.

use std::sync::Arc;

use super::{Event, FAILED_PROBES_DEGRADED, Failure, Generation, Outage, Phase, Policy, State, Then, Uptime};
use crate::domain::clock::Moment;

/// One step: from which connection, when, and by which rules.
pub(super) struct Step<'a> {
    pub(super) generation: Generation,
    pub(super) now: Moment,
    pub(super) policy: &'a Policy,
    pub(super) dice: f64,
}

impl Step<'_> {
    pub(super) fn stay(&self, phase: Phase) -> State {
        State { generation: self.generation, phase }
    }

    /// An outage that begins now, with a clean record.
    pub(super) fn outage(&self, reason: Option<Arc<str>>) -> Outage {
        Outage { since: self.now, was_ready: false, attempt: 0, failed_probes: 0, failed_connects: 0, reason }
    }

    /// A new connection with a clean record; how long it has been away is no part of the record.
    pub(super) fn restart(&self, phase: &Phase, reason: Arc<str>) -> State {
        let (since, was_ready) = match phase {
            Phase::Connecting { outage, .. }
            | Phase::Backoff { outage, .. }
            | Phase::Exhausted { outage, .. }
            | Phase::Blocked { outage, .. } => (outage.since, outage.was_ready),
            Phase::Ready { .. } | Phase::Probing { .. } => (self.now, true),
            Phase::Idle | Phase::Closing { .. } | Phase::Closed => (self.now, false),
        };
        self.connect(Outage { since, was_ready, ..self.outage(Some(reason)) })
    }

    pub(super) fn connect(&self, outage: Outage) -> State {
        State { generation: self.generation + 1, phase: Phase::Connecting { since: self.now, outage } }
    }

    pub(super) fn ready(&self, up: Uptime) -> State {
        let probe_at = self.policy.probe_interval.map(|interval| self.now.after(interval));
        self.stay(Phase::Ready { up, probe_at })
    }

    pub(super) fn close(&self, then: Then) -> State {
        self.stay(Phase::Closing { since: self.now, then })
    }

    pub(super) fn closing(&self, since: Moment, then: Then, event: &Event) -> State {
        let then = match (then, event) {
            (Then::Idle, Event::Ended(_)) => return self.stay(Phase::Idle),
            (Then::Start, Event::Ended(_)) => return self.connect(self.outage(None)),
            (Then::Closed, Event::Ended(_)) => return self.stay(Phase::Closed),
            (_, Event::Close) => Then::Closed,
            (Then::Idle, Event::Wanted | Event::Restart(_)) => Then::Start,
            (Then::Start, Event::Unused) => Then::Idle,
            (then, _) => then,
        };
        self.stay(Phase::Closing { since, then })
    }

    pub(super) fn probe_failed(&self, up: Uptime, after_timeout: bool, reason: Arc<str>) -> State {
        let up = Uptime { failed_probes: up.failed_probes + u32::from(!after_timeout), ..up };
        if after_timeout || up.failed_probes >= FAILED_PROBES_DEGRADED {
            self.lost(up, reason)
        } else {
            self.ready(up)
        }
    }

    pub(super) fn lost(&self, up: Uptime, reason: Arc<str>) -> State {
        let stable = self.now.since(up.since) >= self.policy.restart.stable;
        self.retry(Outage {
            was_ready: true,
            attempt: if stable { 0 } else { up.attempt },
            failed_probes: up.failed_probes,
            ..self.outage(Some(reason))
        })
    }

    pub(super) fn failed(&self, mut outage: Outage, Failure { reason, lasting }: Failure) -> State {
        outage.failed_connects = outage.failed_connects.saturating_add(1);
        outage.reason = Some(reason);
        match lasting {
            Some(lasting) => self.stay(Phase::Blocked { since: self.now, lasting, outage }),
            None => self.retry(outage),
        }
    }

    fn retry(&self, outage: Outage) -> State {
        let attempt = outage.attempt.saturating_add(1);
        if !self.policy.restart.allows(attempt) {
            return self.stay(Phase::Exhausted { since: self.now, outage });
        }
        let delay = self.policy.restart.delay(attempt, self.dice);
        let outage = Outage { attempt, ..outage };
        if delay.is_zero() {
            return self.connect(outage);
        }
        self.stay(Phase::Backoff { until: self.now.after(delay), outage })
    }
}
