//! The verbs of thoughts and sessions: a chain of reasons per task, sealed by session.

use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

use crate::domain::clock::Timestamp;
use crate::domain::failure::Refusal;
use crate::domain::ledger::{Event, SessionFinalized, SessionStarted};
use crate::domain::merkle::{Frontier, Hash, leaf_hash};
use crate::domain::task::not_found;
use crate::domain::thought::{Kind, Thought, code, no_session};

use super::error::StoreError;
use super::ledger::{Ledger, index, seal_whole};
use super::tasks::{Act, Answer, find};

/// A thought to be recorded.
#[derive(Clone, Debug)]
pub struct NewThought {
    /// What kind of reason it is.
    pub kind: Kind,
    /// The task it is about.
    pub task_id: String,
    /// Who thought it.
    pub agent_id: String,
    /// The text.
    pub content: String,
    /// The session it belongs to.
    pub session_id: Option<String>,
}

/// A session to be started.
#[derive(Clone, Debug)]
pub struct NewSession {
    /// What it is for.
    pub intent: String,
    /// The task it is about.
    pub task_id: Option<String>,
    /// Its id; made if absent.
    pub session_id: Option<String>,
}

/// A session, as far as it has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Its id.
    pub id: String,
    /// What it is for.
    pub intent: String,
    /// The task it is about.
    pub task_id: Option<String>,
    /// When it began.
    pub started_at: Timestamp,
    /// Its seal, once it has one.
    pub seal: Option<Seal>,
}

/// A sealed session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    /// The RFC 6962 root over its records.
    pub root: Hash,
    /// How many there are.
    pub record_count: u64,
    /// When it was sealed.
    pub at: Timestamp,
    /// The index of the ledger record that says so.
    pub index: u64,
}

/// A recorded thought: its index in the ledger, and what its record says.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// Its record's index.
    pub index: u64,
    /// What its record says.
    pub thought: Thought,
}

impl Ledger<'_> {
    pub(super) fn record_thought(
        &mut self,
        act: Act,
        new: &NewThought,
    ) -> Result<Answer<Recorded>, StoreError> {
        let Some(task) = find(self.connection, &new.task_id)? else {
            return Ok(Err(not_found(&new.task_id)));
        };
        if let Some(id) = &new.session_id {
            match find_session(self.connection, id)? {
                None => return Ok(Err(no_session(id))),
                Some(session) if session.seal.is_some() => return Ok(Err(finalized(id))),
                Some(_) => {}
            }
        }
        let (content, kept) = seal_whole(new.content.as_bytes())?;
        let thought = Thought {
            agent_id: new.agent_id.clone(),
            call: act.call,
            content,
            hash: Hash::ZERO,
            id: Uuid::now_v7().to_string(),
            prev_hash: task.last_hash,
            session_id: new.session_id.clone(),
            task_id: new.task_id.clone(),
            timestamp: act.at.to_string(),
            kind: new.kind,
        }
        .sealed();
        let place = self.append(act.at, Event::ThoughtRecorded(thought.clone()))?;
        self.keep(place, &kept)?;
        let failed = StoreError::database("record a thought");
        let sql = "INSERT INTO thought (place, id, task, session, agent, type) VALUES (?, ?, ?, ?, ?, ?)";
        let row =
            params![place, thought.id, task.seq, thought.session_id, thought.agent_id, thought.kind.name()];
        self.connection.prepare_cached(sql).and_then(|mut s| s.execute(row)).map_err(&failed)?;
        let sql = "UPDATE task SET thoughts = thoughts + 1, last_hash = ? WHERE seq = ?";
        let update = |mut s: rusqlite::CachedStatement<'_>| s.execute(params![thought.hash.0, task.seq]);
        self.connection.prepare_cached(sql).and_then(update).map_err(&failed)?;
        Ok(Ok(Recorded { index: index(place), thought }))
    }

    pub(super) fn start_session(
        &mut self,
        act: Act,
        new: &NewSession,
    ) -> Result<Answer<Session>, StoreError> {
        let id = new.session_id.clone().unwrap_or_else(|| Uuid::now_v7().to_string());
        if find_session(self.connection, &id)?.is_some() {
            return Ok(Err(Refusal::new(code::SESSION_EXISTS, format!("there is a session {id} already"))));
        }
        if let Some(task) = &new.task_id
            && find(self.connection, task)?.is_none()
        {
            return Ok(Err(not_found(task)));
        }
        let (intent, kept) = seal_whole(new.intent.as_bytes())?;
        let started =
            SessionStarted { call: act.call, intent, session: id.clone(), task: new.task_id.clone() };
        let place = self.append(act.at, Event::SessionStarted(started))?;
        self.keep(place, &kept)?;
        let sql = "INSERT INTO session (id, intent, task_id, started_at, place) VALUES (?, ?, ?, ?, ?)";
        let row = params![id, new.intent, new.task_id, act.at.0.cast_signed(), place];
        self.connection.execute(sql, row).map_err(StoreError::database("start a session"))?;
        let (intent, task_id) = (new.intent.clone(), new.task_id.clone());
        Ok(Ok(Session { id, intent, task_id, started_at: act.at, seal: None }))
    }

    /// Seals a session: the root over its records is itself on record, and nothing can be added.
    pub(super) fn finalize_session(&mut self, act: Act, id: &str) -> Result<Answer<Session>, StoreError> {
        let failed = StoreError::database("seal a session");
        let Some(mut session) = find_session(self.connection, id)? else { return Ok(Err(no_session(id))) };
        if session.seal.is_some() {
            return Ok(Err(Refusal::new(code::ALREADY_FINALIZED, format!("session {id} was sealed before"))));
        }
        let mut tree = Frontier::default();
        each_record_of(self.connection, id, |bytes| {
            tree.append(leaf_hash(bytes.as_bytes()));
        })?;
        if tree.size() == 0 {
            return Ok(Err(Refusal::new(
                code::NO_RECORDS,
                format!("session {id} has no records; add one with thought_record"),
            )));
        }
        let (root, record_count) = (tree.root(), tree.size());
        let event = SessionFinalized { call: act.call, record_count, root, session: id.to_owned() };
        let place = self.append(act.at, Event::SessionFinalized(event))?;
        let sql = "UPDATE session SET sealed = ?, root = ?, record_count = ?, finalized_at = ? WHERE id = ?";
        let row = params![place, root.0, record_count.cast_signed(), act.at.0.cast_signed(), id];
        self.connection.execute(sql, row).map_err(&failed)?;
        session.seal = Some(Seal { root, record_count, at: act.at, index: index(place) });
        Ok(Ok(session))
    }
}

/// The session of that id.
pub(super) fn find_session(connection: &Connection, id: &str) -> Result<Option<Session>, StoreError> {
    let sql = "SELECT id, intent, task_id, started_at, sealed, root, record_count, finalized_at FROM session WHERE id = ?";
    let row = |row: &Row<'_>| {
        let time = |ms: i64| Timestamp(ms.cast_unsigned());
        let sealed: Option<i64> = row.get(4)?;
        let seal = match sealed {
            None => None,
            Some(place) => Some(Seal {
                root: Hash(row.get(5)?),
                record_count: row.get::<_, i64>(6)?.cast_unsigned(),
                at: time(row.get(7)?),
                index: index(place),
            }),
        };
        Ok(Session {
            id: row.get(0)?,
            intent: row.get(1)?,
            task_id: row.get(2)?,
            started_at: time(row.get(3)?),
            seal,
        })
    };
    let found = connection.prepare_cached(sql).and_then(|mut s| s.query_row([id], row).optional());
    found.map_err(StoreError::database("find a session"))
}

/// The bytes of a session's records, in order.
pub(super) fn each_record_of(
    connection: &Connection,
    session: &str,
    mut visit: impl FnMut(&str),
) -> Result<(), StoreError> {
    let failed = StoreError::database("read a session");
    let sql = "SELECT record.bytes FROM thought JOIN record ON record.place = thought.place \
               WHERE thought.session = ? ORDER BY thought.place";
    let mut statement = connection.prepare_cached(sql).map_err(&failed)?;
    let mut rows = statement.query([session]).map_err(&failed)?;
    while let Some(row) = rows.next().map_err(&failed)? {
        visit(row.get_ref(0).and_then(|value| Ok(value.as_str()?)).map_err(&failed)?);
    }
    Ok(())
}

fn finalized(id: &str) -> Refusal {
    Refusal::new(
        code::SESSION_FINALIZED,
        format!("session {id} is sealed; begin another with audit_session_start"),
    )
}
