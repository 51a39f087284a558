//! Connections that wait for calls, each for one: started, introduced and listed before anybody asks.
//!
//! Owns: how many of a server's processes there are in `call` isolation, who gets which, what becomes of one after
//! its call, and that none is left at the end. One task per pool starts, replaces and ends them.
//! Must not know: what a call asks, or why it failed. Whether the server as a whole is well is the business of its
//! supervised connection, the scout.

mod shelf;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::select_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::domain::life::Generation;
use crate::domain::log::Logger;
use crate::domain::mask::Masks;

use super::error::Cause;
use super::session::Session;
use super::supervisor::{Settings, Supervised, Surroundings, connect, dice, lasts, reason};
use super::terms::{Bounds, Recipe};

use shelf::{Shelf, Trouble};

/// A pool. When it is dropped, its connections end; who has to know that they have uses [`Pool::close`].
pub(super) struct Pool {
    inner: Arc<Inner>,
    _guard: DropGuard,
}

struct Inner {
    settings: Settings,
    bounds: Bounds,
    /// Whether its connections are started in another way than the scout's, so that its trouble is its own.
    is_apart: bool,
    scout: Supervised,
    logger: Logger,
    masks: Arc<Masks>,
    shelf: Mutex<Shelf<Instance, Answer>>,
    changed: Notify,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// One connection.
struct Instance {
    session: Session,
    asking: watch::Receiver<usize>,
    /// Of the scout when this was started. What was started before the scout's restart is not used after it.
    generation: Generation,
    born: Instant,
    uses: u32,
}

type Answer = oneshot::Sender<Result<Held, Refused>>;

/// Why a caller got none.
#[derive(Clone, Debug)]
pub(super) enum Refused {
    /// The pool has ended.
    Over,
    /// None can be started for a reason that only a change can cure.
    Lasting(Arc<str>),
    /// None was ready in time, or the last attempts to start one failed.
    NotReady {
        /// For people.
        why: Arc<str>,
        /// For how long attempts have failed.
        age: Option<Duration>,
    },
}

/// A connection that belongs to one call. Dropping it ends the connection.
pub(super) struct Held {
    instance: Option<Instance>,
    pool: Arc<Inner>,
}

type Starts = FuturesUnordered<Pin<Box<dyn Future<Output = Result<Instance, Cause>> + Send>>>;

impl Pool {
    /// Begins to fill, as soon as the scout serves.
    pub(super) fn start(recipe: &Recipe, bounds: Bounds, scout: &Supervised, around: &Surroundings) -> Self {
        Self::begin(recipe, bounds, false, scout, around)
    }

    /// The same, of connections that nobody waits for in advance, under limits that are not the scout's: what befalls
    /// them says nothing about the server as a whole.
    pub(super) fn apart(recipe: &Recipe, bounds: Bounds, scout: &Supervised, around: &Surroundings) -> Self {
        Self::begin(recipe, Bounds { size: 0, ..bounds }, true, scout, around)
    }

    fn begin(
        recipe: &Recipe,
        bounds: Bounds,
        is_apart: bool,
        scout: &Supervised,
        around: &Surroundings,
    ) -> Self {
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let inner = Arc::new(Inner {
            settings: recipe(),
            bounds,
            is_apart,
            scout: scout.clone(),
            logger: around.logger.clone(),
            masks: Arc::clone(&around.masks),
            shelf: Mutex::default(),
            changed: Notify::new(),
            tasks,
            stop,
        });
        inner.tasks.spawn(keep(Arc::clone(&inner)));
        Self { _guard: inner.stop.clone().drop_guard(), inner }
    }

    /// One that waits; else the next that is started, for which callers wait in line.
    pub(super) async fn take(&self, until: Instant) -> Result<Held, Refused> {
        let answered = match self.inner.ask() {
            Ok(held) => return held,
            Err(answered) => answered,
        };
        self.inner.changed.notify_one();
        if let Ok(answer) = timeout_at(until, answered).await {
            return answer.unwrap_or(Err(Refused::Over));
        }
        // The keeper forgets this caller.
        self.inner.changed.notify_one();
        Err(self.inner.shelf().waited_in_vain())
    }

    /// Ends every connection; returns when nothing of them is left. Calls under way are told so.
    pub(super) async fn close(&self) {
        self.inner.stop.cancel();
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
        self.inner.settings.opener.settled().await;
        // A call that was under way has just handed its connection back, to be ended.
        self.inner.tasks.wait().await;
    }

    /// Whether it has ended, or is about to.
    pub(super) fn is_over(&self) -> bool {
        self.inner.stop.is_cancelled()
    }
}

impl Inner {
    fn shelf(&self) -> MutexGuard<'_, Shelf<Instance, Answer>> {
        self.shelf.lock().expect("nothing panics while it holds the shelf")
    }

    /// A connection at once, or the place where one will come.
    fn ask(self: &Arc<Self>) -> Result<Result<Held, Refused>, oneshot::Receiver<Result<Held, Refused>>> {
        loop {
            let mut stock = self.shelf();
            if self.stop.is_cancelled() {
                return Ok(Err(Refused::Over));
            }
            if let Some(instance) = stock.take() {
                drop(stock);
                let held = self.held(instance);
                if held.instance.as_ref().is_some_and(|instance| self.is_fit(instance)) {
                    self.changed.notify_one();
                    return Ok(Ok(held));
                }
                continue;
            }
            if let Some(refused) = stock.refusal() {
                return Ok(Err(refused));
            }
            let (answer, answered) = oneshot::channel();
            stock.callers.push_back(answer);
            return Err(answered);
        }
    }

    fn held(self: &Arc<Self>, instance: Instance) -> Held {
        Held { instance: Some(instance), pool: Arc::clone(self) }
    }

    /// Gives it to whoever waits longest, or lets it wait.
    fn deliver(self: &Arc<Self>, mut instance: Instance) {
        loop {
            let caller = {
                let mut stock = self.shelf();
                let Some(caller) = stock.callers.pop_front() else {
                    if self.stop.is_cancelled() || stock.idle.len() >= self.bounds.size {
                        break;
                    }
                    stock.idle.push_back(instance);
                    return;
                };
                stock.counts.held += 1;
                caller
            };
            // Outside the lock: what comes back is taken apart, and what is dropped locks the shelf.
            match caller.send(Ok(self.held(instance))) {
                Err(Ok(mut held)) => {
                    let Some(back) = held.instance.take() else { return };
                    self.shelf().counts.held -= 1;
                    instance = back;
                }
                _ => return,
            }
        }
        self.retire(instance);
    }

    /// Whether a call may still have it: alive, young, and not from before the scout's restart.
    fn is_fit(&self, instance: &Instance) -> bool {
        let status = Arc::clone(&self.scout.status().borrow());
        let is_current = !status.state.serves() || status.state.generation == instance.generation;
        is_current && instance.born.elapsed() < self.bounds.max_age && instance.has_ended().is_none()
    }

    /// Ends one. Nobody waits for it but who closes the pool.
    fn retire(self: &Arc<Self>, instance: Instance) {
        // Without a runtime nothing can be awaited any more; the link's own end is what is left.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        self.shelf().counts.ending += 1;
        let pool = Arc::clone(self);
        let ending = async move {
            instance.session.connection().close().await;
            pool.shelf().counts.ending -= 1;
            pool.changed.notify_one();
        };
        self.tasks.spawn_on(ending, &runtime);
    }

    /// Whatever waits and should not is ended; whatever should be started is.
    fn tidy(self: &Arc<Self>, starts: &mut Starts) {
        let is_at_rest = self.scout.status().borrow().state.is_at_rest();
        let unfit = {
            let mut stock = self.shelf();
            stock.callers.retain(|caller| !caller.is_closed());
            let keeps = |instance: &Instance| !is_at_rest && self.is_fit(instance);
            stock.take_unless(keeps)
        };
        for instance in unfit {
            if let Some(cause) = instance.has_ended() {
                // One that dies while it waits would be replaced by one that dies while it waits.
                self.failed(&cause);
            }
            self.retire(instance);
        }
        let serves = self.scout.status().borrow().state.serves();
        let count = self.shelf().begin(&self.bounds, serves, Instant::now());
        for _ in 0..count {
            starts.push(Box::pin(start(Arc::clone(self))));
        }
    }

    /// An attempt to start one failed, or one ended by itself while it waited.
    fn failed(&self, cause: &Cause) {
        let name = &self.settings.name;
        // It may hold the last words of a process, and callers read it.
        let why = reason(cause, &self.masks);
        self.logger.warn(format_args!("[mcp:{name}] a process for calls: {why}"));
        let restart = &self.settings.policy.restart;
        let mut stock = self.shelf();
        stock.attempts = stock.attempts.saturating_add(1);
        let attempt = stock.attempts;
        let delay = restart.delay(attempt, dice());
        stock.has_trouble(Arc::clone(&why), Instant::now(), delay);
        let gives_up = lasts(cause) || !restart.allows(attempt);
        let callers = if gives_up { std::mem::take(&mut stock.callers) } else { VecDeque::new() };
        if gives_up && self.is_apart {
            // Until the scout is connected anew: by a person, or since the configuration has changed.
            stock.give_up();
        }
        drop(stock);
        if gives_up && !self.is_apart {
            // The scout meets the same, and says how the server is; until it serves again nobody is started.
            self.scout.distrust(self.scout.status().borrow().state.generation);
        }
        for caller in callers {
            let _ = caller.send(Err(Refused::Lasting(Arc::clone(&why))));
        }
    }

    /// When to look again, though nothing happens.
    fn next_look(&self) -> Option<Instant> {
        let stock = self.shelf();
        let oldest = stock.idle.iter().map(|instance| instance.born + self.bounds.max_age).min();
        let retry = stock.trouble.as_ref().map(Trouble::until).filter(|until| *until > Instant::now());
        oldest.into_iter().chain(retry).min()
    }
}

/// The one loop of a pool: wait, decide, act.
async fn keep(pool: Arc<Inner>) {
    let mut starts = Starts::new();
    let mut status = pool.scout.status();
    let mut generation = 0;
    loop {
        let now = status.borrow_and_update().state.generation;
        if std::mem::replace(&mut generation, now) != now {
            // Another connection of the scout: what failed before may go better.
            pool.shelf().begin_anew();
        }
        pool.tidy(&mut starts);
        tokio::select! {
            biased;
            () = pool.stop.cancelled() => break,
            Some(started) = starts.next() => {
                pool.shelf().counts.starting -= 1;
                match started {
                    Ok(instance) => {
                        pool.shelf().forget_trouble();
                        pool.deliver(instance);
                    }
                    Err(cause) => pool.failed(&cause),
                }
            }
            () = pool.changed.notified() => {}
            changed = status.changed() => if changed.is_err() { break },
            () = look(pool.next_look()) => {}
            () = death(&pool) => {}
        }
    }
    // What is given up half-way ends by itself; who closes the pool waits for it.
    pool.stop.cancel();
    drop(starts);
    let (idle, callers) = {
        let mut stock = pool.shelf();
        stock.counts.starting = 0;
        (std::mem::take(&mut stock.idle), std::mem::take(&mut stock.callers))
    };
    for instance in idle {
        pool.retire(instance);
    }
    for caller in callers {
        let _ = caller.send(Err(Refused::Over));
    }
}

async fn start(pool: Arc<Inner>) -> Result<Instance, Cause> {
    let generation = pool.scout.status().borrow().state.generation;
    let (ear, asking) = pool.scout.ear();
    let session = connect(&pool.settings, ear, pool.logger.clone()).await?;
    Ok(Instance { session, asking, generation, born: Instant::now(), uses: 0 })
}

async fn look(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Returns when one of those that wait has ended by itself.
async fn death(pool: &Inner) {
    let waiting: Vec<Session> = pool.shelf().idle.iter().map(|instance| instance.session.clone()).collect();
    if waiting.is_empty() {
        std::future::pending::<()>().await;
    }
    select_all(waiting.iter().map(|session| Box::pin(session.connection().ended()))).await;
}

impl Instance {
    /// Why nothing more will come from it, if that is so.
    fn has_ended(&self) -> Option<Cause> {
        self.session.connection().ended().now_or_never()
    }
}

impl Held {
    /// The connection.
    pub(super) fn session(&self) -> &Session {
        &self.instance().session
    }

    /// How many of its questions wait for a person.
    pub(super) fn asking(&self) -> watch::Receiver<usize> {
        self.instance().asking.clone()
    }

    /// Returns when the pool ends, and this connection with it.
    pub(super) async fn over(&self) {
        self.pool.stop.cancelled().await;
    }

    /// Its call ended well: it may serve another, if it may serve that many.
    pub(super) fn give_back(mut self) {
        let Some(mut instance) = self.instance.take() else { return };
        {
            let mut stock = self.pool.shelf();
            stock.counts.held -= 1;
            // Whoever serves calls has started well.
            stock.attempts = 0;
        }
        instance.uses += 1;
        if instance.uses < self.pool.bounds.max_uses && self.pool.is_fit(&instance) {
            self.pool.deliver(instance);
        } else {
            self.pool.retire(instance);
        }
        self.pool.changed.notify_one();
    }

    fn instance(&self) -> &Instance {
        self.instance.as_ref().expect("it is there until it is handed back")
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(instance) = self.instance.take() {
            self.pool.shelf().counts.held -= 1;
            self.pool.retire(instance);
        }
    }
}
