//! What lies beside the records and is derived from them: the table of calls, the kept bodies, the
//! tree, and the shape of the database itself. A row more is as false as a row changed.

use rusqlite::{OptionalExtension, Row, ToSql, params};
use serde_json::Value;

use crate::domain::ledger::{Sealed, salted};

use super::super::error::StoreError;
use super::super::ledger::place;
use super::super::read::Reader;
use super::super::schema;
use super::{StoredHead, Walk, text};

impl Walk<'_> {
    /// The row of a call must name this record, and the process that the record names.
    pub(super) fn check_call(
        &mut self,
        index: u64,
        event: &str,
        sequence_no: u64,
        process: Option<&str>,
    ) -> Result<(), StoreError> {
        let sql = "SELECT enter, exit, process FROM call WHERE number = ?";
        let row = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, text(row, 2)?));
        let stored: Option<(i64, Option<i64>, String)> = self
            .reader
            .connection
            .prepare_cached(sql)
            .and_then(|mut s| s.query_row([place(self.head.log, sequence_no)], row).optional())
            .map_err(StoreError::database("read its calls"))?;
        let here = place(self.head.log, index);
        let agrees = stored.is_some_and(|(enter, exit, served_by)| match event {
            "call.enter" => enter == here && Some(served_by.as_str()) == process,
            _ => exit == Some(here),
        });
        if !agrees {
            self.breaks(index, format!("the table of calls disagrees with it about call {sequence_no}"));
        }
        Ok(())
    }

    /// The body kept beside a record must be the one it seals. One that is gone was erased, as it
    /// may be.
    pub(super) fn check_body(&mut self, index: u64, sealed: &Value) -> Result<(), StoreError> {
        let Some(body) = self.reader.body_at(place(self.head.log, index))? else { return Ok(()) };
        self.bodies += 1;
        // An end that nobody saw has no result, and a record may keep nothing of its body.
        let stored = serde_json::from_value::<Sealed>(sealed.clone()).ok().and_then(|sealed| sealed.stored);
        let agrees = stored.is_some_and(|stored| {
            body.kept.len() as u64 == stored.size && salted(&body.salt, &body.kept) == stored.digest
        });
        if agrees {
            self.bodies_agreed += 1;
        } else {
            self.breaks(index, "the body kept beside it is not the one it seals".to_owned());
        }
        Ok(())
    }

    /// Every expected row was compared on the way; here it shows that there are no others.
    pub(super) fn check_tables(&mut self, head: &StoredHead) -> Result<(), StoreError> {
        let (size, calls) = (self.next, self.calls);
        if head.calls.cast_unsigned() != calls {
            self.breaks(size, format!("the head says {} calls, and {calls} are there", head.calls));
        }
        let numbers = [place(head.log, 0), place(head.log + 1, 0)];
        let nodes = (1..8).map(|level| size >> (8 * level)).sum::<u64>();
        let log: [&dyn ToSql; 1] = [&head.log];
        let range: [&dyn ToSql; 2] = [&numbers[0], &numbers[1]];
        let expected: [(&str, &str, &[&dyn ToSql], u64); 4] = [
            ("calls", "call WHERE number >= ? AND number < ?", &range, calls),
            ("ended calls", "call WHERE number >= ? AND number < ? AND exit IS NOT NULL", &range, self.ended),
            ("kept bodies", "body WHERE place >= ? AND place < ?", &range, self.bodies),
            ("tree nodes", "subtree WHERE log = ?", &log, nodes),
        ];
        for (what, table, key, expected) in expected {
            let found = self.reader.count(&format!("SELECT count(*) FROM {table}"), key)?;
            if found != expected {
                self.breaks(size, format!("there are {found} {what}, and the records tell of {expected}"));
            }
        }
        self.check_pin_rows(head.log)?;
        self.check_strays(head.log)?;
        self.check_schema()
    }

    /// Logs are numbered from 1; what is of none of them was put there.
    fn check_strays(&mut self, newest: i64) -> Result<(), StoreError> {
        let places = [place(1, 0), place(newest + 1, 0)];
        let strays = [
            ("record", "place < ? OR place >= ?", places),
            ("body", "place < ? OR place >= ?", places),
            ("call", "number < ? OR number >= ?", places),
            ("subtree", "log < ? OR log > ?", [1, newest]),
            ("checkpoint", "log < ? OR log > ?", [1, newest]),
        ];
        for (table, condition, key) in strays {
            let sql = format!("SELECT EXISTS (SELECT 1 FROM {table} WHERE {condition})");
            if self.reader.count(&sql, &[&key[0], &key[1]])? > 0 {
                self.breaks(self.next, format!("the table {table} has rows of a log that does not exist"));
            }
        }
        if self.reader.count("SELECT count(*) FROM log", &[])? != newest.cast_unsigned() {
            self.breaks(0, format!("there should be {newest} logs: one was removed"));
        }
        Ok(())
    }

    /// A trigger changes what will be written, a view what people are shown.
    fn check_schema(&mut self) -> Result<(), StoreError> {
        let version = schema::version(&self.reader.connection)?;
        let (found, made) = (schema::objects(&self.reader.connection)?, schema::expected(version)?);
        let odd = found.iter().find(|object| !made.contains(object));
        let gone = made.iter().find(|object| !found.contains(object));
        if let Some((kind, name, _)) = odd.or(gone) {
            self.breaks(0, format!("the {kind} {name} of the database is not as colibri made it"));
        }
        Ok(())
    }
}

impl Reader {
    /// The hash of a stored tree node, if it is there.
    pub(super) fn stored_node(&self, log: i64, level: u8, idx: u64) -> Result<Option<Vec<u8>>, StoreError> {
        let sql = "SELECT hash FROM subtree WHERE log = ? AND level = ? AND idx = ?";
        let key = params![log, level, idx.cast_signed()];
        let stored = self
            .connection
            .prepare_cached(sql)
            .and_then(|mut s| s.query_row(key, |row| row.get(0)).optional());
        stored.map_err(StoreError::database("read its tree"))
    }

    fn count(&self, sql: &str, key: &[&dyn ToSql]) -> Result<u64, StoreError> {
        let found = self.connection.query_row(sql, key, |row| row.get::<_, i64>(0));
        found.map(i64::cast_unsigned).map_err(StoreError::database("count its rows"))
    }
}
