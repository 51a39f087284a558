//! The resources, templates and prompts of one server, under the names that clients know.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::domain::instructions::About;
use crate::domain::ledger::clip;
use crate::domain::names::{Names, Uris};
use crate::domain::offer::Entry;
use crate::fleet::offer::Item;
use crate::mcp::raw::Members;

use super::{Proxied, Source};

/// Who has which name so far. Servers come in the order of the configuration, and the first keeps it.
pub(super) struct Tables {
    pub(super) uris: Uris,
    pub(super) templates: HashSet<Arc<str>>,
    pub(super) prompts: Names,
}

/// What one server adds, in its own order.
#[derive(Clone, Default)]
pub(super) struct Others {
    pub(super) resources: Vec<Arc<Entry>>,
    pub(super) templates: Vec<Arc<Entry>>,
    pub(super) prompts: Vec<Arc<Entry>>,
}

impl Others {
    /// Those of before are used again where nothing has changed.
    pub(super) fn of(
        source: &Source<'_>,
        before: Option<&Self>,
        tables: &mut Tables,
        problems: &mut Vec<String>,
    ) -> Self {
        let Source { ship, offered } = source;
        let slug = &ship.slug;
        let mut others = Self::default();
        for item in &offered.resources {
            let key = tables.uris.add(slug, &item.key);
            let same = before.and_then(|before| before.resources.get(others.resources.len()));
            others.resources.push(entry(item, "uri", key, slug, same));
        }
        for item in &offered.templates {
            let key: Arc<str> = item.key.as_str().into();
            if !tables.templates.insert(Arc::clone(&key)) {
                problems.push(format!(
                    "the template `{}` of server `{slug}` is not offered: another server has the same one",
                    clip(&key)
                ));
                continue;
            }
            let same = before.and_then(|before| before.templates.get(others.templates.len()));
            others.templates.push(entry(item, "uriTemplate", key, slug, same));
        }
        for item in &offered.prompts {
            match tables.prompts.add(slug, &item.key) {
                Ok(key) => {
                    let same = before.and_then(|before| before.prompts.get(others.prompts.len()));
                    others.prompts.push(entry(item, "name", key, slug, same));
                }
                Err(collision) => problems.push(format!("prompt {collision}")),
            }
        }
        others
    }
}

fn entry(
    item: &Item,
    member: &str,
    key: Arc<str>,
    server: &Arc<str>,
    before: Option<&Arc<Entry>>,
) -> Arc<Entry> {
    if let Some(same) = before.filter(|before| before.key == key && *before.own == *item.key) {
        return Arc::clone(same);
    }
    let raw = item.definition.get();
    let definition: Bytes = if *key == *item.key {
        raw.to_owned().into()
    } else {
        let quoted = serde_json::to_vec(&*key).expect("a text always serialises");
        let members = Members::of(raw.as_bytes()).expect("a listed entry is an object");
        members.with(member, &quoted).into()
    };
    Arc::new(Entry { key, server: Arc::clone(server), own: item.key.as_str().into(), definition })
}

/// In the order of their keys: a place in a list stays good while entries come and go.
pub(super) fn in_order(entries: &[Arc<Entry>]) -> Vec<Arc<Entry>> {
    let mut ordered = entries.to_vec();
    ordered.sort_by(|one, other| one.key.cmp(&other.key));
    ordered
}

/// What clients are told about a server.
pub(super) fn about(source: &Source<'_>, tools: &[Arc<Proxied>], prompts: &[Arc<Entry>]) -> About {
    let Source { ship, offered } = source;
    let words = |tool: &Arc<Proxied>| {
        let settings = ship.terms.tools.get(&*tool.tool)?;
        Some((tool.name.to_string(), settings.instructions.clone()?))
    };
    let described = |prompt: &Arc<Entry>| {
        let members = Members::of(&prompt.definition);
        let description: Option<&RawValue> = members.and_then(|members| members.get("description"));
        let description = description.and_then(|raw| serde_json::from_str(raw.get()).ok());
        (prompt.key.to_string(), description)
    };
    About {
        name: ship.name.to_string(),
        instructions: offered.shown_instructions().map(ToOwned::to_owned),
        prompts: prompts.iter().map(described).collect(),
        tools: tools.iter().filter_map(words).collect(),
    }
}
