//! Listing what a server offers, through all its pages, and no further than is sensible.
//!
//! Owns: the pages, their bounds, and what of a list is usable. A bad entry does not cost the others, and a list
//! that is not the tools' does not cost the server.
//! Must not know: names that clients see, other servers.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jsonschema::error::ValidationErrorKind;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::domain::contain::contain_now;
use crate::domain::effort::Effort;
use crate::domain::instructions::SERVER_BYTES_MAX;
use crate::domain::ledger::clip;
use crate::domain::pin::INSTRUCTIONS;
use crate::mcp::error::code;
use crate::mcp::headers::{Mirror, mirrors};
use crate::mcp::raw::Members;
use crate::mcp::revision::Family;

use super::aside::aside;
use super::error::Cause;
use super::offer::{Abilities, Item, Offered};
use super::session::{Request, Session};

/// Pages of one list. A server with more is broken, or hostile.
pub const PAGES_MAX: usize = 1000;

/// Entries of one list, all pages together.
pub const TOOLS_MAX: usize = 20_000;

/// The name of a tool. Far longer than any that a model is shown.
const NAME_BYTES_MAX: usize = 1024;

/// What all pages of one list weigh together. Far more than any model can read.
pub const LIST_BYTES_MAX: usize = 64 << 20;

/// A page that is read at one go, where it came in.
const HERE_BYTES_MAX: usize = 64 << 10;

/// The longest URI or template of a resource that is listed, as for colibri's own.
pub const URI_BYTES_MAX: usize = 16_384;

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
    let until = Instant::now() + deadline;
    let tools = match tools(session, deadline).await {
        Ok(tools) => tools,
        // It offers other things.
        Err(Cause::Answered { code: code::METHOD_NOT_FOUND, .. }) => Tools::default(),
        Err(cause) => return Err(cause),
    };
    let (abilities, instructions) = introduced(session.introduction());
    let mut offered = Offered { tools, instructions, abilities, ..Offered::default() };
    // A list that hangs must not cost the server the tools that it has listed.
    let until = Instant::now() + until.saturating_duration_since(Instant::now()) / 2;
    let (resources, templates, prompts) = tokio::try_join!(
        items(session, &RESOURCES, abilities.resources, until),
        items(session, &TEMPLATES, abilities.resources, until),
        items(session, &PROMPTS, abilities.prompts, until),
    )?;
    offered.left_out = [resources.1, templates.1, prompts.1].concat();
    (offered.resources, offered.templates, offered.prompts) = (resources.0, templates.0, prompts.0);
    Ok(offered)
}

/// A list of things other than tools.
struct List {
    method: &'static str,
    /// The member of a page that has its entries.
    member: &'static str,
    /// The member of an entry by which its server knows it.
    key: &'static str,
    key_bytes_max: usize,
}

const RESOURCES: List =
    List { method: "resources/list", member: "resources", key: "uri", key_bytes_max: URI_BYTES_MAX };
const TEMPLATES: List = List {
    method: "resources/templates/list",
    member: "resourceTemplates",
    key: "uriTemplate",
    key_bytes_max: URI_BYTES_MAX,
};
// A name is hashed where it is too long for clients, so this is only against excess.
const PROMPTS: List = List { method: "prompts/list", member: "prompts", key: "name", key_bytes_max: 4096 };

/// The entries of a list, and what of it is unusable; fails only with the connection.
async fn items(
    session: &Session,
    list: &'static List,
    is_offered: bool,
    until: Instant,
) -> Result<(Vec<Item>, Vec<String>), Cause> {
    let (mut items, mut left_out, mut keys) = (Vec::new(), Vec::new(), HashSet::new());
    if !is_offered {
        return Ok((items, left_out));
    }
    let listed = pages(session, list.method, list.member, until, |definition| list.key_of(definition)).await;
    match listed {
        Ok(listed) => {
            for (key, definition) in listed.entries {
                match key {
                    Ok(key) if !keys.insert(key.clone()) => {
                        left_out.push(format!("{}: {}: listed twice", list.method, clip(&key)));
                    }
                    Ok(key) => items.push(Item { key, definition }),
                    Err(reason) => left_out.push(format!("{}: {}", list.method, clip(&reason))),
                }
            }
            Ok((items, left_out))
        }
        // Many have resources and no templates.
        Err(Cause::Answered { code: code::METHOD_NOT_FOUND, .. }) => Ok(Default::default()),
        Err(cause @ (Cause::Answered { .. } | Cause::Protocol(_) | Cause::TimedOut(_))) => {
            Ok((Vec::new(), vec![format!("{}: {}", list.method, clip(&cause.to_string()))]))
        }
        Err(cause) => Err(cause),
    }
}

impl List {
    /// By what its server knows an entry. One without a name would cost a strict client the whole list.
    fn key_of(&self, definition: &RawValue) -> Result<String, String> {
        let members = Members::of(definition.get().as_bytes());
        let members = members.ok_or_else(|| format!("{}: it is no object", shown(definition)))?;
        let text =
            |key: &str| members.get(key).and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
        let missing = |key: &str| format!("{}: it has no `{key}`", shown(definition));
        text("name").ok_or_else(|| missing("name"))?;
        let key = text(self.key).filter(|key| !key.is_empty()).ok_or_else(|| missing(self.key))?;
        if key.len() > self.key_bytes_max {
            return Err(format!("{}: longer than {} bytes", clip(&key), self.key_bytes_max));
        }
        Ok(key)
    }
}

/// What a server said in the handshake: what it can do, and what models should know.
fn introduced(introduction: &[u8]) -> (Abilities, Option<String>) {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Introduction {
        capabilities: HashMap<String, serde_json::Value>,
        instructions: Option<String>,
    }
    let Introduction { capabilities, instructions } =
        serde_json::from_slice(introduction).unwrap_or_default();
    let has = |capability: &str| capabilities.get(capability).is_some_and(serde_json::Value::is_object);
    let abilities = Abilities {
        resources: has("resources"),
        subscribe: capabilities.get("resources").is_some_and(|resources| resources["subscribe"] == true),
        prompts: has("prompts"),
        completions: has("completions"),
        logging: has("logging"),
    };
    // More of it would be shown to nobody.
    let cut = |mut text: String| {
        text.truncate(text.floor_char_boundary(SERVER_BYTES_MAX));
        text
    };
    (abilities, instructions.map(cut))
}

/// All tools of a server, within one deadline.
pub async fn tools(session: &Session, deadline: Duration) -> Result<Tools, Cause> {
    let until = Instant::now() + deadline;
    let mut listed = Tools::default();
    // Before this family, the annotation meant nothing.
    let has_mirrors = session.revision().family == Family::Modern;
    let (mut mirrored, mut names) = (HashMap::new(), HashSet::new());
    let judge = move |definition: &RawValue| usable(definition, has_mirrors);
    let Pages { entries, fresh_ms } = pages(session, "tools/list", "tools", until, judge).await?;
    for (judged, definition) in entries {
        match judged {
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
    session.mirror(mirrored);
    session.keep_fresh(fresh_ms);
    Ok(listed)
}

/// What was judged of an entry, and the entry.
type Judged<T> = (Result<T, String>, Box<RawValue>);

/// All pages of a list.
struct Pages<T> {
    entries: Vec<Judged<T>>,
    /// For how many milliseconds it stays true, where its server says so.
    fresh_ms: Option<u64>,
}

/// Every entry of a list, page after page.
async fn pages<T: Send + 'static>(
    session: &Session,
    method: &str,
    member: &'static str,
    until: Instant,
    judge: impl Fn(&RawValue) -> Result<T, String> + Copy + Send + 'static,
) -> Result<Pages<T>, Cause> {
    let broken = |what: String| Cause::Protocol(format!("{method}: {what}"));
    let (mut cursor, mut seen) = (None::<String>, HashSet::new());
    let (mut bytes, mut all) = (0, Pages { entries: Vec::new(), fresh_ms: None });
    for _ in 0..PAGES_MAX {
        let params = cursor.as_ref().map(|cursor| serde_json::json!({ "cursor": cursor }).to_string());
        let left = until.saturating_duration_since(Instant::now());
        let request = Request { params: params.as_ref().map(String::as_bytes), ..Request::default() };
        let page = session.request(method, request, left).await?;
        bytes += page.len();
        if bytes > LIST_BYTES_MAX {
            return Err(broken(format!("more than {LIST_BYTES_MAX} bytes")));
        }
        let (room, gone) = (TOOLS_MAX - all.entries.len(), CancellationToken::new());
        let read = if page.len() <= HERE_BYTES_MAX {
            read_page(&page, member, room, judge, &gone)
        } else {
            // Thousands of definitions take their time, and nobody else waits for it.
            let _gone = gone.clone().drop_guard();
            let read = aside(move || read_page(&page, member, room, judge, &gone));
            let read = timeout_at(until, read).await.map_err(|_| Cause::TimedOut(left))?;
            read.unwrap_or_else(|panicked| Err(panicked.message))
        };
        let page = read.map_err(broken)?;
        all.entries.extend(page.entries);
        // The list is stale as soon as one of its pages is.
        all.fresh_ms = all.fresh_ms.into_iter().chain(page.fresh_ms).min();
        match page.next {
            None => return Ok(all),
            Some(next) if !seen.insert(next.clone()) => {
                return Err(broken("the same cursor came twice".to_owned()));
            }
            next => cursor = next,
        }
    }
    Err(broken(format!("more than {PAGES_MAX} pages")))
}

/// One page of a list.
struct Page<T> {
    entries: Vec<Judged<T>>,
    fresh_ms: Option<u64>,
    next: Option<String>,
}

fn read_page<T>(
    page: &[u8],
    member: &str,
    room: usize,
    judge: impl Fn(&RawValue) -> Result<T, String>,
    gone: &CancellationToken,
) -> Result<Page<T>, String> {
    let members = Members::of(page).ok_or("no object came")?;
    let entries = members.get(member).ok_or_else(|| format!("missing field `{member}`"))?;
    let entries: Vec<Box<RawValue>> =
        serde_json::from_str(entries.get()).map_err(|error| error.to_string())?;
    if entries.len() > room {
        return Err(format!("more than {TOOLS_MAX} {member}"));
    }
    let wanted = entries.into_iter().take_while(|_| !gone.is_cancelled());
    let entries = wanted.map(|definition| (judge(&definition), definition)).collect();
    // Anything but a number says nothing.
    let fresh_ms = members.get("ttlMs").and_then(|raw| serde_json::from_str(raw.get()).ok());
    let next = members.get("nextCursor").map(|next| serde_json::from_str::<Option<String>>(next.get()));
    let next = next.transpose().map_err(|error| error.to_string())?.flatten();
    Ok(Page { entries, fresh_ms, next: next.filter(|cursor| !cursor.is_empty()) })
}

/// Whether arguments could be held against a schema. One that is built to cost is not compiled at all, and one that
/// takes its time only when its tool is called.
fn compiles(schema: &serde_json::Value) -> Result<(), String> {
    let effort = Effort::of(schema).map_err(|excess| excess.to_string())?;
    if !effort.is_light() {
        return Ok(());
    }
    let compiled = contain_now(|| jsonschema::draft202012::new(schema).map(drop));
    match compiled.map_err(|panicked| panicked.message)? {
        // It refers to another document, which is never fetched: its server checks the arguments.
        Err(error) if !matches!(error.kind(), ValidationErrorKind::Referencing(_)) => Err(error.to_string()),
        _ => Ok(()),
    }
}

/// Enough of a definition to recognise it.
fn shown(definition: &RawValue) -> String {
    definition.get().chars().take(80).collect()
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
    let parsed: Definition =
        serde_json::from_str(definition.get()).map_err(|error| format!("{}: {error}", shown(definition)))?;
    let Definition { name, input_schema } = parsed;
    if name.len() > NAME_BYTES_MAX {
        return Err(format!("{}…: its name is longer than {NAME_BYTES_MAX} bytes", shown(definition)));
    }
    if name == INSTRUCTIONS {
        return Err(format!("{name}: this name is colibri's own"));
    }
    if input_schema.get("type").is_none_or(|kind| kind != "object") {
        return Err(format!("{name}: its input schema is not an object's"));
    }
    compiles(&input_schema).map_err(|reason| format!("{name}: its input schema: {reason}"))?;
    let mirrors = if has_mirrors { mirrors(&input_schema) } else { Ok(Vec::new()) };
    mirrors.map(|mirrors| (name.clone(), mirrors)).map_err(|reason| format!("{name}: {reason}"))
}
