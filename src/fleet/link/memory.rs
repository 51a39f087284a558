//! A link to code in the same process: for tests, on a paused clock.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{Mutex, mpsc};

use crate::domain::audit::Pending;
use crate::fleet::error::Cause;
use crate::fleet::inbox::Inbox;

use super::{Link, Outgoing};

/// Frames on their way, in each direction.
const FRAMES_AHEAD: usize = 32;

/// The server's side of an in-memory link.
pub struct Peer {
    /// What the client sent.
    pub received: mpsc::Receiver<Bytes>,
    /// Where frames go back; dropping it ends the link.
    pub send: mpsc::Sender<Bytes>,
}

struct Memory(Mutex<Option<mpsc::Sender<Bytes>>>);

/// Both sides of a link.
pub fn pair(inbox: Inbox) -> (Arc<dyn Link>, Peer) {
    let (to_server, received) = mpsc::channel(FRAMES_AHEAD);
    let (send, mut incoming) = mpsc::channel::<Bytes>(FRAMES_AHEAD);
    tokio::spawn(async move {
        while let Some(frame) = incoming.recv().await {
            inbox.frame(&frame, None);
        }
        inbox.ended(&Cause::Gone("the link closed".to_owned()));
    });
    (Arc::new(Memory(Mutex::new(Some(to_server)))), Peer { received, send })
}

impl Link for Memory {
    fn send<'a>(&'a self, outgoing: Outgoing<'a>) -> Pending<'a, Result<(), Cause>> {
        Box::pin(async move {
            let gone = || Cause::Gone("the peer is gone".to_owned());
            let sender = self.0.lock().await.clone().ok_or_else(gone)?;
            sender.send(outgoing.frame).await.map_err(|_| gone())
        })
    }

    fn close(&self) -> Pending<'_, ()> {
        Box::pin(async move { drop(self.0.lock().await.take()) })
    }
}
