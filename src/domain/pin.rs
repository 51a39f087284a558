//! Pins: what a tool's definition was when somebody first believed it.
//!
//! Owns: the digest of a definition, and what a list of tools means against the pins of its server.
//! Must not know: where pins are kept, and what is done about a tool that changed.

mod canonical;
mod difference;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::ledger::identify;
use super::merkle::Hash;

pub use self::difference::{Difference, differences, readable};

/// What a server's instructions are pinned under. No tool is listed by this name.
pub const INSTRUCTIONS: &str = "(instructions)";

/// As many definitions of one server are pinned for being seen: twice what one list may hold. A server that
/// comes up with ever new names must not fill the database; a person's word is not counted.
pub const SEEN_MAX: usize = 40_000;

/// Stands before the bytes of a definition that has no canonical form. No JSON begins so.
const RAW: &[u8] = b"raw\n";

/// Why a definition was believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PinnedBy {
    /// It was the first of its name.
    FirstSight,
    /// A person accepted it.
    Accepted,
}

/// The digest of a tool's definition, raw as its server gave it: SHA-256 over its canonical form
/// (RFC 8785), so that another order or spelling is no change. A definition that means different things
/// to different readers (a key twice, a number that some round) has no such form; then every byte
/// counts.
pub fn digest(definition: &[u8]) -> Hash {
    Hash(match canonical::canonical(definition) {
        Some(canonical) => Sha256::digest(canonical).into(),
        None => Sha256::new().chain_update(RAW).chain_update(definition).finalize().into(),
    })
}

/// The digest of instructions: that of the text as JSON. No definition of a tool is a JSON text.
pub fn digest_of_instructions(text: &str) -> Hash {
    digest(&serde_json::to_vec(text).expect("a text always serialises"))
}

/// One digest for several definitions: that of the JSON object that has, by tool, the digest of each.
pub fn digest_of_all<'t>(tools: impl IntoIterator<Item = (&'t str, Hash)>) -> Hash {
    let all: BTreeMap<&str, Hash> = tools.into_iter().collect();
    digest(&serde_json::to_vec(&all).expect("texts always serialise"))
}

/// What a list of tools means against the pins of its server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Tools that were never seen and are believed for that, with the digests to pin.
    pub new: Vec<(String, Hash)>,
    /// Tools that wait for a person's word: their definition is not the pinned one, or they are new where
    /// pins are enforced.
    pub changed: Vec<Changed>,
    /// Whether anything of this server was pinned before.
    pub is_known: bool,
}

/// A tool that waits for a person's word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// As its server calls it.
    pub tool: String,
    /// What it is and was.
    pub change: Change,
    /// Whether it cannot be called until it is accepted.
    pub enforced: bool,
}

/// What a definition was, and what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The digest that was pinned; none for a tool that is new.
    pub pinned: Option<Hash>,
    /// The digest now.
    pub found: Hash,
}

impl Change {
    /// One word for it.
    pub fn kind(&self) -> &'static str {
        kind(self.pinned)
    }
}

/// One word for a change, by what was pinned.
pub(super) fn kind(pinned: Option<Hash>) -> &'static str {
    if pinned.is_some() { "changed" } else { "new" }
}

impl Verdict {
    /// Compares the listed tools, in their order, with the pins as a chronicle gives them. A server of which
    /// nothing is pinned is seen for the first time, and believed. Later, a new name is believed only where
    /// pins are not enforced: a tool that was changed could come under another name. A tool that is gone
    /// keeps its pin: coming back as something else is a change.
    pub fn of<'t>(
        pinned: &BTreeMap<String, Hash>,
        listed: impl IntoIterator<Item = (&'t str, Hash)>,
        enforced: bool,
    ) -> Self {
        let mut verdict = Self { is_known: !pinned.is_empty(), ..Self::default() };
        for (tool, found) in listed {
            let pinned = pinned.get(&*identify(tool)).copied();
            match pinned {
                None if !(enforced && verdict.is_known) => verdict.new.push((tool.to_owned(), found)),
                Some(pin) if pin == found => {}
                pinned => {
                    let (tool, change) = (tool.to_owned(), Change { pinned, found });
                    verdict.changed.push(Changed { tool, change, enforced });
                }
            }
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SU-4: two spellings of one definition pin equal, and two definitions never do.
    #[test]
    fn a_digest_is_of_what_is_meant() {
        let same = |one: &str, other: &str| digest(one.as_bytes()) == digest(other.as_bytes());
        let definition = r#"{"name":"a","inputSchema":{"type":"object","maximum":1}}"#;
        for spelling in [
            r#"{"inputSchema": {"maximum":1.0, "type":"object"}, "name":"\u0061"}"#,
            "\n{\"name\":\"a\",\t\"inputSchema\":{\"type\":\"object\",\"maximum\":1e0}}",
        ] {
            assert!(same(definition, spelling), "{spelling}");
        }
        for other in [
            r#"{"name":"a","inputSchema":{"type":"object","maximum":2}}"#,
            r#"{"name":"a","inputSchema":{"type":"object","maximum":"1"}}"#,
            r#"{"name":"a","inputSchema":{"type":"object","maximum":1},"description":""}"#,
            r#"{"name":"a","name":"a","inputSchema":{"type":"object","maximum":1}}"#,
            r#"{"name":"a ","inputSchema":{"type":"object","maximum":1}}"#,
        ] {
            assert!(!same(definition, other), "{other}");
        }
        // Readers disagree about these, so their bytes are what is pinned.
        assert!(!same(r#"{"a":1,"a":2}"#, r#"{"a":2}"#), "a key twice");
        assert!(!same(r#"{"a":1,"a":2}"#, r#"{"a":1, "a":2}"#), "a key twice, spelt otherwise");
        assert!(!same(r#"{"a":9007199254740993}"#, r#"{"a":9007199254740992}"#), "some round it");
        assert!(same(r#"{"a":9007199254740993}"#, r#"{"a":9007199254740993}"#));
    }

    /// SU-4: anybody can make the digest again, with any canonicaliser and `sha256sum`.
    #[test]
    fn a_digest_is_sha_256_of_canonical_json() {
        let definition = serde_json::json!({ "z": [1, 0.5, true, null], "a": "é\u{2028}\n", "é": {} });
        let canonical = serde_json_canonicalizer::to_vec(&definition).unwrap();
        assert_eq!(digest(definition.to_string().as_bytes()), Hash(Sha256::digest(canonical).into()));
    }

    /// SU-4: new, changed and unchanged are told apart, also when a name is too long for a record.
    #[test]
    fn a_list_is_compared_with_its_pins() {
        let (one, two) = (digest(b"1"), digest(b"2"));
        let long = "x".repeat(1_000);
        let pinned = BTreeMap::from([
            ("same".to_owned(), one),
            ("other".to_owned(), one),
            ("gone".to_owned(), one),
            (identify(&long).into_owned(), one),
        ]);
        let listed = [("new", one), ("same", one), ("other", two), (&long, two)];
        let verdict = Verdict::of(&pinned, listed, true);
        assert!(verdict.new.is_empty());
        let changed = |tool: &str, pinned: Option<Hash>, found: Hash| Changed {
            tool: tool.to_owned(),
            change: Change { pinned, found },
            enforced: true,
        };
        let expected =
            [changed("new", None, one), changed("other", Some(one), two), changed(&long, Some(one), two)];
        assert_eq!(verdict.changed, expected);
        let kinds: Vec<_> = verdict.changed.iter().map(|changed| changed.change.kind()).collect();
        assert_eq!(kinds, ["new", "changed", "changed"]);

        let reported = Verdict::of(&pinned, listed, false);
        assert_eq!((reported.new, reported.changed.len()), (vec![("new".to_owned(), one)], 2));
        let gone = Verdict { is_known: true, ..Verdict::default() };
        assert_eq!(Verdict::of(&pinned, [], true), gone, "what is gone keeps its pin");
        let first = Verdict::of(&BTreeMap::new(), listed, true);
        assert_eq!((first.new.len(), first.changed.len(), first.is_known), (4, 0, false));
    }

    /// SU-4: what is accepted together has one digest, whatever its order; instructions are no tool.
    #[test]
    fn several_have_one_digest() {
        let (one, two) = (digest(b"{}"), digest(b"[]"));
        let all = digest_of_all([("b", two), ("a", one)]);
        assert_eq!(all, digest_of_all([("a", one), ("b", two)]));
        assert_eq!(all, digest(format!(r#"{{"a":"{one}","b":"{two}"}}"#).as_bytes()));
        assert_ne!(all, digest_of_all([("a", two), ("b", one)]));
        assert_eq!(digest_of_instructions("Be kind."), digest(br#""Be kind.""#));
    }
}
