//! Tools that do as they are told.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use colibri::app::Server;
use colibri::domain::failure::Refusal;
use colibri::tools::{Context, ToolConfig, ToolError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::Semaphore;

#[derive(Deserialize, JsonSchema)]
pub(super) struct Echo {
    pub(super) text: String,
}

#[derive(Default, Serialize, JsonSchema)]
pub(super) struct Said {
    pub(super) text: String,
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct Nothing {}

/// How to misbehave.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Misbehave {
    how: How,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum How {
    /// An error with a cause.
    Fail,
    /// A domain failure of a pattern A tool.
    FailWithCode,
    /// Details that are no object.
    FailWithText,
    /// Pattern B.
    Refuse,
    /// A panic before the first `await`, in the function that makes the future.
    PanicAtOnce,
    /// A panic after the first `await`.
    PanicLater,
    /// A panic whose payload is no text.
    PanicWithoutWords,
    /// Nothing of the kind.
    Behave,
}

pub(super) async fn echo(arguments: Echo, _: Context) -> Result<Said, ToolError> {
    Ok(Said { text: arguments.text })
}

#[derive(Debug, thiserror::Error)]
#[error("cannot read the page")]
struct Unread(#[source] std::io::Error);

/// Not an `async fn`, so that it can panic before there is a future.
pub(super) fn misbehave(
    Misbehave { how }: Misbehave,
    _: Context,
) -> impl Future<Output = Result<Said, ToolError>> + Send {
    assert!(!matches!(how, How::PanicAtOnce), "out of ideas at once");
    async move {
        tokio::task::yield_now().await;
        match how {
            How::Fail => Err(Unread(std::io::Error::other("the dog ate it")).into()),
            How::FailWithCode => Err(ToolError::coded("ERR_NOT_FOUND", "no such thought")),
            How::FailWithText => match ToolError::failed("odd") {
                ToolError::Failed { message, backtrace, .. } => {
                    Err(ToolError::Failed { message, details: Some(Value::from("only text")), backtrace })
                }
                refused @ ToolError::Refused(_) => Err(refused),
            },
            How::Refuse => {
                Err(Refusal::new("ERR_WRITEBACK_REQUIRED", "write first").field("missing_fields", "a").into())
            }
            How::PanicLater => panic!("out of ideas after {} await", 1),
            How::PanicWithoutWords => std::panic::panic_any(7_u8),
            How::PanicAtOnce | How::Behave => Ok(Said { text: format!("{how:?}") }),
        }
    }
}

/// Registers `echo`, `misbehave` and `write_note`, which changes something.
pub(super) fn register(server: &mut Server) {
    server.register("echo", ToolConfig::default(), echo).unwrap();
    let refuses = ToolConfig { refusals: &["ERR_WRITEBACK_REQUIRED"], ..ToolConfig::default() };
    server.register("misbehave", refuses, misbehave).unwrap();
    let writes = ToolConfig {
        title: "Write".into(),
        description: "Writes a note.".into(),
        mutates: true,
        destructive: true,
        ..ToolConfig::default()
    };
    server.register("write_note", writes, echo).unwrap();
}

/// Lets calls of its tool through one by one, and counts how many are inside.
#[derive(Clone)]
pub(super) struct Gate {
    pub(super) permits: Arc<Semaphore>,
    inside: Arc<AtomicUsize>,
}

impl Gate {
    pub(super) fn register(server: &mut Server) -> Self {
        let gate = Self { permits: Arc::new(Semaphore::new(0)), inside: Arc::default() };
        let kept = gate.clone();
        let tool = move |_: Nothing, _: Context| {
            let gate = gate.clone();
            async move {
                let inside = gate.inside.fetch_add(1, Ordering::SeqCst);
                let _leave = Leave(&gate.inside);
                assert_eq!(inside, 0, "one at a time");
                gate.permits.acquire().await?.forget();
                Ok(Said::default())
            }
        };
        server.register("gate", ToolConfig::default(), tool).unwrap();
        kept
    }
}

struct Leave<'a>(&'a AtomicUsize);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
