//! The client that is served, as the servers behind colibri reach it: a port, implemented by a face.
//!
//! Owns: what may be asked of a client, and why it may not be.
//! Must not know: how a client is connected.

use bytes::Bytes;
use serde_json::Value;

use super::audit::Pending;

/// One client's session with colibri. On stdin and stdout there is one, the default; a face that serves many gives
/// each a number of its own and never the same again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// Whoever is served.
pub trait Face: Send + Sync + 'static {
    /// What the client can do for servers, as the `capabilities` it sent; returns once a client has said so.
    fn introduced(&self) -> Pending<'_, Value>;

    /// Asks the client, on behalf of the server of that name. Giving it up takes the question back. The answer is the
    /// bytes of the client's result.
    fn ask<'a>(
        &'a self,
        server: &'a str,
        method: &'a str,
        params: Option<Bytes>,
    ) -> Pending<'a, Result<Bytes, Unasked>>;

    /// Tells the client what a server told. One that does not read is not told more.
    fn tell(&self, method: &str, params: Option<Bytes>);

    /// From which severity on the client wants log messages, if it has said so.
    fn log_level(&self) -> Option<&'static str>;
}

/// Why the client was not asked, or did not do it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unasked {
    /// Nobody is there who could be asked: no client, or one of the newer family, which is not asked but asks again.
    NotThere,
    /// It has not said that it can do this.
    Unable,
    /// It does not read what it is sent, or is asked too much.
    Busy,
    /// It answered with an error: raw.
    Refused(Bytes),
}

/// The capability that a client needs for a request; `None` if servers may not ask it at all.
pub fn needs(method: &str) -> Option<&'static str> {
    match method {
        "roots/list" => Some("roots"),
        "sampling/createMessage" => Some("sampling"),
        "elicitation/create" => Some("elicitation"),
        _ => None,
    }
}

/// Whether a person, or a model, may take their time over it.
pub fn takes_a_person(method: &str) -> bool {
    matches!(method, "sampling/createMessage" | "elicitation/create")
}
