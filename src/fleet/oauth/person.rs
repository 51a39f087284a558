//! How a person is brought to an authorization server and back.

use reqwest::Url;

use crate::domain::audit::Pending;

use super::error::{OAuthError, code, shown};

/// Somebody who can say yes, or nobody.
pub trait Person: Send + Sync {
    /// Gets ready for one login: the redirect must have somewhere to arrive before it is named. `None`
    /// if nobody is there.
    fn prepare(&self) -> Pending<'_, Result<Option<Box<dyn Visit>>, OAuthError>>;
}

/// One login.
pub trait Visit: Send {
    /// Where the person is to be sent back to.
    fn redirect_uri(&self) -> String;

    /// Brings the person to the authorization server's address; gives the whole address they were sent
    /// back to.
    fn authorize(self: Box<Self>, address: Url) -> Pending<'static, Result<String, OAuthError>>;
}

/// Nobody: a colibri that serves has no person beside it.
#[derive(Clone, Copy, Debug)]
pub struct Absent;

impl Person for Absent {
    fn prepare(&self) -> Pending<'_, Result<Option<Box<dyn Visit>>, OAuthError>> {
        Box::pin(async { Ok(None) })
    }
}

/// What a redirect says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Redirect {
    pub(super) code: String,
    pub(super) issuer: Option<String>,
}

/// Reads a redirect, and refuses one that does not answer our question.
pub(super) fn read(address: &str, state: &str) -> Result<Redirect, OAuthError> {
    let address = Url::parse(address).map_err(|_| OAuthError::State)?;
    let query = Query::of(&address)?;
    if query.state.as_deref() != Some(state) {
        return Err(OAuthError::State);
    }
    if let Some(error) = query.error {
        let code = code(&error).unwrap_or_else(|| "for no reason given".to_owned());
        return Err(OAuthError::Denied { code, description: query.description.as_deref().map(shown) });
    }
    let code = query.code.filter(|code| !code.is_empty()).ok_or_else(|| OAuthError::Denied {
        code: "the redirect has no code".to_owned(),
        description: None,
    })?;
    Ok(Redirect { code, issuer: query.issuer })
}

/// Whether a redirect answers our question, for a listener that turns others away.
pub(super) fn belongs(address: &Url, state: &str) -> bool {
    Query::of(address).is_ok_and(|query| query.state.as_deref() == Some(state))
}

/// The `state` of an authorization request.
pub(super) fn state_of(request: &Url) -> Option<String> {
    Query::of(request).ok()?.state
}

#[derive(Default)]
struct Query {
    code: Option<String>,
    state: Option<String>,
    issuer: Option<String>,
    error: Option<String>,
    description: Option<String>,
}

impl Query {
    /// A parameter that stands there twice could be read one way here and another way there.
    fn of(address: &Url) -> Result<Self, OAuthError> {
        let mut query = Self::default();
        for (name, value) in address.query_pairs() {
            let place = match name.as_ref() {
                "code" => &mut query.code,
                "state" => &mut query.state,
                "iss" => &mut query.issuer,
                "error" => &mut query.error,
                "error_description" => &mut query.description,
                _ => continue,
            };
            if place.replace(value.into_owned()).is_some() {
                return Err(OAuthError::State);
            }
        }
        Ok(query)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_answer_to_our_question_is_taken() {
        let read = |query: &str| read(&format!("http://127.0.0.1:1/callback?{query}"), "s");
        let denied = |code: &str, description: Option<&str>| {
            Err(OAuthError::Denied { code: code.to_owned(), description: description.map(ToOwned::to_owned) })
        };
        assert_eq!(read("code=c&state=s"), Ok(Redirect { code: "c".to_owned(), issuer: None }));
        assert_eq!(
            read("state=s&iss=https%3A%2F%2Fi.example&code=c%20d"),
            Ok(Redirect { code: "c d".to_owned(), issuer: Some("https://i.example".to_owned()) })
        );
        for stranger in
            ["code=c", "code=c&state=", "code=c&state=S", "code=c&state=s&state=s", "error=x&state=z"]
        {
            assert_eq!(read(stranger), Err(OAuthError::State), "{stranger}");
        }
        assert_eq!(read("code=c&code=d&state=s"), Err(OAuthError::State));
        assert_eq!(read("error=access_denied&state=s"), denied("access_denied", None));
        assert_eq!(
            read("error=access_denied&error_description=No%1B%5B2J&state=s"),
            denied("access_denied", Some("No\\u{1b}[2J"))
        );
        assert_eq!(read("error=%3Cb%3E&state=s"), denied("for no reason given", None));
        assert_eq!(read("state=s"), denied("the redirect has no code", None));
    }
}
