//! The chronicle port: what is remembered and put on record of servers, besides the calls.
//!
//! Owns: the facts worth a record and how each becomes one, whatever comes in; what is remembered
//! between two starts. The store implements it with the ledger.
//! Must not know: when a fact arises, and what is done about it.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Serialize;

use super::audit::{AuditError, CallId, Pending};
use super::ledger::{
    ConfigurationLoaded, Event, LoadedFile, OutputMismatched, PinnedTool, RECORD_BYTES_MAX, SandboxDegraded,
    ServerChanged, ServerEnded, ToolChanged, ToolPinned, clip, identify,
};
use super::merkle::Hash;
use super::pin::{Change, PinnedBy};

/// A catalog that weighs more is not remembered: its server is asked again instead.
pub const CATALOG_BYTES_MAX: usize = 16 << 20;

/// As many catalogs are remembered; the ones that were not used for longest go.
pub const CATALOGS_MAX: u32 = 256;

/// How much of a record one list may take, as JSON. Two of them, and every text beside them at its
/// longest, fit a record.
const LIST_BYTES_MAX: usize = 24 << 10;
const _: () = assert!(2 * LIST_BYTES_MAX + (8 << 10) < RECORD_BYTES_MAX);

/// How much the tools of one record take, as JSON.
const PINS_BYTES_MAX: usize = 56 << 10;
const _: () = assert!(PINS_BYTES_MAX + (4 << 10) < RECORD_BYTES_MAX);

/// What a pinned tool takes beside its name.
const PIN_BYTES: usize = r#"{"digest":"","tool":}"#.len() + 64;

/// What servers and their tools did, for the ledger and for the next start.
pub trait Chronicle: Send + Sync + 'static {
    /// Puts one fact on record; it is committed when this returns. `call` is the correlation id: the
    /// call's, or that of the connection's episode.
    fn put(&self, call: CallId, fact: Fact) -> Pending<'_, Result<(), AuditError>>;

    /// What is pinned of a server, by its name in the configuration: the name of each tool, as
    /// [`identify`] gives it, and the digest of its definition.
    fn pins(&self, server: &str) -> Pending<'_, Result<BTreeMap<String, Hash>, AuditError>>;

    /// Pins definitions and puts it on record, all or nothing. At [`PinnedBy::FirstSight`], a tool that
    /// is pinned already stays as it is, whoever pinned it meanwhile, and no more are pinned than
    /// [`SEEN_MAX`](super::pin::SEEN_MAX); what changes nothing leaves no record.
    fn pin(
        &self,
        call: CallId,
        server: &str,
        tools: Vec<(String, Hash)>,
        by: PinnedBy,
    ) -> Pending<'_, Result<(), AuditError>>;

    /// The catalog that a server had last time, by the digest of its effective configuration. None if
    /// it is not known, or cannot be known.
    fn recall(&self, server: Hash) -> Pending<'_, Option<Bytes>>;

    /// Remembers the catalog of a server for the next start, if it is not larger than
    /// [`CATALOG_BYTES_MAX`]. Not on record, and no harm if it fails.
    fn keep(&self, server: Hash, catalog: Bytes) -> Pending<'_, ()>;
}

/// Something that is worth a record. Servers are called by their names in the configuration, tools by
/// the names their server knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// A server does something else.
    ServerState {
        /// Which server.
        server: String,
        /// See `State::status`.
        from: &'static str,
        /// See `State::status`.
        to: &'static str,
        /// For people: what is wrong, if something is.
        reason: Option<String>,
    },
    /// A server's process ended.
    ServerEnded {
        /// Which server.
        server: String,
        /// For people: how.
        how: String,
        /// The limit that it went beyond, if that is why; see `End::code`.
        limit: Option<&'static str>,
    },
    /// A tool's definition is not the one that was pinned, or it is new where that needs a person's word.
    ToolChanged {
        /// Which server.
        server: String,
        /// Which tool; see `pin::INSTRUCTIONS`.
        tool: String,
        /// What it was and is.
        change: Change,
        /// Whether it cannot be called until it is accepted.
        enforced: bool,
        /// How many more were found so at the same time, and are not put on record one by one.
        more: u64,
    },
    /// A result does not fit its tool's output schema.
    OutputMismatch {
        /// Which server.
        server: String,
        /// Which tool.
        tool: String,
        /// For people: the first of what does not fit.
        message: String,
    },
    /// A server runs with less of a sandbox than it would have.
    SandboxDegraded {
        /// Which server.
        server: String,
        /// The layers that are missing, as a person allowed.
        layers: Vec<String>,
        /// Whether there is no sandbox at all, as a person asked.
        off: bool,
    },
    /// A configuration took effect.
    ConfigurationLoaded {
        /// The files it was read from, each with SHA-256 of its bytes, in the order of their precedence.
        files: Vec<(String, Hash)>,
        /// The names of its servers.
        servers: Vec<String>,
    },
}

impl Fact {
    /// The record of it: texts are clipped, lists end where they no longer fit.
    pub fn into_event(self, call: CallId) -> Event {
        match self {
            Self::ServerState { server, from, to, reason } => Event::ServerChanged(ServerChanged {
                call,
                from: from.to_owned(),
                reason: reason.map(|reason| clip(&reason).to_owned()),
                server: identify(&server).into_owned(),
                to: to.to_owned(),
            }),
            Self::ServerEnded { server, how, limit } => Event::ServerEnded(ServerEnded {
                call,
                how: clip(&how).to_owned(),
                limit: limit.map(str::to_owned),
                server: identify(&server).into_owned(),
            }),
            Self::ToolChanged { server, tool, change, enforced, more } => Event::ToolChanged(ToolChanged {
                call,
                enforced,
                found: change.found,
                more,
                pinned: change.pinned,
                server: identify(&server).into_owned(),
                tool: identify(&tool).into_owned(),
            }),
            Self::OutputMismatch { server, tool, message } => Event::OutputMismatched(OutputMismatched {
                call,
                message: clip(&message).to_owned(),
                server: identify(&server).into_owned(),
                tool: identify(&tool).into_owned(),
            }),
            Self::SandboxDegraded { server, layers, off } => Event::SandboxDegraded(SandboxDegraded {
                call,
                layers: fitting(layers.iter().map(|layer| clip(layer).to_owned())),
                off,
                server: identify(&server).into_owned(),
            }),
            Self::ConfigurationLoaded { files, servers } => {
                Event::ConfigurationLoaded(ConfigurationLoaded {
                    call,
                    file_count: files.len() as u64,
                    files: fitting(files.iter().map(|(path, digest)| LoadedFile {
                        digest: *digest,
                        path: identify(path).into_owned(),
                    })),
                    server_count: servers.len() as u64,
                    servers: fitting(servers.iter().map(|server| identify(server).into_owned())),
                })
            }
        }
    }
}

/// The records of a pinning: as few as the bound of a record allows.
pub fn pinned(
    call: CallId,
    server: &str,
    tools: impl IntoIterator<Item = (String, Hash)>,
    by: PinnedBy,
) -> Vec<ToolPinned> {
    let mut records: Vec<ToolPinned> = Vec::new();
    let mut room = 0;
    for (tool, digest) in tools {
        let tool = identify(&tool).into_owned();
        let bytes = PIN_BYTES + weight(&tool);
        if bytes > room {
            let server = identify(server).into_owned();
            records.push(ToolPinned { by, call, server, tools: Vec::new() });
            room = PINS_BYTES_MAX;
        }
        room -= bytes;
        records.last_mut().expect("the first tool finds no room").tools.push(PinnedTool { digest, tool });
    }
    records
}

/// As much of a list as fits a record.
fn fitting<T: Serialize>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut room = LIST_BYTES_MAX;
    items
        .take_while(|item| {
            let left = room.checked_sub(weight(item));
            room = left.unwrap_or(0);
            left.is_some()
        })
        .collect()
}

/// What an item of a list adds to a record, its comma included. Escapes can make six bytes of one.
fn weight(item: &impl Serialize) -> usize {
    serde_json::to_vec(item).expect("strings always serialise").len() + 1
}

/// For who has no store: nothing is recorded, and nothing remembered.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoChronicle;

impl Chronicle for NoChronicle {
    fn put(&self, _: CallId, _: Fact) -> Pending<'_, Result<(), AuditError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn pins(&self, _: &str) -> Pending<'_, Result<BTreeMap<String, Hash>, AuditError>> {
        Box::pin(std::future::ready(Ok(BTreeMap::new())))
    }

    fn pin(
        &self,
        _: CallId,
        _: &str,
        _: Vec<(String, Hash)>,
        _: PinnedBy,
    ) -> Pending<'_, Result<(), AuditError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn recall(&self, _: Hash) -> Pending<'_, Option<Bytes>> {
        Box::pin(std::future::ready(None))
    }

    fn keep(&self, _: Hash, _: Bytes) -> Pending<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

#[cfg(test)]
mod tests;
