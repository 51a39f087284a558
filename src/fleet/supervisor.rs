//! One server, supervised: one task, one loop. The state machine in `domain::life` decides; here is
//! what it decides over.
//!
//! Owns: the connection of one server, its list of tools, and that neither outlives the other.
//! Must not know: other servers, who calls, or how a tool is named to clients.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

use crate::domain::clock::Clock;
use crate::domain::ledger::clip;
use crate::domain::life::{Duty, Event, Failure, Generation, Lasting, Phase, Policy, State};
use crate::domain::log::Logger;
use crate::mcp::error::code;
use crate::mcp::request::Client;
use crate::mcp::revision::Family;

use super::era::{Era, Memory, Parties, introduce};
use super::error::Cause;
use super::inbox::Handler;
use super::link::Opener;
use super::listing::{self, Tools};
use super::session::{Request as Ask, Session};

/// News for a supervisor that it has not read yet. A sender that finds it full is not alone with its news.
const REQUESTS_MAX: usize = 64;

/// Between two readings of a list that keeps changing. A server that says so on and on is not believed more
/// often than this.
const LIST_PAUSE: Duration = Duration::from_secs(1);

/// What a server needs to be supervised.
pub struct Settings {
    /// For people.
    pub name: Arc<str>,
    /// How it is reached.
    pub opener: Box<dyn Opener>,
    /// When it is started again, and probed.
    pub policy: Policy,
    /// How it is probed.
    pub probe: Probe,
    /// How long a probe may take.
    pub probe_timeout: Duration,
    /// How long one attempt to connect may take, listing its tools included.
    pub connect_timeout: Duration,
    /// Who we are.
    pub client: Arc<Client>,
    /// What it spoke the last time.
    pub memory: Option<Arc<dyn Memory>>,
}

/// How to find out whether a server is well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// A ping, or what the revision has in its place.
    Ping,
    /// Listing its tools.
    ListTools,
}

/// A connection that serves calls.
#[derive(Clone)]
pub struct Live {
    /// Which connection of the server it is.
    pub generation: Generation,
    /// The connection.
    pub session: Session,
}

/// What is known of a server, now.
#[derive(Clone)]
pub struct Status {
    /// Where it is in its life.
    pub state: State,
    /// Its connection, if it serves calls.
    pub live: Option<Live>,
    /// What it listed last, on this connection or the one before.
    pub tools: Arc<Tools>,
}

/// A cheap handle. The task behind it owns the connection.
#[derive(Clone)]
pub struct Supervised {
    requests: mpsc::Sender<Request>,
    status: watch::Receiver<Arc<Status>>,
}

enum Request {
    Wanted,
    TimedOut(Generation),
    ListChanged,
    Restart(Arc<str>),
    Close,
}

impl Supervised {
    /// Starts the task. Nothing is connected before [`Supervised::want`].
    pub fn start(settings: Settings, clock: Arc<dyn Clock>, logger: Logger) -> Self {
        let (requests, inbox) = mpsc::channel(REQUESTS_MAX);
        let (state, tools) = (State::new(), Arc::default());
        let (publish, status) = watch::channel(Arc::new(Status { state, live: None, tools }));
        let supervisor = Supervisor {
            handler: Arc::new(Listener(requests.downgrade())),
            settings: Arc::new(settings),
            clock,
            logger,
            publish,
            inbox,
            state: State::new(),
            duty: Duty::Rest,
            work: None,
            live: None,
            tools: Arc::default(),
            listed_at: Instant::now(),
            list_is_stale: false,
        };
        tokio::spawn(supervisor.run());
        Self { requests, status }
    }

    /// What is known of it; changes can be waited for.
    pub fn status(&self) -> watch::Receiver<Arc<Status>> {
        self.status.clone()
    }

    /// It is to be used.
    pub async fn want(&self) {
        let _ = self.requests.send(Request::Wanted).await;
    }

    /// A call on that connection ran out of time.
    pub fn timed_out(&self, generation: Generation) {
        // Full means that it has been told of many; one probe answers for all.
        let _ = self.requests.try_send(Request::TimedOut(generation));
    }

    /// Somebody wants a new connection.
    pub async fn restart(&self, reason: &str) {
        let _ = self.requests.send(Request::Restart(reason.into())).await;
    }

    /// Ends it for good; returns when nothing of it is left.
    pub async fn close(&self) {
        let _ = self.requests.send(Request::Close).await;
        self.requests.closed().await;
    }
}

/// Hears what the server says without being asked.
struct Listener(mpsc::WeakSender<Request>);

impl Handler for Listener {
    fn told(&self, method: &str, _: Option<Bytes>) {
        if method == "notifications/tools/list_changed"
            && let Some(requests) = self.0.upgrade()
        {
            let _ = requests.try_send(Request::ListChanged);
        }
    }
}

/// What the work under way came to.
enum News {
    Connected(Generation, Result<(Session, Tools), Cause>),
    Probed(Generation, Result<(), Cause>),
    Listed(Result<Tools, Cause>),
    Ended(Generation),
    Nothing,
}

type Work = Pin<Box<dyn Future<Output = News> + Send>>;

struct Supervisor {
    settings: Arc<Settings>,
    clock: Arc<dyn Clock>,
    logger: Logger,
    handler: Arc<dyn Handler>,
    publish: watch::Sender<Arc<Status>>,
    inbox: mpsc::Receiver<Request>,
    state: State,
    /// What the work under way is for.
    duty: Duty,
    work: Option<Work>,
    live: Option<Live>,
    tools: Arc<Tools>,
    /// When it was listed last.
    listed_at: Instant,
    /// The server said that its list has changed.
    list_is_stale: bool,
}

impl Supervisor {
    /// Wait, decide, act.
    async fn run(mut self) {
        loop {
            self.take_up_duty();
            self.tell();
            if self.state.phase == Phase::Closed {
                return;
            }
            let Some(event) = self.next_event().await else { continue };
            let before = self.state.clone();
            self.state = self.state.on(event, self.clock.now(), &self.settings.policy, dice());
            self.log_change(&before);
        }
    }

    /// The only waiting a supervisor does. `None` if what came changes nothing of its life.
    async fn next_event(&mut self) -> Option<Event> {
        let now = self.clock.now();
        let wake = self.state.next_wake().map(|at| at.since(now));
        tokio::select! {
            biased;
            request = self.inbox.recv() => self.requested(request),
            news = news(&mut self.work) => {
                self.work = None;
                self.learnt(news)
            }
            (generation, cause) = ended(self.live.as_ref()) => Some(Event::Lost(generation, reason(&cause))),
            () = woken(wake) => Some(Event::Woke),
        }
    }

    fn requested(&mut self, request: Option<Request>) -> Option<Event> {
        match request {
            Some(Request::Wanted) => Some(Event::Wanted),
            Some(Request::TimedOut(generation)) => Some(Event::CallTimedOut(generation)),
            Some(Request::Restart(reason)) => Some(Event::Restart(reason)),
            Some(Request::ListChanged) => {
                self.list_is_stale = true;
                None
            }
            // Nobody holds a handle any more: nobody will ever want it.
            Some(Request::Close) | None => Some(Event::Close),
        }
    }

    fn learnt(&mut self, news: News) -> Option<Event> {
        match news {
            News::Connected(generation, Ok((session, tools))) => {
                self.live = Some(Live { generation, session });
                self.keep(tools);
                Some(Event::Listed(generation))
            }
            News::Connected(generation, Err(cause)) => Some(Event::ConnectFailed(
                generation,
                Failure { reason: reason(&cause), lasting: lasting(&cause) },
            )),
            News::Probed(generation, Ok(())) => Some(Event::ProbePassed(generation)),
            News::Probed(generation, Err(cause)) => Some(Event::ProbeFailed(generation, reason(&cause))),
            News::Listed(Ok(tools)) => {
                self.keep(tools);
                None
            }
            News::Listed(Err(cause)) => {
                let name = &self.settings.name;
                self.logger.warn(format_args!("[mcp:{name}] its tools could not be listed again: {cause}"));
                None
            }
            News::Ended(generation) => Some(Event::Ended(generation)),
            News::Nothing => None,
        }
    }

    /// The list of now. One that says the same is the same, so that nobody is told of a change.
    fn keep(&mut self, tools: Tools) {
        self.listed_at = Instant::now();
        if *self.tools != tools {
            self.tools = Arc::new(tools);
        }
    }

    /// Whatever the state wants under way is begun, once; whatever it does not is given up.
    fn take_up_duty(&mut self) {
        let duty = self.state.duty();
        if duty == self.duty {
            if duty == Duty::Serve(self.state.generation) && self.work.is_none() && self.list_is_stale {
                self.list_is_stale = false;
                self.work = self.live.clone().map(|live| self.list_again(live));
            }
            return;
        }
        // A list that was being read when something more urgent came is read later.
        self.list_is_stale |= matches!(self.duty, Duty::Serve(_)) && self.work.is_some();
        self.duty = duty;
        self.work = match duty {
            Duty::Connect(generation) => Some(self.connect(generation)),
            Duty::Probe(generation) => self.live.clone().map(|live| self.probe(generation, live)),
            // What became stale meanwhile is read now.
            Duty::Serve(_) if std::mem::take(&mut self.list_is_stale) => {
                self.live.clone().map(|live| self.list_again(live))
            }
            Duty::Serve(_) => None,
            Duty::Close(generation) => Some(self.end(News::Ended(generation))),
            Duty::Rest => Some(self.end(News::Nothing)),
        };
    }

    fn connect(&mut self, generation: Generation) -> Work {
        self.list_is_stale = false;
        let (old, settings) = (self.live.take(), Arc::clone(&self.settings));
        let (handler, logger) = (Arc::clone(&self.handler), self.logger.clone());
        Box::pin(async move {
            close(old).await;
            // Never two of them at once, whatever was given up half-way.
            settings.opener.settled().await;
            News::Connected(generation, connect(&settings, handler, logger).await)
        })
    }

    /// Ends the connection, and whatever else was begun: what is given up half-way is waited for too.
    fn end(&mut self, news: News) -> Work {
        let (live, settings) = (self.live.take(), Arc::clone(&self.settings));
        Box::pin(async move {
            close(live).await;
            settings.opener.settled().await;
            news
        })
    }

    fn probe(&self, generation: Generation, live: Live) -> Work {
        let settings = Arc::clone(&self.settings);
        Box::pin(async move { News::Probed(generation, probe(&settings, &live.session).await) })
    }

    fn list_again(&self, live: Live) -> Work {
        let (deadline, not_before) = (self.settings.connect_timeout, self.listed_at + LIST_PAUSE);
        Box::pin(async move {
            sleep_until(not_before).await;
            News::Listed(listing::tools(&live.session, deadline).await)
        })
    }

    fn tell(&self) {
        let live = self.live.clone().filter(|_| matches!(self.duty, Duty::Serve(_) | Duty::Probe(_)));
        let status = Status { state: self.state.clone(), live, tools: Arc::clone(&self.tools) };
        self.publish.send_replace(Arc::new(status));
    }

    fn log_change(&self, before: &State) {
        let (name, now) = (&self.settings.name, self.state.status());
        if before.status() == now {
            return;
        }
        match self.state.trouble(self.clock.now()) {
            Some(trouble) => self.logger.warn(format_args!("[mcp:{name}] {now}: {trouble}")),
            None if matches!(self.state.phase, Phase::Ready { .. })
                && !matches!(before.phase, Phase::Probing { .. }) =>
            {
                let count = self.tools.tools.len();
                self.logger.info(format_args!("[mcp:{name}] ready with {count} tools"));
                for left_out in &self.tools.left_out {
                    self.logger.warn(format_args!("[mcp:{name}] left out: {left_out}"));
                }
            }
            None => self.logger.debug(format_args!("[mcp:{name}] {now}")),
        }
    }
}

/// Connects, and is not done before the tools are listed: a server without tools is not well.
async fn connect(
    settings: &Settings,
    handler: Arc<dyn Handler>,
    logger: Logger,
) -> Result<(Session, Tools), Cause> {
    let until = Instant::now() + settings.connect_timeout;
    let Settings { opener, client, memory, .. } = settings;
    let parties = Parties {
        opener: opener.as_ref(),
        client: Arc::clone(client),
        handler,
        logger,
        memory: memory.clone(),
    };
    let session = introduce(parties, Era::Auto, settings.connect_timeout).await?;
    match listing::tools(&session, until.saturating_duration_since(Instant::now())).await {
        Ok(tools) => Ok((session, tools)),
        // It offers other things.
        Err(Cause::Answered { code: code::METHOD_NOT_FOUND, .. }) => Ok((session, Tools::default())),
        Err(cause) => {
            session.connection().close().await;
            Err(cause)
        }
    }
}

/// Asks for a sign of life. A server that refuses the question has answered it all the same.
async fn probe(settings: &Settings, session: &Session) -> Result<(), Cause> {
    let method = match (settings.probe, session.revision().family) {
        (Probe::ListTools, _) => "tools/list",
        (Probe::Ping, Family::Legacy) => "ping",
        (Probe::Ping, Family::Modern) => "server/discover",
    };
    match session.request(method, Ask::default(), settings.probe_timeout).await {
        Ok(_) | Err(Cause::Answered { .. }) => Ok(()),
        Err(cause) => Err(cause),
    }
}

async fn close(live: Option<Live>) {
    if let Some(live) = live {
        live.session.connection().close().await;
    }
}

async fn news(work: &mut Option<Work>) -> News {
    match work {
        Some(work) => work.await,
        None => pending().await,
    }
}

async fn ended(live: Option<&Live>) -> (Generation, Cause) {
    match live {
        Some(live) => (live.generation, live.session.connection().ended().await),
        None => pending().await,
    }
}

async fn woken(after: Option<Duration>) {
    match after {
        Some(after) => sleep(after).await,
        None => pending().await,
    }
}

fn reason(cause: &Cause) -> Arc<str> {
    clip(&cause.to_string()).into()
}

/// What no repetition cures.
fn lasting(cause: &Cause) -> Option<Lasting> {
    match cause {
        Cause::Start { .. } => Some(Lasting::CommandNotFound),
        Cause::Invalid(_) => Some(Lasting::BadConfiguration),
        Cause::Unauthorized(_) | Cause::Http { status: 401 | 403, .. } => Some(Lasting::NotAuthorized),
        Cause::Version { .. } => Some(Lasting::VersionMismatch),
        _ => None,
    }
}

/// In [0, 1), for the lengthening of delays. Without randomness they are not lengthened.
fn dice() -> f64 {
    let mut bytes = [0; 4];
    let _ = getrandom::fill(&mut bytes);
    f64::from(u32::from_le_bytes(bytes)) / (f64::from(u32::MAX) + 1.0)
}
