//! A child's life, as colibri sees it: running, asked to leave, ended, and how.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, mpsc, watch};

use crate::domain::end::End;

use super::policy::Layer;
use super::tail::Tail;

/// A child whose stdin has ended may leave by itself for this long …
pub(super) const LEAVE_GRACE: Duration = Duration::from_millis(500);

/// … and after SIGTERM for this long; then it is killed.
pub(super) const TERM_GRACE: Duration = Duration::from_millis(500);

/// A cheap handle to a child's life. Its task owns the process, and ends all it started with it.
#[derive(Clone, Debug)]
pub struct Life {
    pub(super) end: mpsc::Sender<End>,
    pub(super) ended: watch::Receiver<Option<Ended>>,
    pub(super) lacking: watch::Receiver<Option<BTreeSet<Layer>>>,
    pub(super) refused: Refused,
    pub(super) last_words: Tail,
    /// The process id, for people: the child's, or that of the helper which keeps it.
    pub pid: u32,
}

/// Where refused hosts are heard, by whoever asks first.
#[derive(Clone, Debug)]
pub(super) struct Refused(Arc<Mutex<mpsc::Receiver<String>>>);

impl Refused {
    pub(super) fn new(heard: mpsc::Receiver<String>) -> Self {
        Self(Arc::new(Mutex::new(heard)))
    }
}

/// A child's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    pub(super) end: End,
}

impl Life {
    /// Waits for the end.
    pub async fn ended(&self) -> ExitStatus {
        self.whole_end().await.status
    }

    /// Whether the end has come.
    pub fn has_ended(&self) -> bool {
        self.ended.borrow().is_some()
    }

    /// How it ended, if it has.
    pub fn known_end(&self) -> Option<End> {
        self.ended.borrow().as_ref().map(|ended| ended.end.clone())
    }

    /// The layers that it runs without, as far as that is known: once it has said anything, it is.
    pub fn lacking(&self) -> BTreeSet<Layer> {
        self.lacking.borrow().clone().unwrap_or_default()
    }

    /// Waits for the end, and tells how it came about.
    pub async fn how_it_ended(&self) -> End {
        self.whole_end().await.end
    }

    /// Ends the child and all it started, if they have not ended; returns when they have.
    pub async fn end(&self) -> ExitStatus {
        self.end_because(End::Asked).await
    }

    /// The same, for a reason that is told instead of [`End::Asked`].
    pub async fn end_because(&self, reason: End) -> ExitStatus {
        // Full means that somebody asked before.
        let _ = self.end.try_send(reason);
        self.ended().await
    }

    /// Waits until the program runs, and tells which layers it runs without; nothing if it never ran.
    pub async fn started(&self) -> Option<BTreeSet<Layer>> {
        let mut lacking = self.lacking.clone();
        lacking.wait_for(Option::is_some).await.ok().and_then(|lacking| lacking.clone())
    }

    /// Waits for the next host that the child wanted to reach and may not, in a sentence; each is told once.
    /// Nothing more comes once the child has ended, or if its network is not limited to hosts.
    pub async fn next_refused(&self) -> Option<String> {
        self.refused.0.lock().await.recv().await
    }

    /// The end of what the child wrote to stderr.
    pub fn last_words(&self) -> String {
        self.last_words.text()
    }

    /// Lets somebody hear what the child writes to stderr, from its first byte, as it comes; it must not wait. The
    /// first one counts.
    pub fn overhear(&self, ear: impl Fn(&[u8]) + Send + Sync + 'static) {
        self.last_words.overhear(Box::new(ear));
    }

    async fn whole_end(&self) -> Ended {
        let mut ended = self.ended.clone();
        let known = ended.wait_for(Option::is_some).await.map(|ended| ended.clone());
        // The task is gone only if the runtime stops, and takes the child with it.
        known.ok().flatten().unwrap_or(Ended { status: ExitStatus::default(), end: End::Asked })
    }
}

/// What a status says by itself.
pub(super) fn end_of(status: ExitStatus) -> End {
    match (status.code(), status.signal()) {
        (Some(code), _) => End::Exited { code },
        (None, signal) => End::Crashed { signal: signal.unwrap_or_default() },
    }
}
