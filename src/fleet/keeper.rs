//! The one task that follows all servers: a new catalog whenever a list has changed, and how each of them is.
//!
//! Owns: the published catalog, which of its lists have changed, the facts for `server_health`, and the events of changed lists.
//! Must not know: how a server is reached, or who asks for the catalog.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use futures_util::future::select_all;
use tokio::sync::watch;

use crate::domain::event::{Diff, News};
use crate::domain::health::ServerFacts;
use crate::domain::ledger::clip;
use crate::domain::life::Health;
use crate::domain::log::visible;
use crate::domain::offer::Changes;

use super::catalog::{Catalog, Compiler, Source};
use super::offer::Offered;
use super::roster::Ships;
use super::ship::Ship;
use super::supervisor::{Status, Surroundings};

/// How many changed tools of a server are named. More say nothing more.
const CHANGED_SHOWN: usize = 10;

/// Follows the servers.
pub(super) struct Keeper {
    compiler: Compiler,
    ships: watch::Receiver<Arc<Ships>>,
    publish_catalog: watch::Sender<Arc<Catalog>>,
    publish_change: watch::Sender<Changes>,
    health: watch::Sender<Vec<ServerFacts>>,
    surroundings: Surroundings,
    /// By slug: what a server offered when its change was told last.
    told: HashMap<Arc<str>, Arc<Offered>>,
    problems: Vec<String>,
}

impl Keeper {
    pub(super) fn new(
        compiler: Compiler,
        ships: watch::Receiver<Arc<Ships>>,
        health: watch::Sender<Vec<ServerFacts>>,
        surroundings: Surroundings,
    ) -> (Self, watch::Receiver<Arc<Catalog>>, watch::Receiver<Changes>) {
        let (publish_catalog, catalog) = watch::channel(Arc::default());
        let (publish_change, changes) = watch::channel(Changes::default());
        let (told, problems) = (HashMap::new(), Vec::new());
        let keeper =
            Self { compiler, ships, publish_catalog, publish_change, health, surroundings, told, problems };
        (keeper, catalog, changes)
    }

    /// Looks at all of them whenever one has changed.
    pub(super) async fn run(mut self) {
        loop {
            let ships = Arc::clone(&self.ships.borrow_and_update());
            let mut receivers: Vec<_> = ships.list.iter().map(|ship| ship.status()).collect();
            let statuses: Vec<Arc<Status>> =
                receivers.iter_mut().map(|status| Arc::clone(&status.borrow_and_update())).collect();
            self.follow(&ships, &statuses);
            self.health.send_replace(self.facts(&ships, &statuses));
            // One whose task has ended will not change any more.
            let alive = receivers.iter_mut().filter(|status| status.has_changed().is_ok());
            let changes: Vec<_> = alive.map(|status| Box::pin(status.changed())).collect();
            tokio::select! {
                planned = self.ships.changed() => if planned.is_err() { return },
                () = any(changes) => {}
            }
        }
    }

    fn follow(&mut self, ships: &Ships, statuses: &[Arc<Status>]) {
        let sources = ships.list.iter().zip(statuses).filter(|(ship, _)| !ship.is_off());
        let sources: Vec<Source<'_>> =
            sources.map(|(ship, status)| Source { ship, offered: &status.offered }).collect();
        let Some(catalog) = self.compiler.compile(&sources) else { return };
        for problem in catalog.problems.iter().filter(|problem| !self.problems.contains(*problem)) {
            self.surroundings.logger.warn(format_args!("[colibri] {problem}"));
        }
        self.problems.clone_from(&catalog.problems);
        self.surroundings.logger.debug(format_args!("[colibri] {}", Held(&catalog)));
        let catalog = Arc::new(catalog);
        let before = self.publish_catalog.send_replace(Arc::clone(&catalog));
        self.publish_change.send_if_modified(|changes| {
            let told = *changes;
            catalog.count(&before, changes);
            *changes != told
        });
        for (ship, status) in ships.list.iter().zip(statuses) {
            // What another run remembers is no news.
            if status.connects > 0 {
                self.tell(ship, status);
            }
        }
        self.told.retain(|slug, _| ships.get(slug).is_some());
    }

    /// The difference to what was told before.
    fn tell(&mut self, ship: &Ship, status: &Status) {
        let offered = &status.offered;
        let before = self.told.insert(Arc::clone(&ship.slug), Arc::clone(offered));
        let news = match before {
            Some(before) if Arc::ptr_eq(&before, offered) => return,
            Some(before) => {
                let diff = Diff::between(&before.digests, &offered.digests);
                if diff.is_empty() {
                    return;
                }
                News::ToolsRefreshed(diff)
            }
            None => {
                let names: Vec<String> = offered.tools.tools.iter().map(|tool| tool.name.clone()).collect();
                News::ToolsDiscovered { count: names.len(), names }
            }
        };
        self.surroundings.bus.tell(&ship.slug, status.episode, news);
    }

    fn facts(&self, ships: &Ships, statuses: &[Arc<Status>]) -> Vec<ServerFacts> {
        let now = self.surroundings.clock.now();
        let facts = |(ship, status): (&Arc<Ship>, &Arc<Status>)| ServerFacts {
            name: ship.name.to_string(),
            state: if ship.is_off() { "off" } else { status.state.status() },
            is_down: status.state.health() == Health::Unavailable
                && !status.state.is_at_rest()
                && !ship.is_off(),
            tools: status.offered.tools.tools.len() as u64,
            trouble: status.state.trouble(now),
            changed: waiting(&status.offered),
            unpinned: status.offered.unpinned,
        };
        let mut all: Vec<ServerFacts> = ships.list.iter().zip(statuses).map(facts).collect();
        all.extend(ships.absent.iter().cloned());
        all
    }
}

/// What of an offer waits for a person's word, in words.
fn waiting(offered: &Offered) -> Vec<String> {
    let named = offered.changed.iter().take(CHANGED_SHOWN).map(|(tool, change)| match change.pinned {
        Some(_) => visible(clip(tool)),
        None => format!("{} (new)", visible(clip(tool))),
    });
    let more = offered.changed.len().saturating_sub(CHANGED_SHOWN);
    let more = (more > 0).then(|| format!("{more} more"));
    named.chain(more).collect()
}

/// Returns when one of them does; never, if there is none.
async fn any<F: Future + Unpin>(changes: Vec<F>) {
    if changes.is_empty() {
        std::future::pending::<()>().await;
    }
    select_all(changes).await;
}

/// What is in a catalog, for people who look closely: how much, and what is withheld.
struct Held<'a>(&'a Catalog);

impl fmt::Display for Held<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} tools are offered", self.0.tools().len())?;
        let withheld = self.0.all_withheld();
        if !withheld.is_empty() {
            write!(out, "; filtered or withheld: {}", withheld.join(", "))?;
        }
        Ok(())
    }
}
