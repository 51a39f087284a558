//! A link over a WebSocket: one text frame is one message, subprotocol `mcp`.
//!
//! The handshake is an ordinary request of the one HTTP client, so TLS, proxies, headers and
//! credentials are the same as everywhere.

use std::sync::{Arc, Mutex as SyncMutex};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use reqwest::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION,
    UPGRADE,
};
use reqwest::{Response, Upgraded};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::task::coop::consume_budget;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::{CapacityError, Error};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use crate::domain::audit::Pending;
use crate::fleet::error::Cause;
use crate::fleet::inbox::Inbox;
use crate::fleet::web::{self, Endpoint};

use super::{Carrier, Link, Opener, Outgoing};

const SUBPROTOCOL: &str = "mcp";

/// After this long without a word, the server is asked for a sign of life.
const PING_AFTER: Duration = Duration::from_secs(20);

/// Signs of life that may fail to come before the connection counts as dead.
const PINGS_MISSED_MAX: u32 = 2;

/// Saying goodbye is worth this wait.
const FAREWELL: Duration = Duration::from_secs(1);

type Socket = WebSocketStream<Upgraded>;
/// Nothing once the link is closed: the socket lives as long as either half.
type Sink = Arc<Mutex<Option<SplitSink<Socket, Message>>>>;

/// A WebSocket at one address.
#[derive(Clone, Debug)]
pub struct WebSocket(pub Endpoint);

impl Opener for WebSocket {
    fn open(&self, inbox: Inbox) -> Pending<'_, Result<Arc<dyn Link>, Cause>> {
        Box::pin(async move {
            let (sink, stream) = handshake(&self.0).await?.split();
            let sink = Arc::new(Mutex::new(Some(sink)));
            let reading = tokio::spawn(read(stream, Arc::clone(&sink), inbox));
            Ok(Arc::new(SocketLink { sink, reading: SyncMutex::new(Some(reading)) }) as Arc<dyn Link>)
        })
    }

    fn transport(&self) -> &'static str {
        Carrier::WebSocket.name()
    }
}

async fn handshake(endpoint: &Endpoint) -> Result<Socket, Cause> {
    let client = web::client_http1()?;
    let mut url = endpoint.url.clone();
    let scheme = if matches!(url.scheme(), "wss" | "https") { "https" } else { "http" };
    url.set_scheme(scheme).map_err(|()| Cause::Invalid(format!("{} is no address", endpoint.shown())))?;
    let mut nonce = [0; 16];
    getrandom::fill(&mut nonce).map_err(|error| Cause::Unreachable(format!("no randomness: {error}")))?;
    let key = BASE64_STANDARD.encode(nonce);
    let request = || {
        client
            .get(url.clone())
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, "websocket")
            .header(SEC_WEBSOCKET_VERSION, "13")
            .header(SEC_WEBSOCKET_KEY, &key)
            .header(SEC_WEBSOCKET_PROTOCOL, SUBPROTOCOL)
    };
    let response = endpoint.send(request).await?;
    if response.status().as_u16() != 101 {
        return Err(endpoint.refusal(response).await);
    }
    check(&response, &key)?;
    let upgraded = response.upgrade().await.map_err(|error| endpoint.failed(&error))?;
    let limit = Some(endpoint.frame_bytes_max);
    let config = WebSocketConfig::default().max_message_size(limit).max_frame_size(limit);
    Ok(WebSocketStream::from_raw_socket(upgraded, Role::Client, Some(config)).await)
}

/// Whether the other side understood what it agreed to.
fn check(response: &Response, key: &str) -> Result<(), Cause> {
    let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
    if header(SEC_WEBSOCKET_ACCEPT) != Some(derive_accept_key(key.as_bytes()).as_str()) {
        return Err(Cause::Protocol("the WebSocket handshake was not understood".to_owned()));
    }
    match header(SEC_WEBSOCKET_PROTOCOL) {
        None | Some(SUBPROTOCOL) => Ok(()),
        Some(_) => Err(Cause::Protocol("the server chose a subprotocol other than `mcp`".to_owned())),
    }
}

struct SocketLink {
    sink: Sink,
    reading: SyncMutex<Option<JoinHandle<()>>>,
}

impl SocketLink {
    fn reading(&self) -> Option<JoinHandle<()>> {
        self.reading.lock().expect("nothing panics while it holds the task").take()
    }
}

impl Link for SocketLink {
    fn send<'a>(&'a self, outgoing: Outgoing<'a>) -> Pending<'a, Result<(), Cause>> {
        Box::pin(async move {
            let text = Utf8Bytes::try_from(outgoing.frame).expect("messages are JSON, and JSON is UTF-8");
            let mut sink = self.sink.lock().await;
            let sink = sink.as_mut().ok_or_else(|| Cause::Gone("the connection was closed".to_owned()))?;
            sink.send(Message::Text(text)).await.map_err(|error| Cause::Gone(error.to_string()))
        })
    }

    fn close(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            // Somebody may be writing to a server that does not read; then there is no farewell.
            if let Ok(mut sink) = timeout(FAREWELL, self.sink.lock()).await
                && let Some(mut sink) = sink.take()
            {
                let _ = timeout(FAREWELL, sink.send(Message::Close(None))).await;
            }
            if let Some(reading) = self.reading() {
                reading.abort();
                let _ = reading.await;
            }
        })
    }
}

impl Drop for SocketLink {
    fn drop(&mut self) {
        if let Some(reading) = self.reading() {
            reading.abort();
        }
    }
}

async fn read(mut stream: SplitStream<Socket>, sink: Sink, inbox: Inbox) {
    let mut missed = 0;
    loop {
        // One read may hold thousands of frames.
        consume_budget().await;
        let Ok(next) = timeout(PING_AFTER, stream.next()).await else {
            missed += 1;
            if missed > PINGS_MISSED_MAX {
                return inbox.ended(&Cause::Gone("the server gave no sign of life".to_owned()));
            }
            // Whoever is writing is a sign of ours; the ping can wait.
            if let Ok(mut sink) = sink.try_lock()
                && let Some(sink) = sink.as_mut()
            {
                let _ = timeout(FAREWELL, sink.send(Message::Ping(Bytes::new()))).await;
            }
            continue;
        };
        missed = 0;
        match next {
            Some(Ok(Message::Text(text))) => {
                inbox.frame(&Bytes::from(text), None);
            }
            Some(Ok(Message::Binary(bytes))) => {
                inbox.frame(&bytes, None);
            }
            Some(Ok(Message::Close(_))) | None => {
                return inbox.ended(&Cause::Gone("the server closed the connection".to_owned()));
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                if let Error::Capacity(CapacityError::MessageTooLong { .. }) = error {
                    inbox.too_long(None);
                }
                return inbox.ended(&Cause::Gone(error.to_string()));
            }
        }
    }
}
