//! The table of pins must be what the records tell: every tool that a record pins is there, with a
//! record that is no older, and every row is told by the record it names. Together that is the newest.
//!
//! The two halves are asked apart, because a writer may pin anew while the log is walked: the first
//! along the walk, where rows only ever move on to newer records; the second at its end, in one view.

use std::collections::HashMap;

use rusqlite::{OptionalExtension, Row, params};
use serde_json::Value;

use crate::domain::ledger::{Event, Record, ToolPinned, clip};
use crate::domain::log::visible;
use crate::domain::merkle::Hash;

use super::super::error::StoreError;
use super::super::ledger::{index, place};
use super::super::schema;
use super::{Walk, text};

/// The schema version that brought the table.
const SINCE_VERSION: u32 = 5;

/// What one record pins: of which server, which tools and how.
type Told = Option<(String, HashMap<String, Hash>)>;

impl Walk<'_> {
    /// A record of pinned tools: each must still be pinned, by this record or a newer one.
    pub(super) fn check_pinned(&mut self, at: u64, facts: &Value) -> Result<(), StoreError> {
        let Ok(record) = serde_json::from_value::<ToolPinned>(facts.clone()) else {
            self.breaks_record(at, "it does not say what it pins".to_owned());
            return Ok(());
        };
        if !self.has_pins()? {
            self.breaks(at, "it pins tools, and the table of pins is gone".to_owned());
            return Ok(());
        }
        let failed = StoreError::database("read its pins");
        let here = place(self.head.log, at);
        let sql = "SELECT place FROM tool_pin WHERE server = ? AND tool = ?";
        let mut find = self.reader.connection.prepare_cached(sql).map_err(&failed)?;
        for pin in &record.tools {
            let key = params![record.server, pin.tool];
            let found: Option<i64> = find.query_row(key, |row| row.get(0)).optional().map_err(&failed)?;
            if found.is_none_or(|found| found < here) {
                let what = named(&record.server, &pin.tool);
                self.breaks(at, format!("the table of pins has forgotten {what}"));
            }
        }
        Ok(())
    }

    /// Every row must be told by the record it names. Rows of logs that were given up say nothing.
    pub(super) fn check_pin_rows(&mut self, newest: i64) -> Result<(), StoreError> {
        if !self.has_pins()? {
            return Ok(());
        }
        let failed = StoreError::database("read its pins");
        let reader = self.reader;
        let sql =
            "SELECT server, tool, digest, place FROM tool_pin WHERE place < ?1 OR place >= ?2 ORDER BY place";
        let mut statement = reader.connection.prepare_cached(sql).map_err(&failed)?;
        let mut rows = statement.query([place(1, 0), place(newest, 0)]).map_err(&failed)?;
        let mut told: (i64, Told) = (0, None);
        while let Some(row) = rows.next().map_err(&failed)? {
            let (server, tool) = (text(row, 0).map_err(&failed)?, text(row, 1).map_err(&failed)?);
            let digest: Vec<u8> = row.get(2).map_err(&failed)?;
            let at: i64 = row.get(3).map_err(&failed)?;
            // No record is at place 0: logs are numbered from 1.
            if told.0 != at {
                told = (at, self.pinned_at(at)?);
            }
            let agrees = told.1.as_ref().is_some_and(|(of, tools)| {
                *of == server && tools.get(&tool).is_some_and(|told| told.0[..] == digest)
            });
            if !agrees {
                let shown = index(at).min(self.next);
                let what = named(&server, &tool);
                self.breaks(shown, format!("the table of pins has {what}, and no record says so"));
            }
        }
        Ok(())
    }

    /// What the record at that place pins, if it pins anything.
    fn pinned_at(&self, at: i64) -> Result<Told, StoreError> {
        let sql = "SELECT bytes FROM record WHERE place = ?";
        let row = |row: &Row<'_>| Ok(row.get_ref(0)?.as_bytes()?.to_vec());
        let bytes = self
            .reader
            .connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.query_row([at], row).optional())
            .map_err(StoreError::database("read its records"))?;
        let record: Option<Record> = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Ok(match record.map(|record| record.event) {
            Some(Event::ToolPinned(ToolPinned { server, tools, .. })) => {
                Some((server, tools.into_iter().map(|pin| (pin.tool, pin.digest)).collect()))
            }
            _ => None,
        })
    }

    fn has_pins(&self) -> Result<bool, StoreError> {
        Ok(schema::version(&self.reader.connection)? >= SINCE_VERSION)
    }
}

/// What a server called its tool is shown, never obeyed.
fn named(server: &str, tool: &str) -> String {
    visible(&format!("`{}` of `{}`", clip(tool), clip(server)))
}
