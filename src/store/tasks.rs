//! The verbs of tasks. Each decides first and writes after, so that a refusal has changed nothing;
//! the change and its ledger record are one transaction.

use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

use crate::domain::audit::CallId;
use crate::domain::clock::Timestamp;
use crate::domain::failure::Refusal;
use crate::domain::ledger::{Event, TaskChanged};
use crate::domain::merkle::Hash;
use crate::domain::task::ask::{Labels, Needs, New, NextActions, Patch};
use crate::domain::task::{LEASE_MS, Priority, Status, Task, code, find_cycle, not_found, step};

use super::error::StoreError;
use super::ledger::{Ledger, seal_whole};
use super::next::{Purpose, next_actions};

/// A refusal is an answer, not a failure of the store.
pub type Answer<T> = Result<T, Refusal>;

/// Who acts, and when.
#[derive(Clone, Copy, Debug)]
pub struct Act {
    /// The call.
    pub call: CallId,
    /// Its arrival, on the wall clock.
    pub at: Timestamp,
}

impl Ledger<'_> {
    pub(super) fn create_task(&mut self, act: Act, new: New) -> Result<Answer<Task>, StoreError> {
        let needs = match self.resolve(new.depends_on.as_ref())? {
            Ok(needs) => needs,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let failed = StoreError::database("create a task");
        let id = Uuid::now_v7().to_string();
        let labels = labels(new.labels);
        let sql = "INSERT INTO task (id, title, description, status, priority, labels, assignee, project_id, attempt, version, \
                   blocked_by, dependants, thoughts, last_hash, created_at, updated_at) \
                   VALUES (?, ?, ?, 'INIT', ?, ?, ?, ?, 1, 1, 0, 0, 0, zeroblob(32), ?, ?)";
        let row = params![
            id,
            new.title,
            new.description,
            new.priority.unwrap_or_default().rank(),
            json(&labels),
            new.assignee,
            new.project_id,
            act.at.0.cast_signed(),
            act.at.0.cast_signed()
        ];
        self.connection.prepare_cached(sql).and_then(|mut s| s.execute(row)).map_err(&failed)?;
        let seq = self.connection.last_insert_rowid();
        self.label(seq, &labels)?;
        for need in needs {
            self.depend(seq, true, need)?;
        }
        self.changed(act, seq, "created").map(Ok)
    }

    pub(super) fn update_task(
        &mut self,
        act: Act,
        id: &str,
        patch: Patch,
        version: Option<u64>,
    ) -> Result<Answer<Task>, StoreError> {
        let Some(found) = find(self.connection, id)? else { return Ok(Err(not_found(id))) };
        if let Some(expected) = version.filter(|expected| *expected != found.version) {
            return Ok(Err(conflict(expected, found.version)));
        }
        let status = patch.status.unwrap_or(found.status);
        let step = match step(found.status, status, found.attempt, found.thoughts) {
            Ok(step) => step,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let needs = match self.resolve(patch.depends_on.as_ref())? {
            Ok(needs) => patch.depends_on.as_ref().map(|_| needs),
            Err(refusal) => return Ok(Err(refusal)),
        };
        if let Some(Needs(ids)) = &patch.depends_on {
            let cycle = find_cycle(id, ids, |task| needs_of(self.connection, task))?;
            if let Some(cycle) = cycle {
                return Ok(Err(cycle.refusal()));
            }
        }
        self.write_patch(act, &found, patch)?;
        let sql = "UPDATE task SET status = ?, attempt = ? WHERE seq = ?";
        let row = params![step.to.name(), step.attempt, found.seq];
        self.connection
            .prepare_cached(sql)
            .and_then(|mut s| s.execute(row))
            .map_err(StoreError::database("change a task"))?;
        if let Some(needs) = needs {
            self.replace_needs(&found, &needs)?;
        }
        if step.to.is_terminal() && !found.status.is_terminal() {
            self.release(found.seq)?;
        }
        self.changed(act, found.seq, "updated").map(Ok)
    }

    /// Hands the best free task to one agent, for as long as a lease lasts.
    pub(super) fn claim_task(&mut self, act: Act, ask: &NextActions) -> Result<Option<Task>, StoreError> {
        let Some(agent) = &ask.agent_id else { return Ok(None) };
        let failed = StoreError::database("claim a task");
        let best = next_actions(self.connection, ask, Purpose::Claim, 1, act.at)?.into_iter().next();
        let Some((seq, _)) = best else { return Ok(None) };
        let now = act.at.0.cast_signed();
        let sql = "UPDATE task SET assignee = ?, lease_until = ?, version = version + 1, updated_at = ? WHERE seq = ?";
        let row = params![agent, now + LEASE_MS.cast_signed(), now, seq];
        self.connection.prepare_cached(sql).and_then(|mut s| s.execute(row)).map_err(&failed)?;
        self.changed(act, seq, "claimed").map(Some)
    }

    /// Everything but status and needs. Work on a claimed task renews its lease.
    fn write_patch(&mut self, act: Act, found: &Found, patch: Patch) -> Result<(), StoreError> {
        let failed = StoreError::database("change a task");
        let now = act.at.0.cast_signed();
        let set = |column: &str, value: &dyn rusqlite::ToSql| {
            let sql = format!("UPDATE task SET {column} = ? WHERE seq = ?");
            let update = |mut s: rusqlite::CachedStatement<'_>| s.execute(params![value, found.seq]);
            self.connection.prepare_cached(&sql).and_then(update).map_err(&failed)
        };
        if let Some(title) = &patch.title {
            set("title", title)?;
        }
        if let Some(description) = &patch.description {
            set("description", description)?;
        }
        if let Some(priority) = patch.priority {
            set("priority", &priority.rank())?;
        }
        if let Some(project) = &patch.project_id {
            set("project_id", project)?;
        }
        match &patch.assignee {
            Some(assignee) => {
                set("assignee", assignee)?;
                set("lease_until", &None::<i64>)?;
            }
            None if found.lease_until.is_some_and(|until| until > now) => {
                set("lease_until", &(now + LEASE_MS.cast_signed()))?;
            }
            None => {}
        }
        set("updated_at", &now)?;
        set("version", &(found.version + 1).cast_signed())?;
        if let Some(new) = patch.labels {
            let labels = labels(Some(new));
            set("labels", &json(&labels))?;
            self.connection.execute("DELETE FROM label WHERE task = ?", [found.seq]).map_err(&failed)?;
            self.label(found.seq, &labels)?;
        }
        Ok(())
    }

    /// The tasks named, or a refusal that names the one that is not there.
    fn resolve(&self, needs: Option<&Needs>) -> Result<Answer<Vec<Found>>, StoreError> {
        let mut found = Vec::new();
        for id in needs.map(|needs| needs.0.as_slice()).unwrap_or_default() {
            match find(self.connection, id)? {
                Some(task) if found.iter().any(|known: &Found| known.seq == task.seq) => {}
                Some(task) => found.push(task),
                None => return Ok(Err(not_found(id))),
            }
        }
        Ok(Ok(found))
    }

    fn label(&self, seq: i64, labels: &[String]) -> Result<(), StoreError> {
        let sql = "INSERT OR IGNORE INTO label (name, task) VALUES (?, ?)";
        for label in labels {
            let insert = |mut s: rusqlite::CachedStatement<'_>| s.execute(params![label, seq]);
            self.connection
                .prepare_cached(sql)
                .and_then(insert)
                .map_err(StoreError::database("label a task"))?;
        }
        Ok(())
    }

    /// `task` needs `need` from now on; counts are kept on both. Who has ended waits for nobody.
    fn depend(&self, task: i64, is_open: bool, need: Found) -> Result<(), StoreError> {
        let (waiting, blocking) = (i64::from(is_open), i64::from(!need.status.is_terminal()));
        self.run("INSERT INTO dependency (task, needs) VALUES (?, ?)", [task, need.seq])?;
        self.run("UPDATE task SET dependants = dependants + ? WHERE seq = ?", [waiting, need.seq])?;
        self.run("UPDATE task SET blocked_by = blocked_by + ? WHERE seq = ?", [blocking, task])
    }

    fn replace_needs(&self, task: &Found, needs: &[Found]) -> Result<(), StoreError> {
        let (seq, is_open) = (task.seq, !task.status.is_terminal());
        self.run(
            "UPDATE task SET dependants = dependants - ? WHERE seq IN (SELECT needs FROM dependency WHERE task = ?)",
            [i64::from(is_open), seq],
        )?;
        self.run("DELETE FROM dependency WHERE task = ?", [seq])?;
        self.run("UPDATE task SET blocked_by = 0 WHERE seq = ?", [seq])?;
        needs.iter().try_for_each(|need| self.depend(seq, is_open, *need))
    }

    /// A task that ended blocks nobody and waits for nobody.
    fn release(&self, task: i64) -> Result<(), StoreError> {
        self.run(
            "UPDATE task SET blocked_by = blocked_by - 1 WHERE seq IN (SELECT task FROM dependency WHERE needs = ?)",
            [task],
        )?;
        self.run(
            "UPDATE task SET dependants = dependants - 1 WHERE seq IN (SELECT needs FROM dependency WHERE task = ?)",
            [task],
        )
    }

    fn run(&self, sql: &str, parameters: impl rusqlite::Params) -> Result<(), StoreError> {
        let run = self.connection.prepare_cached(sql).and_then(|mut s| s.execute(parameters));
        run.map(drop).map_err(StoreError::database("keep its dependencies"))
    }

    /// The record of a change, and the task as it is now.
    fn changed(&mut self, act: Act, seq: i64, change: &str) -> Result<Task, StoreError> {
        let task = load(self.connection, seq, act.at)?;
        let body = serde_json::to_vec(&task).expect("a task always serialises");
        let (content, kept) = seal_whole(&body)?;
        let event = Event::TaskChanged(TaskChanged {
            call: act.call,
            change: change.to_owned(),
            content,
            status: task.status.name().to_owned(),
            task: task.id.clone(),
            version: task.version,
        });
        let place = self.append(act.at, event)?;
        self.keep(place, &kept)?;
        Ok(task)
    }
}

/// What deciding about a task needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) seq: i64,
    pub(super) status: Status,
    attempt: u32,
    version: u64,
    pub(super) thoughts: u64,
    pub(super) last_hash: Hash,
    lease_until: Option<i64>,
}

pub(super) fn find(connection: &Connection, id: &str) -> Result<Option<Found>, StoreError> {
    let sql = "SELECT seq, status, attempt, version, thoughts, last_hash, lease_until FROM task WHERE id = ?";
    let row = |row: &Row<'_>| {
        Ok(Found {
            seq: row.get(0)?,
            status: status(row, 1)?,
            attempt: row.get(2)?,
            version: row.get::<_, i64>(3)?.cast_unsigned(),
            thoughts: row.get::<_, i64>(4)?.cast_unsigned(),
            last_hash: Hash(row.get(5)?),
            lease_until: row.get(6)?,
        })
    };
    let found = connection.prepare_cached(sql).and_then(|mut s| s.query_row([id], row).optional());
    found.map_err(StoreError::database("find a task"))
}

fn needs_of(connection: &Connection, id: &str) -> Result<Vec<String>, StoreError> {
    let sql = "SELECT other.id FROM task JOIN dependency ON dependency.task = task.seq \
               JOIN task AS other ON other.seq = dependency.needs WHERE task.id = ? ORDER BY other.seq";
    let mut statement =
        connection.prepare_cached(sql).map_err(StoreError::database("read its dependencies"))?;
    let ids = statement.query_map([id], |row| row.get(0)).and_then(Iterator::collect);
    ids.map_err(StoreError::database("read its dependencies"))
}

/// The columns of [`whole`], in its order.
pub(super) const COLUMNS: &str = "seq, id, title, description, status, priority, labels, assignee, lease_until, project_id, \
     attempt, version, blocked_by, dependants, thoughts, created_at, updated_at";

/// One task, whole. A claim whose lease has ended is given back: nobody sees it.
pub(super) fn load(connection: &Connection, seq: i64, now: Timestamp) -> Result<Task, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM task WHERE seq = ?");
    let loaded = connection.prepare_cached(&sql).and_then(|mut s| s.query_row([seq], |row| whole(row, now)));
    let mut task = loaded.map_err(StoreError::database("read a task"))?;
    task.depends_on = needs_of(connection, &task.id)?;
    Ok(task)
}

/// A row of [`COLUMNS`], without the needs.
pub(super) fn whole(row: &Row<'_>, now: Timestamp) -> rusqlite::Result<Task> {
    let time = |column| Ok::<_, rusqlite::Error>(Timestamp(row.get::<_, i64>(column)?.cast_unsigned()));
    let lease: Option<i64> = row.get(8)?;
    let given_back = lease.is_some_and(|until| until <= now.0.cast_signed());
    let count = |column| row.get::<_, i64>(column).map(i64::cast_unsigned);
    Ok(Task {
        id: row.get(1)?,
        title: row.get(2)?,
        description: row.get(3)?,
        status: status(row, 4)?,
        priority: Priority::of_rank(row.get(5)?).unwrap_or_default(),
        labels: serde_json::from_str(&row.get::<_, String>(6)?).unwrap_or_default(),
        assignee: row.get::<_, Option<String>>(7)?.filter(|_| !given_back),
        lease_until: lease.filter(|_| !given_back).map(|until| Timestamp(until.cast_unsigned()).to_string()),
        project_id: row.get(9)?,
        depends_on: Vec::new(),
        blocked_by: count(12)?,
        dependants: count(13)?,
        attempt: row.get(10)?,
        version: count(11)?,
        thoughts: count(14)?,
        created_at: time(15)?.to_string(),
        updated_at: time(16)?.to_string(),
    })
}

fn status(row: &Row<'_>, column: usize) -> rusqlite::Result<Status> {
    let name: String = row.get(column)?;
    Status::parse(&name).ok_or_else(|| {
        rusqlite::Error::FromSqlConversionFailure(
            column,
            rusqlite::types::Type::Text,
            format!("unknown status {name}").into(),
        )
    })
}

/// Sorted and each once, so that the same labels are the same bytes.
fn labels(labels: Option<Labels>) -> Vec<String> {
    let mut labels = labels.map(|labels| labels.0).unwrap_or_default();
    labels.sort();
    labels.dedup();
    labels
}

fn json(labels: &[String]) -> String {
    serde_json::to_string(labels).expect("strings always serialise")
}

fn conflict(expected: u64, found: u64) -> Refusal {
    let message = format!("the task has version {found}, not {expected}: somebody changed it; read it again");
    Refusal::new(code::CONFLICT, message).field("expected", expected).field("found", found)
}
