//! What a person may ask of a running colibri, as values, and the port by which a face asks it.
//!
//! Owns: the requests and their words. Must not know: the way they come, or what is done about them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::audit::Pending;
use super::merkle::Hash;

/// The version of the requests and their answers. Another one is refused, not guessed at.
pub const VERSION: u32 = 1;

/// What a person asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "lowercase")]
pub enum Request {
    /// How is everything?
    Status,
    /// One server, closely.
    Show {
        /// Its name.
        server: String,
    },
    /// Start it again.
    Restart {
        /// Its name.
        server: String,
    },
    /// Turn it off, until it is turned on or colibri ends.
    Disable {
        /// Its name.
        server: String,
    },
    /// Turn it on again.
    Enable {
        /// Its name.
        server: String,
    },
    /// Try it now.
    Test {
        /// Its name.
        server: String,
    },
    /// Take new definitions of tools for good, as they were shown.
    Accept {
        /// Its name.
        server: String,
        /// Which tools; none named means all that wait.
        #[serde(default)]
        tools: Vec<String>,
        /// Of all that is meant, as it was shown; see `pin::digest_of_all`.
        digest: Hash,
    },
    /// Read the configuration again.
    Reload,
    /// What it said, and what was said of it.
    Logs {
        /// Its name.
        server: String,
        /// Whether what comes is wanted too.
        #[serde(default)]
        follow: bool,
    },
    /// What happened.
    Events {
        /// Whether what comes is wanted too.
        #[serde(default)]
        follow: bool,
        /// Only topics like this one, with `*` for anything.
        #[serde(default)]
        topic: Option<String>,
    },
}

/// What came of a request: a value for people and their programs, or why not.
pub type Told = Result<Value, String>;

/// The port through which a face reaches what runs. Nothing that it gives holds a secret.
pub trait Operator: Send + Sync + 'static {
    /// This process and its servers.
    fn status(&self) -> Pending<'_, Told>;

    /// One server, its tools, and how it is configured.
    fn show<'a>(&'a self, server: &'a str) -> Pending<'a, Told>;

    /// Starts a server again.
    fn restart<'a>(&'a self, server: &'a str) -> Pending<'a, Told>;

    /// Turns a server off.
    fn disable<'a>(&'a self, server: &'a str) -> Pending<'a, Told>;

    /// Turns a server on.
    fn enable<'a>(&'a self, server: &'a str) -> Pending<'a, Told>;

    /// Tries a server.
    fn test<'a>(&'a self, server: &'a str) -> Pending<'a, Told>;

    /// Accepts new definitions if they are what was shown, and gives the names of the tools.
    fn accept<'a>(
        &'a self,
        server: &'a str,
        tools: &'a [String],
        shown: Hash,
    ) -> Pending<'a, Result<Vec<String>, String>>;

    /// Reads the configuration again, and gives what has changed.
    fn reload(&self) -> Pending<'_, Result<Vec<String>, String>>;

    /// The lines of a server that are kept, and those that come.
    fn logs(&self, server: &str) -> Result<Feed, String>;

    /// The events that are kept, and those that come.
    fn events(&self, topic: Option<&str>) -> Result<Feed, String>;
}

/// What is kept of something that goes on, and what comes of it.
pub struct Feed {
    /// The oldest first.
    pub kept: Vec<Value>,
    /// What comes.
    pub coming: Box<dyn Coming>,
}

/// Something that goes on.
pub trait Coming: Send {
    /// The next of it; `None` when there will be no more. Giving this up loses nothing.
    fn next(&mut self) -> Pending<'_, Option<Came>>;
}

/// What came.
#[derive(Clone, Debug, PartialEq)]
pub enum Came {
    /// One of them.
    One(Value),
    /// Whoever reads was too slow for so many.
    Missed(u64),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_what_they_say() {
        let parse = |text: &str| serde_json::from_str::<Request>(text).map_err(|error| error.to_string());
        assert_eq!(parse(r#"{"verb":"status"}"#), Ok(Request::Status));
        let server = "git".to_owned();
        assert_eq!(parse(r#"{"verb":"logs","server":"git"}"#), Ok(Request::Logs { server, follow: false }));
        let unknown = parse(r#"{"verb":"dance"}"#).unwrap_err();
        for verb in ["`dance`", "`status`", "`reload`", "`events`"] {
            assert!(unknown.contains(verb), "{unknown}");
        }
    }
}
