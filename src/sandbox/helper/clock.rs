//! Processor time of a tree, that of the dead included, whoever took them in.
//!
//! Who waits for a child keeps its time with their own. The time of a child whose parent ignores its end is kept
//! by nobody; so everybody's is remembered from look to look, and what has gone without being taken in is added.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::time::Duration;

use rustix::process::Pid;

use super::tree::fields;

/// The clock of one tree. It is looked at again and again.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// Everybody, as last seen.
    seen: HashMap<Pid, Seen>,
    /// What this process itself has taken in: orphans are waited for here.
    taken_in_here: Duration,
    /// What those who have gone had used, ever, as last seen …
    gone: Duration,
    /// … and what those who stayed have taken in.
    taken_in: Duration,
    /// How much more the first was than the second, at the last look.
    missing: Duration,
    /// What nobody has taken in.
    lost: Duration,
    /// For how many looks it is still remembered that some was lost.
    wary_looks: u32,
}

/// At its fastest the watch looks so often in a second: somebody who loses time may take as long to do it again.
const WARY_LOOKS: u32 = 100;

/// What a look at the clock tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Time {
    /// What the tree has used.
    pub(super) used: Duration,
    /// Whether some of it was lost of late, so that one should look more often.
    pub(super) is_being_lost: bool,
}

impl Clock {
    /// Looks at these processes, who are all of the tree but this one.
    pub(super) fn look(&mut self, members: &[Pid]) -> Time {
        let listed: HashSet<Pid> = members.iter().copied().collect();
        // Before anybody's time is read: who has gone by now was taken in by now, or never will be.
        let missing: Vec<Pid> = self.seen.keys().copied().filter(|pid| !listed.contains(pid)).collect();
        let (overlooked, gone): (Vec<Pid>, Vec<Pid>) = missing.into_iter().partition(|pid| {
            Seen::read(&pid.to_string()).is_some_and(|now| now.started == self.seen[pid].started)
        });
        let all = || members.iter().chain(&overlooked);
        let read = Seen::read("self").map_or(self.taken_in_here, |own| own.taken_in);
        let found = all().filter_map(|pid| Some((*pid, Seen::read(&pid.to_string())?)));
        self.add(&gone, read, found.collect())
    }

    /// What the dead have used, as far as it is known by now.
    pub(super) fn used_by_the_dead(&self) -> Duration {
        Seen::read("self").map_or(self.taken_in_here, |own| own.taken_in) + self.lost
    }

    /// Who has gone since the last look, what has been taken in here, and who is there. Whoever is neither gone nor
    /// there has ended in between, and will be gone at the next look.
    fn add(&mut self, gone: &[Pid], taken_in_here: Duration, found: Vec<(Pid, Seen)>) -> Time {
        self.gone += gone.iter().filter_map(|pid| self.seen.remove(pid)).map(Seen::all).sum::<Duration>();
        self.taken_in += taken_in_here.saturating_sub(self.taken_in_here);
        self.taken_in_here = taken_in_here;
        let mut used = taken_in_here;
        for (pid, now) in found {
            used += now.own + now.taken_in;
            match self.seen.insert(pid, now) {
                Some(before) if before.started == now.started => {
                    self.taken_in += now.taken_in.saturating_sub(before.taken_in);
                }
                // Another has its number.
                Some(before) => self.gone += before.all(),
                None => {}
            }
        }
        // What somebody has taken in who ended just now will be seen at the next look, where it came to: only
        // what is missing twice is lost.
        let missing = self.gone.saturating_sub(self.taken_in);
        let lost = self.lost.max(missing.min(self.missing));
        self.wary_looks = if lost > self.lost { WARY_LOOKS } else { self.wary_looks.saturating_sub(1) };
        (self.missing, self.lost) = (missing, lost);
        Time { used: used + lost, is_being_lost: self.wary_looks > 0 }
    }
}

/// A process's time, when it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    /// When it was started: with its number this is who it is.
    started: u64,
    own: Duration,
    /// That of children it waited for, and of theirs.
    taken_in: Duration,
}

impl Seen {
    fn read(process: &str) -> Option<Self> {
        let mut seen = Self::parse(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?)?;
        // Of the first thread alone, but to the nanosecond: who lives no longer than a tick has used nothing
        // by the other file, and there may be many of them.
        let exact = fs::read_to_string(format!("/proc/{process}/schedstat")).unwrap_or_default();
        let exact = exact.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or_default();
        seen.own = seen.own.max(Duration::from_nanos(exact));
        Some(seen)
    }

    /// Fields 14 to 17 and 22 of `proc(5)`.
    fn parse(stat: &str) -> Option<Self> {
        let fields = fields(stat);
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        let per_second = rustix::param::clock_ticks_per_second();
        let time = |index: usize| Some(Duration::from_millis(number(index)? * 1000 / per_second));
        Some(Self { started: number(19)?, own: time(11)? + time(12)?, taken_in: time(13)? + time(14)? })
    }

    fn all(self) -> Duration {
        self.own + self.taken_in
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INIT_ALONE: Duration = Duration::ZERO;

    fn pid(number: i32) -> Pid {
        Pid::from_raw(number).expect("it is above zero")
    }

    fn seen(number: i32, own_ms: u64, taken_in_ms: u64) -> (Pid, Seen) {
        let (own, taken_in) = (Duration::from_millis(own_ms), Duration::from_millis(taken_in_ms));
        (pid(number), Seen { started: 7, own, taken_in })
    }

    /// Who has gone, who is there with which times, and what all have used by then.
    type Look<'a> = (&'a [i32], &'a [(i32, u64, u64)], u64);

    #[track_caller]
    fn check(looks: &[Look<'_>]) {
        let mut clock = Clock::default();
        for (index, (gone, there, expected_ms)) in looks.iter().enumerate() {
            let gone: Vec<Pid> = gone.iter().map(|number| pid(*number)).collect();
            let there = there.iter().map(|(number, own, taken_in)| seen(*number, *own, *taken_in)).collect();
            let time = clock.add(&gone, INIT_ALONE, there);
            assert_eq!(time.used, Duration::from_millis(*expected_ms), "look {index}: {clock:?}");
        }
    }

    #[test]
    fn who_was_waited_for_counts_once_and_who_was_not_counts_too() {
        // Waited for, and a little more than was seen.
        check(&[
            (&[], &[(1, 10, 0), (2, 500, 0)], 510),
            (&[2], &[(1, 10, 510)], 520),
            (&[], &[(1, 10, 510)], 520),
        ]);
        // Waited for by somebody who was then waited for.
        check(&[
            (&[], &[(1, 10, 0), (2, 0, 0), (3, 500, 0)], 510),
            (&[2, 3], &[(1, 10, 500)], 510),
            (&[], &[(1, 10, 500)], 510),
        ]);
        // Waited for by nobody: known at the second look.
        check(&[
            (&[], &[(1, 10, 0), (2, 500, 0)], 510),
            (&[2], &[(1, 10, 0)], 10),
            (&[], &[(1, 10, 0)], 510),
        ]);
        // Who waited for it ended while it was looked at, and was waited for in turn.
        check(&[
            (&[], &[(1, 10, 0), (2, 0, 0), (3, 500, 0)], 510),
            (&[3], &[(1, 10, 0)], 10),
            (&[2], &[(1, 10, 500)], 510),
            (&[], &[(1, 10, 500)], 510),
        ]);
    }

    #[test]
    fn another_with_the_same_number_is_another() {
        let mut clock = Clock::default();
        clock.add(&[], INIT_ALONE, vec![seen(2, 500, 0)]);
        let (number, other) = seen(2, 20, 0);
        for expected_ms in [20, 520] {
            let time = clock.add(&[], INIT_ALONE, vec![(number, Seen { started: 8, ..other })]);
            assert_eq!(time.used, Duration::from_millis(expected_ms));
        }
        assert!(clock.wary_looks > 0, "{clock:?}");
    }

    #[test]
    fn a_name_cannot_forge_fields() {
        let stat = "7 (a) R 1 (b)) S 3 7 7 0 -1 0 0 0 0 0 100 50 25 25 20 0 1 0 99 0";
        let (own, taken_in) = (Duration::from_millis(1500), Duration::from_millis(500));
        assert_eq!(Seen::parse(stat), Some(Seen { started: 99, own, taken_in }));
    }
}
