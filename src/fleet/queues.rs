//! The queues of the fleet: who may run now, who waits, and who is told that there is no room.
//!
//! Owns: the named queues and the waking of those whose turn has come. `domain::queue` decides.
//! Must not know: what runs, or on which server.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::domain::clock::{Clock, Moment};
use crate::domain::provider::{Canceller, Crowded, ProviderError};
use crate::domain::queue::{Arrival, Bounds, Id, Queue};

/// All queues that are configured. A cheap handle.
#[derive(Clone)]
pub struct Queues {
    named: Arc<Mutex<BTreeMap<Arc<str>, Arc<Line>>>>,
    clock: Arc<dyn Clock>,
}

struct Line {
    name: Arc<str>,
    state: Mutex<State>,
}

struct State {
    queue: Queue,
    next: Id,
    waiting: HashMap<Id, oneshot::Sender<()>>,
}

/// How crowded a queue is.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Crowd {
    /// Its name.
    pub queue: String,
    /// How many run.
    pub running: usize,
    /// How many wait.
    pub waiting: usize,
    /// How long the one that has waited longest has waited.
    pub longest_wait_ms: u64,
}

impl Queues {
    /// Queues with these bounds.
    pub fn new(bounds: BTreeMap<Arc<str>, Bounds>, clock: Arc<dyn Clock>) -> Self {
        let queues = Self { named: Arc::default(), clock };
        queues.change(bounds);
        queues
    }

    /// New bounds. A queue that stays keeps who is in it; one that is gone lets them run to their end.
    pub fn change(&self, bounds: BTreeMap<Arc<str>, Bounds>) {
        let mut named = self.named();
        named.retain(|name, _| bounds.contains_key(name));
        for (name, bounds) in bounds {
            if let Some(line) = named.get(&name) {
                let mut state = line.state();
                for id in state.queue.resize(bounds) {
                    state.wake(id);
                }
            } else {
                let state = State { queue: Queue::new(bounds), next: 0, waiting: HashMap::new() };
                let line = Line { name: Arc::clone(&name), state: Mutex::new(state) };
                named.insert(name, Arc::new(line));
            }
        }
    }

    /// A place in a queue for a call that arrived then, when there is one: at once, or after waiting as long as
    /// the queue and the caller allow. A queue that is not configured has no bounds.
    pub(super) async fn enter(
        &self,
        queue: &str,
        arrived: Moment,
        patience: Duration,
        cancel: &CancellationToken,
    ) -> Result<Option<Pass>, ProviderError> {
        let Some(line) = self.named().get(queue).cloned() else { return Ok(None) };
        let now = self.clock.now();
        let (pass, turn, until) = {
            let mut state = line.state();
            let id = state.next;
            state.next += 1;
            let arrival = state.queue.arrive(id, arrived, now);
            let pass = Pass { line: Arc::clone(&line), id };
            match arrival {
                Arrival::Start => return Ok(Some(pass)),
                Arrival::Wait { until } => {
                    let (wake, turn) = oneshot::channel();
                    state.waiting.insert(id, wake);
                    (pass, turn, until)
                }
                Arrival::Full => {
                    drop(state);
                    // Not inside: leaving changes nothing.
                    drop(pass);
                    return Err(crowded(&line, Crowded::Full));
                }
            }
        };
        let longest = until.since(now);
        let waited = cancel.run_until_cancelled(timeout(longest.min(patience), turn)).await;
        match waited {
            None => Err(ProviderError::Cancelled { by: Canceller::Client, queued: true }),
            Some(Ok(Ok(()))) => Ok(Some(pass)),
            Some(_) if patience <= longest => Err(ProviderError::TimedOut { limit: patience, sent: false }),
            Some(_) => Err(crowded(&line, Crowded::Waited)),
        }
    }

    /// How crowded each of them is, by name.
    pub fn crowds(&self) -> Vec<Crowd> {
        let now = self.clock.now();
        let crowd = |line: &Arc<Line>| {
            let state = line.state();
            let longest = state.queue.longest_wait(now).as_millis();
            Crowd {
                queue: line.name.to_string(),
                running: state.queue.running(),
                waiting: state.queue.depth(),
                longest_wait_ms: u64::try_from(longest).unwrap_or(u64::MAX),
            }
        };
        self.named().values().map(crowd).collect()
    }

    fn named(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Arc<Line>>> {
        self.named.lock().expect("nothing panics while it holds the queues")
    }
}

fn crowded(line: &Line, crowded: Crowded) -> ProviderError {
    ProviderError::ConcurrencyExceeded { queue: Arc::clone(&line.name), crowded }
}

impl Line {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds a queue")
    }
}

impl State {
    fn wake(&mut self, id: Id) {
        // One that is no longer there to hear it is about to leave, and passes the turn on by that.
        if let Some(wake) = self.waiting.remove(&id) {
            let _ = wake.send(());
        }
    }
}

/// A place in a queue. Whoever drops it, done or not, makes room for the next.
pub(super) struct Pass {
    line: Arc<Line>,
    id: Id,
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut state = self.line.state();
        state.waiting.remove(&self.id);
        if let Some(id) = state.queue.leave(self.id) {
            state.wake(id);
        }
    }
}
