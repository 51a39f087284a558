//! Verification: everything is derived again from the records' bytes and compared with what is
//! stored and with every checkpoint. No stored verdict is trusted.
//!
//! The log is read in ranges: one long read would keep the write-ahead log from being recycled.

use std::collections::BTreeMap;

use rusqlite::OptionalExtension;
use serde::Serialize;
use serde_json::Value;

use crate::domain::ledger::{Common, Sealed, salted};
use crate::domain::merkle::{Frontier, Hash, leaf_hash};
use crate::domain::note::Checkpoint;

use super::error::StoreError;
use super::ledger::{Head, place};
use super::notes;
use super::read::{Reader, RecordRow};

const RANGE_RECORDS: u64 = 2048;

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
    /// The root over all records, as recomputed.
    pub root: Hash,
    /// How many checkpoints agree.
    pub checkpoints: u64,
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

/// Told after every range: records done, records in all.
pub type Progress<'p> = &'p mut dyn FnMut(u64, u64);

impl Reader {
    /// Verifies the newest log whole.
    pub fn verify(&self, progress: Progress<'_>) -> Result<Verdict, StoreError> {
        let head = self.head()?;
        let mut walk = Walk::new(self, head)?;
        let mut first = 0;
        loop {
            let rows = self.rows(place(walk.head.log, first), place(walk.head.log, first + RANGE_RECORDS))?;
            for row in &rows {
                walk.step(row)?;
            }
            first += RANGE_RECORDS;
            progress(walk.count, walk.head.size());
            // Records may lie beyond what the head admits; they are found too.
            if first >= walk.head.size()
                && !self.has_records_from(place(walk.head.log, first), walk.head.log)?
            {
                return walk.finish();
            }
        }
    }

    fn has_records_from(&self, from: i64, log: i64) -> Result<bool, StoreError> {
        let sql = "SELECT EXISTS (SELECT 1 FROM record WHERE place >= ? AND place < ?)";
        let found = self.connection.query_row(sql, [from, place(log + 1, 0)], |row| row.get(0));
        found.map_err(StoreError::database("read its records"))
    }
}

/// The walk along the log, and what it has derived so far.
struct Walk<'r> {
    reader: &'r Reader,
    head: Head,
    frontier: Frontier,
    last_leaf: Hash,
    /// The root that each signed size must have.
    signed: BTreeMap<u64, Vec<Hash>>,
    agreed: u64,
    agreed_size: u64,
    calls: u64,
    count: u64,
    bodies: u64,
    broken_count: u64,
    broken: Vec<Broken>,
}

impl<'r> Walk<'r> {
    fn new(reader: &'r Reader, head: Head) -> Result<Self, StoreError> {
        let mut walk = Self {
            reader,
            head,
            frontier: Frontier::default(),
            last_leaf: Hash::ZERO,
            signed: BTreeMap::new(),
            agreed: 0,
            agreed_size: 0,
            calls: 0,
            count: 0,
            bodies: 0,
            broken_count: 0,
            broken: Vec::new(),
        };
        walk.gather_checkpoints()?;
        Ok(walk)
    }

    /// Checkpoints of the database and of the file beside it, signatures checked.
    fn gather_checkpoints(&mut self) -> Result<(), StoreError> {
        let failed = StoreError::database("read its checkpoints");
        let keys = self.reader.keys()?;
        let mut found: Vec<(&str, String)> = Vec::new();
        let mut statement = self
            .reader
            .connection
            .prepare("SELECT note FROM checkpoint WHERE log = ? ORDER BY size")
            .map_err(&failed)?;
        let rows = statement.query_map([self.head.log], |row| row.get::<_, String>(0)).map_err(&failed)?;
        for note in rows {
            found.push(("a checkpoint in the database", note.map_err(&failed)?));
        }
        drop(statement);
        notes::each(&self.reader.paths, |note| found.push(("a note in the checkpoint file", note)))?;
        for (what, note) in found {
            match Checkpoint::open(&note, &keys) {
                Ok(checkpoint) if checkpoint.origin == self.head.origin => {
                    self.signed.entry(checkpoint.size).or_default().push(checkpoint.root);
                }
                // A note of an earlier log that was given up.
                Ok(_) => {}
                Err(error) => self.breaks(0, format!("{what}: {error}")),
            }
        }
        if self.signed.is_empty() && self.head.size() > 0 {
            self.breaks(0, "no checkpoint covers the log".to_owned());
        }
        Ok(())
    }

    fn step(&mut self, row: &RecordRow) -> Result<(), StoreError> {
        if row.index != self.frontier.size() {
            self.breaks(
                self.frontier.size(),
                format!("the next record is {}: records are missing", row.index),
            );
            // From here on every hash differs; the rest is only counted.
            while self.frontier.size() < row.index {
                self.append(Hash::ZERO)?;
            }
        }
        let leaf = leaf_hash(row.bytes.as_bytes());
        if leaf != row.leaf {
            self.breaks(row.index, "its bytes do not have its leaf hash: it was changed".to_owned());
        }
        match serde_json::from_str::<Common>(&row.bytes) {
            Err(error) => self.breaks(row.index, format!("it is not a record: {error}")),
            Ok(common) if common.index != row.index || common.log != self.head.origin => {
                self.breaks(row.index, format!("it says it is record {} of {}", common.index, common.log));
            }
            Ok(common) if common.prev != self.last_leaf => {
                self.breaks(row.index, "it does not follow the record before it".to_owned());
            }
            Ok(common) => self.check_facts(row, &common.event)?,
        }
        self.count += 1;
        self.append(leaf)
    }

    fn append(&mut self, leaf: Hash) -> Result<(), StoreError> {
        self.last_leaf = leaf;
        for node in self.frontier.append(leaf).iter().filter(|node| node.height > 0 && node.height % 8 == 0) {
            let sql = "SELECT hash FROM subtree WHERE log = ? AND level = ? AND idx = ?";
            let key = rusqlite::params![self.head.log, node.height / 8, node.index.cast_signed()];
            let stored: Option<[u8; 32]> = self
                .reader
                .connection
                .prepare_cached(sql)
                .and_then(|mut s| s.query_row(key, |row| row.get(0)).optional())
                .map_err(StoreError::database("read its tree"))?;
            if stored != Some(node.hash.0) {
                self.breaks(
                    node.index << node.height,
                    format!("the tree node over {} records is not theirs", 1u64 << node.height),
                );
            }
        }
        let size = self.frontier.size();
        if let Some(roots) = self.signed.remove(&size) {
            let root = self.frontier.root();
            let agreeing = roots.iter().filter(|signed| **signed == root).count();
            if agreeing == roots.len() {
                self.agreed += agreeing as u64;
                self.agreed_size = size;
            } else {
                let from = self.agreed_size;
                self.breaks(from, format!("records {from} to {} are not those that were signed", size - 1));
            }
        }
        Ok(())
    }

    /// What the record claims about tables beside it must be so.
    fn check_facts(&mut self, row: &RecordRow, event: &str) -> Result<(), StoreError> {
        let part = match event {
            "call.enter" => "args",
            "call.exit" => "result",
            _ => return Ok(()),
        };
        let record: Value = serde_json::from_str(&row.bytes).unwrap_or_default();
        let facts = &record["facts"];
        let Some(sequence_no) = facts["sequence_no"].as_u64() else {
            self.breaks(row.index, "it names no call".to_owned());
            return Ok(());
        };
        if event == "call.enter" {
            if sequence_no != self.calls {
                self.breaks(row.index, format!("it opens call {sequence_no}, and {} is next", self.calls));
            }
            self.calls += 1;
        }
        self.check_call(row.index, event, sequence_no)?;
        match serde_json::from_value::<Sealed>(facts[part].clone()) {
            Ok(sealed) => self.check_body(row.index, &sealed),
            Err(_) => Ok(()), // An end that nobody saw has no result.
        }
    }

    fn check_call(&mut self, index: u64, event: &str, sequence_no: u64) -> Result<(), StoreError> {
        let sql = "SELECT enter, exit FROM call WHERE number = ?";
        let row = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, Option<i64>>(1)?));
        let stored = self
            .reader
            .connection
            .prepare_cached(sql)
            .and_then(|mut s| s.query_row([place(self.head.log, sequence_no)], row).optional())
            .map_err(StoreError::database("read its calls"))?;
        let here = place(self.head.log, index);
        let agrees = match (event, stored) {
            ("call.enter", Some((enter, _))) => enter == here,
            (_, Some((_, exit))) => exit == Some(here),
            (_, None) => false,
        };
        if !agrees {
            self.breaks(index, format!("the table of calls disagrees with it about call {sequence_no}"));
        }
        Ok(())
    }

    fn check_body(&mut self, index: u64, sealed: &Sealed) -> Result<(), StoreError> {
        let Some(stored) = &sealed.stored else { return Ok(()) };
        // A body that is gone was erased, as it may be.
        let Some(body) = self.reader.body_at(place(self.head.log, index))? else { return Ok(()) };
        if body.kept.len() as u64 == stored.size && salted(&body.salt, &body.kept) == stored.digest {
            self.bodies += 1;
        } else {
            self.breaks(index, "the body kept beside it is not the one it seals".to_owned());
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Verdict, StoreError> {
        let (size, head) = (self.frontier.size(), self.head.clone());
        if size != head.size() {
            self.breaks(
                size.min(head.size()),
                format!("the head says {} records, and {size} are there", head.size()),
            );
        } else if self.frontier != head.frontier || self.last_leaf != head.last_leaf {
            self.breaks(size.saturating_sub(1), "the head is not that of its records".to_owned());
        }
        if self.calls != head.calls {
            self.breaks(size, format!("the head says {} calls, and {} are there", head.calls, self.calls));
        }
        let rows = self.reader.connection.query_row(
            "SELECT count(*) FROM call WHERE number >= ? AND number < ?",
            [place(head.log, 0), place(head.log + 1, 0)],
            |row| row.get::<_, i64>(0),
        );
        let rows = rows.map_err(StoreError::database("count its calls"))?.cast_unsigned();
        if rows != self.calls {
            self.breaks(size, format!("the table of calls has {rows} rows for {} calls", self.calls));
        }
        for (signed, roots) in std::mem::take(&mut self.signed) {
            let count = roots.len();
            self.breaks(size, format!("{signed} records were signed ({count} notes), and only {size} are there: the end was cut off"));
        }
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
            bodies: self.bodies,
        })
    }

    fn breaks(&mut self, index: u64, what: String) {
        self.broken_count += 1;
        if self.broken.len() < LISTED_MAX {
            self.broken.push(Broken { index, what });
        }
    }
}
