//! Whether a server is used: counted where it is cheap, looked at when it may matter.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// The clients that are connected, as the servers that start with colibri count them.
#[derive(Debug)]
pub(in crate::fleet) struct Clients {
    count: AtomicUsize,
    /// When the last one left, in milliseconds after `begun`.
    left: AtomicU64,
    begun: Instant,
}

impl Default for Clients {
    fn default() -> Self {
        Self { count: AtomicUsize::new(0), left: AtomicU64::new(0), begun: Instant::now() }
    }
}

impl Clients {
    pub(in crate::fleet) fn come(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    pub(in crate::fleet) fn leave(&self) {
        self.left.store(millis(self.begun), Ordering::Relaxed);
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// How long nobody has been there.
    fn gone_for(&self) -> Duration {
        if self.count.load(Ordering::Relaxed) > 0 {
            return Duration::ZERO;
        }
        let left = Duration::from_millis(self.left.load(Ordering::Relaxed));
        self.begun.elapsed().saturating_sub(left)
    }
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// The references to one server.
#[derive(Debug)]
pub(in crate::fleet) struct Usage {
    /// Clients that are connected, if they hold it all the time.
    clients: Option<Arc<Clients>>,
    /// Calls on their way.
    calls: AtomicUsize,
    /// When the last call ended, in milliseconds after `begun`.
    last_used: AtomicU64,
    begun: Instant,
}

impl Usage {
    pub(in crate::fleet) fn new(clients: Option<Arc<Clients>>) -> Self {
        Self { clients, calls: AtomicUsize::new(0), last_used: AtomicU64::new(0), begun: Instant::now() }
    }

    /// A call's reference, until it is dropped.
    pub(in crate::fleet) fn hold(self: &Arc<Self>) -> Hold {
        self.calls.fetch_add(1, Ordering::Relaxed);
        Hold(Arc::clone(self))
    }

    /// How many calls are on their way.
    pub(in crate::fleet) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    /// How long nobody has had a reference to it.
    pub(in crate::fleet) fn unused_for(&self) -> Duration {
        if self.calls() > 0 {
            return Duration::ZERO;
        }
        let last_used = Duration::from_millis(self.last_used.load(Ordering::Relaxed));
        let unused = self.begun.elapsed().saturating_sub(last_used);
        self.clients.as_ref().map_or(unused, |clients| unused.min(clients.gone_for()))
    }

    /// It is used now.
    pub(in crate::fleet) fn touch(&self) {
        self.last_used.store(millis(self.begun), Ordering::Relaxed);
    }
}

/// One reference of a call.
pub(in crate::fleet) struct Hold(Arc<Usage>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.touch();
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
    }
}
