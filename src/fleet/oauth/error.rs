//! What can go wrong between a person, a server and its authorization server, with the remedy.
//!
//! No error here holds a secret, whoever wrote the words: what an authorization server says is cut,
//! made visible, and left out altogether where it answers a request that carried a secret.

use std::time::Duration;

use crate::domain::grant::VaultError;
use crate::domain::log::visible;

use super::super::error::Cause;

/// The most that is shown of what somebody else wrote.
const SHOWN_CHARS_MAX: usize = 200;

/// Why there is no token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OAuthError {
    /// Only a person can go on, and none is here.
    #[error("the server wants to know who you are: {remedy}")]
    NeedsPerson {
        /// What the person is to do.
        remedy: String,
    },
    /// Only a person can grant more, and none is here.
    #[error("the server also demands {}: {remedy}", list(scopes))]
    NeedsScopes {
        /// What is demanded.
        scopes: Vec<String>,
        /// What the person is to do.
        remedy: String,
    },
    /// A token does not help.
    #[error("the server refuses this to us (403{})", because(reason.as_ref()))]
    Forbidden {
        /// The server's word for it.
        reason: Option<String>,
    },
    /// What was granted does not satisfy the server.
    #[error(
        "the server still demands {}, though it was asked for and {}; ask whoever runs the server",
        list(scopes),
        if *granted { "granted" } else { "not granted" }
    )]
    StillRefused {
        /// What it demands.
        scopes: Vec<String>,
        /// Whether all of it had been granted.
        granted: bool,
    },
    /// A token fresh from the authorization server is not good enough for the server.
    #[error("the server does not accept the token that its authorization server gave; ask whoever runs it")]
    NotAccepted,
    /// The server asks for authorization and does not say where.
    #[error(
        "the server asks for authorization but publishes no OAuth metadata; if it takes a fixed token, \
         give it as `Authorization` in the server's `headers`"
    )]
    NoMetadata,
    /// What the server says about its authorization cannot be used.
    #[error("the server's OAuth metadata is not usable: {0}")]
    Metadata(String),
    /// An address that colibri does not open.
    #[error("{host} is not an address to send credentials to: {reason}")]
    Address {
        /// Whose.
        host: String,
        /// Why.
        reason: &'static str,
    },
    /// The authorization server takes no new clients by itself.
    #[error(
        "the authorization server lets no client register itself: register colibri there, and set \
         `oauth.clientId` for the server"
    )]
    NoRegistration,
    /// The authorization server refused to register colibri.
    #[error("the authorization server at {host} refused to register colibri{}", because(reason.as_ref()))]
    Registration {
        /// Whose.
        host: String,
        /// Its word for it.
        reason: Option<String>,
    },
    /// The authorization server cannot protect the code on its way.
    #[error("the authorization server does not offer PKCE with S256, which colibri insists on")]
    NoPkce,
    /// Somebody else answered.
    #[error("expected the issuer {expected}, but {}", received.as_ref().map_or_else(|| "none was named".to_owned(), |received| format!("{received} answered")))]
    Issuer {
        /// Who was asked.
        expected: String,
        /// Who answered.
        received: Option<String>,
    },
    /// The redirect is not the answer to our question.
    #[error("the redirect does not belong to this login (its `state` is wrong)")]
    State,
    /// The person, or the authorization server, said no.
    #[error("access was refused: {code}{}", because(description.as_ref()))]
    Denied {
        /// The OAuth error code.
        code: String,
        /// Its explanation.
        description: Option<String>,
    },
    /// Nobody came back in time.
    #[error(
        "no answer came from the browser within {} s{}",
        limit.as_secs(),
        if *strangers == 0 { String::new() } else { format!(" ({strangers} that did not belong to this login were turned away)") }
    )]
    NoAnswer {
        /// How long it was waited.
        limit: Duration,
        /// How many redirects with a wrong `state` came.
        strangers: usize,
    },
    /// The way to the person and back is blocked.
    #[error("{0}")]
    Person(String),
    /// The authorization server gave no token.
    #[error("the authorization server at {host} gave no token{}", because(code.as_ref()))]
    Token {
        /// Whose.
        host: String,
        /// The OAuth error code, if it is one.
        code: Option<String>,
        /// Whether it may go better later.
        passing: bool,
    },
    /// The authorization server, or the server's metadata, cannot be had.
    #[error("cannot reach {host}: {what}")]
    Unreachable {
        /// Whom.
        host: String,
        /// Why.
        what: String,
    },
    /// Grants cannot be kept or read.
    #[error("cannot keep or read grants: {0}")]
    Vault(#[from] VaultError),
    /// What was configured makes no sense.
    #[error("{0}")]
    Settings(String),
}

impl OAuthError {
    /// Whether it may go better later without anybody doing anything.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Token { passing, .. } => *passing,
            Self::NeedsPerson { .. }
            | Self::NeedsScopes { .. }
            | Self::Forbidden { .. }
            | Self::StillRefused { .. }
            | Self::NotAccepted
            | Self::NoMetadata
            | Self::Metadata(_)
            | Self::Address { .. }
            | Self::NoRegistration
            | Self::Registration { .. }
            | Self::NoPkce
            | Self::Issuer { .. }
            | Self::State
            | Self::Denied { .. }
            | Self::NoAnswer { .. }
            | Self::Person(_)
            | Self::Vault(_)
            | Self::Settings(_) => false,
        }
    }
}

impl From<OAuthError> for Cause {
    /// In every case the request itself was not sent, or was refused.
    fn from(error: OAuthError) -> Self {
        let text = error.to_string();
        match error {
            OAuthError::Settings(_) => Self::Invalid(text),
            error if error.is_passing() => Self::Unreachable(text),
            _ => Self::Unauthorized(text),
        }
    }
}

/// What a person types to sign in to a server. A name that a shell would read otherwise is quoted; an
/// address that may hold a secret is not repeated.
pub(super) fn login_command(name: &str) -> String {
    let plain = |sign: char| sign.is_ascii_alphanumeric() || "-_.:/@%+".contains(sign);
    if name.contains("://") && name.contains(['?', '@', '#']) {
        "run `colibri auth login` with its address".to_owned()
    } else if !name.is_empty() && !name.starts_with('-') && name.chars().all(plain) {
        format!("run `colibri auth login {name}`")
    } else {
        format!("run `colibri auth login -- '{}'`", visible(name).replace('\'', "'\\''"))
    }
}

/// The head of what somebody else wrote, on one line.
pub(super) fn shown(text: &str) -> String {
    let head: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    visible(&head)
}

/// An OAuth error code, if that is what it is: short, of letters and underscores.
pub(super) fn code(text: &str) -> Option<String> {
    let fits =
        (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    fits.then(|| text.to_owned())
}

fn because(reason: Option<&String>) -> String {
    reason.map(|reason| format!(": {reason}")).unwrap_or_default()
}

fn list(scopes: &[String]) -> String {
    let few = scopes.iter().take(8).map(|scope| format!("`{}`", shown(scope)));
    let more = if scopes.len() > 8 { " and more" } else { "" };
    let scope = if scopes.len() == 1 { "the scope" } else { "the scopes" };
    format!("{scope} {}{more}", few.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remedy_can_be_typed() {
        for (name, command) in [
            ("github", "run `colibri auth login github`"),
            ("https://example.com/mcp", "run `colibri auth login https://example.com/mcp`"),
            ("https://example.com/mcp?key=canary", "run `colibri auth login` with its address"),
            ("https://me:canary@example.com/", "run `colibri auth login` with its address"),
            ("$(reboot)", "run `colibri auth login -- '$(reboot)'`"),
            ("it's", "run `colibri auth login -- 'it'\\''s'`"),
            ("--help", "run `colibri auth login -- '--help'`"),
        ] {
            assert_eq!(login_command(name), command);
        }
    }

    #[test]
    fn what_others_wrote_is_cut_and_made_visible() {
        assert_eq!(shown(&"x".repeat(1000)).len(), SHOWN_CHARS_MAX);
        assert_eq!(shown("a\u{1b}[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(code("invalid_grant"), Some("invalid_grant".to_owned()));
        for no_code in ["", "Your token canary-1 is bad", "UPPER", &"x".repeat(65)] {
            assert_eq!(code(no_code), None);
        }
    }

    #[test]
    fn scopes_are_listed_briefly() {
        let scopes: Vec<String> = (0..20).map(|number| format!("s{number}")).collect();
        assert_eq!(list(&scopes[..1]), "the scope `s0`");
        assert!(list(&scopes).ends_with("`s7` and more"));
    }
}
