//! The proof store: sessions that are begun, filled with thoughts, and sealed under one root.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::domain::failure::Refusal;
use crate::domain::task::ask::{LINE, LINES};
use crate::domain::task::code::NOT_FOUND;
use crate::domain::thought::{code, no_session};
use crate::store::{NewSession, Reader, Seal, Session, Store};

use super::tasks::act;
use super::{Context, RegisterError, Registry, ToolConfig, ToolError};

/// Registers the three.
pub fn register(registry: &mut Registry, store: &Store) -> Result<(), RegisterError> {
    let starter = store.clone();
    registry.register("audit_session_start", START, move |new: New, context| {
        start(starter.clone(), new, context)
    })?;
    let sealer = store.clone();
    registry.register("merkle_finalize", FINALIZE, move |ask: Which, context| {
        finalize(sealer.clone(), ask, context)
    })?;
    let teller = store.clone();
    registry.register("merkle_root", ROOT, move |ask: Which, _| root(teller.clone(), ask))
}

const START: ToolConfig = ToolConfig {
    title: Cow::Borrowed("Start a session"),
    description: Cow::Borrowed(
        "Begins a session to which thoughts can be bound; merkle_finalize seals them under one root that can be proved offline.",
    ),
    mutates: true,
    refusals: &[code::SESSION_EXISTS, NOT_FOUND],
    ..ToolConfig::NONE
};

const FINALIZE: ToolConfig = ToolConfig {
    title: Cow::Borrowed("Seal a session"),
    description: Cow::Borrowed(
        "Seals a session: nothing can be added to it, and the root over its records is signed with the log.",
    ),
    mutates: true,
    refusals: &[code::SESSION_NOT_FOUND, code::ALREADY_FINALIZED, code::NO_RECORDS],
    ..ToolConfig::NONE
};

const ROOT: ToolConfig = ToolConfig {
    title: Cow::Borrowed("The root of a sealed session"),
    description: Cow::Borrowed(
        "Returns the root of a sealed session with the signed checkpoint that covers it.",
    ),
    refusals: &[code::SESSION_NOT_FOUND, code::NOT_FINALIZED],
    ..ToolConfig::NONE
};

#[derive(Deserialize, JsonSchema)]
struct New {
    /// What the session is for.
    #[schemars(length(min = 1, max = 2000), regex(pattern = LINES))]
    intent: String,
    /// The task it is about.
    #[serde(default)]
    #[schemars(length(min = 1, max = 64))]
    task_id: Option<String>,
    /// Its id; made if absent.
    #[serde(default)]
    #[schemars(length(min = 1, max = 64), regex(pattern = LINE))]
    session_id: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
struct Which {
    /// The session.
    #[schemars(length(min = 1, max = 64))]
    session_id: String,
}

#[derive(Serialize, JsonSchema)]
#[expect(clippy::struct_field_names, reason = "these are the names on the wire")]
struct Started {
    session_id: String,
    intent: String,
    task_id: Option<String>,
    started_at: String,
}

#[derive(Serialize, JsonSchema)]
struct Sealed {
    session_id: String,
    /// The RFC 6962 root over the session's records, in order: 64 hex digits.
    root: String,
    record_count: u64,
    finalized_at: String,
    /// The index of the ledger record that holds this root.
    index: u64,
    /// The signed checkpoint that covers it, as a note.
    checkpoint: String,
}

async fn start(store: Store, new: New, context: Context) -> Result<Started, ToolError> {
    let New { intent, task_id, session_id } = new;
    let session = store.start_session(act(&context), NewSession { intent, task_id, session_id }).await??;
    let Session { id, intent, task_id, started_at, .. } = session;
    Ok(Started { session_id: id, intent, task_id, started_at: started_at.to_string() })
}

async fn finalize(store: Store, ask: Which, context: Context) -> Result<Sealed, ToolError> {
    let session = store.finalize_session(act(&context), ask.session_id).await??;
    covered(store, session).await
}

async fn root(store: Store, ask: Which) -> Result<Sealed, ToolError> {
    let Which { session_id } = ask;
    let found =
        store.read(move |reader| reader.session(&session_id).map(|found| (session_id, found))).await?;
    match found {
        (_, Some(session)) => covered(store, session).await,
        (id, None) => Err(no_session(&id).into()),
    }
}

/// The seal, with the checkpoint that covers it; signed now, if it is not yet.
async fn covered(store: Store, session: Session) -> Result<Sealed, ToolError> {
    let Some(Seal { root, record_count, at, index }) = session.seal else {
        let message = format!("session {} is not sealed yet; seal it with merkle_finalize", session.id);
        return Err(Refusal::new(code::NOT_FINALIZED, message).into());
    };
    if store.status().signed <= index {
        store.checkpoint().await?;
    }
    let id = session.id.clone();
    let is_here = store.read(move |reader| reader.is_sealed_in_newest_log(&id)).await?;
    let signed = store.read(Reader::checkpoint).await?;
    if !is_here || signed.checkpoint.size <= index {
        let message =
            "the session was sealed in an earlier log that was given up; no checkpoint of this log covers it";
        return Err(ToolError::failed(message));
    }
    Ok(Sealed {
        session_id: session.id,
        root: root.to_string(),
        record_count,
        finalized_at: at.to_string(),
        index,
        checkpoint: signed.note,
    })
}
