//! A small MCP server for every transport of the network, in bytes: it introduces itself as it should,
//! and leaves each call to its script.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use colibri::fleet::era::Era;
use colibri::fleet::link::{self, Opener};
use colibri::fleet::web::Endpoint;

use crate::bridge::support::worker;

use super::frames::{self, Frame, TEXT};
use super::wire::{Envelope, Heard, Server, Step};

/// The longest frame in these stories.
pub(crate) const FRAME_BYTES_MAX: usize = 64 << 10;

/// Before the events of an answer.
pub(crate) const EVENTS_HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// Before the events of a stream that ends with its connection.
pub(crate) const STREAM_HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";

/// How messages travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// Streamable HTTP, answered with JSON.
    Json,
    /// Streamable HTTP, answered with events.
    Events,
    /// HTTP with server-sent events, as in 2024-11-05.
    OldEvents,
    /// A WebSocket.
    Socket,
}

/// From where a server is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// This process.
    Here,
    /// A worker process.
    Worker,
}

/// Every transport, in every family that it carries.
pub(crate) const WAYS: [(Carrier, Era); 7] = [
    (Carrier::Json, Era::Modern),
    (Carrier::Json, Era::Legacy),
    (Carrier::Events, Era::Modern),
    (Carrier::Events, Era::Legacy),
    (Carrier::OldEvents, Era::Legacy),
    (Carrier::Socket, Era::Modern),
    (Carrier::Socket, Era::Legacy),
];

/// A call, however it came.
pub(crate) struct Call {
    /// How many came before it.
    pub(crate) nth: usize,
    pub(crate) id: u64,
    /// The whole message.
    pub(crate) raw: Bytes,
}

impl Call {
    /// A good answer.
    pub(crate) fn good(&self) -> String {
        answer(self.id, r#"{"content":[]}"#)
    }
}

/// An answer with this result.
pub(crate) fn answer(id: u64, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

/// A response of HTTP, whole. `head` is its status and whatever headers, in lines.
pub(crate) fn response(head: &str, body: &str) -> Vec<u8> {
    let head = head.replace('\n', "\r\n");
    format!("HTTP/1.1 {head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// One piece of a body in pieces.
pub(crate) fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

/// The end of a body in pieces.
pub(crate) const LAST_CHUNK: &str = "0\r\n\r\n";

impl Carrier {
    /// What reaches a server that carries messages so.
    pub(crate) fn opener(self, server: &Server) -> Box<dyn Opener> {
        self.opener_from(Place::Here, server)
    }

    /// The same, from there.
    pub(crate) fn opener_from(self, place: Place, server: &Server) -> Box<dyn Opener> {
        let endpoint = Endpoint::new(&self.url(server)).expect("an address");
        match place {
            Place::Here => self.opener_of(endpoint),
            Place::Worker => worker(endpoint.with_frame_bytes_max(FRAME_BYTES_MAX), self.carries()),
        }
    }

    pub(crate) fn opener_of(self, endpoint: Endpoint) -> Box<dyn Opener> {
        self.carries().opener(endpoint.with_frame_bytes_max(FRAME_BYTES_MAX))
    }

    /// Where a server is that carries messages so.
    pub(crate) fn url(self, server: &Server) -> String {
        if self == Self::Socket { server.url().replace("http:", "ws:") } else { server.url() }
    }

    fn carries(self) -> link::Carrier {
        match self {
            Self::Json | Self::Events => link::Carrier::Http,
            Self::OldEvents => link::Carrier::Sse,
            Self::Socket => link::Carrier::WebSocket,
        }
    }

    /// Whether one link carries everything, so that what spoils it spoils all.
    pub(crate) fn is_shared(self) -> bool {
        matches!(self, Self::OldEvents | Self::Socket)
    }

    /// A message of the server's, whole: on HTTP, the whole response.
    pub(crate) fn whole(self, message: &str) -> Vec<u8> {
        let event = format!("data: {message}\n\n");
        match self {
            Self::Json => response("200 OK\ncontent-type: application/json", message),
            Self::Events => format!("{EVENTS_HEAD}{}{LAST_CHUNK}", chunk(&event)).into_bytes(),
            Self::OldEvents => event.into_bytes(),
            Self::Socket => frames::frame(TEXT, message.as_bytes()),
        }
    }

    /// A server that does with each call what the script says.
    pub(crate) async fn serve(self, calls: impl Fn(&Call) -> Vec<Step> + Send + Sync + 'static) -> Server {
        Server::start(self.script(calls)).await
    }

    /// The script of such a server.
    pub(crate) fn script(
        self,
        calls: impl Fn(&Call) -> Vec<Step> + Send + Sync + 'static,
    ) -> impl Fn(&Heard) -> Vec<Step> + Send + Sync + 'static {
        let calls = Arc::new(Calls { carrier: self, script: Box::new(calls), count: AtomicUsize::new(0) });
        move |heard| calls.heard(heard)
    }
}

type OnCall = dyn Fn(&Call) -> Vec<Step> + Send + Sync;

struct Calls {
    carrier: Carrier,
    script: Box<OnCall>,
    count: AtomicUsize,
}

impl Calls {
    fn heard(self: &Arc<Self>, heard: &Heard) -> Vec<Step> {
        match (self.carrier, heard.verb.as_str()) {
            (Carrier::Socket, _) => {
                let calls = Arc::clone(self);
                let answer = move |frame: &Frame| match frame.opcode {
                    TEXT => calls.message(&frame.payload),
                    _ => Vec::new(),
                };
                let switch = frames::switch(heard, "sec-websocket-protocol: mcp\r\n");
                vec![Step::send(switch), Step::Socket(Arc::new(answer))]
            }
            (Carrier::OldEvents, "GET") => {
                let endpoint = "event: endpoint\ndata: /mcp?session=1\n\n";
                vec![Step::send(STREAM_HEAD), Step::send(endpoint), Step::Stream]
            }
            (Carrier::OldEvents, _) => {
                let accepted = Step::Send(response("202 Accepted", ""));
                let pushed = self.message(&heard.body).into_iter().map(Step::pushed);
                std::iter::once(accepted).chain(pushed).collect()
            }
            (_, "GET") => vec![Step::Send(response("405 Method Not Allowed", ""))],
            (_, "DELETE") => vec![Step::Send(response("200 OK", ""))],
            _ => {
                let steps = self.message(&heard.body);
                let accepted = || vec![Step::Send(response("202 Accepted", ""))];
                let is_request = heard.envelope().id.is_u64();
                if is_request { steps } else { accepted() }
            }
        }
    }

    /// What is done with one message, in the carrier's own bytes.
    fn message(&self, raw: &[u8]) -> Vec<Step> {
        let Envelope { id, method } = Envelope::read(raw).expect("we send JSON");
        let Some(id) = id.as_u64() else { return Vec::new() };
        let result = match method.as_deref() {
            Some("server/discover") => r#"{"supportedVersions":["2026-07-28"],"capabilities":{}}"#,
            Some("initialize") => r#"{"protocolVersion":"2025-11-25","capabilities":{}}"#,
            Some("tools/list") => r#"{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}"#,
            Some("tools/call") => {
                let nth = self.count.fetch_add(1, Ordering::SeqCst);
                return (self.script)(&Call { nth, id, raw: Bytes::copy_from_slice(raw) });
            }
            _ => "{}",
        };
        vec![Step::Send(self.carrier.whole(&answer(id, result)))]
    }
}
