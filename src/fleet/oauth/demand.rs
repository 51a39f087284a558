//! What a server's refusal asks for. A refusal is words of a stranger: short, and of known signs, or none.

use reqwest::Url;
use rmcp::transport::auth::WWWAuthenticateParams;

use super::super::credentials::Refusal;
use super::error::shown;

/// More scopes than this in one demand are not scopes.
const SCOPES_MAX: usize = 64;

/// A longer one is none.
const SCOPE_BYTES_MAX: usize = 256;

/// A longer header says nothing that is read here.
const CHALLENGE_BYTES_MAX: usize = 8 << 10;

/// What a refusal asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Demand {
    /// A token, or another one.
    Token,
    /// A token for these, too.
    Scopes(Vec<String>),
    /// Nothing that a token could give, for this reason.
    Nothing(Option<String>),
}

pub(super) fn demand(refusal: &Refusal, server: &Url) -> Demand {
    if refusal.status == 401 {
        return Demand::Token;
    }
    let said = challenge(refusal).map(|text| WWWAuthenticateParams::parse(text, server)).unwrap_or_default();
    let scopes = said.scope.as_deref().map(scopes).unwrap_or_default();
    if said.is_insufficient_scope() && !scopes.is_empty() {
        return Demand::Scopes(scopes);
    }
    Demand::Nothing(said.error_description.or(said.error).as_deref().map(shown))
}

/// What the server said, if it is short enough to be read.
pub(super) fn challenge(refusal: &Refusal) -> Option<&str> {
    refusal.challenge.as_deref().filter(|text| text.len() <= CHALLENGE_BYTES_MAX)
}

/// The scopes in a list of them: those that RFC 6749 calls so, each once.
fn scopes(list: &str) -> Vec<String> {
    let is_scope = |word: &&str| {
        word.len() <= SCOPE_BYTES_MAX
            && word.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"\\".contains(&byte))
    };
    let words: Vec<String> =
        list.split_whitespace().filter(is_scope).take(SCOPES_MAX).map(ToOwned::to_owned).collect();
    union(Vec::new(), &words)
}

/// All of both, each once, in the order in which they came.
pub(super) fn union(mut scopes: Vec<String>, more: &[String]) -> Vec<String> {
    for scope in more {
        if !scopes.contains(scope) {
            scopes.push(scope.clone());
        }
    }
    scopes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_asks_for_a_token_for_scopes_or_for_nothing() {
        let server: Url = "https://mcp.example.com/mcp".parse().unwrap();
        let check = |status: u16, challenge: Option<&str>, expected: Demand| {
            let refusal = Refusal { status, challenge: challenge.map(ToOwned::to_owned), sent: None };
            assert_eq!(demand(&refusal, &server), expected, "{status} {challenge:?}");
        };
        let scopes = |scopes: &[&str]| Demand::Scopes(scopes.iter().map(ToString::to_string).collect());
        check(401, None, Demand::Token);
        check(401, Some("Basic realm=\"x\""), Demand::Token);
        check(403, Some("Bearer error=\"insufficient_scope\", scope=\"a b a\""), scopes(&["a", "b"]));
        check(403, Some("Bearer scope=\"a\", error=insufficient_scope"), scopes(&["a"]));
        check(
            403,
            Some("Bearer error=\"insufficient_scope\""),
            Demand::Nothing(Some("insufficient_scope".into())),
        );
        check(
            403,
            Some("Bearer error=\"insufficient_scope\", scope=\"\u{7f}é\\\"\""),
            Demand::Nothing(Some("insufficient_scope".into())),
        );
        check(
            403,
            Some("Bearer error=\"other\", error_description=\"not\u{1b}you\""),
            Demand::Nothing(Some("not\\u{1b}you".into())),
        );
        check(403, None, Demand::Nothing(None));
    }
}
