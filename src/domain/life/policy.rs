//! When a lost server is started again, as data.
//!
//! Owns: delays, their lengthening, how many attempts there are and what forgives them.
//! Must not know: why a server was lost, or who waits for it.

use std::time::Duration;

/// No delay is longer, whatever it grows to: what a signed 32-bit timer of milliseconds holds.
const DELAY_MAX: Duration = Duration::from_millis(i32::MAX as u64);

/// The rules by which one server lives.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    /// When a lost server is started again.
    pub restart: Restart,
    /// How often a ready server is probed; `None` for never.
    pub probe_interval: Option<Duration>,
}

/// When a lost server is started again.
#[derive(Clone, Debug, PartialEq)]
pub struct Restart {
    /// How long to wait before each attempt.
    pub delays: Delays,
    /// How many attempts there are before giving up; `None` for no end.
    pub max_attempts: Option<u32>,
    /// By how much a delay may be lengthened, as a fraction of it: servers that fell together must
    /// not come back together. It only lengthens, so that no delay is shorter than it was written.
    pub jitter: f64,
    /// How long a server must have been ready for its attempts to be forgotten.
    pub stable: Duration,
}

/// How long to wait before each attempt. The first connect of a start is none: it waits for nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum Delays {
    /// One by one; the last repeats. None at all is no delay.
    Table(Vec<Duration>),
    /// Each longer than the one before.
    Exponential {
        /// The first.
        initial: Duration,
        /// What each is multiplied by to give the next.
        factor: f64,
        /// The longest.
        max: Duration,
    },
}

impl Restart {
    /// After 0, 1, 2, 5, 10, 30, 60 s and every 60 s from then on, for ever.
    pub fn preset_default() -> Self {
        let delays = Delays::Table([0, 1, 2, 5, 10, 30, 60].map(Duration::from_secs).to_vec());
        Self { delays, max_attempts: None, jitter: 0.2, stable: Duration::from_mins(1) }
    }

    /// After 1 s, doubling up to 30 s, ten times.
    pub fn preset_bounded() -> Self {
        let (initial, max) = (Duration::from_secs(1), Duration::from_secs(30));
        let delays = Delays::Exponential { initial, factor: 2.0, max };
        Self { delays, max_attempts: Some(10), ..Self::preset_default() }
    }

    /// Whether there is an attempt of that number; they are counted from 1.
    pub fn allows(&self, attempt: u32) -> bool {
        self.max_attempts.is_none_or(|most| attempt <= most)
    }

    /// How long to wait before that attempt; they are counted from 1. `dice` is in [0, 1).
    pub fn delay(&self, attempt: u32, dice: f64) -> Duration {
        assert!(0 < attempt, "the first connect of a start is not a restart");
        let plain = self.delays.before(attempt);
        let longer = plain.as_secs_f64() * self.jitter.max(0.0) * dice.clamp(0.0, 1.0);
        // What is no number (nothing that was read from a file is) lengthens nothing.
        let longer = Duration::try_from_secs_f64(longer).unwrap_or_default();
        plain.saturating_add(longer).min(DELAY_MAX)
    }
}

impl Default for Restart {
    fn default() -> Self {
        Self::preset_default()
    }
}

impl Delays {
    fn before(&self, attempt: u32) -> Duration {
        match self {
            Self::Table(delays) => {
                let last = delays.len().saturating_sub(1);
                delays.get(last.min(attempt as usize - 1)).copied().unwrap_or_default()
            }
            Self::Exponential { initial, factor, max } => {
                let times = i32::try_from(attempt - 1).unwrap_or(i32::MAX);
                let grown = initial.as_secs_f64() * factor.powi(times);
                // Growing out of every number is growing past the longest; nothing stays nothing.
                let grown = Duration::try_from_secs_f64(grown).unwrap_or(*max);
                if initial.is_zero() { Duration::ZERO } else { grown.min(*max) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn millis(restart: &Restart, attempts: &[u32], dice: f64) -> Vec<u128> {
        attempts.iter().map(|attempt| restart.delay(*attempt, dice).as_millis()).collect()
    }

    const FIRST: [u32; 9] = [1, 2, 3, 4, 5, 6, 7, 8, 9];

    /// PR-9: the delays of `default`, for ever.
    #[test]
    fn the_default_waits_up_to_a_minute_and_never_gives_up() {
        let restart = Restart::preset_default();
        let expected = [0, 1000, 2000, 5000, 10_000, 30_000, 60_000, 60_000, 60_000];
        assert_eq!(millis(&restart, &FIRST, 0.0), expected);
        assert_eq!(millis(&restart, &[1000, u32::MAX], 0.0), [60_000, 60_000]);
        assert!(restart.allows(u32::MAX));
        assert_eq!((restart.jitter.to_bits(), restart.stable.as_millis()), (0.2_f64.to_bits(), 60_000));
    }

    /// SB-8: the delays of `bounded`, ten times.
    #[test]
    fn the_bounded_one_doubles_and_gives_up() {
        let restart = Restart::preset_bounded();
        let expected = [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000, 30_000];
        assert_eq!(millis(&restart, &FIRST, 0.0), expected);
        assert_eq!(millis(&restart, &[10, 5000, u32::MAX], 0.0), [30_000; 3]);
        assert!(restart.allows(10) && !restart.allows(11));
    }

    /// PR-9: jitter lengthens by its fraction at most.
    #[test]
    fn jitter_only_lengthens() {
        let restart = Restart::preset_default();
        assert_eq!(millis(&restart, &[1, 2, 4, 7], 0.5), [0, 1100, 5500, 66_000]);
        assert_eq!(millis(&Restart { jitter: 0.0, ..restart }, &[2, 7], 0.99), [1000, 60_000]);
    }

    #[test]
    fn odd_tables_have_delays_too() {
        let with = |delays| Restart { delays, jitter: 0.0, ..Restart::default() };
        let seconds =
            |all: &[u64]| with(Delays::Table(all.iter().copied().map(Duration::from_secs).collect()));
        assert_eq!(millis(&seconds(&[]), &[1, 2], 0.0), [0, 0]);
        assert_eq!(millis(&seconds(&[3]), &[1, 2], 0.0), [3000, 3000]);
        let grows = |initial, factor, max| {
            with(Delays::Exponential {
                initial: Duration::from_millis(initial),
                factor,
                max: Duration::from_millis(max),
            })
        };
        assert_eq!(millis(&grows(250, 1.5, 1000), &[1, 2, 3, 4, 5], 0.0), [250, 375, 562, 843, 1000]);
        assert_eq!(millis(&grows(0, 10.0, 1000), &[1, 2, u32::MAX], 0.0), [0, 0, 0]);
        assert_eq!(millis(&grows(5000, 2.0, 1000), &[1], 0.0), [1000], "never longer than the longest");
    }

    proptest! {
        /// PR-9: whatever was configured, a delay is between the plain one and its lengthening, and
        /// growing delays never shrink.
        #[test]
        fn delays_are_bounded(initial in 0..4_000_000_000_u64, factor in 1.0..10.0_f64, max in 0..4_000_000_000_u64, jitter in 0.0..1.0_f64, dice in 0.0..1.0_f64, attempt in 1..u32::MAX) {
            let (initial, max) = (Duration::from_millis(initial), Duration::from_millis(max));
            let restart = Restart { delays: Delays::Exponential { initial, factor, max }, max_attempts: None, jitter, stable: max };
            let (plain, longer) = (restart.delay(attempt, 0.0), restart.delay(attempt, dice));
            prop_assert!(plain <= max && plain <= longer && longer <= DELAY_MAX);
            prop_assert!(longer <= plain.mul_f64(1.0 + jitter) + Duration::from_micros(1));
            prop_assert!(plain <= restart.delay(attempt.saturating_add(1), 0.0));
        }
    }
}
