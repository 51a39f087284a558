//! `colibri call`: a person's call, through the same five stages as an agent's.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::app;
use crate::call::{Caller, Reply};
use crate::config::os_user;
use crate::domain::audit::Principal;
use crate::domain::tool::Definition;

use super::Session;
use super::fault::{Exit, Fault};
use super::out;
use super::serve::runtime;
use super::tools::find;

pub(super) const EXAMPLES: &str = "\
Examples:
  colibri call server_ping
  colibri call server_health --json
  colibri call some_tool title=Hello limit=5        values are JSON where the schema wants it, else text
  colibri call some_tool --args '{\"limit\": 5}'";

/// The protocol revision on record for a call that used none.
const REVISION: &str = "cli";

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The tool's name
    tool: String,
    /// Arguments, as KEY=VALUE
    #[arg(value_name = "KEY=VALUE")]
    pairs: Vec<String>,
    /// All arguments, as one JSON object
    #[arg(long, value_name = "JSON", conflicts_with = "pairs")]
    args: Option<String>,
}

pub(super) fn run(session: &Session, arguments: Arguments) -> Result<(), Fault> {
    let args = arguments.args.map(json_object).transpose()?;
    let (loaded, logger) = session.load()?;
    let reply = runtime()?.block_on(async {
        let (calls, closing) = app::calls(&loaded.config, &logger).await?;
        let json = match args {
            Some(json) => json,
            None => object(find(&calls, &arguments.tool).ok().as_ref(), &arguments.pairs)?,
        };
        let principal = Arc::new(Principal { client: "colibri call".to_owned(), user: os_user() });
        let caller = Caller { principal, revision: REVISION };
        let call = calls.arrival(&arguments.tool, Some(Bytes::from(json)), caller, CancellationToken::new());
        let reply = calls.run(call).await;
        closing.close().await;
        Ok::<_, Fault>(reply)
    })?;
    match reply {
        Reply::Envelope { body, is_error } => {
            print(&body, session.json)?;
            if is_error { Err(Fault::told(Exit::ToolError)) } else { Ok(()) }
        }
        Reply::UnknownTool { message } => Err(Fault::new(Exit::Usage, out::visible(&message))),
        Reply::Cancelled => Err(Fault::new(Exit::Unexpected, "the call was cancelled")),
    }
}

/// The envelope for machines; for people what is in it, indented.
fn print(body: &[u8], json: bool) -> Result<(), Fault> {
    if json {
        return out::bytes(&[body, b"\n"].concat());
    }
    let envelope: Value = serde_json::from_slice(body).unwrap_or_default();
    let inner = envelope.get("data").or_else(|| envelope.get("error")).unwrap_or(&envelope);
    out::pretty(inner)
}

/// Whether it is JSON at all is between the typist and the shell's quotes; what is in it, between the
/// call and the tool's schema.
fn json_object(text: String) -> Result<String, Fault> {
    let fault = |what: String| Fault::new(Exit::Usage, format!("--args is not a JSON object: {what}"));
    match serde_json::from_str::<&RawValue>(&text) {
        Ok(value) if value.get().starts_with('{') => Ok(text),
        Ok(value) => Err(fault(format!("it is `{}`", out::head(value.get(), 60)))),
        Err(error) => Err(fault(error.to_string())),
    }
}

/// `k=v` pairs as an object. A value is text where the schema says so; elsewhere it is JSON if it
/// reads as JSON.
fn object(tool: Option<&Definition>, pairs: &[String]) -> Result<String, Fault> {
    let mut object = Map::new();
    for pair in pairs {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(Fault::new(Exit::Usage, format!("`{}` is not KEY=VALUE", out::visible(pair))));
        };
        let is_text = tool.is_some_and(|tool| tool.input_schema["properties"][key]["type"] == "string");
        let parsed = if is_text { None } else { serde_json::from_str(value).ok() };
        if object.insert(key.to_owned(), parsed.unwrap_or_else(|| value.into())).is_some() {
            return Err(Fault::new(Exit::Usage, format!("`{}` is given twice", out::visible(key))));
        }
    }
    Ok(Value::Object(object).to_string())
}
