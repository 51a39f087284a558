//! What makes a request acceptable to a server that asks who we are: the port between a network link
//! and whoever knows how to get a token.

use crate::domain::audit::Pending;
use crate::domain::grant::Secret;

use super::error::Cause;

/// Why a server refused a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// 401, or 403.
    pub status: u16,
    /// Its `WWW-Authenticate`, if it sent one.
    pub challenge: Option<String>,
    /// The `Authorization` that it refused, if there was one: by now there may be another.
    pub sent: Option<Secret>,
}

/// Gives the `Authorization` of each request to one server, and knows what to do when it is refused.
pub trait Credentials: Send + Sync {
    /// The value of `Authorization`, fresh; nothing if there is none yet. The value is a secret: it
    /// appears in no error.
    fn authorization(&self) -> Pending<'_, Result<Option<String>, Cause>>;

    /// The server refused. `Ok`: something has changed and the request is worth sending once more.
    /// `Err`: what is wrong, with the remedy.
    fn refused(&self, refusal: Refusal) -> Pending<'_, Result<(), Cause>>;
}
