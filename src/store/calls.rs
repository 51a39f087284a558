//! The verbs of a call: opening it, closing it, or recording at once that it was refused.

use std::sync::Arc;

use rusqlite::params;

use crate::domain::audit::{CallId, Enter, Exit, Outcome, Principal};
use crate::domain::clock::Timestamp;
use crate::domain::ledger::{CallEnter, CallExit, Event, clip};

use super::error::StoreError;
use super::files::{Paths, is_alive};
use super::ledger::{Ledger, index, place};

/// Proof that a call is on record. Not `Clone`, and closing consumes it: there is no exit without
/// an enter, and no second exit.
#[must_use = "an opened entry must be closed"]
#[derive(Debug)]
pub(super) struct Entry {
    number: i64,
    call: CallId,
    /// The writer watches it: an entry that is gone, in whatever way, is not open any more.
    #[expect(dead_code, reason = "its life is what is told")]
    alive: Arc<()>,
}

impl Entry {
    /// Ends its life: from here on there is no such entry.
    fn into_parts(self) -> (i64, CallId) {
        (self.number, self.call)
    }
}

impl Ledger<'_> {
    /// Stage 3: the call is about to run.
    pub(super) fn open_call(&mut self, enter: &Enter) -> Result<Entry, StoreError> {
        let (args, kept) = self.seal(&enter.arguments)?;
        let sequence_no = self.head.calls;
        self.head.calls += 1;
        let record = self.append(
            enter.at.wall,
            Event::CallEnter(CallEnter {
                args,
                call: enter.call,
                mono_ms: enter.at.since_boot.as_millis() as u64,
                principal: Principal {
                    client: clip(&enter.principal.client).to_owned(),
                    user: clip(&enter.principal.user).to_owned(),
                },
                process: self.process.to_owned(),
                revision: enter.revision.to_owned(),
                sequence_no,
                tool: clip(&enter.tool).to_owned(),
            }),
        )?;
        self.keep(record, &kept)?;
        let number = place(self.head.log, sequence_no);
        let sql = "INSERT INTO call (number, enter, process) VALUES (?, ?, ?)";
        let insert = |mut s: rusqlite::CachedStatement<'_>| s.execute(params![number, record, self.process]);
        self.connection.prepare_cached(sql).and_then(insert).map_err(StoreError::database("open a call"))?;
        let alive = Arc::new(());
        self.opened.push((number, Arc::downgrade(&alive)));
        Ok(Entry { number, call: enter.call, alive })
    }

    /// Stage 5: the call ended.
    pub(super) fn close_call(&mut self, entry: Entry, exit: &Exit) -> Result<(), StoreError> {
        let (number, call) = entry.into_parts();
        self.closed.push(number);
        let (result, kept) = self.seal(&exit.body)?;
        let ending = CallExit {
            call,
            code: exit.error.as_ref().map(|failure| clip(&failure.code).to_owned()),
            duration_ms: Some(exit.duration.as_millis() as u64),
            outcome: exit.outcome,
            result: Some(result),
            sequence_no: index(number),
        };
        let record = self.end_call(number, exit.at.wall, ending)?;
        self.keep(record, &kept)
    }

    /// A refused call: the whole pair at once.
    pub(super) fn reject_call(&mut self, enter: &Enter, exit: &Exit) -> Result<(), StoreError> {
        let entry = self.open_call(enter)?;
        self.close_call(entry, exit)
    }

    /// Closes what dead processes left open, and what this one has lost track of. The entries of
    /// the living are theirs.
    pub(super) fn recover(
        &mut self,
        paths: &Paths,
        now: Timestamp,
        is_mine_and_live: impl Fn(i64) -> bool,
    ) -> Result<u64, StoreError> {
        let mut closed = 0;
        for process in self.processes_with_open_calls()? {
            let mine = process == self.process;
            if !mine && is_alive(paths, &process)? {
                continue;
            }
            for (number, call) in self.open_calls_of(&process)? {
                if mine && is_mine_and_live(number) {
                    continue;
                }
                let outcome = Outcome::Unknown;
                let sequence_no = index(number);
                let ending =
                    CallExit { call, code: None, duration_ms: None, outcome, result: None, sequence_no };
                self.end_call(number, now, ending)?;
                closed += 1;
            }
        }
        Ok(closed)
    }

    fn end_call(&mut self, number: i64, at: Timestamp, ending: CallExit) -> Result<i64, StoreError> {
        let failed = StoreError::database("close a call");
        let record = self.append(at, Event::CallExit(ending))?;
        let sql = "UPDATE call SET exit = ? WHERE number = ? AND exit IS NULL";
        let update = |mut s: rusqlite::CachedStatement<'_>| s.execute(params![record, number]);
        match self.connection.prepare_cached(sql).and_then(update).map_err(&failed)? {
            1 => Ok(record),
            _ => Err(StoreError::NotFound(format!("call {} is not open", index(number)))),
        }
    }

    fn processes_with_open_calls(&self) -> Result<Vec<String>, StoreError> {
        let failed = StoreError::database("read its open calls");
        let sql = "SELECT DISTINCT process FROM call WHERE exit IS NULL";
        let mut statement = self.connection.prepare(sql).map_err(&failed)?;
        let processes = statement.query_map([], |row| row.get(0)).and_then(Iterator::collect);
        processes.map_err(&failed)
    }

    fn open_calls_of(&self, process: &str) -> Result<Vec<(i64, CallId)>, StoreError> {
        let failed = StoreError::database("read its open calls");
        // Only of this log: an older log is closed, and its record stays as it is.
        let sql = "SELECT call.number, record.bytes ->> '$.facts.call' FROM call \
                   JOIN record ON record.place = call.enter \
                   WHERE call.exit IS NULL AND call.process = ? AND call.number >= ? ORDER BY call.number";
        let mut statement = self.connection.prepare(sql).map_err(&failed)?;
        let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get::<_, String>(1)?));
        let found = statement.query_map(params![process, place(self.head.log, 0)], row);
        let open: Vec<(i64, String)> = found.and_then(Iterator::collect).map_err(&failed)?;
        open.into_iter()
            .map(|(number, call)| match call.parse() {
                Ok(id) => Ok((number, CallId(id))),
                Err(_) => Err(StoreError::RolledBack {
                    what: format!("the enter record of call {} has no id", index(number)),
                }),
            })
            .collect()
    }
}
