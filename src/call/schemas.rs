//! The schemas of servers' tools, compiled and held against what is sent and answered.
//!
//! Owns: the compiled ones, and where that work is done. A server wrote both the schema and the answer: what may take
//! long is done on a thread where it holds up nobody, and a panic of the library fails the check and nothing else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;

use tokio::sync::OnceCell;

use crate::domain::contain::{Panicked, contain_now};
use crate::fleet::aside::aside;
use crate::fleet::catalog::Proxied;

use super::validate::{Arguments, Wrong};

/// Compiled schemas that are kept.
const SCHEMAS_MAX: usize = 20_000;

/// By tool: made with its first call, and again when its definition has changed.
#[derive(Default)]
pub(super) struct Schemas(Mutex<HashMap<Arc<str>, Kept>>);

/// The definition that they are compiled from, and the schemas.
struct Kept {
    of: Arc<Proxied>,
    compiled: Arc<OnceCell<Compiled>>,
}

/// The schemas of a tool.
#[derive(Clone)]
pub(super) struct Compiled {
    pub(super) input: Schema,
    pub(super) output: Schema,
}

#[derive(Clone)]
pub(super) enum Schema {
    /// The tool has none.
    Absent,
    Ready(Arc<Arguments>),
    /// It refers to what is not here, or asks for too much; and the words for it.
    Unusable(Arc<str>),
}

impl Schemas {
    /// Compiled once: who asks meanwhile waits for that, and nobody for another tool's.
    pub(super) async fn of(&self, tool: &Arc<Proxied>) -> Compiled {
        self.place(tool).get_or_init(|| compile(Arc::clone(tool))).await.clone()
    }

    fn place(&self, tool: &Arc<Proxied>) -> Arc<OnceCell<Compiled>> {
        let mut kept = self.0.lock().expect("nothing panics while it holds the schemas");
        if let Some(known) = kept.get(&tool.name).filter(|known| Arc::ptr_eq(&known.of, tool)) {
            return Arc::clone(&known.compiled);
        }
        // Tools that are gone leave theirs behind; starting anew costs a compilation each.
        if kept.len() >= SCHEMAS_MAX {
            kept.clear();
        }
        let compiled = Arc::default();
        kept.insert(Arc::clone(&tool.name), Kept { of: Arc::clone(tool), compiled: Arc::clone(&compiled) });
        compiled
    }
}

async fn compile(tool: Arc<Proxied>) -> Compiled {
    let compiled = aside(move || Compiled {
        input: Schema::of(&tool.input_schema),
        output: tool.output_schema.as_deref().map_or(Schema::Absent, Schema::of),
    });
    compiled.await.unwrap_or_else(|panicked| {
        let unusable = Schema::Unusable(panicked.message.into());
        Compiled { input: unusable.clone(), output: unusable }
    })
}

impl Schema {
    fn of(raw: &RawValue) -> Self {
        let compiled = contain_now(|| {
            let schema: Value = serde_json::from_str(raw.get()).map_err(|error| error.to_string())?;
            Arguments::compile(&schema)
        });
        match compiled.unwrap_or_else(|panicked| Err(panicked.message)) {
            Ok(arguments) => Self::Ready(Arc::new(arguments)),
            Err(reason) => Self::Unusable(reason.into()),
        }
    }
}

/// Holds raw JSON against a schema.
pub(super) async fn check(schema: &Arc<Arguments>, raw: Bytes) -> Result<(), Wrong> {
    let checked = if schema.is_cheap(&raw) {
        contain_now(|| schema.check(&raw).map(drop))
    } else {
        let schema = Arc::clone(schema);
        let checked = tokio::task::spawn_blocking(move || contain_now(|| schema.check(&raw).map(drop)));
        checked.await.unwrap_or_else(|error| Err(Panicked { message: error.to_string(), backtrace: None }))
    };
    checked.unwrap_or_else(|panicked| Err(Wrong::Unchecked(panicked.message)))
}
