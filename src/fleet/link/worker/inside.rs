//! The worker itself: colibri's own program, started anew in a sandbox, with one link to one server.
//!
//! Owns: that link, and the process's stdin and stdout. It does what it is ordered, and ends with its stdin.
//! Must not know: configuration, colibri's files, other servers, or what a frame means.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use bytes::Bytes;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::stdio::{dup2_stdout, stderr, stdin, stdout};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::domain::audit::Pending;
use crate::fleet::credentials::{Credentials, Refusal};
use crate::fleet::error::Cause;
use crate::fleet::inbox::{Inbox, Receive, answers};
use crate::fleet::web::Endpoint;
use crate::mcp::revision::REVISIONS;

use super::super::{Carrier, Link, Outgoing};
use super::protocol::{Heading, Messages, ORDER_BYTES_MAX, Order, Question, Report, written};
use super::{CHUNK_BYTES, WORKER};

/// The first descriptor that is not stdin, stdout or stderr.
const FIRST_PRIVATE_FD: i32 = 3;

/// To be called early in `main`. Where the program was started as a worker it does a worker's work, and returns its
/// exit code.
pub fn enter() -> Option<ExitCode> {
    let is_worker = std::env::args_os().nth(1).is_some_and(|word| word == WORKER);
    is_worker.then(main)
}

fn main() -> ExitCode {
    // A worker that goes on without one of its tasks would let a caller wait for nothing.
    let told = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        told(panic);
        std::process::abort();
    }));
    let done = streams().and_then(|(input, output)| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let done = runtime.block_on(work(input, output));
        // A name that is still looked up is not waited for.
        runtime.shutdown_background();
        done
    });
    if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The pipes to and from colibri. From here on descriptor 1 is stderr: nothing that any library prints reaches colibri
/// as a message.
fn streams() -> io::Result<(OwnedFd, File)> {
    let input = fcntl_dupfd_cloexec(stdin(), FIRST_PRIVATE_FD)?;
    let output = fcntl_dupfd_cloexec(stdout(), FIRST_PRIVATE_FD)?;
    dup2_stdout(stderr())?;
    Ok((input, output.into()))
}

/// Does what comes, until it is told to close or nobody is left who could tell.
async fn work(input: OwnedFd, output: File) -> io::Result<()> {
    let mut input = pipe::Receiver::from_owned_fd(input)?;
    let mouth = Arc::new(Mouth(Mutex::new(output)));
    let asking =
        Arc::new(Asking { mouth: Arc::clone(&mouth), next: AtomicU64::new(0), asked: Mutex::default() });
    let mut worker = Worker { mouth, asking, opening: None, link: Arc::default(), under_way: Arc::default() };
    let mut orders = Messages::new(ORDER_BYTES_MAX, ORDER_BYTES_MAX);
    'reading: loop {
        loop {
            match orders.next_message() {
                Ok(Some((Order::Close, _))) => break 'reading,
                Ok(Some((order, frame))) => worker.obey(order, frame),
                Ok(None) => break,
                Err(broken) => return Err(io::Error::other(format!("an order: {broken:?}"))),
            }
        }
        orders.buffer.reserve(CHUNK_BYTES);
        if input.read_buf(&mut orders.buffer).await? == 0 {
            break;
        }
    }
    worker.close().await;
    Ok(())
}

struct Worker {
    mouth: Arc<Mouth>,
    asking: Arc<Asking>,
    opening: Option<AbortHandle>,
    link: Arc<OnceLock<Arc<dyn Link>>>,
    /// What is being sent, by the numbers of its orders.
    under_way: UnderWay,
}

type UnderWay = Arc<Mutex<HashMap<u64, AbortHandle>>>;

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("a panic ends the whole process")
}

impl Worker {
    fn obey(&mut self, order: Order, frame: Bytes) {
        match order {
            Order::Open { carrier, url, headers, frame_bytes_max, has_credentials } => {
                let endpoint = self.endpoint(&url, &headers, has_credentials);
                self.open(carrier, endpoint.map(|endpoint| endpoint.with_frame_bytes_max(frame_bytes_max)));
            }
            Order::Send { number, revision, about } => self.send(number, revision.as_deref(), about, frame),
            Order::Leave { number } => {
                if let Some(sending) = held(&self.under_way).remove(&number) {
                    sending.abort();
                }
            }
            Order::Listen { number, revision } => self.listen(number, revision.as_deref()),
            Order::Answer { number, outcome } => self.asking.answered(number, outcome),
            Order::Close => unreachable!("whoever reads has left with it"),
        }
    }

    fn endpoint(&self, url: &str, headers: &[(String, String)], asks: bool) -> Result<Endpoint, Cause> {
        let endpoint = headers
            .iter()
            .try_fold(Endpoint::new(url)?, |endpoint, (name, value)| endpoint.with_header(name, value))?;
        Ok(if asks { endpoint.with_credentials(Arc::clone(&self.asking) as _) } else { endpoint })
    }

    fn open(&mut self, carrier: Carrier, endpoint: Result<Endpoint, Cause>) {
        let (mouth, link) = (Arc::clone(&self.mouth), Arc::clone(&self.link));
        let opening = async move {
            let opened = match endpoint {
                Ok(endpoint) => {
                    let opener = carrier.opener(endpoint);
                    opener.open(Inbox::new(Arc::clone(&mouth) as _)).await
                }
                Err(cause) => Err(cause),
            };
            let opened = opened.map(|opened| drop(link.set(opened)));
            mouth.say(&Report::Opened(opened), b"");
        };
        self.opening = Some(tokio::spawn(opening).abort_handle());
    }

    fn send(&self, number: u64, revision: Option<&str>, about: Heading, frame: Bytes) {
        let Some(link) = self.agreed(revision) else { return };
        let sending = async move { link.send(Outgoing { frame, about: about.about() }).await };
        self.spawn(number, sending);
    }

    fn listen(&self, number: u64, revision: Option<&str>) {
        let Some(link) = self.agreed(revision) else { return };
        self.spawn(number, async move {
            link.listen().await;
            Ok(())
        });
    }

    /// The link, which knows what was agreed on; nothing before it is open, when nobody sends.
    fn agreed(&self, revision: Option<&str>) -> Option<Arc<dyn Link>> {
        let link = self.link.get()?;
        if let Some(revision) = revision.and_then(|date| REVISIONS.iter().find(|known| known.date == date)) {
            link.introduced(revision);
        }
        Some(Arc::clone(link))
    }

    fn spawn(&self, number: u64, work: impl Future<Output = Result<(), Cause>> + Send + 'static) {
        let (mouth, under_way) = (Arc::clone(&self.mouth), Arc::clone(&self.under_way));
        // Held, so that nobody can be done before it is known to have begun.
        let mut begun = held(&self.under_way);
        let working = tokio::spawn(async move {
            let outcome = work.await;
            held(&under_way).remove(&number);
            mouth.say(&Report::Done { number, outcome }, b"");
        });
        begun.insert(number, working.abort_handle());
    }

    async fn close(self) {
        if let Some(opening) = self.opening {
            opening.abort();
        }
        for (_, sending) in held(&self.under_way).drain() {
            sending.abort();
        }
        if let Some(link) = self.link.get() {
            link.close().await;
        }
        self.mouth.say(&Report::Closed, b"");
    }
}

/// The way to colibri. Writing waits for colibri to read, and everything else here waits with it: a server that says
/// more than colibri takes is held up, and nothing is piled up.
struct Mouth(Mutex<File>);

impl Mouth {
    fn say(&self, report: &Report, frame: &[u8]) {
        // Who does not listen any more has ended this process, or is about to.
        let _ = held(&self.0).write_all(&written(report, frame));
    }
}

impl Receive for Mouth {
    fn frame(&self, frame: &Bytes, exchange: Option<u64>) -> bool {
        self.say(&Report::Frame { exchange }, frame);
        exchange.is_some_and(|exchange| answers(frame, exchange))
    }

    fn too_long(&self, exchange: Option<u64>) {
        self.say(&Report::TooLong { exchange }, b"");
    }

    fn ended(&self, cause: &Cause) {
        self.say(&Report::Ended(cause.clone()), b"");
    }

    fn warn(&self, what: &str) {
        self.say(&Report::Said { is_warning: true, text: what.to_owned() }, b"");
    }

    fn debug(&self, what: &str) {
        self.say(&Report::Said { is_warning: false, text: what.to_owned() }, b"");
    }

    fn muttered(&self, _: &[u8]) {}
}

/// Colibri's credentials, from here: a question for each.
struct Asking {
    mouth: Arc<Mouth>,
    next: AtomicU64,
    asked: Mutex<HashMap<u64, oneshot::Sender<Answer>>>,
}

type Answer = Result<Option<String>, Cause>;

impl Asking {
    async fn ask(&self, question: Question) -> Answer {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        held(&self.asked).insert(number, answer);
        self.mouth.say(&Report::Asked { number, question }, b"");
        answered.await.unwrap_or(Err(Cause::Closed))
    }

    fn answered(&self, number: u64, outcome: Answer) {
        if let Some(asked) = held(&self.asked).remove(&number) {
            // Whoever asked may have left.
            let _ = asked.send(outcome);
        }
    }
}

impl Credentials for Asking {
    fn authorization(&self) -> Pending<'_, Result<Option<String>, Cause>> {
        Box::pin(self.ask(Question::Authorization))
    }

    fn refused(&self, refusal: Refusal) -> Pending<'_, Result<(), Cause>> {
        Box::pin(async move { self.ask(refusal.into()).await.map(drop) })
    }
}
