//! What all servers offer together, under names that clients can call.
//!
//! Owns: the snapshot of all tools, resources, templates and prompts, shared by pointer, so that listing is a copy
//! of bytes and a call is one look-up; and what clients are told about the servers. A server whose lists did not
//! change keeps its entries.
//! Must not know: connections, or why a list changed.

mod entries;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::domain::instructions::instructions;
use crate::domain::merkle::Hash;
use crate::domain::names::{Names, Naming, Uris, exposed, made_from};
use crate::domain::offer::{Changes, Entries, Entry, Kind};
use crate::domain::provider::Rule;
use crate::mcp::raw::Members;

use super::listing::Tool;
use super::offer::{Abilities, Offered};
use super::ship::Ship;

use entries::{Others, Tables, about, in_order};

/// A tool of a server, as clients know it.
#[derive(Debug)]
pub struct Proxied {
    /// As clients call it.
    pub name: Arc<str>,
    /// Which server has it, by its slug.
    pub server: Arc<str>,
    /// As its server calls it.
    pub tool: Arc<str>,
    /// Its whole definition, raw, under the name that clients know.
    pub definition: Bytes,
    /// The schema of its arguments, raw.
    pub input_schema: Box<RawValue>,
    /// The schema of its structured results, raw, if it has one.
    pub output_schema: Option<Box<RawValue>>,
    /// Whether its server says that it changes nothing.
    pub read_only: bool,
    /// Whether its server says that calling it twice is calling it once.
    pub idempotent: bool,
}

/// What all servers offer together.
#[derive(Debug, Default)]
pub struct Catalog {
    tools: Vec<Arc<Proxied>>,
    by_name: HashMap<Arc<str>, usize>,
    /// Tools that are there and cannot be called, under the names they would have, each with the rule.
    withheld: HashMap<String, Rule>,
    resources: Entries,
    templates: Entries,
    prompts: Entries,
    prompts_by_name: HashMap<Arc<str>, usize>,
    uris: Uris,
    instructions: Arc<str>,
    /// By slug: what it was made of.
    made_of: Vec<(Arc<str>, Arc<Offered>)>,
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

    /// Why a tool of that name is neither listed nor called, if there is one.
    pub fn withheld(&self, name: &str) -> Option<Rule> {
        self.withheld.get(name).copied()
    }

    /// Resources, templates or prompts: the servers in the order of the configuration, and what each has in the
    /// order of its keys.
    pub fn entries(&self, kind: Kind) -> &Entries {
        match kind {
            Kind::Resources => &self.resources,
            Kind::Templates => &self.templates,
            Kind::Prompts => &self.prompts,
        }
    }

    /// The prompt that clients know so.
    pub fn prompt(&self, name: &str) -> Option<&Arc<Entry>> {
        self.prompts_by_name.get(name).map(|place| &self.prompts[*place])
    }

    /// Whose resource a URI is, and what its server calls it: one that is listed, an alias, or one made from a
    /// template. Of several templates, the one that has most in common with it; of equals, the first in the order of
    /// the configuration.
    pub fn resource(&self, uri: &str) -> Option<(Arc<str>, String)> {
        self.uris.resolve(uri).or_else(|| {
            let mut best: Option<(usize, &Arc<Entry>)> = None;
            for template in self.templates.iter() {
                if let Some(common) = made_from(uri, &template.own)
                    && best.is_none_or(|(most, _)| common > most)
                {
                    best = Some((common, template));
                }
            }
            best.map(|(_, template)| (Arc::clone(&template.server), uri.to_owned()))
        })
    }

    /// Whose template of resources it is.
    pub fn template(&self, template: &str) -> Option<&Arc<Entry>> {
        self.templates.iter().find(|entry| *entry.key == *template)
    }

    /// What clients are told about the servers; empty if there is nothing to tell.
    pub fn instructions(&self) -> &Arc<str> {
        &self.instructions
    }

    /// What a server can do, by its slug.
    pub fn abilities(&self, slug: &str) -> Abilities {
        let offered = self.made_of.iter().find(|(known, _)| &**known == slug);
        offered.map(|(_, offered)| offered.abilities).unwrap_or_default()
    }

    /// Whether nobody offers anything.
    pub(super) fn is_empty(&self) -> bool {
        self.made_of.is_empty()
    }

    /// Counts the lists that are not what they were in the catalog before.
    pub(super) fn count(&self, before: &Self, changes: &mut Changes) {
        let same = |one: &Entries, other: &Entries| {
            let same = |(one, other): (&Arc<Entry>, &Arc<Entry>)| {
                Arc::ptr_eq(one, other) || (one.server == other.server && one.definition == other.definition)
            };
            one.len() == other.len() && one.iter().zip(other.iter()).all(same)
        };
        let same_tool = |(one, other): (&Arc<Proxied>, &Arc<Proxied>)| {
            Arc::ptr_eq(one, other) || (one.server == other.server && one.definition == other.definition)
        };
        let same_tools =
            self.tools.len() == before.tools.len() && self.tools.iter().zip(&before.tools).all(same_tool);
        changes.tools += u64::from(!same_tools);
        let same_resources =
            same(&self.resources, &before.resources) && same(&self.templates, &before.templates);
        changes.resources += u64::from(!same_resources);
        changes.prompts += u64::from(!same(&self.prompts, &before.prompts));
    }

    /// The names of all that are neither listed nor called, in their order.
    pub(super) fn all_withheld(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.withheld.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    /// Whether this offer of a server is in it.
    pub(super) fn knows(&self, slug: &str, offered: &Arc<Offered>) -> bool {
        self.made_of.iter().any(|(known, made_of)| &**known == slug && Arc::ptr_eq(made_of, offered))
    }
}

/// What one server adds to the catalog.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    /// Whose.
    pub(super) ship: &'a Ship,
    /// What it offers.
    pub(super) offered: &'a Arc<Offered>,
}

/// Puts catalogs together.
pub(super) struct Compiler {
    naming: Naming,
    name_chars_max: usize,
    /// Names of colibri's own.
    reserved: Vec<Arc<str>>,
    /// By server: what its entries were made of, and the entries.
    made: HashMap<Arc<str>, Made>,
    /// The servers of the last one, in their order; nothing if none was ever made.
    order: Option<Vec<Arc<str>>>,
}

struct Made {
    identity: Hash,
    offered: Arc<Offered>,
    tools: Vec<Arc<Proxied>>,
    others: Others,
}

impl Made {
    fn is_of(&self, source: &Source<'_>) -> bool {
        self.identity == source.ship.identity && Arc::ptr_eq(&self.offered, source.offered)
    }
}

impl Compiler {
    pub(super) fn new(naming: Naming, name_chars_max: usize, reserved: Vec<Arc<str>>) -> Self {
        Self { naming, name_chars_max, reserved, made: HashMap::new(), order: None }
    }

    /// The catalog of these servers, in the order of the configuration; nothing if it would be the one before.
    pub(super) fn compile(&mut self, sources: &[Source<'_>]) -> Option<Catalog> {
        let is_made =
            |source: &Source<'_>| self.made.get(&source.ship.slug).is_some_and(|made| made.is_of(source));
        let order = sources.iter().map(|source| Arc::clone(&source.ship.slug)).collect();
        if self.order.as_ref() == Some(&order) && sources.iter().all(is_made) {
            return None;
        }
        self.order = Some(order);
        let mut names = Names::new(self.naming, self.name_chars_max);
        for name in &self.reserved {
            names.reserve(name);
        }
        let mut tables = Tables {
            uris: Uris::default(),
            templates: HashSet::new(),
            prompts: Names::new(self.naming, self.name_chars_max),
        };
        let (mut catalog, mut made) = (Catalog::default(), HashMap::new());
        let (mut all, mut told) = (Others::default(), Vec::new());
        for source in sources {
            let tools = self.tools(source, &mut names, &mut catalog);
            let before = self.made.get(&source.ship.slug).filter(|made| made.is_of(source));
            let before = before.map(|made| &made.others);
            let others = Others::of(source, before, &mut tables, &mut catalog.problems);
            told.push(about(source, &tools, &others.prompts));
            catalog.tools.extend(tools.iter().map(Arc::clone));
            all.resources.extend(in_order(&others.resources));
            all.templates.extend(in_order(&others.templates));
            all.prompts.extend(in_order(&others.prompts));
            let (slug, offered) = (Arc::clone(&source.ship.slug), Arc::clone(source.offered));
            catalog.made_of.push((Arc::clone(&slug), Arc::clone(&offered)));
            made.insert(slug, Made { identity: source.ship.identity, offered, tools, others });
        }
        self.made = made;
        catalog.tools.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        catalog.by_name = places(catalog.tools.iter().map(|tool| &tool.name));
        catalog.prompts_by_name = places(all.prompts.iter().map(|prompt| &prompt.key));
        (catalog.resources, catalog.templates) = (all.resources.into(), all.templates.into());
        catalog.prompts = all.prompts.into();
        (catalog.uris, catalog.instructions) = (tables.uris, instructions(&told).into());
        Some(catalog)
    }

    /// The tools of one server, those of before where nothing has changed.
    fn tools(&self, source: &Source<'_>, names: &mut Names, catalog: &mut Catalog) -> Vec<Arc<Proxied>> {
        let Source { ship, offered } = source;
        let before = self.made.get(&ship.slug).filter(|made| made.is_of(source));
        let mut entries = Vec::with_capacity(offered.tools.tools.len());
        for tool in &offered.tools.tools {
            let rule = if ship.terms.filter.admits(&tool.name) {
                offered.is_withheld(&tool.name).then_some(Rule::Pin)
            } else {
                Some(Rule::Filter)
            };
            if let Some(rule) = rule {
                let name = exposed(self.naming, self.name_chars_max, &ship.slug, &tool.name);
                catalog.withheld.insert(name, rule);
                continue;
            }
            match names.add(&ship.slug, &tool.name) {
                Ok(name) => {
                    // The same list gives the same entry, unless another server took or left its name.
                    let same = before.and_then(|made| made.tools.get(entries.len()));
                    let same = same.filter(|entry| entry.name == name && *entry.tool == *tool.name);
                    let made = || Arc::new(proxied(name.clone(), Arc::clone(&ship.slug), tool));
                    entries.push(same.map_or_else(made, Arc::clone));
                }
                Err(collision) => catalog.problems.push(collision.to_string()),
            }
        }
        entries
    }
}

/// Where each name stands.
fn places<'a>(names: impl Iterator<Item = &'a Arc<str>>) -> HashMap<Arc<str>, usize> {
    names.enumerate().map(|(place, name)| (Arc::clone(name), place)).collect()
}

fn proxied(name: Arc<str>, server: Arc<str>, tool: &Tool) -> Proxied {
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
    let output_schema = members.as_ref().and_then(|members| members.get("outputSchema"));
    let output_schema = output_schema.map(ToOwned::to_owned);
    Proxied {
        name,
        server,
        tool: tool.name.as_str().into(),
        definition: definition.into(),
        input_schema,
        output_schema,
        read_only: hints.read_only_hint,
        // What changes nothing can be done twice.
        idempotent: hints.idempotent_hint || hints.read_only_hint,
    }
}
