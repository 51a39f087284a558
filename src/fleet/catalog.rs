//! What all servers offer together, under names that clients can call.
//!
//! Owns: the snapshot of all tools, shared by pointer, so that listing is a copy of bytes and a call is
//! one look-up. A server whose list did not change keeps its entries.
//! Must not know: connections, or why a list changed.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::domain::filter::Filter;
use crate::domain::names::{Names, Naming};
use crate::mcp::raw::Members;

use super::listing::{Tool, Tools};

/// A tool of a server, as clients know it.
#[derive(Debug)]
pub struct Proxied {
    /// As clients call it.
    pub name: Arc<str>,
    /// Which server has it, by its place in the configuration.
    pub server: usize,
    /// As its server calls it.
    pub tool: Arc<str>,
    /// Its whole definition, raw, under the name that clients know.
    pub definition: Bytes,
    /// The schema of its arguments, raw.
    pub input_schema: Box<RawValue>,
    /// Whether its server says that it changes nothing.
    pub read_only: bool,
    /// Whether its server says that calling it twice is calling it once.
    pub idempotent: bool,
}

/// All tools of all servers.
#[derive(Debug, Default)]
pub struct Catalog {
    tools: Vec<Arc<Proxied>>,
    by_name: HashMap<Arc<str>, usize>,
    /// Tools that have no name, each with the reason.
    pub problems: Vec<String>,
}

impl Catalog {
    /// In the order of their names.
    pub fn tools(&self) -> &[Arc<Proxied>] {
        &self.tools
    }

    /// The tool that clients call so.
    pub fn get(&self, name: &str) -> Option<&Arc<Proxied>> {
        self.by_name.get(name).map(|place| &self.tools[*place])
    }
}

/// What one server adds to the catalog.
pub(super) struct Offer {
    /// What stands before `__`.
    pub(super) slug: Arc<str>,
    /// What is offered of it.
    pub(super) filter: Filter,
}

/// Puts catalogs together.
pub(super) struct Compiler {
    naming: Naming,
    name_chars_max: usize,
    /// Names of colibri's own.
    reserved: Vec<Arc<str>>,
    offers: Vec<Offer>,
    /// By server: the list its entries were made of, and the entries.
    made: Vec<(Arc<Tools>, Vec<Arc<Proxied>>)>,
}

impl Compiler {
    pub(super) fn new(
        naming: Naming,
        name_chars_max: usize,
        reserved: Vec<Arc<str>>,
        offers: Vec<Offer>,
    ) -> Self {
        let made = offers.iter().map(|_| (Arc::default(), Vec::new())).collect();
        Self { naming, name_chars_max, reserved, offers, made }
    }

    /// The catalog of these lists, one for each server in its place.
    pub(super) fn compile(&mut self, lists: &[Arc<Tools>]) -> Catalog {
        let mut names = Names::new(self.naming, self.name_chars_max);
        for name in &self.reserved {
            names.reserve(name);
        }
        let mut catalog = Catalog::default();
        for (server, list) in lists.iter().enumerate() {
            let Offer { slug, filter } = &self.offers[server];
            let (made_of, before) = &self.made[server];
            let kept = Arc::ptr_eq(made_of, list);
            let mut entries = Vec::with_capacity(list.tools.len());
            let offered = list.tools.iter().filter(|tool| filter.admits(&tool.name));
            for (place, tool) in offered.enumerate() {
                let name = match names.add(slug, &tool.name) {
                    Ok(name) => name,
                    Err(collision) => {
                        catalog.problems.push(collision.to_string());
                        continue;
                    }
                };
                // The same list gives the same entry, unless another server took or left its name.
                let same =
                    before.get(place).filter(|entry| kept && entry.name == name && *entry.tool == *tool.name);
                entries.push(same.map_or_else(|| Arc::new(proxied(name, server, tool)), Arc::clone));
            }
            catalog.tools.extend(entries.iter().map(Arc::clone));
            self.made[server] = (Arc::clone(list), entries);
        }
        catalog.tools.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        catalog.by_name =
            catalog.tools.iter().enumerate().map(|(place, tool)| (Arc::clone(&tool.name), place)).collect();
        catalog
    }
}

fn proxied(name: Arc<str>, server: usize, tool: &Tool) -> Proxied {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Hints {
        read_only_hint: bool,
        idempotent_hint: bool,
    }
    let members = Members::of(tool.definition.get().as_bytes());
    let hints = members.as_ref().and_then(|members| members.get("annotations"));
    let hints: Hints = hints.and_then(|hints| serde_json::from_str(hints.get()).ok()).unwrap_or_default();
    let quoted = serde_json::to_vec(&*name).expect("a text always serialises");
    let definition = members.as_ref().map(|members| members.with("name", &quoted)).unwrap_or_default();
    let schema = members.as_ref().and_then(|members| members.get("inputSchema"));
    let input_schema = schema.map(ToOwned::to_owned).expect("a listed tool has the schema of an object");
    Proxied {
        name,
        server,
        tool: tool.name.as_str().into(),
        definition: definition.into(),
        input_schema,
        read_only: hints.read_only_hint,
        // What changes nothing can be done twice.
        idempotent: hints.idempotent_hint || hints.read_only_hint,
    }
}
