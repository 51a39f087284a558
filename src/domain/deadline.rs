//! How long a call may still take: one deadline, counted from its arrival.
//!
//! Owns: that progress gives a call new time, that waiting for a person costs it none, and that neither
//! goes on for ever.
//! Must not know: clocks, or what the call is.

use std::time::Duration;

use super::clock::Moment;

/// The deadline of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// How long it may take without progress.
    limit: Duration,
    /// How long it may take in all.
    total: Duration,
    /// When it passes, unless there is progress; on the clock that never jumps.
    until: Duration,
    /// When it passes whatever happens.
    last: Duration,
    /// Since when the call waits for a person.
    stands_since: Option<Duration>,
}

impl Deadline {
    /// Of a call that arrived then.
    pub fn new(arrived: Moment, limit: Duration, total: Duration) -> Self {
        let last = arrived.since_boot.saturating_add(total);
        let until = arrived.since_boot.saturating_add(limit).min(last);
        Self { limit, total, until, last, stands_since: None }
    }

    /// The server has shown that it works on it.
    pub fn progressed(&mut self, now: Moment) {
        self.until = now.since_boot.saturating_add(self.limit).min(self.last).max(self.until);
    }

    /// The call waits for a person, or no longer does. Telling it twice is telling it once.
    pub fn waits_for_a_person(&mut self, waits: bool, now: Moment) {
        match (self.stands_since, waits) {
            (None, true) => self.stands_since = Some(now.since_boot),
            (Some(since), false) => {
                self.stands_since = None;
                let stood = now.since_boot.saturating_sub(since);
                self.until = self.until.saturating_add(stood).min(self.last);
            }
            _ => {}
        }
    }

    /// How long is left; nothing once it has passed.
    pub fn left(&self, now: Moment) -> Duration {
        let end = if self.stands_since.is_some() { self.last } else { self.until };
        end.saturating_sub(now.since_boot)
    }

    /// Which of the two limits it ran into, for people.
    pub fn limit(&self) -> Duration {
        if self.until >= self.last { self.total } else { self.limit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::clock::Timestamp;

    fn at(seconds: u64) -> Moment {
        Moment { wall: Timestamp(seconds * 1000), since_boot: Duration::from_secs(seconds) }
    }

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// SB-5: counted from arrival; progress resets it, up to the total; a person's time is not the call's.
    #[test]
    fn one_deadline() {
        let mut deadline = Deadline::new(at(100), secs(30), secs(100));
        assert_eq!((deadline.left(at(110)), deadline.limit()), (secs(20), secs(30)));
        deadline.progressed(at(120));
        assert_eq!(deadline.left(at(120)), secs(30));
        deadline.waits_for_a_person(true, at(125));
        deadline.waits_for_a_person(true, at(130));
        assert_eq!(deadline.left(at(140)), secs(60), "it stands, but not for ever");
        deadline.waits_for_a_person(false, at(145));
        assert_eq!(deadline.left(at(145)), secs(25));
        deadline.progressed(at(190));
        assert_eq!((deadline.left(at(190)), deadline.limit()), (secs(10), secs(100)));
        deadline.progressed(at(199));
        assert_eq!((deadline.left(at(199)), deadline.left(at(300))), (secs(1), Duration::ZERO));
    }

    /// SB-5: a total below the limit is what counts.
    #[test]
    fn the_shorter_one_counts() {
        let deadline = Deadline::new(at(0), secs(30), secs(10));
        assert_eq!((deadline.left(at(0)), deadline.limit()), (secs(10), secs(10)));
    }
}
