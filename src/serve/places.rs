//! Places for calls: so many run, as many again wait, and places are given in the order of asking.
//!
//! A call asks when it arrives, not when its task first runs. It stands in its tool's line since then
//! too; were places given in another order, a call could hold one while it waits for the turn of a
//! call that has none.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{oneshot, watch};

/// A call takes one place for each of these, so that 256 large calls cannot hold a gibibyte.
const BYTES_PER_PLACE: usize = 256 << 10;

/// The places of one connection.
pub(super) struct Places(Arc<Shared>);

struct Shared {
    max: u32,
    line: Mutex<Line>,
    /// How many places those in the line wait for. Changed only by who holds the line.
    waiting: watch::Sender<u32>,
}

struct Line {
    free: u32,
    next_number: u64,
    waiters: VecDeque<Waiter>,
}

struct Waiter {
    number: u64,
    weight: u32,
    grant: oneshot::Sender<Held>,
}

/// A place that was asked for. Dropping it is leaving the line.
pub(super) struct Place {
    number: u64,
    places: Arc<Shared>,
    granted: oneshot::Receiver<Held>,
}

/// A place that was given; dropping it hands it on.
pub(super) struct Held {
    weight: u32,
    places: Arc<Shared>,
}

impl Places {
    pub(super) fn new(max: u32) -> Self {
        let line = Line { free: max, next_number: 0, waiters: VecDeque::new() };
        Self(Arc::new(Shared { max, line: Mutex::new(line), waiting: watch::Sender::new(0) }))
    }

    /// Asks for a place for a call that keeps so many bytes in memory.
    pub(super) fn ask(&self, bytes: usize) -> Place {
        let weight = u32::try_from(1 + bytes / BYTES_PER_PLACE).unwrap_or(u32::MAX).min(self.0.max);
        let (grant, granted) = oneshot::channel();
        let mut line = self.0.lock();
        let number = line.next_number;
        line.next_number += 1;
        line.waiters.push_back(Waiter { number, weight, grant });
        self.0.hand_out(&mut line);
        Place { number, places: Arc::clone(&self.0), granted }
    }

    /// Returns when the line is short enough for another.
    pub(super) async fn room(&self) {
        let mut waiting = self.0.waiting.subscribe();
        let short = waiting.wait_for(|waiting| *waiting < self.0.max).await;
        short.expect("`self` keeps the sender");
    }
}

impl Place {
    /// Waits for it.
    pub(super) async fn given(&mut self) -> Held {
        (&mut self.granted).await.expect("only who leaves the line is removed from it")
    }
}

impl Shared {
    /// Gives what is free to the first of the line, and nobody overtakes.
    fn hand_out(self: &Arc<Self>, line: &mut Line) {
        while let Some(waiter) = line.waiters.pop_front_if(|first| first.weight <= line.free) {
            line.free -= waiter.weight;
            let held = Held { weight: waiter.weight, places: Arc::clone(self) };
            if let Err(mut refused) = waiter.grant.send(held) {
                // Taken back here and not by its drop, which would wait for the lock we hold.
                line.free += std::mem::take(&mut refused.weight);
            }
        }
        let waiting = line.waiters.iter().fold(0, |sum: u32, waiter| sum.saturating_add(waiter.weight));
        self.waiting.send_if_modified(|told| std::mem::replace(told, waiting) != waiting);
    }

    /// Numbers and a queue are whole after every operation, so a panic elsewhere does not spoil them.
    fn lock(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut line = self.places.lock();
        line.waiters.retain(|waiter| waiter.number != self.number);
        self.places.hand_out(&mut line);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.weight > 0 {
            let mut line = self.places.lock();
            line.free += self.weight;
            self.places.hand_out(&mut line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_given(place: &mut Place) -> Option<Held> {
        place.granted.try_recv().ok()
    }

    #[test]
    fn places_go_down_the_line_past_those_who_left_and_nobody_overtakes() {
        let places = Places::new(2);
        let (mut first, mut second) = (places.ask(0), places.ask(0));
        let (mut large, mut small) = (places.ask(BYTES_PER_PLACE), places.ask(0));
        let (held_first, held_second) = (is_given(&mut first), is_given(&mut second));
        assert!(held_first.is_some() && held_second.is_some());
        drop(held_first);
        assert!(is_given(&mut small).is_none(), "the large one needs two and is first");
        drop(large);
        let held_small = is_given(&mut small);
        assert!(held_small.is_some(), "the large one left");

        large = places.ask(usize::MAX); // No more than there are.
        drop(held_second);
        assert!(is_given(&mut large).is_none());
        drop(held_small);
        assert!(is_given(&mut large).is_some());
        drop(large);
        let unseen = places.ask(usize::MAX);
        drop(unseen); // Given, and dropped without a look.
        assert_eq!((places.0.lock().free, *places.0.waiting.borrow()), (2, 0));
    }

    #[tokio::test]
    async fn there_is_room_while_fewer_wait_than_may_run() {
        let places = Places::new(1);
        let (_running, waiting) = (places.ask(0), places.ask(0));
        let room = tokio::spawn({
            let places = Places(Arc::clone(&places.0));
            async move { places.room().await }
        });
        tokio::task::yield_now().await;
        assert!(!room.is_finished());
        drop(waiting);
        room.await.unwrap();
    }
}
