//! The schemas of servers' tools, compiled and held against what is sent and answered.
//!
//! Owns: the compiled ones, and where that work is done. A server wrote both the schema and the answer: what may take
//! long is done on a thread where it holds up nobody, and a panic of the library fails the check and nothing else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::fleet::catalog::Proxied;

use super::contain::{Panicked, contain_now};
use super::validate::{Arguments, Wrong};

/// Compiled schemas that are kept.
const SCHEMAS_MAX: usize = 20_000;

/// By tool: made with its first call, and again when its definition has changed.
#[derive(Default)]
pub(super) struct Schemas(Mutex<HashMap<Arc<str>, Compiled>>);

/// The schemas of a tool, and the definition they were compiled from.
#[derive(Clone)]
pub(super) struct Compiled {
    of: Arc<Proxied>,
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
    /// Nobody waits for another's schema: what two make at once is made twice.
    pub(super) async fn of(&self, tool: &Arc<Proxied>) -> Compiled {
        if let Some(known) = self.known(tool) {
            return known;
        }
        let made = {
            let tool = Arc::clone(tool);
            tokio::task::spawn_blocking(move || Compiled {
                input: Schema::of(&tool.input_schema),
                output: tool.output_schema.as_deref().map_or(Schema::Absent, Schema::of),
                of: tool,
            })
        };
        // It fails only at the end of everything, when nobody is answered any more.
        let absent = || Compiled { of: Arc::clone(tool), input: Schema::Absent, output: Schema::Absent };
        let made = made.await.unwrap_or_else(|_| absent());
        let mut kept = self.0.lock().expect("nothing panics while it holds the schemas");
        // Tools that are gone leave theirs behind; starting anew costs a compilation each.
        if kept.len() >= SCHEMAS_MAX {
            kept.clear();
        }
        kept.insert(Arc::clone(&tool.name), made.clone());
        made
    }

    fn known(&self, tool: &Arc<Proxied>) -> Option<Compiled> {
        let kept = self.0.lock().expect("nothing panics while it holds the schemas");
        kept.get(&tool.name).filter(|compiled| Arc::ptr_eq(&compiled.of, tool)).cloned()
    }
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
