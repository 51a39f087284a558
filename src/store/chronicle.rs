//! The ledger as a chronicle: facts become records, pins rows that the records support, and catalogs
//! are remembered beside them.

use std::collections::BTreeMap;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, params};

use crate::domain::audit::{AuditError, CallId, Pending};
use crate::domain::chronicle::{CATALOG_BYTES_MAX, CATALOGS_MAX, Chronicle, Fact, pinned};
use crate::domain::clock::Timestamp;
use crate::domain::ledger::{Event, identify};
use crate::domain::merkle::Hash;
use crate::domain::pin::{PinnedBy, SEEN_MAX};

use super::Store;
use super::error::StoreError;
use super::ledger::{Head, Ledger, place};
use super::read::Reader;
use super::writer::{Reply, Request, Work};

/// A catalog that was read is marked as used once a day: enough to tell which one nobody needs, and
/// little enough that a start is not a write.
const MARK_AFTER_MS: u64 = 24 * 60 * 60 * 1000;

/// Puts facts on record in a store's ledger, and remembers pins and catalogs in its database.
pub struct LedgerChronicle {
    store: Store,
}

impl LedgerChronicle {
    /// The chronicle of that store.
    pub fn new(store: Store) -> Self {
        Self { store }
    }

    fn now(&self) -> Timestamp {
        self.store.0.options.clock.now().wall
    }

    /// Nobody waits for it, and if the writer is busy it is left out.
    fn mark_used(&self, server: Hash, now: Timestamp) {
        let mark = move |ledger: &mut Ledger<'_>| ledger.mark_used(server, now);
        let verb = Work::new(mark, Reply::Failure(Box::new(drop)));
        let _ = self.store.0.inbox.try_send(Request::Verb(Box::new(verb)));
    }
}

impl Chronicle for LedgerChronicle {
    fn put(&self, call: CallId, fact: Fact) -> Pending<'_, Result<(), AuditError>> {
        Box::pin(async move {
            let (now, event) = (self.now(), fact.into_event(call));
            self.store.write(move |ledger| ledger.append(now, event)).await?;
            Ok(())
        })
    }

    fn pins(&self, server: &str) -> Pending<'_, Result<BTreeMap<String, Hash>, AuditError>> {
        let server = server.to_owned();
        Box::pin(async move {
            self.store.ready().await?;
            Ok(self.store.read(move |reader| pins(&reader.connection, &reader.head()?, &server)).await?)
        })
    }

    fn pin(
        &self,
        call: CallId,
        server: &str,
        tools: Vec<(String, Hash)>,
        by: PinnedBy,
    ) -> Pending<'_, Result<(), AuditError>> {
        let server = server.to_owned();
        Box::pin(async move {
            let now = self.now();
            Ok(self.store.write(move |ledger| ledger.pin(now, call, &server, tools, by)).await?)
        })
    }

    fn recall(&self, server: Hash) -> Pending<'_, Option<Bytes>> {
        Box::pin(async move {
            self.store.ready().await.ok()?;
            let (catalog, used_at) =
                self.store.read(move |reader| reader.catalog(server)).await.ok().flatten()?;
            let now = self.now();
            if now.0.saturating_sub(used_at) >= MARK_AFTER_MS {
                self.mark_used(server, now);
            }
            Some(catalog.into())
        })
    }

    fn keep(&self, server: Hash, catalog: Bytes) -> Pending<'_, ()> {
        Box::pin(async move {
            let now = self.now();
            // It costs a look at the server the next time, and nothing else.
            if let Err(error) =
                self.store.write(move |ledger| ledger.keep_catalog(now, server, &catalog)).await
            {
                let logger = &self.store.0.options.logger;
                logger.debug(format_args!("[colibri] the catalog of a server is not remembered: {error}"));
            }
        })
    }
}

impl Reader {
    /// A remembered catalog, and when it was used last.
    fn catalog(&self, server: Hash) -> Result<Option<(Vec<u8>, u64)>, StoreError> {
        let sql = "SELECT catalog, used_at FROM server_catalog WHERE server = ?";
        let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get::<_, i64>(1)?.cast_unsigned()));
        self.connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.query_row([server.0], row).optional())
            .map_err(StoreError::database("recall a catalog"))
    }
}

impl Ledger<'_> {
    /// Another process may have pinned the same meanwhile; only this transaction knows.
    fn pin(
        &mut self,
        at: Timestamp,
        call: CallId,
        server: &str,
        tools: Vec<(String, Hash)>,
        by: PinnedBy,
    ) -> Result<(), StoreError> {
        let known = pins(self.connection, &self.head, server)?;
        let room = SEEN_MAX.saturating_sub(known.len());
        let mut fresh = BTreeMap::new();
        for (tool, digest) in tools {
            let stands = match known.get(&*identify(&tool)) {
                None => by == PinnedBy::FirstSight && fresh.len() >= room,
                Some(pin) => by == PinnedBy::FirstSight || *pin == digest,
            };
            if !stands {
                fresh.entry(tool).or_insert(digest);
            }
        }
        let failed = StoreError::database("pin a tool");
        let connection = self.connection;
        let sql = "INSERT OR REPLACE INTO tool_pin (server, tool, digest, place) VALUES (?, ?, ?, ?)";
        let mut insert = connection.prepare_cached(sql).map_err(&failed)?;
        for record in pinned(call, server, fresh, by) {
            let place = self.append(at, Event::ToolPinned(record.clone()))?;
            for pin in &record.tools {
                insert.execute(params![record.server, pin.tool, pin.digest.0, place]).map_err(&failed)?;
            }
        }
        Ok(())
    }

    fn mark_used(&mut self, server: Hash, now: Timestamp) -> Result<(), StoreError> {
        self.connection
            .prepare_cached("UPDATE server_catalog SET used_at = ? WHERE server = ?")
            .and_then(|mut statement| statement.execute(params![now.0.cast_signed(), server.0]))
            .map_err(StoreError::database("mark a catalog as used"))?;
        Ok(())
    }

    /// The newest is kept, and of all together not more than the bound. One too large to keep makes the
    /// one before it false, which goes.
    fn keep_catalog(&mut self, now: Timestamp, server: Hash, catalog: &[u8]) -> Result<(), StoreError> {
        let failed = StoreError::database("remember a catalog");
        let run = |sql: &str, values: &[&dyn rusqlite::ToSql]| {
            self.connection.prepare_cached(sql).and_then(|mut s| s.execute(values)).map_err(&failed)
        };
        if catalog.len() > CATALOG_BYTES_MAX {
            run("DELETE FROM server_catalog WHERE server = ?", &[&server.0])?;
            return Ok(());
        }
        let now = now.0.cast_signed();
        // A catalog that did not change is not written again, however large it is.
        let same = "UPDATE server_catalog SET used_at = ? WHERE server = ? AND catalog = ?";
        if run(same, &[&now, &server.0, &catalog])? == 0 {
            let sql = "INSERT OR REPLACE INTO server_catalog (server, used_at, catalog) VALUES (?, ?, ?)";
            run(sql, &[&server.0, &now, &catalog])?;
        }
        let newest = "DELETE FROM server_catalog WHERE server NOT IN \
                      (SELECT server FROM server_catalog ORDER BY used_at DESC, server LIMIT ?)";
        run(newest, &[&CATALOGS_MAX])?;
        Ok(())
    }
}

/// What is pinned of a server. A log that was given up says nothing for the one that came after it.
fn pins(connection: &Connection, head: &Head, server: &str) -> Result<BTreeMap<String, Hash>, StoreError> {
    let failed = StoreError::database("read what is pinned");
    let sql = "SELECT tool, digest FROM tool_pin WHERE server = ? AND place >= ?";
    let mut statement = connection.prepare_cached(sql).map_err(&failed)?;
    let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, Hash(row.get(1)?)));
    let found = statement.query_map(params![identify(server), place(head.log, 0)], row);
    found.and_then(Iterator::collect).map_err(&failed)
}
