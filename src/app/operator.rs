//! The operator's desk: what a person asks of a running colibri, done where the parts are known.
//!
//! Owns: the meeting of the fleet, the configuration and the process for people who look; that no secret of the
//! configuration leaves by this door.

pub mod place;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};

use crate::config::{Config, Loaded, State};
use crate::domain::audit::Pending;
use crate::domain::clock::Clock;
use crate::domain::filter::Filter;
use crate::domain::log::Logger;
use crate::domain::mask::Masks;
use crate::domain::merkle::Hash;
use crate::domain::mode::Mode;
use crate::domain::operator::{Came, Coming, Feed, Operator, Told};
use crate::fleet::bus::{self, Subscription};
use crate::fleet::logbook::{self, Following};
use crate::fleet::report::ServerReport;
use crate::fleet::review::Shown;
use crate::fleet::roster::Fleet;
use crate::fleet::web;
use crate::sandbox;
use crate::serve::operator::Bound;

use super::reload;

/// The parts that people may ask about.
pub struct Desk {
    /// None in a mode that starts no servers.
    fleet: Option<Fleet>,
    process: Process,
    clock: Arc<dyn Clock>,
    boot: Duration,
    loaded: watch::Receiver<Arc<Loaded>>,
    masks: Arc<Masks>,
    reload: mpsc::Sender<reload::Request>,
}

/// This process, for people who have several.
#[derive(Serialize)]
struct Process {
    pid: u32,
    version: &'static str,
    mode: Mode,
    directory: Option<PathBuf>,
    database: PathBuf,
    started_by: Starter,
}

/// Who started it: over stdio, that is the client.
#[derive(Serialize)]
struct Starter {
    pid: Option<u32>,
    name: Option<String>,
}

/// The socket of this process, if it can be had: colibri serves its client without one too.
pub(super) async fn open(config: &Config, logger: &Logger) -> Option<Bound> {
    let bound = match place::prepare(config) {
        Ok(folder) => {
            place::sweep(&folder).await;
            let path = place::socket(&folder, std::process::id());
            Bound::bind(&path).map_err(|error| format!("{}: {error}", path.display()))
        }
        Err(reason) => Err(reason),
    };
    let refused = |reason: &String| {
        logger.warn(format_args!(
            "[colibri] `colibri status` and its like cannot reach this process: {reason}"
        ));
    };
    bound.inspect_err(refused).ok()
}

impl Desk {
    /// The desk of this process.
    pub(super) fn new(
        loaded: watch::Receiver<Arc<Loaded>>,
        fleet: Option<Fleet>,
        clock: Arc<dyn Clock>,
        masks: Arc<Masks>,
        reload: mpsc::Sender<reload::Request>,
    ) -> Self {
        let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
        let process = Process {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION"),
            mode: loaded.borrow().config.mode,
            directory: std::env::current_dir().ok(),
            database: loaded.borrow().config.database.clone(),
            started_by: Starter { pid: parent, name: parent.and_then(sandbox::name_of) },
        };
        let boot = clock.now().since_boot;
        Self { fleet, process, clock, boot, loaded, masks, reload }
    }

    fn fleet(&self) -> Result<&Fleet, String> {
        let none = || format!("the mode {} starts no servers", self.process.mode);
        self.fleet.as_ref().ok_or_else(none)
    }

    /// What may leave by this door.
    fn told(&self, outcome: Result<impl Serialize, String>) -> Told {
        let outcome = outcome.map(|value| json!(value));
        outcome.map(|value| self.masks.value(value)).map_err(|reason| self.masks.text(&reason))
    }

    async fn servers(&self) -> Vec<Value> {
        let Some(fleet) = &self.fleet else { return Vec::new() };
        let mut servers = with_usage(fleet.report()).await;
        for crowd in fleet.crowds() {
            for server in servers.iter_mut().filter(|server| server["queue"] == *crowd.queue) {
                server["waiting"] = crowd.waiting.into();
            }
        }
        servers.extend(
            fleet.absent().into_iter().map(
                |absent| json!({ "name": absent.name, "state": absent.state, "trouble": absent.trouble }),
            ),
        );
        servers
    }

    async fn shown(&self, server: &str) -> Result<Value, String> {
        let Shown { server, tools, changes, changes_digest } = self.fleet()?.show(server)?;
        let configured = self.configured(&server.name);
        let server = with_usage(vec![server]).await.pop();
        Ok(json!({
            "server": server, "tools": tools, "changes": changes, "changes_digest": changes_digest, "configuration": configured,
        }))
    }

    /// A server's entry, as it is written: of its environment and headers the names alone.
    fn configured(&self, name: &str) -> Option<Value> {
        let loaded = Arc::clone(&self.loaded.borrow());
        let server = loaded.config.servers.iter().find(|server| server.name == name)?;
        let State::Ready(config) = &server.state else { return None };
        let mut entry = json!(config);
        entry["env"] = config.env.keys().cloned().collect();
        entry["headers"] = config.headers.keys().cloned().collect();
        if let Some(url) = &config.url {
            entry["url"] = web::shown(&url.to_string()).into();
        }
        entry["origin"] = server.origin.to_string().into();
        Some(entry)
    }
}

/// The reports, with what each server's processes use right now.
async fn with_usage(reports: Vec<ServerReport>) -> Vec<Value> {
    let pids: Vec<u32> = reports.iter().filter_map(|report| report.pid).collect();
    let usage = if pids.is_empty() {
        Vec::new()
    } else {
        let looking = tokio::task::spawn_blocking(move || {
            let usage = sandbox::usage(&pids);
            pids.into_iter().zip(usage).collect::<Vec<_>>()
        });
        // Without it only the numbers are missing.
        looking.await.unwrap_or_default()
    };
    let with = |report: ServerReport| {
        let mut value = json!(report);
        let used = usage.iter().find(|(pid, _)| Some(*pid) == report.pid).and_then(|(_, used)| *used);
        if let Some(used) = used {
            value["pid"] = used.pid.into();
            value["memory_bytes"] = used.memory_bytes.into();
            value["processes"] = used.processes.into();
        }
        value
    };
    reports.into_iter().map(with).collect()
}

impl Operator for Desk {
    fn status(&self) -> Pending<'_, Told> {
        Box::pin(async move {
            let mut status = json!(self.process);
            let uptime = self.clock.now().since_boot.saturating_sub(self.boot);
            status["uptime_ms"] = (uptime.as_millis() as u64).into();
            status["servers"] = self.servers().await.into();
            status["queues"] = json!(self.fleet.as_ref().map(Fleet::crowds).unwrap_or_default());
            self.told(Ok(status))
        })
    }

    fn show<'a>(&'a self, server: &'a str) -> Pending<'a, Told> {
        Box::pin(async move { self.told(self.shown(server).await) })
    }

    fn restart<'a>(&'a self, server: &'a str) -> Pending<'a, Told> {
        Box::pin(async move {
            let fleet = self.fleet()?;
            self.told(fleet.restart(server, "a person asked for a restart").await)
        })
    }

    fn disable<'a>(&'a self, server: &'a str) -> Pending<'a, Told> {
        Box::pin(async move { self.told(self.fleet().and_then(|fleet| fleet.disable(server))) })
    }

    fn enable<'a>(&'a self, server: &'a str) -> Pending<'a, Told> {
        Box::pin(async move {
            let fleet = self.fleet()?;
            self.told(fleet.enable(server).await)
        })
    }

    fn test<'a>(&'a self, server: &'a str) -> Pending<'a, Told> {
        Box::pin(async move {
            let fleet = self.fleet()?;
            self.told(fleet.test(server).await)
        })
    }

    fn accept<'a>(
        &'a self,
        server: &'a str,
        tools: &'a [String],
        shown: Hash,
    ) -> Pending<'a, Result<Vec<String>, String>> {
        Box::pin(async move {
            let accepted = self.fleet()?.accept(server, tools, shown).await;
            accepted.map_err(|reason| self.masks.text(&reason))
        })
    }

    fn reload(&self) -> Pending<'_, Result<Vec<String>, String>> {
        Box::pin(async move {
            let nobody = |()| "this colibri has nothing to reload: its mode starts no servers".to_owned();
            let (answer, answered) = oneshot::channel();
            self.reload.send(answer).await.map_err(|_| nobody(()))?;
            let outcome = answered.await.map_err(|_| nobody(()))?;
            let summary = outcome.map_err(|why| self.masks.text(&why))?;
            Ok(summary.told().iter().map(|change| self.masks.text(change)).collect())
        })
    }

    fn logs(&self, server: &str) -> Result<Feed, String> {
        let logs = self.fleet().and_then(|fleet| fleet.logs(server));
        let (kept, coming) = logs.map_err(|reason| self.masks.text(&reason))?;
        let kept = kept.iter().map(|line| self.masks.value(json!(line))).collect();
        Ok(Feed { kept, coming: Box::new(Lines(coming, Arc::clone(&self.masks))) })
    }

    fn events(&self, topic: Option<&str>) -> Result<Feed, String> {
        let topics = Filter::new(topic.as_slice(), &[] as &[&str]).map_err(|error| error.to_string())?;
        let (kept, coming) = self.fleet()?.bus().subscribe();
        let kept = kept.iter().filter(|event| topics.admits(event.topic()));
        let kept = kept.map(|event| self.masks.value(json!(event))).collect();
        Ok(Feed { kept, coming: Box::new(Events { coming, topics, masks: Arc::clone(&self.masks) }) })
    }
}

/// The lines of a server.
struct Lines(Following, Arc<Masks>);

impl Coming for Lines {
    fn next(&mut self) -> Pending<'_, Option<Came>> {
        Box::pin(async move {
            Some(match self.0.next().await? {
                logbook::Heard::Line(line) => Came::One(self.1.value(json!(line))),
                logbook::Heard::Missed(count) => Came::Missed(count),
            })
        })
    }
}

/// Events of some topics.
struct Events {
    coming: Subscription,
    topics: Filter,
    masks: Arc<Masks>,
}

impl Coming for Events {
    fn next(&mut self) -> Pending<'_, Option<Came>> {
        Box::pin(async move {
            loop {
                match self.coming.next().await? {
                    bus::Heard::Event(event) if !self.topics.admits(event.topic()) => {}
                    bus::Heard::Event(event) => return Some(Came::One(self.masks.value(json!(event)))),
                    bus::Heard::Missed(count) => return Some(Came::Missed(count)),
                }
            }
        })
    }
}
