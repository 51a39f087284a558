//! Pins: what a tool's definition was when somebody first believed it.
//!
//! Owns: the digest of a definition, and what a list of tools means against the pins of its server.
//! Must not know: where pins are kept, and what is done about a tool that changed.

mod canonical;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::ledger::identify;
use super::merkle::Hash;

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

/// What a list of tools means against the pins of its server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Tools that were never seen, with the digests to pin.
    pub new: Vec<(String, Hash)>,
    /// Tools whose definition is not the pinned one.
    pub changed: Vec<Changed>,
    /// How many are as they were.
    pub unchanged: usize,
}

/// A tool whose definition is not the pinned one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// As its server calls it.
    pub tool: String,
    /// The digest that was pinned.
    pub pinned: Hash,
    /// The digest now.
    pub found: Hash,
    /// Whether it cannot be called until it is accepted.
    pub enforced: bool,
}

impl Verdict {
    /// Compares the listed tools, in their order, with the pins as a chronicle gives them. A tool that is
    /// gone keeps its pin: coming back as something else is a change.
    pub fn of<'t>(
        pinned: &BTreeMap<String, Hash>,
        listed: impl IntoIterator<Item = (&'t str, Hash)>,
        enforced: bool,
    ) -> Self {
        let mut verdict = Self::default();
        for (tool, found) in listed {
            match pinned.get(&*identify(tool)) {
                None => verdict.new.push((tool.to_owned(), found)),
                Some(pin) if *pin == found => verdict.unchanged += 1,
                Some(pin) => {
                    let tool = tool.to_owned();
                    verdict.changed.push(Changed { tool, pinned: *pin, found, enforced });
                }
            }
        }
        verdict
    }

    /// Tools that cannot be called until a person accepts them.
    pub fn refused(&self) -> impl Iterator<Item = &str> {
        self.changed.iter().filter(|changed| changed.enforced).map(|changed| &*changed.tool)
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
        assert_eq!(verdict.new, [("new".to_owned(), one)]);
        assert_eq!(verdict.unchanged, 1);
        let changed = |tool: &str| Changed { tool: tool.to_owned(), pinned: one, found: two, enforced: true };
        assert_eq!(verdict.changed, [changed("other"), changed(&long)]);
        assert_eq!(verdict.refused().collect::<Vec<_>>(), ["other", &long]);

        let reported = Verdict::of(&pinned, listed, false);
        assert_eq!((reported.changed.len(), reported.refused().count()), (2, 0));
        assert_eq!(Verdict::of(&pinned, [], true), Verdict::default(), "what is gone keeps its pin");
    }
}
