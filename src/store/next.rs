//! What can be done now, best first: read from the front of an index, whatever the number of tasks.
//! Only claims that have lapsed are all looked at, since nothing gives them back before somebody asks.
//!
//! A task is nobody's, somebody's by name, or claimed until its lease ends. No one index can leave out
//! the claims that still hold, since time passes without a write. So each kind is read from its own
//! index, as far as is wanted, and the few rows found are put in order.

use rusqlite::types::Value as Sql;
use rusqlite::{Connection, params_from_iter};

use crate::domain::clock::Timestamp;
use crate::domain::task::Task;
use crate::domain::task::ask::NextActions;

use super::error::StoreError;
use super::tasks::{COLUMNS, whole};

/// Who asks, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To see: an agent also sees what it holds.
    List,
    /// To take: what the agent holds already is not taken again.
    Claim,
}

/// The best tasks that can be worked on now, each with its row, without their needs.
pub(super) fn next_actions(
    connection: &Connection,
    ask: &NextActions,
    purpose: Purpose,
    limit: u32,
    now: Timestamp,
) -> Result<Vec<(i64, Task)>, StoreError> {
    let failed = StoreError::database("find what is next");
    let sql = sql(ask, purpose);
    let mut values: Vec<Sql> =
        vec![i64::from(limit).into(), now.0.cast_signed().into(), ask.project_id.clone().into()];
    values.extend(ask.agent_id.clone().map(Sql::from));
    let mut statement = connection.prepare_cached(&sql).map_err(&failed)?;
    let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, whole(row, now)?));
    statement.query_map(params_from_iter(values), row).and_then(Iterator::collect).map_err(&failed)
}

/// `?1` is the limit, `?2` the time, `?3` the project, `?4` the agent.
fn sql(ask: &NextActions, purpose: Purpose) -> String {
    let (of, project) = match ask.project_id {
        Some(_) => ("_of_project", "project_id = ?3"),
        None => ("", "?3 IS NULL"),
    };
    let ready = "blocked_by = 0 AND status NOT IN ('DONE', 'CANCELLED')";
    let order = "ORDER BY priority, dependants DESC, seq LIMIT ?1";
    let part = |index: &str, condition: &str| {
        format!(
            "SELECT * FROM (SELECT {COLUMNS} FROM task INDEXED BY {index} \
             WHERE {project} AND {ready} AND {condition} {order})"
        )
    };
    let assigned = format!("task_next{of}_assigned");
    let parts = match (&ask.agent_id, purpose) {
        (None, _) => vec![
            part(&format!("task_next{of}"), "lease_until IS NULL"),
            part("task_lease", "lease_until <= ?2"),
        ],
        (Some(_), Purpose::List) => vec![
            part(&assigned, "assignee IS NULL"),
            part(&assigned, "assignee = ?4"),
            part("task_lease", "lease_until <= ?2 AND assignee <> ?4"),
        ],
        (Some(_), Purpose::Claim) => vec![
            part(&assigned, "assignee IS NULL"),
            part(&assigned, "assignee = ?4 AND lease_until IS NULL"),
            part("task_lease", "lease_until <= ?2"),
        ],
    };
    format!("{} {order}", parts.join(" UNION ALL "))
}
