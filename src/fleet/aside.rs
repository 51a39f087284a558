//! Work on what strangers wrote, where it holds up nobody: a thread of its own, with a deep stack.
//!
//! Owns: where that is done, and that a panic there is an answer like any other. A schema is compiled by recursion that
//! its author decides, and a stack that is too small ends the whole of colibri: there is no catching that.
//! Must not know: what is worked on.

use std::thread;

use crate::domain::contain::{Panicked, contain_now};

/// Taken from the machine only as far as it is used.
const STACK_BYTES: usize = 64 << 20;

/// Does it aside. Who stops waiting leaves it to end by itself.
pub async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Panicked> {
    let not_done = |message: String| Panicked { message, backtrace: None };
    // By way of the runtime, which then knows that somebody is at work: a paused clock stands still meanwhile.
    let done = tokio::task::spawn_blocking(move || {
        let thread = thread::Builder::new().name("aside".to_owned()).stack_size(STACK_BYTES);
        let thread = thread.spawn(move || contain_now(work)).map_err(|error| not_done(error.to_string()))?;
        thread.join().unwrap_or_else(|_| Err(not_done("it ended without a word".to_owned())))
    });
    done.await.unwrap_or_else(|error| Err(not_done(error.to_string())))
}
