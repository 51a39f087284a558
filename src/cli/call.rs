//! `colibri call`: any tool, by its name.

use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::time::Instant;
use uuid::Uuid;

use crate::app;
use crate::config::{Loaded, State};
use crate::domain::audit::CallId;
use crate::domain::life::Lasting;
use crate::domain::log::Logger;
use crate::domain::names::{Naming, split};
use crate::domain::provider::ProviderError;
use crate::domain::provider::code::{CRASHED, INIT_FAILED, TIMEOUT, UNAVAILABLE};
use crate::domain::text::{Called, TextOutcome, readable};
use crate::fleet::bridge::{Bridge, BridgeError, CallOptions, ConnectOptions};
use crate::fleet::error::Cause;
use crate::fleet::roster::Found;

use super::Session;
use super::fault::{Exit, Fault};
use super::invoke::{at_desk, at_desk_before};
use super::out;
use super::reach::{self, Extras};
use super::serve::block_on;
use super::tools::find;

pub(super) const EXAMPLES: &str = "\
Examples:
  colibri call server_ping
  colibri call server_health --json
  colibri call some_tool title=Hello limit=5        values are JSON where the schema wants it, else text
  colibri call some_tool --args '{\"limit\": 5}'  or just '{\"limit\": 5}'
  colibri call github__search query=birds           a tool of a configured server, which is started for this
  colibri call --server 'npx -y @modelcontextprotocol/server-everything' echo message=hi
  colibri call --server https://example.com/mcp search query=birds

A call of `server__tool` takes the path of a client's call and is on record: with the pins, deadlines and the sandbox of its
entry, in a process of its own. With --server the call goes straight to that server, once, and is not put on record.";

/// What a call is refused with whose server is not there, or no longer.
const NOT_THERE: [&str; 4] = [INIT_FAILED, UNAVAILABLE, TIMEOUT, CRASHED];

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The tool's name
    tool: String,
    /// Arguments, as KEY=VALUE, or all of them as one JSON object
    #[arg(value_name = "KEY=VALUE")]
    pairs: Vec<String>,
    /// Call a tool of this server instead: its configured name, its address, or its command in quotes
    #[arg(long, value_name = "SERVER")]
    server: Option<String>,
    #[command(flatten)]
    extras: Extras,
    /// All arguments, as one JSON object
    #[arg(long, value_name = "JSON", conflicts_with = "pairs")]
    args: Option<String>,
}

pub(super) fn run(session: &Session, arguments: Arguments) -> Result<(), Fault> {
    let Arguments { tool, mut pairs, server, extras, mut args } = arguments;
    if pairs.len() == 1 && pairs[0].trim_start().starts_with('{') {
        args = pairs.pop();
    }
    let args = args.map(json_object).transpose()?;
    if let Some(server) = server {
        return elsewhere(session, &server, &extras, &tool, args, &pairs);
    }
    // None of colibri's own is called so.
    if split(&tool).is_some() {
        let (loaded, _) = session.load()?;
        if let Some(server) = owner(&tool, &loaded)? {
            return behind(session, &loaded, server, &tool, args, &pairs);
        }
    }
    let answer = at_desk(session, "colibri call", async |desk| {
        let json = match args {
            Some(json) => json,
            None => object(find(&desk.calls, &tool).ok().as_ref().map(|tool| &tool.input_schema), &pairs)?,
        };
        desk.call(&tool, json).await
    })?;
    if session.json {
        return answer.tell(true, |_| Ok(()));
    }
    out::pretty(answer.inner())?;
    if answer.is_error() { Err(Fault::told(Exit::ToolError)) } else { Ok(()) }
}

/// The name of the server whose tool it is, by the tool's name. One that is there and cannot be used is a fault.
fn owner<'a>(tool: &str, loaded: &'a Loaded) -> Result<Option<&'a str>, Fault> {
    let Some((slug, _)) = split(tool).filter(|_| loaded.config.naming == Naming::Prefixed) else {
        return Ok(None);
    };
    let Some(server) = loaded.config.servers.iter().find(|server| server.slug == slug) else {
        return Ok(None);
    };
    match &server.state {
        State::Ready(_) if server.trusted => Ok(Some(&server.name)),
        State::Ready(_) => Err(reach::unusable(&server.name, &server.distrust().unwrap_or_default())),
        State::Disabled { reason, .. } => Err(reach::unusable(&server.name, reason)),
    }
}

/// A tool of a configured server, by the path of every call.
fn behind(
    session: &Session,
    loaded: &Loaded,
    server: &str,
    tool: &str,
    args: Option<String>,
    pairs: &[String],
) -> Result<(), Fault> {
    let (answer, lasting) = at_desk_before(loaded, server, "colibri call", async |desk| {
        let json = match (args, &desk.fleet) {
            (Some(json), _) => json,
            (None, Some(fleet)) if !pairs.is_empty() => {
                let schema = match fleet.find(tool).await {
                    Found::Tool(found) => serde_json::from_str(found.input_schema.get()).ok(),
                    // The call tells why.
                    _ => None,
                };
                object(schema.as_ref(), pairs)?
            }
            (None, _) => object(None, pairs)?,
        };
        let answer = desk.call(tool, json).await?;
        Ok((answer, desk.fleet.as_ref().and_then(|fleet| fleet.lasting(server))))
    })?;
    match answer.result() {
        _ if session.json => answer.print()?,
        Some(result) => out::lines(&readable(&result))?,
        None => out::pretty(answer.inner())?,
    }
    match answer.refusal() {
        Some(INIT_FAILED) if lasting == Some(Lasting::NotAuthorized) => {
            Err(Fault::told(Exit::AuthenticationNeeded))
        }
        Some(code) if NOT_THERE.contains(&code) => Err(Fault::told(Exit::Unreachable)),
        _ if answer.is_error() => Err(Fault::told(Exit::ToolError)),
        _ => Ok(()),
    }
}

/// A tool of another server, called once: a person's call must not repeat an effect.
fn elsewhere(
    session: &Session,
    server: &str,
    extras: &Extras,
    tool: &str,
    args: Option<String>,
    pairs: &[String],
) -> Result<(), Fault> {
    let (loaded, logger) = session.load()?;
    let config = &loaded.config;
    let reach = reach::named(server, &loaded, extras)?;
    let options = ConnectOptions {
        timeout: Some(config.mcp_timeout),
        transport: Some(reach.opener),
        logger: Logger::silent(),
        ..ConnectOptions::default()
    };
    let failed = |error: BridgeError| reach::failed("cannot call a tool of", &reach.name, &error);
    let connect = async |mut options: ConnectOptions| {
        let kept = reach.configured.as_ref().and_then(|server| app::families(config, &logger, server));
        let Some((memory, closing)) = kept else { return Bridge::connect(&reach.name, options).await };
        options.memory = Some(Arc::new(memory));
        let connected = Bridge::connect(&reach.name, options).await;
        closing.close().await;
        connected
    };
    let outcome = block_on(async {
        let bridge = connect(options).await.map_err(failed)?;
        let called = async {
            let json = match args {
                Some(json) => json,
                None => object(schema(&bridge, tool).await?.as_ref(), pairs)?,
            };
            once(&bridge, &reach.name, tool, &json).await.map_err(failed)
        };
        let called = called.await;
        bridge.close().await;
        called
    })??;
    if session.json {
        out::json(&Told::of(&outcome))?;
    } else {
        out::lines(&outcome.text)?;
    }
    match outcome.raw {
        _ if outcome.ok => Ok(()),
        Some(_) => Err(Fault::told(Exit::ToolError)),
        None => Err(Fault::told(Exit::Unreachable)),
    }
}

/// One attempt, as text has it. A deadline that passes is an outcome too: the tool may have run.
async fn once(bridge: &Bridge, server: &str, tool: &str, json: &str) -> Result<TextOutcome, BridgeError> {
    let arguments = serde_json::from_str(json).expect("it was read as JSON, or made here");
    let options = CallOptions { max_attempts: 1, ..CallOptions::default() };
    let begun = Instant::now();
    let answer = bridge.call_tool(tool, &arguments, options).await;
    let called = Called {
        server: server.to_owned(),
        tool: tool.to_owned(),
        latency: begun.elapsed(),
        bytes_in: json.len(),
        correlation_id: CallId(Uuid::now_v7()),
    };
    match answer {
        Ok(result) => Ok(TextOutcome::answered(called, &String::from_utf8_lossy(&result))),
        Err(BridgeError { source: Cause::TimedOut(limit), .. }) => {
            Ok(TextOutcome::failed(called, &ProviderError::TimedOut { limit, sent: true }))
        }
        Err(error) => Err(error),
    }
}

/// The outcome for machines.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Told<'a> {
    ok: bool,
    text: &'a str,
    server: &'a str,
    tool: &'a str,
    latency_ms: u128,
    bytes_in: usize,
    bytes_out: usize,
    correlation_id: String,
    /// As the server wrote it: a number that no machine holds stays what it is.
    raw: Option<&'a RawValue>,
}

impl<'a> Told<'a> {
    fn of(outcome: &'a TextOutcome) -> Self {
        Self {
            ok: outcome.ok,
            text: &outcome.text,
            server: &outcome.server,
            tool: &outcome.tool,
            latency_ms: outcome.latency.as_millis(),
            bytes_in: outcome.bytes_in,
            bytes_out: outcome.bytes_out,
            correlation_id: outcome.correlation_id.to_string(),
            raw: outcome.raw.as_deref().and_then(|raw| serde_json::from_str(raw).ok()),
        }
    }
}

/// The input schema of a tool, so that `limit=5` becomes a number where one is wanted.
async fn schema(bridge: &Bridge, tool: &str) -> Result<Option<Value>, Fault> {
    let listed = bridge
        .tools()
        .await
        .map_err(|error| reach::failed("cannot list the tools of", bridge.url(), &error))?;
    let definition = listed.get(tool);
    let definition = definition.and_then(|tool| serde_json::from_str::<Value>(tool.definition.get()).ok());
    Ok(definition.map(|mut definition| definition["inputSchema"].take()))
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
fn object(schema: Option<&Value>, pairs: &[String]) -> Result<String, Fault> {
    let mut object = Map::new();
    for pair in pairs {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(Fault::new(Exit::Usage, format!("`{}` is not KEY=VALUE", out::visible(pair))));
        };
        let kind = schema.map_or(&Value::Null, |schema| &schema["properties"][key]["type"]);
        let parsed = match kind {
            Value::String(kind) if kind == "string" => None,
            // Text that may be absent: only `null` is not text.
            Value::Array(kinds) if kinds.contains(&"string".into()) => {
                (value == "null").then_some(Value::Null)
            }
            _ => serde_json::from_str(value).ok(),
        };
        if object.insert(key.to_owned(), parsed.unwrap_or_else(|| value.into())).is_some() {
            return Err(Fault::new(Exit::Usage, format!("`{}` is given twice", out::visible(key))));
        }
    }
    Ok(Value::Object(object).to_string())
}
