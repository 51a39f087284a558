//! What stands behind the protocol's own methods: the Skills extension and the resources it is made of.
//! They are hidden tools, so that a read is on record like a call.
//!
//! Only what any host may take is offered here: skills that keep to the format and whose files are all
//! known. A file is given out by finding its path among them, never by walking to it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::domain::log::visible;
use crate::domain::skill::uri::{Target, target, uri};
use crate::domain::skill::{FILE, split};
use crate::domain::task::code::NOT_FOUND;

use super::super::{Context, RegisterError, Registry, ToolConfig, ToolError};
use super::Skills;
use super::files::{self, SkillFile};
use super::list::{Listed, listed};
use super::scan::{Found, Scan};

/// One page of a list. Well below any client's frame limit; an entry larger than it has a page of its own.
const PAGE_BYTES_MAX: usize = 1 << 20;

const READ: ToolConfig =
    ToolConfig { title: Cow::Borrowed(""), description: Cow::Borrowed(""), hidden: true, ..ToolConfig::NONE };

pub(super) fn register(registry: &mut Registry, skills: &Skills) -> Result<(), RegisterError> {
    let this = skills.clone();
    registry.register("skills/list", READ, move |ask: Page, context| list(this.clone(), ask, context))?;
    let this = skills.clone();
    registry.register("skills/get", READ, move |ask: One, context| get(this.clone(), ask, context))?;
    let this = skills.clone();
    registry.register("resources/list", READ, move |ask: Page, context| {
        list_resources(this.clone(), ask, context)
    })?;
    let this = skills.clone();
    registry.register("resources/read", READ, move |ask: One, context| read(this.clone(), ask, context))?;
    let this = skills.clone();
    registry.register("resources/directory/read", READ, move |ask: Children, context| {
        read_directory(this.clone(), ask, context)
    })?;
    let this = skills.clone();
    registry.register("skill_show", READ, move |ask: Show, context| show(this.clone(), ask, context))
}

#[derive(Deserialize, JsonSchema)]
struct Page {
    /// The last URI of the page before.
    #[serde(default)]
    #[schemars(length(max = 16_384), regex(pattern = "^skill://"))]
    cursor: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
struct One {
    #[schemars(length(max = 16_384))]
    uri: String,
}

#[derive(Deserialize, JsonSchema)]
struct Children {
    #[schemars(length(max = 16_384))]
    uri: String,
    /// The last URI of the page before.
    #[serde(default)]
    #[schemars(length(max = 16_384), regex(pattern = "^skill://"))]
    cursor: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
struct Show {
    #[schemars(length(min = 1, max = 1024))]
    name: String,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Entries {
    skills: Vec<Entry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct OneEntry {
    skill: Entry,
}

#[derive(Serialize, JsonSchema)]
struct Entry {
    uri: String,
    frontmatter: Map<String, Value>,
    resources: Vec<Part>,
}

#[derive(Serialize, JsonSchema)]
struct Part {
    uri: String,
    digest: String,
    size: u64,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Resources {
    resources: Vec<Resource>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

#[derive(Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Resource {
    uri: String,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    mime_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<Value>,
}

#[derive(Serialize, JsonSchema)]
struct Contents {
    contents: Vec<Content>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Content {
    uri: String,
    mime_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blob: Option<String>,
    #[serde(rename = "_meta")]
    meta: Value,
}

#[derive(Serialize, JsonSchema)]
struct Shown {
    skill: Listed,
    frontmatter: Map<String, Value>,
    body: String,
    files: Vec<Part>,
}

async fn list(skills: Skills, ask: Page, context: Context) -> Result<Entries, ToolError> {
    let scan = skills.look(&context).await?;
    let all = offered(&scan).map(entry).collect();
    let (skills, next_cursor) = page(all, |entry| &entry.uri, ask.cursor.as_deref());
    Ok(Entries { skills, next_cursor })
}

async fn get(skills: Skills, ask: One, context: Context) -> Result<OneEntry, ToolError> {
    let scan = skills.look(&context).await?;
    let found = target(&ask.uri).filter(|target| target.path == FILE);
    let found = found.and_then(|target| offered(&scan).find(|found| found.skill.name == target.name));
    let found = found.ok_or_else(|| not_found("no skill is served at", &ask.uri))?;
    Ok(OneEntry { skill: entry(found) })
}

async fn list_resources(skills: Skills, ask: Page, context: Context) -> Result<Resources, ToolError> {
    let scan = skills.look(&context).await?;
    let all = offered(&scan).flat_map(|found| found.files.iter().map(move |file| resource(found, file)));
    let all = all.collect();
    let (resources, next_cursor) = page(all, |resource| &resource.uri, ask.cursor.as_deref());
    Ok(Resources { resources, next_cursor })
}

async fn read(skills: Skills, ask: One, context: Context) -> Result<Contents, ToolError> {
    let scan = skills.look(&context).await?;
    let found = target(&ask.uri).and_then(|Target { name, path }| {
        let found = offered(&scan).find(|found| found.skill.name == name)?;
        Some((found.folder.clone(), resource(found, file(found, &path)?), file(found, &path)?.clone()))
    });
    let (folder, resource, file) = found.ok_or_else(|| not_found("no resource is served at", &ask.uri))?;
    let named = visible(&resource.uri);
    let bytes = tokio::task::spawn_blocking(move || files::read(&folder, &file)).await?;
    let bytes = bytes.map_err(|reason| ToolError::failed(format!("{named} {reason}")))?;
    let (text, blob) = match String::from_utf8(bytes) {
        Ok(text) => (Some(text), None),
        Err(binary) => (None, Some(STANDARD.encode(binary.as_bytes()))),
    };
    let Resource { uri, mime_type, meta, .. } = resource;
    Ok(Contents { contents: vec![Content { uri, mime_type, text, blob, meta: meta.unwrap_or_default() }] })
}

async fn read_directory(skills: Skills, ask: Children, context: Context) -> Result<Resources, ToolError> {
    let scan = skills.look(&context).await?;
    let children = target(&ask.uri).and_then(|Target { name, path }| {
        let found = offered(&scan).find(|found| found.skill.name == name)?;
        children(found, &path)
    });
    let children = children.ok_or_else(|| not_found("no directory is served at", &ask.uri))?;
    let (resources, next_cursor) =
        page(children.into_values().collect(), |resource| &resource.uri, ask.cursor.as_deref());
    Ok(Resources { resources, next_cursor })
}

/// For people at a terminal, who may look at any skill, offered or not.
async fn show(skills: Skills, ask: Show, context: Context) -> Result<Shown, ToolError> {
    let scan = skills.look(&context).await?;
    let Some(found) = scan.skills.into_iter().find(|found| found.skill.name == ask.name) else {
        let message = format!("there is no skill `{}`", visible(&ask.name));
        return Err(ToolError::coded(NOT_FOUND, &message));
    };
    let skill_file = file(&found, FILE).cloned();
    let skill_file = skill_file.ok_or_else(|| ToolError::failed("its SKILL.md is beyond the limits"))?;
    let place = found.folder.clone();
    let bytes = tokio::task::spawn_blocking(move || files::read(&place, &skill_file)).await?;
    let text = String::from_utf8(bytes.map_err(|reason| ToolError::failed(format!("SKILL.md {reason}")))?)?;
    let body = split(&text).map(|(_, body)| body.to_owned()).unwrap_or_default();
    let files = entry(&found).resources;
    Ok(Shown { skill: listed(&found), frontmatter: found.skill.frontmatter, body, files })
}

/// Those that every host can take: what cannot be verified whole is not offered.
fn offered(scan: &Scan) -> impl Iterator<Item = &Found> {
    scan.skills.iter().filter(|found| found.skill.is_sound && found.is_complete)
}

fn file<'a>(found: &'a Found, path: &str) -> Option<&'a SkillFile> {
    found.files.iter().find(|file| file.path == path)
}

fn entry(found: &Found) -> Entry {
    let name = &found.skill.name;
    let part = |file: &SkillFile| Part {
        uri: uri(name, &file.path),
        digest: format!("sha256:{}", file.digest),
        size: file.size,
    };
    Entry {
        uri: uri(name, FILE),
        frontmatter: found.skill.frontmatter.clone(),
        resources: found.files.iter().map(part).collect(),
    }
}

fn resource(found: &Found, file: &SkillFile) -> Resource {
    let is_skill = file.path == FILE;
    let name = if is_skill { &found.skill.name } else { last(&file.path) };
    Resource {
        uri: uri(&found.skill.name, &file.path),
        name: name.to_owned(),
        description: is_skill.then(|| found.skill.description.clone()),
        mime_type: mime_type(&file.path),
        size: Some(file.size),
        meta: Some(json!({ "colibri/digest": format!("sha256:{}", file.digest) })),
    }
}

/// What is directly in a folder of a skill, by name; nothing if there is no such folder.
fn children<'a>(found: &'a Found, path: &str) -> Option<BTreeMap<&'a str, Resource>> {
    let inside = if path.is_empty() { String::new() } else { format!("{path}/") };
    let mut children = BTreeMap::new();
    for file in &found.files {
        let Some(rest) = file.path.strip_prefix(&inside) else { continue };
        let (name, child) = match rest.split_once('/') {
            None => (rest, resource(found, file)),
            Some((name, _)) => (name, directory(found, &inside, name)),
        };
        children.entry(name).or_insert(child);
    }
    (!children.is_empty()).then_some(children)
}

fn directory(found: &Found, inside: &str, name: &str) -> Resource {
    Resource {
        uri: uri(&found.skill.name, &format!("{inside}{name}")),
        name: name.to_owned(),
        description: None,
        mime_type: "inode/directory",
        size: None,
        meta: None,
    }
}

/// As many items as fit a page, from behind the cursor in the order of their URIs, and the next cursor
/// if there are more. It stays good when items come and go.
fn page<T: Serialize>(
    mut items: Vec<T>,
    uri: impl Fn(&T) -> &String,
    after: Option<&str>,
) -> (Vec<T>, Option<String>) {
    items.sort_by(|one, other| uri(one).cmp(uri(other)));
    items.retain(|item| after.is_none_or(|after| uri(item).as_str() > after));
    let mut page: Vec<T> = Vec::new();
    let mut bytes = 0;
    for item in items {
        bytes += serde_json::to_vec(&item).map_or(0, |json| json.len());
        if bytes > PAGE_BYTES_MAX && !page.is_empty() {
            let next = page.last().map(|last| uri(last).clone());
            return (page, next);
        }
        page.push(item);
    }
    (page, None)
}

fn not_found(what: &str, uri: &str) -> ToolError {
    let uri: String = visible(uri).chars().take(200).collect();
    ToolError::coded(NOT_FOUND, &format!("{what} {uri}"))
}

fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// By the ending of its name, as far as skills commonly have it.
fn mime_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map_or("", |(_, ending)| ending) {
        "md" => "text/markdown",
        "txt" => "text/plain",
        "py" => "text/x-python",
        "sh" => "application/x-sh",
        "js" | "mjs" => "text/javascript",
        "json" => "application/json",
        "yaml" | "yml" => "application/yaml",
        "csv" => "text/csv",
        "html" => "text/html",
        "css" => "text/css",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "pdf" => "application/pdf",
        _ => "application/octet-stream",
    }
}
