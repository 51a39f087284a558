//! One server, supervised: one task, one loop. The state machine in `domain::life` decides; here is
//! what it decides over.
//!
//! Owns: the connection of one server, its list of tools, and that neither outlives the other.
//! Must not know: other servers, who calls, or how a tool is named to clients.

mod listener;
mod task;
mod usage;
mod work;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};

use crate::domain::audit::CallId;
use crate::domain::chronicle::Chronicle;
use crate::domain::clock::Clock;
use crate::domain::face::Face;
use crate::domain::life::{Generation, Outage, Phase, Policy, State, Then};
use crate::domain::log::Logger;
use crate::domain::mask::Masks;
use crate::domain::merkle::Hash;
use crate::mcp::request::Client;

use super::bus::{Bus, episode};
use super::era::Memory;
use super::error::Cause;
use super::inbox::Handler;
use super::link::Opener;
use super::logbook::Logbook;
use super::offer::Offered;
use super::scribe::Scribe;
use super::session::Session;

use listener::Listener;
use task::Supervisor;
pub(super) use usage::{Clients, Hold, Usage};

/// News for a supervisor that it has not read yet. A sender that finds it full is not alone with its news.
const REQUESTS_MAX: usize = 64;

/// What a server needs to be supervised.
pub struct Settings {
    /// For people.
    pub name: Arc<str>,
    /// For machines: what stands before `__` in the names of its tools.
    pub slug: Arc<str>,
    /// How it is reached.
    pub opener: Box<dyn Opener>,
    /// When it is started again, and probed.
    pub policy: Policy,
    /// How it is probed.
    pub probe: Probe,
    /// How long a probe may take.
    pub probe_timeout: Duration,
    /// How long one attempt to connect may take, listing its tools included.
    pub connect_timeout: Duration,
    /// How long it stays connected when nobody uses it.
    pub idle_close: Option<Duration>,
    /// Who we are.
    pub client: Arc<Client>,
    /// What it spoke the last time.
    pub memory: Option<Arc<dyn Memory>>,
    /// What its offer is remembered by, from one run to the next.
    pub key: Option<Hash>,
    /// Whether its program runs without a sandbox, by its owner's wish.
    pub is_unconfined: bool,
    /// Whether a tool whose definition changed is withheld until it is accepted.
    pub pin_enforced: bool,
    /// The client: hears what the server tells, but for its lists, and is asked on its behalf.
    pub face: Option<Arc<dyn Face>>,
}

/// How to find out whether a server is well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// A ping, or what the revision has in its place.
    Ping,
    /// Listing its tools.
    ListTools,
}

/// What all supervisors share.
#[derive(Clone)]
pub struct Surroundings {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Where lines for people go.
    pub logger: Logger,
    /// Where it is told what happens.
    pub bus: Bus,
    /// What is remembered, and put on record.
    pub chronicle: Arc<dyn Chronicle>,
    /// What people are not shown, whoever says it.
    pub masks: Arc<Masks>,
    /// Where facts go that nobody waits for.
    pub(super) scribe: Scribe,
}

/// A connection that serves calls.
#[derive(Clone)]
pub struct Live {
    /// Which connection of the server it is.
    pub generation: Generation,
    /// The connection.
    pub session: Session,
}

/// What is known of a server, now.
#[derive(Clone)]
pub struct Status {
    /// Where it is in its life.
    pub state: State,
    /// Its connection, if it serves calls.
    pub live: Option<Live>,
    /// What it listed last: on this connection, the one before, or in another run.
    pub offered: Arc<Offered>,
    /// Whether it is known what it offered in another run.
    pub recalled: bool,
    /// Joins what happens from one loss of the connection to the next.
    pub episode: CallId,
    /// How often it has been connected; until the first time, what it offers is what it offered in another run.
    pub connects: u64,
    /// What else was done for it.
    pub counts: Counts,
}

impl Status {
    /// The time during which it is not ready though it is wanted, if it is such a time.
    pub(super) fn outage(&self) -> Option<&Outage> {
        match &self.state.phase {
            Phase::Connecting { outage, .. } | Phase::Backoff { outage, .. } => Some(outage),
            _ => None,
        }
    }

    /// Whether waiting for it is of no use.
    pub(super) fn has_given_up(&self) -> bool {
        self.is_ending() || matches!(self.state.phase, Phase::Blocked { .. } | Phase::Exhausted { .. })
    }

    /// Whether it ends for good, or has.
    pub(super) fn is_ending(&self) -> bool {
        matches!(self.state.phase, Phase::Closing { then: Then::Closed, .. } | Phase::Closed)
    }
}

/// How often something was done for a server, in this run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Attempts to connect.
    pub starts: u64,
    /// Probes.
    pub probes: u64,
    /// Probes that were not answered.
    pub failed_probes: u64,
}

/// A cheap handle. The task behind it owns the connection.
#[derive(Clone)]
pub struct Supervised(Arc<Handle>);

struct Handle {
    slug: Arc<str>,
    face: Option<Arc<dyn Face>>,
    requests: mpsc::Sender<Request>,
    status: watch::Receiver<Arc<Status>>,
    usage: Arc<Usage>,
    /// How many questions of the server wait for a person.
    asking: watch::Receiver<usize>,
    /// Told when what it offers is to be read again.
    stale: Arc<Notify>,
    logbook: Logbook,
    /// How many members of fleets it serves, and how many of these are turned off.
    members: AtomicUsize,
    off: AtomicUsize,
    /// The last connection that no call may use any more.
    spoilt: AtomicU64,
}

enum Request {
    Wanted,
    TimedOut(Generation),
    Distrusted(Generation),
    Killed(Generation),
    Restart(Arc<str>),
    Rest,
    Close,
}

impl Supervised {
    /// Starts the task. Nothing is connected before [`Supervised::want`]. `held_by` counts clients that hold
    /// it as long as they are there; without it only calls do.
    pub(super) fn start(
        settings: Settings,
        mut surroundings: Surroundings,
        held_by: Option<Arc<Clients>>,
    ) -> Self {
        let (requests, inbox) = mpsc::channel(REQUESTS_MAX);
        let episode = episode();
        let counts = Counts::default();
        let status = Status {
            state: State::new(),
            live: None,
            offered: Arc::default(),
            recalled: false,
            episode,
            connects: 0,
            counts,
        };
        let (publish, status) = watch::channel(Arc::new(status));
        let usage = Arc::new(Usage::new(held_by));
        let (asking, asked) = watch::channel(0);
        let (slug, face) = (Arc::clone(&settings.slug), settings.face.clone());
        let stale = Arc::new(Notify::new());
        let logbook = Logbook::new(&settings.name, Arc::clone(&surroundings.clock));
        surroundings.logger = logbook.beside(surroundings.logger);
        let ear = Listener {
            slug: Arc::clone(&slug),
            stale: Arc::clone(&stale),
            face: face.clone(),
            asking,
            logbook: logbook.clone(),
        };
        let handler = Arc::new(ear);
        let supervisor = Supervisor::new(
            settings,
            surroundings,
            handler,
            publish,
            inbox,
            Arc::clone(&stale),
            Arc::clone(&usage),
        );
        tokio::spawn(supervisor.run());
        let (members, off, spoilt) = (AtomicUsize::new(1), AtomicUsize::new(0), AtomicU64::new(0));
        Self(Arc::new(Handle {
            slug,
            face,
            requests,
            status,
            usage,
            asking: asked,
            stale,
            logbook,
            members,
            off,
            spoilt,
        }))
    }

    /// What is known of it; changes can be waited for.
    pub fn status(&self) -> watch::Receiver<Arc<Status>> {
        self.0.status.clone()
    }

    /// It is to be used.
    pub async fn want(&self) {
        self.0.usage.touch();
        let _ = self.0.requests.send(Request::Wanted).await;
    }

    /// A call on that connection ran out of time.
    pub fn timed_out(&self, generation: Generation) {
        // Full means that it has been told of many; one probe answers for all.
        let _ = self.0.requests.try_send(Request::TimedOut(generation));
    }

    /// The same, where nobody else depends on it: it is started again, whatever a probe would say.
    pub(super) fn distrust(&self, generation: Generation) {
        // As above: of so many, one is about this connection.
        if self.0.requests.try_send(Request::Distrusted(generation)).is_ok() {
            self.0.spoilt.fetch_max(generation, Ordering::AcqRel);
        }
    }

    /// The same, where nobody else needs to be ready: it is ended, and started with the next use.
    pub(super) fn kill(&self, generation: Generation) {
        if self.0.requests.try_send(Request::Killed(generation)).is_ok() {
            self.0.spoilt.fetch_max(generation, Ordering::AcqRel);
        }
    }

    /// The connection, if a call may be sent on it: not while it is about to be ended for another call's sake.
    pub(super) fn usable(&self, status: &Status) -> Option<Live> {
        status.live.clone().filter(|live| live.generation > self.0.spoilt.load(Ordering::Acquire))
    }

    /// Somebody wants a new connection.
    pub async fn restart(&self, reason: &str) {
        let _ = self.0.requests.send(Request::Restart(reason.into())).await;
    }

    /// What it offers is read again.
    pub fn list_again(&self) {
        self.0.stale.notify_one();
    }

    /// Ends its connection; the next who wants it begins anew.
    pub async fn rest(&self) {
        let _ = self.0.requests.send(Request::Rest).await;
    }

    /// Ends it for good; returns when nothing of it is left.
    pub async fn close(&self) {
        let _ = self.0.requests.send(Request::Close).await;
        self.0.requests.closed().await;
    }

    /// Another member uses it too; none, if the last one has just left it.
    pub(super) fn join(&self) -> Option<Self> {
        let one_more = |members| (members > 0).then_some(members + 1);
        let joined = self.0.members.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more);
        joined.ok().map(|_| self.clone())
    }

    /// A member uses it no more; the last one ends it, and the last that was not turned off lets it rest.
    pub(super) async fn leave(&self, was_off: bool) {
        if was_off {
            self.turned_on();
        }
        if self.0.members.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.close().await;
        } else if self.is_off() {
            self.rest().await;
        }
    }

    /// One of its members is turned off.
    pub(super) fn turned_off(&self) {
        self.0.off.fetch_add(1, Ordering::AcqRel);
    }

    /// One of its members is no longer turned off.
    pub(super) fn turned_on(&self) {
        self.0.off.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether all its members are turned off.
    pub(super) fn is_off(&self) -> bool {
        self.0.off.load(Ordering::Acquire) >= self.0.members.load(Ordering::Acquire)
    }

    /// Whether it has ended, or is about to: nobody can join it.
    pub(super) fn is_over(&self) -> bool {
        self.0.members.load(Ordering::Acquire) == 0 || self.0.requests.is_closed()
    }

    /// How many of its questions wait for a person; changes can be waited for.
    pub(super) fn asking(&self) -> watch::Receiver<usize> {
        self.0.asking.clone()
    }

    /// What was said by it and about it.
    pub(super) fn logbook(&self) -> &Logbook {
        &self.0.logbook
    }

    /// What hears another connection of the same server, and how many questions of that one wait for a person. A
    /// list that has changed is read again on the supervised one.
    pub(super) fn ear(&self) -> (Arc<dyn Handler>, watch::Receiver<usize>) {
        let (asking, asked) = watch::channel(0);
        let (slug, face) = (Arc::clone(&self.0.slug), self.0.face.clone());
        let (stale, logbook) = (Arc::clone(&self.0.stale), self.0.logbook.clone());
        (Arc::new(Listener { slug, stale, face, asking, logbook }), asked)
    }

    /// Who uses it.
    pub(super) fn usage(&self) -> &Arc<Usage> {
        &self.0.usage
    }
}

/// A connection that nobody supervises, introduced and listed once.
pub(super) async fn connect(
    settings: &Settings,
    handler: Arc<dyn Handler>,
    logger: Logger,
) -> Result<Session, Cause> {
    work::connect(settings, handler, logger, None).await.map(|(session, _)| session)
}

/// The cause in words for people, without secrets.
pub(super) fn reason(cause: &Cause, masks: &Masks) -> Arc<str> {
    work::reason(cause, masks)
}

/// Whether no repetition cures it.
pub(super) fn lasts(cause: &Cause) -> bool {
    work::lasting(cause).is_some()
}

/// In [0, 1), for the lengthening of delays.
pub(super) fn dice() -> f64 {
    work::dice()
}
