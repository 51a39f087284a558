//! A link from a worker: a process of its own, in a sandbox, that goes to a server on the network in colibri's place.
//!
//! Owns: the worker's process, and what is said through its pipes (`protocol.rs`). The worker (`inside.rs`) has the
//! link to the server. What a caller hears is the same as without a worker; a worker's own end is the end of a process.
//! Must not know: what a frame means, or how a server on the network is spoken to.

mod inside;
mod protocol;

pub use inside::enter;

use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::domain::audit::Pending;
use crate::domain::end::End;
use crate::domain::ledger::clip;
use crate::fleet::credentials::Credentials;
use crate::fleet::error::Cause;
use crate::fleet::inbox::{IN_FLIGHT_MAX, Inbox};
use crate::fleet::web::Endpoint;
use crate::mcp::revision::Revision;
use crate::sandbox::{self, Child, Layer, Life, Policy, Spec};

use super::stdio::{Children, LAST_WORDS_WAIT, heard_out, how_it_ended, never_ran, not_started, watch};
use super::{Carrier, Link, Opener, Outgoing};
use protocol::{Broken, Messages, Order, Question, Report, Said, written};

/// The first argument of colibri's program when it is a worker.
pub const WORKER: &str = "colibri-worker";

/// What people read where another server's program is named.
const PROGRAM: &str = "its worker";

/// One read of either pipe.
const CHUNK_BYTES: usize = 64 << 10;

/// Orders that wait for the worker to read. A caller beyond this waits for its place.
const ORDERS_AHEAD: usize = 32;

/// A worker says goodbye to its server within this. What is said after it nobody waits for: a WebSocket's own goodbye may
/// take longer.
const FAREWELL: Duration = Duration::from_millis(1500);

/// Starts a worker for each link.
#[derive(Clone, Debug)]
pub struct Worker {
    /// Whose it is, for people who look at a list of processes.
    pub name: String,
    /// Where it goes.
    pub endpoint: Endpoint,
    /// By which carrier.
    pub carrier: Carrier,
    /// Its whole environment.
    pub environment: Vec<(OsString, OsString)>,
    /// What it may touch and use.
    pub policy: Policy,
    /// Those that were started.
    pub children: Children,
}

impl Worker {
    fn start(&self) -> Result<Child, Cause> {
        let started = sandbox::own_program().and_then(|program| {
            let spec = Spec {
                program,
                arguments: vec![WORKER.into(), self.name.clone().into()],
                environment: self.environment.clone(),
                directory: Some("/".into()),
            };
            sandbox::start_under(&spec, &self.policy)
        });
        let child = started.map_err(|error| not_started(PROGRAM, &error))?;
        self.children.add(child.life.clone());
        Ok(child)
    }

    /// The first order: everything that must not be read by others is in it.
    fn instructions(&self) -> Order {
        let (url, headers) = self.endpoint.parts();
        Order::Open {
            carrier: self.carrier,
            url,
            headers,
            frame_bytes_max: self.endpoint.frame_bytes_max,
            has_credentials: self.endpoint.credentials().is_some(),
        }
    }
}

impl Opener for Worker {
    fn open(&self, inbox: Inbox) -> Pending<'_, Result<Arc<dyn Link>, Cause>> {
        Box::pin(async move {
            let Child { stdin, stdout, life } = self.start()?;
            watch(&life, &inbox, &self.policy, PROGRAM);
            let (orders, queue) = mpsc::channel(ORDERS_AHEAD);
            let (opened, is_open) = oneshot::channel();
            let (desk, stop) = (Arc::new(Desk::default()), CancellationToken::new());
            tokio::spawn(write(stdin, queue, stop.clone(), Arc::clone(&desk)));
            let most = self.endpoint.frame_bytes_max;
            let ear = Ear {
                inbox,
                life: life.clone(),
                desk: Arc::clone(&desk),
                orders: orders.clone(),
                credentials: self.endpoint.credentials().cloned(),
                asking: Arc::new(Semaphore::new(IN_FLIGHT_MAX)),
                opened: Some(opened),
                reports: Messages::new(most, most),
                output_bytes_max: self.policy.limits.output_bytes,
                warned: Said::default(),
                said: Said::default(),
            };
            tokio::spawn(ear.run(stdout));
            // From here on, leaving ends the worker.
            let link = WorkerLink {
                carrier: self.carrier,
                life,
                desk,
                orders,
                next: AtomicU64::new(0),
                agreed: Mutex::default(),
                stop: stop.clone(),
                _guard: stop.drop_guard(),
            };
            link.order(&self.instructions(), b"").await?;
            is_open.await.unwrap_or_else(|_| Err(gone()))?;
            Ok(Arc::new(link) as Arc<dyn Link>)
        })
    }

    fn settled(&self) -> Pending<'_, ()> {
        Box::pin(self.children.settled())
    }

    fn older(&self) -> Option<Box<dyn Opener>> {
        let carrier = self.carrier.older()?;
        Some(Box::new(Self { carrier, ..self.clone() }))
    }

    fn transport(&self) -> &'static str {
        self.carrier.name()
    }
}

fn gone() -> Cause {
    Cause::Gone(format!("{PROGRAM} is gone"))
}

/// What waits for the worker.
#[derive(Default)]
struct Desk {
    waiting: Mutex<Waiting>,
    /// Cancelled when the worker has ended its link, or itself.
    closed: CancellationToken,
}

#[derive(Default)]
struct Waiting {
    /// By the numbers of their orders.
    senders: HashMap<u64, oneshot::Sender<Result<(), Cause>>>,
    /// No order will be obeyed any more.
    is_over: bool,
    /// The server's side of the link has ended, and the worker told so: its own end is no news.
    is_told: bool,
}

impl Desk {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().expect("nothing panics while it holds the waiting")
    }

    fn over(&self) {
        let mut waiting = self.waiting();
        waiting.is_over = true;
        // Each of them is told by the end of its channel.
        waiting.senders.clear();
    }
}

struct WorkerLink {
    carrier: Carrier,
    life: Life,
    desk: Arc<Desk>,
    orders: mpsc::Sender<Vec<u8>>,
    next: AtomicU64,
    agreed: Mutex<Option<&'static Revision>>,
    stop: CancellationToken,
    _guard: DropGuard,
}

impl WorkerLink {
    async fn order(&self, order: &Order, frame: &[u8]) -> Result<(), Cause> {
        self.orders.send(written(order, frame)).await.map_err(|_| gone())
    }

    /// An order that the worker tells the end of.
    async fn bid(&self, order: impl FnOnce(u64, Option<String>) -> Order, frame: &[u8]) -> Result<(), Cause> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (done, is_done) = oneshot::channel();
        {
            let mut waiting = self.desk.waiting();
            if waiting.is_over {
                return Err(gone());
            }
            waiting.senders.insert(number, done);
        }
        let mut left = Left { link: self, number, is_sent: false };
        let revision = self.agreed().map(|revision| revision.date.to_owned());
        self.order(&order(number, revision), frame).await?;
        left.is_sent = true;
        is_done.await.unwrap_or_else(|_| Err(gone()))
    }

    fn agreed(&self) -> Option<&'static Revision> {
        *self.agreed.lock().expect("nothing panics while it holds what was agreed")
    }
}

/// Tells the worker when whoever sent something has left.
struct Left<'l> {
    link: &'l WorkerLink,
    number: u64,
    is_sent: bool,
}

impl Drop for Left<'_> {
    fn drop(&mut self) {
        let waited = self.link.desk.waiting().senders.remove(&self.number).is_some();
        if !waited || !self.is_sent {
            return;
        }
        let leave = written(&Order::Leave { number: self.number }, b"");
        if let Err(mpsc::error::TrySendError::Full(leave)) = self.link.orders.try_send(leave)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let orders = self.link.orders.clone();
            // Ends with the worker at the latest.
            runtime.spawn(async move { orders.send(leave).await });
        }
    }
}

impl Link for WorkerLink {
    fn send<'a>(&'a self, outgoing: Outgoing<'a>) -> Pending<'a, Result<(), Cause>> {
        Box::pin(async move {
            let Outgoing { frame, about } = outgoing;
            let send = |number, revision| Order::Send { number, revision, about: about.into() };
            self.bid(send, &frame).await
        })
    }

    fn takes_back_by_leaving(&self) -> bool {
        self.carrier.takes_back_by_leaving(self.agreed())
    }

    /// The worker is told with the next order: nothing is sent in between.
    fn introduced(&self, revision: &'static Revision) {
        *self.agreed.lock().expect("nothing panics while it holds what was agreed") = Some(revision);
    }

    fn listen(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            let listen = |number, revision| Order::Listen { number, revision };
            // A worker that is gone is told of elsewhere.
            let _ = self.bid(listen, b"").await;
        })
    }

    fn close(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            let farewell = async {
                if self.order(&Order::Close, b"").await.is_ok() {
                    self.desk.closed.cancelled().await;
                }
            };
            let _ = timeout(FAREWELL, farewell).await;
            self.stop.cancel();
            self.life.end().await;
        })
    }

    fn last_words(&self) -> Option<String> {
        Some(self.life.last_words()).filter(|words| !words.is_empty())
    }

    /// Of the worker, if that is what ended the link.
    fn end(&self) -> Option<End> {
        let is_told = self.desk.waiting().is_told;
        self.life.known_end().filter(|_| !is_told)
    }

    fn degraded(&self) -> Vec<&'static str> {
        self.life.lacking().into_iter().map(Layer::name).collect()
    }

    fn pid(&self) -> Option<u32> {
        Some(self.life.pid)
    }
}

impl Drop for WorkerLink {
    fn drop(&mut self) {
        // A safety net: closing is awaited by whoever owns the connection.
        let life = self.life.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { life.end().await });
        }
    }
}

/// Writes orders, one after the other, until nobody has any more or the worker does not read.
async fn write(
    mut stdin: ChildStdin,
    mut queue: mpsc::Receiver<Vec<u8>>,
    stop: CancellationToken,
    desk: Arc<Desk>,
) {
    let writing = async {
        while let Some(order) = queue.recv().await {
            if stdin.write_all(&order).await.is_err() {
                return;
            }
        }
    };
    stop.run_until_cancelled(writing).await;
    desk.over();
}

/// The receiving side.
struct Ear {
    inbox: Inbox,
    life: Life,
    desk: Arc<Desk>,
    orders: mpsc::Sender<Vec<u8>>,
    credentials: Option<Arc<dyn Credentials>>,
    /// Questions that are being answered.
    asking: Arc<Semaphore>,
    opened: Option<oneshot::Sender<Result<(), Cause>>>,
    reports: Messages<Report>,
    /// What the worker may say at once.
    output_bytes_max: Option<u64>,
    /// For somebody to look at.
    warned: Said,
    /// For whoever looks closely. A server that cannot be reached makes a good worker say much.
    said: Said,
}

impl Ear {
    /// Hears the worker out, then tells how it ended.
    async fn run(mut self, stdout: ChildStdout) {
        let life = self.life.clone();
        match heard_out(&life, self.hear(stdout)).await.unwrap_or(Ok(())) {
            Ok(()) => {}
            Err(Broken::TooMuch) => drop(life.end_because(End::Output).await),
            Err(Broken::Nonsense) => {
                self.inbox.warn(&format!("{PROGRAM} said what is no message, and is ended"));
                life.end().await;
            }
        }
        let ended = timeout(LAST_WORDS_WAIT, life.how_it_ended()).await;
        let cause = match &ended {
            Ok(end) => never_ran(PROGRAM, end).unwrap_or_else(|| Cause::Gone(how_it_ended(PROGRAM, end))),
            Err(_) => Cause::Gone(format!("{PROGRAM} closed its stdout")),
        };
        self.inbox.ended(&cause);
        if let Some(opened) = self.opened.take() {
            let _ = opened.send(Err(cause));
        }
        self.desk.over();
        self.desk.closed.cancel();
    }

    /// Takes reports until the worker's stdout ends, or nothing more can be made of it.
    async fn hear(&mut self, mut stdout: ChildStdout) -> Result<(), Broken> {
        loop {
            self.reports.buffer.reserve(CHUNK_BYTES);
            match stdout.read_buf(&mut self.reports.buffer).await {
                Ok(0) | Err(_) => return Ok(()),
                Ok(_) => {}
            }
            while let Some((report, frame)) = self.reports.next_message()? {
                if self.output_bytes_max.is_some_and(|most| frame.len() as u64 > most) {
                    return Err(Broken::TooMuch);
                }
                self.take(report, &frame)?;
                // One read may hold thousands of reports, and they must not hold up whoever else has work.
                consume_budget().await;
            }
        }
    }

    fn take(&mut self, report: Report, frame: &Bytes) -> Result<(), Broken> {
        if matches!(report, Report::TooLong { .. } | Report::Said { is_warning: true, .. }) {
            self.warned.once_more(Instant::now())?;
        }
        match report {
            Report::Opened(outcome) => {
                let opened = self.opened.take().ok_or(Broken::Nonsense)?;
                let _ = opened.send(outcome);
            }
            Report::Frame { exchange } => drop(self.inbox.frame(frame, exchange)),
            Report::TooLong { exchange } => self.inbox.too_long(exchange),
            Report::Done { number, outcome } => {
                let sender = self.desk.waiting().senders.remove(&number);
                // Whoever sent it may have left.
                sender.map(|sender| sender.send(outcome));
            }
            Report::Ended(cause) => {
                self.desk.waiting().is_told = true;
                self.inbox.ended(&cause);
            }
            Report::Said { is_warning: true, text } => self.inbox.warn(clip(&text)),
            Report::Said { is_warning: false, text } => {
                if self.said.once_more(Instant::now()).is_ok() {
                    self.inbox.debug(clip(&text));
                }
            }
            Report::Asked { number, question } => self.answer(number, question)?,
            Report::Closed => self.desk.closed.cancel(),
        }
        Ok(())
    }

    /// Asks who knows, in a task of its own: meanwhile the worker is heard. What is renewed for a worker that has left
    /// is the next one's.
    fn answer(&self, number: u64, question: Question) -> Result<(), Broken> {
        let credentials = self.credentials.clone().ok_or(Broken::Nonsense)?;
        let place = Arc::clone(&self.asking).try_acquire_owned().map_err(|_| Broken::Nonsense)?;
        let orders = self.orders.clone();
        tokio::spawn(async move {
            let _place = place;
            let outcome = match question.refusal() {
                None => credentials.authorization().await,
                Some(refusal) => credentials.refused(refusal).await.map(|()| None),
            };
            let _ = orders.send(written(&Order::Answer { number, outcome }, b"")).await;
        });
        Ok(())
    }
}
