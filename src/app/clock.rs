//! The real clock: the one place where time enters the program.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::domain::clock::{Clock, Moment, Timestamp};

/// Wall clock and monotonic clock of the operating system.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// Starts the monotonic clock at zero.
    #[expect(clippy::disallowed_methods, reason = "this is the door")]
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the door")]
    fn now(&self) -> Moment {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Moment { wall: Timestamp(since_1970.as_millis() as u64), since_boot: self.start.elapsed() }
    }
}
