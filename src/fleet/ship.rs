//! One server as the fleet sails it: its connection, its deadlines, its queue, and the way of a request to it.
//!
//! Owns: acquiring a connection, how long a caller waits, what a failure means to it, and which failures are
//! tried again.
//! Must not know: how a call is validated or put on record, who asked for it, or other servers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::domain::audit::CallId;
use crate::domain::clock::{Clock, Moment};
use crate::domain::deadline::Deadline;
use crate::domain::face::SessionId;
use crate::domain::ledger::clip;
use crate::domain::life::{Lasting, Phase};
use crate::domain::mask::Masks;
use crate::domain::merkle::Hash;
use crate::domain::provider::{Canceller, Executed, ProviderError, Rule, Unavailable};

use super::catalog::Proxied;
use super::crew::{Crew, Hand};
use super::error::{Cause, Verdict};
use super::inbox::Notice;
use super::queues::{Pass, Queues};
pub use super::session::Rounds;
use super::session::{Call, Reason, Request};
use super::supervisor::{Live, Status, Supervised};
use super::tally::Tally;
use super::terms::{Terms, ToolSettings};

/// Attempts of a call that may be repeated, and the first delay between them; doubled after.
const ATTEMPTS: u32 = 3;
const FIRST_DELAY: Duration = Duration::from_secs(1);

/// A server that refused who we are is asked again by a call, but not sooner than this.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// Notices of one call that its caller has not taken yet. Beyond it, some are missed.
const NOTICES_AHEAD: usize = 32;

/// A member that runs.
pub(super) struct Ship {
    pub(super) name: Arc<str>,
    pub(super) slug: Arc<str>,
    pub(super) identity: Hash,
    /// Lists what it offers, tells how it is, and serves calls unless the crew does.
    pub(super) supervised: Supervised,
    pub(super) crew: Crew,
    pub(super) terms: Terms,
    pub(super) tally: Tally,
    pub(super) transport: &'static str,
    pub(super) queues: Queues,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) masks: Arc<Masks>,
    /// Cancelled when colibri is told to stop.
    pub(super) stopping: CancellationToken,
    /// Turned off by a person: neither listed nor called.
    pub(super) off: AtomicBool,
    /// The outage for which somebody waited in vain, by when it began. Until it is over nobody else
    /// needs to wait.
    pub(super) in_vain: Mutex<Option<Moment>>,
    /// The refused connection after which a call has asked again.
    pub(super) tried_again: AtomicU64,
}

/// One request to a server.
pub struct Calling<'a> {
    /// The call's.
    pub id: CallId,
    /// When it arrived.
    pub arrived: Moment,
    /// In which session of a client.
    pub session: SessionId,
    /// What is asked.
    pub what: What<'a>,
    /// Where progress and log messages go.
    pub notices: Option<mpsc::Sender<Notice>>,
    /// Cancelled by the client or by a shutdown.
    pub cancel: CancellationToken,
    /// What a client of the newer family says with it. Such a client is never asked: what a tool wants to know is
    /// its result, and the client calls again with the answers.
    pub rounds: Option<Rounds<'a>>,
}

/// What is asked of a server.
#[derive(Clone, Copy, Debug)]
pub enum What<'a> {
    /// A call of a tool.
    Tool {
        /// Which.
        tool: &'a Proxied,
        /// A JSON object.
        arguments: &'a [u8],
    },
    /// Another request of the protocol.
    Other {
        /// The server's slug.
        server: &'a str,
        /// Such as `prompts/get`.
        method: &'static str,
        /// A JSON object without `_meta`.
        params: &'a [u8],
        /// The prompt or resource that is asked for.
        name: Option<&'a str>,
    },
}

impl What<'_> {
    /// The slug of the server that is asked.
    pub fn server(&self) -> &str {
        match self {
            Self::Tool { tool, .. } => &tool.server,
            Self::Other { server, .. } => server,
        }
    }

    /// What is sent.
    pub(super) fn body(&self) -> &[u8] {
        match self {
            Self::Tool { arguments, .. } => arguments,
            Self::Other { params, .. } => params,
        }
    }

    /// For people.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Tool { tool, .. } => &tool.tool,
            Self::Other { method, .. } => method,
        }
    }

    /// Whether it may be asked twice: a tool that says so, and whatever only reads.
    fn may_be_repeated(&self) -> bool {
        match self {
            Self::Tool { tool, .. } => tool.idempotent,
            Self::Other { .. } => true,
        }
    }
}

/// A call that did not end with a result of its tool.
#[derive(Clone, Debug)]
pub struct Failed {
    /// Which server, for people.
    pub server: Arc<str>,
    /// Why.
    pub error: ProviderError,
    /// The server's own JSON-RPC error, to be relayed as it is.
    pub relayed: Option<Bytes>,
    /// Whether another attempt makes sense at all.
    may_go_better: bool,
}

impl Ship {
    /// One request, in its queue, within its deadline, and once more if that is safe.
    pub(super) async fn call(&self, calling: &Calling<'_>) -> Result<Bytes, Failed> {
        let _used = self.supervised.usage().hold();
        let settings = match calling.what {
            What::Tool { tool, .. } => self.terms.tools.get(&*tool.tool).cloned().unwrap_or_default(),
            What::Other { .. } => ToolSettings::default(),
        };
        let limit = settings.timeout.unwrap_or(self.terms.timeout);
        let mut deadline = Deadline::new(calling.arrived, limit, self.terms.max_total_timeout);
        let _pass = self.queued(&settings, calling, &deadline).await?;
        let may_repeat = settings.retry || calling.what.may_be_repeated();
        let (mut attempt, mut delay) = (1, FIRST_DELAY);
        // An attempt that may have had an effect: whatever comes after it does not undo that.
        let mut perhaps: Option<Failed> = None;
        loop {
            let failed = match self.attempt(calling, &mut deadline).await {
                Ok(result) => return Ok(result),
                Err(failed) => failed,
            };
            let had_no_effect = failed.error.executed() == Executed::No;
            let failed = if had_no_effect { perhaps.take().unwrap_or(failed) } else { failed };
            let again = failed.may_go_better && (had_no_effect || may_repeat) && attempt < ATTEMPTS;
            if !again || delay >= deadline.left(self.clock.now()) {
                return Err(failed);
            }
            if calling.cancel.run_until_cancelled(sleep(delay)).await.is_none() {
                return Err(self.cancelled(failed.error.executed() == Executed::No));
            }
            if failed.error.executed() != Executed::No {
                perhaps = Some(failed);
            }
            (attempt, delay) = (attempt + 1, delay * 2);
        }
    }

    /// A place in the queue of the tool, or of the server.
    async fn queued(
        &self,
        settings: &ToolSettings,
        calling: &Calling<'_>,
        deadline: &Deadline,
    ) -> Result<Option<Pass>, Failed> {
        let queue = settings.queue.as_ref().unwrap_or(&self.terms.queue);
        let left = deadline.left(self.clock.now());
        let entered = self.queues.enter(queue, calling.arrived, left, &calling.cancel).await;
        entered.map_err(|error| match error {
            // The caller knows one deadline, not what was left of it.
            ProviderError::TimedOut { .. } => self.too_late(deadline),
            ProviderError::Cancelled { .. } => self.cancelled(true),
            error => self.for_good(error),
        })
    }

    async fn attempt(&self, calling: &Calling<'_>, deadline: &mut Deadline) -> Result<Bytes, Failed> {
        let until = Instant::now() + deadline.left(self.clock.now());
        let hand = calling.cancel.run_until_cancelled(self.hand(calling, until)).await;
        let hand = hand.ok_or_else(|| self.cancelled(true))??;
        // What it offers may be known better since the call was found.
        if let What::Tool { tool, .. } = calling.what
            && self.status().borrow().offered.is_withheld(&tool.tool)
        {
            return Err(self.for_good(ProviderError::PolicyDenied(Rule::Pin)));
        }
        if deadline.left(self.clock.now()).is_zero() {
            return Err(self.too_late(deadline));
        }
        let longest = self.terms.max_total_timeout;
        let (notices, mut said) = match &calling.notices {
            Some(_) => Some(mpsc::channel(NOTICES_AHEAD)).unzip(),
            None => (None, None),
        };
        let reason = Reason::default();
        let request = async {
            match calling.what {
                What::Tool { tool, arguments } => {
                    let call = Call {
                        tool: &tool.tool,
                        arguments,
                        notices,
                        rounds: calling.rounds,
                        reason: Some(&reason),
                    };
                    hand.session().call_for(call, longest).await
                }
                What::Other { method, params, name, .. } => {
                    let request =
                        Request { params: Some(params), name, meta: None, notices, reason: Some(&reason) };
                    hand.session().request(method, request, longest).await
                }
            }
        };
        match self.drive(request, calling, &hand, &mut said, deadline, &reason).await {
            None => Err(self.cancelled(false)),
            Some(Ok(result)) => {
                hand.ended_well(&result);
                Ok(result)
            }
            Some(Err(cause)) => {
                // One that cannot be written to looks alive until it is asked.
                if matches!(cause, Cause::TimedOut(_) | Cause::Gone(_)) {
                    hand.timed_out(&self.crew);
                }
                Err(self.failed(cause, &hand))
            }
        }
    }

    /// Waits for the answer, and passes on what the server says meanwhile; progress gives new time. `None` if
    /// the call was cancelled.
    async fn drive(
        &self,
        request: impl Future<Output = Result<Bytes, Cause>>,
        calling: &Calling<'_>,
        hand: &Hand,
        noticed: &mut Option<mpsc::Receiver<Notice>>,
        deadline: &mut Deadline,
        reason: &Reason,
    ) -> Option<Result<Bytes, Cause>> {
        let mut request = std::pin::pin!(request);
        let mut asking = hand.asking();
        let pass_on = |notice: Notice| calling.notices.as_ref().map(|listener| listener.try_send(notice));
        let answer = loop {
            let now = self.clock.now();
            // Which call a question belongs to the older family does not say: none of them loses time by it.
            deadline.waits_for_a_person(*asking.borrow_and_update() > 0, now);
            let left = deadline.left(now);
            // However much there is to hear.
            if left.is_zero() {
                reason.is("timeout");
                break Err(Cause::TimedOut(deadline.limit()));
            }
            tokio::select! {
                biased;
                () = calling.cancel.cancelled() => {
                    reason.is(self.canceller().name());
                    return None;
                }
                notice = next(noticed) => {
                    if notice.method == "notifications/progress" {
                        deadline.progressed(self.clock.now());
                    }
                    let _ = pass_on(notice);
                }
                answer = &mut request => break answer,
                () = hand.over() => break Err(Cause::Closed),
                Ok(()) = asking.changed() => {}
                () = sleep(left) => {}
            }
        };
        deadline.waits_for_a_person(false, self.clock.now());
        // What came before the answer is told before it.
        while let Some(notice) = noticed.as_mut().and_then(|noticed| noticed.try_recv().ok()) {
            let _ = pass_on(notice);
        }
        Some(answer)
    }

    /// A connection, at once if there is one. Else the server is wanted, and waited for: not past the
    /// call's own deadline, and not at all if it has given up or somebody has just waited in vain.
    pub(super) async fn acquire(
        &self,
        supervised: &Supervised,
        until: Instant,
    ) -> Result<Live, ProviderError> {
        let mut status = supervised.status();
        let now = Arc::clone(&status.borrow());
        // A call that is tried again must not wake a server that was turned off meanwhile.
        if self.is_off() {
            return Err(ProviderError::PolicyDenied(Rule::Off));
        }
        if let Some(live) = supervised.usable(&now) {
            return Ok(live);
        }
        let (generation, is_tried_again) =
            (now.state.generation, may_have_been_cured(&now, self.clock.now()));
        if is_tried_again {
            // One of them is enough, and another would only begin anew.
            if self.tried_again.swap(generation, Ordering::Relaxed) != generation {
                supervised.restart("a call asks for it again").await;
            }
        } else if self.is_waited_for_in_vain(&now) {
            return Err(self.refusal(&now));
        }
        supervised.want().await;
        let until = until.min(Instant::now() + self.terms.acquire_timeout);
        let is_news = |status: &Status| !is_tried_again || status.state.generation != generation;
        let is_settled = |status: &Arc<Status>| {
            supervised.usable(status).is_some() || (status.has_given_up() && is_news(status))
        };
        let settled = timeout_at(until, status.wait_for(is_settled)).await;
        let settled = settled.map(|settled| settled.map(|status| Arc::clone(&status)));
        match settled {
            Ok(Ok(status)) => supervised.usable(&status).ok_or_else(|| self.refusal(&status)),
            Ok(Err(_)) => Err(ProviderError::Terminated),
            Err(_) => {
                let status = Arc::clone(&status.borrow());
                if let Some(live) = supervised.usable(&status) {
                    return Ok(live);
                }
                *self.in_vain() = status.outage().map(|outage| outage.since);
                Err(self.refusal(&status))
            }
        }
    }

    /// Whether nobody needs to wait: it has given up, or somebody has waited through this very outage.
    fn is_waited_for_in_vain(&self, status: &Status) -> bool {
        let in_vain = *self.in_vain();
        status.has_given_up() || status.outage().is_some_and(|outage| in_vain == Some(outage.since))
    }

    /// What a caller is told who does not wait, or has waited long enough.
    fn refusal(&self, status: &Status) -> ProviderError {
        status.state.refusal(self.clock.now()).unwrap_or(ProviderError::Terminated)
    }

    /// Exhaustive on purpose: a new cause must say here what it means to a caller.
    fn failed(&self, cause: Cause, hand: &Hand) -> Failed {
        let may_go_better = cause.verdict() != Verdict::Final;
        let why: Arc<str> = clip(&self.masks.text(&cause.to_string())).into();
        let mut relayed = None;
        let connection = hand.session().connection();
        let lost = |sent| ProviderError::Unavailable {
            reason: Unavailable::LinkLost { sent },
            why: Arc::clone(&why),
            age: None,
        };
        let error = match cause {
            Cause::Answered { code, message, raw } => {
                relayed = Some(Bytes::from(raw));
                ProviderError::ExecuteFailed { code, message: self.masks.text(&message).into() }
            }
            Cause::TimedOut(limit) => ProviderError::TimedOut { limit, sent: true },
            // A worker goes to a server in colibri's place; what ends it is the end of a process too.
            Cause::Gone(how) if self.is_child() || connection.end().is_some() => {
                let last_words = connection.last_words().unwrap_or_default();
                let limit = connection.end().and_then(|end| end.limit());
                let (how, last_words) = (self.masks.text(&how).into(), self.masks.text(&last_words).into());
                ProviderError::Crashed { how, limit, last_words }
            }
            // It never left, and never will.
            Cause::Unreachable(_) if self.crew.is_over() || self.status().borrow().is_ending() => {
                ProviderError::Terminated
            }
            Cause::SessionLost | Cause::Unreachable(_) | Cause::Busy(_) => lost(false),
            Cause::Closed | Cause::Gone(_) | Cause::Network(_) | Cause::Protocol(_) | Cause::Http { .. } => {
                lost(true)
            }
            Cause::Version { .. } | Cause::Unauthorized(_) | Cause::Invalid(_) | Cause::Start { .. } => {
                ProviderError::InitFailed(why)
            }
        };
        Failed { server: Arc::clone(&self.name), error, relayed, may_go_better }
    }

    pub(super) fn for_good(&self, error: ProviderError) -> Failed {
        Failed { server: Arc::clone(&self.name), error, relayed: None, may_go_better: false }
    }

    /// A call whose time was over before it was sent.
    fn too_late(&self, deadline: &Deadline) -> Failed {
        self.for_good(ProviderError::TimedOut { limit: deadline.limit(), sent: false })
    }

    /// A call that its client, or colibri's end, took back.
    fn cancelled(&self, queued: bool) -> Failed {
        self.for_good(ProviderError::Cancelled { by: self.canceller(), queued })
    }

    fn canceller(&self) -> Canceller {
        if self.stopping.is_cancelled() { Canceller::Shutdown } else { Canceller::Client }
    }

    /// Until when a call may wait that arrived then, of a tool by its own name.
    pub(super) fn until(&self, arrived: Moment, tool: Option<&str>) -> Instant {
        let own = tool.and_then(|tool| self.terms.tools.get(tool)).and_then(|settings| settings.timeout);
        let limit = own.unwrap_or(self.terms.timeout);
        let deadline = Deadline::new(arrived, limit, self.terms.max_total_timeout);
        Instant::now() + deadline.left(self.clock.now())
    }

    /// Whether its end is the end of a process.
    fn is_child(&self) -> bool {
        self.transport == "stdio"
    }

    /// Ends it for good, for this fleet; returns when nothing of it is left.
    pub(super) async fn end(&self) {
        // What was turned off is turned off no more, however often it is ended.
        let was_off = self.off.swap(false, Ordering::AcqRel);
        tokio::join!(self.supervised.leave(was_off), self.crew.close());
    }

    /// A call that got no connection, and may get one a little later.
    pub(super) fn for_now(&self, error: ProviderError) -> Failed {
        Failed { may_go_better: true, ..self.for_good(error) }
    }

    /// Whether a person turned it off.
    pub(super) fn is_off(&self) -> bool {
        self.off.load(Ordering::Relaxed)
    }

    pub(super) fn status(&self) -> watch::Receiver<Arc<Status>> {
        self.supervised.status()
    }

    fn in_vain(&self) -> MutexGuard<'_, Option<Moment>> {
        self.in_vain.lock().expect("nothing panics while it holds this")
    }
}

impl Failed {
    /// A call that was not even tried.
    pub(super) fn untried(server: Arc<str>, error: ProviderError) -> Self {
        Self { server, error, relayed: None, may_go_better: false }
    }
}

/// The next notice; never, if nobody listens.
async fn next(noticed: &mut Option<mpsc::Receiver<Notice>>) -> Notice {
    if let Some(noticed) = noticed
        && let Some(notice) = noticed.recv().await
    {
        return notice;
    }
    std::future::pending().await
}

/// Whether somebody may have signed in since the server refused who we were. Nobody tells us; a call now and then
/// finds out.
fn may_have_been_cured(status: &Status, now: Moment) -> bool {
    matches!(&status.state.phase, Phase::Blocked { since, lasting: Lasting::NotAuthorized, .. } if now.since(*since) >= ASK_AGAIN)
}
