//! What a server was asked and what came of it, in numbers.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

/// The counters of one server. There are as many as servers, and no more.
#[derive(Debug, Default)]
pub(super) struct Tally {
    calls: AtomicU64,
    failed: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
}

/// What the counters say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tallied {
    /// Requests that were sent on their way.
    pub calls: u64,
    /// Those that colibri failed.
    pub failed: u64,
    /// Bytes of arguments.
    pub bytes_in: u64,
    /// Bytes of results.
    pub bytes_out: u64,
}

impl Tally {
    pub(super) fn count(&self, bytes_in: usize, result: Option<usize>) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.bytes_in.fetch_add(bytes_in as u64, Ordering::Relaxed);
        match result {
            Some(bytes) => self.bytes_out.fetch_add(bytes as u64, Ordering::Relaxed),
            None => self.failed.fetch_add(1, Ordering::Relaxed),
        };
    }

    pub(super) fn read(&self) -> Tallied {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Tallied {
            calls: read(&self.calls),
            failed: read(&self.failed),
            bytes_in: read(&self.bytes_in),
            bytes_out: read(&self.bytes_out),
        }
    }
}
