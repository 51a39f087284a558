//! What a server offers, looked at before anybody sees it: is each tool what it was, and does it hide something?
//!
//! Owns: pinning at first sight, telling and withholding what has changed, flagging hidden characters, and
//! remembering the offer for the next start.
//! Must not know: how the offer was listed, or what it is called to clients.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use crate::domain::audit::{AuditError, CallId};
use crate::domain::chronicle::{Chronicle, Fact};
use crate::domain::event::News;
use crate::domain::hidden::hidden;
use crate::domain::merkle::Hash;
use crate::domain::pin::{Changed, PinnedBy, Verdict, digest};

use super::bus::Bus;
use super::error::Cause;
use super::listing::Tool;
use super::offer::Offered;
use super::remembered;

/// More tools than this are digested where waiting hurts nobody.
const DIGESTED_AT_ONCE: usize = 100;

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
            Ok(changed) => self.tell_changed(&mut offered, changed, episode).await,
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

    /// Pins what is new; gives what is not what it was.
    async fn pinned(&self, offered: &Offered, episode: CallId) -> Result<Vec<Changed>, AuditError> {
        let listed = || offered.digests.iter().map(|(tool, found)| (tool.as_str(), *found));
        let pinned = self.chronicle.pins(&self.name).await?;
        let verdict = Verdict::of(&pinned, listed(), self.enforces);
        if verdict.new.is_empty() {
            return Ok(verdict.changed);
        }
        self.chronicle.pin(episode, &self.name, verdict.new, PinnedBy::FirstSight).await?;
        // Another colibri may have seen it first, and seen something else.
        let pinned = self.chronicle.pins(&self.name).await?;
        Ok(Verdict::of(&pinned, listed(), self.enforces).changed)
    }

    async fn tell_changed(&self, offered: &mut Offered, changed: Vec<Changed>, episode: CallId) {
        for Changed { tool, pinned, found, enforced } in changed {
            offered.changed.insert(tool.clone(), (pinned, found));
            offered.withholds |= enforced;
            if !self.is_new(&tool, found) {
                continue;
            }
            self.bus.tell(
                &self.slug,
                episode,
                News::ToolChanged { tool: tool.clone(), pinned, found, enforced },
            );
            let server = self.name.to_string();
            // A ledger that cannot be written says so itself, to everybody.
            let _ = self
                .chronicle
                .put(episode, Fact::ToolChanged { server, tool, pinned, found, enforced })
                .await;
        }
    }

    fn flag(&self, offered: &Offered, episode: CallId) {
        for tool in &offered.tools.tools {
            let found: Vec<String> =
                texts(tool).iter().flat_map(|text| hidden(text)).map(|run| run.to_string()).collect();
            let digest = offered.digests.get(&tool.name);
            if !found.is_empty()
                && digest.is_some_and(|digest| self.is_new(&format!("{HIDDEN}{}", tool.name), *digest))
            {
                self.bus.tell(&self.slug, episode, News::ToolFlagged { tool: tool.name.clone(), found });
            }
        }
    }

    /// What was told of definitions that are no longer there is not kept: there may be ever new ones.
    fn forget_what_is_gone(&self, offered: &Offered) {
        let is_there = |tool: &str, found: &Hash| offered.digests.get(tool) == Some(found);
        let mut told = self.told.lock().expect("nothing panics while it holds what was told");
        told.retain(|(tool, found)| is_there(tool.strip_prefix(HIDDEN).unwrap_or(tool), found));
    }

    fn is_new(&self, tool: &str, found: Hash) -> bool {
        let mut told = self.told.lock().expect("nothing panics while it holds what was told");
        told.insert((tool.to_owned(), found))
    }
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
