//! Who may run and who waits: first come, first served, within bounds. Who waits is served in the order in which it
//! arrived at colibri, in whatever order it got here; a free place is anybody's.
//!
//! Owns: the decisions of one named queue. Whoever owns the queue wakes callers as it says.
//! Must not know: clocks, tasks, what the calls do.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::clock::Moment;

/// The bounds of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// How many calls run at the same time; at least one does.
    pub concurrent: usize,
    /// How many may wait; one more is refused.
    pub max_waiting: usize,
    /// How long one may wait.
    pub max_wait: Duration,
}

/// A caller, as its owner counts callers. No two that are inside may have the same.
pub type Id = u64;

/// One queue.
#[derive(Clone, Debug)]
pub struct Queue {
    bounds: Bounds,
    /// Those inside, with the ticket of those that wait.
    inside: HashMap<Id, Option<Ticket>>,
    /// By ticket, so that the first is the one that arrived first; since when each waits.
    waiting: BTreeMap<Ticket, (Id, Moment)>,
    next_number: u64,
}

/// When its call arrived, and a number of our own for those that arrived at once.
type Ticket = (Duration, u64);

/// What a caller that arrives is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It may run at once.
    Start,
    /// It waits.
    Wait {
        /// When it has waited long enough, and leaves.
        until: Moment,
    },
    /// As many wait as may. It is not inside.
    Full,
}

impl Queue {
    /// An empty queue.
    pub fn new(bounds: Bounds) -> Self {
        Self { bounds, inside: HashMap::new(), waiting: BTreeMap::new(), next_number: 0 }
    }

    /// A caller gets here, whose call arrived then.
    pub fn arrive(&mut self, id: Id, arrived: Moment, now: Moment) -> Arrival {
        assert!(!self.inside.contains_key(&id), "a caller arrives once");
        // Nobody overtakes: a free place belongs to whoever waits.
        if self.waiting.is_empty() && self.running() < self.concurrent() {
            self.inside.insert(id, None);
            return Arrival::Start;
        }
        if self.waiting.len() >= self.bounds.max_waiting {
            return Arrival::Full;
        }
        let ticket = (arrived.since_boot, self.next_number);
        self.next_number += 1;
        self.inside.insert(id, Some(ticket));
        self.waiting.insert(ticket, (id, now));
        Arrival::Wait { until: now.after(self.bounds.max_wait) }
    }

    /// A caller leaves: it is done, or gave up, running or waiting. Leaving twice is leaving once. If that
    /// frees a place, whoever is first in line has it, and is told.
    #[must_use = "whoever is named here must be woken"]
    pub fn leave(&mut self, id: Id) -> Option<Id> {
        if let Some(ticket) = self.inside.remove(&id)? {
            self.waiting.remove(&ticket);
        }
        self.next_turn()
    }

    /// New bounds, for those inside too: more room is used at once; less room sends nobody away.
    #[must_use = "whoever is named here must be woken"]
    pub fn resize(&mut self, bounds: Bounds) -> Vec<Id> {
        self.bounds = bounds;
        std::iter::from_fn(|| self.next_turn()).collect()
    }

    /// How many run.
    pub fn running(&self) -> usize {
        self.inside.len() - self.waiting.len()
    }

    /// How many wait.
    pub fn depth(&self) -> usize {
        self.waiting.len()
    }

    /// How long the one that has waited longest has waited.
    pub fn longest_wait(&self, now: Moment) -> Duration {
        self.waiting.values().map(|(_, since)| now.since(*since)).max().unwrap_or_default()
    }

    fn next_turn(&mut self) -> Option<Id> {
        if self.running() >= self.concurrent() {
            return None;
        }
        let (_, (id, _)) = self.waiting.pop_first()?;
        self.inside.insert(id, None);
        Some(id)
    }

    /// A queue in which nothing runs would hold its callers for nothing.
    fn concurrent(&self) -> usize {
        self.bounds.concurrent.max(1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::domain::clock::Timestamp;

    fn at(millis: u64) -> Moment {
        Moment { wall: Timestamp(millis), since_boot: Duration::from_millis(millis) }
    }

    fn queue(concurrent: usize, max_waiting: usize) -> Queue {
        Queue::new(Bounds { concurrent, max_waiting, max_wait: Duration::from_millis(100) })
    }

    /// PR-10: first come, first served, within bounds, and a caller that gives up leaves at once.
    #[test]
    fn callers_come_and_go() {
        let mut queue = queue(1, 2);
        assert_eq!(queue.arrive(1, at(0), at(0)), Arrival::Start);
        assert_eq!(queue.arrive(2, at(10), at(10)), Arrival::Wait { until: at(110) });
        assert_eq!(queue.arrive(3, at(20), at(20)), Arrival::Wait { until: at(120) });
        assert_eq!(queue.arrive(4, at(20), at(20)), Arrival::Full);
        assert_eq!((queue.running(), queue.depth()), (1, 2));
        assert_eq!(queue.longest_wait(at(30)), Duration::from_millis(20));
        assert_eq!(queue.leave(2), None); // It gave up.
        assert_eq!(queue.depth(), 1);
        assert_eq!(queue.leave(1), Some(3));
        assert_eq!(queue.leave(1), None); // Once is enough: 3 keeps its place.
        assert_eq!((queue.running(), queue.depth()), (1, 0));
        assert_eq!(queue.leave(3), None);
        assert_eq!(queue.running(), 0);
    }

    /// PR-10: whoever waits is served in the order of arrival, though another got to the queue before it.
    #[test]
    fn the_order_of_arrival_counts() {
        let mut queue = queue(1, 9);
        let _ = queue.arrive(1, at(0), at(0));
        assert_eq!(queue.arrive(3, at(7), at(10)), Arrival::Wait { until: at(110) });
        assert_eq!(queue.arrive(2, at(5), at(12)), Arrival::Wait { until: at(112) });
        assert_eq!(queue.arrive(4, at(7), at(12)), Arrival::Wait { until: at(112) });
        assert_eq!(queue.longest_wait(at(20)), Duration::from_millis(10));
        let next = [1, 2, 3].map(|id| queue.leave(id));
        assert_eq!(next, [Some(2), Some(3), Some(4)]);
    }

    /// PR-10: more room wakes those who wait; less sends nobody away.
    #[test]
    fn a_queue_can_grow_and_shrink() {
        let mut queue = queue(1, 9);
        for id in 1..=4 {
            let _ = queue.arrive(id, at(0), at(0));
        }
        let bounds = |concurrent| Bounds { concurrent, max_waiting: 0, max_wait: Duration::from_millis(100) };
        assert_eq!(queue.resize(bounds(3)), [2, 3]);
        assert!(queue.resize(bounds(0)).is_empty());
        assert_eq!((queue.running(), queue.depth()), (3, 1));
        assert_eq!((queue.leave(1), queue.leave(2)), (None, None));
        assert_eq!(queue.leave(3), Some(4), "at least one runs");
        assert_eq!(queue.arrive(5, at(8), at(8)), Arrival::Full);
    }

    /// The same queue, as plain as it can be.
    #[derive(Default)]
    struct Naive {
        running: Vec<Id>,
        /// Who, and when its call arrived.
        waiting: Vec<(Id, u64)>,
    }

    impl Naive {
        fn fill(&mut self, concurrent: usize) -> Vec<Id> {
            let mut turns = Vec::new();
            while self.running.len() < concurrent && !self.waiting.is_empty() {
                let (id, _) = self.waiting.remove(0);
                self.running.push(id);
                turns.push(id);
            }
            turns
        }
    }

    proptest! {
        /// PR-10: whatever callers do, the queue does what the plain one does.
        #[test]
        fn the_queue_agrees_with_the_obvious(steps in prop::collection::vec((0..12_u64, 0..40_u64, 0..60_u64, 0..9_u8), 0..200), concurrent in 1..4_usize, max_waiting in 0..5_usize) {
            let (mut queue, mut naive) = (queue(concurrent, max_waiting), Naive::default());
            let (mut now, mut concurrent) = (0, concurrent);
            for (id, passed, ago, kind) in steps {
                now += passed;
                let inside = naive.running.contains(&id) || naive.waiting.iter().any(|(other, ..)| *other == id);
                match kind {
                    0..=4 if !inside => {
                        let arrived = now.saturating_sub(ago);
                        let expected = if naive.waiting.is_empty() && naive.running.len() < concurrent {
                            naive.running.push(id);
                            Arrival::Start
                        } else if naive.waiting.len() < max_waiting {
                            let place = naive.waiting.iter().filter(|(_, other)| *other <= arrived).count();
                            naive.waiting.insert(place, (id, arrived));
                            Arrival::Wait { until: at(now + 100) }
                        } else {
                            Arrival::Full
                        };
                        prop_assert_eq!(queue.arrive(id, at(arrived), at(now)), expected);
                    }
                    0..=7 => {
                        naive.running.retain(|other| *other != id);
                        naive.waiting.retain(|(other, ..)| *other != id);
                        let turns = naive.fill(concurrent);
                        prop_assert!(turns.len() <= 1);
                        prop_assert_eq!(queue.leave(id), turns.first().copied());
                    }
                    _ => {
                        concurrent += 1;
                        let bounds = Bounds { concurrent, max_waiting, max_wait: Duration::from_millis(100) };
                        prop_assert_eq!(queue.resize(bounds), naive.fill(concurrent));
                    }
                }
                prop_assert_eq!((queue.running(), queue.depth()), (naive.running.len(), naive.waiting.len()));
            }
        }
    }
}
