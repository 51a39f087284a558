//! What one connection has agreed on, and what each of its messages leads to. Decides; acts on
//! nothing.
//!
//! Both families live on one connection: a request whose `_meta` names a protocol version is modern
//! and stands for itself; any other belongs to the session that `initialize` began.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use crate::call::{Call, Caller, Rounds};
use crate::domain::audit::Principal;
use crate::domain::face::SessionId;
use crate::domain::tool::Listed;
use crate::mcp::answer::{self, Identity};
use crate::mcp::envelope::{Id, Message};
use crate::mcp::error::Error;
use crate::mcp::lists::{self, PAGE_BYTES_MAX};
use crate::mcp::params::{self, LogLevel, Meta, ToolCall};
use crate::mcp::resources;
use crate::mcp::revision::{Family, Revision, known, negotiate};

const NOT_BEGUN: &str = "the session has not begun: send `initialize` first, or put \
    `io.modelcontextprotocol/protocolVersion` and `io.modelcontextprotocol/clientCapabilities` \
    into the `_meta` of each request";

const NO_CAPABILITIES: &str =
    "`_meta` lacks `io.modelcontextprotocol/clientCapabilities`: an empty object will do";

/// What a client tells all servers.
const ROOTS_CHANGED: &str = "notifications/roots/list_changed";

/// Of a client that does not say its name.
const NAMELESS: &str = "unknown";

/// One connection's protocol state.
pub(super) struct Session {
    identity: Arc<Identity>,
    user: String,
    /// What `initialize` settled.
    legacy: Option<Peer>,
}

/// In which revision to answer, and to whom.
#[derive(Clone)]
struct Peer {
    revision: &'static Revision,
    principal: Arc<Principal>,
    /// What it can be asked, raw.
    capabilities: Option<Bytes>,
}

/// What a message leads to.
pub(super) enum Step {
    /// Nothing.
    Silence,
    /// This answer.
    Answer(Bytes),
    /// A call.
    Call(Asked),
    /// The end of a call.
    Cancel(Id),
    /// The answer to a question of a server's.
    Answered(Id, Result<Bytes, Bytes>),
    /// News for the servers.
    Tell(&'static str),
    /// Another severity of log messages, and the answer to who asked for it.
    LogLevel(&'static str, Bytes),
}

/// A call that somebody asked for.
pub(super) struct Asked {
    pub(super) id: Id,
    pub(super) tool: String,
    pub(super) arguments: Option<Bytes>,
    pub(super) caller: Caller,
    /// Under which token the client wants to hear of progress.
    pub(super) progress: Option<Id>,
    /// Of a client of the newer family.
    pub(super) rounds: Option<Rounds>,
    pub(super) answer: Answering,
}

/// How its result will be written.
#[derive(Clone)]
pub(super) struct Answering {
    identity: Arc<Identity>,
    revision: &'static Revision,
    /// The method, if it is one that a hidden tool answers.
    method: Option<&'static str>,
}

impl Answering {
    /// The answer to a call that ended with an envelope.
    pub(super) fn envelope(&self, id: &Id, body: &[u8], is_error: bool, correlation_id: &str) -> Bytes {
        let Some(method) = self.method else {
            return answer::success(id, &self.identity.called(body, is_error, correlation_id, self.revision));
        };
        match resources::result(method, body, correlation_id, &self.identity, self.revision) {
            Ok(result) => answer::success(id, &result),
            Err(error) => answer::failure(Some(id), &error),
        }
    }

    /// The answer to a call of a server's tool: its result as it came.
    pub(super) fn result(&self, id: &Id, result: &Bytes, correlation_id: &str) -> Bytes {
        answer::success(id, &self.identity.passed_on(result, correlation_id, self.revision))
    }

    /// The call that is asked for: what names a method is no call of a tool, and the other way round.
    pub(super) fn call(&self, call: Call) -> Call {
        if self.method.is_some() { call.of_method() } else { call }
    }
}

/// What a request comes to.
enum Outcome {
    Raw(Vec<u8>),
    Value(Value),
    LogLevel(LogLevel),
    /// And under which token the client wants to hear of progress.
    Call(Peer, ToolCall, Option<Id>),
    Method(Peer, &'static str, Bytes),
}

type Params<'a> = Option<&'a Bytes>;

/// Where the list of tools comes from; asked only if it is needed.
type Lister<'a> = &'a dyn Fn() -> Arc<[Listed]>;

impl Session {
    pub(super) fn new(identity: Arc<Identity>, user: String) -> Self {
        Self { identity, user, legacy: None }
    }

    /// Whether the client may send several messages as one array.
    pub(super) fn batching(&self) -> bool {
        self.legacy.as_ref().is_some_and(|peer| peer.revision.batching)
    }

    /// Whether the client is to be told when the list of tools has changed: one that has begun a session.
    /// The newer family is told to keep no list, where there are servers.
    pub(super) fn hears_changes(&self) -> bool {
        self.legacy.is_some()
    }

    /// What the client of a session can be asked, raw; nothing if none has begun.
    pub(super) fn abilities(&self) -> Option<Bytes> {
        let legacy = self.legacy.as_ref()?;
        Some(legacy.capabilities.clone().unwrap_or_else(|| Bytes::from_static(b"{}")))
    }

    /// What a message leads to.
    pub(super) fn accept(&mut self, message: Message, lister: Lister<'_>) -> Step {
        match message {
            Message::Request { id, method, params } => match self.request(&method, params.as_ref(), lister) {
                Ok(Outcome::Raw(result)) => Step::Answer(answer::success(&id, &result)),
                Ok(Outcome::Value(result)) => Step::Answer(answer::value(&id, &result)),
                Ok(Outcome::LogLevel(level)) => Step::LogLevel(level.name(), answer::success(&id, b"{}")),
                Ok(Outcome::Call(peer, call, progress)) => {
                    Step::Call(Asked { progress, ..self.ask(id, peer, call, None) })
                }
                Ok(Outcome::Method(peer, method, arguments)) => {
                    let call = ToolCall { name: method.to_owned(), arguments: Some(arguments), given: None };
                    Step::Call(self.ask(id, peer, call, Some(method)))
                }
                Err(error) => Step::Answer(answer::failure(Some(&id), &error)),
            },
            Message::Notification { method, params } if method == "notifications/cancelled" => {
                params::cancelled(params.as_ref()).map_or(Step::Silence, Step::Cancel)
            }
            Message::Notification { method, .. } if method == ROOTS_CHANGED => Step::Tell(ROOTS_CHANGED),
            // `notifications/initialized` among them: nothing waits for it.
            Message::Notification { .. } => Step::Silence,
            Message::Response { id, outcome } => id.map_or(Step::Silence, |id| Step::Answered(id, outcome)),
            Message::Refused { id, error } => Step::Answer(answer::failure(id.as_ref(), &error)),
        }
    }

    fn request(&mut self, method: &str, params: Params<'_>, lister: Lister<'_>) -> Result<Outcome, Error> {
        let meta = params::meta(params)?;
        if meta.version.is_some() {
            self.modern(method, params, meta, lister)
        } else {
            self.legacy(method, params, meta.progress_token, lister)
        }
    }

    fn modern(
        &self,
        method: &str,
        params: Params<'_>,
        meta: Meta,
        lister: Lister<'_>,
    ) -> Result<Outcome, Error> {
        let version = meta.version.unwrap_or_default();
        let revision = known(&version, Family::Modern).ok_or_else(|| Error::unsupported_version(&version))?;
        let Some(capabilities) = meta.capabilities else {
            return Err(Error::invalid_params(NO_CAPABILITIES));
        };
        match method {
            "server/discover" => Ok(Outcome::Value(self.identity.discover(revision))),
            "tools/list" => self.list(params, revision, lister),
            "tools/call" => {
                let peer = self.peer(revision, meta.client);
                let peer = Peer { capabilities: Some(capabilities), ..peer };
                Ok(Outcome::Call(peer, params::tool_call(params)?, meta.progress_token))
            }
            _ => self.resources(method, params, revision, || self.peer(revision, meta.client)),
        }
    }

    fn legacy(
        &mut self,
        method: &str,
        params: Params<'_>,
        progress: Option<Id>,
        lister: Lister<'_>,
    ) -> Result<Outcome, Error> {
        match (method, &self.legacy) {
            ("initialize", None) => self.initialize(params),
            ("initialize", Some(_)) => Err(Error::invalid_request("the session has already begun")),
            ("ping", _) => Ok(empty()),
            (_, None) => Err(Error::invalid_params(NOT_BEGUN)),
            ("logging/setLevel", Some(_)) => params::level(params).map(Outcome::LogLevel),
            ("tools/list", Some(peer)) => self.list(params, peer.revision, lister),
            ("tools/call", Some(peer)) => {
                Ok(Outcome::Call(peer.clone(), params::tool_call(params)?, progress))
            }
            (_, Some(peer)) => self.resources(method, params, peer.revision, || peer.clone()),
        }
    }

    /// The methods of skills and resources, where there are any.
    fn resources(
        &self,
        method: &str,
        params: Params<'_>,
        revision: &Revision,
        peer: impl FnOnce() -> Peer,
    ) -> Result<Outcome, Error> {
        let known = resources::METHODS.into_iter().find(|known| *known == method);
        match known {
            _ if !self.identity.skills => Err(Error::unknown_method(method)),
            Some(method) => Ok(Outcome::Method(peer(), method, params::resource(params)?)),
            None if method == "resources/templates/list" => {
                Ok(Outcome::Value(resources::templates(&self.identity, revision)))
            }
            None => Err(Error::unknown_method(method)),
        }
    }

    fn initialize(&mut self, params: Params<'_>) -> Result<Outcome, Error> {
        let asked = params::initialize(params)?;
        let revision = negotiate(&asked.version);
        let peer = self.peer(revision, asked.client);
        self.legacy = Some(Peer { capabilities: asked.capabilities, ..peer });
        Ok(Outcome::Value(self.identity.initialize(revision)))
    }

    fn list(&self, params: Params<'_>, revision: &Revision, lister: Lister<'_>) -> Result<Outcome, Error> {
        let cursor = params::cursor(params)?;
        let page = lists::tools(&lister(), cursor.as_deref(), &self.identity, revision, PAGE_BYTES_MAX);
        page.map(Outcome::Raw)
    }

    fn peer(&self, revision: &'static Revision, client: Option<String>) -> Peer {
        let client = client.filter(|name| !name.is_empty()).unwrap_or_else(|| NAMELESS.to_owned());
        let principal = Arc::new(Principal { client, user: self.user.clone() });
        Peer { revision, principal, capabilities: None }
    }

    fn ask(&self, id: Id, peer: Peer, call: ToolCall, method: Option<&'static str>) -> Asked {
        let is_modern = peer.revision.family == Family::Modern;
        let capabilities = peer.capabilities.filter(|_| is_modern);
        Asked {
            rounds: capabilities.map(|capabilities| Rounds { capabilities, given: call.given }),
            id,
            tool: call.name,
            arguments: call.arguments,
            caller: Caller {
                principal: peer.principal,
                revision: peer.revision.date,
                session: SessionId::default(),
            },
            progress: None,
            answer: Answering { identity: Arc::clone(&self.identity), revision: peer.revision, method },
        }
    }
}

fn empty() -> Outcome {
    Outcome::Raw(b"{}".to_vec())
}

#[cfg(test)]
mod tests;
