//! The URIs of resources: listed as they are, and told apart where two servers offer the same one.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

const SCHEME: &str = "colibri://";

/// Colibri's own resources.
const SKILLS: &str = "skill://";

/// `colibri://SERVER/<encoded>`: a URI of that server and no other. `server` is a slug.
pub fn aliased(server: &str, uri: &str) -> String {
    let mut alias = String::with_capacity(SCHEME.len() + server.len() + 1 + uri.len() * 2);
    alias.push_str(SCHEME);
    alias.push_str(server);
    alias.push('/');
    for byte in uri.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            alias.push(char::from(byte));
        } else {
            write!(alias, "%{byte:02X}").expect("a String takes everything");
        }
    }
    alias
}

/// The server and its own URI, if this is an alias.
pub fn original(alias: &str) -> Option<(&str, String)> {
    let (server, encoded) = alias.strip_prefix(SCHEME)?.split_once('/')?;
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let mut digit =
                || char::from(rest.next()?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            bytes.push(digit()? << 4 | digit()?);
        } else {
            bytes.push(byte);
        }
    }
    Some((server, String::from_utf8(bytes).ok().filter(|uri| !uri.is_empty())?))
}

/// A table of the resources that servers list.
#[derive(Clone, Debug, Default)]
pub struct Uris {
    owners: HashMap<Arc<str>, Arc<str>>,
}

impl Uris {
    /// How one resource of one server is listed: as it is, or as an alias where an earlier server has
    /// it already. Add servers in the order of the configuration.
    pub fn add(&mut self, server: &Arc<str>, uri: &str) -> Arc<str> {
        // A server that names a resource like an alias could pose as another server's; or as colibri.
        let begins =
            |scheme: &str| uri.get(..scheme.len()).is_some_and(|head| head.eq_ignore_ascii_case(scheme));
        let poses = begins(SCHEME) || begins(SKILLS);
        if !poses && self.owners.get(uri).is_none_or(|owner| owner == server) {
            let listed: Arc<str> = uri.into();
            self.owners.insert(Arc::clone(&listed), Arc::clone(server));
            return listed;
        }
        aliased(server, uri).into()
    }

    /// Whose resource is meant, and what its server calls it. An alias names any server, listed or
    /// not: whether there is such a server and such a resource is for them to say.
    pub fn resolve(&self, uri: &str) -> Option<(Arc<str>, String)> {
        if let Some((server, uri)) = original(uri) {
            return Some((server.into(), uri));
        }
        self.owners.get(uri).map(|server| (Arc::clone(server), uri.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// PR-12: the first keeps the URI, the others get an alias, and both forms are read.
    #[test]
    fn two_servers_with_one_resource() {
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let mut uris = Uris::default();
        let file = "file:///tmp/a%20b?x=é";
        let alias = "colibri://b/file%3A%2F%2F%2Ftmp%2Fa%2520b%3Fx%3D%C3%A9";
        assert_eq!(uris.add(&a, file).as_ref(), file);
        assert_eq!(uris.add(&b, file).as_ref(), alias);
        assert_eq!(uris.add(&a, file).as_ref(), file, "its own is no collision");
        let check = |uri: &str, expected: Option<(&str, &str)>| {
            let resolved = uris.resolve(uri);
            let resolved = resolved.as_ref().map(|(server, uri)| (server.as_ref(), uri.as_str()));
            assert_eq!(resolved, expected, "{uri}");
        };
        check(file, Some(("a", file)));
        check(alias, Some(("b", file)));
        check(&alias.replace("/b/", "/a/").to_lowercase(), Some(("a", file)));
        for nothing in [
            "file:///other",
            "colibri://b",
            "colibri://b/",
            "colibri://b/%",
            "colibri://b/%zz",
            "colibri://b/%FF",
            "Colibri://b/x",
        ] {
            check(nothing, None);
        }
    }

    /// PR-12: a server cannot pose as another by naming its resources like aliases.
    #[test]
    fn an_alias_of_an_alias() {
        let evil: Arc<str> = "evil".into();
        let mut uris = Uris::default();
        for posed in ["colibri://good/file%3A%2F%2Fx", "COLIBRI://good/x", "skill://good/SKILL.md"] {
            let listed = uris.add(&evil, posed);
            assert!(listed.starts_with("colibri://evil/"), "{listed}");
            assert_eq!(uris.resolve(&listed), Some((Arc::clone(&evil), posed.to_owned())));
        }
        let posed = uris.resolve("colibri://good/file%3A%2F%2Fx").unwrap();
        assert_eq!(posed, ("good".into(), "file://x".to_owned()));
    }

    proptest! {
        /// PR-12: an alias leads back to exactly its resource.
        #[test]
        fn the_way_back_is_exact(server in "[A-Za-z0-9_-]{1,20}", uri in "\\PC{1,40}") {
            let alias = aliased(&server, &uri);
            prop_assert_eq!(original(&alias), Some((server.as_str(), uri)));
            prop_assert!(alias.is_ascii());
        }
    }
}
