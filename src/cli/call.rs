//! `colibri call`: any tool, by its name.

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::domain::tool::Definition;

use super::Session;
use super::fault::{Exit, Fault};
use super::invoke::at_desk;
use super::out;
use super::tools::find;

pub(super) const EXAMPLES: &str = "\
Examples:
  colibri call server_ping
  colibri call server_health --json
  colibri call some_tool title=Hello limit=5        values are JSON where the schema wants it, else text
  colibri call some_tool --args '{\"limit\": 5}'";

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
    let Arguments { tool, pairs, args } = arguments;
    let args = args.map(json_object).transpose()?;
    let answer = at_desk(session, "colibri call", async |desk| {
        let json = match args {
            Some(json) => json,
            None => object(find(&desk.calls, &tool).ok().as_ref(), &pairs)?,
        };
        desk.call(&tool, json).await
    })?;
    if session.json {
        return answer.tell(true, |_| Ok(()));
    }
    out::pretty(answer.inner())?;
    if answer.is_error() { Err(Fault::told(Exit::ToolError)) } else { Ok(()) }
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
        let kind = tool.map_or(&Value::Null, |tool| &tool.input_schema["properties"][key]["type"]);
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
