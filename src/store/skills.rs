//! The verb of skills: what was met, put on record once for each form it had.

use rusqlite::{Connection, OptionalExtension, params};

use crate::domain::ledger::{Event, SkillSeen, clip};
use crate::domain::merkle::Hash;
use crate::domain::skill::Source;

use super::Store;
use super::error::StoreError;
use super::ledger::{Head, Ledger, place, seal_whole};
use super::read::Reader;
use super::tasks::Act;

/// A skill, as it was met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenSkill {
    /// Its folder: what it is known by, since names can be the same.
    pub folder: String,
    /// Its name.
    pub name: String,
    /// Whose folder it is.
    pub source: Source,
    /// Over its files.
    pub digest: Hash,
    /// How many files that covers.
    pub files: u64,
    /// The folder and the files, as JSON.
    pub content: Vec<u8>,
}

impl Store {
    /// Puts those on record that are new or have changed, all in one transaction; tells how many.
    pub async fn see_skills(&self, act: Act, seen: Vec<SeenSkill>) -> Result<usize, StoreError> {
        self.write(move |ledger| ledger.see_skills(act, &seen)).await
    }
}

impl Reader {
    /// Whether each of these folders is on record with this digest.
    pub fn has_seen(&self, skills: &[(String, Hash)]) -> Result<Vec<bool>, StoreError> {
        let head = self.head()?;
        skills.iter().map(|(folder, digest)| has_seen(&self.connection, &head, folder, *digest)).collect()
    }
}

impl Ledger<'_> {
    /// Another process may have met the same meanwhile; only this transaction knows.
    fn see_skills(&mut self, act: Act, seen: &[SeenSkill]) -> Result<usize, StoreError> {
        let mut recorded = 0;
        for skill in seen {
            if has_seen(self.connection, &self.head, &skill.folder, skill.digest)? {
                continue;
            }
            let (content, kept) = seal_whole(&skill.content)?;
            let facts = SkillSeen {
                call: act.call,
                content,
                digest: skill.digest,
                files: skill.files,
                name: clip(&skill.name).to_owned(),
                source: skill.source.name().to_owned(),
            };
            let place = self.append(act.at, Event::SkillSeen(facts))?;
            self.keep(place, &kept)?;
            let sql = "INSERT OR REPLACE INTO skill (folder, digest, place) VALUES (?, ?, ?)";
            let row = params![skill.folder, skill.digest.0, place];
            self.connection
                .prepare_cached(sql)
                .and_then(|mut statement| statement.execute(row))
                .map_err(StoreError::database("remember a skill"))?;
            recorded += 1;
        }
        Ok(recorded)
    }
}

/// A log that was given up says nothing for the one that came after it.
fn has_seen(connection: &Connection, head: &Head, folder: &str, digest: Hash) -> Result<bool, StoreError> {
    let sql = "SELECT digest = ? FROM skill WHERE folder = ? AND place >= ?";
    let row = params![digest.0, folder, place(head.log, 0)];
    let found: Option<bool> = connection
        .prepare_cached(sql)
        .and_then(|mut statement| statement.query_row(row, |row| row.get(0)).optional())
        .map_err(StoreError::database("read what skills were met"))?;
    Ok(found == Some(true))
}
