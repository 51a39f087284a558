//! What a server offers, looked at before anybody sees it: is each tool what it was, and does it hide something?
//!
//! Owns: pinning at first sight, telling and withholding what has changed, keeping what it was for a person to
//! compare, flagging hidden characters, and remembering the offer for the next start.
//! Must not know: how the offer was listed, or what it is called to clients.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use serde_json::value::{RawValue, to_raw_value};

use crate::domain::audit::{AuditError, CallId};
use crate::domain::chronicle::{Chronicle, Fact};
use crate::domain::event::News;
use crate::domain::hidden::{FINDINGS_MAX, hidden};
use crate::domain::merkle::Hash;
use crate::domain::pin::{Change, Changed, INSTRUCTIONS, PinnedBy, Verdict, digest};

use super::bus::Bus;
use super::error::Cause;
use super::listing::Tool;
use super::offer::{Item, Offered};
use super::remembered;

/// More tools than this are digested where waiting hurts nobody.
const DIGESTED_AT_ONCE: usize = 100;

/// As many changes of one look are told and put on record one by one; of more, how many there are.
const TOLD_MAX: usize = 32;

/// Of as many changed tools it is kept what they were. A person who compares more than that reads none of them.
const FORMER_MAX: usize = 100;

/// Stands before the name of a tool that was flagged, and in no name that can be called.
const HIDDEN: &str = "\u{0}hidden ";

/// The inspector of one server.
pub(super) struct Inspector {
    /// As the configuration names it; pins are kept by that name.
    pub(super) name: Arc<str>,
    pub(super) slug: Arc<str>,
    /// Whether a changed tool is withheld until it is accepted.
    pub(super) enforces: bool,
    /// What its offer is remembered by.
    pub(super) key: Option<Hash>,
    pub(super) chronicle: Arc<dyn Chronicle>,
    pub(super) bus: Bus,
    /// What was told already: a tool and the digest of what was found.
    pub(super) told: Mutex<BTreeSet<(String, Hash)>>,
}

impl Inspector {
    /// The offer as it may be shown. `before` is the last one.
    pub(super) async fn inspect(
        &self,
        mut offered: Offered,
        before: &Offered,
        episode: CallId,
    ) -> Result<Offered, Cause> {
        offered.digests = if offered.tools == before.tools && !before.digests.is_empty() {
            before.digests.clone()
        } else {
            digests(&offered.tools.tools).await
        };
        self.forget_what_is_gone(&offered);
        match self.pinned(&offered, episode).await {
            Ok(looked) => self.tell_changed(&mut offered, before, looked, episode).await,
            // Whoever wants changes held back does not want them let through when nobody can tell.
            Err(error) if self.enforces => {
                return Err(Cause::Protocol(format!("its pins cannot be read: {error}")));
            }
            Err(_) => {}
        }
        self.flag(&offered, episode);
        if let Some(key) = self.key.filter(|_| offered != *before) {
            self.chronicle.keep(key, remembered::encode(&offered)).await;
        }
        Ok(offered)
    }

    /// Pins what is believed for being new; gives what is not what it was.
    async fn pinned(&self, offered: &Offered, episode: CallId) -> Result<Looked, AuditError> {
        let listed = || {
            let tools = offered.digests.iter().map(|(tool, found)| (tool.as_str(), *found));
            tools.chain(offered.instructions_digest().map(|found| (INSTRUCTIONS, found)))
        };
        let pinned = self.chronicle.pins(&self.name).await?;
        let Verdict { new, changed, is_known, .. } = Verdict::of(&pinned, listed(), self.enforces);
        if new.is_empty() {
            return Ok(Looked { changed, appeared: Vec::new(), unpinned: 0 });
        }
        let appeared = if is_known { new.clone() } else { Vec::new() };
        self.chronicle.pin(episode, &self.name, new, PinnedBy::FirstSight).await?;
        // Another colibri may have seen it first, and seen something else.
        let pinned = self.chronicle.pins(&self.name).await?;
        let Verdict { new, changed, .. } = Verdict::of(&pinned, listed(), self.enforces);
        Ok(Looked { changed, appeared, unpinned: new.len() })
    }

    async fn tell_changed(&self, offered: &mut Offered, before: &Offered, looked: Looked, episode: CallId) {
        let Looked { changed, appeared, unpinned } = looked;
        offered.unpinned = unpinned;
        for Changed { tool, change, enforced } in &changed {
            offered.changed.insert(tool.clone(), *change);
            offered.withholds |= enforced;
        }
        offered.former = former(&offered.changed, before);
        let appeared = appeared.into_iter().map(|(tool, found)| {
            let change = Change { pinned: None, found };
            Changed { tool, change, enforced: false }
        });
        let news = changed.into_iter().chain(appeared);
        let news: Vec<Changed> = news.filter(|one| self.is_new(&one.tool, one.change.found)).collect();
        let (told, untold) = (news.len().min(TOLD_MAX), news.len().saturating_sub(TOLD_MAX));
        for (place, Changed { tool, change, enforced }) in news.into_iter().take(TOLD_MAX).enumerate() {
            let more = if place + 1 == told { untold as u64 } else { 0 };
            let (kind, Change { pinned, found }) = (change.kind(), change);
            let named = tool.clone();
            let news = News::ToolChanged { tool: named, kind, pinned, found, enforced, more };
            self.bus.tell(&self.slug, episode, news);
            // One that is believed for being new is on record as pinned.
            if enforced || pinned.is_some() {
                let fact = Fact::ToolChanged { server: self.name.to_string(), tool, change, enforced, more };
                // A ledger that cannot be written says so itself, to everybody.
                let _ = self.chronicle.put(episode, fact).await;
            }
        }
    }

    fn flag(&self, offered: &Offered, episode: CallId) {
        let tools = offered.tools.tools.iter().filter_map(|tool| {
            let digest = offered.digests.get(&tool.name)?;
            Some((tool.name.as_str(), *digest, texts(tool)))
        });
        let said = offered.instructions.iter().cloned().collect();
        let instructions = offered.instructions_digest().map(|digest| (INSTRUCTIONS, digest, said));
        for (tool, digest, texts) in tools.chain(instructions) {
            let found = texts.iter().flat_map(|text| hidden(text)).map(|run| run.to_string());
            let found: Vec<String> = found.take(FINDINGS_MAX).collect();
            if !found.is_empty() && self.is_new(&format!("{HIDDEN}{tool}"), digest) {
                self.bus.tell(&self.slug, episode, News::ToolFlagged { tool: tool.to_owned(), found });
            }
        }
    }

    /// What was told of definitions that are no longer there is not kept: there may be ever new ones.
    fn forget_what_is_gone(&self, offered: &Offered) {
        let instructions = offered.instructions_digest();
        let is_there = |tool: &str, found: &Hash| match tool {
            INSTRUCTIONS => instructions == Some(*found),
            tool => offered.digests.get(tool) == Some(found),
        };
        let mut told = self.told.lock().expect("nothing panics while it holds what was told");
        told.retain(|(tool, found)| is_there(tool.strip_prefix(HIDDEN).unwrap_or(tool), found));
    }

    fn is_new(&self, tool: &str, found: Hash) -> bool {
        let mut told = self.told.lock().expect("nothing panics while it holds what was told");
        told.insert((tool.to_owned(), found))
    }
}

/// What a look at an offer finds.
struct Looked {
    /// What waits for a person's word.
    changed: Vec<Changed>,
    /// What a server that was known has for the first time, and is believed.
    appeared: Vec<(String, Hash)>,
    /// How many could not be pinned, since there are too many.
    unpinned: usize,
}

/// What of the changed tools was pinned, as far as the last offer, or what it had kept, still tells.
fn former(changed: &BTreeMap<String, Change>, before: &Offered) -> Vec<Item> {
    if changed.is_empty() {
        return Vec::new();
    }
    let tools: HashMap<&str, &RawValue> =
        before.tools.tools.iter().map(|tool| (tool.name.as_str(), &*tool.definition)).collect();
    let kept: HashMap<&str, &RawValue> =
        before.former.iter().map(|item| (item.key.as_str(), &*item.definition)).collect();
    let said = before.instructions.as_ref().and_then(|said| to_raw_value(said).ok());
    let of = |(tool, change): (&String, &Change)| {
        let pinned = change.pinned?;
        let shown = if tool == INSTRUCTIONS { said.as_deref() } else { tools.get(&**tool).copied() };
        let mut known = shown.into_iter().chain(kept.get(&**tool).copied());
        let definition = known.find(|known| digest(known.get().as_bytes()) == pinned)?;
        Some(Item { key: tool.clone(), definition: definition.to_owned() })
    };
    changed.iter().take(FORMER_MAX).filter_map(of).collect()
}

/// By tool: the digest of its definition.
async fn digests(tools: &[Tool]) -> BTreeMap<String, Hash> {
    let digested = |tools: &[Tool]| -> BTreeMap<String, Hash> {
        tools.iter().map(|tool| (tool.name.clone(), digest(tool.definition.get().as_bytes()))).collect()
    };
    if tools.len() <= DIGESTED_AT_ONCE {
        return digested(tools);
    }
    let tools = tools.to_vec();
    tokio::task::spawn_blocking(move || digested(&tools)).await.unwrap_or_default()
}

/// What a model reads of a tool: its words, wherever they stand.
fn texts(tool: &Tool) -> Vec<String> {
    fn collect(value: &serde_json::Value, texts: &mut Vec<String>) {
        match value {
            serde_json::Value::String(text) => texts.push(text.clone()),
            serde_json::Value::Array(items) => items.iter().for_each(|item| collect(item, texts)),
            serde_json::Value::Object(members) => {
                for (name, value) in members {
                    texts.push(name.clone());
                    collect(value, texts);
                }
            }
            _ => {}
        }
    }
    // Written plainly, nothing can be hidden: no escape, and no byte beyond ASCII.
    let raw = tool.definition.get();
    if raw.bytes().all(|byte| byte.is_ascii() && byte != b'\\') {
        return Vec::new();
    }
    let mut texts = Vec::new();
    if let Ok(value) = serde_json::from_str(raw) {
        collect(&value, &mut texts);
    }
    texts
}
