//! The log inside one transaction: appending keeps records, leaf hashes, tree and head together.

use std::sync::Weak;

use rusqlite::{Connection, params};

use crate::domain::audit::Payloads;
use crate::domain::clock::Timestamp;
use crate::domain::ledger::{Event, FORMAT, RECORD_BYTES_MAX, Record, Salt, Sealed};
use crate::domain::merkle::{Frontier, Hash, Nodes, fold_perfect, leaf_hash};

use super::error::{Harm, StoreError};

/// How many bits of a place are the index within its log.
const INDEX_BITS: u32 = 40;

/// Where a log and an index (or a sequence number) lie in the shared B-tree.
pub(super) fn place(log: i64, index: u64) -> i64 {
    log << INDEX_BITS | index.cast_signed()
}

/// The index within its log.
pub(super) fn index(place: i64) -> u64 {
    (place & ((1 << INDEX_BITS) - 1)).cast_unsigned()
}

/// The newest log, as the transaction found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) log: i64,
    pub(super) origin: String,
    pub(super) frontier: Frontier,
    pub(super) last_leaf: Hash,
    pub(super) calls: u64,
}

impl Head {
    /// The head of the newest log; `None` before the first.
    pub(super) fn load(connection: &Connection) -> Result<Option<Self>, StoreError> {
        let failed = StoreError::database("read its head");
        let mut newest = connection
            .prepare_cached(
                "SELECT id, origin, size, frontier, last_leaf, calls FROM log ORDER BY id DESC LIMIT 1",
            )
            .map_err(&failed)?;
        let mut rows = newest.query([]).map_err(&failed)?;
        let Some(row) = rows.next().map_err(&failed)? else { return Ok(None) };
        let (size, frontier): (i64, Vec<u8>) = (row.get(2).map_err(&failed)?, row.get(3).map_err(&failed)?);
        let frontier = Frontier::from_bytes(size.cast_unsigned(), &frontier)
            .map_err(|error| StoreError::RolledBack { what: format!("its head is broken: {error}") })?;
        Ok(Some(Self {
            log: row.get(0).map_err(&failed)?,
            origin: row.get(1).map_err(&failed)?,
            frontier,
            last_leaf: Hash(row.get(4).map_err(&failed)?),
            calls: row.get::<_, i64>(5).map_err(&failed)?.cast_unsigned(),
        }))
    }

    pub(super) fn size(&self) -> u64 {
        self.frontier.size()
    }
}

/// The newest log, open for appending. Nothing is durable before the surrounding commit.
#[derive(Debug)]
pub(super) struct Ledger<'t> {
    pub(super) connection: &'t Connection,
    pub(super) head: Head,
    pub(super) process: &'t str,
    payloads: Payloads,
    /// The calls opened in this transaction, each with a sign of its entry's life, and the numbers
    /// of those closed.
    pub(super) opened: Vec<(i64, Weak<()>)>,
    pub(super) closed: Vec<i64>,
}

impl<'t> Ledger<'t> {
    pub(super) fn new(connection: &'t Connection, head: Head, process: &'t str, payloads: Payloads) -> Self {
        Self { connection, head, process, payloads, opened: Vec::new(), closed: Vec::new() }
    }

    /// Opens another log: the first of the database, or the one after an accepted loss.
    pub(super) fn begin(
        connection: &'t Connection,
        origin: &str,
        process: &'t str,
    ) -> Result<Self, StoreError> {
        let failed = StoreError::database("open a log");
        let sql =
            "INSERT INTO log (origin, size, frontier, last_leaf, calls) VALUES (?, 0, x'', zeroblob(32), 0)";
        connection.execute(sql, [origin]).map_err(&failed)?;
        let head = Head::load(connection)?.expect("the log was inserted by the statement before");
        Ok(Self::new(connection, head, process, Payloads::None))
    }

    /// Appends one record and what the tree needs of it; returns its place.
    pub(super) fn append(&mut self, at: Timestamp, event: Event) -> Result<i64, StoreError> {
        let failed = StoreError::database("append a record");
        let head = &mut self.head;
        let (index, log, prev) = (head.size(), head.origin.clone(), head.last_leaf);
        let bytes = Record { at: at.to_string(), event, index, log, prev, v: FORMAT }.to_bytes();
        assert!(bytes.len() <= RECORD_BYTES_MAX, "every part of a record is clipped");
        let (leaf, place) = (leaf_hash(&bytes), place(head.log, index));
        let text = std::str::from_utf8(&bytes).expect("serialised JSON is UTF-8");
        let mut insert = self
            .connection
            .prepare_cached("INSERT INTO record (place, bytes, leaf) VALUES (?, ?, ?)")
            .map_err(&failed)?;
        insert.execute(params![place, text, leaf.0]).map_err(&failed)?;
        for node in head.frontier.append(leaf).iter().filter(|node| node.height > 0 && node.height % 8 == 0) {
            let row = params![head.log, node.height / 8, node.index.cast_signed(), node.hash.0];
            let sql = "INSERT INTO subtree (log, level, idx, hash) VALUES (?, ?, ?, ?)";
            self.connection.prepare_cached(sql).and_then(|mut s| s.execute(row)).map_err(&failed)?;
        }
        head.last_leaf = leaf;
        Ok(place)
    }

    /// Seals a body for a record that is about to be appended; how much is kept is configured.
    pub(super) fn seal<'b>(&self, body: &'b [u8]) -> Result<(Sealed, Kept<'b>), StoreError> {
        seal(body, self.payloads.kept(body.len()))
    }

    /// Keeps the stored part of a body beside its record.
    pub(super) fn keep(&self, place: i64, body: &Kept<'_>) -> Result<(), StoreError> {
        if body.kept.is_empty() {
            return Ok(());
        }
        let sql = "INSERT INTO body (place, salt, kept) VALUES (?, ?, ?)";
        let insert = |mut s: rusqlite::CachedStatement<'_>| s.execute(params![place, body.salt, body.kept]);
        self.connection.prepare_cached(sql).and_then(insert).map_err(StoreError::database("keep a body"))?;
        Ok(())
    }

    /// Writes the head back; the last act before a commit.
    pub(super) fn save(&self) -> Result<(), StoreError> {
        let Head { log, frontier, last_leaf, calls, .. } = &self.head;
        let row = params![
            frontier.size().cast_signed(),
            frontier.to_bytes(),
            last_leaf.0,
            calls.cast_signed(),
            log
        ];
        let sql = "UPDATE log SET size = ?, frontier = ?, last_leaf = ?, calls = ? WHERE id = ?";
        let update = |mut s: rusqlite::CachedStatement<'_>| s.execute(row);
        self.connection
            .prepare_cached(sql)
            .and_then(update)
            .map_err(StoreError::database("write its head"))?;
        Ok(())
    }
}

/// Seals what is colibri's own (tasks, thoughts): it is kept whole, always.
pub(super) fn seal_whole(body: &[u8]) -> Result<(Sealed, Kept<'_>), StoreError> {
    seal(body, body.len())
}

fn seal(body: &[u8], kept: usize) -> Result<(Sealed, Kept<'_>), StoreError> {
    let mut salt = Salt::default();
    getrandom::fill(&mut salt).map_err(|error| StoreError::Database {
        action: "salt a digest",
        cause: error.to_string(),
        harm: Harm::Connection,
    })?;
    Ok((Sealed::new(&salt, body, kept), Kept { salt, kept: &body[..kept] }))
}

/// The part of a body that stays beside the log.
#[derive(Debug)]
pub(super) struct Kept<'b> {
    salt: Salt,
    kept: &'b [u8],
}

/// The tree of a stored log, for building proofs: leaves and every eighth level are stored, the
/// levels between are folded.
pub(super) struct StoredNodes<'c> {
    pub(super) connection: &'c Connection,
    pub(super) log: i64,
}

impl Nodes for StoredNodes<'_> {
    type Error = StoreError;

    fn node(&mut self, height: u8, index: u64) -> Result<Hash, StoreError> {
        let failed = StoreError::database("read its tree");
        let (level, fold) = (height / 8, height % 8);
        let (first, count) = (index << fold, 1u64 << fold);
        let sql = match level {
            0 => "SELECT leaf FROM record WHERE place >= ?1 AND place < ?2 ORDER BY place",
            _ => {
                "SELECT hash FROM subtree WHERE log = ?3 AND level = ?4 AND idx >= ?1 AND idx < ?2 ORDER BY idx"
            }
        };
        let mut statement = self.connection.prepare_cached(sql).map_err(&failed)?;
        let hash = |row: &rusqlite::Row<'_>| row.get(0).map(Hash);
        let found = if level == 0 {
            statement.query_map(params![place(self.log, first), place(self.log, first + count)], hash)
        } else {
            let range = params![first.cast_signed(), (first + count).cast_signed(), self.log, level];
            statement.query_map(range, hash)
        };
        let hashes: Vec<Hash> = found.and_then(Iterator::collect).map_err(&failed)?;
        if hashes.len() as u64 != count {
            let what = format!(
                "{} of {count} tree nodes from {first} at level {level} are missing",
                count - hashes.len() as u64
            );
            return Err(StoreError::RolledBack { what });
        }
        Ok(fold_perfect(&hashes))
    }
}
