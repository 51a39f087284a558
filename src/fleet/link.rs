//! Links: what carries frames to a server and back. One frame is one JSON-RPC message.
//!
//! A link knows bytes, not requests. Whoever opens one gets the sending side as a [`Link`] and the
//! receiving side as a channel of [`Incoming`].

pub mod memory;
pub mod stdio;

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::domain::audit::Pending;

/// Frames read ahead of whoever reads them. Little, so that a flood is soon held up at its source.
pub(crate) const FRAMES_AHEAD: usize = 32;

/// What comes from a server.
#[derive(Debug)]
pub enum Incoming {
    /// One frame.
    Frame(Bytes),
    /// A frame longer than the limit was skipped.
    TooLong,
    /// Nothing more will come, for this reason.
    Ended(String),
}

/// The sending side of a link.
pub trait Link: Send + Sync {
    /// Sends one frame. An error means that the link is gone, for this reason.
    fn send(&self, frame: Bytes) -> Pending<'_, Result<(), String>>;

    /// Ends the link and everything behind it; returns when nothing is left. May be called again.
    fn close(&self) -> Pending<'_, ()>;

    /// What is known of the server's own words to people: the end of its stderr.
    fn last_words(&self) -> Option<String> {
        None
    }
}

/// An open link.
pub struct Opened {
    /// Its sending side.
    pub link: Box<dyn Link>,
    /// Its receiving side.
    pub incoming: mpsc::Receiver<Incoming>,
}

/// How a link is opened; and opened again, if the first was spoilt by a probe.
pub trait Opener: Send + Sync {
    /// Opens it.
    fn open(&self) -> Pending<'_, Result<Opened, super::error::Cause>>;
}
