//! One open database, for writing: opened with every check, used under the write lock, given up at
//! the first error that leaves it doubtful.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Weak;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use uuid::Uuid;

use crate::domain::audit::Durability;
use crate::domain::ledger::{Event, KeyRotated, LogOpened, Predecessor};
use crate::domain::merkle::{Hash, leaf_hash, root_at};
use crate::domain::note::Checkpoint;

use super::Options;
use super::error::{Harm, StoreError};
use super::files::{Paths, Presence, beside, sweep, sync_folder_of};
use super::keys;
use super::ledger::{Head, Ledger, StoredNodes, place};
use super::notes::{self, Signed};
use super::schema;

/// Fixed in 3.51.3: a reset of the write-ahead log could lose a commit.
const SQLITE_VERSION_MIN: i32 = 3_051_003;

/// Only software that is not colibri makes us wait: colibris queue on the write lock.
const BUSY_PATIENCE: Duration = Duration::from_secs(5);

/// A database of no more than this has no table yet.
const FIRST_PAGE: u64 = 4096;

/// This much of the log's end is verified whenever it is opened.
const TAIL_RECORDS: u64 = 256;

pub(super) struct Session {
    pub(super) connection: Connection,
    lock: File,
    paths: Paths,
    /// The size that the newest checkpoint covers, as far as this process knows.
    pub(super) signed_size: u64,
    /// The size of the log when it was opened.
    pub(super) size: u64,
}

impl Session {
    /// Opens, migrates, verifies the tail, and closes what dead processes left open.
    pub(super) fn open(
        options: &Options,
        presence: &mut Option<Presence>,
        is_live: impl Fn(i64) -> bool,
    ) -> Result<Self, StoreError> {
        Self::open_checked(options, presence, is_live).map_err(|error| error.in_file(&options.database))
    }

    fn open_checked(
        options: &Options,
        presence: &mut Option<Presence>,
        is_live: impl Fn(i64) -> bool,
    ) -> Result<Self, StoreError> {
        let paths = Paths::beside(&options.database);
        paths.prepare()?;
        let lock = paths.write_lock()?;
        lock.lock().map_err(StoreError::file("lock", &paths.database))?;
        if presence.is_none() {
            sweep(&paths);
            *presence = Some(Presence::announce(&paths)?);
        }
        let process = presence.as_ref().map(|presence| presence.id.clone()).unwrap_or_default();
        refuse_if_gone(&paths)?;
        let connection = connect(&paths, options.durability)?;
        let mut session = Self { connection, lock, paths, signed_size: 0, size: 0 };
        schema::migrate(&mut session.connection)?;
        match Head::load(&session.connection)? {
            Some(head) => session.signed_size = session.take_up(&head)?,
            None => session.first_log(options, &process)?,
        }
        let now = options.clock.now().wall;
        let paths = session.paths.clone();
        let recovered = session.transact(options, &process, |ledger| ledger.recover(&paths, now, &is_live));
        let (closed, changes) = recovered?;
        session.size = changes.size;
        if closed > 0 {
            options
                .logger
                .warn(format_args!("[colibri] closed {closed} calls of ended processes as unknown"));
        }
        session.unlock()?;
        Ok(session)
    }

    /// One transaction under the write lock: the head is read inside it, so the log stays gap-free
    /// whoever writes. Returns the work's result and the calls it opened and closed.
    pub(super) fn locked<T>(
        &mut self,
        options: &Options,
        process: &str,
        work: impl FnOnce(&mut Ledger<'_>) -> Result<T, StoreError>,
    ) -> Result<(T, Changes), StoreError> {
        self.under_lock(|session| session.transact(options, process, work))
    }

    /// Whatever comes of it, nobody else is kept waiting afterwards.
    fn under_lock<T>(
        &mut self,
        act: impl FnOnce(&mut Self) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.lock.lock().map_err(StoreError::file("lock", &self.paths.database))?;
        let done = act(self);
        self.unlock()?;
        done
    }

    /// The same, for who holds the lock already.
    fn transact<T>(
        &mut self,
        options: &Options,
        process: &str,
        work: impl FnOnce(&mut Ledger<'_>) -> Result<T, StoreError>,
    ) -> Result<(T, Changes), StoreError> {
        let begun = self.connection.transaction_with_behavior(TransactionBehavior::Immediate);
        let transaction = begun.map_err(StoreError::database("begin a transaction"))?;
        let found = schema::version(&transaction)?;
        schema::check(found)?;
        let head = Head::load(&transaction)?.ok_or_else(|| lost("the database has no log"))?;
        let before = head.size();
        let mut ledger = Ledger::new(&transaction, head, process, options.payloads);
        let value = work(&mut ledger)?;
        if ledger.head.size() > before {
            ledger.save()?;
        }
        let changes = Changes { size: ledger.head.size(), opened: ledger.opened, closed: ledger.closed };
        transaction.commit().map_err(StoreError::database("commit"))?;
        Ok((value, changes))
    }

    /// Signs the log as it stands on disk, unless it is signed already.
    pub(super) fn checkpoint(&mut self) -> Result<(), StoreError> {
        self.signed_size = self.under_lock(Self::sign)?;
        Ok(())
    }

    /// Hands the log over to a fresh key: the old one signs the record that names the new one.
    pub(super) fn rotate_key(
        &mut self,
        options: &Options,
        process: &str,
    ) -> Result<(String, String), StoreError> {
        self.under_lock(|session| {
            let old = keys::read(&session.paths.key)?;
            let new = keys::prepare(&session.paths, old.name())?;
            let (from, to) = (old.verifying_key().to_string(), new.verifying_key().to_string());
            let event = Event::KeyRotated(KeyRotated { new: to.clone(), old: from.clone() });
            let now = options.clock.now().wall;
            session.transact(options, process, |ledger| ledger.append(now, event))?;
            session.signed_size = session.sign()?;
            keys::adopt(&session.paths, &new)?;
            Ok((from, to))
        })
    }

    fn unlock(&self) -> Result<(), StoreError> {
        self.lock.unlock().map_err(StoreError::file("unlock", &self.paths.database))
    }

    /// Signs, under the lock. Only what is on disk is signed, and only what extends the last
    /// signature: the same key never signs two histories.
    fn sign(&mut self) -> Result<u64, StoreError> {
        force_to_disk(&self.paths)?;
        let head = Head::load(&self.connection)?.ok_or_else(|| lost("the database has no log"))?;
        let key = keys::signing(&self.paths, &head.origin)?;
        let signed_size = verify_signed(&self.connection, &self.paths, &head)?;
        if signed_size == head.size() {
            return Ok(signed_size);
        }
        let checkpoint =
            Checkpoint { origin: head.origin.clone(), size: head.size(), root: head.frontier.root() };
        let note = checkpoint.sign(&key).map_err(|error| StoreError::Key {
            path: self.paths.key.clone(),
            what: format!("does not fit the log: {error}"),
        })?;
        // The file first: a note in the database is then always also outside it.
        notes::append(&self.paths, note.as_str())?;
        let row = rusqlite::params![head.log, head.size().cast_signed(), note.as_str()];
        let sql = "INSERT OR IGNORE INTO checkpoint (log, size, note) VALUES (?, ?, ?)";
        self.connection.execute(sql, row).map_err(StoreError::database("keep a checkpoint"))?;
        Ok(head.size())
    }

    /// A log that was there before: finished if its first start was cut short, and verified. One
    /// that could not be signed any more is refused, rather than written for a while.
    fn take_up(&self, head: &Head) -> Result<u64, StoreError> {
        let sql = "SELECT bytes ->> '$.facts.key' FROM record WHERE place = ?";
        let named = self.connection.query_row(sql, [place(head.log, 0)], |row| row.get::<_, String>(0));
        keys::finish(&self.paths, named.ok().as_deref())?;
        let signed_size = verify_end(&self.connection, &self.paths, head)?;
        keys::signing(&self.paths, &head.origin)?;
        Ok(signed_size)
    }

    /// The first log of a database. If anything tells of an earlier one, that one was lost.
    fn first_log(&mut self, options: &Options, process: &str) -> Result<(), StoreError> {
        match witness(&self.paths) {
            Some(file) => Err(lost(&format!("{} is there, but the database has no log", file.display()))),
            None => self.begin_log(options, process, None),
        }
    }

    /// Opens another log with a key of its own, and signs its first record. The key comes into use
    /// only after the record that names it: a crash in between leaves either no log, or a log that
    /// the next start finishes.
    fn begin_log(
        &mut self,
        options: &Options,
        process: &str,
        predecessor: Option<Predecessor>,
    ) -> Result<(), StoreError> {
        let origin = format!("colibri/{}", Uuid::now_v7().simple());
        let key = keys::prepare(&self.paths, &origin)?;
        let begun = self.connection.transaction_with_behavior(TransactionBehavior::Immediate);
        let transaction = begun.map_err(StoreError::database("open a log"))?;
        let mut ledger = Ledger::begin(&transaction, &origin, process)?;
        let opened =
            LogOpened { key: key.verifying_key().to_string(), predecessor, version: options.version.clone() };
        ledger.append(options.clock.now().wall, Event::LogOpened(opened))?;
        ledger.save()?;
        drop(ledger);
        transaction.commit().map_err(StoreError::database("open a log"))?;
        force_to_disk(&self.paths)?;
        keys::adopt(&self.paths, &key)?;
        self.signed_size = self.sign()?;
        Ok(())
    }
}

impl Drop for Session {
    /// Folds the write-ahead log into the database, unless somebody else uses it: they will. What a failed commit has
    /// left in it goes, so that nobody takes it up later.
    fn drop(&mut self) {
        let fold = |connection: &Connection| {
            connection.busy_timeout(Duration::ZERO)?;
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        };
        // What is not folded in is read from where it is.
        let _ = fold(&self.connection);
    }
}

/// Gives up a log that cannot be used, and opens another that names it. A person asked for this.
pub(super) fn accept_loss(options: &Options, reason: &StoreError) -> Result<(), StoreError> {
    let paths = Paths::beside(&options.database);
    paths.prepare()?;
    let lock = paths.write_lock()?;
    lock.lock().map_err(StoreError::file("lock", &paths.database))?;
    let mut newest = None;
    notes::each(&paths, |note| newest = Some(note))?;
    set_aside(&paths, reason, &format!(".lost-{}", options.clock.now().wall.0))?;
    let mut connection = connect(&paths, options.durability)?;
    schema::migrate(&mut connection)?;
    // The head may itself be what is broken; its origin is then only in the note.
    let ask = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, String>(0)).ok();
    let newest = newest.or_else(|| ask("SELECT note FROM checkpoint ORDER BY log DESC, size DESC LIMIT 1"));
    let origin = ask("SELECT origin FROM log ORDER BY id DESC LIMIT 1")
        .or_else(|| newest.as_deref().and_then(|note| note.lines().next()).map(str::to_owned));
    let predecessor = Predecessor { checkpoint: newest, origin, reason: reason.to_string() };
    let mut session = Session { connection, lock, paths, signed_size: 0, size: 0 };
    session.begin_log(options, "accept-loss", Some(predecessor))
}

/// Keeps what belongs to the old log, out of the new one's way. A damaged database goes first, its
/// logs before it: a new database must never find the old one's.
fn set_aside(paths: &Paths, reason: &StoreError, mark: &str) -> Result<(), StoreError> {
    let database = &paths.database;
    let mut moves = Vec::new();
    if matches!(reason, StoreError::Corrupt { .. }) {
        let aside = beside(database, mark);
        moves.extend(["-shm", "-wal", "-journal"].map(|end| (beside(database, end), beside(&aside, end))));
        moves.push((database.clone(), aside));
    }
    moves.push((paths.checkpoints.clone(), beside(&paths.checkpoints, mark)));
    if keys::public(paths).is_err() {
        moves.push((paths.public_keys.clone(), beside(&paths.public_keys, mark)));
    }
    for (from, to) in moves {
        match std::fs::rename(&from, to) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(StoreError::file("set aside", &from)(error));
            }
            _ => {}
        }
    }
    sync_folder_of(database)
}

/// What a transaction changed.
pub(super) struct Changes {
    pub(super) size: u64,
    pub(super) opened: Vec<(i64, Weak<()>)>,
    pub(super) closed: Vec<i64>,
}

/// A file that only a log with a first record leaves beside the database.
fn witness(paths: &Paths) -> Option<&Path> {
    [&paths.checkpoints, &paths.key, &paths.public_keys]
        .into_iter()
        .find(|path| path.symlink_metadata().is_ok())
        .map(PathBuf::as_path)
}

/// Before anything is created: a database that is not there, or empty, where there was one.
fn refuse_if_gone(paths: &Paths) -> Result<(), StoreError> {
    let is_there = |path: &Path| std::fs::metadata(path).is_ok_and(|found| found.len() > 0);
    if is_there(&paths.database) || is_there(&beside(&paths.database, "-wal")) {
        return Ok(());
    }
    match witness(paths) {
        Some(file) => Err(lost(&format!("the database is gone, and {} is there", file.display()))),
        None => Ok(()),
    }
}

/// The database keeps a write-ahead log from its first record on. A rollback journal beside it that says anything is
/// somebody else's: SQLite would do as it says.
fn refuse_foreign_journal(paths: &Paths) -> Result<(), StoreError> {
    let database = paths.database.canonicalize().unwrap_or_else(|_| paths.database.clone());
    // One that was cut short while it was made has a journal of its own, and nothing else.
    let is_begun = |database: &Path| std::fs::metadata(database).is_ok_and(|found| found.len() > FIRST_PAGE);
    let path = beside(&database, "-journal");
    let says_nothing = |path: &Path| match path.symlink_metadata() {
        Ok(found) => found.is_file() && found.len() == 0,
        Err(error) => error.kind() == ErrorKind::NotFound,
    };
    let is_foreign = witness(paths).is_some() && is_begun(&database) && !says_nothing(&path);
    if is_foreign { Err(StoreError::ForeignJournal { path }) } else { Ok(()) }
}

fn lost(what: &str) -> StoreError {
    StoreError::RolledBack { what: what.to_owned() }
}

fn connect(paths: &Paths, durability: Durability) -> Result<Connection, StoreError> {
    assert!(rusqlite::version_number() >= SQLITE_VERSION_MIN, "the bundled SQLite is recent");
    refuse_foreign_journal(paths)?;
    paths.create_database()?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection =
        Connection::open_with_flags(&paths.database, flags).map_err(StoreError::database("be opened"))?;
    let synchronous = if durability == Durability::Relaxed { "NORMAL" } else { "FULL" };
    let pragmas = [
        ("synchronous", synchronous),
        ("mmap_size", "0"),
        ("trusted_schema", "OFF"),
        ("cell_size_check", "ON"),
    ];
    connection.busy_timeout(BUSY_PATIENCE).map_err(StoreError::database("be opened"))?;
    // SQLite would remove its files at the end, and make others at the next start.
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
        .map_err(StoreError::database("be opened"))?;
    let journal: String = connection
        .pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))
        .map_err(StoreError::database("be opened"))?;
    if journal != "wal" {
        return Err(StoreError::Database {
            action: "keep a write-ahead log",
            cause: format!("it answers {journal}"),
            harm: Harm::Connection,
        });
    }
    for (name, value) in pragmas {
        connection.pragma_update(None, name, value).map_err(StoreError::database("be opened"))?;
    }
    paths.take_names().map_err(StoreError::file("make what SQLite needs beside", &paths.database))?;
    Ok(connection)
}

/// Takes every commit to disk, also those that another process left in the page cache under `relaxed`:
/// they are all in the write-ahead log, or were forced to disk when it was folded into the database.
fn force_to_disk(paths: &Paths) -> Result<(), StoreError> {
    let log = beside(&paths.database, "-wal");
    match File::open(&log).and_then(|file| file.sync_all()) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(StoreError::file("sync", &log)(error)),
        _ => Ok(()),
    }
}

/// What every opening checks: the last records hash and chain to the head, and the log extends what
/// was last signed. Returns the signed size.
fn verify_end(connection: &Connection, paths: &Paths, head: &Head) -> Result<u64, StoreError> {
    let failed = StoreError::database("read its end");
    let first = head.size().saturating_sub(TAIL_RECORDS);
    let mut statement = connection
        .prepare("SELECT bytes, leaf FROM record WHERE place >= ? AND place < ? ORDER BY place")
        .map_err(&failed)?;
    let row = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, Hash(row.get(1)?)));
    let range = [place(head.log, first), place(head.log + 1, 0)];
    let tail: Vec<(String, Hash)> =
        statement.query_map(range, row).and_then(Iterator::collect).map_err(&failed)?;
    if tail.len() as u64 != head.size() - first {
        return Err(lost(&format!("its head says {} records, but it ends otherwise", head.size())));
    }
    for (index, (bytes, leaf)) in (first..).zip(&tail) {
        if leaf_hash(bytes.as_bytes()) != *leaf {
            return Err(lost(&format!("record {index} was changed")));
        }
    }
    if tail.last().is_some_and(|(_, leaf)| *leaf != head.last_leaf) {
        return Err(lost("its last record is not the one its head names"));
    }
    if root_at(&mut StoredNodes { connection, log: head.log }, head.size())? != head.frontier.root() {
        return Err(lost("its head is not the root of its records"));
    }
    verify_signed(connection, paths, head)
}

/// The log must begin with what was last signed.
fn verify_signed(connection: &Connection, paths: &Paths, head: &Head) -> Result<u64, StoreError> {
    let keys = keys::public(paths)?;
    let Some(Signed { checkpoint, .. }) = notes::last(paths, &keys)? else {
        let noted: bool = connection
            .query_row("SELECT EXISTS (SELECT 1 FROM checkpoint WHERE log = ?)", [head.log], |row| row.get(0))
            .map_err(StoreError::database("read its checkpoints"))?;
        return if noted { Err(lost(&format!("{} is lost", paths.checkpoints.display()))) } else { Ok(0) };
    };
    if checkpoint.origin != head.origin {
        return Err(lost(&format!("signed was {}, and this is {}", checkpoint.origin, head.origin)));
    }
    if checkpoint.size > head.size() {
        return Err(lost(&format!(
            "{} records were signed, and only {} are there",
            checkpoint.size,
            head.size()
        )));
    }
    if root_at(&mut StoredNodes { connection, log: head.log }, checkpoint.size)? != checkpoint.root {
        return Err(lost(&format!("its first {} records are not those that were signed", checkpoint.size)));
    }
    Ok(checkpoint.size)
}
