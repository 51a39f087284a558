//! Events on their way to whoever listens.
//!
//! Owns: their numbers, the last of them, and that nobody who listens holds up what happens.
//! Must not know: who listens.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::sync::broadcast;
use uuid::Uuid;

use crate::domain::audit::CallId;
use crate::domain::clock::Clock;
use crate::domain::event::{Event, News, Sequences};

/// Events that a subscriber may be behind. Beyond it, it misses some, and is told how many.
const BEHIND_MAX: usize = 1024;

/// Events that are kept for who comes later.
const KEPT_MAX: usize = 256;

/// A cheap handle.
#[derive(Clone)]
pub struct Bus(Arc<Inner>);

struct Inner {
    clock: Arc<dyn Clock>,
    out: broadcast::Sender<Arc<Event>>,
    /// Numbers are given and events sent under one lock, so that the order is that of the numbers.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    sequences: Sequences,
    kept: VecDeque<Arc<Event>>,
}

/// What a subscriber gets.
#[derive(Clone, Debug)]
pub enum Heard {
    /// An event.
    Event(Arc<Event>),
    /// It was too slow for so many.
    Missed(u64),
}

/// Somebody who listens.
pub struct Subscription(broadcast::Receiver<Arc<Event>>);

impl Bus {
    /// A bus that nobody listens to yet.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Inner { clock, out: broadcast::Sender::new(BEHIND_MAX), state: Mutex::default() }))
    }

    /// Tells an event. Never waits.
    pub fn tell(&self, server: &str, correlation_id: CallId, news: News) {
        let at = self.0.clock.now().wall;
        let mut state = self.0.state.lock().expect("nothing panics while it holds the numbers");
        let event = Arc::new(state.sequences.stamp(server, correlation_id, at, news));
        if state.kept.len() == KEPT_MAX {
            state.kept.pop_front();
        }
        state.kept.push_back(Arc::clone(&event));
        // Without a subscriber it goes nowhere, which is fine.
        let _ = self.0.out.send(event);
    }

    /// The last events, and all that come after them.
    pub fn subscribe(&self) -> (Vec<Arc<Event>>, Subscription) {
        let state = self.0.state.lock().expect("nothing panics while it holds the numbers");
        (state.kept.iter().map(Arc::clone).collect(), Subscription(self.0.out.subscribe()))
    }
}

impl Subscription {
    /// The next one; `None` when there will be no more.
    pub async fn next(&mut self) -> Option<Heard> {
        match self.0.recv().await {
            Ok(event) => Some(Heard::Event(event)),
            Err(broadcast::error::RecvError::Lagged(missed)) => Some(Heard::Missed(missed)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

/// A correlation id for what happens between two connects, where there is no call.
pub(super) fn episode() -> CallId {
    CallId(Uuid::now_v7())
}
