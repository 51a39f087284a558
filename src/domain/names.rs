//! What a server's tools, prompts and resources are called to clients, and the way back.
//!
//! Owns: slugs, exposed names, their length limit, collisions, and the URIs of resources that two
//! servers offer.
//! Must not know: what a tool is, or who may call it.

mod template;
mod uri;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::log::visible;

pub use template::made_from;
pub use uri::{Uris, aliased, original};

/// What stands between a server and its tool.
pub const SEPARATOR: &str = "__";

/// Clients put `mcp__colibri__` in front, and models read no name longer than 64.
pub const NAME_CHARS_DEFAULT: usize = 50;

/// Below this nothing readable is left beside the hash.
pub const NAME_CHARS_MIN: usize = 24;

/// Of the hash that makes a shortened name unique.
const HASH_CHARS: usize = 8;

/// How a server's tools are named to clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Naming {
    /// `server__tool`.
    #[default]
    Prefixed,
    /// The tool's own name; two servers that offer the same name are refused.
    Plain,
}

/// What a configured name becomes, so that the first `__` of a tool's name always splits it:
/// `[A-Za-z0-9][A-Za-z0-9_-]*` without `__`, not ending in `_`. `None` if nothing is left.
pub fn slug(name: &str) -> Option<String> {
    let mut slug = String::with_capacity(name.len());
    for c in name.chars() {
        let c = if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
        let fits = if slug.is_empty() { c.is_ascii_alphanumeric() } else { c != '_' || !slug.ends_with('_') };
        slug.extend(fits.then_some(c));
    }
    slug.truncate(slug.trim_end_matches('_').len());
    (!slug.is_empty()).then_some(slug)
}

/// The server's slug and the rest, split at the first `__`. Only a table of names knows what the rest
/// stands for; this tells whose it would be.
pub fn split(exposed: &str) -> Option<(&str, &str)> {
    exposed.split_once(SEPARATOR).filter(|(server, _)| !server.is_empty())
}

/// What a tool is called to clients: `server__tool`, or its own name.
///
/// Made of `[A-Za-z0-9_-]` alone, because a model's API may refuse a whole request for one other
/// character. A name with others, or a longer one, keeps its head and gets a hash of the whole, so
/// that it stays the same whatever else the server offers. `server` is a slug.
pub fn exposed(naming: Naming, chars_max: usize, server: &str, tool: &str) -> String {
    let chars_max = chars_max.max(NAME_CHARS_MIN);
    let whole = match naming {
        Naming::Prefixed => format!("{server}{SEPARATOR}{tool}"),
        Naming::Plain => tool.to_owned(),
    };
    if !tool.is_empty() && whole.len() <= chars_max && whole.bytes().all(is_plain) {
        return whole;
    }
    let prefix = if naming == Naming::Prefixed { server.len() + SEPARATOR.len() } else { 0 };
    let room = chars_max - HASH_CHARS - 1;
    let hash = hash(&whole);
    if prefix > room {
        // The server's name alone fills it: its head, then the hash in the tool's place.
        let head = server[..chars_max - HASH_CHARS - SEPARATOR.len()].trim_end_matches('_');
        return format!("{head}{SEPARATOR}{hash}");
    }
    let head = whole.chars().map(|c| if u8::try_from(c).is_ok_and(is_plain) { c } else { '_' });
    let head: String = head.take(room).collect();
    let head = &head[..head.trim_end_matches('_').len().max(prefix)];
    let join = if head.len() == prefix { "" } else { "_" };
    format!("{head}{join}{hash}")
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

fn hash(whole: &str) -> String {
    let digest: [u8; 32] = Sha256::digest(whole).into();
    super::merkle::Hash(digest).to_string()[..HASH_CHARS].to_owned()
}

/// A table of names: what is offered by whom, and what each is called. One for tools, one for prompts.
#[derive(Clone, Debug)]
pub struct Names {
    naming: Naming,
    chars_max: usize,
    taken: HashSet<Arc<str>>,
    owners: HashMap<Arc<str>, Owner>,
}

/// Whose a name is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The server's slug.
    pub server: Arc<str>,
    /// The tool's own name, exactly as its server knows it.
    pub tool: Arc<str>,
}

/// A tool that cannot be offered, because its name is somebody else's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Collision {
    /// The name it would have.
    pub exposed: Arc<str>,
    /// Who is left out.
    pub refused: Owner,
    /// Who has the name; `None` if it is colibri's own.
    pub keeper: Option<Owner>,
}

impl fmt::Display for Collision {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Owner { server, tool } = &self.refused;
        write!(out, "`{}` of server `{server}` is not offered: ", visible(tool))?;
        match &self.keeper {
            Some(keeper) if *keeper == self.refused => write!(out, "the server lists it twice"),
            Some(Owner { server, tool }) => {
                let (exposed, tool) = (&self.exposed, visible(tool));
                write!(out, "the name `{exposed}` belongs to `{tool}` of server `{server}`")
            }
            None => write!(out, "the name `{}` is colibri's own", self.exposed),
        }
    }
}

impl Names {
    /// An empty table. A limit below [`NAME_CHARS_MIN`] counts as that.
    pub fn new(naming: Naming, chars_max: usize) -> Self {
        Self { naming, chars_max, taken: HashSet::new(), owners: HashMap::new() }
    }

    /// Keeps a name for colibri itself.
    pub fn reserve(&mut self, name: &str) {
        self.taken.insert(name.into());
    }

    /// Names one tool of one server. Whoever comes first keeps a name, so add servers in the order of
    /// the configuration: a server that is added to the end can take nothing from those before it.
    pub fn add(&mut self, server: &Arc<str>, tool: &str) -> Result<Arc<str>, Collision> {
        let exposed: Arc<str> = exposed(self.naming, self.chars_max, server, tool).into();
        let owner = Owner { server: Arc::clone(server), tool: tool.into() };
        if !self.taken.insert(Arc::clone(&exposed)) {
            let keeper = self.owners.get(&exposed).cloned();
            return Err(Collision { exposed, refused: owner, keeper });
        }
        self.owners.insert(Arc::clone(&exposed), owner);
        Ok(exposed)
    }

    /// Whose a name is, exactly.
    pub fn owner(&self, exposed: &str) -> Option<&Owner> {
        self.owners.get(exposed)
    }

    /// How many names are given.
    pub fn len(&self) -> usize {
        self.owners.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// PR-3: `server__tool`; what is too long or has odd characters keeps its head and gets a hash.
    #[test]
    fn exposed_names() {
        let check = |server: &str, tool: &str, expected: &str| {
            assert_eq!(exposed(Naming::Prefixed, 50, server, tool), expected, "{server} {tool}");
        };
        check("github", "get_issue", "github__get_issue");
        check("github", "_x__y", "github___x__y"); // Still split at the first `__`.
        check("s", &"t".repeat(47), &format!("s__{}", "t".repeat(47)));
        check("s", &"t".repeat(48), &format!("s__{}_065795c2", "t".repeat(38)));
        check("fs", "fs.read", "fs__fs_read_c6dfadd5");
        check("fs", "fs.write", "fs__fs_write_18151730");
        check("fs", "fs_read", "fs__fs_read");
        check("fs", "", "fs__7d39bcb4");
        check("fs", "é", "fs__4d25a554");
        check(&"s".repeat(39), "tool_names", &format!("{}__017702d0", "s".repeat(39)));
        check(&"s".repeat(60), "tool", &format!("{}__ed32c4c2", "s".repeat(40)));
        assert_eq!(exposed(Naming::Plain, 50, "github", "get_issue"), "get_issue");
        assert_eq!(exposed(Naming::Plain, 50, "github", "get.issue"), "get_issue_e799ff3e");
        assert_eq!(exposed(Naming::Plain, 50, "github", "..."), "ab5df625");
        assert_eq!(exposed(Naming::Plain, 0, "s", &"t".repeat(25)).len(), NAME_CHARS_MIN);
    }

    /// PR-3: collisions are detected and reported; the first keeps the name.
    #[test]
    fn collisions_are_named() {
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let mut names = Names::new(Naming::Plain, 50);
        names.reserve("server_ping");
        assert_eq!(names.add(&a, "read").unwrap().as_ref(), "read");
        let refused = |names: &mut Names, server, tool| names.add(server, tool).unwrap_err().to_string();
        assert_eq!(
            refused(&mut names, &b, "read"),
            "`read` of server `b` is not offered: the name `read` belongs to `read` of server `a`"
        );
        assert_eq!(
            refused(&mut names, &a, "read"),
            "`read` of server `a` is not offered: the server lists it twice"
        );
        assert_eq!(
            refused(&mut names, &b, "server_ping"),
            "`server_ping` of server `b` is not offered: the name `server_ping` is colibri's own"
        );
        assert_eq!(names.owner("read").unwrap().server, a);
        assert_eq!((names.owner("server_ping"), names.len(), names.is_empty()), (None, 1, false));

        let mut names = Names::new(Naming::Prefixed, 50);
        names.add(&a, "read").unwrap();
        names.add(&b, "read").unwrap();
        // A tool that is named like the shortened name of another.
        let short = names.add(&a, "x.y").unwrap();
        let twin = short.strip_prefix("a__").unwrap();
        let told = names.add(&a, twin).unwrap_err().to_string();
        assert!(told.ends_with("belongs to `x.y` of server `a`"), "{told}");
        assert_eq!(names.owner(&short).unwrap().tool.as_ref(), "x.y");
        assert_eq!(split("a__x__y"), Some(("a", "x__y")));
        assert_eq!((split("server_ping"), split("__x")), (None, None));
    }

    proptest! {
        /// PR-3: every name fits every client, splits at its server, is the same again, and leads back.
        #[test]
        fn the_way_back_is_exact(pairs in prop::collection::vec(("[A-Za-z0-9_ .-]{1,70}", "\\PC{0,60}|[a-z_.]{0,6}"), 0..15), limit in 0..80_usize) {
            let mut names = Names::new(Naming::Prefixed, limit);
            let mut given: HashMap<Arc<str>, (String, String)> = HashMap::new();
            for (server, tool) in &pairs {
                let Some(server) = slug(server).map(Arc::<str>::from) else { continue };
                match names.add(&server, tool) {
                    Ok(name) => {
                        prop_assert!(name.len() <= limit.max(NAME_CHARS_MIN) && name.bytes().all(is_plain), "{}", name);
                        let (head, rest) = split(&name).unwrap();
                        prop_assert!(server.starts_with(head) && !rest.is_empty());
                        prop_assert!(head == &*server || server.len() + 2 > limit.max(NAME_CHARS_MIN) - 9);
                        prop_assert!(given.insert(name, (server.to_string(), tool.clone())).is_none());
                    }
                    Err(collision) => prop_assert!(given.contains_key(&collision.exposed)),
                }
            }
            for (name, (server, tool)) in &given {
                let owner = names.owner(name).unwrap();
                prop_assert_eq!((&*owner.server, &*owner.tool), (server.as_str(), tool.as_str()));
            }
        }
    }
}
