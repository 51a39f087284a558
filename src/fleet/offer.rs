//! What one server offers, as it said it: tools, resources, templates, prompts, and words about itself.
//!
//! Owns: that snapshot. It is made by listing, published by the supervisor, and put together with those
//! of all others by the catalog.
//! Must not know: names that clients see, filters, other servers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::domain::merkle::Hash;
use crate::domain::pin::{Change, INSTRUCTIONS, digest_of_instructions};

use super::listing::Tools;

/// The offer of one server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Offered {
    /// Its tools.
    pub tools: Tools,
    /// Its resources, by URI, in its order.
    pub resources: Vec<Item>,
    /// Its templates of resources, by URI template, in its order.
    pub templates: Vec<Item>,
    /// Its prompts, by name, in its order.
    pub prompts: Vec<Item>,
    /// What of its resources, templates and prompts is unusable, each with the reason.
    pub left_out: Vec<String>,
    /// What it said of itself in the handshake, for models.
    pub instructions: Option<String>,
    /// What else it can do.
    pub abilities: Abilities,
    /// By tool: the digest of its definition.
    pub digests: BTreeMap<String, Hash>,
    /// Tools that wait for a person's word, and the instructions, if they do, under [`INSTRUCTIONS`].
    pub changed: BTreeMap<String, Change>,
    /// What of these was pinned, as far as it is still known, under the same names.
    pub former: Vec<Item>,
    /// Whether these cannot be called until their new definition is accepted.
    pub withholds: bool,
    /// How many are not pinned, since there are too many.
    pub unpinned: usize,
}

impl Offered {
    /// Whether a tool cannot be called until its new definition is accepted.
    pub(super) fn is_withheld(&self, tool: &str) -> bool {
        self.withholds && self.changed.contains_key(tool)
    }

    /// The digest of what it says of itself, if it says anything.
    pub(super) fn instructions_digest(&self) -> Option<Hash> {
        let said = self.instructions.as_deref().filter(|said| !said.trim().is_empty());
        said.map(digest_of_instructions)
    }

    /// What it says of itself, unless that has to be accepted first.
    pub(super) fn shown_instructions(&self) -> Option<&str> {
        self.instructions.as_deref().filter(|_| !self.is_withheld(INSTRUCTIONS))
    }
}

/// What a server's capabilities say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "the protocol has as many")]
pub struct Abilities {
    /// It has resources.
    pub resources: bool,
    /// It tells of changes of single resources, to who subscribes.
    pub subscribe: bool,
    /// It has prompts.
    pub prompts: bool,
    /// It completes arguments.
    pub completions: bool,
    /// It sends log messages.
    pub logging: bool,
}

/// Something that a server lists, under the key its server knows it by.
#[derive(Clone, Debug)]
pub struct Item {
    /// A URI, a URI template, or a name.
    pub key: String,
    /// Its whole definition, raw: fields that colibri does not know survive.
    pub definition: Box<RawValue>,
}

impl PartialEq for Item {
    fn eq(&self, other: &Self) -> bool {
        self.definition.get() == other.definition.get()
    }
}
