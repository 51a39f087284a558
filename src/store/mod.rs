//! Durable truth: one append-only ledger in SQLite, and the verbs that write and read it.
//!
//! Owns: the database, its migrations, the single writer, the signing key and the checkpoint file.
//! Uses: `domain` for what a record is and how it is hashed and signed.
//! Must not know: who calls, over which protocol, or what a tool does.

mod calls;
mod chronicle;
mod error;
mod files;
mod keys;
mod ledger;
mod next;
mod notes;
mod read;
mod schema;
mod servers;
mod session;
mod sink;
mod skills;
mod tasks;
mod thoughts;
mod tokens;
mod trail;
mod verify;
mod work;
mod writer;

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use crate::domain::audit::{Durability, Payloads};
use crate::domain::clock::Clock;
use crate::domain::log::Logger;

pub use chronicle::LedgerChronicle;
pub use error::{Harm, StoreError};
pub use files::Paths;
pub use keys::public as public_keys;
pub use notes::Signed;
pub use read::{Action, ActionFilter, Body, Reader, RecordRow};
pub use schema::VERSION as SCHEMA_VERSION;
pub use sink::LedgerSink;
pub use skills::SeenSkill;
pub use tasks::{Act, Answer};
pub use thoughts::{NewSession, NewThought, Recorded, Seal, Session};
pub use tokens::TokenFiles;
pub use trail::TaskChain;
pub use verify::{Broken, Progress, Verdict};
pub use work::{ListedThought, ThoughtPage, ThoughtQuery};

use ledger::Ledger;
use writer::{Reply, Request, Work, Writer};

/// More than this many verbs waiting means that the disk is far behind; callers then wait to queue.
const QUEUE_MAX: usize = 1024;

/// How long a caller waits for its record before it is told that the ledger is busy. Longer than
/// any healthy commit, shorter than a client's own patience.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long the end of the process waits for the last commit and its signature.
const CLOSING_PATIENCE: Duration = Duration::from_secs(5);

/// What a store needs to know.
#[derive(Clone)]
pub struct Options {
    /// Where it lies; everything else lies beside it.
    pub database: PathBuf,
    /// When records are forced to disk.
    pub durability: Durability,
    /// How much of the bodies is kept.
    pub payloads: Payloads,
    /// The version of colibri, for the first record of a log.
    pub version: String,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Where trouble is told.
    pub logger: Logger,
}

/// How the writer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Whether it can write.
    pub phase: Phase,
    /// How many records are signed.
    pub signed: u64,
    /// Why the newest checkpoint could not be signed, if it could not.
    pub trouble: Option<String>,
}

/// Whether the writer can write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not known yet.
    Opening,
    /// It can.
    Open,
    /// It cannot, and every call fails closed until reopening succeeds.
    Failed(StoreError),
}

/// A cheap handle. The writer's thread owns the database; cloning shares its mailbox.
#[derive(Clone)]
pub struct Store(Arc<Handle>);

struct Handle {
    inbox: mpsc::Sender<Request>,
    status: watch::Receiver<Status>,
    paths: Paths,
    options: Options,
    lost_exits: AtomicU64,
}

/// The writer's end, for whoever owns the shutdown.
pub struct Closing {
    inbox: mpsc::Sender<Request>,
    /// Gone when the writer is.
    ended: oneshot::Receiver<Infallible>,
    logger: Logger,
}

impl Store {
    /// Starts the writer. It opens the database in its own thread; verbs wait until it has.
    pub fn open(options: Options) -> Result<(Self, Closing), StoreError> {
        let (inbox, requests) = mpsc::channel(QUEUE_MAX);
        let opening = Status { phase: Phase::Opening, signed: 0, trouble: None };
        let (publish, status) = watch::channel(opening);
        let writer = Writer::new(options.clone(), requests, publish);
        let (alive, ended) = oneshot::channel();
        let run = move || {
            writer.run();
            drop(alive);
        };
        std::thread::Builder::new()
            .name("ledger".to_owned())
            .spawn(run)
            .map_err(StoreError::file("start the writer of", &options.database))?;
        let paths = Paths::beside(&options.database);
        let closing = Closing { inbox: inbox.clone(), ended, logger: options.logger.clone() };
        let handle = Handle { inbox, status, paths, options, lost_exits: AtomicU64::new(0) };
        Ok((Self(Arc::new(handle)), closing))
    }

    /// Waits until it is known whether the ledger can be written.
    pub async fn ready(&self) -> Result<(), StoreError> {
        let mut status = self.0.status.clone();
        let known = status.wait_for(|status| status.phase != Phase::Opening).await;
        match known.map(|status| status.phase.clone()) {
            Ok(Phase::Failed(error)) => Err(error),
            Ok(_) => Ok(()),
            Err(_) => Err(StoreError::Closed),
        }
    }

    /// How the writer is, now.
    pub fn status(&self) -> Status {
        self.0.status.borrow().clone()
    }

    /// How many ends of calls could not be put on record since the start.
    pub fn lost_exits(&self) -> u64 {
        self.0.lost_exits.load(Ordering::Relaxed)
    }

    /// Where everything lies.
    pub fn paths(&self) -> &Paths {
        &self.0.paths
    }

    /// When records are forced to disk.
    pub fn durability(&self) -> Durability {
        self.0.options.durability
    }

    /// A connection for reading. Readers never wait for the writer.
    pub fn reader(&self) -> Result<Reader, StoreError> {
        Reader::open(&self.0.paths)
    }

    /// Signs the log as it stands.
    pub async fn checkpoint(&self) -> Result<(), StoreError> {
        self.ask(Request::Checkpoint).await
    }

    /// Replaces the signing key; gives the old and the new public key.
    pub async fn rotate_key(&self) -> Result<(String, String), StoreError> {
        self.ask(Request::RotateKey).await
    }

    /// One act in one transaction; returns when it is committed, or undone whole.
    async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Ledger<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let begun = Arc::new(AtomicBool::new(false));
        let mark = Arc::clone(&begun);
        let work = move |ledger: &mut Ledger<'_>| {
            mark.store(true, Ordering::Release);
            work(ledger)
        };
        let outcome =
            self.ask(|caller| Request::Verb(Box::new(Work::new(work, Reply::Caller(caller))))).await;
        match outcome {
            Err(StoreError::Busy(ms)) if begun.load(Ordering::Acquire) => Err(StoreError::InDoubt(ms)),
            outcome => outcome,
        }
    }

    /// The same, without waiting for the commit. Order is kept; a failure is told to people.
    async fn write_behind(
        &self,
        work: impl FnOnce(&mut Ledger<'_>) -> Result<(), StoreError> + Send + 'static,
    ) -> Result<(), StoreError> {
        let handle = Arc::downgrade(&self.0);
        let tell = move |error: StoreError| {
            if let Some(handle) = handle.upgrade() {
                handle.lost_exits.fetch_add(1, Ordering::Relaxed);
                handle
                    .options
                    .logger
                    .error(format_args!("[colibri] the end of a call is not on record: {error}"));
            }
        };
        let verb = Request::Verb(Box::new(Work::new(work, Reply::Failure(Box::new(tell)))));
        match tokio::time::timeout(PATIENCE, self.0.inbox.send(verb)).await {
            Ok(sent) => sent.map_err(|_| StoreError::Closed),
            Err(_) => Err(StoreError::Busy(PATIENCE.as_millis() as u64)),
        }
    }

    async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Request,
    ) -> Result<T, StoreError> {
        let (caller, answer) = oneshot::channel();
        let asked = async {
            self.0.inbox.send(request(caller)).await.map_err(|_| StoreError::Closed)?;
            answer.await.map_err(|_| StoreError::Closed)?
        };
        tokio::time::timeout(PATIENCE, asked)
            .await
            .unwrap_or(Err(StoreError::Busy(PATIENCE.as_millis() as u64)))
    }
}

impl Closing {
    /// Returns when everything queued is written, the log is signed and the database is closed.
    /// Verbs that come later fail as [`StoreError::Closed`]. A writer that waits for a stopped
    /// process is left behind: what it could not write is closed as unknown by the next start.
    pub async fn close(self) {
        let Self { inbox, ended, logger } = self;
        let closed = async {
            let _ = inbox.send(Request::Close).await;
            // A writer that panicked has said so through the panic hook.
            let _ = ended.await;
        };
        if tokio::time::timeout(CLOSING_PATIENCE, closed).await.is_err() {
            let patience = CLOSING_PATIENCE.as_millis();
            logger.warn(format_args!(
                "[colibri] the ledger was still busy after {patience} ms; not waiting longer"
            ));
        }
    }
}

/// Whether the key that signs checkpoints is there, private and readable.
pub fn signing_key_is_usable(paths: &Paths) -> Result<(), StoreError> {
    keys::read(&paths.key).map(drop)
}

/// Gives up a log that cannot be used and opens another that names it; `reason` is what opening
/// refused with.
pub fn accept_loss(options: &Options, reason: &StoreError) -> Result<(), StoreError> {
    session::accept_loss(options, reason)
}
