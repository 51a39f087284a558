//! Whose a prompt or a resource is.
//!
//! Owns: the way from what a client names to the server that has it, and to the name it has there.
//! Must not know: what is then asked of the server, or who asks.

use std::sync::Arc;

use crate::domain::names::{original, split};
use crate::domain::nearest::nearest;
use crate::domain::offer::Kind;

use super::catalog::Catalog;
use super::roster::{Failed, Fleet};

/// What a client may name, beside a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named<'a> {
    /// A prompt, by its name.
    Prompt(&'a str),
    /// A resource, by its URI.
    Resource(&'a str),
    /// A template of resources, or a resource.
    Template(&'a str),
}

/// Where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The server's slug.
    pub server: Arc<str>,
    /// What its server calls it.
    pub own: String,
}

impl Fleet {
    /// Whether there is any server, ready or not.
    pub fn has_servers(&self) -> bool {
        !self.ships().list.is_empty()
    }

    /// The server that has it. One that has never listed in this run what it offers is waited for first, where the
    /// name says which it is. Nothing, if nobody has it.
    pub async fn seek(&self, named: Named<'_>) -> Result<Option<Place>, Failed> {
        let known = named.place(&self.catalog().borrow());
        let slug = known.as_ref().map(|place| &*place.server).or_else(|| named.slug());
        let Some(ship) = slug.and_then(|slug| self.ships().get(slug).cloned()) else { return Ok(None) };
        self.met(&ship, ship.until(ship.clock.now(), None)).await?;
        Ok(named.place(&self.catalog().borrow()))
    }

    /// What may have been meant by a name that nobody has.
    pub fn nearest_to(&self, named: Named<'_>) -> Option<String> {
        let catalog = Arc::clone(&self.catalog().borrow());
        let (name, kinds): (_, &[Kind]) = match named {
            Named::Prompt(name) => (name, &[Kind::Prompts]),
            Named::Resource(uri) => (uri, &[Kind::Resources]),
            Named::Template(uri) => (uri, &[Kind::Templates, Kind::Resources]),
        };
        let known = kinds.iter().flat_map(|kind| catalog.entries(*kind).iter().map(|entry| &*entry.key));
        nearest(name, known).map(str::to_owned)
    }
}

impl Named<'_> {
    fn place(&self, catalog: &Catalog) -> Option<Place> {
        let listed = match self {
            Self::Prompt(name) => catalog.prompt(name),
            Self::Resource(_) => None,
            Self::Template(uri) => catalog.template(uri),
        };
        if let Some(entry) = listed {
            return Some(Place { server: Arc::clone(&entry.server), own: entry.own.to_string() });
        }
        let (Self::Resource(uri) | Self::Template(uri)) = self else { return None };
        let (server, own) = catalog.resource(uri)?;
        Some(Place { server, own })
    }

    /// Whose it would be, by its form.
    fn slug(&self) -> Option<&str> {
        match self {
            Self::Prompt(name) => split(name).map(|(slug, _)| slug),
            Self::Resource(uri) | Self::Template(uri) => original(uri).map(|(slug, _)| slug),
        }
    }
}
