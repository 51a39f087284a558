//! The one loop of a supervised server: wait, decide, act.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::domain::audit::CallId;
use crate::domain::chronicle::Fact;
use crate::domain::event::News as Told;
use crate::domain::life::{Duty, Event, Failure, Generation, Phase, State};
use crate::domain::log::{Level, visible};
use crate::domain::provider::Limit;
use crate::fleet::bus::episode;
use crate::fleet::error::Cause;
use crate::fleet::inbox::Handler;
use crate::fleet::inspect::Inspector;
use crate::fleet::listen::{Heard, Listening};
use crate::fleet::listing;
use crate::fleet::offer::Offered;
use crate::fleet::remembered;
use crate::fleet::session::Session;

use super::work::{Inspection, close, connect, dice, lasting, probe, reason};
use super::{Counts, Live, Request, Settings, Status, Surroundings, Usage};

/// How long the store may take to say what a server offered in another run.
const RECALL_WITHIN: Duration = Duration::from_secs(2);

/// States that are worth a record. What leads from one to the next is told as an event alone.
const ON_RECORD: [&str; 5] = ["ready", "restarting", "backoff", "exhausted", "blocked"];

/// Between two readings of a list that keeps changing. A server that says so on and on is not believed more
/// often than this.
const LIST_PAUSE: Duration = Duration::from_secs(1);

/// What the work under way came to.
enum News {
    Connected(Generation, Result<(Session, Offered), Cause>),
    Probed(Generation, Result<(), Cause>),
    Listed(Result<Offered, Cause>),
    Ended(Generation),
    Nothing,
}

type Work = Pin<Box<dyn Future<Output = News> + Send>>;

pub(super) struct Supervisor {
    inspector: Arc<Inspector>,
    settings: Arc<Settings>,
    surroundings: Surroundings,
    handler: Arc<dyn Handler>,
    publish: watch::Sender<Arc<Status>>,
    inbox: mpsc::Receiver<Request>,
    stale: Arc<Notify>,
    usage: Arc<Usage>,
    state: State,
    /// Joins what happens from one loss of the connection to the next.
    episode: CallId,
    /// What the work under way is for.
    duty: Duty,
    work: Option<Work>,
    /// The list of the live connection, while it is read again: beside whatever else is under way on that connection.
    listing: Option<Work>,
    live: Option<Live>,
    /// Hears of changes on the live connection, where its server tells them on request.
    listening: Option<Listening>,
    offered: Arc<Offered>,
    recalled: bool,
    connects: u64,
    counts: Counts,
    /// When it was listed last, or that failed.
    listed_at: Instant,
    /// The server said that its list has changed.
    list_is_stale: bool,
    /// Nobody holds a handle any more.
    is_abandoned: bool,
}

impl Supervisor {
    pub(super) fn new(
        settings: Settings,
        surroundings: Surroundings,
        handler: Arc<dyn Handler>,
        publish: watch::Sender<Arc<Status>>,
        inbox: mpsc::Receiver<Request>,
        stale: Arc<Notify>,
        usage: Arc<Usage>,
    ) -> Self {
        let inspector = Inspector {
            name: Arc::clone(&settings.name),
            slug: Arc::clone(&settings.slug),
            enforces: settings.pin_enforced,
            key: settings.key,
            chronicle: Arc::clone(&surroundings.chronicle),
            bus: surroundings.bus.clone(),
            told: Mutex::default(),
        };
        Self {
            inspector: Arc::new(inspector),
            settings: Arc::new(settings),
            surroundings,
            handler,
            publish,
            inbox,
            stale,
            usage,
            state: State::new(),
            episode: episode(),
            duty: Duty::Rest,
            work: None,
            listing: None,
            live: None,
            listening: None,
            offered: Arc::default(),
            recalled: false,
            connects: 0,
            counts: Counts::default(),
            listed_at: Instant::now(),
            list_is_stale: false,
            is_abandoned: false,
        }
    }

    /// Wait, decide, act.
    pub(super) async fn run(mut self) {
        self.recall().await;
        loop {
            self.take_up_duty();
            self.publish();
            if self.state.phase == Phase::Closed {
                return;
            }
            let Some(event) = self.next_event().await else { continue };
            let (before, now) = (self.state.clone(), self.surroundings.clock.now());
            self.state = self.state.on(event, now, &self.settings.policy, dice());
            self.tell(&before);
            self.log_change(&before);
        }
    }

    /// What it offered in another run, until it says itself.
    async fn recall(&mut self) {
        if let Some(key) = self.settings.key {
            let raw = timeout(RECALL_WITHIN, self.surroundings.chronicle.recall(key)).await;
            let offered = raw.ok().flatten().and_then(|raw| remembered::decode(&raw));
            self.offered = offered.map(Arc::new).unwrap_or_default();
        }
        self.recalled = true;
    }

    /// The only waiting a supervisor does. `None` if what came changes nothing of its life.
    async fn next_event(&mut self) -> Option<Event> {
        let now = self.surroundings.clock.now();
        let wake = self.state.next_wake().map(|at| at.since(now));
        let idle_close = self.settings.idle_close.filter(|_| self.state.serves());
        let idle = idle_close.map(|after| after.saturating_sub(self.usage.unused_for()));
        let stale = self.stale_in();
        tokio::select! {
            biased;
            // Once there are none, "none" would be the answer for ever, and nothing else would be heard.
            request = self.inbox.recv(), if !self.is_abandoned => self.requested(request),
            news = news(&mut self.work) => {
                self.work = None;
                self.learnt(news)
            }
            news = news(&mut self.listing) => {
                self.listing = None;
                self.learnt(news)
            }
            () = self.stale.notified() => {
                self.list_is_stale = true;
                None
            }
            (generation, cause) = ended(self.live.as_ref()) => Some(self.lost(generation, &cause)),
            heard = heard(self.listening.as_mut()) => {
                // What changed before the server began to tell, nobody has told.
                self.list_is_stale |= heard == Heard::Begun;
                None
            }
            () = woken(wake) => Some(Event::Woke),
            // Somebody may have come meanwhile.
            () = woken(idle) => idle_close.filter(|after| self.usage.unused_for() >= *after).map(|_| Event::Unused),
            () = woken(stale) => {
                self.list_is_stale |= self.stale_in() == Some(Duration::ZERO);
                None
            }
        }
    }

    /// When to look whether the list has to be read again, since its time is over. Only a server that is used is
    /// asked, and only one that does not tell of changes by itself; and not through a probe, when it could not be read.
    fn stale_in(&self) -> Option<Duration> {
        let may_list = matches!(self.duty, Duty::Serve(_)) && self.listing.is_none();
        let live = self.live.as_ref().filter(|_| may_list)?;
        let fresh_for = live.session.fresh_for()?;
        if self.listening.as_ref().is_some_and(Listening::is_told) {
            return None;
        }
        let is_used = self.usage.unused_for() < fresh_for;
        Some(if is_used { fresh_for.saturating_sub(self.listed_at.elapsed()) } else { fresh_for })
    }

    fn requested(&mut self, request: Option<Request>) -> Option<Event> {
        match request {
            Some(Request::Wanted) => Some(Event::Wanted),
            Some(Request::TimedOut(generation)) => Some(Event::CallTimedOut(generation)),
            Some(Request::Distrusted(generation)) => {
                Some(Event::Lost(generation, "a call ran out of time".into()))
            }
            // Late news of a connection that is gone ends no other.
            Some(Request::Killed(generation)) => {
                (generation == self.state.generation).then_some(Event::Unused)
            }
            Some(Request::Restart(reason)) => Some(Event::Restart(reason)),
            Some(Request::Rest) => Some(Event::Unused),
            Some(Request::Close) => Some(Event::Close),
            // Nobody will ever want it.
            None => {
                self.is_abandoned = true;
                Some(Event::Close)
            }
        }
    }

    /// The connection ended by itself. What a limit ended is put on record with the limit.
    fn lost(&self, generation: Generation, cause: &Cause) -> Event {
        let end = self.live.as_ref().and_then(|live| live.session.connection().end());
        if let Some(end) = end {
            let (server, how) =
                (self.settings.name.to_string(), self.surroundings.masks.text(&end.to_string()));
            let limit = end.limit().map(Limit::name);
            self.surroundings.scribe.put(self.episode, Fact::ServerEnded { server, how, limit });
        }
        Event::Lost(generation, reason(cause, &self.surroundings.masks))
    }

    /// A server that runs with less protection than others is on record.
    fn record_protection(&self, session: &Session) {
        let (layers, off) = (session.connection().degraded(), self.settings.is_unconfined);
        if off || !layers.is_empty() {
            let layers = layers.into_iter().map(str::to_owned).collect();
            let server = self.settings.name.to_string();
            self.surroundings.scribe.put(self.episode, Fact::SandboxDegraded { server, layers, off });
        }
    }

    fn failed(&self, what: &str, cause: &Cause) -> Arc<str> {
        let (name, reason) = (&self.settings.name, reason(cause, &self.surroundings.masks));
        self.surroundings.logger.error(format_args!("[mcp:{name}] {what}: {reason}"));
        reason
    }

    fn learnt(&mut self, news: News) -> Option<Event> {
        match news {
            News::Connected(generation, Ok((session, offered))) => {
                self.record_protection(&session);
                self.listening = Listening::to(&session);
                self.live = Some(Live { generation, session });
                self.connects += 1;
                self.usage.touch();
                self.keep(offered);
                Some(Event::Listed(generation))
            }
            News::Connected(generation, Err(cause)) => {
                let reason = self.failed("could not be connected", &cause);
                Some(Event::ConnectFailed(generation, Failure { reason, lasting: lasting(&cause) }))
            }
            News::Probed(generation, Ok(())) => Some(Event::ProbePassed(generation)),
            News::Probed(generation, Err(cause)) => {
                self.counts.failed_probes += 1;
                Some(Event::ProbeFailed(generation, self.failed("did not answer a probe", &cause)))
            }
            News::Listed(Ok(offered)) => {
                self.keep(offered);
                None
            }
            News::Listed(Err(cause)) => {
                self.listed_at = Instant::now();
                let name = &self.settings.name;
                self.surroundings
                    .logger
                    .warn(format_args!("[mcp:{name}] its tools could not be listed again: {cause}"));
                None
            }
            News::Ended(generation) => Some(Event::Ended(generation)),
            News::Nothing => None,
        }
    }

    /// The list of now. One that says the same is the same, so that nobody is told of a change.
    fn keep(&mut self, offered: Offered) {
        self.listed_at = Instant::now();
        if *self.offered != offered {
            self.offered = Arc::new(offered);
        }
    }

    /// Whatever the state wants under way is begun, once; whatever it does not is given up.
    fn take_up_duty(&mut self) {
        let duty = self.state.duty();
        if duty != self.duty {
            self.duty = duty;
            match duty {
                Duty::Connect(_) => self.counts.starts += 1,
                Duty::Probe(_) => self.counts.probes += 1,
                Duty::Serve(_) | Duty::Close(_) | Duty::Rest => {}
            }
            // A list is read on through a probe, and ends with its connection.
            if !matches!(duty, Duty::Serve(_) | Duty::Probe(_)) {
                self.listing = None;
            }
            self.work = match duty {
                Duty::Connect(generation) => Some(self.connect(generation)),
                Duty::Probe(generation) => self.live.clone().map(|live| self.probe(generation, live)),
                Duty::Serve(_) => None,
                Duty::Close(generation) => Some(self.end(News::Ended(generation))),
                Duty::Rest => Some(self.end(News::Nothing)),
            };
        }
        // What became stale meanwhile is read now, once.
        let may_list = matches!(duty, Duty::Serve(_)) && self.listing.is_none();
        if may_list && std::mem::take(&mut self.list_is_stale) {
            self.listing = self.live.clone().map(|live| self.list_again(live));
        }
    }

    fn connect(&mut self, generation: Generation) -> Work {
        self.list_is_stale = false;
        let (old, settings) = (self.live.take(), Arc::clone(&self.settings));
        let listening = self.listening.take();
        let (handler, logger) = (Arc::clone(&self.handler), self.surroundings.logger.clone());
        let look = self.inspection();
        Box::pin(async move {
            close(old, listening).await;
            // Never two of them at once, whatever was given up half-way.
            settings.opener.settled().await;
            News::Connected(generation, connect(&settings, handler, logger, Some(look)).await)
        })
    }

    /// Ends the connection, and whatever else was begun: what is given up half-way is waited for too.
    fn end(&mut self, news: News) -> Work {
        let (live, settings) = (self.live.take(), Arc::clone(&self.settings));
        let listening = self.listening.take();
        Box::pin(async move {
            close(live, listening).await;
            settings.opener.settled().await;
            news
        })
    }

    fn inspection(&self) -> Inspection {
        let (inspector, before) = (Arc::clone(&self.inspector), Arc::clone(&self.offered));
        Inspection { inspector, before, episode: self.episode }
    }

    fn probe(&self, generation: Generation, live: Live) -> Work {
        let settings = Arc::clone(&self.settings);
        Box::pin(async move { News::Probed(generation, probe(&settings, &live.session).await) })
    }

    fn list_again(&self, live: Live) -> Work {
        let (deadline, not_before) = (self.settings.connect_timeout, self.listed_at + LIST_PAUSE);
        let look = self.inspection();
        Box::pin(async move {
            sleep_until(not_before).await;
            News::Listed(match listing::offer(&live.session, deadline).await {
                Ok(offered) => look.at(offered).await,
                Err(cause) => Err(cause),
            })
        })
    }

    fn publish(&self) {
        let live = self.live.clone().filter(|_| matches!(self.duty, Duty::Serve(_) | Duty::Probe(_)));
        let (state, offered) = (self.state.clone(), Arc::clone(&self.offered));
        self.publish.send_replace(Arc::new(Status {
            state,
            live,
            offered,
            recalled: self.recalled,
            episode: self.episode,
            connects: self.connects,
            counts: self.counts,
        }));
    }

    /// What has changed, to whoever listens.
    fn tell(&mut self, before: &State) {
        if before.serves() && !self.state.serves() {
            self.episode = episode();
        }
        for news in Told::of_change(before, &self.state, self.surroundings.clock.now()) {
            if let Told::StateChanged { from, to, reason } = &news
                && ON_RECORD.contains(to)
            {
                let (server, reason) = (self.settings.name.to_string(), reason.clone());
                self.surroundings.scribe.put(self.episode, Fact::ServerState { server, from, to, reason });
            }
            self.surroundings.bus.tell(&self.settings.slug, self.episode, news);
        }
    }

    fn log_change(&self, before: &State) {
        let (name, now) = (&self.settings.name, self.state.status());
        if before.status() == now {
            return;
        }
        match self.state.trouble(self.surroundings.clock.now()) {
            Some(trouble) => self.surroundings.logger.warn(format_args!("[mcp:{name}] {now}: {trouble}")),
            None if matches!(self.state.phase, Phase::Ready { .. })
                && !matches!(before.phase, Phase::Probing { .. }) =>
            {
                let (tools, logger) = (&self.offered.tools, &self.surroundings.logger);
                let (count, took) = (tools.tools.len(), took(before, &self.state));
                logger.info(format_args!("[mcp:{name}] ready with {count} tools after {took} ms"));
                if let Some(live) = self.live.as_ref().filter(|_| logger.shows(Level::Trace)) {
                    let (revision, names) = (live.session.revision().date, tools.tools.iter());
                    let names = names.map(|tool| visible(&tool.name)).collect::<Vec<_>>().join(", ");
                    let transport = live.session.connection().transport();
                    logger.trace(format_args!("[mcp:{name}] {transport}, revision {revision}: {names}"));
                }
                for left_out in tools.left_out.iter().chain(&self.offered.left_out) {
                    self.surroundings.logger.warn(format_args!("[mcp:{name}] left out: {left_out}"));
                }
            }
            None => self.surroundings.logger.debug(format_args!("[mcp:{name}] {now}")),
        }
    }
}

/// How long the attempt took that has just succeeded.
fn took(before: &State, now: &State) -> u128 {
    match (&before.phase, now.up_since()) {
        (Phase::Connecting { since, .. }, Some(up)) => up.since(*since).as_millis(),
        _ => 0,
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

async fn heard(listening: Option<&mut Listening>) -> Heard {
    match listening {
        Some(listening) => listening.heard().await,
        None => pending().await,
    }
}

async fn woken(after: Option<Duration>) {
    match after {
        Some(after) => sleep(after).await,
        None => pending().await,
    }
}
