//! A call path for the face's own tests: each tool misbehaves in its own way.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::call::{Call, Caller, Reply};
use crate::domain::audit::CallId;
use crate::domain::clock::{Moment, Timestamp};
use crate::domain::tool::{Annotations, Definition, Listed};

use super::CallPath;

/// See [`Double::run`].
#[derive(Clone)]
pub(super) struct Double {
    /// Each permit lets one `gate` through.
    pub(super) gate: Arc<Semaphore>,
    /// A new number says that the list has changed.
    pub(super) changes: watch::Sender<u64>,
}

impl Double {
    pub(super) fn new() -> Self {
        Self { gate: Arc::new(Semaphore::new(0)), changes: watch::Sender::new(0) }
    }
}

impl CallPath for Double {
    fn listed(&self) -> Arc<[Listed]> {
        ["echo", "gate"].map(|name| Listed::Native(Arc::new(definition(name)))).into()
    }

    fn list_changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn tell_servers(&self, _: &'static str) {}

    fn log_level(&self, _: &'static str) {}

    fn arrival(
        &self,
        tool: &str,
        arguments: Option<Bytes>,
        caller: Caller,
        cancel: CancellationToken,
    ) -> Call {
        let arrived = Moment { wall: Timestamp(0), since_boot: Duration::ZERO };
        Call::new(CallId(Uuid::from_u128(7)), tool, arguments, caller, arrived, cancel)
    }

    async fn run(&self, call: Call) -> Reply {
        match &*call.tool {
            "echo" => ok(call.arguments.as_deref().unwrap_or(b"{}")),
            "who" => {
                let who = &call.caller.principal;
                ok(format!(r#""{} {} {}""#, who.client, who.user, call.caller.revision).as_bytes())
            }
            "fail" => Reply::Envelope { body: Bytes::from_static(b"{\"ok\":false}"), is_error: true },
            "gate" => tokio::select! {
                permit = self.gate.acquire() => {
                    permit.expect("the gate stays").forget();
                    ok(b"{}")
                }
                () = call.cancel.cancelled() => Reply::Cancelled,
            },
            "stubborn" => pending().await,
            "panic" => panic!("out of ideas"),
            other => Reply::UnknownTool { message: format!("unknown tool: {other}") },
        }
    }
}

fn ok(data: &[u8]) -> Reply {
    let body = [br#"{"ok":true,"data":"#, data, b"}"].concat().into();
    Reply::Envelope { body, is_error: false }
}

fn definition(name: &str) -> Definition {
    Definition {
        name: name.into(),
        title: String::new(),
        description: String::new(),
        input_schema: json!({}),
        output_schema: json!({}),
        annotations: Annotations { read_only: true, destructive: false, idempotent: true, open_world: false },
    }
}
