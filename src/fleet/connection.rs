//! One connection to one server: many requests in flight, each with an id of our own, answered in
//! whatever order the server likes.
//!
//! Owns: the ids, and that a request that is given up is taken back on the wire. Must not know: which
//! link carries the frames, or what a result means.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::domain::end::End;
use crate::domain::log::Logger;
use crate::mcp::listen::LISTEN;
use crate::mcp::request::{self, Meta};
use crate::mcp::revision::{Family, Revision};

use super::error::Cause;
use super::inbox::{Desk, Handler, Notice};
use super::link::{About, Link, Opener, Outgoing};

/// A link that cannot send has ended; how it ended is worth this wait.
const WHY_WAIT: Duration = Duration::from_millis(500);

/// A cheap handle to one connection. When the last one goes, so does the link.
#[derive(Clone)]
pub struct Connection(Arc<Shared>);

struct Shared {
    link: Arc<dyn Link>,
    desk: Desk,
    transport: &'static str,
    next_id: AtomicU64,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Nobody is left who could be answered: what the server asked is not asked any more. A link that is closed
        // has said so before.
        self.desk.ended(&Cause::Closed);
    }
}

/// How a request is made.
#[derive(Clone, Debug, Default)]
pub struct Ask<'a> {
    /// A JSON object without `_meta`, or nothing.
    pub params: Option<&'a [u8]>,
    /// The members of `_meta`, raw.
    pub meta: &'a [u8],
    /// The tool, prompt or resource that is asked for.
    pub name: Option<&'a str>,
    /// Arguments that the server wants to see in headers.
    pub mirrored: &'a [(String, String)],
    /// Where progress and log messages of this request go.
    pub notices: Option<mpsc::Sender<Notice>>,
    /// Why it is given up, if it is; for the server.
    pub reason: Option<&'a Reason>,
}

/// Why a request was given up: said once, by whoever gives it up.
#[derive(Debug, Default)]
pub struct Reason(OnceLock<&'static str>);

impl Reason {
    /// Says why.
    pub fn is(&self, why: &'static str) {
        let _ = self.0.set(why);
    }
}

impl Connection {
    /// Opens a link and takes it over.
    pub async fn open(opener: &dyn Opener, handler: Arc<dyn Handler>, logger: Logger) -> Result<Self, Cause> {
        let desk = Desk::new(handler, logger);
        let link = opener.open(desk.inbox()).await?;
        desk.answers_go_to(&link);
        let transport = opener.transport();
        Ok(Self(Arc::new(Shared { link, desk, transport, next_id: AtomicU64::new(1) })))
    }

    /// One request, until it is answered or its deadline passes. A request that is given up, by its
    /// deadline or by its caller, is taken back on the wire.
    pub async fn request(&self, method: &str, ask: Ask<'_>, deadline: Duration) -> Result<Bytes, Cause> {
        let id = self.0.next_id.fetch_add(1, Ordering::Relaxed);
        let answered = self.0.desk.expect(id, ask.notices.clone()).map_err(Cause::unsent)?;
        let exchange = self.exchange(id, method, ask, answered);
        timeout(deadline, exchange).await.unwrap_or(Err(Cause::TimedOut(deadline)))
    }

    /// The one request that stays open, until the server ends it or the caller leaves. It has no deadline and
    /// is not counted among those in flight. What the server agrees to tell goes to `acknowledged`; what it
    /// tells, to the handler.
    pub(super) async fn listen(
        &self,
        ask: Ask<'_>,
        acknowledged: oneshot::Sender<Bytes>,
    ) -> Result<Bytes, Cause> {
        let id = self.0.next_id.fetch_add(1, Ordering::Relaxed);
        let ended = self.0.desk.expect_listening(id, acknowledged)?;
        self.exchange(id, LISTEN, ask, ended).await
    }

    async fn exchange(
        &self,
        id: u64,
        method: &str,
        ask: Ask<'_>,
        mut answered: oneshot::Receiver<Result<Bytes, Cause>>,
    ) -> Result<Bytes, Cause> {
        let progress_token = ask.notices.is_some().then_some(id);
        // From here on, leaving without an answer takes the request back; the protocol forbids it for one.
        let sent = method != "initialize";
        let mut given_up = GivenUp { connection: self, id, reason: ask.reason, sent, done: false };
        let frame = request::request(id, method, ask.params, Meta { members: ask.meta, progress_token });
        let about = About::Request { id, method, name: ask.name, mirrored: ask.mirrored };
        let sending = self.0.link.send(Outgoing { frame, about });
        let sent = tokio::select! {
            biased;
            answer = &mut answered => Err(answer.unwrap_or(Err(Cause::Closed))),
            sent = sending => Ok(sent),
        };
        let outcome = match sent {
            Err(answer) => answer,
            Ok(Ok(())) => answered.await.unwrap_or(Err(Cause::Closed)),
            // The receiving side is about to learn why, in better words.
            Ok(Err(gone @ Cause::Gone(_))) => {
                let why = timeout(WHY_WAIT, answered).await;
                why.ok().and_then(Result::ok).unwrap_or(Err(gone))
            }
            Ok(Err(cause)) => Err(cause),
        };
        given_up.done = true;
        outcome
    }

    /// A notification.
    pub async fn notify(&self, method: &str, params: Option<&[u8]>) -> Result<(), Cause> {
        let frame = request::notification(method, params);
        self.0.link.send(Outgoing { frame, about: About::Notification { method } }).await
    }

    /// What follows once both sides know the revision.
    pub(super) async fn begin(&self, revision: &'static Revision) -> Result<(), Cause> {
        self.0.link.introduced(revision);
        if revision.family == Family::Legacy {
            self.notify("notifications/initialized", None).await?;
            self.0.link.listen().await;
        }
        Ok(())
    }

    /// Ends it: everything waiting fails as closed, and nothing of it is left when this returns.
    pub async fn close(&self) {
        self.0.desk.ended(&Cause::Closed);
        self.0.link.close().await;
    }

    /// Waits until nothing more will come, and says why.
    pub async fn ended(&self) -> Cause {
        self.0.desk.gone().await
    }

    /// The end of what the server wrote to its stderr.
    pub fn last_words(&self) -> Option<String> {
        self.0.link.last_words()
    }

    /// How the server's process ended, if it has one and it has.
    pub fn end(&self) -> Option<End> {
        self.0.link.end()
    }

    /// The names of the layers of its sandbox that the server runs without, as its configuration allows.
    pub fn degraded(&self) -> Vec<&'static str> {
        self.0.link.degraded()
    }

    /// The process behind it, if it is one that colibri started.
    pub fn pid(&self) -> Option<u32> {
        self.0.link.pid()
    }

    /// The name of the transport, for people.
    pub fn transport(&self) -> &'static str {
        self.0.transport
    }

    /// How many requests wait for an answer.
    pub fn in_flight(&self) -> usize {
        self.0.desk.in_flight()
    }
}

/// Takes a request back when its caller leaves without an answer, in whatever way.
struct GivenUp<'c> {
    connection: &'c Connection,
    id: u64,
    reason: Option<&'c Reason>,
    sent: bool,
    done: bool,
}

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        self.connection.0.desk.forget(self.id);
        let is_told = self.connection.0.link.takes_back_by_leaving();
        if self.done || !self.sent || is_told || self.connection.0.desk.is_over() {
            return;
        }
        let (connection, id) = (self.connection.clone(), self.id);
        let reason = self.reason.and_then(|reason| reason.0.get()).copied().unwrap_or("the caller gave up");
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let params = json!({ "requestId": id, "reason": reason }).to_string();
                let cancelled = connection.notify("notifications/cancelled", Some(params.as_bytes()));
                let _ = timeout(WHY_WAIT, cancelled).await;
            });
        }
    }
}
