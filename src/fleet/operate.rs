//! What a person does to a running fleet: starts a server again, turns it off and on, tries it.
//!
//! Owns: finding a server by what people call it, and that none of this is remembered beyond this run.
//! Must not know: who asks, or by which way.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::Serialize;
use tokio::time::{Instant, timeout, timeout_at};

use crate::domain::event::News;
use crate::domain::health::ServerFacts;
use crate::domain::life::Phase;
use crate::domain::nearest::nearest;

use super::bus::episode;
use super::error::Cause;
use super::listing;
use super::logbook::{Following, LogLine};
use super::report::ServerReport;
use super::roster::{DRAIN_LOOK, DRAIN_MAX, Fleet, Start};
use super::session::{Request, Session};
use super::ship::Ship;
use super::supervisor::{Live, Status};

/// How long somebody who restarts a server waits to hear what came of it.
const SETTLE_WAIT: Duration = Duration::from_secs(10);

/// What trying a server came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tested {
    /// Its configured name.
    pub name: String,
    /// Whether it answered.
    pub well: bool,
    /// The protocol revision spoken.
    pub revision: Option<&'static str>,
    /// How many tools it listed just now.
    pub tools: Option<usize>,
    /// How long it took to be connected; nothing if it was.
    pub connect_ms: Option<u64>,
    /// How long it took to list everything it offers.
    pub list_ms: Option<u64>,
    /// How long one request took after that.
    pub latency_us: Option<u64>,
    /// What went wrong.
    pub error: Option<String>,
}

impl Fleet {
    /// Starts a server again, whatever has become of it, and waits a moment for what comes of that.
    pub async fn restart(&self, server: &str, reason: &str) -> Result<ServerReport, String> {
        let ship = self.named(server)?;
        if ship.is_off() {
            return Err(format!("`{}` is disabled: enable it, which starts it", ship.name));
        }
        let mut status = ship.status();
        let before = status.borrow().state.generation;
        ship.supervised.restart(reason).await;
        let is_settled = |status: &Arc<Status>| status.state.generation != before && has_come_out(status);
        let _ = timeout(SETTLE_WAIT, status.wait_for(is_settled)).await;
        Ok(ship.report())
    }

    /// Turns a server off: its tools are gone at once, calls under way may end, then its process does. Holds until
    /// [`Fleet::enable`], and no longer than this run.
    pub fn disable(&self, server: &str) -> Result<ServerReport, String> {
        let ship = self.named(server)?;
        if ship.off.swap(true, Ordering::Relaxed) {
            return Ok(ship.report());
        }
        ship.supervised.turned_off();
        let from = ship.status().borrow().state.status();
        self.turned(&ship, from, "off");
        self.spawn(put_to_rest(Arc::clone(&ship)));
        Ok(ship.report())
    }

    /// Turns a server on again; one that starts with colibri, withholds something, or had given up, is started, and
    /// waited for a moment.
    pub async fn enable(&self, server: &str) -> Result<ServerReport, String> {
        let ship = self.named(server)?;
        if ship.off.swap(false, Ordering::Relaxed) {
            ship.supervised.turned_on();
            let before = Arc::clone(&ship.status().borrow());
            self.turned(&ship, "off", before.state.status());
            if before.has_given_up() {
                return self.restart(server, "a person turned it on").await;
            }
            // What waited for a person's word may have got it meanwhile, and only a new look tells.
            if ship.terms.start == Start::Eager || before.offered.withholds {
                ship.supervised.want().await;
                let _ = timeout(SETTLE_WAIT, ship.status().wait_for(has_come_out)).await;
            }
        }
        Ok(ship.report())
    }

    /// The catalog is put together anew, and whoever listens is told.
    fn turned(&self, ship: &Ship, from: &'static str, to: &'static str) {
        self.look_again();
        let reason = Some("a person asked for it".to_owned());
        self.bus().tell(&ship.slug, episode(), News::StateChanged { from, to, reason });
    }

    /// Tries a server now: connects if it is not connected, whatever had become of it; lists its tools, and times it.
    pub async fn test(&self, server: &str) -> Result<Tested, String> {
        let ship = self.named(server)?;
        if ship.is_off() {
            return Err(format!("`{}` is disabled: enable it first", ship.name));
        }
        let _used = ship.supervised.usage().hold();
        let mut tested = Tested {
            name: ship.name.to_string(),
            well: false,
            revision: None,
            tools: None,
            connect_ms: None,
            list_ms: None,
            latency_us: None,
            error: None,
        };
        let (begun, was_live) = (Instant::now(), ship.status().borrow().live.is_some());
        let live = match bring_up(&ship).await {
            Ok(live) => live,
            Err(error) => {
                tested.error = Some(error);
                return Ok(tested);
            }
        };
        tested.connect_ms = (!was_live).then(|| millis(begun.elapsed()));
        tested.revision = Some(live.session.revision().date);
        match measure(&live.session, ship.terms.timeout, &mut tested).await {
            Ok(()) => tested.well = true,
            Err(cause) => tested.error = Some(cause.to_string()),
        }
        Ok(tested)
    }

    /// What was said by a server and about it, and what will be.
    pub fn logs(&self, server: &str) -> Result<(Vec<Arc<LogLine>>, Following), String> {
        Ok(self.named(server)?.supervised.logbook().follow())
    }

    /// Servers that are configured and not used.
    pub fn absent(&self) -> Vec<ServerFacts> {
        self.ships().absent.clone()
    }

    /// The server that people call so, by its name or by what stands before `__`.
    pub(super) fn named(&self, server: &str) -> Result<Arc<Ship>, String> {
        let ships = self.ships();
        if let Some(ship) = ships.list.iter().find(|ship| &*ship.name == server).or_else(|| ships.get(server))
        {
            return Ok(Arc::clone(ship));
        }
        if let Some(absent) = ships.absent.iter().find(|absent| absent.name == server) {
            let why = absent.trouble.as_deref().unwrap_or("its configuration says so");
            return Err(format!("`{server}` is {} and does not run: {why}", absent.state));
        }
        let hint = nearest(server, ships.list.iter().map(|ship| &*ship.name));
        let hint = hint.map(|known| format!("; did you mean `{known}`?")).unwrap_or_default();
        Err(format!("no server `{server}` runs here{hint}"))
    }
}

/// A connection, now: who waits for a better time, or has given up, tries at once.
async fn bring_up(ship: &Ship) -> Result<Live, String> {
    let mut status = ship.status();
    let now = Arc::clone(&status.borrow());
    if let Some(live) = &now.live {
        return Ok(live.clone());
    }
    let is_under_way = matches!(now.state.phase, Phase::Connecting { .. });
    if has_come_out(&now) {
        ship.supervised.restart("a person tests it").await;
    } else {
        ship.supervised.want().await;
    }
    let is_settled = |status: &Arc<Status>| {
        let is_of_now = is_under_way || status.state.generation != now.state.generation;
        status.live.is_some() || (is_of_now && has_come_out(status))
    };
    let settled = timeout(ship.terms.acquire_timeout, status.wait_for(is_settled)).await;
    let live = settled.ok().and_then(Result::ok).and_then(|status| status.live.clone());
    let trouble = || ship.report().trouble.unwrap_or_else(|| "it was not ready in time".to_owned());
    live.ok_or_else(trouble)
}

/// Whether it is known what an attempt to connect came to.
fn has_come_out(status: &Arc<Status>) -> bool {
    !matches!(status.state.phase, Phase::Idle | Phase::Connecting { .. } | Phase::Closing { .. })
}

/// Ends a server that was turned off, once its calls have ended; unless it was turned on again, or others use it.
async fn put_to_rest(ship: Arc<Ship>) {
    let until = Instant::now() + DRAIN_MAX.min(ship.terms.max_total_timeout);
    let drained = async {
        while ship.supervised.usage().calls() > 0 && ship.is_off() {
            tokio::time::sleep(DRAIN_LOOK).await;
        }
    };
    let _ = timeout_at(until, drained).await;
    if !ship.is_off() {
        return;
    }
    ship.crew.rest().await;
    if ship.supervised.is_off() {
        ship.supervised.rest().await;
    }
}

async fn measure(session: &Session, limit: Duration, tested: &mut Tested) -> Result<(), Cause> {
    let begun = Instant::now();
    let offered = listing::offer(session, limit).await?;
    tested.list_ms = Some(millis(begun.elapsed()));
    tested.tools = Some(offered.tools.tools.len());
    let begun = Instant::now();
    // Every server has to answer this one, and it is not as cheap as a ping: what a person would feel.
    session.request("tools/list", Request::default(), limit).await?;
    tested.latency_us = Some(begun.elapsed().as_micros() as u64);
    Ok(())
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
