//! A server looked at closely: its tools, what waits for a person's word and why; and that word.
//!
//! Owns: what is shown of a definition before it is accepted, and that only what was shown is.
//! Must not know: who looks, or by which way.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::domain::hidden::hidden;
use crate::domain::ledger::clip;
use crate::domain::log::visible;
use crate::domain::merkle::Hash;
use crate::domain::pin::{Change, INSTRUCTIONS, PinnedBy, digest_of_all};

use super::bus::episode;
use super::catalog::Proxied;
use super::listing;
use super::offer::Offered;
use super::report::ServerReport;
use super::roster::Fleet;
use super::ship::Ship;

/// What all definitions that are shown weigh together, so that an answer stays one that can be read.
const DEFINITIONS_BYTES_MAX: usize = 8 << 20;

/// A server, closely.
#[derive(Clone, Debug, Serialize)]
pub struct Shown {
    /// How it is.
    pub server: ServerReport,
    /// Every tool that it listed.
    pub tools: Vec<ToolReport>,
    /// What waits for a person's word.
    pub changes: Vec<ChangeReport>,
    /// One digest of all that waits, by which it is accepted; see `pin::digest_of_all`.
    pub changes_digest: Option<Hash>,
}

/// A tool of a server, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ToolReport {
    /// As its server calls it.
    pub tool: String,
    /// As clients call it; nothing if they cannot.
    pub name: Option<String>,
    /// Why clients cannot call it.
    pub withheld: Option<&'static str>,
    /// Whether its server says that it changes nothing.
    pub read_only: bool,
    /// Whether its server says that calling it twice is calling it once.
    pub idempotent: bool,
    /// What its definition hides from people.
    pub hidden: Vec<String>,
}

/// Something that waits for a person's word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChangeReport {
    /// The tool, or [`INSTRUCTIONS`].
    pub tool: String,
    /// `changed` or `new`.
    pub kind: &'static str,
    /// The digest that was pinned.
    pub pinned: Option<Hash>,
    /// The digest now.
    pub found: Hash,
    /// The definition that was pinned, as its server wrote it, if it is still known.
    pub former: Option<String>,
    /// The definition now, as its server wrote it; nothing, if all together would be too much.
    pub definition: Option<String>,
}

impl Fleet {
    /// One server, every tool it listed, and what of it waits for a person's word.
    pub fn show(&self, server: &str) -> Result<Shown, String> {
        let ship = self.named(server)?;
        let (offered, catalog) = (Arc::clone(&ship.status().borrow().offered), self.catalog());
        let catalog = Arc::clone(&catalog.borrow());
        let own = catalog.tools().iter().filter(|tool| tool.server == ship.slug);
        let known: HashMap<&str, &Arc<Proxied>> = own.map(|tool| (&*tool.tool, tool)).collect();
        let report = |tool| report(tool, known.get(&*tool.name).copied(), &ship, &offered);
        Ok(Shown {
            server: ship.report(),
            tools: offered.tools.tools.iter().map(report).collect(),
            changes: changes(&offered),
            changes_digest: (!offered.changed.is_empty()).then(|| digest_of(&offered.changed)),
        })
    }

    /// Accepts what waits for it: the tools named, or all. `shown` is the digest of all that somebody has looked
    /// at; if it is something else by now, nothing is accepted. Gives the names of what was accepted.
    pub async fn accept(&self, server: &str, tools: &[String], shown: Hash) -> Result<Vec<String>, String> {
        let ship = self.named(server)?;
        let offered = Arc::clone(&ship.status().borrow().offered);
        if offered.changed.is_empty() {
            return Err(format!(
                "no tool waits to be accepted: `{}` offers what it offered before",
                ship.name
            ));
        }
        if let Some(stranger) = tools.iter().find(|tool| !offered.changed.contains_key(*tool)) {
            let stranger = visible(clip(stranger));
            return Err(format!("the tool `{stranger}` of `{}` does not wait to be accepted", ship.name));
        }
        let is_meant = |(tool, _): &(&String, &Change)| tools.is_empty() || tools.contains(tool);
        let meant = offered.changed.iter().filter(is_meant);
        let meant: Vec<(String, Hash)> = meant.map(|(tool, change)| (tool.clone(), change.found)).collect();
        if digest_of_all(meant.iter().map(|(tool, found)| (&**tool, *found))) != shown {
            return Err(format!(
                "nothing is accepted: what `{0}` offers is not, or no longer, what this is about; look again: colibri server show {0}",
                ship.name
            ));
        }
        let names = meant.iter().map(|(tool, _)| tool.clone()).collect();
        let accepted =
            self.surroundings().chronicle.pin(episode(), &ship.name, meant, PinnedBy::Accepted).await;
        accepted.map_err(|error| format!("nothing is accepted: it could not be put on record: {error}"))?;
        ship.supervised.list_again();
        // One that rests lists nothing, and a call of what is withheld does not wake it.
        if !ship.is_off() {
            ship.supervised.want().await;
        }
        Ok(names)
    }
}

fn digest_of(changed: &std::collections::BTreeMap<String, Change>) -> Hash {
    digest_of_all(changed.iter().map(|(tool, change)| (&**tool, change.found)))
}

fn report(tool: &listing::Tool, known: Option<&Arc<Proxied>>, ship: &Ship, offered: &Offered) -> ToolReport {
    // Read first: what is written as an escape hides just as well.
    let definition: serde_json::Value = serde_json::from_str(tool.definition.get()).unwrap_or_default();
    let found = hidden(&definition.to_string());
    let change = offered.changed.get(&tool.name);
    ToolReport {
        tool: tool.name.clone(),
        name: known.map(|known| known.name.to_string()),
        withheld: match (known, change) {
            (Some(_), _) => None,
            _ if ship.is_off() => Some("the server is off"),
            _ if !ship.terms.filter.admits(&tool.name) => Some("toolsAllowed or toolsDenied"),
            (None, Some(Change { pinned: Some(_), .. })) if offered.withholds => {
                Some("its definition has changed")
            }
            (None, Some(Change { pinned: None, .. })) if offered.withholds => Some("it is new"),
            (None, _) => Some("another tool has its name"),
        },
        read_only: known.is_some_and(|known| known.read_only),
        idempotent: known.is_some_and(|known| known.idempotent),
        hidden: found.iter().map(ToString::to_string).collect(),
    }
}

/// What waits, in the order of the names.
fn changes(offered: &Offered) -> Vec<ChangeReport> {
    if offered.changed.is_empty() {
        return Vec::new();
    }
    let tools: HashMap<&str, &RawValue> =
        offered.tools.tools.iter().map(|tool| (tool.name.as_str(), &*tool.definition)).collect();
    let former: HashMap<&str, &RawValue> =
        offered.former.iter().map(|item| (item.key.as_str(), &*item.definition)).collect();
    let said = offered.instructions.as_ref().map(|said| serde_json::json!(said).to_string());
    let now = |tool: &str| match tool {
        INSTRUCTIONS => said.as_deref(),
        tool => tools.get(tool).map(|raw| raw.get()),
    };
    let mut room = DEFINITIONS_BYTES_MAX;
    let names = || offered.changed.keys().map(String::as_str);
    let now = fitting(names().filter_map(|tool| Some((tool, now(tool)?))), &mut room);
    let former = fitting(names().filter_map(|tool| Some((tool, former.get(tool)?.get()))), &mut room);
    let report = |(tool, change): (&String, &Change)| ChangeReport {
        tool: tool.clone(),
        kind: change.kind(),
        pinned: change.pinned,
        found: change.found,
        definition: now.get(&**tool).map(ToString::to_string),
        former: former.get(&**tool).map(ToString::to_string),
    };
    offered.changed.iter().map(report).collect()
}

/// As many of these texts as there is room for, by their names. The smallest come first: a large one pushes no other
/// out.
fn fitting<'t>(
    texts: impl Iterator<Item = (&'t str, &'t str)>,
    room: &mut usize,
) -> HashMap<&'t str, &'t str> {
    let mut texts: Vec<(&str, &str)> = texts.collect();
    texts.sort_by_key(|(_, text)| text.len());
    let fits = |(name, text): (&'t str, &'t str)| {
        *room = room.checked_sub(text.len())?;
        Some((name, text))
    };
    texts.into_iter().map_while(fits).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::domain::pin::digest;

    /// SB-7: a large definition pushes no other out of what is shown: it is the one that is not there.
    #[test]
    fn a_large_definition_hides_no_other() {
        let definition = |name: &str, words: &str| {
            let text =
                format!(r#"{{"name":"{name}","description":"{words}","inputSchema":{{"type":"object"}}}}"#);
            RawValue::from_string(text).expect("JSON")
        };
        // Alone there would be room for it.
        let large = definition("a", &"x".repeat(DEFINITIONS_BYTES_MAX - 100));
        assert!(large.get().len() <= DEFINITIONS_BYTES_MAX);
        let small = definition("b", "sends your keys away");
        let change = Change { pinned: None, found: digest(b"{}") };
        let changed = BTreeMap::from(["a", "b"].map(|tool| (tool.to_owned(), change)));
        let tools = listing::Tools::remembered(vec![large, small.clone()]);
        let shown = changes(&Offered { tools, changed, ..Offered::default() });
        let definitions: Vec<Option<&str>> =
            shown.iter().map(|change| change.definition.as_deref()).collect();
        assert_eq!(definitions, [None, Some(small.get())]);
    }
}
