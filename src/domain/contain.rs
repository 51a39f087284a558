//! Containment: what panics fails its own work and nothing else. For tools, and for what is done with the words of
//! strangers.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

thread_local! {
    static CONTAINED: Cell<bool> = const { Cell::new(false) };
    static NOTED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// A panic that was caught.
#[derive(Debug, PartialEq, Eq)]
pub struct Panicked {
    /// What it said.
    pub message: String,
    /// Present if a panic hook noted it with [`note_backtrace`].
    pub backtrace: Option<String>,
}

/// Runs a future to its end, or to its panic.
pub async fn contain<T>(future: impl Future<Output = T>) -> Result<T, Panicked> {
    let mut future = pin!(future);
    std::future::poll_fn(move |context| match contain_now(|| future.as_mut().poll(context)) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
        Err(panicked) => Poll::Ready(Err(panicked)),
    })
    .await
}

/// Runs something to its end, or to its panic, on this thread.
pub fn contain_now<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    // One may be inside another.
    let before = CONTAINED.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    CONTAINED.set(before);
    done.map_err(|payload| Panicked { message: panic_message(&*payload), backtrace: NOTED.take() })
}

/// Whether the panic now being reported will be caught and answered: a panic hook asks this to
/// tell a failing tool from a failing colibri.
pub fn is_contained() -> bool {
    CONTAINED.get()
}

/// Keeps a backtrace for the call that is panicking. A hook runs where the stack still stands.
pub fn note_backtrace(backtrace: String) {
    NOTED.set(Some(backtrace));
}

/// What the panic said.
pub fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without words".to_owned())
}
