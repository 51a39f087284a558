//! `server_ping` and `server_health`: what colibri says of itself.

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::domain::audit::AuditTrouble;
use crate::domain::clock::Clock;
use crate::domain::health::{LedgerFacts, ServerFacts, Status, judge};
use crate::domain::mode::Mode;
use crate::store::{Phase, SCHEMA_VERSION, Store, StoreError};

use super::skills::{Count, Skills};
use super::{RegisterError, Registry, ToolConfig};

/// What the two tools tell of.
#[derive(Clone)]
pub struct Facts {
    /// The version served.
    pub version: Arc<str>,
    /// The mode served.
    pub mode: Mode,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// When the server was built, on the monotonic clock.
    pub boot: Duration,
    /// The ledger, if calls are kept in one.
    pub store: Option<Store>,
    /// The skills, if any are looked for.
    pub skills: Option<Skills>,
    /// The tools that the mode admits.
    pub admitted: watch::Receiver<Vec<Arc<str>>>,
    /// The last time a record could not be written.
    pub trouble: watch::Receiver<Option<AuditTrouble>>,
    /// How each server behind colibri is.
    pub servers: watch::Receiver<Vec<ServerFacts>>,
}

impl Facts {
    fn uptime_ms(&self) -> u64 {
        self.clock.now().since_boot.saturating_sub(self.boot).as_millis() as u64
    }
}

/// Registers both.
pub fn register(registry: &mut Registry, facts: Facts) -> Result<(), RegisterError> {
    let ping = ToolConfig {
        title: "Ping".into(),
        description: "Tells that colibri is up: its version, mode and uptime in milliseconds. Does no I/O."
            .into(),
        ..ToolConfig::default()
    };
    let health = ToolConfig {
        title: "Health".into(),
        description:
            "Tells the truth about colibri: status (ok, degraded or failing) with reasons, admitted tools, \
                      the state of its ledger and of every server."
                .into(),
        ..ToolConfig::default()
    };
    let for_ping = facts.clone();
    registry.register("server_ping", ping, move |_: Nothing, _| std::future::ready(Ok(for_ping.ping())))?;
    registry.register("server_health", health, move |_: Nothing, _| {
        let facts = facts.clone();
        async move { Ok(facts.health().await) }
    })
}

/// No arguments.
#[derive(Deserialize, JsonSchema)]
struct Nothing {}

#[derive(Serialize, JsonSchema)]
struct Ping {
    version: String,
    mode: Mode,
    uptime_ms: u64,
}

#[derive(Serialize, JsonSchema)]
struct Health {
    status: Status,
    /// Why the status is not `ok`.
    reasons: Vec<String>,
    version: String,
    mode: Mode,
    uptime_ms: u64,
    /// What the mode lets colibri do.
    capabilities: Capabilities,
    /// The tools that can be called now, by name.
    tools: Vec<String>,
    /// Absent if calls are not kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    ledger: Option<Ledger>,
    /// The servers behind colibri.
    servers: Vec<Server>,
    /// Absent if none are looked for, or if they cannot be.
    #[serde(skip_serializing_if = "Option::is_none")]
    skills: Option<FoundSkills>,
    /// The last time a record could not be written.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_audit_error: Option<LastAuditError>,
}

#[derive(Serialize, JsonSchema)]
struct Capabilities {
    /// Tools that change something.
    mutating_tools: bool,
    /// Servers behind colibri.
    servers: bool,
    /// Backtraces in errors.
    backtraces: bool,
}

#[derive(Serialize, JsonSchema)]
struct Ledger {
    path: String,
    /// Whether a call can be put on record now.
    writable: bool,
    /// Migrations applied.
    schema_version: u32,
    records: u64,
    /// Records covered by a signed checkpoint.
    signed: u64,
    /// Calls on record that have not ended, this one included.
    open_entries: u64,
    /// Ends of calls that could not be put on record since the start.
    lost_exits: u64,
}

#[derive(Serialize, JsonSchema)]
struct Server {
    name: String,
    state: String,
    tools: u64,
    /// What went wrong last, and what is waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    trouble: Option<String>,
}

impl From<ServerFacts> for Server {
    fn from(ServerFacts { name, state, tools, trouble, .. }: ServerFacts) -> Self {
        Self { name, state: state.to_owned(), tools, trouble }
    }
}

#[derive(Serialize, JsonSchema)]
struct FoundSkills {
    /// Skills that can be used.
    count: u64,
    /// Files and folders that cannot; skill_list tells which.
    errors: u64,
    /// What somebody should look at; skill_list tells what.
    warnings: u64,
}

#[derive(Serialize, JsonSchema)]
struct LastAuditError {
    at: String,
    message: String,
}

impl Facts {
    fn ping(&self) -> Ping {
        Ping { version: self.version.to_string(), mode: self.mode, uptime_ms: self.uptime_ms() }
    }

    async fn health(&self) -> Health {
        let trouble = self.trouble.borrow().clone();
        let servers = self.servers.borrow().clone();
        let ledger_facts = self.store.as_ref().map(ledger_facts);
        let (mut status, mut reasons) =
            judge(ledger_facts.as_ref(), trouble.as_ref().map(|trouble| &*trouble.message), &servers);
        let mut ledger = None;
        if let Some(store) = &self.store {
            match read_ledger(store.clone()).await {
                Ok(read) => ledger = Some(read),
                Err(unreadable) => {
                    status = Status::Failing;
                    reasons.push(format!("the ledger cannot be read: {unreadable}"));
                }
            }
        }
        let skills = match &self.skills {
            Some(skills) => skills.count(self.clock.now().wall).await.ok(),
            None => None,
        };
        Health {
            status,
            reasons,
            version: self.version.to_string(),
            mode: self.mode,
            uptime_ms: self.uptime_ms(),
            capabilities: Capabilities {
                mutating_tools: self.mode.admits("any", true),
                servers: self.mode != Mode::Minimal,
                backtraces: self.mode.shows_backtraces(),
            },
            tools: self.admitted.borrow().iter().map(ToString::to_string).collect(),
            ledger,
            servers: servers.into_iter().map(Server::from).collect(),
            skills: skills.map(|Count { skills, errors, warnings }| FoundSkills {
                count: skills,
                errors,
                warnings,
            }),
            last_audit_error: trouble
                .map(|AuditTrouble { at, message }| LastAuditError { at: at.to_string(), message }),
        }
    }
}

fn ledger_facts(store: &Store) -> LedgerFacts {
    let status = store.status();
    let failure = match status.phase {
        Phase::Failed(error) => Some(error.to_string()),
        Phase::Opening | Phase::Open => None,
    };
    LedgerFacts { failure, unsigned: status.trouble, lost_exits: store.lost_exits() }
}

async fn read_ledger(store: Store) -> Result<Ledger, String> {
    let status = store.status();
    let writable = status.phase == Phase::Open;
    let (path, lost_exits) = (store.paths().database.display().to_string(), store.lost_exits());
    let read = move || {
        let reader = store.reader()?;
        Ok::<_, StoreError>((reader.extent()?.1, reader.open_calls()?))
    };
    let read = tokio::task::spawn_blocking(read).await.map_err(|error| error.to_string())?;
    let (records, open_entries) = read.map_err(|error| error.to_string())?;
    let (schema_version, signed) = (SCHEMA_VERSION, status.signed);
    Ok(Ledger { path, writable, schema_version, records, signed, open_entries, lost_exits })
}
