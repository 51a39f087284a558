//! What a call that arrives is told in each state of a server's life.

use std::sync::Arc;

use super::{Outage, Phase, State, Then};
use crate::domain::clock::Moment;
use crate::domain::provider::{ProviderError, Unavailable};

impl State {
    /// Whether a call may be sent.
    pub fn serves(&self) -> bool {
        matches!(self.phase, Phase::Ready { .. } | Phase::Probing { .. })
    }

    /// Since when it has been ready, if it is.
    pub fn up_since(&self) -> Option<Moment> {
        match &self.phase {
            Phase::Ready { up, .. } | Phase::Probing { up, .. } => Some(up.since),
            _ => None,
        }
    }

    /// What a call is told that cannot be sent and does not wait, or has waited long enough. `None` if it
    /// can be sent.
    pub fn refusal(&self, now: Moment) -> Option<ProviderError> {
        let not_yet = || ProviderError::Unavailable {
            reason: Unavailable::InitFailed,
            why: "it is not started yet".into(),
            age: None,
        };
        match &self.phase {
            Phase::Ready { .. } | Phase::Probing { .. } => None,
            Phase::Connecting { outage, .. } => Some(outage.refusal(now, Unavailable::RestartInProgress)),
            // Nothing was tried yet: it is about to be.
            Phase::Backoff { outage, .. } if outage.failed_connects == 0 => {
                Some(outage.refusal(now, Unavailable::RestartInProgress))
            }
            Phase::Backoff { outage, .. } | Phase::Exhausted { outage, .. } => {
                Some(outage.refusal(now, Unavailable::RestartFailed))
            }
            Phase::Blocked { .. } => {
                let why = self.trouble(now).unwrap_or_default();
                Some(ProviderError::InitFailed(why.into()))
            }
            Phase::Closed | Phase::Closing { then: Then::Closed, .. } => Some(ProviderError::Terminated),
            Phase::Idle | Phase::Closing { .. } => Some(not_yet()),
        }
    }
}

impl Outage {
    fn refusal(&self, now: Moment, restart: Unavailable) -> ProviderError {
        let starting: Arc<str> = "it is starting".into();
        ProviderError::Unavailable {
            reason: if self.was_ready { restart } else { Unavailable::InitFailed },
            why: self.reason.clone().unwrap_or(starting),
            age: Some(now.since(self.since)),
        }
    }
}
