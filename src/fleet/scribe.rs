//! Facts on their way to the ledger: in order, and without anybody waiting for the disk.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::domain::audit::CallId;
use crate::domain::chronicle::{Chronicle, Fact};
use crate::domain::log::Logger;

/// Facts that are not on record yet. A fleet that makes more than this has a disk that stands still.
const WAITING_MAX: usize = 1024;

/// A cheap handle.
#[derive(Clone)]
pub(super) struct Scribe {
    facts: mpsc::Sender<(CallId, Fact)>,
    logger: Logger,
}

impl Scribe {
    /// The handle, and the task that writes. It ends when no handle is left.
    pub(super) fn new(
        chronicle: Arc<dyn Chronicle>,
        logger: Logger,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (facts, mut waiting) = mpsc::channel(WAITING_MAX);
        let scribe = Self { facts, logger: logger.clone() };
        let work = async move {
            while let Some((call, fact)) = waiting.recv().await {
                if let Err(error) = chronicle.put(call, fact).await {
                    logger.error(format_args!("[colibri] a fact about a server is not on record: {error}"));
                }
            }
        };
        (scribe, work)
    }

    /// Puts a fact on record, in its turn.
    pub(super) fn put(&self, call: CallId, fact: Fact) {
        if self.facts.try_send((call, fact)).is_err() {
            self.logger.error(format_args!(
                "[colibri] a fact about a server is not on record: the ledger does not keep up"
            ));
        }
    }
}
