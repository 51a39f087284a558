//! Listing what a server offers, through all its pages, and no further than is sensible.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jsonschema::error::ValidationErrorKind;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::domain::ledger::clip;
use crate::mcp::error::code;
use crate::mcp::headers::{Mirror, mirrors};
use crate::mcp::revision::Family;

use super::error::Cause;
use super::offer::Offered;
use super::session::{Request, Session};

/// Pages of one list. A server with more is broken, or hostile.
pub const PAGES_MAX: usize = 1000;

/// Tools of one server, all pages together.
pub const TOOLS_MAX: usize = 20_000;

/// What all pages of one list weigh together. Far more than any model can read.
pub const LIST_BYTES_MAX: usize = 64 << 20;

/// A tool as its server describes it.
#[derive(Clone, Debug)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// Its whole definition, raw: fields that colibri does not know survive.
    pub definition: Box<RawValue>,
}

impl PartialEq for Tool {
    fn eq(&self, other: &Self) -> bool {
        self.definition.get() == other.definition.get()
    }
}

/// What was listed, and what was left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tools {
    /// In the server's order.
    pub tools: Vec<Tool>,
    /// What is unusable, each with the reason.
    pub left_out: Vec<String>,
}

impl Tools {
    /// Tools that were listed in another run. One that could not be called is left out: somebody changed it.
    pub(super) fn remembered(definitions: Vec<Box<RawValue>>) -> Self {
        #[derive(Deserialize)]
        struct Callable {
            name: String,
            #[serde(rename = "inputSchema")]
            schema: Box<RawValue>,
        }
        let tool = |definition: Box<RawValue>| {
            let Callable { name, schema } = serde_json::from_str(definition.get()).ok()?;
            schema.get().starts_with('{').then_some(Tool { name, definition })
        };
        Self { tools: definitions.into_iter().filter_map(tool).collect(), left_out: Vec::new() }
    }

    /// The tool of that name.
    pub fn get(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| tool.name == name)
    }
}

/// All that a server offers, within one deadline.
pub async fn offer(session: &Session, deadline: Duration) -> Result<Offered, Cause> {
    let tools = match tools(session, deadline).await {
        Ok(tools) => tools,
        // It offers other things.
        Err(Cause::Answered { code: code::METHOD_NOT_FOUND, .. }) => Tools::default(),
        Err(cause) => return Err(cause),
    };
    Ok(Offered { tools, ..Offered::default() })
}

/// All tools of a server, within one deadline.
pub async fn tools(session: &Session, deadline: Duration) -> Result<Tools, Cause> {
    #[derive(Deserialize)]
    struct Page {
        tools: Vec<Box<RawValue>>,
        #[serde(rename = "nextCursor", default)]
        next_cursor: Option<String>,
    }
    let until = Instant::now() + deadline;
    let mut listed = Tools::default();
    // Before this family, the annotation meant nothing.
    let has_mirrors = session.revision().family == Family::Modern;
    let mut mirrored = HashMap::new();
    let (mut cursor, mut seen, mut names) = (None::<String>, HashSet::new(), HashSet::new());
    let mut bytes = 0;
    for _ in 0..PAGES_MAX {
        let params = cursor.as_ref().map(|cursor| serde_json::json!({ "cursor": cursor }).to_string());
        let left = until.saturating_duration_since(Instant::now());
        let request = Request { params: params.as_ref().map(String::as_bytes), ..Request::default() };
        let page = session.request("tools/list", request, left).await?;
        bytes += page.len();
        if bytes > LIST_BYTES_MAX {
            return Err(Cause::Protocol(format!("tools/list: more than {LIST_BYTES_MAX} bytes")));
        }
        let page: Page =
            serde_json::from_slice(&page).map_err(|error| Cause::Protocol(format!("tools/list: {error}")))?;
        for definition in page.tools {
            match usable(&definition, has_mirrors) {
                Ok((name, _)) if !names.insert(name.clone()) => {
                    listed.left_out.push(format!("{}: listed twice", clip(&name)));
                }
                Ok((name, mirrors)) => {
                    if !mirrors.is_empty() {
                        mirrored.insert(name.clone(), Arc::from(mirrors));
                    }
                    listed.tools.push(Tool { name, definition });
                }
                Err(reason) => listed.left_out.push(clip(&reason).to_owned()),
            }
        }
        if listed.tools.len() + listed.left_out.len() > TOOLS_MAX {
            return Err(Cause::Protocol(format!("tools/list: more than {TOOLS_MAX} tools")));
        }
        match page.next_cursor.filter(|cursor| !cursor.is_empty()) {
            None => {
                session.mirror(mirrored);
                return Ok(listed);
            }
            Some(next) if !seen.insert(next.clone()) => {
                return Err(Cause::Protocol("tools/list: the same cursor came twice".to_owned()));
            }
            next => cursor = next,
        }
    }
    Err(Cause::Protocol(format!("tools/list: more than {PAGES_MAX} pages")))
}

/// The name of a tool that can be called, and the arguments its server wants in headers; one bad tool
/// does not cost the others.
fn usable(definition: &RawValue, has_mirrors: bool) -> Result<(String, Vec<Mirror>), String> {
    #[derive(Deserialize)]
    struct Definition {
        name: String,
        #[serde(rename = "inputSchema")]
        input_schema: serde_json::Value,
    }
    let shown: String = definition.get().chars().take(80).collect();
    let parsed: Definition =
        serde_json::from_str(definition.get()).map_err(|error| format!("{shown}: {error}"))?;
    let Definition { name, input_schema } = parsed;
    if input_schema.get("type").is_none_or(|kind| kind != "object") {
        return Err(format!("{name}: its input schema is not an object's"));
    }
    match jsonschema::draft202012::new(&input_schema) {
        Ok(_) => {}
        // It refers to another document, which is never fetched: its server checks the arguments.
        Err(error) if matches!(error.kind(), ValidationErrorKind::Referencing(_)) => {}
        Err(error) => return Err(format!("{name}: its input schema: {error}")),
    }
    let mirrors = if has_mirrors { mirrors(&input_schema) } else { Ok(Vec::new()) };
    mirrors.map(|mirrors| (name.clone(), mirrors)).map_err(|reason| format!("{name}: {reason}"))
}
