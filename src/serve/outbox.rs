//! Answers on their way to a client that may not be reading.
//!
//! Putting an answer in never waits, so a call always ends; instead the connection takes no further
//! request while too many bytes are waiting. What can be in here is then bounded by the limit and by
//! the answers of the calls in flight.

use std::collections::VecDeque;
use std::io::{self, BufWriter, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::watch;

/// Small answers are gathered up to this before they are written.
const WRITE_BUFFER_BYTES: usize = 64 << 10;

/// A cheap handle.
#[derive(Clone)]
pub(super) struct Outbox(Arc<Shared>);

struct Shared {
    limit: usize,
    /// Whoever changes the state holds this lock, so that the writer misses nothing.
    frames: Mutex<VecDeque<Bytes>>,
    changed: Condvar,
    state: watch::Sender<State>,
}

/// What is known about the outbox without looking inside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// Waiting to be written, being written, or held back until the rest of a batch is done.
    pub(super) bytes: usize,
    /// Nothing will be added.
    pub(super) closed: bool,
    /// The writer is done: with everything, or because the client is gone.
    pub(super) end: Option<End>,
}

/// How the writer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    Flushed,
    Lost(Arc<str>),
}

impl Outbox {
    pub(super) fn new(limit: usize) -> Self {
        let (state, _) = watch::channel(State::default());
        Self(Arc::new(Shared { limit, frames: Mutex::default(), changed: Condvar::new(), state }))
    }

    /// Puts an answer in. Once the client is gone there is nobody to keep it for.
    pub(super) fn push(&self, frame: Bytes) {
        let mut frames = self.lock();
        if self.0.state.borrow().end.is_none() {
            self.0.state.send_modify(|state| state.bytes += frame.len());
            frames.push_back(frame);
            self.0.changed.notify_one();
        }
    }

    /// Counts an answer that is not put in yet, since the rest of its batch is not done.
    pub(super) fn hold(&self, bytes: usize) {
        let _frames = self.lock();
        self.0.state.send_modify(|state| state.bytes += bytes);
    }

    /// The same, no longer.
    pub(super) fn release(&self, bytes: usize) {
        let _frames = self.lock();
        self.0.state.send_modify(|state| state.bytes -= bytes);
    }

    /// Nothing more will be put in.
    pub(super) fn close(&self) {
        let _frames = self.lock();
        self.0.state.send_modify(|state| state.closed = true);
        self.0.changed.notify_one();
    }

    /// How much waits right now.
    pub(super) fn bytes(&self) -> usize {
        self.0.state.borrow().bytes
    }

    /// Returns when there is room for the answer to another request.
    pub(super) async fn room(&self) {
        self.until(|state| state.bytes <= self.0.limit).await;
    }

    /// Whether there is room now.
    pub(super) fn has_room(&self) -> bool {
        self.0.state.borrow().bytes <= self.0.limit
    }

    /// Returns when the client can no longer be reached.
    pub(super) async fn lost(&self) {
        self.until(|state| matches!(state.end, Some(End::Lost(_)))).await;
    }

    /// Why the client can no longer be reached, if so.
    pub(super) fn loss(&self) -> Option<Arc<str>> {
        match &self.0.state.borrow().end {
            Some(End::Lost(reason)) => Some(Arc::clone(reason)),
            Some(End::Flushed) | None => None,
        }
    }

    /// Returns when the writer has ended.
    pub(super) async fn ended(&self) {
        self.until(|state| state.end.is_some()).await;
    }

    async fn until(&self, holds: impl FnMut(&State) -> bool) -> State {
        let mut state = self.0.state.subscribe();
        let state = state.wait_for(holds).await.expect("`self` keeps the sender");
        state.clone()
    }

    /// Writes until the outbox is closed and empty. Blocks: this is a thread's whole life.
    pub(super) fn write_to(self, output: impl Write) {
        // Dropped last, so that even a panic inside `output` is noticed.
        let mut writer = Writer { outbox: self, end: End::Lost("the writer panicked".into()) };
        writer.end = match writer.outbox.drain(output) {
            Ok(()) => End::Flushed,
            Err(error) => End::Lost(error.to_string().into()),
        };
    }

    fn drain(&self, output: impl Write) -> io::Result<()> {
        let mut output = BufWriter::with_capacity(WRITE_BUFFER_BYTES, output);
        while let Some(frames) = self.wait_for_frames() {
            for frame in frames {
                write_line(&mut output, &frame)?;
                self.0.state.send_modify(|state| state.bytes -= frame.len());
            }
            output.flush()?;
        }
        Ok(())
    }

    fn wait_for_frames(&self) -> Option<VecDeque<Bytes>> {
        let idle = |frames: &mut VecDeque<Bytes>| frames.is_empty() && !self.0.state.borrow().closed;
        let waited = self.0.changed.wait_while(self.lock(), idle);
        let frames = std::mem::take(&mut *waited.unwrap_or_else(PoisonError::into_inner));
        (!frames.is_empty()).then_some(frames)
    }

    /// A queue of bytes is whole after every operation, so a panic elsewhere does not spoil it.
    fn lock(&self) -> MutexGuard<'_, VecDeque<Bytes>> {
        self.0.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Writer {
    outbox: Outbox,
    end: End,
}

impl Drop for Writer {
    fn drop(&mut self) {
        let mut frames = self.outbox.lock();
        frames.clear();
        self.outbox.0.state.send_modify(|state| state.end = Some(self.end.clone()));
    }
}

/// In JSON a raw newline can only stand between tokens, where a space means the same.
fn write_line(output: &mut impl Write, frame: &[u8]) -> io::Result<()> {
    for (index, part) in frame.split(|byte| *byte == b'\n').enumerate() {
        if index > 0 {
            output.write_all(b" ")?;
        }
        output.write_all(part)?;
    }
    output.write_all(b"\n")
}

#[cfg(test)]
impl Outbox {
    /// Plays the writer, without a thread: everything that waits, as lines.
    pub(super) fn take_now(&self) -> Vec<String> {
        let frames = std::mem::take(&mut *self.lock());
        let taken: usize = frames.iter().map(Bytes::len).sum();
        self.0.state.send_modify(|state| state.bytes -= taken);
        frames.iter().map(|frame| String::from_utf8_lossy(frame).into_owned()).collect()
    }

    /// Plays the writer until the outbox is closed.
    pub(super) async fn take_all(&self) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let state = self.until(|state| state.closed || state.bytes > 0).await;
            lines.extend(self.take_now());
            if state.closed {
                drop(Writer { outbox: self.clone(), end: End::Flushed });
                return lines;
            }
        }
    }

    /// Plays a client that went away.
    pub(super) fn lose(&self, reason: &str) {
        drop(Writer { outbox: self.clone(), end: End::Lost(reason.into()) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_one_line_whatever_it_contains() {
        let outbox = Outbox::new(100);
        outbox.push(Bytes::from_static(b"{\n\"a\":\r\n1}"));
        outbox.push(Bytes::from_static(b"2"));
        outbox.close();
        let mut written = Vec::new();
        outbox.clone().write_to(&mut written);
        assert_eq!(String::from_utf8(written).unwrap(), "{ \"a\":\r 1}\n2\n");
        assert_eq!(*outbox.0.state.borrow(), State { bytes: 0, closed: true, end: Some(End::Flushed) });
    }

    struct Fails(fn() -> io::Result<usize>);

    impl Write for Fails {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            (self.0)()
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_client_that_is_gone_is_noticed_and_nothing_is_kept_for_it() {
        for (write, reason) in [
            ((|| Err(io::ErrorKind::BrokenPipe.into())) as fn() -> _, "broken pipe"),
            (|| panic!("a bad writer"), "the writer panicked"),
        ] {
            let outbox = Outbox::new(100);
            outbox.push(Bytes::from_static(b"1"));
            let writer = outbox.clone();
            let _ = std::thread::spawn(move || writer.write_to(Fails(write))).join();
            outbox.lost().await;
            assert_eq!(outbox.loss().as_deref(), Some(reason));
            outbox.push(Bytes::from_static(b"2"));
            assert!(outbox.lock().is_empty());
        }
    }
}
