//! The one writer: a thread that owns the only write connection.
//!
//! One loop: wait for a verb, take all that wait with it, one transaction, one commit, wake the
//! callers. Nothing waits for company, so a lone call pays one commit and a crowd shares one.

use std::collections::HashMap;
use std::sync::Weak;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout_at};

use super::error::StoreError;
use super::files::Presence;
use super::ledger::Ledger;
use super::session::Session;
use super::{Options, Phase, Status};

/// As many verbs as one transaction takes: enough to share the commit, few enough to answer soon.
const BATCH_MAX: usize = 256;

/// A checkpoint is signed after this many records …
const CHECKPOINT_RECORDS: u64 = 256;

/// … or after this long, when anything is unsigned.
const CHECKPOINT_PERIOD: Duration = Duration::from_secs(1);

/// One act on the ledger, whole or not at all.
pub(super) trait Verb: Send {
    /// Whether anybody still wants it.
    fn is_wanted(&self) -> bool;
    /// Acts; the result is kept for [`Verb::finish`]. An error here undoes this verb alone.
    fn apply(&mut self, ledger: &mut Ledger<'_>) -> Result<(), StoreError>;
    /// Tells the caller, once the fate of the transaction is known.
    fn finish(self: Box<Self>, fate: Result<(), StoreError>);
}

/// A verb made of a closure.
pub(super) struct Work<F, T> {
    act: Option<F>,
    result: Option<T>,
    reply: Reply<T>,
}

/// Who is told.
pub(super) enum Reply<T> {
    /// Somebody waits.
    Caller(oneshot::Sender<Result<T, StoreError>>),
    /// Nobody waits, but a failure must be told.
    Failure(Box<dyn FnOnce(StoreError) + Send>),
}

impl<F, T> Work<F, T> {
    pub(super) fn new(act: F, reply: Reply<T>) -> Self {
        Self { act: Some(act), result: None, reply }
    }
}

impl<F, T> Verb for Work<F, T>
where
    F: FnOnce(&mut Ledger<'_>) -> Result<T, StoreError> + Send,
    T: Send,
{
    fn is_wanted(&self) -> bool {
        !matches!(&self.reply, Reply::Caller(caller) if caller.is_closed())
    }

    fn apply(&mut self, ledger: &mut Ledger<'_>) -> Result<(), StoreError> {
        let act = self.act.take().expect("a verb is applied once");
        self.result = Some(act(ledger)?);
        Ok(())
    }

    fn finish(self: Box<Self>, fate: Result<(), StoreError>) {
        let Self { result, reply, .. } = *self;
        let outcome = fate.and_then(|()| result.ok_or(StoreError::Closed));
        match (reply, outcome) {
            // A caller that gave up in this very moment left its entry open; recovery closes it.
            (Reply::Caller(caller), outcome) => drop(caller.send(outcome)),
            (Reply::Failure(tell), Err(error)) => tell(error),
            (Reply::Failure(_), Ok(_)) => {}
        }
    }
}

/// What reaches the writer.
pub(super) enum Request {
    /// A verb for the next transaction.
    Verb(Box<dyn Verb>),
    /// Sign now.
    Checkpoint(oneshot::Sender<Result<(), StoreError>>),
    /// Replace the key; answers with the old and the new public key.
    RotateKey(oneshot::Sender<Result<(String, String), StoreError>>),
    /// Stop, once everything before it is done.
    Close,
}

pub(super) struct Writer {
    options: Options,
    inbox: mpsc::Receiver<Request>,
    status: watch::Sender<Status>,
    presence: Option<Presence>,
    session: Option<Session>,
    /// The calls that this process has open, each for as long as its entry exists. What is open in
    /// the database but not here was lost to a failed commit; reopening closes it.
    live: HashMap<i64, Weak<()>>,
    size: u64,
    /// When the next signature is due, if anything is unsigned.
    sign_by: Option<Instant>,
}

impl Writer {
    pub(super) fn new(
        options: Options,
        inbox: mpsc::Receiver<Request>,
        status: watch::Sender<Status>,
    ) -> Self {
        Self {
            options,
            inbox,
            status,
            presence: None,
            session: None,
            live: HashMap::new(),
            size: 0,
            sign_by: None,
        }
    }

    /// Runs until it is told to close, or every handle to the store is gone.
    pub(super) fn run(mut self) {
        let clockwork = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let clockwork = match clockwork {
            Ok(clockwork) => clockwork,
            Err(error) => {
                return self.fail(StoreError::File {
                    action: "start",
                    path: "the writer".into(),
                    cause: error.to_string(),
                });
            }
        };
        if let Err(error) = self.reopen() {
            self.fail(error);
        }
        while let Some(next) = self.next(&clockwork) {
            let after = match next {
                Next::Request(Request::Verb(first)) => self.serve(first),
                Next::Request(other) => Some(other),
                Next::Unsigned => {
                    drop(self.checkpoint());
                    None
                }
            };
            match after {
                Some(Request::Checkpoint(reply)) => drop(reply.send(self.checkpoint())),
                // Whoever was told that the ledger is busy must not find the key replaced later.
                Some(Request::RotateKey(reply)) if reply.is_closed() => {}
                Some(Request::RotateKey(reply)) => drop(reply.send(self.rotate_key())),
                Some(Request::Close) => break,
                Some(Request::Verb(_)) | None => {}
            }
        }
        // A ledger that was refused is left alone, also at the end.
        if self.session.is_some() {
            drop(self.checkpoint());
        }
    }

    /// The only waiting the writer does. What is unsigned is signed in time, whether calls stop or
    /// keep trickling in.
    fn next(&mut self, clockwork: &Runtime) -> Option<Next> {
        if self.session.as_ref().is_none_or(|session| session.signed_size >= self.size) {
            self.sign_by = None;
            return clockwork.block_on(self.inbox.recv()).map(Next::Request);
        }
        let sign_by = *self.sign_by.get_or_insert_with(|| Instant::now() + CHECKPOINT_PERIOD);
        if sign_by <= Instant::now() {
            self.sign_by = None;
            return Some(Next::Unsigned);
        }
        let inbox = &mut self.inbox;
        clockwork.block_on(async {
            let next = timeout_at(sign_by, inbox.recv()).await;
            next.map_or(Some(Next::Unsigned), |next| next.map(Next::Request))
        })
    }

    /// One batch: one transaction, a savepoint for each verb, one commit. Returns the request that
    /// ended the batch, if one did.
    fn serve(&mut self, first: Box<dyn Verb>) -> Option<Request> {
        let mut batch = vec![first];
        let mut after = None;
        while batch.len() < BATCH_MAX && after.is_none() {
            match self.inbox.try_recv() {
                Ok(Request::Verb(verb)) => batch.push(verb),
                Ok(other) => after = Some(other),
                Err(_) => break,
            }
        }
        match self.reopen_if_needed().and_then(|()| self.commit(&mut batch)) {
            Ok(undone) => {
                for (verb, undone) in batch.into_iter().zip(undone) {
                    verb.finish(undone.map_or(Ok(()), Err));
                }
            }
            Err(error) => batch.into_iter().for_each(|verb| verb.finish(Err(error.clone()))),
        }
        let signed = self.session.as_ref().map_or(self.size, |session| session.signed_size);
        if self.size.saturating_sub(signed) >= CHECKPOINT_RECORDS {
            drop(self.checkpoint());
        }
        after
    }

    /// Applies and commits. For each verb, the error that undid it alone, if one did.
    fn commit(&mut self, batch: &mut [Box<dyn Verb>]) -> Result<Vec<Option<StoreError>>, StoreError> {
        let session = self.session.as_mut().expect("reopened just before");
        let process = self.presence.as_ref().map_or("", |presence| &presence.id);
        let applied = session.locked(&self.options, process, |ledger| {
            batch.iter_mut().map(|verb| apply_alone(verb.as_mut(), ledger)).collect::<Result<Vec<_>, _>>()
        });
        match applied {
            Ok((undone, changes)) => {
                self.live.extend(changes.opened);
                for number in &changes.closed {
                    self.live.remove(number);
                }
                self.size = changes.size;
                Ok(undone)
            }
            Err(error) => {
                self.poison(&error);
                Err(error)
            }
        }
    }

    fn checkpoint(&mut self) -> Result<(), StoreError> {
        self.reopen_if_needed()?;
        let session = self.session.as_mut().expect("reopened just before");
        let signed = session.checkpoint();
        let size = session.signed_size;
        match &signed {
            Ok(()) => self.status.send_modify(|status| {
                status.signed = size;
                status.trouble = None;
            }),
            Err(error) => {
                self.options.logger.error(format_args!("[colibri] no checkpoint could be signed: {error}"));
                self.status.send_modify(|status| status.trouble = Some(error.to_string()));
                // Calls go on without a signature for a while; a broken database stops them.
                self.size = self.size.min(size);
                self.doubt(error);
            }
        }
        signed
    }

    fn rotate_key(&mut self) -> Result<(String, String), StoreError> {
        self.reopen_if_needed()?;
        let process = self.presence.as_ref().map_or("", |presence| &presence.id);
        let session = self.session.as_mut().expect("reopened just before");
        let rotated = session.rotate_key(&self.options, process);
        rotated.inspect_err(|error| self.doubt(error))
    }

    fn reopen_if_needed(&mut self) -> Result<(), StoreError> {
        if self.session.is_some() {
            return Ok(());
        }
        self.reopen().inspect_err(|error| self.fail(error.clone()))
    }

    /// A fresh connection, verified. The only way back from a failure.
    fn reopen(&mut self) -> Result<(), StoreError> {
        self.live.retain(|_, entry| entry.strong_count() > 0);
        let live = &self.live;
        let session = Session::open(&self.options, &mut self.presence, |number| live.contains_key(&number))?;
        let signed = session.signed_size;
        // What an ended process left unsigned is signed by this one, called or not.
        self.size = session.size;
        self.session = Some(session);
        self.status.send_modify(|status| {
            status.phase = Phase::Open;
            status.signed = signed;
        });
        Ok(())
    }

    /// A signature that failed stops the calls only if it is the database that failed.
    fn doubt(&mut self, error: &StoreError) {
        if matches!(error, StoreError::Database { .. } | StoreError::RolledBack { .. }) {
            self.poison(error);
        }
    }

    /// After an error that leaves the connection doubtful, nothing is written through it again.
    fn poison(&mut self, error: &StoreError) {
        if error.is_fatal() {
            self.session = None;
            self.fail(error.clone());
        }
    }

    fn fail(&self, error: StoreError) {
        let is_told = match &self.status.borrow().phase {
            Phase::Opening => true, // By whoever waits for it to be ready.
            Phase::Open => false,
            Phase::Failed(known) => *known == error,
        };
        if !is_told {
            self.options.logger.error(format_args!("[colibri] the ledger cannot be written: {error}"));
        }
        self.status.send_modify(|status| status.phase = Phase::Failed(error));
    }
}

enum Next {
    Request(Request),
    /// It is time to sign.
    Unsigned,
}

/// One verb in its own savepoint: if it fails, the others stand.
fn apply_alone(verb: &mut dyn Verb, ledger: &mut Ledger<'_>) -> Result<Option<StoreError>, StoreError> {
    // Asked here, since the wait for the lock may have outlasted the caller's patience: a call that
    // was told it did not run must not be found on record later.
    if !verb.is_wanted() {
        return Ok(Some(StoreError::Closed));
    }
    let failed = StoreError::database("keep a savepoint");
    let before = (ledger.head.clone(), ledger.opened.len(), ledger.closed.len());
    let run = |sql| {
        ledger.connection.prepare_cached(sql).and_then(|mut statement| statement.execute([])).map_err(&failed)
    };
    run("SAVEPOINT verb")?;
    match verb.apply(ledger) {
        Ok(()) => {
            ledger
                .connection
                .prepare_cached("RELEASE verb")
                .and_then(|mut s| s.execute([]))
                .map_err(&failed)?;
            Ok(None)
        }
        Err(error) if error.is_fatal() => Err(error),
        Err(error) => {
            ledger.connection.execute_batch("ROLLBACK TO verb; RELEASE verb").map_err(&failed)?;
            ledger.head = before.0;
            ledger.opened.truncate(before.1);
            ledger.closed.truncate(before.2);
            Ok(Some(error))
        }
    }
}
