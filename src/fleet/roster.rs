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
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::domain::clock::{Clock, Moment};
use crate::domain::filter::Filter;
use crate::domain::health::ServerFacts;
use crate::domain::ledger::clip;
use crate::domain::life::{Health, Lasting, Outage, Phase, Then};
use crate::domain::log::Logger;
use crate::domain::names::{Naming, split};
use crate::domain::provider::{Canceller, Executed, ProviderError, Unavailable};

use super::catalog::{Catalog, Compiler, Offer, Proxied};
use super::error::{Cause, Verdict};
use super::inbox::Notice;
use super::listing::Tools;
use super::supervisor::{Live, Settings, Status, Supervised};

/// Attempts of a call that may be repeated, and the first delay between them; doubled after.
const ATTEMPTS: u32 = 3;
const FIRST_DELAY: Duration = Duration::from_secs(1);

/// How long a list that has just come takes to reach the catalog, at most.
const CATALOG_WAIT: Duration = Duration::from_millis(500);

/// A server that refused who we are is asked again by a call, but not sooner than this.
const ASK_AGAIN: Duration = Duration::from_secs(10);

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
    /// A fleet that nobody holds any more supervises nothing.
    _guard: DropGuard,
}

/// A member that runs.
struct Ship {
    name: Arc<str>,
    slug: Arc<str>,
    supervised: Supervised,
    timeout: Duration,
    acquire_timeout: Duration,
    tools: BTreeMap<String, ToolSettings>,
    clock: Arc<dyn Clock>,
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
            ships.push(Ship {
                slug: Arc::clone(&slug),
                name,
                supervised,
                timeout,
                acquire_timeout,
                tools,
                clock: Arc::clone(&clock),
                is_child,
                in_vain,
            });
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
        let guard = stop.clone().drop_guard();
        Self(Arc::new(Inner { ships, catalog, changes, tasks, stop, _guard: guard }))
    }

    /// What all servers offer together; changes can be waited for.
    pub fn catalog(&self) -> watch::Receiver<Arc<Catalog>> {
        self.0.catalog.clone()
    }

    /// A new number for every new catalog.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.clone()
    }

    /// The tool that clients call so. A server that has never listed its tools, because it is starting or waits to be
    /// used, is waited for first: its tools are not unknown, they are not known yet.
    pub async fn find(&self, name: &str) -> Option<Arc<Proxied>> {
        let known = || self.0.catalog.borrow().get(name).cloned();
        if let Some(tool) = known() {
            return Some(tool);
        }
        let slug = split(name)?.0;
        let ship = self.0.ships.iter().find(|ship| &*ship.slug == slug)?;
        if !ship.supervised.status().borrow().tools.tools.is_empty() {
            return None;
        }
        ship.acquire(Instant::now() + ship.timeout).await.ok()?;
        // The catalog follows the list in a moment.
        let mut catalog = self.0.catalog.clone();
        let listed = catalog.wait_for(|catalog| catalog.get(name).is_some());
        drop(timeout_at(Instant::now() + CATALOG_WAIT, listed).await);
        known()
    }

    /// The name of the server that has a tool, for people.
    pub fn name_of(&self, tool: &Proxied) -> Arc<str> {
        Arc::clone(&self.0.ships[tool.server].name)
    }

    /// Calls a tool; gives its server's result, as the bytes it sent. Repeated is only what surely had no
    /// effect, or may have it twice.
    pub async fn call(&self, calling: Calling<'_>) -> Result<Bytes, Failed> {
        let ship = &self.0.ships[calling.tool.server];
        let settings = ship.tools.get(&*calling.tool.tool).copied().unwrap_or_default();
        let until = Instant::now() + settings.timeout.unwrap_or(ship.timeout);
        let may_repeat = calling.tool.idempotent || settings.retry;
        let (mut attempt, mut delay) = (1, FIRST_DELAY);
        // An attempt that may have had an effect: whatever comes after it does not undo that.
        let mut perhaps: Option<Failed> = None;
        loop {
            let failed = match ship.attempt(&calling, until).await {
                Ok(result) => return Ok(result),
                Err(failed) => failed,
            };
            let had_no_effect = failed.error.executed() == Executed::No;
            let failed = if had_no_effect { perhaps.take().unwrap_or(failed) } else { failed };
            let again = failed.may_go_better && (had_no_effect || may_repeat) && attempt < ATTEMPTS;
            if !again || Instant::now() + delay >= until {
                return Err(failed);
            }
            if calling.cancel.run_until_cancelled(sleep(delay)).await.is_none() {
                return Err(ship.for_good(cancelled(failed.error.executed() == Executed::No)));
            }
            if failed.error.executed() != Executed::No {
                perhaps = Some(failed);
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
    async fn attempt(&self, calling: &Calling<'_>, until: Instant) -> Result<Bytes, Failed> {
        let acquired = calling.cancel.run_until_cancelled(self.acquire(until)).await;
        let acquired = acquired.ok_or_else(|| self.for_good(cancelled(true)))?;
        let live = acquired.map_err(|error| self.for_good(error))?;
        let left = until.saturating_duration_since(Instant::now());
        let (tool, arguments) = (&calling.tool.tool, calling.arguments);
        let call = live.session.call(tool, arguments, calling.notices.clone(), left);
        match calling.cancel.run_until_cancelled(call).await {
            None => Err(self.for_good(cancelled(false))),
            Some(Ok(result)) => Ok(result),
            Some(Err(cause)) => {
                // One that cannot be written to looks alive until it is asked.
                if matches!(cause, Cause::TimedOut(_) | Cause::Gone(_)) {
                    self.supervised.timed_out(live.generation);
                }
                Err(self.failed(cause, &live))
            }
        }
    }

    /// A connection, at once if there is one. Else the server is wanted, and waited for: not past the
    /// call's own deadline, and not at all if it has given up or somebody has just waited in vain.
    async fn acquire(&self, until: Instant) -> Result<Live, ProviderError> {
        let mut status = self.supervised.status();
        let now = Arc::clone(&status.borrow());
        if let Some(live) = &now.live {
            return Ok(live.clone());
        }
        if may_have_been_cured(&now, self.clock.now()) {
            self.supervised.restart("a call asks for it again").await;
        } else if self.is_waited_for_in_vain(&now) {
            return Err(self.refusal(&now));
        }
        self.supervised.want().await;
        let until = until.min(Instant::now() + self.acquire_timeout);
        let is_settled = |status: &Arc<Status>| status.live.is_some() || has_given_up(status);
        let settled = timeout_at(until, status.wait_for(is_settled)).await;
        let settled = settled.map(|settled| settled.map(|status| Arc::clone(&status)));
        match settled {
            Ok(Ok(status)) => status.live.clone().ok_or_else(|| self.refusal(&status)),
            Ok(Err(_)) => Err(ProviderError::Terminated),
            Err(_) => {
                let status = Arc::clone(&status.borrow());
                if let Some(live) = &status.live {
                    return Ok(live.clone());
                }
                *self.in_vain() = outage(&status).map(|outage| outage.since);
                Err(self.refusal(&status))
            }
        }
    }

    /// Whether nobody needs to wait: it has given up, or somebody has waited through this very outage.
    fn is_waited_for_in_vain(&self, status: &Status) -> bool {
        let in_vain = *self.in_vain();
        has_given_up(status) || outage(status).is_some_and(|outage| in_vain == Some(outage.since))
    }

    /// What a caller is told who does not wait, or has waited long enough.
    fn refusal(&self, status: &Status) -> ProviderError {
        status.state.refusal(self.clock.now()).unwrap_or(ProviderError::Terminated)
    }

    /// Exhaustive on purpose: a new cause must say here what it means to a caller.
    fn failed(&self, cause: Cause, live: &Live) -> Failed {
        let may_go_better = cause.verdict() != Verdict::Final;
        let why: Arc<str> = clip(&cause.to_string()).into();
        let mut relayed = None;
        let lost = |sent| ProviderError::Unavailable {
            reason: Unavailable::LinkLost { sent },
            why: Arc::clone(&why),
            age: None,
        };
        let error = match cause {
            Cause::Answered { code, message, raw } => {
                relayed = Some(Bytes::from(raw));
                ProviderError::ExecuteFailed { code, message: message.into() }
            }
            Cause::TimedOut(limit) => ProviderError::TimedOut { limit },
            Cause::Gone(how) if self.is_child => {
                let last_words = live.session.connection().last_words().unwrap_or_default().into();
                ProviderError::Crashed { how: how.into(), limit: None, last_words }
            }
            Cause::SessionLost | Cause::Unreachable(_) | Cause::Busy(_) => lost(false),
            // Closed for good; or, below, to be opened anew, with the call on it.
            Cause::Closed if is_ending(&self.supervised.status().borrow()) => ProviderError::Terminated,
            Cause::Closed | Cause::Gone(_) | Cause::Network(_) | Cause::Protocol(_) | Cause::Http { .. } => {
                lost(true)
            }
            Cause::Version { .. } | Cause::Unauthorized(_) | Cause::Invalid(_) | Cause::Start { .. } => {
                ProviderError::InitFailed(why)
            }
        };
        Failed { server: Arc::clone(&self.name), error, relayed, may_go_better }
    }

    fn for_good(&self, error: ProviderError) -> Failed {
        Failed { server: Arc::clone(&self.name), error, relayed: None, may_go_better: false }
    }

    fn in_vain(&self) -> MutexGuard<'_, Option<Moment>> {
        self.in_vain.lock().expect("nothing panics while it holds this")
    }
}

fn outage(status: &Status) -> Option<&Outage> {
    match &status.state.phase {
        Phase::Connecting { outage, .. } | Phase::Backoff { outage, .. } => Some(outage),
        _ => None,
    }
}

fn has_given_up(status: &Status) -> bool {
    is_ending(status) || matches!(status.state.phase, Phase::Blocked { .. } | Phase::Exhausted { .. })
}

fn is_ending(status: &Status) -> bool {
    matches!(status.state.phase, Phase::Closing { then: Then::Closed, .. } | Phase::Closed)
}

/// Whether somebody may have signed in since the server refused who we were. Nobody tells us; a call now and then
/// finds out.
fn may_have_been_cured(status: &Status, now: Moment) -> bool {
    matches!(&status.state.phase, Phase::Blocked { since, lasting: Lasting::NotAuthorized, .. } if now.since(*since) >= ASK_AGAIN)
}

/// Whether by the client or by a stop, the token does not tell; nearly always it is the client.
fn cancelled(queued: bool) -> ProviderError {
    ProviderError::Cancelled { by: Canceller::Client, queued }
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
