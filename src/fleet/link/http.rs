//! A link over Streamable HTTP, both families: each message is a POST, each request has its own answer.
//!
//! Owns: headers, the session of the older family and its stream of unasked messages, and taking up a
//! broken stream where it broke. Must not know: what is asked.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Method, RequestBuilder, Response};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::task::coop::consume_budget;
use tokio::time::{sleep, timeout};

use crate::domain::audit::Pending;
use crate::fleet::error::Cause;
use crate::fleet::inbox::Inbox;
use crate::fleet::web::{self, ERROR_BODY_BYTES_MAX, Endpoint};
use crate::mcp::headers;
use crate::mcp::revision::{Family, Revision, modern};
use crate::mcp::sse::{Events, Next};

use super::{About, Carrier, Link, Opener, Outgoing};

const EVENT_STREAM: &str = "text/event-stream";

/// A stream that broke is taken up again after this, unless the server says otherwise.
const RETRY: Duration = Duration::from_secs(1);

/// … and never sooner or later than these, whatever the server says.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// A server that offers a stream of unasked messages says so within this.
const LISTEN_WAIT: Duration = Duration::from_millis(500);

/// Telling the server that a session is over is worth this wait.
const FAREWELL: Duration = Duration::from_secs(1);

/// Streamable HTTP at one address.
#[derive(Clone, Debug)]
pub struct Http(pub Endpoint);

impl Opener for Http {
    fn open(&self, inbox: Inbox) -> Pending<'_, Result<Arc<dyn Link>, Cause>> {
        let endpoint = self.0.clone();
        Box::pin(async move {
            let client = web::client()?;
            let face = Arc::new(Face { endpoint, client, inbox, agreed: Mutex::default() });
            Ok(Arc::new(HttpLink { face, listening: Mutex::new(None) }) as Arc<dyn Link>)
        })
    }

    fn older(&self) -> Option<Box<dyn Opener>> {
        Carrier::Http.older().map(|carrier| carrier.opener(self.0.clone()))
    }

    fn transport(&self) -> &'static str {
        Carrier::Http.name()
    }
}

struct HttpLink {
    face: Arc<Face>,
    /// The stream of unasked messages.
    listening: Mutex<Option<JoinHandle<()>>>,
}

/// What exchanges and the listening task share.
struct Face {
    endpoint: Endpoint,
    client: &'static reqwest::Client,
    inbox: Inbox,
    agreed: Mutex<Agreed>,
}

#[derive(Clone, Default)]
struct Agreed {
    /// Nothing before the introduction.
    revision: Option<&'static Revision>,
    session: Option<HeaderValue>,
}

/// Where a stream stands.
#[derive(Default)]
struct Place {
    event_id: Option<HeaderValue>,
    retry: Option<Duration>,
}

impl Link for HttpLink {
    fn send<'a>(&'a self, outgoing: Outgoing<'a>) -> Pending<'a, Result<(), Cause>> {
        Box::pin(async move {
            let Outgoing { frame, about } = outgoing;
            match about {
                About::Request { id, method, name, mirrored } => {
                    self.face.exchange(id, method, name, mirrored, frame).await
                }
                About::Notification { method } => self.face.post_and_forget(method, frame).await,
                // The newer family has no requests of the server's that could be answered.
                About::Answer if self.face.family() == Family::Modern => Ok(()),
                About::Answer => self.face.post_and_forget("", frame).await,
            }
        })
    }

    fn takes_back_by_leaving(&self) -> bool {
        Carrier::Http.takes_back_by_leaving(self.face.agreed().revision)
    }

    fn introduced(&self, revision: &'static Revision) {
        self.face.agreed().revision = Some(revision);
    }

    fn listen(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            let (answered, has_answered) = oneshot::channel();
            let listening = tokio::spawn(listen(Arc::clone(&self.face), answered));
            let before = self.listening().replace(listening);
            if let Some(before) = before {
                before.abort();
            }
            let _ = timeout(LISTEN_WAIT, has_answered).await;
        })
    }

    fn close(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            let listening = self.listening().take();
            if let Some(listening) = listening {
                listening.abort();
                let _ = listening.await;
            }
            if self.face.agreed().session.is_some() {
                let _ = timeout(FAREWELL, self.face.send(|| self.face.request(Method::DELETE))).await;
                self.face.agreed().session = None;
            }
        })
    }
}

impl HttpLink {
    fn listening(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.listening.lock().expect("nothing panics while it holds the task")
    }
}

impl Drop for HttpLink {
    fn drop(&mut self) {
        if let Some(listening) = self.listening().take() {
            listening.abort();
        }
    }
}

impl Face {
    fn agreed(&self) -> MutexGuard<'_, Agreed> {
        self.agreed.lock().expect("nothing panics while it holds what was agreed")
    }

    /// Before the introduction, the newer: what is asked first is asked its way.
    fn family(&self) -> Family {
        self.agreed().revision.unwrap_or(modern()).family
    }

    async fn send(&self, request: impl Fn() -> RequestBuilder) -> Result<Response, Cause> {
        self.endpoint.send(request).await
    }

    /// A request with what both sides agreed on.
    fn request(&self, method: Method) -> RequestBuilder {
        let Agreed { revision, session } = self.agreed().clone();
        let mut request = self.client.request(method, self.endpoint.url.clone());
        if let Some(session) = session {
            request = request.header(headers::SESSION_ID, session);
        }
        request.header(headers::PROTOCOL_VERSION, revision.unwrap_or(modern()).date)
    }

    fn post(&self, method: &str, frame: &Bytes) -> RequestBuilder {
        let request = if method == "initialize" {
            // It begins a session, and it asks for a revision in its body.
            self.client.post(self.endpoint.url.clone())
        } else {
            self.request(Method::POST)
        };
        let accept = HeaderValue::from_static("application/json, text/event-stream");
        let json = HeaderValue::from_static("application/json");
        request.header(ACCEPT, accept).header(CONTENT_TYPE, json).body(frame.clone())
    }

    /// One request and its answer, which is in the inbox when this returns.
    async fn exchange(
        &self,
        id: u64,
        method: &str,
        name: Option<&str>,
        mirrored: &[(String, String)],
        frame: Bytes,
    ) -> Result<(), Cause> {
        let family = if method == "initialize" { Family::Legacy } else { self.family() };
        let mut response = self
            .send(|| {
                let request = self.post(method, &frame);
                if family == Family::Modern { repeat(request, method, name, mirrored) } else { request }
            })
            .await?;
        if !response.status().is_success() {
            return self.refused(response, id, method).await;
        }
        if method == "initialize" {
            self.agreed().session = response.headers().get(headers::SESSION_ID).cloned();
        }
        if web::media_type(&response) == EVENT_STREAM {
            return self.follow(response, id, family).await;
        }
        let answer = web::body(&mut response, self.endpoint.frame_bytes_max).await;
        match answer.map_err(|error| self.endpoint.failed(&error))? {
            Some(answer) if self.inbox.frame(&answer, Some(id)) => Ok(()),
            Some(_) => Err(Cause::Protocol(format!("HTTP {} without an answer", response.status().as_u16()))),
            None => {
                self.inbox.too_long(Some(id));
                Ok(())
            }
        }
    }

    /// What is behind a status that is no success: a JSON-RPC error, a lost session, or neither.
    async fn refused(&self, mut response: Response, id: u64, method: &str) -> Result<(), Cause> {
        let is_json = web::media_type(&response) == "application/json";
        let body = timeout(FAREWELL, web::body(&mut response, ERROR_BODY_BYTES_MAX)).await;
        let body = body.ok().and_then(Result::ok).flatten().unwrap_or_default();
        let had_session = method != "initialize" && self.agreed().session.is_some();
        if response.status().as_u16() == 404 && had_session {
            return Err(Cause::SessionLost);
        }
        if is_json && self.inbox.frame(&body, Some(id)) {
            return Ok(());
        }
        Err(self.endpoint.refused(&response, &body))
    }

    /// Reads a stream until the answer is there. In the older family a stream that ends before is
    /// taken up again where it ended, if the server said how.
    async fn follow(&self, mut response: Response, id: u64, family: Family) -> Result<(), Cause> {
        let mut place = Place::default();
        loop {
            if self.read(&mut response, Some(id), &mut place).await? {
                web::leave(response);
                return Ok(());
            }
            if family == Family::Modern || place.event_id.is_none() {
                return Err(Cause::Network("the stream ended before the answer".to_owned()));
            }
            sleep(place.retry.unwrap_or(RETRY)).await;
            response = self.again(&place).await?;
        }
    }

    /// Takes a stream up again. Whatever stands in the way of that says nothing of the request, which
    /// the server has had for long.
    async fn again(&self, place: &Place) -> Result<Response, Cause> {
        let lost = |cause: Cause| {
            Cause::Network(format!("the stream ended before the answer, and was not taken up again: {cause}"))
        };
        let response = self.send(|| self.get(place)).await.map_err(lost)?;
        if response.status().is_success() {
            Ok(response)
        } else {
            Err(lost(self.endpoint.refusal(response).await))
        }
    }

    fn get(&self, place: &Place) -> RequestBuilder {
        let request = self.request(Method::GET).header(ACCEPT, EVENT_STREAM);
        match &place.event_id {
            Some(event_id) => request.header("last-event-id", event_id),
            None => request,
        }
    }

    /// Reads a stream to its end, or until it has answered `exchange`; says whether it has.
    async fn read(
        &self,
        response: &mut Response,
        exchange: Option<u64>,
        place: &mut Place,
    ) -> Result<bool, Cause> {
        let mut events = Events::new(self.endpoint.frame_bytes_max);
        loop {
            while let Some(next) = events.next_event() {
                let Next::Event(event) = next else {
                    self.inbox.too_long(exchange);
                    if exchange.is_some() {
                        return Ok(true);
                    }
                    continue;
                };
                if let Some(event_id) = event.id {
                    // An empty one takes the last one back, and one that no header holds is none.
                    place.event_id = HeaderValue::try_from(event_id).ok().filter(|id| !id.is_empty());
                }
                place.retry = event.retry.map(|retry| retry.clamp(RETRY_MIN, RETRY_MAX)).or(place.retry);
                // An event without data only says where the stream stands.
                let is_message = event.name.is_none_or(|name| name == "message") && !event.data.is_empty();
                if is_message && self.inbox.frame(&event.data, exchange) {
                    return Ok(true);
                }
                // One read may hold thousands of events.
                consume_budget().await;
            }
            match response.chunk().await {
                Ok(Some(chunk)) => events.feed(chunk),
                Ok(None) => return Ok(false),
                // A stream that breaks has ended, if it can be taken up again.
                Err(_) if place.event_id.is_some() => return Ok(false),
                Err(error) => return Err(self.endpoint.failed(&error)),
            }
        }
    }

    /// A message that has no answer. Any success will do, with whatever in it, for however long.
    async fn post_and_forget(&self, method: &str, frame: Bytes) -> Result<(), Cause> {
        let family = self.family();
        let response = self
            .send(|| {
                let request = self.post(method, &frame);
                if family == Family::Modern { repeat(request, method, None, &[]) } else { request }
            })
            .await?;
        if !response.status().is_success() {
            return Err(self.endpoint.refusal(response).await);
        }
        web::leave(response);
        Ok(())
    }
}

/// What the newer family repeats in headers.
fn repeat(
    request: RequestBuilder,
    method: &str,
    name: Option<&str>,
    mirrored: &[(String, String)],
) -> RequestBuilder {
    let mut request = request.header(headers::METHOD, headers::encode(method).as_ref());
    if let Some(name) = name {
        request = request.header(headers::NAME, headers::encode(name).as_ref());
    }
    for (header, value) in mirrored {
        if let (Ok(header), Ok(value)) = (HeaderName::try_from(header), HeaderValue::try_from(value)) {
            request = request.header(header, value);
        }
    }
    request
}

/// The older family's stream of messages that answer nothing, for as long as the server keeps one.
async fn listen(face: Arc<Face>, answered: oneshot::Sender<()>) {
    let mut answered = Some(answered);
    let (mut place, mut delay) = (Place::default(), RETRY);
    loop {
        let response = face.send(|| face.get(&place)).await;
        drop(answered.take());
        match response {
            Ok(mut response)
                if response.status().is_success() && web::media_type(&response) == EVENT_STREAM =>
            {
                delay = RETRY;
                let _ = face.read(&mut response, None, &mut place).await;
            }
            // It has none, and that is its right.
            Ok(_) | Err(Cause::Unauthorized(_) | Cause::Protocol(_)) => return,
            Err(cause) => face.inbox.debug(&format!("the stream of unasked messages: {cause}")),
        }
        sleep(place.retry.unwrap_or(delay)).await;
        delay = (delay * 2).min(RETRY_MAX);
    }
}
