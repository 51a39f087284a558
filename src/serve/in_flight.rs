//! The calls of one connection that have not ended: who they are, and how they end.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::domain::contain::panic_message;
use crate::mcp::envelope::Id;
use crate::mcp::error::Error;

use super::places::{Held, Place, Places};

/// The book of calls that run or wait for their place.
pub(super) struct InFlight {
    book: Book,
    places: Places,
    tasks: TaskTracker,
    /// The parent of every call's token.
    shutdown: CancellationToken,
}

/// Also held by each call's [`Ticket`], which removes its own line.
type Book = Arc<Mutex<HashMap<Id, Line>>>;

struct Line {
    cancel: CancellationToken,
    by_client: bool,
}

/// A call's line in the book, and its place.
pub(super) struct Ticket {
    id: Id,
    book: Book,
    place: Place,
    held: Option<Held>,
}

impl InFlight {
    pub(super) fn new(places_max: u32) -> Self {
        Self {
            book: Book::default(),
            places: Places::new(places_max),
            tasks: TaskTracker::new(),
            shutdown: CancellationToken::new(),
        }
    }

    /// A token for a new call.
    pub(super) fn token(&self) -> CancellationToken {
        self.shutdown.child_token()
    }

    /// Returns when another call may be entered: so many may wait for a place, and no more.
    pub(super) async fn room(&self) {
        self.places.room().await;
    }

    /// Writes the call into the book and asks for its place. One id names one call at a time.
    pub(super) fn enter(&self, id: Id, cancel: CancellationToken, bytes: usize) -> Result<Ticket, Error> {
        match lock(&self.book).entry(id) {
            Entry::Occupied(line) => Err(still_running(line.key())),
            Entry::Vacant(vacant) => {
                let (id, book) = (vacant.key().clone(), Arc::clone(&self.book));
                vacant.insert(Line { cancel, by_client: false });
                Ok(Ticket { id, book, place: self.places.ask(bytes), held: None })
            }
        }
    }

    /// Whether a call with that id has not ended.
    pub(super) fn has(&self, id: &Id) -> bool {
        lock(&self.book).contains_key(id)
    }

    /// The client no longer wants an answer. Late or mistaken news changes nothing.
    pub(super) fn cancel(&self, id: &Id) {
        if let Some(line) = lock(&self.book).get_mut(id) {
            line.by_client = true;
            line.cancel.cancel();
        }
    }

    /// A task of its own: neither the reading nor the client's leaving can tear it.
    pub(super) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.tasks.spawn(task)
    }

    /// Cancels whatever still runs.
    pub(super) fn cancel_all(&self) {
        self.shutdown.cancel();
    }

    /// Returns when nothing runs any more.
    pub(super) async fn idle(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// How many have not ended.
    pub(super) fn count(&self) -> usize {
        lock(&self.book).len()
    }
}

impl Ticket {
    /// Waits for the call's place; a call that is cancelled needs none, as it will not run.
    pub(super) async fn place(&mut self, cancel: &CancellationToken) {
        self.held = cancel.run_until_cancelled(self.place.given()).await;
    }

    /// Ends the call, before its answer can be seen: from then on the client may use the id again.
    /// Tells whether the client still wants the answer.
    pub(super) fn close(self) -> bool {
        lock(&self.book).get(&self.id).is_some_and(|line| !line.by_client)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        lock(&self.book).remove(&self.id);
    }
}

/// One id names one request at a time.
pub(super) fn still_running(id: &Id) -> Error {
    Error::invalid_request(format!("a request with the id {} is still running", id.raw()))
}

/// Each change is one operation on the map, so a panic elsewhere does not spoil it.
fn lock(book: &Book) -> MutexGuard<'_, HashMap<Id, Line>> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a future; a panic in it becomes its text. Not the containment of a tool: where a panic hook is
/// installed, a panic here is the end of the process.
pub(super) async fn contain<T>(future: impl Future<Output = T>) -> Result<T, String> {
    let mut future = pin!(future);
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(poll) => poll.map(Ok),
        Err(payload) => Poll::Ready(Err(panic_message(&*payload))),
    })
    .await
}
