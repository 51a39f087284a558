//! The task tools: what is to be done, by whom, and what can be done now.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::domain::mode::Mode;
use crate::domain::task::ask::{Brief, New, NextActions, Page, Patch, Query};
use crate::domain::task::{Task, code, not_found};
use crate::store::{Act, Store};

use super::{Context, RegisterError, Registry, ToolConfig, ToolError};

/// Registers the five.
pub fn register(registry: &mut Registry, store: &Store, mode: Mode) -> Result<(), RegisterError> {
    let tasks = Tasks { store: store.clone(), mode };
    let this = tasks.clone();
    registry.register("task_create", CREATE, move |new: New, context| this.clone().create(new, context))?;
    let this = tasks.clone();
    registry.register("task_get", GET, move |ask: Get, context| this.clone().get(ask, context))?;
    let this = tasks.clone();
    registry
        .register("task_update", UPDATE, move |ask: Update, context| this.clone().update(ask, context))?;
    let this = tasks.clone();
    registry.register("task_list", LIST, move |ask: Query, context| this.clone().list(ask, context))?;
    // It lists in every mode; what claims is a change, and says so where a claim is admitted.
    let next = ToolConfig { mutates: mode.admits("task_next_actions", true), ..NEXT };
    registry.register("task_next_actions", next, move |ask: NextActions, context| {
        tasks.clone().next_actions(ask, context)
    })
}

const CREATE: ToolConfig = ToolConfig {
    title: Cow::Borrowed("Create a task"),
    description: Cow::Borrowed(
        "Creates a task in status INIT. Name tasks that must end first in depends_on; they are kept from being next actions until then.",
    ),
    mutates: true,
    refusals: &[code::NOT_FOUND],
    ..ToolConfig::NONE
};

const GET: ToolConfig = ToolConfig {
    title: Cow::Borrowed("Get a task"),
    description: Cow::Borrowed("Returns one task, whole."),
    refusals: &[code::NOT_FOUND],
    ..ToolConfig::NONE
};

const UPDATE: ToolConfig = ToolConfig {
    title: Cow::Borrowed("Change a task"),
    description: Cow::Borrowed(
        "Changes what the patch names; null empties a field. Status follows INIT, GATHER, ANALYZE, PLAN, APPLY, VERIFY, DONE; VERIFY may go \
         back to GATHER for another attempt, and everything open may become CANCELLED. DONE needs at least one thought_record of the task. \
         Give the version you read to be told of a conflict. Work on a claimed task renews its claim.",
    ),
    mutates: true,
    refusals: &[
        code::NOT_FOUND,
        code::CONFLICT,
        code::INVALID_TRANSITION,
        code::WRITEBACK_REQUIRED,
        code::CYCLE,
    ],
    ..ToolConfig::NONE
};

const LIST: ToolConfig = ToolConfig {
    title: Cow::Borrowed("List tasks"),
    description: Cow::Borrowed(
        "Lists tasks in the order of their creation, a page at a time, brief unless fields is full.",
    ),
    ..ToolConfig::NONE
};

const NEXT: ToolConfig = ToolConfig {
    title: Cow::Borrowed("What can be done now"),
    description: Cow::Borrowed(
        "Returns the tasks that can be worked on now, best first, each with why. With claim and agent_id the best one is yours alone for 30 minutes.",
    ),
    ..ToolConfig::NONE
};

#[derive(Clone)]
struct Tasks {
    store: Store,
    mode: Mode,
}

#[derive(Deserialize, JsonSchema)]
struct Get {
    /// The task's id.
    #[schemars(length(min = 1, max = 64))]
    id: String,
}

#[derive(Deserialize, JsonSchema)]
struct Update {
    /// The task's id.
    #[schemars(length(min = 1, max = 64))]
    id: String,
    /// What to change.
    patch: Patch,
    /// The version that was read; another one is a conflict.
    #[serde(default)]
    version: Option<u64>,
}

#[derive(Serialize, JsonSchema)]
struct Actions {
    /// Best first.
    actions: Vec<Action>,
    /// The task that is now the agent's alone; absent if none was claimed.
    #[serde(skip_serializing_if = "Option::is_none")]
    claimed: Option<Task>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct Action {
    #[serde(flatten)]
    task: Brief,
    /// Why it is next.
    why: String,
}

impl Tasks {
    async fn create(self, new: New, context: Context) -> Result<Task, ToolError> {
        Ok(self.store.create_task(act(&context), new).await??)
    }

    async fn get(self, ask: Get, context: Context) -> Result<Task, ToolError> {
        let now = context.arrived.wall;
        let Get { id } = ask;
        let found = self.store.read(move |reader| reader.task(&id, now).map(|task| (id, task))).await?;
        let (id, task) = found;
        Ok(task.ok_or_else(|| not_found(&id))?)
    }

    async fn update(self, ask: Update, context: Context) -> Result<Task, ToolError> {
        let Update { id, patch, version } = ask;
        Ok(self.store.update_task(act(&context), id, patch, version).await??)
    }

    async fn list(self, ask: Query, context: Context) -> Result<Page, ToolError> {
        let now = context.arrived.wall;
        Ok(self.store.read(move |reader| reader.tasks(&ask, now)).await?)
    }

    async fn next_actions(self, ask: NextActions, context: Context) -> Result<Actions, ToolError> {
        let now = context.arrived.wall;
        let mut claimed = None;
        if ask.claim {
            if ask.agent_id.is_none() {
                return Err(ToolError::failed("a claim needs agent_id: who takes the task?"));
            }
            if !self.mode.admits("task_next_actions", true) {
                return Err(ToolError::failed(format!(
                    "mode {} lists what is next, but claims nothing",
                    self.mode
                )));
            }
            claimed = self.store.claim_task(act(&context), ask.clone()).await?;
        }
        let tasks = self.store.read(move |reader| reader.next_actions(&ask, now)).await?;
        let action = |task: Task| Action { why: why(&task), task: task.into() };
        Ok(Actions { actions: tasks.into_iter().map(action).collect(), claimed })
    }
}

/// Why a task is next, in the words of the order that put it there.
fn why(task: &Task) -> String {
    let priority = task.priority.name();
    let waiting = match task.dependants {
        0 => String::new(),
        1 => ", 1 task waits for it".to_owned(),
        many => format!(", {many} tasks wait for it"),
    };
    let holder = task.assignee.as_deref().map(|who| format!(", already with {who}")).unwrap_or_default();
    format!("unblocked, {priority} priority{waiting}{holder}")
}

pub(super) fn act(context: &Context) -> Act {
    Act { call: context.call, at: context.arrived.wall }
}
