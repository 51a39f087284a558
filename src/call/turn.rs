//! Stage 1: calls of one native tool run one at a time, first come, first served.
//!
//! A call takes its place when it arrives, not when its task first runs: two calls read from one
//! client must not overtake each other because a scheduler woke the second first.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// A tool's turn.
#[derive(Clone, Debug, Default)]
pub(super) struct Turn(Arc<Mutex<Line>>);

#[derive(Debug, Default)]
struct Line {
    taken: bool,
    waiting: VecDeque<oneshot::Sender<Held>>,
}

/// A place in the line. Dropping it is leaving.
#[derive(Debug)]
pub(super) struct Place(oneshot::Receiver<Held>);

/// Held while it is somebody's turn; dropping it hands the turn on, whatever happened.
#[derive(Debug)]
pub(super) struct Held(Option<Turn>);

impl Turn {
    /// Takes a place, at once.
    pub(super) fn take_place(&self) -> Place {
        let (grant, place) = oneshot::channel();
        let mut line = self.line();
        if line.taken {
            line.waiting.push_back(grant);
        } else {
            line.taken = true;
            let _ = grant.send(Held(Some(self.clone())));
        }
        Place(place)
    }

    /// Grants the turn to the first who still waits.
    fn pass_on(&self) {
        let mut line = self.line();
        while let Some(next) = line.waiting.pop_front() {
            match next.send(Held(Some(self.clone()))) {
                Ok(()) => return,
                // It left the line. Its turn is not dropped but taken back, or it would pass on too.
                Err(mut refused) => refused.0 = None,
            }
        }
        line.taken = false;
    }

    fn line(&self) -> std::sync::MutexGuard<'_, Line> {
        self.0.lock().expect("nothing panics while it holds the line")
    }
}

impl Place {
    /// Waits its turn; `None` if the call was cancelled first.
    pub(super) async fn wait(self, cancel: &CancellationToken) -> Option<Held> {
        let granted = cancel.run_until_cancelled(self.0).await?;
        Some(granted.expect("whoever leaves the line passes the turn on"))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(turn) = self.0.take() {
            turn.pass_on();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CO-4: first come, first served, and a waiter that is cancelled leaves at once.
    #[tokio::test]
    async fn the_turn_goes_down_the_line_past_those_who_left() {
        let (turn, never) = (Turn::default(), CancellationToken::new());
        let (first, second, third, fourth) =
            (turn.take_place(), turn.take_place(), turn.take_place(), turn.take_place());
        let held = first.wait(&never).await.expect("it is free");

        let cancelled = CancellationToken::new();
        cancelled.cancel();
        assert!(second.wait(&cancelled).await.is_none(), "cancelled while it waited");
        drop(third); // Left without a word.
        let mut fourth = Box::pin(fourth.wait(&never));
        assert!(futures_pending(&mut fourth), "it is still the first one's turn");
        drop(held);
        let held = fourth.await.expect("all before it have left or ended");
        drop(held);
        assert!(turn.take_place().wait(&never).await.is_some(), "the turn is free again");
    }

    /// CO-4: a turn that was granted and never used is not lost.
    #[tokio::test]
    async fn a_turn_granted_to_a_place_that_is_dropped_passes_on() {
        let (turn, never) = (Turn::default(), CancellationToken::new());
        let granted = turn.take_place();
        let next = turn.take_place();
        drop(granted);
        assert!(next.wait(&never).await.is_some());
    }

    fn futures_pending<F: Future + Unpin>(future: &mut F) -> bool {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        std::pin::Pin::new(future).poll(&mut context).is_pending()
    }
}
