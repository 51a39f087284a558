//! The fleet: all servers together, behind one catalog, and the way of a call to one of them.
//!
//! Owns: who is supervised, the warm-up, the catalog that follows their lists, acquiring a connection,
//! and which failures are tried again.
//! Must not know: how a call is validated or put on record, or who asked for it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{join_all, select_all};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::domain::clock::{Clock, Moment};
use crate::domain::filter::Filter;
use crate::domain::health::ServerFacts;
use crate::domain::life::{Health, Outage, Phase, Then};
use crate::domain::log::Logger;
use crate::domain::names::Naming;
use crate::domain::provider::{Down, Executed, Kind, Provider};

use super::catalog::{Catalog, Compiler, Offer, Proxied};
use super::error::{Cause, Verdict};
use super::inbox::Notice;
use super::listing::Tools;
use super::supervisor::{Live, Settings, Status, Supervised};

/// Attempts of a call that may be repeated, and the first delay between them; doubled after.
const ATTEMPTS: u32 = 3;
const FIRST_DELAY: Duration = Duration::from_secs(1);

/// One server of the fleet.
pub struct Member {
    /// How it is supervised.
    pub settings: Settings,
    /// What stands before `__` in the names of its tools.
    pub slug: Arc<str>,
    /// Which of its tools are offered.
    pub filter: Filter,
    /// When it is started.
    pub start: Start,
    /// How long a call may take without progress.
    pub timeout: Duration,
    /// How long a call waits for the server to be ready.
    pub acquire_timeout: Duration,
    /// What differs for single tools, by their own names.
    pub tools: BTreeMap<String, ToolSettings>,
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
#[derive(Clone, Copy, Debug, Default)]
pub struct ToolSettings {
    /// How long a call may take.
    pub timeout: Option<Duration>,
    /// Whether a failed call may be repeated though it may have had an effect.
    pub retry: bool,
}

/// What all of them share.
pub struct Common {
    /// How many start at the same time.
    pub init_concurrency: usize,
    /// How tools are named.
    pub naming: Naming,
    /// The longest name.
    pub name_chars_max: usize,
    /// Names of colibri's own.
    pub reserved: Vec<Arc<str>>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Where it is told how the servers are.
    pub health: watch::Sender<Vec<ServerFacts>>,
    /// Where lines for people go.
    pub logger: Logger,
}

/// A cheap handle to all servers.
#[derive(Clone)]
pub struct Fleet(Arc<Inner>);

struct Inner {
    ships: Vec<Ship>,
    catalog: watch::Receiver<Arc<Catalog>>,
    changes: watch::Receiver<u64>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// A member that runs.
struct Ship {
    name: Arc<str>,
    supervised: Supervised,
    timeout: Duration,
    acquire_timeout: Duration,
    tools: BTreeMap<String, ToolSettings>,
    /// Whether its end is the end of a process.
    is_child: bool,
    /// The outage for which somebody waited in vain, by when it began. Until it is over nobody else
    /// needs to wait.
    in_vain: Mutex<Option<Moment>>,
}

/// One call of a tool.
pub struct Calling<'a> {
    /// Which.
    pub tool: &'a Proxied,
    /// A JSON object.
    pub arguments: &'a [u8],
    /// Where progress and log messages go.
    pub notices: Option<mpsc::Sender<Notice>>,
    /// Cancelled by the client or by a shutdown.
    pub cancel: CancellationToken,
}

impl Fleet {
    /// Supervises these servers and begins to warm them up. Returns at once.
    pub fn start(members: Vec<Member>, common: Common) -> Self {
        let Common { init_concurrency, naming, name_chars_max, reserved, clock, health, logger } = common;
        let (mut ships, mut offers, mut eager) = (Vec::new(), Vec::new(), Vec::new());
        for Member { settings, slug, filter, start, timeout, acquire_timeout, tools } in members {
            let name = Arc::clone(&settings.name);
            let is_child = settings.opener.transport() == "stdio";
            let supervised = Supervised::start(settings, Arc::clone(&clock), logger.clone());
            if start == Start::Eager {
                eager.push(supervised.clone());
            }
            let in_vain = Mutex::default();
            ships.push(Ship { name, supervised, timeout, acquire_timeout, tools, is_child, in_vain });
            offers.push(Offer { slug, filter });
        }
        let compiler = Compiler::new(naming, name_chars_max, reserved, offers);
        let statuses = ships.iter().map(|ship| ship.supervised.status()).collect();
        let (publish_catalog, catalog) = watch::channel(Arc::default());
        let (publish_change, changes) = watch::channel(0);
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let names = ships.iter().map(|ship: &Ship| Arc::clone(&ship.name)).collect();
        let keeper =
            Keeper { compiler, names, statuses, publish_catalog, publish_change, health, clock, logger };
        let keeping = keeper.run();
        tasks.spawn(stop.clone().run_until_cancelled_owned(keeping));
        let warming = warm_up(eager, init_concurrency);
        tasks.spawn(stop.clone().run_until_cancelled_owned(warming));
        Self(Arc::new(Inner { ships, catalog, changes, tasks, stop }))
    }

    /// What all servers offer together; changes can be waited for.
    pub fn catalog(&self) -> watch::Receiver<Arc<Catalog>> {
        self.0.catalog.clone()
    }

    /// A new number for every new catalog.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.clone()
    }

    /// Calls a tool; gives its server's result, as the bytes it sent. Repeated is only what surely had no
    /// effect, or may have it twice.
    pub async fn call(&self, calling: Calling<'_>) -> Result<Bytes, Provider> {
        let ship = &self.0.ships[calling.tool.server];
        let settings = ship.tools.get(&*calling.tool.tool).copied().unwrap_or_default();
        let until = Instant::now() + settings.timeout.unwrap_or(ship.timeout);
        let may_repeat = calling.tool.idempotent || settings.retry;
        let (mut attempt, mut delay) = (1, FIRST_DELAY);
        loop {
            let failed = match ship.attempt(&calling, until).await {
                Ok(result) => return Ok(result),
                Err(failed) => failed,
            };
            let had_no_effect = failed.provider.executed() == Executed::No;
            let again = failed.may_go_better && (had_no_effect || may_repeat) && attempt < ATTEMPTS;
            if !again || Instant::now() + delay >= until {
                return Err(failed.provider);
            }
            let waited = calling.cancel.run_until_cancelled(sleep(delay)).await;
            if waited.is_none() {
                return Err(cancelled(false));
            }
            (attempt, delay) = (attempt + 1, delay * 2);
        }
    }

    /// Ends every server; returns when nothing of them is left. May be called again.
    pub async fn close(&self) {
        self.0.stop.cancel();
        self.0.tasks.close();
        self.0.tasks.wait().await;
        join_all(self.0.ships.iter().map(|ship| ship.supervised.close())).await;
    }
}

/// A failed attempt.
struct Failed {
    provider: Provider,
    /// Whether another attempt makes sense at all.
    may_go_better: bool,
}

impl Ship {
    async fn attempt(&self, calling: &Calling<'_>, until: Instant) -> Result<Bytes, Failed> {
        let for_good = |provider| Failed { provider, may_go_better: false };
        let acquired = calling.cancel.run_until_cancelled(self.acquire(until)).await;
        let live = acquired.ok_or_else(|| for_good(cancelled(false)))?.map_err(for_good)?;
        let left = until.saturating_duration_since(Instant::now());
        let (tool, arguments) = (&calling.tool.tool, calling.arguments);
        let call = live.session.call(tool, arguments, calling.notices.clone(), left);
        match calling.cancel.run_until_cancelled(call).await {
            None => Err(for_good(cancelled(true))),
            Some(Ok(result)) => Ok(result),
            Some(Err(cause)) => {
                if matches!(cause, Cause::TimedOut(_)) {
                    self.supervised.timed_out(live.generation);
                }
                let may_go_better = cause.verdict() != Verdict::Final;
                Err(Failed { provider: self.provider(cause), may_go_better })
            }
        }
    }

    /// A connection, at once if there is one. Else the server is wanted, and waited for: not past the
    /// call's own deadline, and not at all if it has given up or somebody has just waited in vain.
    async fn acquire(&self, until: Instant) -> Result<Live, Provider> {
        let mut status = self.supervised.status();
        if let Some(live) = &status.borrow().live {
            return Ok(live.clone());
        }
        if let Some(refusal) = self.refusal(&status.borrow(), true) {
            return Err(refusal);
        }
        self.supervised.want().await;
        let until = until.min(Instant::now() + self.acquire_timeout);
        let settled = |status: &Arc<Status>| status.live.is_some() || self.refusal(status, false).is_some();
        let settled = timeout_at(until, status.wait_for(settled))
            .await
            .map(|settled| settled.map(|status| Arc::clone(&status)));
        match settled {
            Ok(Ok(status)) => match &status.live {
                Some(live) => Ok(live.clone()),
                None => Err(self.refusal(&status, false).unwrap_or_else(|| self.terminated())),
            },
            Ok(Err(_)) => Err(self.terminated()),
            Err(_) => {
                let status = status.borrow();
                let outage = outage(&status.state.phase);
                *self.in_vain() = outage.map(|outage| outage.since);
                Err(self.unavailable(outage))
            }
        }
    }

    /// Why nobody needs to wait for this server, if that is so.
    fn refusal(&self, status: &Status, with_in_vain: bool) -> Option<Provider> {
        let name = &self.name;
        let why = |outage: &Outage| outage.reason.as_deref().unwrap_or("no reason is known").to_owned();
        match &status.state.phase {
            Phase::Blocked { outage, .. } => Some(Provider::new(
                Kind::InitFailed,
                format!("the server `{name}` cannot be used: {}", why(outage)),
            )),
            Phase::Exhausted { outage, .. } => Some(Provider::new(
                Kind::Unavailable(Down::RestartFailed),
                format!("the server `{name}` could not be started again: {}", why(outage)),
            )),
            Phase::Closing { then: Then::Closed, .. } | Phase::Closed => Some(self.terminated()),
            phase if with_in_vain => {
                let outage = outage(phase)?;
                (*self.in_vain() == Some(outage.since)).then(|| self.unavailable(Some(outage)))
            }
            _ => None,
        }
    }

    fn unavailable(&self, outage: Option<&Outage>) -> Provider {
        let name = &self.name;
        let down =
            if outage.is_some_and(|outage| outage.was_ready) { Down::Restarting } else { Down::NotStarted };
        let why = outage.and_then(|outage| outage.reason.as_deref()).unwrap_or("it has not answered yet");
        let since = outage.map(|outage| format!(" since {}", outage.since.wall)).unwrap_or_default();
        Provider::new(Kind::Unavailable(down), format!("the server `{name}` is not connected{since}: {why}"))
    }

    fn terminated(&self) -> Provider {
        Provider::new(Kind::Terminated, format!("the server `{}` has been closed", self.name))
    }

    /// Exhaustive on purpose: a new cause must say here what it means to a caller.
    fn provider(&self, cause: Cause) -> Provider {
        let name = &self.name;
        let message = format!("the server `{name}`: {cause}");
        let kind = match cause {
            Cause::Answered { code, message, raw } => {
                return Provider::new(Kind::ExecuteFailed { code, raw }, message);
            }
            Cause::TimedOut(_) => Kind::Timeout,
            Cause::Gone(_) if self.is_child => Kind::Crashed,
            Cause::Gone(_)
            | Cause::Network(_)
            | Cause::SessionLost
            | Cause::Protocol(_)
            | Cause::Http { .. } => Kind::Unavailable(Down::LinkLost),
            Cause::Unreachable(_) | Cause::Busy(_) => Kind::Unavailable(Down::Restarting),
            Cause::Closed => Kind::Terminated,
            Cause::Version { .. } | Cause::Unauthorized(_) | Cause::Invalid(_) | Cause::Start { .. } => {
                Kind::InitFailed
            }
        };
        Provider::new(kind, message)
    }

    fn in_vain(&self) -> MutexGuard<'_, Option<Moment>> {
        self.in_vain.lock().expect("nothing panics while it holds this")
    }
}

fn outage(phase: &Phase) -> Option<&Outage> {
    match phase {
        Phase::Connecting { outage, .. } | Phase::Backoff { outage, .. } => Some(outage),
        _ => None,
    }
}

fn cancelled(sent: bool) -> Provider {
    Provider::new(Kind::Cancelled { sent }, "the call was cancelled")
}

/// Follows the servers: a new catalog whenever a list has changed, and how each of them is.
struct Keeper {
    compiler: Compiler,
    names: Vec<Arc<str>>,
    statuses: Vec<watch::Receiver<Arc<Status>>>,
    publish_catalog: watch::Sender<Arc<Catalog>>,
    publish_change: watch::Sender<u64>,
    health: watch::Sender<Vec<ServerFacts>>,
    clock: Arc<dyn Clock>,
    logger: Logger,
}

impl Keeper {
    async fn run(mut self) {
        let mut lists: Vec<Arc<Tools>> = self.statuses.iter().map(|_| Arc::default()).collect();
        let mut problems = Vec::new();
        loop {
            let statuses: Vec<Arc<Status>> =
                self.statuses.iter_mut().map(|status| Arc::clone(&status.borrow_and_update())).collect();
            if statuses.iter().zip(&lists).any(|(status, list)| !Arc::ptr_eq(&status.tools, list)) {
                lists = statuses.iter().map(|status| Arc::clone(&status.tools)).collect();
                let catalog = self.compiler.compile(&lists);
                for problem in catalog.problems.iter().filter(|problem| !problems.contains(*problem)) {
                    self.logger.warn(format_args!("[colibri] {problem}"));
                }
                problems.clone_from(&catalog.problems);
                self.publish_catalog.send_replace(Arc::new(catalog));
                self.publish_change.send_modify(|change| *change += 1);
            }
            self.health.send_replace(self.facts(&statuses));
            if statuses.is_empty() {
                return;
            }
            let changes = self.statuses.iter_mut().map(|status| Box::pin(status.changed()));
            if select_all(changes).await.0.is_err() {
                // A supervisor has ended, which they do only together.
                return;
            }
        }
    }

    fn facts(&self, statuses: &[Arc<Status>]) -> Vec<ServerFacts> {
        let now = self.clock.now();
        let facts = |(name, status): (&Arc<str>, &Arc<Status>)| ServerFacts {
            name: name.to_string(),
            state: status.state.status(),
            is_down: status.state.health() == Health::Unavailable && !status.state.is_at_rest(),
            tools: status.tools.tools.len() as u64,
            trouble: status.state.trouble(now),
        };
        self.names.iter().zip(statuses).map(facts).collect()
    }
}

/// Starts them, so many at the same time. One that fails or hangs holds no other back for longer than its own
/// attempt takes.
async fn warm_up(servers: Vec<Supervised>, concurrency: usize) {
    let places = Arc::new(Semaphore::new(concurrency.max(1)));
    let starting = servers.into_iter().map(|server| {
        let places = Arc::clone(&places);
        async move {
            let Ok(_place) = places.acquire().await else { return };
            server.want().await;
            let under_way =
                |status: &Arc<Status>| matches!(status.state.phase, Phase::Idle | Phase::Connecting { .. });
            let _ = server.status().wait_for(|status| !under_way(status)).await;
        }
    });
    join_all(starting).await;
}
