//! What a server's authorization server has granted us, and the port to the place where that is kept.
//!
//! The fleet gets and renews grants; the store keeps them in private files; `app` and `cli` bring the
//! two together. Nothing here can be printed by accident: a [`Secret`] shows itself as `***`.

use std::fmt;

use super::audit::Pending;
use super::clock::Timestamp;

/// A text that whoever holds may act as us. It prints as `***` by every road but [`Secret::expose`].
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes a text out of sight.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the one who sends or stores it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("***")
    }
}

/// What one server has granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The server's address: what the grant is filed under, and the only place its token is sent to.
    pub server: String,
    /// Who granted it. A token is renewed with nobody else; legacy servers do not say.
    pub issuer: Option<String>,
    /// Whom it was granted to.
    pub client: Client,
    /// What was granted; absent once it has been refused for good.
    pub tokens: Option<Tokens>,
    /// For what it was granted.
    pub scopes: Vec<String>,
    /// Scopes that the server has demanded since and that only a person can grant.
    pub wanted: Vec<String>,
}

/// The client that a grant was given to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// Its id at the issuer.
    pub id: String,
    /// Its secret, if it was given one.
    pub secret: Option<Secret>,
}

/// The tokens of a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tokens {
    /// What requests are sent with.
    pub access: Secret,
    /// What a new access token is had for without a person.
    pub refresh: Option<Secret>,
    /// When they came.
    pub received_at: Timestamp,
    /// When the access token ends, if the issuer said.
    pub expires_at: Option<Timestamp>,
}

/// How much of its life an access token has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Enough.
    Fresh,
    /// So little that it should be renewed; it still holds.
    Waning,
    /// None.
    Expired,
}

/// An access token is renewed this long before its end, so that it does not end on its way …
const RENEW_BEFORE_MS: u64 = 30_000;

/// … or in the last part of its life, if that is shorter: a token that lives for 20 s is used, too.
const RENEW_FRACTION: u64 = 4;

impl Tokens {
    /// How much is left at this moment.
    pub fn freshness(&self, now: Timestamp) -> Freshness {
        let Some(end) = self.expires_at else { return Freshness::Fresh };
        let life = end.0.saturating_sub(self.received_at.0);
        let margin = RENEW_BEFORE_MS.min(life / RENEW_FRACTION);
        if end <= now {
            Freshness::Expired
        } else if end.0 - now.0 <= margin {
            Freshness::Waning
        } else {
            Freshness::Fresh
        }
    }
}

/// Why grants cannot be kept or read. Names files, never what is in them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct VaultError(pub String);

/// Held by the one who renews a grant, until it is dropped. Nobody else renews it meanwhile, in this
/// process or another: two uses of one refresh token look like theft to an issuer.
pub struct Hold {
    _guard: Box<dyn Send>,
}

impl Hold {
    /// Holds for as long as `guard` is not dropped.
    pub fn new(guard: impl Send + 'static) -> Self {
        Self { _guard: Box::new(guard) }
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Hold")
    }
}

/// Where grants are kept, one a server.
pub trait Vault: Send + Sync {
    /// The grant of a server.
    fn load<'a>(&'a self, server: &'a str) -> Pending<'a, Result<Option<Grant>, VaultError>>;

    /// Keeps a grant in the place of the one before. Returns when it is safe.
    fn save(&self, grant: Grant) -> Pending<'_, Result<(), VaultError>>;

    /// Forgets a server's grant. Tells whether there was one.
    fn forget<'a>(&'a self, server: &'a str) -> Pending<'a, Result<bool, VaultError>>;

    /// Waits for the right to renew a server's grant.
    fn hold<'a>(&'a self, server: &'a str) -> Pending<'a, Result<Hold, VaultError>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(received_at: u64, expires_at: Option<u64>) -> Tokens {
        Tokens {
            access: Secret::new("canary"),
            refresh: Some(Secret::new("canary")),
            received_at: Timestamp(received_at),
            expires_at: expires_at.map(Timestamp),
        }
    }

    #[test]
    fn a_token_is_renewed_shortly_before_its_end() {
        use Freshness::{Expired, Fresh, Waning};
        for (received, ends, now, expected) in [
            (0, Some(3_600_000), 0, Fresh),
            (0, Some(3_600_000), 3_569_999, Fresh),
            (0, Some(3_600_000), 3_570_000, Waning),
            (0, Some(3_600_000), 3_600_000, Expired),
            (0, Some(20_000), 10_000, Fresh), // Short-lived, and still used for most of its life.
            (0, Some(20_000), 15_000, Waning),
            (1_000, Some(1_000), 1_000, Expired), // Born dead.
            (5_000, Some(1_000), 500, Fresh),     // A clock that went back: no underflow.
            (0, None, u64::MAX, Fresh),
        ] {
            let freshness = tokens(received, ends).freshness(Timestamp(now));
            assert_eq!(freshness, expected, "received {received}, ends {ends:?}, now {now}");
        }
    }

    #[test]
    fn no_secret_is_printed() {
        let grant = Grant {
            server: "https://example.com/mcp".to_owned(),
            issuer: None,
            client: Client { id: "id".to_owned(), secret: Some(Secret::new("canary")) },
            tokens: Some(tokens(0, None)),
            scopes: Vec::new(),
            wanted: Vec::new(),
        };
        assert!(!format!("{grant:?}").contains("canary"));
    }
}
