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
use crate::domain::offer::{Changes, Entries, Entry, Kind};
use crate::domain::tool::{Annotations, Definition, Listed};
use crate::mcp::lists::ToolList;

use super::{CallPath, Menu};

/// See [`Double::run`].
#[derive(Clone)]
pub(super) struct Double {
    /// Each permit lets one `gate` through.
    pub(super) gate: Arc<Semaphore>,
    /// New numbers say which lists have changed.
    pub(super) changes: watch::Sender<Changes>,
}

impl Double {
    pub(super) fn new() -> Self {
        Self { gate: Arc::new(Semaphore::new(0)), changes: watch::Sender::default() }
    }
}

impl Menu for Double {
    fn listed(&self) -> Arc<ToolList> {
        let tools = ["echo", "gate"].map(|name| Listed::Native(Arc::new(definition(name))));
        Arc::new(ToolList::new(tools.into()))
    }

    fn entries(&self, kind: Kind) -> Entries {
        let (key, definition) = match kind {
            Kind::Resources => ("file:///a", r#"{ "uri":"file:///a", "name":"a", "x":1.50 }"#),
            Kind::Templates => ("file:///{+path}", r#"{ "uriTemplate":"file:///{+path}", "name":"a" }"#),
            Kind::Prompts => ("s__p", r#"{ "name":"s__p" }"#),
        };
        let definition = Bytes::from_static(definition.as_bytes());
        [Arc::new(Entry { key: key.into(), server: "s".into(), own: key.into(), definition })].into()
    }

    fn instructions(&self) -> Option<Arc<str>> {
        Some("#### MCP Server: s".into())
    }
}

impl CallPath for Double {
    fn list_changes(&self) -> watch::Receiver<Changes> {
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
