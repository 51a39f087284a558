//! What a pool has and who waits for it; and how many more to start, decided without a clock or a task.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Refused;
use crate::fleet::terms::Bounds;

/// Connections of one pool beyond those that wait: being started for a call, lent to one, being ended. A caller
/// beyond them waits. A server that takes its time to leave cannot pile up processes.
pub(super) const BEYOND_SIZE_MAX: usize = 32;

/// Connections of one pool that are started at the same time.
pub(super) const STARTS_AT_ONCE: usize = 8;

/// What a pool has.
pub(super) struct Shelf<I, C> {
    /// Those that wait, the oldest first.
    pub(super) idle: VecDeque<I>,
    /// Callers that wait, the first first.
    pub(super) callers: VecDeque<C>,
    pub(super) counts: Counts,
    /// Starts that failed since a call last ended well, or the scout was connected anew.
    pub(super) attempts: u32,
    /// The outage under way: the last start failed.
    pub(super) trouble: Option<Trouble>,
}

/// Connections that are not on the shelf.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) starting: usize,
    pub(super) held: usize,
    pub(super) ending: usize,
}

/// Starts that fail.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    since: Instant,
    until: Instant,
    why: Arc<str>,
    /// Somebody has waited in vain: nobody else needs to.
    in_vain: bool,
    /// Nothing more is tried before something changes.
    gave_up: bool,
}

impl Trouble {
    /// When the next attempt is due.
    pub(super) fn until(&self) -> Instant {
        self.until
    }

    fn refusal(&self) -> Refused {
        if self.gave_up {
            return Refused::Lasting(Arc::clone(&self.why));
        }
        Refused::NotReady { why: Arc::clone(&self.why), age: Some(self.since.elapsed()) }
    }
}

impl<I, C> Default for Shelf<I, C> {
    fn default() -> Self {
        let (idle, callers) = (VecDeque::new(), VecDeque::new());
        Self { idle, callers, counts: Counts::default(), attempts: 0, trouble: None }
    }
}

impl<I, C> Shelf<I, C> {
    /// The oldest of those that wait, for a call.
    pub(super) fn take(&mut self) -> Option<I> {
        let instance = self.idle.pop_front()?;
        self.counts.held += 1;
        Some(instance)
    }

    /// All that wait and should not.
    pub(super) fn take_unless(&mut self, keeps: impl Fn(&I) -> bool) -> VecDeque<I> {
        let taken;
        (self.idle, taken) = self.idle.drain(..).partition(keeps);
        taken
    }

    /// How many to start now, counted as started. While the server as a whole is not well (`serves`), only for
    /// callers that wait; while starts fail, one at a time and not before its time.
    pub(super) fn begin(&mut self, bounds: &Bounds, serves: bool, now: Instant) -> usize {
        let Counts { starting, held, ending } = self.counts;
        // Those that serve several calls come back.
        let coming_back = if bounds.max_uses > 1 { held } else { 0 };
        let stock = if serves { bounds.size.saturating_sub(coming_back) } else { 0 };
        let callers = self.callers.len();
        let wanted = if bounds.max_uses > 1 { stock.max(callers) } else { stock + callers };
        let missing = wanted.saturating_sub(self.idle.len() + starting);
        let room = (bounds.size + BEYOND_SIZE_MAX)
            .saturating_sub(self.idle.len() + starting + held + ending)
            .min(STARTS_AT_ONCE.saturating_sub(starting));
        let count = match &self.trouble {
            Some(trouble) if trouble.gave_up || now < trouble.until || starting > 0 => 0,
            Some(_) => missing.min(room).min(1),
            None => missing.min(room),
        };
        self.counts.starting += count;
        count
    }

    /// A start failed. Who has given up does not begin again by what was still under way then.
    pub(super) fn has_trouble(&mut self, why: Arc<str>, now: Instant, delay: Duration) {
        let before = self.trouble.take();
        if before.as_ref().is_some_and(|trouble| trouble.gave_up) {
            self.trouble = before;
            return;
        }
        let (since, in_vain) = before.map_or((now, false), |trouble| (trouble.since, trouble.in_vain));
        self.trouble = Some(Trouble { since, until: now + delay, why, in_vain, gave_up: false });
    }

    /// Nothing more is tried, and whoever comes is told so, until [`Self::begin_anew`].
    pub(super) fn give_up(&mut self) {
        if let Some(trouble) = &mut self.trouble {
            trouble.gave_up = true;
        }
    }

    /// What failed before may go better: the past is forgotten.
    pub(super) fn begin_anew(&mut self) {
        (self.trouble, self.attempts) = (None, 0);
    }

    pub(super) fn forget_trouble(&mut self) {
        self.trouble = None;
    }

    /// What a caller is told that need not wait.
    pub(super) fn refusal(&self) -> Option<Refused> {
        self.trouble.as_ref().filter(|trouble| trouble.in_vain || trouble.gave_up).map(Trouble::refusal)
    }

    /// What a caller is told that has waited long enough.
    pub(super) fn waited_in_vain(&mut self) -> Refused {
        match &mut self.trouble {
            Some(trouble) => {
                trouble.in_vain = true;
                trouble.refusal()
            }
            None => Refused::NotReady { why: "no process of it was ready in time".into(), age: None },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(size: usize, max_uses: u32) -> Bounds {
        Bounds { size, max_age: Duration::from_mins(5), max_uses }
    }

    fn shelf(idle: usize, callers: usize, counts: Counts) -> Shelf<(), ()> {
        let (idle, callers) = (vec![(); idle].into(), vec![(); callers].into());
        Shelf { idle, callers, counts, attempts: 0, trouble: None }
    }

    fn starts(shelf: &mut Shelf<(), ()>, bounds: &Bounds, serves: bool) -> usize {
        shelf.begin(bounds, serves, Instant::now())
    }

    /// SB-4: a pool fills up to its size, and for who waits beyond it; what is on its way counts.
    #[test]
    fn it_fills_to_its_size_and_for_who_waits() {
        let none = Counts::default();
        let mut fresh = shelf(0, 0, none);
        assert_eq!([(); 2].map(|()| starts(&mut fresh, &bounds(2, 1), true)), [2, 0]);
        assert_eq!(starts(&mut shelf(2, 0, none), &bounds(2, 1), true), 0);
        assert_eq!(starts(&mut shelf(0, 3, Counts { starting: 1, ..none }), &bounds(2, 1), true), 4);
        assert_eq!(starts(&mut shelf(0, 3, none), &bounds(2, 1), false), 3, "only for callers");
        assert_eq!(starts(&mut shelf(0, 0, none), &bounds(2, 1), false), 0);
        assert_eq!(starts(&mut shelf(0, 2, none), &bounds(0, 1), true), 2, "on demand");
    }

    /// SB-4: one that comes back is not replaced; one that does not is.
    #[test]
    fn what_comes_back_is_not_replaced() {
        let held = Counts { held: 1, ..Counts::default() };
        assert_eq!(starts(&mut shelf(1, 0, held), &bounds(2, 5), true), 0);
        assert_eq!(starts(&mut shelf(0, 3, Counts::default()), &bounds(2, 5), true), 3);
        assert_eq!(starts(&mut shelf(1, 0, held), &bounds(2, 1), true), 1);
    }

    /// SB-4: whatever calls and endings pile up, there are never more than the bound.
    #[test]
    fn there_are_never_more_than_the_bound() {
        let busy = Counts { held: 20, ending: BEYOND_SIZE_MAX - 20, starting: 0 };
        assert_eq!(starts(&mut shelf(0, 100, busy), &bounds(2, 1), true), 2);
        let full = Counts { ending: BEYOND_SIZE_MAX, ..busy };
        assert_eq!(starts(&mut shelf(0, 100, full), &bounds(2, 1), true), 0);
        let none = Counts::default();
        assert_eq!(starts(&mut shelf(0, 100, none), &bounds(32, 1), true), STARTS_AT_ONCE);
    }

    /// PR-7, PR-9: while starts fail, one is tried at a time, and not before its time.
    #[tokio::test(start_paused = true)]
    async fn trouble_slows_it_down() {
        let mut shelf = shelf(0, 5, Counts::default());
        shelf.has_trouble("no".into(), Instant::now(), Duration::from_secs(2));
        assert!(shelf.refusal().is_none(), "callers wait while attempts repeat");
        assert_eq!(starts(&mut shelf, &bounds(2, 1), true), 0);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!([(); 2].map(|()| starts(&mut shelf, &bounds(2, 1), true)), [1, 0]);
        let Refused::NotReady { why, age } = shelf.waited_in_vain() else { panic!("it has a reason") };
        assert_eq!((&*why, age), ("no", Some(Duration::from_secs(2))));
        assert!(shelf.refusal().is_some(), "nobody else needs to wait");
    }

    /// PR-9: who has given up tries nothing more and says so at once, until something changes.
    #[tokio::test(start_paused = true)]
    async fn giving_up_lasts_until_a_change() {
        let mut shelf = shelf(0, 5, Counts::default());
        shelf.attempts = 3;
        shelf.has_trouble("no".into(), Instant::now(), Duration::ZERO);
        shelf.give_up();
        // Another start was under way then, and fails by chance.
        shelf.has_trouble("busy".into(), Instant::now(), Duration::ZERO);
        tokio::time::advance(Duration::from_hours(1)).await;
        assert_eq!(starts(&mut shelf, &bounds(2, 1), true), 0);
        assert!(matches!(shelf.refusal(), Some(Refused::Lasting(why)) if &*why == "no"));
        shelf.begin_anew();
        assert!(shelf.refusal().is_none() && shelf.attempts == 0);
        assert_eq!(starts(&mut shelf, &bounds(2, 1), true), 7);
    }
}
