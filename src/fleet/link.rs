//! Links: what carries frames to a server and back. One frame is one JSON-RPC message.
//!
//! A link knows bytes, not what they ask for. Whoever opens one gets the sending side as a [`Link`];
//! what comes back goes into the [`Inbox`] that the link was opened with.

pub mod http;
pub mod memory;
pub mod sse;
pub mod stdio;
pub mod websocket;
pub mod worker;

use std::sync::Arc;

use bytes::Bytes;

use crate::domain::audit::Pending;
use crate::domain::end::End;
use crate::mcp::revision::{Family, Revision, modern};

use super::error::Cause;
use super::inbox::Inbox;
use super::web::Endpoint;

use http::Http;
use sse::Sse;
use websocket::WebSocket;

/// A message on its way to a server.
#[derive(Debug)]
pub struct Outgoing<'a> {
    /// The message.
    pub frame: Bytes,
    /// What a link that has headers repeats there.
    pub about: About<'a>,
}

/// What a message is.
#[derive(Clone, Copy, Debug)]
pub enum About<'a> {
    /// Wants an answer.
    Request {
        /// Our id.
        id: u64,
        /// What is asked.
        method: &'a str,
        /// Of which tool, prompt or resource.
        name: Option<&'a str>,
        /// Arguments that the server wants to see in headers: the header, and its encoded value.
        mirrored: &'a [(String, String)],
    },
    /// Wants none.
    Notification {
        /// What is told.
        method: &'a str,
    },
    /// Our answer to a request of the server's.
    Answer,
}

/// The sending side of a link.
pub trait Link: Send + Sync {
    /// Sends one message. Where each request has an exchange of its own, this is the exchange: it
    /// returns when the answer is in the inbox, and giving it up ends the exchange.
    fn send<'a>(&'a self, outgoing: Outgoing<'a>) -> Pending<'a, Result<(), Cause>>;

    /// Whether giving up a `send` already tells the server, so that no message has to.
    fn takes_back_by_leaving(&self) -> bool {
        false
    }

    /// The two sides have agreed on a revision.
    fn introduced(&self, revision: &'static Revision) {
        let _ = revision;
    }

    /// The introduction is over: from now on the server may speak without being asked.
    fn listen(&self) -> Pending<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Ends the link and everything behind it; returns when nothing is left. May be called again.
    fn close(&self) -> Pending<'_, ()>;

    /// What is known of the server's own words to people: the end of its stderr.
    fn last_words(&self) -> Option<String> {
        None
    }

    /// How the process behind it ended, if there is one and it has.
    fn end(&self) -> Option<End> {
        None
    }

    /// The names of the layers of its sandbox that the process behind it was allowed to run without, and
    /// does.
    fn degraded(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// The process behind it, if it is one that colibri started.
    fn pid(&self) -> Option<u32> {
        None
    }
}

/// How a link is opened; and opened again, if the first was spoilt by a probe.
pub trait Opener: Send + Sync {
    /// Opens it.
    fn open(&self, inbox: Inbox) -> Pending<'_, Result<Arc<dyn Link>, Cause>>;

    /// Returns when nothing is left of any link that was opened and given up, half open or open.
    fn settled(&self) -> Pending<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// An older way to reach the same server, for when it does not know this one.
    fn older(&self) -> Option<Box<dyn Opener>> {
        None
    }

    /// The name of the transport, for people.
    fn transport(&self) -> &'static str;
}

/// What carries messages over a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Carrier {
    /// Streamable HTTP.
    Http,
    /// HTTP with server-sent events.
    Sse,
    /// A WebSocket.
    WebSocket,
}

impl Carrier {
    /// The one that an address asks for.
    pub fn of(endpoint: &Endpoint) -> Self {
        if endpoint.is_websocket() { Self::WebSocket } else { Self::Http }
    }

    /// An older one that the same server may know.
    pub(super) fn older(self) -> Option<Self> {
        (self == Self::Http).then_some(Self::Sse)
    }

    /// Its name, for people.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Sse => "sse",
            Self::WebSocket => "websocket",
        }
    }

    /// Opens such links, to there.
    pub fn opener(self, endpoint: Endpoint) -> Box<dyn Opener> {
        match self {
            Self::Http => Box::new(Http(endpoint)),
            Self::Sse => Box::new(Sse(endpoint)),
            Self::WebSocket => Box::new(WebSocket(endpoint)),
        }
    }

    /// Whether giving up a `send` already tells the server, once that revision is agreed on.
    pub(super) fn takes_back_by_leaving(self, revision: Option<&Revision>) -> bool {
        // Before the introduction, what is asked first is asked the newer way.
        self == Self::Http && revision.unwrap_or(modern()).family == Family::Modern
    }
}

/// The link that an address asks for.
pub fn for_address(url: &str) -> Result<Box<dyn Opener>, Cause> {
    Endpoint::new(url).map(for_endpoint)
}

/// The same, with headers and credentials: Streamable HTTP, or a WebSocket.
pub fn for_endpoint(endpoint: Endpoint) -> Box<dyn Opener> {
    Carrier::of(&endpoint).opener(endpoint)
}
