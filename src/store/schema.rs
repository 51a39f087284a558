//! The schema and its migrations: plain SQL files, numbered, applied in order, counted by SQLite's
//! own `user_version`. A page of code; a migration framework would bring more than it carries.

use rusqlite::Connection;

use super::error::StoreError;

const MIGRATIONS: [&str; 5] = [
    include_str!("../../migrations/sqlite/0001_ledger.sql"),
    include_str!("../../migrations/sqlite/0002_work.sql"),
    include_str!("../../migrations/sqlite/0003_skills.sql"),
    include_str!("../../migrations/sqlite/0004_servers.sql"),
    include_str!("../../migrations/sqlite/0005_chronicle.sql"),
];

/// The schema version this colibri writes.
pub const VERSION: u32 = MIGRATIONS.len() as u32;

/// Brings the database to [`VERSION`]. Only under the write lock.
pub(super) fn migrate(connection: &mut Connection) -> Result<(), StoreError> {
    let failed = StoreError::database("migrate its schema");
    let found = version(connection)?;
    check(found)?;
    for (number, sql) in (1u32..).zip(MIGRATIONS).skip(found as usize) {
        let transaction = connection.transaction().map_err(&failed)?;
        transaction.execute_batch(sql).map_err(&failed)?;
        transaction.pragma_update(None, "user_version", number).map_err(&failed)?;
        transaction.commit().map_err(&failed)?;
    }
    Ok(())
}

/// Refuses what a newer colibri wrote: it may mean something else by the same bytes.
pub(super) fn check(found: u32) -> Result<(), StoreError> {
    if found > VERSION { Err(StoreError::Newer { found, known: VERSION }) } else { Ok(()) }
}

/// The schema version of the database.
pub(super) fn version(connection: &Connection) -> Result<u32, StoreError> {
    connection
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .map_err(StoreError::database("tell its schema version"))
}

/// Kind, name and definition of everything in a schema.
type Objects = Vec<(String, String, String)>;

/// What the database consists of. SQLite's own tables, such as statistics, are not counted.
pub(super) fn objects(connection: &Connection) -> Result<Objects, StoreError> {
    let failed = StoreError::database("tell its schema");
    let sql = "SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'";
    let mut statement = connection.prepare(sql).map_err(&failed)?;
    let object = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    statement.query_map([], object).and_then(Iterator::collect).map_err(&failed)
}

/// What a database of that version must consist of.
pub(super) fn expected(version: u32) -> Result<Objects, StoreError> {
    let failed = StoreError::database("tell its schema");
    let fresh = Connection::open_in_memory().map_err(&failed)?;
    for sql in MIGRATIONS.iter().take(version as usize) {
        fresh.execute_batch(sql).map_err(&failed)?;
    }
    objects(&fresh)
}
