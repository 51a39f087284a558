//! The path of one call: turn → validate → audit enter → dispatch → audit exit.
//!
//! Owns: the order of the five stages, and that nothing is served around them.
//! Uses: `tools` and `fleet` for what is served, the audit port for what is recorded.
//! Must not know: which face the call came from, or how a record is stored.

mod envelope;
mod method;
mod output;
mod proxied;
mod schemas;
mod turn;
mod validate;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::domain::audit::{
    AuditError, AuditSink, AuditTrouble, CallId, Enter, Exit, OnExitFailure, Outcome, Principal,
};
use crate::domain::clock::{Clock, Moment};
use crate::domain::contain::contain;
use crate::domain::face::SessionId;
use crate::domain::failure::{Failure, code, invalid_params};
use crate::domain::log::Logger;
use crate::domain::mode::Mode;
use crate::domain::nearest::nearest;
use crate::domain::offer::{Changes, Entries, Kind};
use crate::domain::tool::{Definition, Listed};
use crate::fleet::catalog::Proxied;
use crate::fleet::roster::Fleet;
use crate::mcp::lists::ToolList;
use crate::tools::{Context, Ready, Registry, Tool, ToolError};

pub use crate::fleet::inbox::Notice;
use envelope::{Ended, Form};
use method::Method;
use proxied::Servers;

/// On record for a name that no tool has.
const UNKNOWN_TOOL: &str = "UNKNOWN_TOOL";

/// One call, as it arrived.
#[derive(Debug)]
pub struct Call {
    /// Its correlation id.
    pub id: CallId,
    /// The tool's name, as the client gave it.
    pub tool: Arc<str>,
    /// The arguments as raw JSON, if there were any.
    pub arguments: Option<Bytes>,
    /// Who asks, and in which protocol revision.
    pub caller: Caller,
    /// When it arrived.
    pub arrived: Moment,
    /// Cancelled by the client or by a shutdown.
    pub cancel: CancellationToken,
    /// Where what a server says meanwhile goes: progress, log messages.
    notices: Option<mpsc::Sender<Notice>>,
    /// What a client of the newer family says with it.
    rounds: Option<Rounds>,
    /// Whether it is for a hidden tool; a client's call by name never is.
    hidden: bool,
    /// Its place in the tool's line, taken on arrival; none if no such tool is admitted.
    place: Option<turn::Place>,
}

/// Who asks.
#[derive(Clone, Debug)]
pub struct Caller {
    /// On whose behalf.
    pub principal: Arc<Principal>,
    /// The protocol revision, by its date.
    pub revision: &'static str,
    /// In which session.
    pub session: SessionId,
}

/// What a client of the newer family says with a call.
#[derive(Clone, Debug)]
pub struct Rounds {
    /// What it can be asked, raw.
    pub capabilities: Bytes,
    /// Its answers to what the tool wanted to know: members of the params, raw.
    pub given: Option<Bytes>,
}

/// What the face passes on to its client.
#[derive(Debug)]
pub enum Reply {
    /// The tool's envelope, as raw JSON, and whether it tells of an error.
    Envelope {
        /// `{ok:true,data}` or `{ok:false,error}`.
        body: Bytes,
        /// Whether the client must see an error.
        is_error: bool,
    },
    /// A server's whole result, as raw JSON.
    Result {
        /// To be passed on.
        body: Bytes,
        /// What colibri says beside it: how it breaks its tool's own output schema.
        note: Option<String>,
    },
    /// A server's JSON-RPC error, as raw JSON.
    Error {
        /// To be passed on.
        raw: Bytes,
    },
    /// No tool, prompt or resource has that name.
    UnknownTool {
        /// What to say, with the nearest known name if there is one.
        message: String,
    },
    /// The client cancelled it: nothing is to be answered.
    Cancelled,
}

/// What the call path is built from.
pub struct Parts {
    /// What is served.
    pub registry: Registry,
    /// The servers behind it.
    pub fleet: Option<Fleet>,
    /// Which of it is admitted.
    pub mode: Mode,
    /// Where calls are put on record.
    pub sink: Arc<dyn AuditSink>,
    /// See [`OnExitFailure`].
    pub on_exit_failure: OnExitFailure,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Where failures of the record are told.
    pub logger: Logger,
    /// Where they are published, for `server_health`.
    pub trouble: watch::Sender<Option<AuditTrouble>>,
}

/// A cheap handle to the call path.
#[derive(Clone)]
pub struct Calls(Arc<Path>);

struct Path {
    seats: BTreeMap<Arc<str>, Seat>,
    definitions: Arc<[Definition]>,
    native: Vec<Listed>,
    /// What is listed without servers.
    listed: Arc<ToolList>,
    servers: Option<Servers>,
    /// Never changes; for a path without servers.
    no_changes: watch::Sender<Changes>,
    mode: Mode,
    sink: Arc<dyn AuditSink>,
    on_exit_failure: OnExitFailure,
    clock: Arc<dyn Clock>,
    logger: Logger,
    trouble: watch::Sender<Option<AuditTrouble>>,
}

/// A tool with what the path keeps for it.
struct Seat {
    tool: Tool,
    turn: turn::Turn,
    arguments: validate::Arguments,
}

impl Calls {
    /// Compiles every schema once. A schema that does not compile is the tool author's mistake.
    pub fn new(parts: Parts) -> Result<Self, String> {
        let Parts { registry, fleet, mode, sink, on_exit_failure, clock, logger, trouble } = parts;
        let mut seats = BTreeMap::new();
        for tool in registry.into_tools() {
            let name = Arc::clone(&tool.definition.name);
            let arguments = validate::Arguments::compile(&tool.definition.input_schema)
                .map_err(|error| format!("the input schema of {name} does not compile: {error}"))?;
            seats.insert(name, Seat { tool, turn: turn::Turn::default(), arguments });
        }
        let admitted = seats.values().filter(|seat| seat.is_admitted(mode) && !seat.tool.hidden);
        let definitions: Arc<[Definition]> = admitted.map(|seat| seat.tool.definition.clone()).collect();
        let native = definitions.iter().map(|definition| Listed::Native(Arc::new(definition.clone())));
        let native: Vec<Listed> = native.collect();
        Ok(Self(Arc::new(Path {
            seats,
            definitions,
            listed: Arc::new(ToolList::new(native.clone())),
            native,
            servers: fleet.map(Servers::new),
            no_changes: watch::Sender::default(),
            mode,
            sink,
            on_exit_failure,
            clock,
            logger,
            trouble,
        })))
    }

    /// A fresh call, named and timed.
    pub fn arrival(
        &self,
        tool: &str,
        arguments: Option<Bytes>,
        caller: Caller,
        cancel: CancellationToken,
    ) -> Call {
        let (id, arrived) = (CallId(Uuid::now_v7()), self.0.clock.now());
        let seat = self.0.seats.get(tool).filter(|seat| !seat.tool.hidden && seat.is_admitted(self.0.mode));
        let place = seat.map(|seat| seat.turn.take_place());
        Call { place, ..Call::new(id, tool, arguments, caller, arrived, cancel) }
    }

    /// Whether the mode admits a hidden tool of that name.
    pub fn has_method(&self, name: &str) -> bool {
        self.0.admit(name, true).is_ok()
    }

    /// The native tools that the mode admits, ordered by name.
    pub fn definitions(&self) -> Arc<[Definition]> {
        Arc::clone(&self.0.definitions)
    }

    /// All tools that can be called, ordered by name.
    pub fn listed(&self) -> Arc<ToolList> {
        let path = &*self.0;
        let admits = |tool: &Proxied| path.mode.admits(&tool.name, !tool.read_only);
        match &path.servers {
            Some(servers) => servers.listed(&path.native, admits),
            None => Arc::clone(&path.listed),
        }
    }

    /// What servers offer of another kind, in the order of the configuration.
    pub fn entries(&self, kind: Kind) -> Entries {
        let catalog = self.0.servers.as_ref().map(|servers| servers.fleet.catalog());
        catalog.map(|catalog| Arc::clone(catalog.borrow().entries(kind))).unwrap_or_default()
    }

    /// What clients are told about the servers; nothing if there are none.
    pub fn instructions(&self) -> Option<Arc<str>> {
        let servers = self.0.servers.as_ref().filter(|servers| servers.fleet.has_servers())?;
        Some(Arc::clone(servers.fleet.catalog().borrow().instructions()))
    }

    /// Changes whenever one of these lists does.
    pub fn list_changes(&self) -> watch::Receiver<Changes> {
        self.0
            .servers
            .as_ref()
            .map_or_else(|| self.0.no_changes.subscribe(), |servers| servers.fleet.changes())
    }

    /// Tells all servers something of the client's.
    pub fn tell_servers(&self, method: &'static str) {
        if let Some(servers) = &self.0.servers {
            servers.fleet.tell(method);
        }
    }

    /// Tells all servers how severe a log message must be to be sent.
    pub fn log_level(&self, level: &'static str) {
        if let Some(servers) = &self.0.servers {
            servers.fleet.log_level(level);
        }
    }

    /// The path of every call, in contract order. Nothing is served around it.
    pub async fn run(&self, mut call: Call) -> Reply {
        let path = &*self.0;
        if let Some(servers) = &path.servers
            && let Some(method) = Method::of(&call, path.seats.contains_key(&call.tool))
        {
            // On the heap, like what follows: a call of colibri's own is not to carry what only a server's needs.
            return Box::pin(path.run_method(servers, call, method)).await;
        }
        if let Some(servers) = path.asked(&call)
            && let Some(found) = Box::pin(servers.found(&call)).await
        {
            return Box::pin(path.run_proxied(servers, call, found)).await;
        }
        let enter = call.enter();
        let seat = match path.admit(&call.tool, call.hidden) {
            Ok(seat) => seat,
            Err(refused) => return path.reject(&enter, refused).await,
        };
        let place = call.place.take().unwrap_or_else(|| seat.turn.take_place());
        let Some(_turn) = place.wait(&call.cancel).await else {
            return path.reject(&enter, Refused::Cancelled).await;
        };
        let ready = match seat.validate(&enter.arguments) {
            Ok(ready) => ready,
            Err(failure) => return path.reject(&enter, Refused::Failed(failure)).await,
        };
        if let Err(error) = path.sink.enter(&enter).await {
            return path.not_recorded(&enter, &error).await; // A call we cannot record does not run.
        }
        let context = Context::new(call.id, call.arrived, call.cancel.clone());
        let ended = dispatch(ready, context, path.mode).await;
        path.exit(&enter, ended).await
    }
}

impl Call {
    /// A call that holds no place in any line yet; [`Calls::arrival`] also takes one.
    pub fn new(
        id: CallId,
        tool: &str,
        arguments: Option<Bytes>,
        caller: Caller,
        arrived: Moment,
        cancel: CancellationToken,
    ) -> Self {
        let (notices, rounds, hidden, place) = (None, None, false, None);
        Self { id, tool: tool.into(), arguments, caller, arrived, cancel, notices, rounds, hidden, place }
    }

    /// The same, with an ear for what a server says meanwhile. A listener that does not keep up misses some.
    #[must_use]
    pub fn with_notices(self, notices: mpsc::Sender<Notice>) -> Self {
        Self { notices: Some(notices), ..self }
    }

    /// The same, of a client that is not asked but calls again with what a tool wanted to know.
    #[must_use]
    pub fn with_rounds(self, rounds: Option<Rounds>) -> Self {
        Self { rounds, ..self }
    }

    /// The same, for a hidden tool: what a method of the protocol, or a command, is answered with.
    #[must_use]
    pub fn of_method(self) -> Self {
        Self { hidden: true, ..self }
    }

    /// The call as the record sees it. Absent arguments are an empty object.
    fn enter(&self) -> Enter {
        let arguments = self.arguments.clone().unwrap_or_else(|| Bytes::from_static(b"{}"));
        let Caller { principal, revision, .. } = &self.caller;
        Enter::new(self.id, Arc::clone(&self.tool), arguments, Arc::clone(principal), revision, self.arrived)
    }
}

impl Seat {
    fn is_admitted(&self, mode: Mode) -> bool {
        mode.admits(&self.tool.definition.name, self.tool.mutates)
    }

    /// Stage 2, up to the point where only running is left.
    fn validate(&self, arguments: &Bytes) -> Result<Ready, Failure> {
        let value = self.arguments.check(arguments).map_err(|wrong| invalid_params(wrong.issues()))?;
        let parsed = self.tool.prepare(value);
        parsed.map_err(|error| invalid_params(vec![validate::whole(error.to_string())]))
    }
}

/// Stage 4. A panic is an outcome too, and so is a client that no longer wants the answer.
async fn dispatch(ready: Ready, context: Context, mode: Mode) -> Ended {
    let cancel = context.cancel.clone();
    // Cancelling is inside the containment: it drops the handler, which may panic too.
    let handler = async move { cancel.run_until_cancelled(async move { ready(context).await }).await };
    let (message, details, backtrace) = match contain(handler).await {
        Ok(Some(Ok(data))) => return Ended::ok(&data),
        Ok(Some(Err(ToolError::Refused(refusal)))) => return Ended::refused(refusal),
        Ok(Some(Err(ToolError::Failed { message, details, backtrace }))) => {
            (message, details, mode.shows_backtraces().then(|| backtrace.to_string()))
        }
        Ok(None) => {
            let failure = Failure::new(code::HANDLER_ERROR, "cancelled while it ran");
            return Ended::failed(Outcome::Cancelled, failure);
        }
        Err(panicked) => (format!("the tool panicked: {}", panicked.message), None, panicked.backtrace),
    };
    let mut failure = Failure::new(code::HANDLER_ERROR, message);
    failure.details = details.map(as_object);
    if let Some(backtrace) = backtrace.filter(|_| mode.shows_backtraces()) {
        let details = failure.details.get_or_insert_with(|| json!({}));
        details["backtrace"] = backtrace.into();
    }
    Ended::failed(Outcome::Error, failure)
}

/// What else is known of a failure has names, whatever the tool handed in.
fn as_object(details: Value) -> Value {
    if details.is_object() { details } else { json!({ "details": details }) }
}

/// Why a call never came to stage 3.
enum Refused {
    Unknown { code: &'static str, message: String },
    Failed(Failure),
    Cancelled,
}

impl Path {
    /// The servers, if one of them may have what is asked for; colibri's own names are never a server's.
    fn asked(&self, call: &Call) -> Option<&Servers> {
        self.servers.as_ref().filter(|_| !call.hidden && !self.seats.contains_key(&call.tool))
    }

    fn admit(&self, name: &str, hidden: bool) -> Result<&Seat, Refused> {
        let Some(seat) = self.seats.get(name).filter(|seat| seat.tool.hidden == hidden) else {
            let catalog = self.servers.as_ref().map(|servers| Arc::clone(&servers.fleet.catalog().borrow()));
            let proxied = catalog.iter().flat_map(|catalog| catalog.tools().iter().map(|tool| &*tool.name));
            let native = self.definitions.iter().map(|definition| &*definition.name);
            let hint = nearest(name, native.chain(proxied));
            let hint = hint.map(|known| format!("; did you mean `{known}`?")).unwrap_or_default();
            let shown: String = name.chars().take(128).collect();
            let message = format!("unknown tool `{shown}`{hint}");
            return Err(Refused::Unknown { code: UNKNOWN_TOOL, message });
        };
        if seat.is_admitted(self.mode) {
            return Ok(seat);
        }
        let message =
            format!("`{name}` is not admitted in mode {}; set COLIBRI_MODE=FULL to use it", self.mode);
        Err(Refused::Failed(Failure::new(code::TOOL_NOT_ADMITTED, message)))
    }

    /// Stage 5 of a call that was refused: the whole pair at once. The client gets its answer
    /// even if the record fails, since nothing ran.
    async fn reject(&self, enter: &Enter, refused: Refused) -> Reply {
        let (ended, reply) = match refused {
            Refused::Unknown { code, message } => {
                let ended = Ended::failed(Outcome::Rejected, Failure::new(code, message.clone()));
                (ended, Some(Reply::UnknownTool { message }))
            }
            Refused::Failed(failure) => (Ended::failed(Outcome::Rejected, failure), None),
            Refused::Cancelled => {
                let failure = Failure::new(code::HANDLER_ERROR, "cancelled while it waited for its turn");
                (Ended::failed(Outcome::Cancelled, failure), None)
            }
        };
        let exit = ended.exit(enter, self.clock.now());
        if let Err(error) = self.sink.rejected(enter, &exit).await {
            self.tell(enter, "the record of a rejected call", &error);
        }
        reply.unwrap_or_else(|| ended.reply())
    }

    /// Stage 3 failed. The sink is still told of the end; it knows that nothing was entered.
    async fn not_recorded(&self, enter: &Enter, error: &AuditError) -> Reply {
        self.tell(enter, "audit enter", error);
        let message = format!("the call was not run, because it could not be put on record: {error}");
        let ended = Ended::failed(Outcome::Error, Failure::new(code::AUDIT_ENTER_FAILED, message));
        let exit = ended.exit(enter, self.clock.now());
        if let Err(error) = self.sink.exit(&exit).await {
            self.tell(enter, "audit exit", &error);
        }
        ended.reply()
    }

    /// Stage 5. Its failure is told; the call's own outcome stands, unless configured otherwise.
    async fn exit(&self, enter: &Enter, ended: Ended) -> Reply {
        let exit = ended.exit(enter, self.clock.now());
        let Err(error) = self.sink.exit(&exit).await else { return ended.reply() };
        self.tell(enter, "audit exit", &error);
        match self.on_exit_failure {
            OnExitFailure::Log => ended.reply(),
            OnExitFailure::Fail => {
                let message =
                    format!("the call ran ({}), but its end is not on record: {error}", ended.outcome.name());
                Ended::failed(Outcome::Error, Failure::new(code::AUDIT_EXIT_FAILED, message)).reply()
            }
        }
    }

    fn tell(&self, enter: &Enter, stage: &str, error: &AuditError) {
        let message = format!("{stage} failed for {} {}: {error}", enter.tool, enter.call);
        self.logger.error(format_args!("[colibri] {message}"));
        self.trouble.send_replace(Some(AuditTrouble { at: self.clock.now().wall, message }));
    }
}

impl Ended {
    fn exit(&self, enter: &Enter, at: Moment) -> Exit {
        Exit::of(enter, at, self.outcome, self.body.clone(), self.error.clone())
    }

    fn reply(self) -> Reply {
        match self.outcome {
            Outcome::Cancelled => Reply::Cancelled,
            _ if self.form == Form::Result => Reply::Result { body: self.body, note: self.note },
            _ if self.form == Form::Error => Reply::Error { raw: self.body },
            _ => Reply::Envelope { is_error: self.error.is_some(), body: self.body },
        }
    }
}
