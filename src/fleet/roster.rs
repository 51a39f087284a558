//! The fleet: all servers together, behind one catalog.
//!
//! Owns: who is supervised, the warm-up, who joins whose connection, and what becomes of servers that the
//! configuration no longer has.
//! Must not know: how a call is validated or put on record, or who asked for it.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::domain::audit::CallId;
use crate::domain::chronicle::{Chronicle, Fact};
use crate::domain::clock::{Clock, Moment};
use crate::domain::event::{News, summary};
use crate::domain::face::SessionId;
use crate::domain::health::ServerFacts;
use crate::domain::life::Phase;
use crate::domain::log::Logger;
use crate::domain::mask::Masks;
use crate::domain::names::{Naming, split};
use crate::domain::nearest::nearest;
use crate::domain::offer::Changes;
use crate::domain::provider::{ProviderError, Rule};

use super::bus::Bus;
use super::catalog::{Catalog, Compiler, Proxied};
use super::keeper::Keeper;
use super::queues::Queues;
use super::scribe::Scribe;
use super::supervisor::{Clients, Status, Supervised, Surroundings};
use super::tally::Tally;

pub use super::plan::{Kept, Plan, Registry, Summary};
pub use super::ship::{Calling, Failed, Rounds, What};
pub use super::terms::{Apart, Bounds as PoolBounds, Lending, Lives, Member, Start, Terms, ToolSettings};

use super::crew::Crew;
use super::ship::Ship;

/// How long a list that has just come takes to reach the catalog, at most.
const CATALOG_WAIT: Duration = Duration::from_millis(500);

/// How long calls of a server that is gone from the configuration may go on.
pub(super) const DRAIN_MAX: Duration = Duration::from_mins(10);

/// How often it is looked whether they have ended.
pub(super) const DRAIN_LOOK: Duration = Duration::from_millis(20);

/// What all servers share.
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
    /// Where it is told what happens.
    pub bus: Bus,
    /// What is remembered, and put on record.
    pub chronicle: Arc<dyn Chronicle>,
    /// Where lines for people go.
    pub logger: Logger,
    /// Connections that others may join; a fleet of its own by default.
    pub registry: Registry,
    /// What people are not shown, whoever says it.
    pub masks: Arc<Masks>,
    /// Cancelled when colibri is told to stop: what is taken back then is taken back by it.
    pub stopping: CancellationToken,
}

struct Changed {
    gone: Vec<Arc<Ship>>,
    summary: Summary,
}

/// A cheap handle to all servers.
#[derive(Clone)]
pub struct Fleet(Arc<Inner>);

struct Inner {
    common: Shared,
    queues: Queues,
    ships: watch::Sender<Arc<Ships>>,
    catalog: watch::Receiver<Arc<Catalog>>,
    changes: watch::Receiver<Changes>,
    /// Clients that are connected.
    clients: Arc<Clients>,
    warm_up: Arc<Semaphore>,
    /// One change of the plan at a time.
    changing: tokio::sync::Mutex<()>,
    tasks: TaskTracker,
    stop: CancellationToken,
    /// A fleet that nobody holds any more supervises nothing.
    _guard: DropGuard,
}

/// What is needed to add a server later.
struct Shared {
    stopping: CancellationToken,
    surroundings: Surroundings,
    registry: Registry,
}

/// All ships, in the order of the configuration.
#[derive(Default)]
pub(super) struct Ships {
    pub(super) list: Vec<Arc<Ship>>,
    pub(super) absent: Vec<ServerFacts>,
}

impl Ships {
    pub(super) fn get(&self, slug: &str) -> Option<&Arc<Ship>> {
        self.list.iter().find(|ship| &*ship.slug == slug)
    }
}

/// What a name comes to.
pub enum Found {
    /// A tool that can be called.
    Tool(Arc<Proxied>),
    /// A tool of a server, which this says why it cannot be called.
    Refused(Failed),
    /// No server has that name's prefix.
    Stranger,
}

impl Found {
    fn refused(ship: &Ship, error: ProviderError) -> Self {
        Self::Refused(Failed::untried(Arc::clone(&ship.name), error))
    }
}

/// A client's session that is connected: servers that start with colibri stay up for it, and what they keep for it
/// alone ends with it.
pub struct Attached {
    session: SessionId,
    clients: Arc<Clients>,
    fleet: Weak<Inner>,
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.clients.leave();
        let Some(fleet) = self.fleet.upgrade() else { return };
        let ships = Arc::clone(&fleet.ships.borrow());
        for ship in &ships.list {
            ship.crew.left(self.session);
        }
    }
}

impl Fleet {
    /// Supervises these servers and begins to warm them up. Returns at once.
    pub fn start(plan: Plan, common: Common) -> Self {
        let Common {
            init_concurrency,
            naming,
            name_chars_max,
            reserved,
            clock,
            health,
            bus,
            logger,
            registry,
            chronicle,
            masks,
            stopping,
        } = common;
        let queues = Queues::new(plan.queues, Arc::clone(&clock));
        let (scribe, writing) = Scribe::new(Arc::clone(&chronicle), logger.clone());
        // Not a task of the fleet: what its end is worth is put on record too.
        tokio::spawn(writing);
        let surroundings = Surroundings { clock, logger, bus, chronicle, masks, scribe };
        let ships = watch::Sender::new(Arc::default());
        let compiler = Compiler::new(naming, name_chars_max, reserved);
        let (keeper, catalog, changes) =
            Keeper::new(compiler, ships.subscribe(), health, surroundings.clone());
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        tasks.spawn(stop.clone().run_until_cancelled_owned(keeper.run()));
        let guard = stop.clone().drop_guard();
        let fleet = Self(Arc::new(Inner {
            common: Shared { stopping, surroundings, registry },
            queues,
            ships,
            catalog,
            changes,
            clients: Arc::default(),
            warm_up: Arc::new(Semaphore::new(init_concurrency.max(1))),
            changing: tokio::sync::Mutex::default(),
            tasks,
            stop,
            _guard: guard,
        }));
        let _ = fleet.settle(plan.members, &plan.kept, plan.absent);
        fleet
    }

    /// Makes the fleet what the plan says: who is in both as it was stays untouched, calls under way included;
    /// who is new is started; who is gone is ended when its calls have. Returns when the new plan counts.
    pub async fn change(&self, plan: Plan) -> Summary {
        let _turn = self.0.changing.lock().await;
        self.0.queues.change(plan.queues);
        let Changed { gone, summary } = self.settle(plan.members, &plan.kept, plan.absent);
        for ship in gone {
            self.0.tasks.spawn(retire(ship, self.0.stop.clone()));
        }
        summary
    }

    /// The new list of ships; gives those that are no longer in it.
    fn settle(&self, members: Vec<Member>, kept: &[Kept], absent: Vec<ServerFacts>) -> Changed {
        let before = Arc::clone(&self.0.ships.borrow());
        let (mut list, mut eager) = (Vec::new(), Vec::new());
        let mut summary = Summary::default();
        // What keeps its entry of before keeps its place too: who comes first has the name.
        let kept_at = |place: usize| {
            let here = kept.iter().filter(move |kept| kept.after == place);
            here.filter_map(|kept| before.get(&kept.slug).cloned())
        };
        let places = members.len();
        for (place, member) in members.into_iter().enumerate() {
            list.extend(kept_at(place));
            let same = before
                .list
                .iter()
                .find(|ship| ship.slug == member.settings.slug && ship.identity == member.identity);
            let ship = same.cloned().unwrap_or_else(|| Arc::new(self.launch(member)));
            if same.is_none() {
                let known = before.get(&ship.slug).is_some();
                let told = if known { &mut summary.changed } else { &mut summary.added };
                told.push(ship.name.to_string());
                if ship.terms.start == Start::Eager {
                    eager.push(ship.supervised.clone());
                }
            }
            list.push(ship);
        }
        list.extend(kept_at(places));
        summary.unchanged = list.len() - summary.added.len() - summary.changed.len();
        let stays = |ship: &Arc<Ship>| list.iter().any(|other| Arc::ptr_eq(ship, other));
        let gone: Vec<Arc<Ship>> = before.list.iter().filter(|ship| !stays(ship)).cloned().collect();
        let replaced = |ship: &Arc<Ship>| list.iter().any(|other: &Arc<Ship>| other.slug == ship.slug);
        summary.removed =
            gone.iter().filter(|ship| !replaced(ship)).map(|ship| ship.name.to_string()).collect();
        self.0.ships.send_replace(Arc::new(Ships { list, absent }));
        let warming = warm_up(eager, Arc::clone(&self.0.warm_up));
        self.0.tasks.spawn(self.0.stop.clone().run_until_cancelled_owned(warming));
        Changed { gone, summary }
    }

    fn launch(&self, member: Member) -> Ship {
        let Member { identity, settings, mut terms } = member;
        let Shared { stopping, surroundings, registry } = &self.0.common;
        let (name, slug) = (Arc::clone(&settings.name), Arc::clone(&settings.slug));
        let transport = settings.opener.transport();
        let held_by = (terms.start == Start::Eager).then(|| Arc::clone(&self.0.clients));
        let start = || Supervised::start(settings, surroundings.clone(), held_by);
        let lives = std::mem::take(&mut terms.lives);
        let is_joined = terms.shared && matches!(lives, Lives::Used);
        let supervised = if is_joined { registry.join(identity, start) } else { start() };
        let crew = Crew::new(lives, is_joined, &supervised, surroundings);
        Ship {
            name,
            slug,
            identity,
            supervised,
            crew,
            terms,
            tally: Tally::default(),
            transport,
            queues: self.0.queues.clone(),
            clock: Arc::clone(&surroundings.clock),
            masks: Arc::clone(&surroundings.masks),
            stopping: stopping.clone(),
            off: AtomicBool::new(false),
            in_vain: Mutex::default(),
            tried_again: AtomicU64::new(0),
        }
    }

    /// A client's session is there, until this is dropped.
    pub fn attach(&self, session: SessionId) -> Attached {
        self.0.clients.come();
        Attached { session, clients: Arc::clone(&self.0.clients), fleet: Arc::downgrade(&self.0) }
    }

    /// What all servers offer together; changes can be waited for.
    pub fn catalog(&self) -> watch::Receiver<Arc<Catalog>> {
        self.0.catalog.clone()
    }

    /// Which lists of the catalog have changed, and how often.
    pub fn changes(&self) -> watch::Receiver<Changes> {
        self.0.changes.clone()
    }

    /// Where it is told what happens.
    pub fn bus(&self) -> &Bus {
        &self.0.common.surroundings.bus
    }

    /// The queues.
    pub fn queues(&self) -> &Queues {
        &self.0.queues
    }

    /// Returns when it is known what each server offered in another run, and the catalog shows it.
    pub async fn recalled(&self) {
        let ships = self.ships();
        for ship in &ships.list {
            let _ = ship.status().wait_for(|status| status.recalled).await;
        }
        let shows_all = |catalog: &Arc<Catalog>| {
            ships.list.iter().all(|ship| catalog.knows(&ship.slug, &ship.status().borrow().offered))
        };
        let _ = self.0.catalog.clone().wait_for(shows_all).await;
    }

    /// Returns when every server that is required is ready; or the first that is not, with the reason.
    pub async fn required(&self) -> Result<(), (Arc<str>, String)> {
        let ships = self.ships();
        for ship in ships.list.iter().filter(|ship| ship.terms.required) {
            ship.supervised.want().await;
            let mut status = ship.status();
            let is_settled =
                |status: &Arc<Status>| !matches!(status.state.phase, Phase::Idle | Phase::Connecting { .. });
            let settled = status.wait_for(is_settled).await.map(|status| Arc::clone(&status));
            let trouble = match settled {
                Ok(status) if status.live.is_some() => continue,
                Ok(status) => status.state.trouble(ship.clock.now()),
                Err(_) => None,
            };
            return Err((Arc::clone(&ship.name), trouble.unwrap_or_else(|| "it was stopped".to_owned())));
        }
        Ok(())
    }

    /// What a name comes to. A server that has never listed its tools in this run, because it is starting or waits
    /// to be used, is waited for first: its tools are not unknown, they are not known yet.
    pub async fn find(&self, name: &str) -> Found {
        self.find_for(name, self.surroundings().clock.now()).await
    }

    /// The same, for a call that arrived then: it waits no longer than that call may.
    pub async fn find_for(&self, name: &str, arrived: Moment) -> Found {
        let ships = Arc::clone(&self.0.ships.borrow());
        let known = self.0.catalog.borrow().get(name).cloned();
        let slug = known.as_ref().map(|tool| &*tool.server).or_else(|| split(name).map(|(slug, _)| slug));
        let Some(ship) = slug.and_then(|slug| ships.get(slug)) else { return Found::Stranger };
        let own = known.as_ref().map(|tool| &*tool.tool).or_else(|| split(name).map(|(_, tool)| tool));
        if let Err(failed) = self.met(ship, ship.until(arrived, own)).await {
            return Found::Refused(failed);
        }
        let catalog = Arc::clone(&self.0.catalog.borrow());
        if let Some(tool) = catalog.get(name) {
            return Found::Tool(Arc::clone(tool));
        }
        if let Some(rule) = catalog.withheld(name) {
            return Found::refused(ship, ProviderError::PolicyDenied(rule));
        }
        let own = catalog.tools().iter().filter(|tool| tool.server == ship.slug).map(|tool| &*tool.name);
        let (tool, nearest) = (name.into(), nearest(name, own).map(Into::into));
        Found::refused(ship, ProviderError::ToolNotFound { tool, nearest })
    }

    /// Waits for a server that has never listed in this run what it offers, until the catalog has it.
    pub(super) async fn met(&self, ship: &Ship, until: Instant) -> Result<(), Failed> {
        let failed = |error| Failed::untried(Arc::clone(&ship.name), error);
        if ship.is_off() {
            return Err(failed(ProviderError::PolicyDenied(Rule::Off)));
        }
        if ship.status().borrow().connects == 0 {
            ship.acquire(&ship.supervised, until).await.map_err(failed)?;
            // The catalog follows the list in a moment.
            let mut catalog = self.0.catalog.clone();
            let listed =
                catalog.wait_for(|catalog| catalog.knows(&ship.slug, &ship.status().borrow().offered));
            drop(timeout_at(Instant::now() + CATALOG_WAIT, listed).await);
        }
        Ok(())
    }

    /// The name of a server, for people.
    pub fn name_of(&self, slug: &str) -> Arc<str> {
        let ships = self.0.ships.borrow();
        ships.get(slug).map_or_else(|| slug.into(), |ship| Arc::clone(&ship.name))
    }

    /// Whether a result that does not fit its tool's output schema is refused.
    pub fn enforces_output(&self, slug: &str) -> bool {
        self.0.ships.borrow().get(slug).is_some_and(|ship| ship.terms.enforce_output)
    }

    /// Tells that a result does not fit its tool's own output schema, to whoever listens and to the ledger.
    pub fn mismatched(&self, tool: &Proxied, call: CallId, message: &str) {
        let news = News::OutputMismatch { tool: tool.tool.to_string(), message: summary(message) };
        self.bus().tell(&tool.server, call, news);
        let (server, tool) = (self.name_of(&tool.server).to_string(), tool.tool.to_string());
        let fact = Fact::OutputMismatch { server, tool, message: message.to_owned() };
        self.0.common.surroundings.scribe.put(call, fact);
    }

    /// Asks a server; gives its result, as the bytes it sent. Repeated is only what surely had no effect, or may
    /// have it twice.
    pub async fn call(&self, calling: Calling<'_>) -> Result<Bytes, Failed> {
        let slug = calling.what.server();
        let ship = self.0.ships.borrow().get(slug).cloned();
        let Some(ship) = ship else {
            return Err(Failed::untried(slug.into(), ProviderError::Terminated));
        };
        if ship.is_off() {
            return Err(Failed::untried(Arc::clone(&ship.name), ProviderError::PolicyDenied(Rule::Off)));
        }
        let begun = Instant::now();
        let outcome = ship.call(&calling).await;
        self.log_call(&ship, &calling, &outcome, begun.elapsed());
        ship.tally.count(calling.what.body().len(), outcome.as_ref().ok().map(Bytes::len));
        outcome
    }

    /// Something of a ship has changed that its status does not tell.
    pub(super) fn look_again(&self) {
        self.0.ships.send_modify(|_| {});
    }

    /// What supervisors have around them.
    pub(super) fn surroundings(&self) -> &Surroundings {
        &self.0.common.surroundings
    }

    /// Something that ends by itself, and no later than the fleet.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.0.tasks.spawn(self.0.stop.clone().run_until_cancelled_owned(work));
    }

    /// The ships, for who tells of them.
    pub(super) fn ships(&self) -> Arc<Ships> {
        Arc::clone(&self.0.ships.borrow())
    }

    /// Ends every server and forgets what they offered; returns when nothing of them is left. May be called again.
    pub async fn close(&self) {
        let _turn = self.0.changing.lock().await;
        let ships = self.0.ships.send_replace(Arc::default());
        join_all(ships.list.iter().map(|ship| ship.end())).await;
        let mut catalog = self.0.catalog.clone();
        // Fails only if its keeper has ended, and then it is empty.
        let _ = catalog.wait_for(|catalog| catalog.is_empty()).await;
        self.0.stop.cancel();
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }
}

/// Ends a server that is no longer wanted, once its calls have ended.
async fn retire(ship: Arc<Ship>, stop: CancellationToken) {
    let drained = async {
        while ship.supervised.usage().calls() > 0 {
            tokio::time::sleep(DRAIN_LOOK).await;
        }
    };
    let drained = timeout(DRAIN_MAX.min(ship.terms.max_total_timeout), drained);
    let _ = stop.run_until_cancelled(drained).await;
    ship.end().await;
}

/// Starts them, so many at the same time. One that fails or hangs holds no other back for longer than its own
/// attempt takes.
async fn warm_up(servers: Vec<Supervised>, places: Arc<Semaphore>) {
    let starting = servers.into_iter().map(|server| {
        let places = Arc::clone(&places);
        async move {
            let Ok(_place) = places.acquire().await else { return };
            server.want().await;
            // A second attempt may follow the first so closely that nothing is seen between them.
            let under_way = |status: &Arc<Status>| match &status.state.phase {
                Phase::Idle => true,
                Phase::Connecting { outage, .. } => outage.failed_connects == 0,
                _ => false,
            };
            let _ = server.status().wait_for(|status| !under_way(status)).await;
        }
    });
    join_all(starting).await;
}
