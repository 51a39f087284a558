//! One connection to one server: many requests in flight, each with an id of our own, answered in
//! whatever order the server likes.
//!
//! Owns: the ids, what waits for which answer, and that a request that is given up is taken back on
//! the wire. Must not know: which link carries the frames, or what a result means.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::domain::audit::Pending;
use crate::domain::log::Logger;
use crate::mcp::envelope::{self, Frame, Id, Message};
use crate::mcp::error::Error;
use crate::mcp::request::{self, Client};
use crate::mcp::revision::Revision;

use super::error::Cause;
use super::link::{Incoming, Link, Opened};

/// Requests in flight on one connection. A caller beyond this is told so; nothing queues without end.
pub const IN_FLIGHT_MAX: usize = 1024;

/// Requests of the server's that are answered at the same time. A server that asks faster than it
/// reads its answers gets none for the rest.
const ANSWERING_MAX: usize = 16;

/// A link that cannot send has ended; how it ended is worth this wait.
const WHY_WAIT: Duration = Duration::from_millis(500);

/// What a server may ask of us, and tell us without being asked. The default refuses politely.
pub trait Handler: Send + Sync + 'static {
    /// A request of the server's. `ping` never comes here.
    fn asked(&self, method: &str, params: Option<Bytes>) -> Pending<'_, Result<Value, Error>> {
        let _ = params;
        let refusal = Error::unknown_method(method);
        Box::pin(std::future::ready(Err(refusal)))
    }

    /// A notification that belongs to no request of ours.
    fn told(&self, method: &str, params: Option<Bytes>) {
        let _ = (method, params);
    }
}

/// Refuses everything, politely.
pub struct Deaf;

impl Handler for Deaf {}

/// A cheap handle to one connection.
#[derive(Clone)]
pub struct Connection(Arc<Shared>);

struct Shared {
    link: Box<dyn Link>,
    next_id: AtomicU64,
    waiting: Mutex<Waiting>,
    answering: Arc<Semaphore>,
    reader: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Waiting {
    answers: HashMap<u64, Waiter>,
    /// Why nothing more will be answered, once that is so.
    gone: Option<Cause>,
}

struct Waiter {
    answer: oneshot::Sender<Result<Bytes, Cause>>,
    progress: Option<mpsc::Sender<Bytes>>,
}

/// How a request is made.
#[derive(Default)]
pub struct Ask<'a> {
    /// A JSON object without `_meta`, or nothing.
    pub params: Option<&'a [u8]>,
    /// The `_meta` of its revision.
    pub meta: Option<Value>,
    /// Where progress goes. A listener that does not keep up misses some; nothing waits for it.
    pub progress: Option<mpsc::Sender<Bytes>>,
}

impl Connection {
    /// Takes over an open link.
    pub fn new(opened: Opened, handler: Arc<dyn Handler>, logger: Logger) -> Self {
        let Opened { link, incoming } = opened;
        let (next_id, waiting) = (AtomicU64::new(1), Mutex::default());
        let answering = Arc::new(Semaphore::new(ANSWERING_MAX));
        let shared = Arc::new(Shared { link, next_id, waiting, answering, reader: Mutex::new(None) });
        // The reader holds the connection weakly: when the last handle goes, so does the link.
        let reading = tokio::spawn(read(Arc::downgrade(&shared), incoming, handler, logger));
        *shared.reader.lock().expect("nothing panics while it holds the reader") = Some(reading);
        Self(shared)
    }

    /// One request, until it is answered or its deadline passes. A request that is given up, by its
    /// deadline or by its caller, is taken back on the wire.
    pub async fn request(&self, method: &str, ask: Ask<'_>, deadline: Duration) -> Result<Bytes, Cause> {
        let id = self.0.next_id.fetch_add(1, Ordering::Relaxed);
        let mut meta = ask.meta;
        if ask.progress.is_some() {
            meta.get_or_insert_with(|| json!({}))["progressToken"] = id.into();
        }
        let (answer, answered) = oneshot::channel();
        self.0.expect(id, Waiter { answer, progress: ask.progress })?;
        // From here on, leaving without an answer takes the request back.
        let mut given_up = GivenUp { connection: self, id, sent: false, done: false };
        let frame = request::request(id, method, ask.params, meta.as_ref());
        let exchange = async {
            if let Err(reason) = self.0.link.send(frame).await {
                // The receiving side is about to learn why, in better words.
                let why = timeout(WHY_WAIT, answered).await;
                return why.ok().and_then(Result::ok).unwrap_or(Err(Cause::Gone(reason)));
            }
            given_up.sent = true;
            answered.await.unwrap_or(Err(Cause::Closed))
        };
        let outcome = timeout(deadline, exchange).await.unwrap_or(Err(Cause::TimedOut(deadline)));
        given_up.done = !matches!(outcome, Err(Cause::TimedOut(_)));
        outcome
    }

    /// A notification.
    pub async fn notify(
        &self,
        method: &str,
        params: Option<&[u8]>,
        meta: Option<&Value>,
    ) -> Result<(), Cause> {
        self.0.link.send(request::notification(method, params, meta)).await.map_err(Cause::Gone)
    }

    /// Ends it: everything waiting fails as closed, and nothing of it is left when this returns.
    pub async fn close(&self) {
        self.0.end(&Cause::Closed);
        self.0.link.close().await;
        let reading = self.0.reader.lock().expect("nothing panics while it holds the reader").take();
        if let Some(reading) = reading {
            reading.abort();
        }
    }

    /// The end of what the server wrote to its stderr.
    pub fn last_words(&self) -> Option<String> {
        self.0.link.last_words()
    }

    /// How many requests wait for an answer.
    pub fn in_flight(&self) -> usize {
        self.0.waiting().answers.len()
    }
}

/// Takes a request back when its caller leaves without an answer, in whatever way.
struct GivenUp<'c> {
    connection: &'c Connection,
    id: u64,
    sent: bool,
    done: bool,
}

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        self.connection.0.waiting().answers.remove(&self.id);
        if self.done || !self.sent {
            return;
        }
        let (connection, id) = (self.connection.clone(), self.id);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let params = json!({ "requestId": id, "reason": "the caller gave up" }).to_string();
                let cancelled = connection.notify("notifications/cancelled", Some(params.as_bytes()), None);
                let _ = timeout(WHY_WAIT, cancelled).await;
            });
        }
    }
}

impl Shared {
    fn waiting(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().expect("nothing panics while it holds the waiting")
    }

    fn expect(&self, id: u64, waiter: Waiter) -> Result<(), Cause> {
        let mut waiting = self.waiting();
        if let Some(cause) = &waiting.gone {
            return Err(cause.clone());
        }
        if waiting.answers.len() >= IN_FLIGHT_MAX {
            return Err(Cause::Network(format!("{IN_FLIGHT_MAX} requests wait for answers already")));
        }
        waiting.answers.insert(id, waiter);
        Ok(())
    }

    /// Fails everything that waits, and everything that would. The first reason stays.
    fn end(&self, cause: &Cause) {
        let mut waiting = self.waiting();
        let cause = waiting.gone.get_or_insert_with(|| cause.clone()).clone();
        for (_, waiter) in waiting.answers.drain() {
            let _ = waiter.answer.send(Err(cause.clone()));
        }
    }

    fn answered(&self, id: Option<&Id>, outcome: Result<Bytes, Bytes>) {
        let waiter =
            id.and_then(|id| id.raw().parse().ok()).and_then(|id: u64| self.waiting().answers.remove(&id));
        // An answer to nothing: late, doubled or made up. It changes nothing.
        let Some(waiter) = waiter else { return };
        let _ = waiter.answer.send(outcome.map_err(|error| answered_error(&error)));
    }

    fn progressed(&self, params: &Bytes) {
        #[derive(serde::Deserialize)]
        struct Progress {
            #[serde(rename = "progressToken")]
            token: u64,
        }
        let Ok(progress) = serde_json::from_slice::<Progress>(params) else { return };
        if let Some(listener) =
            self.waiting().answers.get(&progress.token).and_then(|waiter| waiter.progress.as_ref())
        {
            let _ = listener.try_send(params.clone());
        }
    }
}

fn answered_error(raw: &Bytes) -> Cause {
    #[derive(serde::Deserialize)]
    struct Answered {
        code: i32,
        #[serde(default)]
        message: String,
    }
    match serde_json::from_slice::<Answered>(raw) {
        Ok(Answered { code, message }) => {
            Cause::Answered { code, message, raw: String::from_utf8_lossy(raw).into_owned() }
        }
        Err(error) => Cause::Protocol(format!("an error without a code: {error}")),
    }
}

/// The one loop of a connection: wait for a frame, see whose it is, hand it over.
async fn read(
    shared: std::sync::Weak<Shared>,
    mut incoming: mpsc::Receiver<Incoming>,
    handler: Arc<dyn Handler>,
    logger: Logger,
) {
    while let Some(next) = incoming.recv().await {
        let Some(shared) = shared.upgrade() else { return };
        match next {
            Incoming::Frame(frame) => match envelope::read(&frame) {
                Frame::Single(message) => take(&shared, message, &handler, &logger),
                // Only 2025-03-26 has them, and its receivers must accept them.
                Frame::Batch(messages) => {
                    for message in messages {
                        take(&shared, message, &handler, &logger);
                    }
                }
            },
            Incoming::TooLong => {
                logger.warn(format_args!("[mcp-bridge] skipped a frame that is longer than the limit"));
                shared.too_long();
            }
            Incoming::Ended(reason) => return shared.end(&Cause::Gone(reason)),
        }
    }
    if let Some(shared) = shared.upgrade() {
        shared.end(&Cause::Gone("the link closed".to_owned()));
    }
}

impl Shared {
    /// Which answer was too long cannot be read. If only one request waits, it was its answer.
    fn too_long(&self) {
        let mut waiting = self.waiting();
        if waiting.answers.len() == 1 {
            for (_, waiter) in waiting.answers.drain() {
                let _ = waiter
                    .answer
                    .send(Err(Cause::Protocol("the answer is longer than the frame limit".to_owned())));
            }
        }
    }
}

fn take(shared: &Arc<Shared>, message: Message, handler: &Arc<dyn Handler>, logger: &Logger) {
    match message {
        Message::Response { id, outcome } => shared.answered(id.as_ref(), outcome),
        Message::Notification { method, params } if method == "notifications/progress" => {
            if let Some(params) = params {
                shared.progressed(&params);
            }
        }
        Message::Notification { method, params } => handler.told(&method, params),
        Message::Request { id, method, params } => {
            let Ok(place) = Arc::clone(&shared.answering).try_acquire_owned() else {
                return logger.debug(format_args!("[mcp-bridge] the server asks faster than it reads"));
            };
            let (shared, handler) = (Arc::clone(shared), Arc::clone(handler));
            tokio::spawn(async move {
                let _place = place;
                let outcome =
                    if method == "ping" { Ok(json!({})) } else { handler.asked(&method, params).await };
                let _ = shared.link.send(request::answer(id.raw(), &outcome)).await;
            });
        }
        // Servers print to stdout. It is no message, and nothing waits for it.
        Message::Refused { error, .. } => logger.debug(format_args!("[mcp-bridge] not a message: {error}")),
    }
}

/// A connection that has been introduced.
#[derive(Clone)]
pub struct Session {
    /// The connection.
    pub connection: Connection,
    /// The revision spoken.
    pub revision: &'static Revision,
    /// Who we are.
    pub client: Arc<Client>,
    /// What the server said of itself: the result of `initialize` or `server/discover`, raw.
    pub introduction: Bytes,
}

impl Session {
    /// One request in the revision spoken.
    pub async fn request(
        &self,
        method: &str,
        params: Option<&[u8]>,
        progress: Option<mpsc::Sender<Bytes>>,
        deadline: Duration,
    ) -> Result<Bytes, Cause> {
        let meta = request::meta(self.revision, &self.client, None);
        self.connection.request(method, Ask { params, meta, progress }, deadline).await
    }
}
