//! The library's face: a server that one builds, gives tools, starts and stops.

use std::io::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::call::{Calls, Parts};
use crate::domain::audit::{AuditSink, AuditTrouble, NoAudit, OnExitFailure};
use crate::domain::clock::Clock;
use crate::domain::face::SessionId;
use crate::domain::health::ServerFacts;
use crate::domain::log::{Level, Logger, visible};
use crate::domain::mode::Mode;
use crate::domain::skill::Places;
use crate::fleet::roster::Fleet;
use crate::mcp::answer::Identity;
use crate::mcp::resources::METHODS;
use crate::serve::{self, Ended, Front, Limits, Settings, Transport};
use crate::store::Store;
use crate::tools::server::Facts;
use crate::tools::skills::Skills;
use crate::tools::{
    Context, RegisterError, Registry, ToolConfig, ToolError, proofs, server, tasks, thoughts,
};

use super::clock::SystemClock;
use super::handlers;

/// What models are told before they use the tools.
const INSTRUCTIONS: &str = "colibri runs your tools, and keeps a record of every call that anyone can verify. \
     Use server_health to see what is available and whether it works.";

/// How long servers may take to end. Clients kill a colibri that takes much longer, and its ledger comes after.
const SERVERS_GRACE: Duration = Duration::from_millis(1200);

/// How long a client waits, at most, for the lists that servers had in another run.
const RECALL_WITHIN: Duration = Duration::from_millis(300);

/// The default of `COLIBRI_STARTUP_TIMEOUT_MS`.
pub const STARTUP_TIMEOUT: Duration = Duration::from_secs(30);

/// Starts the servers.
type Servers = Box<dyn FnOnce(Berth) -> Option<Fleet> + Send>;

/// What servers get of the colibri that they are behind.
pub struct Berth {
    /// Its own names, which no tool of theirs may take.
    pub reserved: Vec<Arc<str>>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Where it is told how they are.
    pub health: watch::Sender<Vec<ServerFacts>>,
    /// The client, as they reach it.
    pub front: Front,
    /// Cancelled when colibri is told to stop.
    pub stopping: CancellationToken,
}

type Connect = Pin<Box<dyn Future<Output = std::io::Result<Transport>> + Send>>;

/// How a server is to be built. Every option has a default; see [`Server::builder`].
pub struct Builder {
    sink: Arc<dyn AuditSink>,
    store: Option<Store>,
    skills: Places,
    fleet: Option<Servers>,
    connect: Option<Connect>,
    version: Arc<str>,
    mode: Mode,
    clock: Option<Arc<dyn Clock>>,
    boot: Option<Duration>,
    logger: Logger,
    install_handlers: bool,
    startup_timeout: Duration,
    on_exit_failure: OnExitFailure,
    require_session: bool,
    user: String,
    limits: Limits,
}

impl Builder {
    /// Where calls are put on record. Default: nowhere.
    #[must_use]
    pub fn audit_sink(mut self, sink: impl AuditSink) -> Self {
        self.sink = Arc::new(sink);
        self
    }

    /// The store behind tasks, thoughts, proofs and skills, which `server_health` tells of. Default: none,
    /// and none of those tools.
    #[must_use]
    pub fn store(mut self, store: Store) -> Self {
        self.store = Some(store);
        self
    }

    /// Where skills are looked for. Default: nowhere.
    #[must_use]
    pub fn skills(mut self, places: Places) -> Self {
        self.skills = places;
        self
    }

    /// The servers behind it, which this starts when the server starts. Default: none.
    #[must_use]
    pub fn servers(mut self, start: impl FnOnce(Berth) -> Option<Fleet> + Send + 'static) -> Self {
        self.fleet = Some(Box::new(start));
        self
    }

    /// Who is served. Default: the process's stdin and stdout.
    #[must_use]
    pub fn transport(self, transport: Transport) -> Self {
        self.transport_from(std::future::ready(Ok(transport)))
    }

    /// The same, for a transport that is not there yet. [`Server::start`] waits for it.
    #[must_use]
    pub fn transport_from(
        mut self,
        connect: impl Future<Output = std::io::Result<Transport>> + Send + 'static,
    ) -> Self {
        self.connect = Some(Box::pin(connect));
        self
    }

    /// The version to tell clients. Default: this package's.
    #[must_use]
    pub fn version(mut self, version: &str) -> Self {
        self.version = version.into();
        self
    }

    /// How much of the surface is offered. Default: all of it.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Time. Default: the operating system's.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// When the server began, on the monotonic clock. Default: when it is built.
    #[must_use]
    pub fn boot(mut self, boot: Duration) -> Self {
        self.boot = Some(boot);
        self
    }

    /// Where lines for people go. Default: stderr.
    #[must_use]
    pub fn logger(mut self, logger: Logger) -> Self {
        self.logger = logger;
        self
    }

    /// Whether [`Server::start`] takes over panics and signals. Default: yes.
    #[must_use]
    pub fn install_handlers(mut self, install: bool) -> Self {
        self.install_handlers = install;
        self
    }

    /// How long [`Server::start`] may take. Default: [`STARTUP_TIMEOUT`].
    #[must_use]
    pub fn startup_timeout(mut self, timeout: Duration) -> Self {
        self.startup_timeout = timeout;
        self
    }

    /// What to do when the end of a call cannot be put on record. Default: log it.
    #[must_use]
    pub fn on_exit_failure(mut self, policy: OnExitFailure) -> Self {
        self.on_exit_failure = policy;
        self
    }

    /// Whether every thought must name a session. Default: no.
    #[must_use]
    pub fn require_session(mut self, require: bool) -> Self {
        self.require_session = require;
        self
    }

    /// The operating-system user to put on record.
    #[must_use]
    pub fn user(mut self, user: &str) -> Self {
        user.clone_into(&mut self.user);
        self
    }

    /// The bounds of a connection.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Builds the server with its native tools. Connects nothing, installs
    /// nothing, reads no environment.
    pub fn build(self) -> Server {
        let clock = self.clock.unwrap_or_else(|| Arc::new(SystemClock::start()));
        let boot = self.boot.unwrap_or_else(|| clock.now().since_boot);
        let (trouble, last_trouble) = watch::channel(None);
        let (admitted, admitted_now) = watch::channel(Vec::new());
        let (servers, servers_now) = watch::channel(Vec::new());
        let mut registry = Registry::default();
        let skills = self.store.clone().map(|store| Skills::new(self.skills, store));
        let facts = Facts {
            version: Arc::clone(&self.version),
            mode: self.mode,
            clock: Arc::clone(&clock),
            boot,
            store: self.store.clone(),
            skills,
            admitted: admitted_now,
            trouble: last_trouble,
            servers: servers_now,
        };
        native_tools(&mut registry, facts, self.require_session).expect("native names differ");
        Server {
            version: self.version,
            mode: self.mode,
            logger: self.logger,
            install_handlers: self.install_handlers,
            startup_timeout: self.startup_timeout,
            limits: self.limits,
            user: self.user,
            stop: CancellationToken::new(),
            state: State::Built(Box::new(Plan {
                registry,
                sink: self.sink,
                on_exit_failure: self.on_exit_failure,
                clock,
                trouble,
                admitted,
                servers,
                fleet: self.fleet,
                connect: self.connect,
            })),
        }
    }
}

/// Every tool of colibri's own. Those that remember need a store.
fn native_tools(registry: &mut Registry, facts: Facts, require_session: bool) -> Result<(), RegisterError> {
    if let Some(store) = &facts.store {
        tasks::register(registry, store, facts.mode)?;
        thoughts::register(registry, store, require_session)?;
        proofs::register(registry, store)?;
    }
    if let Some(skills) = &facts.skills {
        skills.register(registry)?;
    }
    server::register(registry, facts)
}

/// A server that is built, runs, or has ended.
pub struct Server {
    version: Arc<str>,
    mode: Mode,
    logger: Logger,
    install_handlers: bool,
    startup_timeout: Duration,
    limits: Limits,
    user: String,
    stop: CancellationToken,
    state: State,
}

enum State {
    Built(Box<Plan>),
    Running(JoinHandle<std::io::Result<Ended>>),
    Over,
}

/// What a server that has not started keeps.
struct Plan {
    registry: Registry,
    sink: Arc<dyn AuditSink>,
    on_exit_failure: OnExitFailure,
    clock: Arc<dyn Clock>,
    trouble: watch::Sender<Option<AuditTrouble>>,
    admitted: watch::Sender<Vec<Arc<str>>>,
    servers: watch::Sender<Vec<ServerFacts>>,
    fleet: Option<Servers>,
    connect: Option<Connect>,
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// [`Builder::startup_timeout`] passed.
    #[error("startup timeout exceeded")]
    Timeout,
    /// The client cannot be reached.
    #[error("cannot connect the transport")]
    Transport(#[source] std::io::Error),
    /// Signals cannot be handled.
    #[error("cannot handle signals")]
    Signals(#[source] std::io::Error),
    /// A tool is not what it says.
    #[error("{0}")]
    Tool(String),
    /// A server starts once.
    #[error("the server has ended; build another")]
    Over,
}

impl Server {
    /// All options at their defaults.
    pub fn builder() -> Builder {
        Builder {
            sink: Arc::new(NoAudit),
            store: None,
            skills: Places::default(),
            fleet: None,
            connect: None,
            version: env!("CARGO_PKG_VERSION").into(),
            mode: Mode::default(),
            clock: None,
            boot: None,
            logger: stderr_logger(Level::Info),
            install_handlers: true,
            startup_timeout: STARTUP_TIMEOUT,
            on_exit_failure: OnExitFailure::default(),
            require_session: false,
            user: "unknown".to_owned(),
            limits: Limits::default(),
        }
    }

    /// The version told to clients.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether a client is being served.
    pub fn is_connected(&self) -> bool {
        matches!(&self.state, State::Running(task) if !task.is_finished())
    }

    /// Makes a function a tool; before [`Server::start`]. See [`Registry::register`].
    pub fn register<A, O, F, Fut>(
        &mut self,
        name: &str,
        config: ToolConfig,
        function: F,
    ) -> Result<(), RegisterError>
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        O: Serialize + JsonSchema,
        F: Fn(A, Context) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<O, ToolError>> + Send + 'static,
    {
        match &mut self.state {
            State::Built(plan) => plan.registry.register(name, config, function),
            State::Running(_) | State::Over => Err(RegisterError::TooLate(name.to_owned())),
        }
    }

    /// Starts serving and returns when the transport runs; it waits for no message of the client.
    /// Starting a running server does nothing.
    pub async fn start(&mut self) -> Result<(), StartError> {
        let plan = match std::mem::replace(&mut self.state, State::Over) {
            State::Built(plan) => plan,
            running @ State::Running(_) => {
                self.state = running;
                return Ok(());
            }
            State::Over => return Err(StartError::Over),
        };
        if self.install_handlers {
            handlers::install_panic_hook(&self.logger);
            handlers::stop_on_signals(self.stop.clone()).map_err(StartError::Signals)?;
        }
        self.logger.info(format_args!("[colibri] starting in mode={} version={}", self.mode, self.version));
        let started = tokio::time::timeout(self.startup_timeout, self.connect(*plan)).await;
        self.state = State::Running(started.map_err(|_| StartError::Timeout)??);
        self.logger.info(format_args!("[colibri] ready"));
        Ok(())
    }

    /// The call path alone, for who serves calls without a transport.
    pub fn into_calls(self) -> Result<Calls, StartError> {
        match self.state {
            State::Built(plan) => plan
                .into_calls(self.mode, &Front::of_nobody(), self.stop, &self.logger)
                .map(|(calls, ..)| calls),
            State::Running(_) | State::Over => Err(StartError::Over),
        }
    }

    async fn connect(&self, plan: Plan) -> Result<JoinHandle<std::io::Result<Ended>>, StartError> {
        let front = Front::default();
        let (calls, fleet, connect) = plan.into_calls(self.mode, &front, self.stop.clone(), &self.logger)?;
        let transport = match connect {
            Some(connect) => connect.await,
            None => Transport::stdio(),
        };
        let transport = transport.map_err(StartError::Transport)?;
        let identity = Identity {
            version: self.version.to_string(),
            instructions: INSTRUCTIONS.to_owned(),
            skills: METHODS.iter().all(|method| calls.has_method(method)),
            servers: fleet.is_some(),
        };
        let settings = Settings { identity, user: self.user.clone(), limits: self.limits, front };
        let serving = serve::run(transport, calls, settings, self.logger.clone(), self.stop.clone());
        if let Some(fleet) = &fleet {
            let _ = tokio::time::timeout(RECALL_WITHIN, fleet.recalled()).await;
        }
        let attached = fleet.as_ref().map(|fleet| fleet.attach(SessionId::default()));
        Ok(tokio::spawn(async move {
            let ended = serving.await;
            drop(attached);
            // No call is left that could need one of them. What does not end in time ends with colibri.
            if let Some(fleet) = fleet {
                let _ = tokio::time::timeout(SERVERS_GRACE, fleet.close()).await;
            }
            ended
        }))
    }

    /// Waits until the client leaves, a signal comes, or [`Server::stop`] is called elsewhere.
    pub async fn wait(&mut self) -> Option<Ended> {
        let State::Running(task) = &mut self.state else { return None };
        let ended = task.await;
        self.state = State::Over;
        match ended {
            Ok(Ok(ended)) => Some(ended),
            Ok(Err(error)) => {
                self.logger.error(format_args!("[colibri] the transport failed: {error}"));
                None
            }
            Err(error) => {
                self.logger.error(format_args!("[colibri] the connection broke: {error}"));
                None
            }
        }
    }

    /// Takes no new requests, ends the calls in flight within 1.5 s, and closes the transport.
    /// Stopping twice, or before starting, does nothing more.
    pub async fn stop(&mut self) {
        self.stop.cancel();
        self.wait().await;
    }

    /// Cancelling it stops the server; for who cannot reach [`Server::stop`].
    pub fn stopper(&self) -> CancellationToken {
        self.stop.clone()
    }
}

impl Plan {
    fn into_calls(
        self,
        mode: Mode,
        front: &Front,
        stopping: CancellationToken,
        logger: &Logger,
    ) -> Result<(Calls, Option<Fleet>, Option<Connect>), StartError> {
        let Self { registry, sink, on_exit_failure, clock, trouble, admitted, servers, fleet, connect } =
            self;
        let reserved = registry.names().map(|(name, _)| name.into()).collect();
        let berth =
            Berth { reserved, clock: Arc::clone(&clock), health: servers, front: front.clone(), stopping };
        let fleet = fleet.and_then(|start| start(berth));
        let logger = logger.clone();
        let behind = fleet.clone();
        let parts = Parts { registry, fleet, mode, sink, on_exit_failure, clock, logger, trouble };
        let calls = Calls::new(parts).map_err(StartError::Tool)?;
        admitted.send_replace(calls.definitions().iter().map(|tool| Arc::clone(&tool.name)).collect());
        Ok((calls, behind, connect))
    }
}

/// A logger that writes to stderr, one line each, and never fails a call over it.
pub fn stderr_logger(threshold: Level) -> Logger {
    Logger::new(threshold, |_, line| drop(writeln!(std::io::stderr(), "{}", visible(line))))
}
