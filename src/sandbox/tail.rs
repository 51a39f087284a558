//! The last words of a child.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock};

use tokio::io::AsyncReadExt;
use tokio::process::ChildStderr;

/// How much of a child's stderr is kept to explain its end.
pub const STDERR_TAIL_BYTES_MAX: usize = 8 << 10;

/// The last [`STDERR_TAIL_BYTES_MAX`] bytes of a stream, shared by who writes and who reads them.
#[derive(Clone, Default)]
pub(super) struct Tail(Arc<Mutex<VecDeque<u8>>>, Arc<OnceLock<Ear>>);

/// Somebody who hears all of it as it comes.
type Ear = Box<dyn Fn(&[u8]) + Send + Sync>;

impl std::fmt::Debug for Tail {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Tail")
    }
}

impl Tail {
    /// Reads a stream to its end and keeps the tail: a child that floods is read, never stored.
    pub(super) async fn listen(self, mut stderr: ChildStderr) {
        let mut buffer = vec![0; STDERR_TAIL_BYTES_MAX];
        while let Ok(length @ 1..) = stderr.read(&mut buffer).await {
            self.push(&buffer[..length]);
        }
    }

    pub(super) fn push(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().expect("nothing panics while it holds the tail");
        let fresh = &bytes[bytes.len().saturating_sub(STDERR_TAIL_BYTES_MAX)..];
        let over = (kept.len() + fresh.len()).saturating_sub(STDERR_TAIL_BYTES_MAX);
        kept.drain(..over);
        kept.extend(fresh);
        if let Some(ear) = self.1.get() {
            ear(bytes);
        }
    }

    /// Lets somebody hear what was kept and all that comes. The first one counts.
    pub(super) fn overhear(&self, ear: Ear) {
        let mut kept = self.0.lock().expect("nothing panics while it holds the tail");
        ear(kept.make_contiguous());
        let _ = self.1.set(ear);
    }

    pub(super) fn text(&self) -> String {
        let mut kept = self.0.lock().expect("nothing panics while it holds the tail");
        String::from_utf8_lossy(kept.make_contiguous()).into_owned()
    }
}
