//! A connection that has been introduced: requests in the revision spoken, and calls of tools with
//! everything the protocol wants of a caller.
//!
//! Owns: what every request says of us, which arguments are mirrored into headers, the new session
//! when the server forgot the old one, and the rounds of a call that needs input.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::mcp::error::code;
use crate::mcp::headers::{Mirror, mirrored};
use crate::mcp::request::{
    Client, call_params, initialize_params, meta_members, with_capabilities, with_members,
};
use crate::mcp::revision::{Family, LEGACY, Revision};

pub use super::connection::Reason;
use super::connection::{Ask, Connection};
use super::error::Cause;
use super::inbox::{Handler, Notice};
use super::listing;

/// Rounds of input that one call may need. A server that asks on and on is broken, or hostile.
const INPUT_ROUNDS_MAX: usize = 10;

/// What one round may ask.
const INPUT_REQUESTS_MAX: usize = 32;

/// A list that is stale sooner by its server's word is read no more often than this.
const FRESH_MIN: Duration = Duration::from_secs(5);

/// … and one that never is, no less often than this.
const FRESH_MAX: Duration = Duration::from_hours(1);

/// A cheap handle to an introduced connection.
#[derive(Clone)]
pub struct Session(Arc<Inner>);

struct Inner {
    connection: Connection,
    revision: &'static Revision,
    client: Arc<Client>,
    handler: Arc<dyn Handler>,
    introduction: Bytes,
    /// The members of every request's `_meta`, made once.
    meta: Vec<u8>,
    /// By tool: which arguments its server wants in headers. Filled by listing the tools.
    mirrors: Mutex<HashMap<String, Arc<[Mirror]>>>,
    /// How long the list of tools stays true by its server's word, in milliseconds; 0 if it gave none.
    fresh_ms: AtomicU64,
    /// How often the server forgot us.
    renewals: AtomicU64,
    /// Whoever notices first makes the new session; the others wait for it.
    renewing: tokio::sync::Mutex<()>,
}

/// How a request is made.
#[derive(Clone, Debug, Default)]
pub struct Request<'a> {
    /// A JSON object without `_meta`, or nothing.
    pub params: Option<&'a [u8]>,
    /// The tool, prompt or resource that is asked for.
    pub name: Option<&'a str>,
    /// The members of `_meta`, raw, in place of those that every request has.
    pub meta: Option<&'a [u8]>,
    /// Where progress and log messages of this request go.
    pub notices: Option<mpsc::Sender<Notice>>,
    /// Why it is given up, if it is; for the server.
    pub reason: Option<&'a Reason>,
}

/// A call of a tool.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    /// Which.
    pub tool: &'a str,
    /// A JSON object.
    pub arguments: &'a [u8],
    /// Where progress and log messages go.
    pub notices: Option<mpsc::Sender<Notice>>,
    /// Of a client that answers in rounds of its own.
    pub rounds: Option<Rounds<'a>>,
    /// Why it is given up, if it is; for the server.
    pub reason: Option<&'a Reason>,
}

/// What a client of the newer family says with a call.
#[derive(Clone, Copy, Debug)]
pub struct Rounds<'a> {
    /// What it can be asked, raw.
    pub capabilities: &'a [u8],
    /// Its answers to what the tool wanted to know: members of the params, raw.
    pub given: Option<&'a [u8]>,
}

impl Session {
    pub(super) async fn begin(
        connection: Connection,
        revision: &'static Revision,
        client: Arc<Client>,
        handler: Arc<dyn Handler>,
        introduction: Bytes,
    ) -> Result<Self, Cause> {
        connection.begin(revision).await?;
        let meta = meta_members(revision, &client);
        Ok(Self(Arc::new(Inner {
            connection,
            revision,
            client,
            handler,
            introduction,
            meta,
            mirrors: Mutex::default(),
            fresh_ms: AtomicU64::new(0),
            renewals: AtomicU64::new(0),
            renewing: tokio::sync::Mutex::default(),
        })))
    }

    /// The connection.
    pub fn connection(&self) -> &Connection {
        &self.0.connection
    }

    /// The revision spoken.
    pub fn revision(&self) -> &'static Revision {
        self.0.revision
    }

    /// What the server said of itself: the result of `initialize` or `server/discover`, raw.
    pub fn introduction(&self) -> &Bytes {
        &self.0.introduction
    }

    /// One request in the revision spoken. If the server has forgotten the session, it gets a new one,
    /// and the request is sent once more: it was not looked at.
    pub async fn request(
        &self,
        method: &str,
        request: Request<'_>,
        deadline: Duration,
    ) -> Result<Bytes, Cause> {
        let until = Instant::now() + deadline;
        self.ask(method, &request, &[], until).await.map_err(|cause| within(deadline, cause))
    }

    /// The request that stays open and tells of changes; see [`Connection::listen`].
    pub(super) async fn listen(
        &self,
        params: &[u8],
        acknowledged: oneshot::Sender<Bytes>,
    ) -> Result<Bytes, Cause> {
        let ask = Ask { params: Some(params), meta: &self.0.meta, ..Ask::default() };
        self.0.connection.listen(ask, acknowledged).await
    }

    /// Calls a tool. `arguments` is a JSON object; the result is the bytes that the server sent.
    pub async fn call(
        &self,
        tool: &str,
        arguments: &[u8],
        notices: Option<mpsc::Sender<Notice>>,
        deadline: Duration,
    ) -> Result<Bytes, Cause> {
        self.call_for(Call { tool, arguments, notices, rounds: None, reason: None }, deadline).await
    }

    /// The same, for somebody who may answer in rounds of its own.
    pub async fn call_for(&self, call: Call<'_>, deadline: Duration) -> Result<Bytes, Cause> {
        let until = Instant::now() + deadline;
        self.rounds(call, until).await.map_err(|cause| within(deadline, cause))
    }

    async fn rounds(&self, call: Call<'_>, until: Instant) -> Result<Bytes, Cause> {
        let Call { tool, arguments, notices, rounds, reason } = call;
        let rounds = rounds.filter(|_| self.0.revision.family == Family::Modern);
        let mut params = call_params(tool, arguments);
        if let Some(given) = rounds.and_then(|rounds| rounds.given) {
            params = with_members(&params, given);
        }
        let meta = rounds.map(|rounds| with_capabilities(&self.0.meta, rounds.capabilities));
        for _ in 0..INPUT_ROUNDS_MAX {
            let (meta, notices) = (meta.as_deref(), notices.clone());
            let request = Request { params: Some(&params), name: Some(tool), meta, notices, reason };
            let mut answer = self.ask("tools/call", &request, &self.headers(tool, arguments), until).await;
            // The server wants arguments in headers that we do not know of: its list says which.
            if matches!(answer, Err(Cause::Answered { code: code::HEADER_MISMATCH, .. })) {
                listing::tools(self, until.saturating_duration_since(Instant::now())).await?;
                answer = self.ask("tools/call", &request, &self.headers(tool, arguments), until).await;
            }
            let result = answer?;
            if rounds.is_some() {
                return Ok(result);
            }
            let given = timeout_at(until, self.input(&result)).await;
            match given.unwrap_or(Err(Cause::TimedOut(Duration::ZERO)))? {
                None => return Ok(result),
                Some(given) => params = with_members(&call_params(tool, arguments), &given),
            }
        }
        Err(Cause::Protocol(format!("the tool asked for input {INPUT_ROUNDS_MAX} times")))
    }

    /// Remembers which arguments a tool wants in headers.
    pub(super) fn mirror(&self, mirrors: HashMap<String, Arc<[Mirror]>>) {
        *self.0.mirrors.lock().expect("nothing panics while it holds the mirrors") = mirrors;
    }

    /// Remembers how long the list of tools stays true by its server's word.
    pub(super) fn keep_fresh(&self, milliseconds: Option<u64>) {
        self.0.fresh_ms.store(milliseconds.unwrap_or_default(), Ordering::Relaxed);
    }

    /// How long the list of tools stays true by its server's word, if it gave one; within reason.
    pub(super) fn fresh_for(&self) -> Option<Duration> {
        let fresh = Duration::from_millis(self.0.fresh_ms.load(Ordering::Relaxed));
        (fresh > Duration::ZERO).then(|| fresh.clamp(FRESH_MIN, FRESH_MAX))
    }

    fn headers(&self, tool: &str, arguments: &[u8]) -> Vec<(String, String)> {
        let mirrors = self.0.mirrors.lock().expect("nothing panics while it holds the mirrors");
        let Some(mirrors) = mirrors.get(tool).map(Arc::clone) else { return Vec::new() };
        mirrored(&mirrors, &serde_json::from_slice(arguments).unwrap_or_default())
    }

    async fn ask(
        &self,
        method: &str,
        request: &Request<'_>,
        mirrored: &[(String, String)],
        until: Instant,
    ) -> Result<Bytes, Cause> {
        let left = || until.saturating_duration_since(Instant::now());
        let renewals = self.0.renewals.load(Ordering::Acquire);
        let Request { params, name, meta, notices, reason } = request;
        let (meta, notices) = (meta.unwrap_or(&self.0.meta), notices.clone());
        let ask = Ask { params: *params, meta, name: *name, mirrored, notices, reason: *reason };
        match self.0.connection.request(method, ask.clone(), left()).await {
            Err(Cause::SessionLost) => {
                let renewed = timeout_at(until, self.renew(renewals, until)).await;
                renewed.unwrap_or(Err(Cause::TimedOut(Duration::ZERO)))?;
                self.0.connection.request(method, ask, left()).await
            }
            answer => answer,
        }
    }

    /// A new session, unless somebody has made one since.
    async fn renew(&self, seen: u64, until: Instant) -> Result<(), Cause> {
        let _turn = self.0.renewing.lock().await;
        if self.0.renewals.load(Ordering::Acquire) != seen {
            return Ok(());
        }
        let left = until.saturating_duration_since(Instant::now());
        initialize(&self.0.connection, &self.0.client, left).await?;
        self.0.connection.begin(self.0.revision).await?;
        self.0.renewals.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// The members that answer a result which asks for input; nothing if it does not.
    async fn input(&self, result: &Bytes) -> Result<Option<Vec<u8>>, Cause> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct InputRequired<'a> {
            result_type: String,
            #[serde(default)]
            input_requests: HashMap<String, InputRequest>,
            #[serde(borrow)]
            request_state: Option<&'a RawValue>,
        }
        #[derive(Deserialize)]
        struct InputRequest {
            method: String,
            params: Option<Box<RawValue>>,
        }
        // A result is not parsed unless it says these words: most are never parsed at all.
        if self.0.revision.family != Family::Modern
            || memchr::memmem::find(result, b"input_required").is_none()
        {
            return Ok(None);
        }
        let Ok(asked) = serde_json::from_slice::<InputRequired<'_>>(result) else { return Ok(None) };
        if asked.result_type != "input_required" {
            return Ok(None);
        }
        if asked.input_requests.len() > INPUT_REQUESTS_MAX {
            return Err(Cause::Protocol(format!(
                "more than {INPUT_REQUESTS_MAX} requests for input at once"
            )));
        }
        let mut responses = Vec::new();
        for (key, InputRequest { method, params }) in asked.input_requests {
            let params = params.map(|params| Bytes::from(params.get().to_owned()));
            let response = self.0.handler.asked(&method, params).await;
            let refused =
                |error| Cause::Protocol(format!("the tool asks for what nobody here gives: {error}"));
            let response = response.map_err(refused)?;
            let key = serde_json::to_vec(&key).expect("a text always serialises");
            responses.push([key.as_slice(), b":", &response].concat());
        }
        let mut members = [b"\"inputResponses\":{", responses.join(&b',').as_slice(), b"}"].concat();
        if let Some(state) = asked.request_state {
            members.extend_from_slice(b",\"requestState\":");
            members.extend_from_slice(state.get().as_bytes());
        }
        Ok(Some(members))
    }
}

/// Whichever part of a call was late: its caller knows one deadline.
fn within(deadline: Duration, cause: Cause) -> Cause {
    if matches!(cause, Cause::TimedOut(_)) { Cause::TimedOut(deadline) } else { cause }
}

/// Begins a session of the older family; gives what the server said of itself.
pub(super) async fn initialize(
    connection: &Connection,
    client: &Client,
    deadline: Duration,
) -> Result<Bytes, Cause> {
    let params = initialize_params(&LEGACY, client);
    let ask = Ask { params: Some(&params), ..Ask::default() };
    connection.request("initialize", ask, deadline).await
}
