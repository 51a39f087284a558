//! Reading: connections of their own, so that no reader waits for the writer or holds it up.

use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, params};
use serde::Serialize;

use crate::domain::merkle::{self, Hash, ProveError};
use crate::domain::note::{Checkpoint, VerifyingKey};
use crate::domain::proof::InclusionProof;

use super::error::StoreError;
use super::files::Paths;
use super::keys;
use super::ledger::{Head, StoredNodes, index, place};
use super::notes::{self, Signed};
use super::schema;

/// A read-only connection to a ledger.
pub struct Reader {
    pub(super) connection: Connection,
    pub(super) paths: Paths,
}

/// One record as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordRow {
    /// Its place in the log.
    pub index: u64,
    /// Canonical JSON.
    pub bytes: String,
    /// The stored leaf hash.
    pub leaf: Hash,
}

/// The kept part of a body, with the salt that its digest needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    /// The salt.
    pub salt: Vec<u8>,
    /// The kept bytes.
    pub kept: Vec<u8>,
}

/// One call: its enter and exit joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Action {
    /// The call's number.
    pub sequence_no: u64,
    /// Index of the enter record.
    pub enter_index: u64,
    /// Index of the exit record, once it ended.
    pub exit_index: Option<u64>,
    /// When it arrived.
    pub at: String,
    /// The correlation id.
    pub call: String,
    /// The tool.
    pub tool: String,
    /// The client's name for itself.
    pub client: String,
    /// The operating-system user.
    pub user: String,
    /// See [`crate::domain::audit::Outcome`].
    pub outcome: String,
    /// The error code, if it failed.
    pub code: Option<String>,
    /// From arrival to end.
    pub duration_ms: Option<u64>,
    /// The salted digest of the result.
    pub result_hash: Option<String>,
}

/// Which calls to list.
#[derive(Clone, Debug, Default)]
pub struct ActionFilter {
    /// Only of this tool.
    pub tool: Option<String>,
    /// Only with this outcome.
    pub outcome: Option<String>,
    /// Only from this number on.
    pub from: Option<u64>,
    /// The newest first, at most this many.
    pub limit: u32,
}

impl Reader {
    /// Opens what a writer has made; a database that is not there is not made.
    pub fn open(paths: &Paths) -> Result<Self, StoreError> {
        let failed = StoreError::database("open for reading");
        if !paths.database.exists() {
            if notes::exist(paths)? {
                let notes = paths.checkpoints.display();
                return Err(StoreError::RolledBack {
                    what: format!("{notes} has notes, but the database is gone"),
                });
            }
            let path = paths.database.display();
            return Err(StoreError::NotFound(format!(
                "there is no ledger at {path} yet; run `colibri serve` or `colibri call server_ping` first"
            )));
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&paths.database, flags).map_err(&failed)?;
        connection.busy_timeout(std::time::Duration::from_secs(5)).map_err(&failed)?;
        let version = schema::version(&connection).map_err(|error| error.in_file(&paths.database))?;
        schema::check(version)?;
        Ok(Self { connection, paths: paths.clone() })
    }

    pub(super) fn head(&self) -> Result<Head, StoreError> {
        Head::load(&self.connection)?.ok_or_else(|| self.no_log())
    }

    /// Why there is no log: it was never begun, or it is lost.
    pub(super) fn no_log(&self) -> StoreError {
        match notes::exist(&self.paths) {
            Ok(false) => StoreError::NotFound("the ledger is empty".to_owned()),
            Ok(true) => {
                let notes = self.paths.checkpoints.display();
                StoreError::RolledBack { what: format!("{notes} has notes, but the database has no log") }
            }
            Err(error) => error,
        }
    }

    /// The newest log's origin and size.
    pub fn extent(&self) -> Result<(String, u64), StoreError> {
        self.head().map(|head| (head.origin.clone(), head.size()))
    }

    /// How many calls of the newest log are open, in all processes.
    pub fn open_calls(&self) -> Result<u64, StoreError> {
        let sql = "SELECT count(*) FROM call WHERE exit IS NULL AND number >= ?";
        let first = place(self.head()?.log, 0);
        let count = self.connection.query_row(sql, [first], |row| row.get::<_, i64>(0));
        count.map(i64::cast_unsigned).map_err(StoreError::database("count its open calls"))
    }

    /// One record of the newest log.
    pub fn record(&self, index: u64) -> Result<RecordRow, StoreError> {
        let found = self.records(index, 1)?.into_iter().next();
        found.ok_or_else(|| StoreError::NotFound(format!("there is no record {index}")))
    }

    /// Up to `count` records of the newest log, from `first` on.
    pub fn records(&self, first: u64, count: u64) -> Result<Vec<RecordRow>, StoreError> {
        let head = self.head()?;
        let last = first.saturating_add(count).min(head.size());
        if first >= last {
            return Ok(Vec::new());
        }
        self.rows(place(head.log, first), place(head.log, last))
    }

    /// Records by place, `from` included, `to` not.
    fn rows(&self, from: i64, to: i64) -> Result<Vec<RecordRow>, StoreError> {
        let failed = StoreError::database("read its records");
        let sql = "SELECT place, bytes, leaf FROM record WHERE place >= ? AND place < ? ORDER BY place";
        let mut statement = self.connection.prepare_cached(sql).map_err(&failed)?;
        let row = |row: &Row<'_>| {
            Ok(RecordRow { index: index(row.get(0)?), bytes: row.get(1)?, leaf: Hash(row.get(2)?) })
        };
        statement.query_map([from, to], row).and_then(Iterator::collect).map_err(&failed)
    }

    /// What is kept of the body that a record seals.
    pub fn body(&self, index: u64) -> Result<Option<Body>, StoreError> {
        let head = self.head()?;
        self.body_at(place(head.log, index))
    }

    pub(super) fn body_at(&self, place: i64) -> Result<Option<Body>, StoreError> {
        let sql = "SELECT salt, kept FROM body WHERE place = ?";
        let row = |row: &Row<'_>| Ok(Body { salt: row.get(0)?, kept: row.get(1)? });
        let found =
            self.connection.prepare_cached(sql).and_then(|mut s| s.query_row([place], row).optional());
        found.map_err(StoreError::database("read a body"))
    }

    /// Calls of the newest log, the newest first.
    pub fn actions(&self, filter: &ActionFilter) -> Result<Vec<Action>, StoreError> {
        let failed = StoreError::database("list its calls");
        let sql = "SELECT sequence_no, enter_index, exit_index, at, call, tool, client, user, outcome, code, duration_ms, result_hash \
                   FROM actions WHERE log = ?1 AND (?2 IS NULL OR tool = ?2) AND (?3 IS NULL OR outcome = ?3) \
                   AND sequence_no >= ?4 ORDER BY sequence_no DESC LIMIT ?5";
        let mut statement = self.connection.prepare_cached(sql).map_err(&failed)?;
        let from = filter.from.unwrap_or(0).cast_signed();
        let wanted = params![self.head()?.log, filter.tool, filter.outcome, from, filter.limit];
        statement.query_map(wanted, action).and_then(Iterator::collect).map_err(&failed)
    }

    /// One call, by its number or its correlation id.
    pub fn action(&self, name: &str) -> Result<Action, StoreError> {
        let failed = StoreError::database("find a call");
        let sql = "SELECT sequence_no, enter_index, exit_index, at, call, tool, client, user, outcome, code, duration_ms, result_hash \
                   FROM actions WHERE log = ?1 AND (sequence_no = ?2 OR call = ?3)";
        let wanted = params![self.head()?.log, name.parse::<i64>().unwrap_or(-1), name];
        let found = self.connection.prepare(sql).and_then(|mut s| s.query_row(wanted, action).optional());
        found.map_err(&failed)?.ok_or_else(|| StoreError::NotFound(format!("there is no call {name}")))
    }

    /// The newest signed checkpoint of the newest log. The file has it before the database does.
    pub fn checkpoint(&self) -> Result<Signed, StoreError> {
        let (head, keys) = (self.head()?, self.keys()?);
        let sql = "SELECT note FROM checkpoint WHERE log = ? ORDER BY size DESC LIMIT 1";
        let found = self.connection.query_row(sql, [head.log], |row| row.get::<_, String>(0)).optional();
        let kept = found.map_err(StoreError::database("read its checkpoints"))?.map(|note| {
            let checkpoint = Checkpoint::open(&note, &keys).map_err(|error| StoreError::RolledBack {
                what: format!("the newest checkpoint: {error}"),
            })?;
            Ok(Signed { checkpoint, note })
        });
        let noted = notes::last(&self.paths, &keys)?.filter(|signed| signed.checkpoint.origin == head.origin);
        let newest = kept.transpose()?.into_iter().chain(noted).max_by_key(|signed| signed.checkpoint.size);
        newest.ok_or_else(|| StoreError::NotFound("the log is not signed yet".to_owned()))
    }

    /// Every public key that ever signed.
    pub fn keys(&self) -> Result<Vec<VerifyingKey>, StoreError> {
        keys::public(&self.paths)
    }

    /// A file that proves, without the database, that a record is in the signed log.
    pub fn prove(&self, index: u64) -> Result<InclusionProof, StoreError> {
        let (head, signed) = (self.head()?, self.checkpoint()?);
        let record = self.record(index)?;
        if index >= signed.checkpoint.size {
            let size = signed.checkpoint.size;
            return Err(StoreError::NotFound(format!(
                "record {index} is not signed yet (signed: {size}); try again in a second"
            )));
        }
        let mut nodes = StoredNodes { connection: &self.connection, log: head.log };
        let hashes =
            merkle::inclusion(&mut nodes, index, signed.checkpoint.size).map_err(|error| match error {
                ProveError::Nodes(error) => error,
                other => StoreError::NotFound(other.to_string()),
            })?;
        Ok(InclusionProof { extra: Some(record.bytes.into_bytes()), index, hashes, checkpoint: signed.note })
    }

    /// SQLite's own check of the whole file: `ok`, or what is wrong.
    pub fn integrity_check(&self) -> Result<Vec<String>, StoreError> {
        let failed = StoreError::database("check its integrity");
        let mut statement = self.connection.prepare("PRAGMA integrity_check").map_err(&failed)?;
        statement.query_map([], |row| row.get(0)).and_then(Iterator::collect).map_err(&failed)
    }
}

fn action(row: &Row<'_>) -> rusqlite::Result<Action> {
    let number = |column| row.get::<_, i64>(column).map(i64::cast_unsigned);
    Ok(Action {
        sequence_no: number(0)?,
        enter_index: number(1)?,
        exit_index: row.get::<_, Option<i64>>(2)?.map(i64::cast_unsigned),
        at: row.get(3)?,
        call: row.get(4)?,
        tool: row.get(5)?,
        client: row.get(6)?,
        user: row.get(7)?,
        outcome: row.get(8)?,
        code: row.get(9)?,
        duration_ms: row.get::<_, Option<i64>>(10)?.map(i64::cast_unsigned),
        result_hash: row.get(11)?,
    })
}
