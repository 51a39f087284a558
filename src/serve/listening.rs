//! The requests of one client that stay open to hear of changes: `subscriptions/listen`.
//!
//! Owns: which are open, and what is said on each. They are no calls: they hold no place, and nothing of them is
//! on record.
//! Must not know: what has changed, or how a message reaches the client.

use std::sync::Arc;

use bytes::Bytes;

use crate::mcp::answer::Identity;
use crate::mcp::envelope::Id;
use crate::mcp::error::Error;
use crate::mcp::listen::{self, Filter};
use crate::mcp::revision::Revision;

/// Open at once on one connection. One is enough for a client; more than this is a mistake.
pub(super) const LISTENS_MAX: usize = 16;

/// The open requests, oldest first.
#[derive(Default)]
pub(super) struct Listening(Vec<Listen>);

/// One request to hear of changes.
pub(super) struct Listen {
    pub(super) id: Id,
    /// What was agreed to of what was asked.
    pub(super) filter: Filter,
    pub(super) identity: Arc<Identity>,
    pub(super) revision: &'static Revision,
}

impl Listening {
    /// Opens a request; gives the first message on it.
    pub(super) fn open(&mut self, listen: Listen) -> Result<Bytes, Error> {
        if self.0.len() >= LISTENS_MAX {
            return Err(Error::invalid_request(format!(
                "{LISTENS_MAX} requests listen already: cancel one, or ask for all changes in one"
            )));
        }
        let acknowledged = listen::acknowledged(&listen.id, listen.filter);
        self.0.push(listen);
        Ok(acknowledged)
    }

    /// Whether a request with that id is open.
    pub(super) fn has(&self, id: &Id) -> bool {
        self.0.iter().any(|listen| listen.id == *id)
    }

    /// The client no longer listens; it gets no answer. Late or mistaken news changes nothing.
    pub(super) fn cancel(&mut self, id: &Id) {
        self.0.retain(|listen| listen.id != *id);
    }

    /// A change, once for each request that asked for it.
    pub(super) fn told(&self, method: &str) -> impl Iterator<Item = Bytes> {
        self.0
            .iter()
            .filter(move |listen| listen.filter.has(method))
            .map(move |listen| listen::told(&listen.id, method))
    }

    /// Ends all that are open; gives their answers.
    pub(super) fn end(&mut self) -> impl Iterator<Item = Bytes> {
        self.0.drain(..).map(|Listen { id, identity, revision, .. }| listen::ended(&id, &identity, revision))
    }
}
