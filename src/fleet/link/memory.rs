//! A link to code in the same process: for tests, on a paused clock.

use bytes::Bytes;
use tokio::sync::{Mutex, mpsc};

use crate::domain::audit::Pending;

use super::{FRAMES_AHEAD, Incoming, Link, Opened};

/// The server's side of an in-memory link.
pub struct Peer {
    /// What the client sent.
    pub received: mpsc::Receiver<Bytes>,
    /// Where frames go back; dropping it ends the link.
    pub send: mpsc::Sender<Incoming>,
}

struct Memory(Mutex<Option<mpsc::Sender<Bytes>>>);

/// Both sides of a link.
pub fn pair() -> (Opened, Peer) {
    let (to_server, received) = mpsc::channel(FRAMES_AHEAD);
    let (send, incoming) = mpsc::channel(FRAMES_AHEAD);
    let link = Box::new(Memory(Mutex::new(Some(to_server))));
    (Opened { link, incoming }, Peer { received, send })
}

impl Link for Memory {
    fn send(&self, frame: Bytes) -> Pending<'_, Result<(), String>> {
        Box::pin(async move {
            let gone = || "the peer is gone".to_owned();
            let sender = self.0.lock().await.clone().ok_or_else(gone)?;
            sender.send(frame).await.map_err(|_| gone())
        })
    }

    fn close(&self) -> Pending<'_, ()> {
        Box::pin(async move { drop(self.0.lock().await.take()) })
    }
}
