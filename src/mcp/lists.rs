//! The lists: pages bounded by bytes. Tools in the order of names; the rest by server, then by key.
//!
//! A cursor is the last name of its page, so it needs no memory of the client and stays good when
//! tools come and go between two pages.

mod tools;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

use crate::domain::offer::{Entry, Kind};

use super::answer::{Identity, cache_hints, write};
use super::error::Error;
use super::revision::Revision;

pub use tools::ToolList;

/// One page of a list. Well below any client's frame limit.
pub const PAGE_BYTES_MAX: usize = 1 << 20;

/// About what an entry takes. Only memory is planned with it: a wrong guess costs a copy.
const ENTRY_BYTES: usize = 512;

/// Room for what follows the entries of a full page, and for the one that is found not to fit.
const TAIL_BYTES: usize = 4096;

/// Tells a cursor of ours from any other base64.
const CURSOR_PREFIX: &str = "after:";

/// The result of `resources/list`, `resources/templates/list` or `prompts/list`, as raw JSON: what servers offer,
/// without colibri's own. The entries of a server stand together, ordered by their keys.
pub fn entries(
    kind: Kind,
    listed: &[Arc<Entry>],
    cursor: Option<&str>,
    identity: &Identity,
    revision: &Revision,
    page_bytes_max: usize,
) -> Result<Vec<u8>, Error> {
    let start = cursor.map_or(Ok(0), |cursor| behind(listed, cursor))?;
    let page = Page::begin(member(kind), b"", page_bytes_max, listed.len() - start);
    Ok(fill(page, &listed[start..], Map::new(), identity, revision))
}

/// The last page of colibri's own resources, with those of servers behind them. `own` is the array, raw; `more` is
/// what else the result says.
pub fn behind_own(
    own: &[u8],
    listed: &[Arc<Entry>],
    more: Map<String, Value>,
    identity: &Identity,
    revision: &Revision,
) -> Vec<u8> {
    let own = own.trim_ascii().strip_prefix(b"[").and_then(|own| own.strip_suffix(b"]")).unwrap_or_default();
    let page = Page::begin(member(Kind::Resources), own.trim_ascii(), PAGE_BYTES_MAX, listed.len());
    fill(page, listed, more, identity, revision)
}

/// Whether a cursor is one of [`entries`]; colibri's own resources have others.
pub fn is_of_entries(cursor: &str) -> bool {
    decode(cursor).is_some()
}

fn member(kind: Kind) -> &'static str {
    match kind {
        Kind::Resources => "resources",
        Kind::Templates => "resourceTemplates",
        Kind::Prompts => "prompts",
    }
}

fn fill(
    mut page: Page,
    listed: &[Arc<Entry>],
    more: Map<String, Value>,
    identity: &Identity,
    revision: &Revision,
) -> Vec<u8> {
    let shown = listed.iter().take_while(|entry| page.add(|out| out.extend_from_slice(&entry.definition)));
    let shown = shown.count();
    // Of a page that had room for none, the first is the next.
    let next = (shown < listed.len()).then(|| {
        let last = shown.checked_sub(1).map(|last| &listed[last]);
        last.map_or_else(|| encode(""), |last| encode(&format!("{} {}", last.server, last.key)))
    });
    page.end(next, more, identity, revision)
}

/// Where to go on: behind the entry that a cursor names, or behind where it would be.
fn behind(listed: &[Arc<Entry>], cursor: &str) -> Result<usize, Error> {
    let last = decode(cursor).ok_or_else(not_ours)?;
    if last.is_empty() {
        return Ok(0);
    }
    let (server, key) = last.split_once(' ').ok_or_else(not_ours)?;
    let first = listed.iter().position(|entry| *entry.server == *server);
    let first =
        first.ok_or_else(|| Error::invalid_params("the list has changed: read it from the beginning"))?;
    let passed = listed[first..].iter().take_while(|entry| *entry.server == *server && *entry.key <= *key);
    Ok(first + passed.count())
}

fn not_ours() -> Error {
    Error::invalid_params("invalid cursor: use `nextCursor` of the page before, unchanged")
}

/// A list under way, bounded by bytes.
struct Page {
    out: Vec<u8>,
    is_empty: bool,
    bytes_max: usize,
}

impl Page {
    /// A page with something in it already, or nothing. Its memory is taken at once, so that a long list is not
    /// copied again and again while it grows.
    fn begin(member: &str, own: &[u8], bytes_max: usize, entries: usize) -> Self {
        let room = entries.saturating_mul(ENTRY_BYTES).min(bytes_max) + own.len() + TAIL_BYTES;
        let mut out = Vec::with_capacity(room);
        for part in [b"{\"", member.as_bytes(), b"\":[", own] {
            out.extend_from_slice(part);
        }
        Self { out, is_empty: own.is_empty(), bytes_max }
    }

    /// Whether it fits; the first always does.
    fn add(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        let before = self.out.len();
        if !self.is_empty {
            self.out.push(b',');
        }
        write(&mut self.out);
        let fits = self.is_empty || self.out.len() <= self.bytes_max;
        if !fits {
            self.out.truncate(before);
        }
        self.is_empty = false;
        fits
    }

    fn end(
        self,
        next: Option<String>,
        more: Map<String, Value>,
        identity: &Identity,
        revision: &Revision,
    ) -> Vec<u8> {
        let mut out = self.out;
        out.push(b']');
        let mut rest = Map::new();
        if let Some(next) = next {
            rest.insert("nextCursor".to_owned(), Value::from(next));
        }
        cache_hints(&mut rest, revision);
        if identity.servers && revision.cache_hints {
            // Servers come, go and change their lists, and a modern client is told only if it listens.
            rest.insert("ttlMs".to_owned(), Value::from(0));
        }
        identity.sign(&mut rest, revision);
        rest.extend(more);
        for (key, value) in &rest {
            out.push(b',');
            write(&mut out, key);
            out.push(b':');
            write(&mut out, value);
        }
        out.push(b'}');
        out
    }
}

fn encode(last: &str) -> String {
    URL_SAFE_NO_PAD.encode(format!("{CURSOR_PREFIX}{last}"))
}

fn decode(cursor: &str) -> Option<String> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()?;
    text.strip_prefix(CURSOR_PREFIX).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::revision::MODERN;
    use super::*;

    /// PR-12: the pages of what servers offer add up too, and a cursor stays good when entries come and go.
    #[test]
    fn the_pages_of_entries_add_up() {
        let entry = |server: &str, n: usize| {
            let (key, definition) =
                (format!("u:{n:02}").into(), format!(r#"{{"n":"{server}{n:02}"}}"#).into());
            Arc::new(Entry { key, server: server.into(), own: "own".into(), definition })
        };
        let all: Vec<_> = (0..40).map(|n| entry(if n < 20 { "z" } else { "a" }, n)).collect();
        let identity =
            Identity { version: "1".to_owned(), instructions: String::new(), skills: false, servers: true };
        let page = |listed: &[Arc<Entry>], cursor: Option<&str>, bytes| {
            entries(Kind::Prompts, listed, cursor, &identity, &MODERN, bytes)
                .map(|page| serde_json::from_slice::<Value>(&page).unwrap())
        };
        for bytes in [0, 60, 300, PAGE_BYTES_MAX] {
            let (mut seen, mut cursor) = (Vec::new(), None::<String>);
            loop {
                let page = page(&all, cursor.as_deref(), bytes).unwrap();
                assert_eq!((&page["ttlMs"], &page["resultType"]), (&json!(0), &json!("complete")));
                seen.extend(page["prompts"].as_array().unwrap().clone());
                cursor = page.get("nextCursor").map(|next| next.as_str().unwrap().to_owned());
                if cursor.is_none() {
                    break;
                }
            }
            let expected: Vec<Value> =
                all.iter().map(|e| serde_json::from_slice(&e.definition).unwrap()).collect();
            assert_eq!(seen, expected);
        }
        let cursor = encode("z u:18");
        let without: Vec<_> = all.iter().filter(|entry| &*entry.key != "u:18").cloned().collect();
        assert_eq!(page(&without, Some(&cursor), 0).unwrap()["prompts"], json!([{ "n": "z19" }]));
        for wrong in [encode("nobody u:1"), encode("odd"), "odd".to_owned()] {
            assert_eq!(page(&all, Some(&wrong), 0).unwrap_err().code, -32602);
        }
        // A page that is full of colibri's own leads to the first of the servers'.
        let own = format!("[\"{}\"]", "x".repeat(PAGE_BYTES_MAX));
        let full = behind_own(own.as_bytes(), &all, Map::new(), &identity, &MODERN);
        let full: Value = serde_json::from_slice(&full).unwrap();
        assert_eq!(full["resources"].as_array().unwrap().len(), 1);
        let next = page(&all, full["nextCursor"].as_str(), 0).unwrap();
        assert_eq!(next["prompts"], json!([{ "n": "z00" }]));
    }
}
