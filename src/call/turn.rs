//! Stage 1: calls of one native tool run one at a time, first come, first served.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// A tool's turn. Waiting is first in, first out; whoever gives up leaves the queue at once.
#[derive(Debug)]
pub(super) struct Turn(Arc<Semaphore>);

/// Held while it is somebody's turn; dropping it hands the turn on, whatever happened.
#[derive(Debug)]
pub(super) struct Held(#[expect(dead_code, reason = "held for its drop")] OwnedSemaphorePermit);

impl Turn {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }

    /// Waits its turn; `None` if the call was cancelled first.
    pub(super) async fn wait(&self, cancel: &CancellationToken) -> Option<Held> {
        let turn = Arc::clone(&self.0).acquire_owned();
        let permit = cancel.run_until_cancelled(turn).await?;
        Some(Held(permit.expect("the semaphore is never closed")))
    }
}
