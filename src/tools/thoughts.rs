//! The decision trail: why something was done, chained per task, and whether the chain is whole.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use tokio_util::sync::CancellationToken;

use crate::domain::failure::Refusal;
use crate::domain::merkle::Hash;
use crate::domain::task::ask::{LINE, LINES};
use crate::domain::task::code::NOT_FOUND;
use crate::domain::thought::{Kind, Thought, code};
use crate::store::{ListedThought, NewThought, Store, TaskChain, ThoughtPage, ThoughtQuery, Verdict};

use super::tasks::act;
use super::{Context, RegisterError, Registry, ToolConfig, ToolError};

/// Registers the three.
pub fn register(registry: &mut Registry, store: &Store, require_session: bool) -> Result<(), RegisterError> {
    let recorder = store.clone();
    registry.register("thought_record", RECORD, move |new: New, context| {
        record(recorder.clone(), new, require_session, context)
    })?;
    let lister = store.clone();
    registry.register("thought_record_list", LIST, move |ask: List, _| list(lister.clone(), ask))?;
    let verifier = store.clone();
    registry.register("audit_verify_chain", VERIFY, move |ask: Verify, context| {
        verify(verifier.clone(), ask, context)
    })
}

const RECORD: ToolConfig = ToolConfig {
    title: Cow::Borrowed("Record a thought"),
    description: Cow::Borrowed(
        "Puts a reason on record: a plan, an analysis, a decision or a reflection about a task. It cannot be changed afterwards.",
    ),
    mutates: true,
    failures: &[NOT_FOUND, code::SESSION_NOT_FOUND, code::SESSION_FINALIZED, code::SESSION_REQUIRED],
    ..ToolConfig::NONE
};

const LIST: ToolConfig = ToolConfig {
    title: Cow::Borrowed("List thoughts"),
    description: Cow::Borrowed(
        "Lists thoughts in the order they were recorded, a page at a time; by task, session, agent or type.",
    ),
    failures: &[NOT_FOUND, code::SESSION_NOT_FOUND],
    ..ToolConfig::NONE
};

const VERIFY: ToolConfig = ToolConfig {
    title: Cow::Borrowed("Verify the trail"),
    description: Cow::Borrowed(
        "Recomputes the chain of one task, or of all tasks and the whole ledger, and says whether anything was touched.",
    ),
    failures: &[NOT_FOUND],
    ..ToolConfig::NONE
};

#[derive(Deserialize, JsonSchema)]
struct New {
    /// What kind of reason it is.
    #[serde(rename = "type")]
    kind: Kind,
    /// The task it is about.
    #[schemars(length(min = 1, max = 64))]
    task_id: String,
    /// Who thinks it.
    #[schemars(length(min = 1, max = 128), regex(pattern = LINE))]
    agent_id: String,
    /// The reason, in full.
    #[schemars(length(min = 1, max = 32_000), regex(pattern = LINES))]
    content: String,
    /// The session it belongs to.
    #[serde(default)]
    #[schemars(length(min = 1, max = 64))]
    session_id: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct Shown {
    id: String,
    #[serde(rename = "type")]
    kind: Kind,
    task_id: String,
    agent_id: String,
    session_id: Option<String>,
    /// The text; null if it was erased.
    content: Option<String>,
    timestamp: String,
    #[schemars(with = "String")]
    prev_hash: Hash,
    #[schemars(with = "String")]
    hash: Hash,
    /// The index of its record in the ledger.
    index: u64,
}

async fn record(store: Store, new: New, require_session: bool, context: Context) -> Result<Shown, ToolError> {
    let New { kind, task_id, agent_id, content, session_id } = new;
    if require_session && session_id.is_none() {
        return Err(ToolError::coded(
            code::SESSION_REQUIRED,
            "audit.requireSession is set: name a session_id",
        ));
    }
    let thought = NewThought { kind, task_id, agent_id, content: content.clone(), session_id };
    let recorded = store.record_thought(act(&context), thought).await?.map_err(|refusal| coded(&refusal))?;
    Ok(shown(recorded.index, recorded.thought, Some(content)))
}

fn shown(index: u64, thought: Thought, content: Option<String>) -> Shown {
    let Thought { agent_id, hash, id, prev_hash, session_id, task_id, timestamp, kind, .. } = thought;
    Shown { id, kind, task_id, agent_id, session_id, content, timestamp, prev_hash, hash, index }
}

/// The thought tools speak pattern A: a domain failure is `HANDLER_ERROR` with its code in front.
fn coded(refusal: &Refusal) -> ToolError {
    ToolError::coded(refusal.code, &refusal.message)
}

#[derive(Deserialize, JsonSchema)]
struct List {
    /// Only of this task.
    #[serde(default)]
    #[schemars(length(min = 1, max = 64))]
    task_id: Option<String>,
    /// Only of this session.
    #[serde(default)]
    #[schemars(length(min = 1, max = 64))]
    session_id: Option<String>,
    /// Only of this agent.
    #[serde(default)]
    #[schemars(length(min = 1, max = 128))]
    agent_id: Option<String>,
    /// Only of this type.
    #[serde(default, rename = "type")]
    kind: Option<Kind>,
    /// At most this many; 50 if absent.
    #[serde(default)]
    #[schemars(range(min = 1, max = 200))]
    limit: Option<u32>,
    /// Where the page before ended: its `next_cursor`.
    #[serde(default)]
    #[schemars(length(min = 1, max = 32), regex(pattern = "^[0-9]+$"))]
    cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct Listing {
    records: Vec<Shown>,
    /// Give it as `cursor` to go on; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

async fn list(store: Store, ask: List) -> Result<Listing, ToolError> {
    let List { task_id, session_id, agent_id, kind, limit, cursor } = ask;
    let after = cursor.map(|cursor| cursor.parse().unwrap_or(i64::MAX));
    let query = ThoughtQuery { task_id, session_id, agent_id, kind, limit, after };
    let page = store.read(move |reader| reader.thoughts(&query)).await?;
    let ThoughtPage { thoughts, next } = page.map_err(|refusal| coded(&refusal))?;
    let show = |ListedThought { index, thought, content }| shown(index, thought, content);
    let next_cursor = next.map(|place| place.to_string());
    Ok(Listing { records: thoughts.into_iter().map(show).collect(), next_cursor })
}

/// Chains in one answer; more help nobody, and an answer has a bound.
const BY_TASK_MAX: usize = 200;

#[derive(Deserialize, JsonSchema)]
struct Verify {
    /// Only this task's chain.
    #[serde(default)]
    #[schemars(length(min = 1, max = 64))]
    task_id: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct Verified {
    /// Whether nothing is broken, in the trail and in the ledger.
    valid: bool,
    /// How many thoughts were walked.
    record_count: u64,
    /// How many of them are broken.
    broken_count: u64,
    /// The id of the first that is.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_broken_at: Option<String>,
    /// How many tasks have a chain; absent if one was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    task_count: Option<u64>,
    /// Each task's chain, the broken ones first, at most 200; absent if one was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    by_task: Option<Vec<VerifiedTask>>,
    /// The verdict on the whole ledger; absent if one task was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    ledger: Option<VerifiedLedger>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct VerifiedTask {
    task_id: String,
    valid: bool,
    record_count: u64,
    broken_count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_broken_at: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct VerifiedLedger {
    valid: bool,
    record_count: u64,
    broken_count: u64,
    /// The index of the first broken place.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_broken_at: Option<u64>,
    /// The root over all records, as recomputed.
    root: String,
}

async fn verify(store: Store, ask: Verify, context: Context) -> Result<Verified, ToolError> {
    let Some(task_id) = ask.task_id else { return verify_all(store, context.cancel).await };
    let asked = task_id.clone();
    let found = store.read(move |reader| reader.verify_task(&asked)).await?;
    let chain = found.ok_or_else(|| ToolError::coded(NOT_FOUND, &format!("there is no task {task_id}")))?;
    Ok(verified(&[task(chain)]))
}

async fn verify_all(store: Store, cancel: CancellationToken) -> Result<Verified, ToolError> {
    // The walk has a thread of its own and must be told when nobody waits for it any more.
    let found = store.read(move |reader| {
        let ledger = reader.verify(&mut |_, _| !cancel.is_cancelled())?;
        Ok((reader.verify_trail()?, ledger))
    });
    let (chains, ledger) = found.await?;
    let mut tasks: Vec<VerifiedTask> = chains.into_iter().map(task).collect();
    let mut verified = verified(&tasks);
    verified.valid &= ledger.valid;
    verified.task_count = Some(tasks.len() as u64);
    tasks.sort_by_key(|task| task.valid);
    tasks.truncate(BY_TASK_MAX);
    verified.by_task = Some(tasks);
    verified.ledger = Some(verdict(&ledger));
    Ok(verified)
}

fn verified(tasks: &[VerifiedTask]) -> Verified {
    let broken_count = tasks.iter().map(|task| task.broken_count).sum();
    Verified {
        valid: broken_count == 0,
        record_count: tasks.iter().map(|task| task.record_count).sum(),
        broken_count,
        first_broken_at: tasks.iter().find_map(|task| task.first_broken_at.clone()),
        task_count: None,
        by_task: None,
        ledger: None,
    }
}

fn task(TaskChain { task_id, chain }: TaskChain) -> VerifiedTask {
    VerifiedTask {
        task_id,
        valid: chain.broken_count == 0,
        record_count: chain.record_count,
        broken_count: chain.broken_count,
        first_broken_at: chain.first_broken_at,
    }
}

fn verdict(verdict: &Verdict) -> VerifiedLedger {
    let Verdict { valid, record_count, broken_count, first_broken_at, root, .. } = *verdict;
    VerifiedLedger { valid, record_count, broken_count, first_broken_at, root: root.to_string() }
}
