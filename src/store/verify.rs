//! Verification: everything is derived again from the records' bytes and compared with what is
//! stored and with every checkpoint. No stored verdict is trusted.
//!
//! Owns: the walk along the log and the verdict; `verify/beside` and `verify/pins` compare the tables that
//! are derived from it. The log is read in ranges, because one long read would keep the write-ahead log from being
//! recycled; each is one snapshot, its end together with the head, because a writer may be at work.

mod beside;
mod pins;

use std::collections::BTreeMap;

use rusqlite::{Row, params};
use serde::Serialize;
use serde_json::Value;

use crate::domain::ledger::Common;
use crate::domain::merkle::{Frontier, Hash, leaf_hash};
use crate::domain::note::{Checkpoint, decimal};

use super::error::StoreError;
use super::ledger::{index, place};
use super::notes;
use super::read::Reader;

const RANGE_RECORDS: u32 = 2048;

/// More broken places than this are counted, not listed.
const LISTED_MAX: usize = 100;

/// What verification found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Whether nothing is broken.
    pub valid: bool,
    /// How many records there are.
    pub record_count: u64,
    /// How many places are broken.
    pub broken_count: u64,
    /// The first of them, by index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_broken_at: Option<u64>,
    /// The first hundred of them.
    pub broken: Vec<Broken>,
    /// The log's origin.
    pub log: String,
    /// The root over all records, as recomputed; over those before the first gap, if there is one.
    pub root: Hash,
    /// How many checkpoints agree.
    pub checkpoints: u64,
    /// How many records are covered by a signature that agrees.
    pub signed: u64,
    /// How many kept bodies agree with their seals.
    pub bodies: u64,
}

/// One broken place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Broken {
    /// The record, or the size of the log, at which it shows.
    pub index: u64,
    /// What is wrong.
    pub what: String,
}

/// Told after every range: records done, records in all. Answers whether to go on.
pub type Progress<'p> = &'p mut dyn FnMut(u64, u64) -> bool;

impl Reader {
    /// Verifies the newest log whole.
    pub fn verify(&self, progress: Progress<'_>) -> Result<Verdict, StoreError> {
        let mut walk = Walk::new(self)?;
        let about = walk.head.size.cast_unsigned();
        loop {
            let snapshot = self.connection.unchecked_transaction();
            let snapshot = snapshot.map_err(StoreError::database("read its records"))?;
            let is_end = walk.range()? < RANGE_RECORDS as usize;
            if !progress(walk.count, about.max(walk.count)) {
                return Err(StoreError::NotFound("the verification was given up".to_owned()));
            }
            if is_end {
                return walk.finish();
            }
            drop(snapshot);
        }
    }
}

/// The head as it is stored. Nothing in it is believed, not even that a hash has 32 bytes.
struct StoredHead {
    log: i64,
    origin: String,
    size: i64,
    frontier: Vec<u8>,
    last_leaf: Vec<u8>,
    calls: i64,
}

/// A record as it is stored, likewise.
struct StoredRecord {
    index: u64,
    bytes: Vec<u8>,
    leaf: Vec<u8>,
}

/// The walk along the log, and what it has derived so far.
struct Walk<'r> {
    reader: &'r Reader,
    head: StoredHead,
    /// The tree over the records, up to the first gap.
    frontier: Frontier,
    /// The index that the next record must have.
    next: u64,
    /// What the next record must name; unknown behind a gap.
    last_leaf: Option<Hash>,
    /// A record that does not follow the one before it. Its own successor tells which was changed.
    doubt: Option<u64>,
    /// The newest record that was told to be broken by itself.
    told: Option<u64>,
    /// The root that each signed size must have.
    signed: BTreeMap<u64, Hash>,
    agreed: u64,
    agreed_size: u64,
    has_disagreed: bool,
    /// Ranges in which something is broken: from, to, what.
    ranges: Vec<(u64, u64, String)>,
    calls: u64,
    ended: u64,
    count: u64,
    /// Bodies that were compared, and those of them that agree.
    bodies: u64,
    bodies_agreed: u64,
    broken_count: u64,
    broken: Vec<Broken>,
}

impl<'r> Walk<'r> {
    fn new(reader: &'r Reader) -> Result<Self, StoreError> {
        let mut walk = Self {
            reader,
            head: reader.stored_head(None)?,
            frontier: Frontier::default(),
            next: 0,
            last_leaf: Some(Hash::ZERO),
            doubt: None,
            told: None,
            signed: BTreeMap::new(),
            agreed: 0,
            agreed_size: 0,
            has_disagreed: false,
            ranges: Vec::new(),
            calls: 0,
            ended: 0,
            count: 0,
            bodies: 0,
            bodies_agreed: 0,
            broken_count: 0,
            broken: Vec::new(),
        };
        walk.gather_checkpoints()?;
        Ok(walk)
    }

    /// The checkpoints of the file beside the database, and that those in the database are among
    /// them. The database is read first: a writer adds to the file before it adds to the database.
    fn gather_checkpoints(&mut self) -> Result<(), StoreError> {
        let keys = self.reader.keys()?;
        let stored = self.reader.stored_notes(self.head.log)?;
        let (mut newest, mut size_before) = (None, 0);
        notes::each(&self.reader.paths, |note| match Checkpoint::open(&note, &keys) {
            Ok(checkpoint) => {
                let Checkpoint { origin, size, root } = checkpoint;
                if origin == self.head.origin {
                    if *self.signed.entry(size).or_insert(root) != root {
                        self.breaks(size, format!("two roots are signed for {size} records"));
                    }
                    size_before = size;
                }
                // One of an earlier log was signed before that log was given up.
                newest = Some(origin);
            }
            Err(error) => {
                let size = note.lines().nth(1).and_then(decimal).unwrap_or(size_before);
                self.breaks(size, format!("a note in the checkpoint file: {error}"));
            }
        })?;
        for (size, note) in stored {
            match Checkpoint::open(&note, &keys) {
                Err(error) => self.breaks(size, format!("a checkpoint in the database: {error}")),
                Ok(signed) if signed.origin != self.head.origin || signed.size != size => {
                    let Checkpoint { origin, size: other, .. } = signed;
                    self.breaks(
                        size,
                        format!("the checkpoint kept for it is of {other} records of {origin}"),
                    );
                }
                Ok(signed) if self.signed.get(&size) != Some(&signed.root) => {
                    self.breaks(
                        size,
                        format!("its checkpoint over {size} records is not in the checkpoint file"),
                    );
                }
                Ok(_) => {}
            }
        }
        if newest.is_none_or(|origin| origin != self.head.origin) {
            self.breaks(0, "the newest note in the checkpoint file is not of this log".to_owned());
        }
        Ok(())
    }

    /// Takes the next records; tells how many there were. Records may lie beyond what the head
    /// admits; they are found too.
    fn range(&mut self) -> Result<usize, StoreError> {
        let rows = self.reader.stored_records(self.head.log, self.next)?;
        for row in &rows {
            self.step(row)?;
        }
        Ok(rows.len())
    }

    fn step(&mut self, row: &StoredRecord) -> Result<(), StoreError> {
        if row.index != self.next {
            let next = self.next;
            self.breaks(next, format!("the next record is {}: records are missing", row.index));
            self.settle(false);
            self.last_leaf = None;
        }
        let leaf = leaf_hash(&row.bytes);
        if row.leaf != leaf.0 {
            self.breaks_record(row.index, "its bytes do not have its leaf hash: it was changed".to_owned());
        }
        match serde_json::from_slice::<Common>(&row.bytes) {
            Ok(common) if common.index == row.index && common.log == self.head.origin => {
                self.follow(row.index, common.prev);
                self.check_facts(row, &common.event)?;
            }
            Ok(common) => {
                let said = format!("it says it is record {} of {}", common.index, common.log);
                self.breaks_record(row.index, said);
                self.settle(false);
            }
            Err(error) => {
                self.breaks_record(row.index, format!("it is not a record: {error}"));
                self.settle(false);
            }
        }
        self.count += 1;
        if self.frontier.size() == row.index {
            self.append(leaf)?;
        }
        (self.next, self.last_leaf) = (row.index + 1, Some(leaf));
        Ok(())
    }

    /// The chain: a record names the one before it.
    fn follow(&mut self, index: u64, prev: Hash) {
        let follows = self.last_leaf.is_none_or(|leaf| leaf == prev);
        self.settle(follows);
        if follows || index > 0 && self.told == Some(index - 1) {
            return;
        }
        match index {
            0 => self.breaks_record(0, "it is the first, but names one before it".to_owned()),
            _ => self.doubt = Some(index),
        }
    }

    /// Whether the record in doubt is vouched for by what follows it. If it is, the one before it
    /// was changed.
    fn settle(&mut self, is_vouched_for: bool) {
        match self.doubt.take() {
            Some(index) if is_vouched_for => {
                self.breaks(index - 1, format!("it is not the record that record {index} follows"));
            }
            Some(index) => self.breaks_record(index, "it does not follow the record before it".to_owned()),
            None => {}
        }
    }

    fn append(&mut self, leaf: Hash) -> Result<(), StoreError> {
        for node in self.frontier.append(leaf).iter().filter(|node| node.height > 0 && node.height % 8 == 0) {
            let stored = self.reader.stored_node(self.head.log, node.height / 8, node.index)?;
            if stored.as_deref() != Some(&node.hash.0) {
                let (from, count) = (node.index << node.height, 1 << node.height);
                self.breaks_range(
                    from,
                    from + count,
                    format!("the tree node over {count} records is not theirs"),
                );
            }
        }
        let size = self.frontier.size();
        match self.signed.remove(&size) {
            Some(root) if root == self.frontier.root() => {
                self.agreed += 1;
                self.agreed_size = size;
            }
            Some(_) => {
                let (from, last) = (self.agreed_size, size - 1);
                let what = format!("records {from} to {last} are not those that were signed");
                // After the first, no later signature can agree; that says nothing more.
                if !std::mem::replace(&mut self.has_disagreed, true) {
                    self.breaks_range(from, size, what);
                }
            }
            None => {}
        }
        Ok(())
    }

    /// What the record claims about the tables beside it must be so.
    fn check_facts(&mut self, row: &StoredRecord, event: &str) -> Result<(), StoreError> {
        let record: Value = serde_json::from_slice(&row.bytes).unwrap_or_default();
        let facts = &record["facts"];
        let sealed = match event {
            "call.enter" => &facts["args"],
            "call.exit" => &facts["result"],
            "task.changed" | "thought.recorded" | "skill.seen" => &facts["content"],
            "session.started" => &facts["intent"],
            _ => &Value::Null,
        };
        self.check_body(row.index, sealed)?;
        if event == "tool.pinned" {
            return self.check_pinned(row.index, facts);
        }
        if !event.starts_with("call.") {
            return Ok(());
        }
        let Some(sequence_no) = facts["sequence_no"].as_u64() else {
            self.breaks_record(row.index, "it names no call".to_owned());
            return Ok(());
        };
        if event == "call.enter" {
            if sequence_no != self.calls {
                let next = self.calls;
                self.breaks_record(row.index, format!("it opens call {sequence_no}, and {next} is next"));
            }
            self.calls = sequence_no.saturating_add(1);
        } else {
            self.ended += 1;
        }
        self.check_call(row.index, event, sequence_no, facts["process"].as_str())
    }

    fn finish(mut self) -> Result<Verdict, StoreError> {
        let head = self.reader.stored_head(Some(self.head.log))?;
        let size = self.next;
        let last_leaf = self.last_leaf.unwrap_or(Hash::ZERO).0;
        self.settle(head.last_leaf == last_leaf);
        if head.size.cast_unsigned() != size {
            let admitted = head.size.cast_unsigned();
            self.breaks(
                size.min(admitted),
                format!("the head says {admitted} records, and {size} are there"),
            );
        } else if self.frontier.size() == size
            && (head.frontier != self.frontier.to_bytes() || head.last_leaf != last_leaf)
        {
            self.breaks(size, "the head is not that of its records".to_owned());
        }
        for signed in self.signed.split_off(&(size + 1)).into_keys() {
            self.breaks(
                size,
                format!("{signed} records were signed, and only {size} are there: the end was cut off"),
            );
        }
        self.check_tables(&head)?;
        self.place_ranges();
        self.broken.sort_by_key(|broken| broken.index);
        Ok(Verdict {
            valid: self.broken_count == 0,
            record_count: self.count,
            broken_count: self.broken_count,
            first_broken_at: self.broken.first().map(|broken| broken.index),
            broken: self.broken,
            log: head.origin,
            root: self.frontier.root(),
            checkpoints: self.agreed,
            signed: self.agreed_size,
            bodies: self.bodies_agreed,
        })
    }

    fn breaks(&mut self, index: u64, what: String) {
        self.broken_count += 1;
        if self.broken.len() < LISTED_MAX {
            self.broken.push(Broken { index, what });
        }
    }

    /// A break that the record shows by itself: what follows from it needs no telling of its own.
    fn breaks_record(&mut self, index: u64, what: String) {
        self.told = Some(index);
        self.breaks(index, what);
    }

    /// A break somewhere in a range.
    fn breaks_range(&mut self, from: u64, to: u64, what: String) {
        if self.ranges.len() < LISTED_MAX {
            self.ranges.push((from, to, what));
        } else {
            self.broken_count += 1;
        }
    }

    /// If a place within a range is known to be broken, that is where. Asked at the end, because the
    /// record that betrays another comes after it.
    fn place_ranges(&mut self) {
        let places: Vec<u64> = self.broken.iter().map(|broken| broken.index).collect();
        for (from, to, what) in std::mem::take(&mut self.ranges) {
            let known = places.iter().copied().filter(|index| (from..to).contains(index)).min();
            self.breaks(known.unwrap_or(from), what);
        }
    }
}

/// Reading without believing: whatever the columns hold, it arrives as bytes.
impl Reader {
    /// The head of that log, or of the newest.
    fn stored_head(&self, log: Option<i64>) -> Result<StoredHead, StoreError> {
        let sql = "SELECT id, origin, size, frontier, last_leaf, calls FROM log \
                   WHERE ?1 IS NULL OR id = ?1 ORDER BY id DESC LIMIT 1";
        let row = |row: &Row<'_>| {
            Ok(StoredHead {
                log: row.get(0)?,
                origin: text(row, 1)?,
                size: row.get(2)?,
                frontier: row.get(3)?,
                last_leaf: row.get(4)?,
                calls: row.get(5)?,
            })
        };
        match self.connection.query_row(sql, [log], row) {
            Err(rusqlite::Error::QueryReturnedNoRows) => Err(self.no_log()),
            found => found.map_err(StoreError::database("read its head")),
        }
    }

    /// Up to a range of records, from that index on.
    fn stored_records(&self, log: i64, first: u64) -> Result<Vec<StoredRecord>, StoreError> {
        let failed = StoreError::database("read its records");
        let sql =
            "SELECT place, bytes, leaf FROM record WHERE place >= ? AND place < ? ORDER BY place LIMIT ?";
        let row = |row: &Row<'_>| {
            let bytes = row.get_ref(1)?.as_bytes()?.to_vec();
            Ok(StoredRecord { index: index(row.get(0)?), bytes, leaf: row.get(2)? })
        };
        let range = params![place(log, first), place(log + 1, 0), RANGE_RECORDS];
        let mut statement = self.connection.prepare_cached(sql).map_err(&failed)?;
        statement.query_map(range, row).and_then(Iterator::collect).map_err(&failed)
    }

    /// The checkpoints that the database keeps, each with the size it is kept under.
    fn stored_notes(&self, log: i64) -> Result<Vec<(u64, String)>, StoreError> {
        let failed = StoreError::database("read its checkpoints");
        let sql = "SELECT size, note FROM checkpoint WHERE log = ? ORDER BY size";
        let row = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?.cast_unsigned(), text(row, 1)?));
        let mut statement = self.connection.prepare(sql).map_err(&failed)?;
        statement.query_map([log], row).and_then(Iterator::collect).map_err(&failed)
    }
}

/// Text that may not be UTF-8: SQLite does not check.
fn text(row: &Row<'_>, column: usize) -> rusqlite::Result<String> {
    Ok(String::from_utf8_lossy(row.get_ref(column)?.as_bytes()?).into_owned())
}
