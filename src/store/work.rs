//! Reading tasks, thoughts and sessions, and the store's own face to their verbs.

use rusqlite::types::Value as Sql;
use rusqlite::{OptionalExtension, Row, params, params_from_iter};

use crate::domain::clock::Timestamp;
use crate::domain::task::Task;
use crate::domain::task::ask::{Fields, Listed, New, NextActions, Page, Patch, Query};
use crate::domain::task::not_found;
use crate::domain::thought::no_session;
use crate::domain::thought::{Kind, Thought};

use super::Store;
use super::error::StoreError;
use super::ledger::{index, place};
use super::next::{Purpose, next_actions};
use super::read::Reader;
use super::tasks::{Act, Answer, COLUMNS, find, load, whole};
use super::thoughts::{NewSession, NewThought, Recorded, Session, each_record_of, find_session};
use super::trail::read_thought;

/// Tasks on a page, if nobody says.
const TASKS_PAGE: u32 = 50;
/// Next actions, if nobody says: an agent does one at a time.
const ACTIONS_PAGE: u32 = 10;
/// Thoughts on a page, if nobody says.
const THOUGHTS_PAGE: u32 = 50;

/// Each verb is one transaction; it happens whole or not at all.
impl Store {
    /// Creates a task in INIT.
    pub async fn create_task(&self, act: Act, new: New) -> Result<Answer<Task>, StoreError> {
        self.write(move |ledger| ledger.create_task(act, new)).await
    }

    /// Changes a task, if its version is the expected one and the state machine allows it.
    pub async fn update_task(
        &self,
        act: Act,
        id: String,
        patch: Patch,
        version: Option<u64>,
    ) -> Result<Answer<Task>, StoreError> {
        self.write(move |ledger| ledger.update_task(act, &id, patch, version)).await
    }

    /// Hands the best free task to one agent.
    pub async fn claim_task(&self, act: Act, ask: NextActions) -> Result<Option<Task>, StoreError> {
        self.write(move |ledger| ledger.claim_task(act, &ask)).await
    }

    /// Adds a thought to its task's chain.
    pub async fn record_thought(&self, act: Act, new: NewThought) -> Result<Answer<Recorded>, StoreError> {
        self.write(move |ledger| ledger.record_thought(act, &new)).await
    }

    /// Begins a session.
    pub async fn start_session(&self, act: Act, new: NewSession) -> Result<Answer<Session>, StoreError> {
        self.write(move |ledger| ledger.start_session(act, &new)).await
    }

    /// Seals a session.
    pub async fn finalize_session(&self, act: Act, id: String) -> Result<Answer<Session>, StoreError> {
        self.write(move |ledger| ledger.finalize_session(act, &id)).await
    }

    /// Runs a question on a connection of its own, off the runtime's threads.
    pub async fn read<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Reader) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let store = self.clone();
        let asked = tokio::task::spawn_blocking(move || question(&store.reader()?)).await;
        asked.unwrap_or(Err(StoreError::Closed))
    }
}

/// A thought as it is listed: its record, and the text beside it.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedThought {
    /// Its record's index in the ledger.
    pub index: u64,
    /// What its record says.
    pub thought: Thought,
    /// The text; absent if it was erased.
    pub content: Option<String>,
}

/// Which thoughts to list, in the order they were recorded.
#[derive(Clone, Debug, Default)]
pub struct ThoughtQuery {
    /// Only of this task.
    pub task_id: Option<String>,
    /// Only of this session.
    pub session_id: Option<String>,
    /// Only of this agent.
    pub agent_id: Option<String>,
    /// Only of this kind.
    pub kind: Option<Kind>,
    /// At most this many.
    pub limit: Option<u32>,
    /// Only after this place: [`ThoughtPage::next`] of the page before.
    pub after: Option<i64>,
}

/// A page of thoughts.
#[derive(Clone, Debug, PartialEq)]
pub struct ThoughtPage {
    /// In the order they were recorded.
    pub thoughts: Vec<ListedThought>,
    /// Where the next page begins; `None` on the last.
    pub next: Option<i64>,
}

impl Reader {
    /// One task, whole.
    pub fn task(&self, id: &str, now: Timestamp) -> Result<Option<Task>, StoreError> {
        match find(&self.connection, id)? {
            Some(found) => load(&self.connection, found.seq, now).map(Some),
            None => Ok(None),
        }
    }

    /// A page of tasks, in the order of their creation.
    pub fn tasks(&self, query: &Query, now: Timestamp) -> Result<Page, StoreError> {
        let limit = query.limit.unwrap_or(TASKS_PAGE);
        let mut filter = Filter::default();
        filter.equals("status = ?", query.status.map(|status| status.name().to_owned()));
        filter.equals("project_id = ?", query.project_id.clone());
        if query.assignee.is_some() {
            filter.equals("assignee = ?", query.assignee.clone());
            // A claim whose lease has ended is nobody's.
            filter.equals("(lease_until IS NULL OR lease_until > ?)", Some(now.0.cast_signed()));
        }
        filter.equals("priority = ?", query.priority.map(|priority| i64::from(priority.rank())));
        // From the label's own list where there is one: it is in the order of the tasks, and rare.
        let (from, order) = match query.label {
            Some(_) => ("label CROSS JOIN task ON task.seq = label.task", "label.task"),
            None => ("task", "seq"),
        };
        filter.equals("label.name = ?", query.label.clone());
        filter.equals(
            &format!("{order} > ?"),
            query.cursor.as_deref().map(|cursor| cursor.parse().unwrap_or(i64::MAX)),
        );
        let sql = format!("SELECT {COLUMNS} FROM {from} {} ORDER BY {order} LIMIT ?", filter.clause());
        let found = self
            .rows_of(&sql, filter.values(limit + 1), |row| Ok((row.get::<_, i64>(0)?, whole(row, now)?)))?;
        let next_cursor = (found.len() > limit as usize).then(|| found[limit as usize - 1].0.to_string());
        let shown = found.into_iter().take(limit as usize);
        let tasks = match query.fields {
            Fields::Brief => shown.map(|(_, task)| Listed::Brief(task.into())).collect(),
            Fields::Full => {
                let full = shown.map(|(seq, _)| {
                    load(&self.connection, seq, now).map(|task| Listed::Full(Box::new(task)))
                });
                full.collect::<Result<_, _>>()?
            }
        };
        Ok(Page { tasks, next_cursor })
    }

    /// What can be done now, best first.
    pub fn next_actions(&self, ask: &NextActions, now: Timestamp) -> Result<Vec<Task>, StoreError> {
        let limit = ask.limit.unwrap_or(ACTIONS_PAGE);
        let found = next_actions(&self.connection, ask, Purpose::List, limit, now)?;
        Ok(found.into_iter().map(|(_, task)| task).collect())
    }

    /// A page of thoughts, and where the next one begins.
    pub fn thoughts(&self, query: &ThoughtQuery) -> Result<Answer<ThoughtPage>, StoreError> {
        let limit = query.limit.unwrap_or(THOUGHTS_PAGE);
        let mut filter = Filter::default();
        if let Some(id) = &query.task_id {
            let Some(task) = find(&self.connection, id)? else { return Ok(Err(not_found(id))) };
            filter.equals("thought.task = ?", Some(task.seq));
        }
        if let Some(id) = &query.session_id {
            if find_session(&self.connection, id)?.is_none() {
                return Ok(Err(no_session(id)));
            }
            filter.equals("thought.session = ?", Some(id.clone()));
        }
        filter.equals("thought.agent = ?", query.agent_id.clone());
        filter.equals("thought.type = ?", query.kind.map(|kind| kind.name().to_owned()));
        filter.equals("thought.place > ?", query.after);
        let sql = format!(
            "SELECT thought.place, record.bytes, body.kept FROM thought JOIN record ON record.place = thought.place \
             LEFT JOIN body ON body.place = thought.place {} ORDER BY thought.place LIMIT ?",
            filter.clause()
        );
        let rows = self.rows_of(&sql, filter.values(limit + 1), |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, row.get::<_, Option<Vec<u8>>>(2)?))
        })?;
        let next = (rows.len() > limit as usize).then(|| rows[limit as usize - 1].0);
        let listed = rows.into_iter().take(limit as usize).map(|(place, bytes, kept)| {
            let thought = read_thought(&bytes).ok_or_else(|| StoreError::RolledBack {
                what: format!("record {} is not the thought it should be", index(place)),
            })?;
            let content = kept.map(|kept| String::from_utf8_lossy(&kept).into_owned());
            Ok(ListedThought { index: index(place), thought, content })
        });
        Ok(Ok(ThoughtPage { thoughts: listed.collect::<Result<_, StoreError>>()?, next }))
    }

    /// The session of that id.
    pub fn session(&self, id: &str) -> Result<Option<Session>, StoreError> {
        find_session(&self.connection, id)
    }

    /// Whether a session's seal is in the newest log: an earlier one was given up, and no checkpoint of
    /// today covers it.
    pub fn is_sealed_in_newest_log(&self, id: &str) -> Result<bool, StoreError> {
        let sql = "SELECT EXISTS (SELECT 1 FROM session WHERE id = ? AND sealed >= ?)";
        let first = place(self.head()?.log, 0);
        let found = self.connection.query_row(sql, params![id, first], |row| row.get(0));
        found.map_err(StoreError::database("find a session"))
    }

    /// The bytes of a session's records, in order.
    pub fn each_session_record(&self, id: &str, visit: impl FnMut(&str)) -> Result<(), StoreError> {
        each_record_of(&self.connection, id, visit)
    }

    /// The index of the record of a thought.
    pub fn thought_index(&self, id: &str) -> Result<Option<u64>, StoreError> {
        let found = self
            .connection
            .query_row("SELECT place FROM thought WHERE id = ?", params![id], |row| row.get(0));
        Ok(found.optional().map_err(StoreError::database("find a thought"))?.map(index))
    }

    fn rows_of<T>(
        &self,
        sql: &str,
        values: Vec<Sql>,
        row: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        let failed = StoreError::database("list");
        let mut statement = self.connection.prepare_cached(sql).map_err(&failed)?;
        statement.query_map(params_from_iter(values), row).and_then(Iterator::collect).map_err(&failed)
    }
}

/// The conditions of one query: only those asked for, so that SQLite can use an index.
#[derive(Default)]
struct Filter {
    conditions: Vec<String>,
    values: Vec<Sql>,
}

impl Filter {
    fn is(&mut self, condition: &str) {
        self.conditions.push(condition.to_owned());
    }

    fn equals(&mut self, condition: &str, value: Option<impl Into<Sql>>) {
        if let Some(value) = value {
            self.is(condition);
            self.values.push(value.into());
        }
    }

    fn clause(&self) -> String {
        if self.conditions.is_empty() {
            String::new()
        } else {
            format!("WHERE {}", self.conditions.join(" AND "))
        }
    }

    fn values(self, limit: u32) -> Vec<Sql> {
        self.values.into_iter().chain([i64::from(limit).into()]).collect()
    }
}
