//! A link over HTTP with server-sent events, as in 2024-11-05: one stream comes, each message goes by
//! a POST to the address that the stream names first.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Response, Url};
use tokio::task::JoinHandle;
use tokio::task::coop::consume_budget;

use crate::domain::audit::Pending;
use crate::fleet::error::Cause;
use crate::fleet::inbox::Inbox;
use crate::fleet::web::{self, Endpoint};
use crate::mcp::sse::{Event, Events, Next};

use super::{Carrier, Link, Opener, Outgoing};

const EVENT_STREAM: &str = "text/event-stream";

/// HTTP with server-sent events at one address.
#[derive(Clone, Debug)]
pub struct Sse(pub Endpoint);

impl Opener for Sse {
    fn open(&self, inbox: Inbox) -> Pending<'_, Result<Arc<dyn Link>, Cause>> {
        let endpoint = self.0.clone();
        Box::pin(async move {
            let client = web::client()?;
            let request = || client.get(endpoint.url.clone()).header(ACCEPT, EVENT_STREAM);
            let mut response = endpoint.send(request).await?;
            if !response.status().is_success() {
                return Err(endpoint.refusal(response).await);
            }
            if web::media_type(&response) != EVENT_STREAM {
                return Err(Cause::Protocol("there is no stream of events at this address".to_owned()));
            }
            let mut stream = Stream { events: Events::new(endpoint.frame_bytes_max), endpoint };
            let target = stream.target(&mut response).await?;
            let endpoint = stream.endpoint.clone();
            let reading = Mutex::new(Some(tokio::spawn(read(stream, response, inbox))));
            Ok(Arc::new(SseLink { endpoint, client, target, reading }) as Arc<dyn Link>)
        })
    }

    fn transport(&self) -> &'static str {
        Carrier::Sse.name()
    }
}

struct SseLink {
    endpoint: Endpoint,
    client: &'static reqwest::Client,
    /// Where messages go.
    target: Url,
    reading: Mutex<Option<JoinHandle<()>>>,
}

impl Link for SseLink {
    fn send<'a>(&'a self, outgoing: Outgoing<'a>) -> Pending<'a, Result<(), Cause>> {
        Box::pin(async move {
            let frame: Bytes = outgoing.frame;
            let post = || {
                let request = self.client.post(self.target.clone());
                request.header(CONTENT_TYPE, "application/json").body(frame.clone())
            };
            let response = self.endpoint.send(post).await?;
            if !response.status().is_success() {
                return Err(self.endpoint.refusal(response).await);
            }
            web::leave(response);
            Ok(())
        })
    }

    fn close(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            let reading = self.reading.lock().expect("nothing panics while it holds the task").take();
            if let Some(reading) = reading {
                reading.abort();
                let _ = reading.await;
            }
        })
    }
}

impl Drop for SseLink {
    fn drop(&mut self) {
        if let Some(reading) = self.reading.lock().expect("nothing panics while it holds the task").take() {
            reading.abort();
        }
    }
}

/// What comes from the server, event by event.
struct Stream {
    endpoint: Endpoint,
    events: Events,
}

impl Stream {
    async fn next(&mut self, response: &mut Response) -> Result<Next, Cause> {
        loop {
            if let Some(next) = self.events.next_event() {
                return Ok(next);
            }
            match response.chunk().await {
                Ok(Some(chunk)) => self.events.feed(chunk),
                Ok(None) => return Err(Cause::Gone("the server ended its stream".to_owned())),
                Err(error) => return Err(Cause::Gone(self.endpoint.failed(&error).to_string())),
            }
        }
    }

    /// The first event names where messages go: somewhere on the same host, or we do not go there.
    async fn target(&mut self, response: &mut Response) -> Result<Url, Cause> {
        let protocol = |what: String| Cause::Protocol(format!("the stream's first event {what}"));
        match self.next(response).await? {
            Next::Event(Event { name: Some(name), data, .. }) if name == "endpoint" => {
                let target = String::from_utf8_lossy(&data).into_owned();
                let target = self.endpoint.url.join(&target).map_err(|error| protocol(error.to_string()))?;
                if target.origin() != self.endpoint.url.origin() {
                    return Err(protocol(format!(
                        "sends us to another host: {}",
                        web::shown(target.as_str())
                    )));
                }
                Ok(target)
            }
            _ => Err(protocol("is not `endpoint`".to_owned())),
        }
    }
}

async fn read(mut stream: Stream, mut response: Response, inbox: Inbox) {
    loop {
        // One read may hold thousands of events.
        consume_budget().await;
        match stream.next(&mut response).await {
            Ok(Next::Event(event)) if !event.data.is_empty() => {
                inbox.frame(&event.data, None);
            }
            Ok(Next::Event(_)) => {}
            Ok(Next::TooLong) => inbox.too_long(None),
            Err(cause) => return inbox.ended(&cause),
        }
    }
}
