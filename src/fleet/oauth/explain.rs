//! What an error of rmcp means, in our words: with what the wire saw, and without what may be secret.

use reqwest::Url;
use rmcp::transport::auth::AuthError;

use super::error::{OAuthError, code, shown};
use super::wire::{Trouble, Wire, host, is_passing};

/// What was being done.
#[derive(Clone, Copy)]
pub(super) enum Step<'a> {
    Discovery,
    Registration,
    /// At this host.
    Token(&'a str),
}

/// What an error of rmcp means. Its own words are used only where they can hold no secret.
pub(super) fn explain(wire: &Wire, server: &Url, step: Step<'_>, error: AuthError) -> OAuthError {
    let error = match error {
        AuthError::PkceUnsupported => return OAuthError::NoPkce,
        AuthError::AuthorizationServerMismatch { expected_issuer, received_issuer } => {
            let received = Some(shown(&received_issuer));
            return OAuthError::Issuer { expected: shown(&expected_issuer), received };
        }
        AuthError::AuthorizationServerMissingIssuer { expected_issuer } => {
            return OAuthError::Issuer { expected: shown(&expected_issuer), received: None };
        }
        error => error,
    };
    match (wire.take_trouble(), step) {
        (Some(Trouble::Unreachable { host, what }), _) => OAuthError::Unreachable { host, what },
        (Some(Trouble::Address { host, reason }), _) => OAuthError::Address { host: shown(&host), reason },
        (Some(Trouble::Refused { host, status, .. }), Step::Discovery | Step::Registration)
            if is_passing(status) =>
        {
            OAuthError::Unreachable { host, what: format!("it answered {status}") }
        }
        (Some(Trouble::Refused { host, status, code, description }), Step::Registration) => {
            let reason = match (code, description) {
                (Some(code), Some(description)) => format!("{code}, {description}"),
                (Some(said), None) | (None, Some(said)) => said,
                (None, None) => format!("it answered {status}"),
            };
            OAuthError::Registration { host, reason: Some(reason) }
        }
        (Some(Trouble::Refused { host, status, code, .. }), Step::Token(_)) => {
            let code = code.or_else(|| Some(format!("it answered {status}")));
            OAuthError::Token { host, code, passing: is_passing(status) }
        }
        // rmcp's own client leaves only words.
        (None, _) if is_request_failure(&error) => {
            OAuthError::Unreachable { host: host(server), what: "the request failed".to_owned() }
        }
        (None, Step::Registration) => OAuthError::Registration { host: host(server), reason: None },
        (None, Step::Token(host)) => {
            let code = said(&error).unwrap_or_else(|| "its answer cannot be read".to_owned());
            OAuthError::Token { host: host.to_owned(), code: Some(code), passing: false }
        }
        (_, Step::Discovery) => words(server, &error),
    }
}

/// rmcp's words about metadata and settings; no token was in play. The server's own address may hold a
/// key, so it is cut.
pub(super) fn words(server: &Url, error: &AuthError) -> OAuthError {
    let text = match error {
        AuthError::MetadataError(text) => text.clone(),
        other => other.to_string(),
    };
    let mut bare = server.clone();
    bare.set_query(None);
    OAuthError::Metadata(shown(&text.replace(server.as_str(), bare.as_str())))
}

fn is_request_failure(error: &AuthError) -> bool {
    let text = error.to_string();
    ["Request failed", "HTTP request error", "metadata discovery failed for"]
        .iter()
        .any(|sign| text.contains(sign))
}

/// The OAuth error code in rmcp's words.
fn said(error: &AuthError) -> Option<String> {
    let text = error.to_string();
    let (_, said) = text.split_once("error response: ")?;
    code(said.split(':').next()?.trim())
}
