//! Hearing of a modern server that its lists have changed: one request that stays open, for as long as the
//! connection lives.
//!
//! Owns: whether it is open, and when it is opened again. Decides by the causes of its ends alone.
//! Must not know: what is done when a list has changed. What is told on the request takes the way of every
//! notification, to the connection's handler.

use std::future::{Future, pending};
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use crate::mcp::error::code;
use crate::mcp::listen::Filter;
use crate::mcp::revision::Family;

use super::error::Cause;
use super::session::Session;

/// How long it is waited before the request is opened again, one after the other; the last one stays.
const DELAYS: [Duration; 6] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_mins(1),
];

/// A request that was open for this long did not fail: the next one is opened as if it were the first.
const GOOD_AFTER: Duration = Duration::from_mins(1);

/// The longest wait that a server can ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_hours(1);

/// What became of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// The server tells from now on. What changed before nobody has told.
    Begun,
    /// It tells no more, for a while or for good.
    Ended,
}

/// Listens to one connection.
pub(super) struct Listening {
    session: Session,
    /// What the server announced.
    wanted: Filter,
    /// Whether the server tells of all that it announced.
    is_told: bool,
    /// Ends in a row.
    failures: usize,
    step: Step,
}

type Request = Pin<Box<dyn Future<Output = Result<Bytes, Cause>> + Send>>;

enum Step {
    Open {
        request: Request,
        /// Until the server has said what it agrees to.
        acknowledged: Option<oneshot::Receiver<Bytes>>,
        since: Instant,
    },
    Wait(Instant),
    /// It was refused, and will be.
    Refused,
}

/// What a step comes to.
enum Event {
    Acknowledged(Option<Bytes>),
    Ended(Option<Cause>, Duration),
    Woke,
}

impl Listening {
    /// Listens to a server that announces changes of its lists, from the first [`Listening::heard`] on.
    pub(super) fn to(session: &Session) -> Option<Self> {
        let wanted = Filter::announced(session.introduction());
        if session.revision().family != Family::Modern || wanted.is_empty() {
            return None;
        }
        let (session, step) = (session.clone(), Step::Wait(Instant::now()));
        Some(Self { session, wanted, is_told: false, failures: 0, step })
    }

    /// Whether every change is told of, now.
    pub(super) fn is_told(&self) -> bool {
        self.is_told
    }

    /// Returns when something became of the request. It may be given up and called again: nothing is lost.
    pub(super) async fn heard(&mut self) -> Heard {
        loop {
            let event = self.step.next().await;
            if let Some(heard) = self.on(event) {
                return heard;
            }
        }
    }

    fn on(&mut self, event: Event) -> Option<Heard> {
        match event {
            Event::Woke => {
                self.step = self.open();
                None
            }
            Event::Acknowledged(params) => {
                // Without a word the request is about to end, and that says more.
                let agreed = Filter::agreed(&params?);
                self.is_told = agreed.covers(self.wanted);
                (!agreed.is_empty()).then_some(Heard::Begun)
            }
            Event::Ended(cause, after) => {
                self.is_told = false;
                self.step = match cause {
                    Some(cause) if is_lasting(&cause) => Step::Refused,
                    cause => Step::Wait(Instant::now() + self.delay(cause.as_ref(), after)),
                };
                Some(Heard::Ended)
            }
        }
    }

    fn delay(&mut self, cause: Option<&Cause>, after: Duration) -> Duration {
        self.failures = if after < GOOD_AFTER { self.failures + 1 } else { 1 };
        let delay = DELAYS[self.failures.min(DELAYS.len()) - 1];
        match cause {
            Some(Cause::Http { retry_after: Some(wanted), .. }) => delay.max((*wanted).min(RETRY_AFTER_MAX)),
            _ => delay,
        }
    }

    fn open(&self) -> Step {
        let (agree, acknowledged) = oneshot::channel();
        let (session, params) = (self.session.clone(), self.wanted.params());
        let request = Box::pin(async move { session.listen(&params, agree).await });
        Step::Open { request, acknowledged: Some(acknowledged), since: Instant::now() }
    }
}

impl Step {
    async fn next(&mut self) -> Event {
        match self {
            Self::Wait(until) => {
                sleep_until(*until).await;
                Event::Woke
            }
            Self::Refused => pending().await,
            Self::Open { request, acknowledged, since } => tokio::select! {
                biased;
                agreed = word(acknowledged) => Event::Acknowledged(agreed),
                end = request => Event::Ended(end.err(), since.elapsed()),
            },
        }
    }
}

/// The server's word, once.
async fn word(acknowledged: &mut Option<oneshot::Receiver<Bytes>>) -> Option<Bytes> {
    let Some(receiver) = acknowledged else { return pending().await };
    let agreed = receiver.await.ok();
    *acknowledged = None;
    agreed
}

/// Whether asking again would be answered the same.
fn is_lasting(cause: &Cause) -> bool {
    match cause {
        Cause::Answered { code, .. } => {
            [code::METHOD_NOT_FOUND, code::INVALID_PARAMS, code::INVALID_REQUEST].contains(code)
        }
        Cause::Http { status, .. } => matches!(status, 400 | 401 | 403..=405 | 501),
        Cause::Unauthorized(_) | Cause::Invalid(_) => true,
        _ => false,
    }
}
