//! What servers offer beside tools, as clients see it, and the news that some of it has changed.

use std::sync::Arc;

use bytes::Bytes;

/// A kind of thing that is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `resources/list`.
    Resources,
    /// `resources/templates/list`.
    Templates,
    /// `prompts/list`.
    Prompts,
}

/// A resource, a template of resources or a prompt of a server, as clients know it.
#[derive(Debug)]
pub struct Entry {
    /// As clients know it: a URI, a URI template, or a name.
    pub key: Arc<str>,
    /// Whose it is, by its server's slug.
    pub server: Arc<str>,
    /// As its server knows it.
    pub own: Arc<str>,
    /// Its whole definition under [`Entry::key`], as raw JSON.
    pub definition: Bytes,
}

/// Entries in the order in which clients see them; shared, never copied.
pub type Entries = Arc<[Arc<Entry>]>;

/// How often each list has changed. Who remembers the last one knows which lists to read again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The list of tools.
    pub tools: u64,
    /// The lists of resources and of their templates.
    pub resources: u64,
    /// The list of prompts.
    pub prompts: u64,
}

impl Changes {
    /// The notifications of what has changed since then.
    pub fn since(self, before: Self) -> impl Iterator<Item = &'static str> {
        [
            (self.tools != before.tools, "notifications/tools/list_changed"),
            (self.resources != before.resources, "notifications/resources/list_changed"),
            (self.prompts != before.prompts, "notifications/prompts/list_changed"),
        ]
        .into_iter()
        .filter_map(|(has_changed, method)| has_changed.then_some(method))
    }
}
