//! Verification of the decision trail: every chain is walked again from the records' bytes.
//!
//! The whole trail is read from the log, not from the tables that answer quickly, so that a thought
//! which somebody took out of them is missed. The log is read in ranges: one long read would keep the
//! write-ahead log from being recycled.

use std::collections::HashMap;

use rusqlite::{OptionalExtension, params};

use crate::domain::ledger::{Event, Record, salted};
use crate::domain::merkle::Hash;
use crate::domain::thought::{Chain, Thought};

use super::error::StoreError;
use super::read::Reader;

const RANGE_RECORDS: i64 = 2048;

/// How a record of a thought is told from others without reading all of it.
const MARK: &str = "\"event\":\"thought.recorded\"";

/// One task's chain, walked.
#[derive(Clone, Debug)]
pub struct TaskChain {
    /// The task.
    pub task_id: String,
    /// What the walk found.
    pub chain: Chain,
}

/// Where a chain ends, as its task says.
struct End {
    task_id: String,
    thoughts: u64,
    last_hash: Hash,
}

/// One row of the walk: a record, and what lies beside it.
struct Row {
    place: i64,
    bytes: Option<String>,
    /// The id that the table of thoughts has for it.
    id: Option<String>,
    body: Option<(Vec<u8>, Vec<u8>)>,
}

impl Reader {
    /// One task's chain; `None` if there is no such task.
    pub fn verify_task(&self, task_id: &str) -> Result<Option<TaskChain>, StoreError> {
        let failed = StoreError::database("read a chain");
        // One view of both tables: a thought that comes now is in both, or in neither.
        let view = self.connection.unchecked_transaction().map_err(&failed)?;
        let sql = "SELECT seq, thoughts, last_hash FROM task WHERE id = ?";
        let row = |row: &rusqlite::Row<'_>| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?.cast_unsigned(), Hash(row.get(2)?)))
        };
        let found = view.query_row(sql, [task_id], row).optional().map_err(&failed)?;
        let Some((seq, thoughts, last_hash)) = found else { return Ok(None) };
        let mut statement = view
            .prepare_cached(
                "SELECT thought.place, record.bytes, thought.id, body.salt, body.kept FROM thought \
                 LEFT JOIN record ON record.place = thought.place LEFT JOIN body ON body.place = thought.place \
                 WHERE thought.task = ? ORDER BY thought.place",
            )
            .map_err(&failed)?;
        let mut rows = statement.query([seq]).map_err(&failed)?;
        let mut chain = Chain::default();
        while let Some(row) = rows.next().map_err(&failed)? {
            step(&mut chain, read_row(row).map_err(&failed)?, Some(task_id));
        }
        let end = End { task_id: task_id.to_owned(), thoughts, last_hash };
        Ok(Some(ended(chain, end)))
    }

    /// The chains of all tasks that have one, in the order of the tasks.
    pub fn verify_trail(&self) -> Result<Vec<TaskChain>, StoreError> {
        let (ends, rows, last) = self.ends()?;
        let mut chains: HashMap<String, Chain> = HashMap::new();
        let (mut from, mut known) = (i64::MIN, 0);
        loop {
            let range = self.trail_range(from, last)?;
            let Some(newest) = range.last().map(|row| row.place) else { break };
            for row in range {
                known += u64::from(row.id.is_some());
                match row.bytes.as_deref().filter(|bytes| bytes.contains(MARK)).and_then(read_thought) {
                    Some(thought) => {
                        let chain = chains.entry(thought.task_id.clone()).or_default();
                        step(chain, row, None);
                    }
                    // The table says it is a thought, and the record does not.
                    None if row.id.is_some() => {
                        let id = row.id.unwrap_or_default();
                        chains.entry(String::new()).or_default().unreadable(&id);
                    }
                    None => {}
                }
            }
            from = newest;
        }
        let mut walked: Vec<TaskChain> =
            ends.into_iter().map(|end| ended(chains.remove(&end.task_id).unwrap_or_default(), end)).collect();
        // What is left are chains whose task is gone, or says that it has none.
        let mut orphans: Vec<_> = chains.into_iter().collect();
        orphans.sort_by(|one, other| one.0.cmp(&other.0));
        walked.extend(orphans.into_iter().map(|(task_id, mut chain)| {
            chain.ends_wrong(&task_id);
            TaskChain { task_id, chain }
        }));
        if known != rows {
            let mut chain = Chain::default();
            chain.ends_wrong("the table of thoughts");
            walked.push(TaskChain { task_id: String::new(), chain });
        }
        Ok(walked)
    }

    /// Where the chains end, how many thoughts the table has, and the newest record: one view.
    fn ends(&self) -> Result<(Vec<End>, u64, i64), StoreError> {
        let failed = StoreError::database("read its chains");
        let view = self.connection.unchecked_transaction().map_err(&failed)?;
        let number = |sql: &str| view.query_row(sql, [], |row| row.get::<_, i64>(0)).map_err(&failed);
        let last = number("SELECT coalesce(max(place), 0) FROM record")?;
        let rows = number("SELECT count(*) FROM thought")?.cast_unsigned();
        let mut statement = view
            .prepare("SELECT id, thoughts, last_hash FROM task WHERE thoughts > 0 ORDER BY seq")
            .map_err(&failed)?;
        let end = |row: &rusqlite::Row<'_>| {
            let thoughts = row.get::<_, i64>(1)?.cast_unsigned();
            Ok(End { task_id: row.get(0)?, thoughts, last_hash: Hash(row.get(2)?) })
        };
        let ends = statement.query_map([], end).and_then(Iterator::collect).map_err(&failed)?;
        Ok((ends, rows, last))
    }

    fn trail_range(&self, after: i64, last: i64) -> Result<Vec<Row>, StoreError> {
        let failed = StoreError::database("read its trail");
        let sql = "SELECT record.place, record.bytes, thought.id, body.salt, body.kept FROM record \
                   LEFT JOIN thought ON thought.place = record.place \
                   LEFT JOIN body ON body.place = thought.place \
                   WHERE record.place > ? AND record.place <= ? ORDER BY record.place LIMIT ?";
        let mut statement = self.connection.prepare_cached(sql).map_err(&failed)?;
        let rows = statement.query_map(params![after, last, RANGE_RECORDS], read_row);
        rows.and_then(Iterator::collect).map_err(&failed)
    }
}

fn read_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<Row> {
    let salt: Option<Vec<u8>> = row.get(3)?;
    let kept: Option<Vec<u8>> = row.get(4)?;
    Ok(Row { place: row.get(0)?, bytes: row.get(1)?, id: row.get(2)?, body: salt.zip(kept) })
}

/// The next thought of a chain, with everything that must agree with it.
fn step(chain: &mut Chain, row: Row, of_task: Option<&str>) {
    let Some(thought) = row.bytes.as_deref().and_then(read_thought) else {
        return chain.unreadable(row.id.as_deref().unwrap_or_default());
    };
    // A text that is gone was erased, as it may be.
    let text_agrees = row.body.is_none_or(|(salt, kept)| salted(&salt, &kept) == thought.content.digest);
    let is_listed = row.id.as_deref() == Some(&*thought.id);
    chain.next(&thought, text_agrees && is_listed && of_task.is_none_or(|task| task == thought.task_id));
}

fn ended(mut chain: Chain, end: End) -> TaskChain {
    if chain.record_count != end.thoughts || chain.last() != end.last_hash {
        chain.ends_wrong(&end.task_id);
    }
    TaskChain { task_id: end.task_id, chain }
}

/// The thought that a record tells of.
pub(super) fn read_thought(bytes: &str) -> Option<Thought> {
    match serde_json::from_str::<Record>(bytes).ok()?.event {
        Event::ThoughtRecorded(thought) => Some(thought),
        _ => None,
    }
}
