//! A person's calls, through the same five stages as an agent's.
//!
//! Owns: the one way in which a command calls a tool, and how its answer is told.
//! Must not know: what any tool takes or gives.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::app;
use crate::call::{Call, Caller, Calls, Reply};
use crate::config::{Loaded, os_user};
use crate::domain::audit::Principal;
use crate::domain::face::SessionId;
use crate::domain::log::Level;
use crate::fleet::roster::Fleet;

use super::Session;
use super::fault::{Exit, Fault};
use super::out;
use super::serve::block_on;

/// How long a server that was started for one call may take to end.
const END_WITHIN: Duration = Duration::from_secs(10);

/// The protocol revision on record for a call that used none.
const REVISION: &str = "cli";

/// The call path, open for as long as one command needs it.
pub(super) struct Desk {
    pub(super) calls: Calls,
    /// The server that was started for this, if one was.
    pub(super) fleet: Option<Fleet>,
    caller: Caller,
}

/// What a tool answered.
pub(super) struct Answer {
    body: Bytes,
    envelope: Value,
    is_error: bool,
    source: Source,
}

/// Whose words an answer is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// colibri's own: an envelope.
    Colibri,
    /// The result that a server behind colibri gave, as it stands there.
    Result,
    /// The JSON-RPC error that it answered instead.
    Error,
}

/// Opens the call path, lets the command make its calls, and closes it whatever they came to.
/// `client` is the name on record, such as `colibri task`.
pub(super) fn at_desk<T>(
    session: &Session,
    client: &str,
    work: impl AsyncFnOnce(&Desk) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let (loaded, logger) = session.load()?;
    block_on(async {
        let (calls, closing) = app::calls(&loaded.config, &logger).await?;
        let desk = Desk { calls, fleet: None, caller: caller(client) };
        let done = work(&desk).await;
        closing.close().await;
        done
    })?
}

/// The same with a server of the configuration behind it, which is started for this and ends with it.
pub(super) fn at_desk_before<T>(
    loaded: &Loaded,
    server: &str,
    client: &str,
    work: impl AsyncFnOnce(&Desk) -> Result<T, Fault>,
) -> Result<T, Fault> {
    // That it starts and ends is no news to who asked for it; what is wrong with it is.
    let level = if loaded.config.log == Level::Info { Level::Warn } else { loaded.config.log };
    let logger = app::stderr_logger(level);
    block_on(async {
        let (calls, fleet, closing) = app::calls_of(loaded, server, &logger).await?;
        let attached = fleet.as_ref().map(|fleet| fleet.attach(SessionId::default()));
        let desk = Desk { calls, fleet, caller: caller(client) };
        let done = work(&desk).await;
        drop(attached);
        if let Some(fleet) = &desk.fleet {
            // What does not end in time ends with this process.
            let _ = tokio::time::timeout(END_WITHIN, fleet.close()).await;
        }
        closing.close().await;
        done
    })?
}

fn caller(client: &str) -> Caller {
    let principal = Arc::new(Principal { client: client.to_owned(), user: os_user() });
    Caller { principal, revision: REVISION, session: SessionId::default() }
}

/// One call, told as its envelope to machines and by `show` to people.
pub(super) fn invoke(
    session: &Session,
    client: &str,
    tool: &str,
    arguments: &Value,
    show: impl FnOnce(&Value) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let answer = at_desk(session, client, async |desk| desk.call(tool, arguments.to_string()).await)?;
    answer.tell(session.json, show)
}

impl Desk {
    /// Calls a tool with arguments in JSON.
    pub(super) async fn call(&self, tool: &str, arguments: String) -> Result<Answer, Fault> {
        self.run(self.arrival(tool, arguments)).await
    }

    /// The same for a tool that only commands call.
    pub(super) async fn call_hidden(&self, tool: &str, arguments: String) -> Result<Answer, Fault> {
        self.run(self.arrival(tool, arguments).of_method()).await
    }

    fn arrival(&self, tool: &str, arguments: String) -> Call {
        self.calls.arrival(tool, Some(Bytes::from(arguments)), self.caller.clone(), CancellationToken::new())
    }

    async fn run(&self, call: Call) -> Result<Answer, Fault> {
        match self.calls.run(call).await {
            Reply::Envelope { body, is_error } => {
                let envelope = serde_json::from_slice(&body).unwrap_or_default();
                Ok(Answer { body, envelope, is_error, source: Source::Colibri })
            }
            Reply::Result { body, .. } => {
                let envelope: Value = serde_json::from_slice(&body).unwrap_or_default();
                let is_error = envelope["isError"] == true;
                Ok(Answer { body, envelope, is_error, source: Source::Result })
            }
            Reply::Error { raw: body } => {
                let envelope = serde_json::from_slice(&body).unwrap_or_default();
                Ok(Answer { body, envelope, is_error: true, source: Source::Error })
            }
            Reply::UnknownTool { message } => Err(Fault::new(Exit::Usage, out::visible(&message))),
            Reply::Cancelled => Err(Fault::new(Exit::Unexpected, "the call was cancelled")),
        }
    }
}

impl Answer {
    /// The envelope to machines. To people what `show` makes of the data, or why there is none.
    pub(super) fn tell(
        &self,
        json: bool,
        show: impl FnOnce(&Value) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        if json {
            self.print()?;
            return if self.is_error { Err(Fault::told(Exit::ToolError)) } else { Ok(()) };
        }
        match self.error() {
            None => show(&self.envelope["data"]),
            Some(error) => Err(Fault::new(Exit::ToolError, in_words(error))),
        }
    }

    /// Prints it whole, for machines.
    pub(super) fn print(&self) -> Result<(), Fault> {
        out::line(&out::one_line(&String::from_utf8_lossy(&self.body)))
    }

    /// What a server behind colibri gave, raw.
    pub(super) fn result(&self) -> Option<std::borrow::Cow<'_, str>> {
        (self.source == Source::Result).then(|| String::from_utf8_lossy(&self.body))
    }

    /// What is inside the envelope, whole, as `colibri call` shows it. A server's error has no envelope around it.
    pub(super) fn inner(&self) -> &Value {
        if self.source == Source::Error {
            return &self.envelope;
        }
        self.envelope.get("data").or_else(|| self.envelope.get("error")).unwrap_or(&self.envelope)
    }

    /// Whether the tool failed or refused.
    pub(super) fn is_error(&self) -> bool {
        self.is_error
    }

    /// The code it refused with, if it did.
    pub(super) fn refusal(&self) -> Option<&str> {
        self.error().and_then(|error| error["code"].as_str())
    }

    /// The error of either pattern; that of a server is all there is.
    fn error(&self) -> Option<&Value> {
        if self.source == Source::Error {
            return Some(&self.envelope);
        }
        self.is_error.then(|| self.envelope.get("error").unwrap_or_else(|| &self.envelope["data"]["error"]))
    }
}

/// `CODE: message`, and what is wrong with the arguments if that is the reason.
fn in_words(error: &Value) -> String {
    let text = |value: &Value| out::visible(value.as_str().unwrap_or_default());
    let mut words = text(&error["message"]);
    // A failure of a thought tool has its code in front already.
    if !words.starts_with("ERR_") {
        words = format!("{}: {words}", text(&error["code"]));
    }
    let issues = error["details"]["issues"].as_array().map(Vec::as_slice).unwrap_or_default();
    if issues.len() > 1 {
        for issue in issues {
            words = format!("{words}\n  {}: {}", text(&issue["path"]), text(&issue["message"]));
        }
    }
    words
}
