//! Time as a value: a wall-clock instant for people, a monotonic one for durations.

use std::fmt;
use std::time::Duration;

/// One reading of both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// For people and records. It may jump; no duration is computed from it.
    pub wall: Timestamp,
    /// Since the process started. It never goes back.
    pub since_boot: Duration,
}

impl Moment {
    /// Both clocks, this much later.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        Self {
            wall: Timestamp(self.wall.0.saturating_add(millis)),
            since_boot: self.since_boot.saturating_add(span),
        }
    }

    /// How long ago `earlier` was, by the clock that never jumps; nothing if it is still to come.
    pub fn since(self, earlier: Self) -> Duration {
        self.since_boot.saturating_sub(earlier.since_boot)
    }
}

/// The port through which time enters. `app` implements it; tests hand in their own.
pub trait Clock: Send + Sync + 'static {
    /// Both clocks, read together.
    fn now(&self) -> Moment;
}

/// Milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC with milliseconds: `2026-11-15T20:55:00.123Z`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, millis) = (self.0 / 1000, self.0 % 1000);
        let (days, of_day) = (seconds / 86_400, seconds % 86_400);
        let (year, month, day) = civil(days);
        let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
        write!(out, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
    }
}

/// The proleptic Gregorian date of a day number, counted from 1970-01-01. Years are taken from
/// March, so that the leap day is the last day of its year and needs no special case.
fn civil(days_since_1970: u64) -> (u64, u64, u64) {
    let days = days_since_1970 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_measured_by_the_clock_that_never_jumps() {
        let early = Moment { wall: Timestamp(9_000), since_boot: Duration::from_millis(10) };
        let late = Moment { wall: Timestamp(5_000), since_boot: Duration::from_millis(30) }; // Set back.
        assert_eq!(late.since(early), Duration::from_millis(20));
        assert_eq!(early.since(late), Duration::ZERO);
        let end = Moment { wall: Timestamp(u64::MAX), since_boot: Duration::MAX };
        assert_eq!(early.after(Duration::MAX), end);
    }

    #[test]
    fn timestamps_read_as_rfc_3339() {
        let check = |millis: u64, text: &str| assert_eq!(Timestamp(millis).to_string(), text);
        check(0, "1970-01-01T00:00:00.000Z");
        check(951_782_399_999, "2000-02-28T23:59:59.999Z");
        check(951_782_400_000, "2000-02-29T00:00:00.000Z");
        check(1_709_164_800_000, "2024-02-29T00:00:00.000Z");
        check(1_794_776_101_123, "2026-11-15T20:55:01.123Z");
        check(4_102_444_799_000, "2099-12-31T23:59:59.000Z");
        check(4_107_542_400_000, "2100-03-01T00:00:00.000Z");
    }
}
