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
use crate::domain::offer::{Entries, Kind};
use crate::mcp::answer::{self, Identity};
use crate::mcp::envelope::{Id, Message};
use crate::mcp::error::Error;
use crate::mcp::listen::{Filter, LISTEN};
use crate::mcp::lists::{self, PAGE_BYTES_MAX};
use crate::mcp::params::{self, LogLevel, Meta, ToolCall};
use crate::mcp::resources;
use crate::mcp::revision::{Family, Revision, known, negotiate};

use super::Menu;
use super::listening::Listen;

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
    Call(Box<Asked>),
    /// A request that stays open, to hear of changes.
    Listen(Listen),
    /// The end of a call, or of listening.
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
    /// The method, if it is one that a hidden tool or a server answers.
    method: Option<&'static str>,
    /// What servers list, to stand behind what the method lists.
    behind: Option<Entries>,
    /// What the method was asked.
    arguments: Option<Bytes>,
}

impl Answering {
    /// The answer to a call that ended with an envelope.
    pub(super) fn envelope(&self, id: &Id, body: &[u8], is_error: bool, correlation_id: &str) -> Bytes {
        let Some(method) = self.method else {
            return answer::success(id, &self.identity.called(body, is_error, correlation_id, self.revision));
        };
        let behind = self.behind.as_deref();
        match resources::result(method, body, behind, correlation_id, &self.identity, self.revision) {
            Ok(result) => answer::success(id, &result),
            Err(error) => answer::failure(Some(id), &error),
        }
    }

    /// The answer to a call of a server's tool or method: its result as it came.
    pub(super) fn result(&self, id: &Id, result: &Bytes, correlation_id: &str, note: Option<&str>) -> Bytes {
        let result = self.identity.passed_on(result, self.method, correlation_id, self.revision);
        match note {
            Some(note) => answer::success(id, &answer::noted(&result, note)),
            None => answer::success(id, &result),
        }
    }

    /// The answer to a call of what nobody has.
    pub(super) fn unknown(&self, id: &Id, message: String) -> Bytes {
        let error = resources::unknown(self.method, self.arguments.as_deref(), message, self.revision);
        answer::failure(Some(id), &error)
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
    Call(Peer, ToolCall),
    Listen(Filter, &'static Revision),
    /// With what servers list behind it, if it is a list.
    Method(Peer, &'static str, Bytes, Option<Entries>),
}

type Params<'a> = Option<&'a Bytes>;

impl Session {
    pub(super) fn new(identity: Arc<Identity>, user: String) -> Self {
        Self { identity, user, legacy: None }
    }

    /// Whether the client may send several messages as one array.
    pub(super) fn batching(&self) -> bool {
        self.legacy.as_ref().is_some_and(|peer| peer.revision.batching)
    }

    /// Whether the client is to be told of every list that has changed: one that has begun a session. The newer
    /// family is told what it asks for, and to keep no list where there are servers.
    pub(super) fn hears_changes(&self) -> bool {
        self.legacy.is_some()
    }

    /// What a client that asks for it hears of: without servers nothing changes. Changes of single resources are not
    /// among it.
    fn told(&self) -> Filter {
        if self.identity.servers { Filter::ALL } else { Filter::default() }
    }

    /// What the client of a session can be asked, raw; nothing if none has begun.
    pub(super) fn abilities(&self) -> Option<Bytes> {
        let legacy = self.legacy.as_ref()?;
        Some(legacy.capabilities.clone().unwrap_or_else(|| Bytes::from_static(b"{}")))
    }

    /// What a message leads to.
    pub(super) fn accept(&mut self, message: Message, menu: &dyn Menu) -> Step {
        match message {
            Message::Request { id, method, params } => self
                .request(id.clone(), &method, params.as_ref(), menu)
                .unwrap_or_else(|error| Step::Answer(answer::failure(Some(&id), &error))),
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

    fn request(&mut self, id: Id, method: &str, params: Params<'_>, menu: &dyn Menu) -> Result<Step, Error> {
        let mut meta = params::meta(params)?;
        let progress = meta.progress_token.take();
        let outcome = if meta.version.is_some() {
            self.modern(method, params, meta, menu)
        } else {
            self.legacy(method, params, menu)
        };
        Ok(match outcome? {
            Outcome::Raw(result) => Step::Answer(answer::success(&id, &result)),
            Outcome::Value(result) => Step::Answer(answer::value(&id, &result)),
            Outcome::LogLevel(level) => Step::LogLevel(level.name(), answer::success(&id, b"{}")),
            Outcome::Listen(filter, revision) => {
                Step::Listen(Listen { id, filter, identity: Arc::clone(&self.identity), revision })
            }
            Outcome::Call(peer, call) => Step::Call(Box::new(self.ask(id, peer, call, progress, None, None))),
            Outcome::Method(peer, method, arguments, behind) => {
                let call = ToolCall { name: method.to_owned(), arguments: Some(arguments), given: None };
                Step::Call(Box::new(self.ask(id, peer, call, progress, Some(method), behind)))
            }
        })
    }

    fn modern(
        &self,
        method: &str,
        params: Params<'_>,
        meta: Meta,
        menu: &dyn Menu,
    ) -> Result<Outcome, Error> {
        let version = meta.version.unwrap_or_default();
        let revision = known(&version, Family::Modern).ok_or_else(|| Error::unsupported_version(&version))?;
        let Some(capabilities) = meta.capabilities else {
            return Err(Error::invalid_params(NO_CAPABILITIES));
        };
        match method {
            "server/discover" => {
                Ok(Outcome::Value(self.identity.discover(menu.instructions().as_deref(), revision)))
            }
            "tools/list" => self.list(params, revision, menu),
            LISTEN => Ok(Outcome::Listen(Filter::asked(params)?.and(self.told()), revision)),
            "tools/call" => {
                let peer = self.peer(revision, meta.client);
                let peer = Peer { capabilities: Some(capabilities), ..peer };
                Ok(Outcome::Call(peer, params::tool_call(params)?))
            }
            _ => self.other(method, params, &self.peer(revision, meta.client), menu),
        }
    }

    fn legacy(&mut self, method: &str, params: Params<'_>, menu: &dyn Menu) -> Result<Outcome, Error> {
        match (method, &self.legacy) {
            ("initialize", None) => self.initialize(params, menu),
            ("initialize", Some(_)) => Err(Error::invalid_request("the session has already begun")),
            ("ping", _) => Ok(empty()),
            (_, None) => Err(Error::invalid_params(NOT_BEGUN)),
            ("logging/setLevel", Some(_)) => params::level(params).map(Outcome::LogLevel),
            ("tools/list", Some(peer)) => self.list(params, peer.revision, menu),
            ("tools/call", Some(peer)) => Ok(Outcome::Call(peer.clone(), params::tool_call(params)?)),
            (_, Some(peer)) => self.other(method, params, peer, menu),
        }
    }

    /// The methods of skills, resources, prompts and completions, where there are any.
    fn other(
        &self,
        method: &str,
        params: Params<'_>,
        peer: &Peer,
        menu: &dyn Menu,
    ) -> Result<Outcome, Error> {
        let Identity { skills, servers, .. } = *self.identity;
        let is_legacy = peer.revision.family == Family::Legacy;
        let known = resources::METHODS.into_iter().chain(resources::FORWARDED);
        let known = known.into_iter().find(|known| *known == method);
        let call = |method, arguments| Ok(Outcome::Method(peer.clone(), method, arguments, None));
        match (method, known) {
            ("resources/list", _) if skills || servers => self.resources(params, peer, menu),
            ("resources/templates/list", _) if skills || servers => {
                self.entries(Kind::Templates, params, peer.revision, menu)
            }
            ("prompts/list", _) if servers => self.entries(Kind::Prompts, params, peer.revision, menu),
            ("prompts/get", Some(method)) if servers => call(method, params::prompt(params)?),
            ("completion/complete", Some(method)) if servers => call(method, params::completion(params)?),
            ("resources/read", Some(method)) if skills || servers => call(method, params::resource(params)?),
            ("resources/subscribe" | "resources/unsubscribe", Some(method)) if servers && is_legacy => {
                call(method, params::resource(params)?)
            }
            ("skills/list" | "skills/get" | "resources/directory/read", Some(method)) if skills => {
                call(method, params::resource(params)?)
            }
            _ => Err(Error::unknown_method(method)),
        }
    }

    /// Colibri's own resources first, by a call, and those of servers behind them.
    fn resources(&self, params: Params<'_>, peer: &Peer, menu: &dyn Menu) -> Result<Outcome, Error> {
        let cursor = params::cursor(params)?;
        if !self.identity.skills || cursor.as_deref().is_some_and(lists::is_of_entries) {
            return self.entries(Kind::Resources, params, peer.revision, menu);
        }
        let behind = self.identity.servers.then(|| menu.entries(Kind::Resources));
        Ok(Outcome::Method(peer.clone(), "resources/list", params::resource(params)?, behind))
    }

    fn entries(
        &self,
        kind: Kind,
        params: Params<'_>,
        revision: &Revision,
        menu: &dyn Menu,
    ) -> Result<Outcome, Error> {
        let cursor = params::cursor(params)?;
        let (listed, identity) = (menu.entries(kind), &self.identity);
        lists::entries(kind, &listed, cursor.as_deref(), identity, revision, PAGE_BYTES_MAX).map(Outcome::Raw)
    }

    fn initialize(&mut self, params: Params<'_>, menu: &dyn Menu) -> Result<Outcome, Error> {
        let asked = params::initialize(params)?;
        let revision = negotiate(&asked.version);
        let peer = self.peer(revision, asked.client);
        self.legacy = Some(Peer { capabilities: asked.capabilities, ..peer });
        Ok(Outcome::Value(self.identity.initialize(menu.instructions().as_deref(), revision)))
    }

    fn list(&self, params: Params<'_>, revision: &Revision, menu: &dyn Menu) -> Result<Outcome, Error> {
        let cursor = params::cursor(params)?;
        let page = menu.listed().page(cursor.as_deref(), &self.identity, revision, PAGE_BYTES_MAX);
        page.map(Outcome::Raw)
    }

    fn peer(&self, revision: &'static Revision, client: Option<String>) -> Peer {
        let client = client.filter(|name| !name.is_empty()).unwrap_or_else(|| NAMELESS.to_owned());
        let principal = Arc::new(Principal { client, user: self.user.clone() });
        Peer { revision, principal, capabilities: None }
    }

    fn ask(
        &self,
        id: Id,
        peer: Peer,
        call: ToolCall,
        progress: Option<Id>,
        method: Option<&'static str>,
        behind: Option<Entries>,
    ) -> Asked {
        let is_modern = peer.revision.family == Family::Modern;
        let capabilities = peer.capabilities.filter(|_| is_modern);
        let asked = call.arguments.clone().filter(|_| method.is_some());
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
            progress,
            answer: Answering {
                identity: Arc::clone(&self.identity),
                revision: peer.revision,
                method,
                behind,
                arguments: asked,
            },
        }
    }
}

fn empty() -> Outcome {
    Outcome::Raw(b"{}".to_vec())
}

#[cfg(test)]
mod tests;
