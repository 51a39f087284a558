//! Every request of the OAuth flow passes here: bounded in time and size, never redirected, and only to
//! addresses within [`Reach`].
//!
//! Also keeps what the last failure was, since the flow's own errors are words for people.

use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest::{Client, Url};
use rmcp::transport::auth::{OAuthHttpClient, OAuthHttpClientError, OAuthHttpClientFuture, OAuthHttpRequest};
use serde::Deserialize;

use super::address::Reach;
use super::error::{OAuthError, code, shown};

/// One request and its answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The part of it that may go into connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Metadata and tokens are a few kilobytes.
const BODY_BYTES_MAX: usize = 1 << 20;

const FORM: &str = "application/x-www-form-urlencoded";

/// The way to metadata and authorization servers on behalf of one server.
pub(super) struct Wire {
    client: Client,
    reach: Reach,
    trouble: Mutex<Option<Trouble>>,
    /// How many more requests may be made.
    allowance: AtomicUsize,
}

/// What the last request that failed came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// No answer.
    Unreachable { host: String, what: String },
    /// An answer that says no.
    Refused { host: String, status: u16, code: Option<String>, description: Option<String> },
    /// Not asked at all.
    Address { host: String, reason: &'static str },
}

impl Wire {
    pub(super) fn new(reach: Reach) -> Result<Self, OAuthError> {
        // Somebody else in the process may have chosen before; then that holds.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .user_agent(concat!("colibri/", env!("CARGO_PKG_VERSION")))
            .timeout(REQUEST_TIMEOUT)
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .dns_resolver(Arc::new(reach.clone()))
            .build()
            .map_err(|error| OAuthError::Settings(format!("no HTTP client: {}", root(&error))))?;
        Ok(Self { client, reach, trouble: Mutex::new(None), allowance: AtomicUsize::new(usize::MAX) })
    }

    /// The client itself, with the same limits on time, redirects and names.
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn reach(&self) -> &Reach {
        &self.reach
    }

    /// Lets so many requests be made from now on.
    pub(super) fn allow(&self, requests: usize) {
        self.allowance.store(requests, Ordering::Relaxed);
    }

    /// What failed since this was last asked.
    pub(super) fn take_trouble(&self) -> Option<Trouble> {
        self.trouble.lock().expect("nothing panics while it holds the trouble").take()
    }

    fn note(&self, trouble: Trouble) -> OAuthHttpClientError {
        *self.trouble.lock().expect("nothing panics while it holds the trouble") = Some(trouble);
        "the request failed".into()
    }

    /// Sends a form; gives the body of a success. What else came of it is the trouble.
    pub(super) async fn post_form(&self, address: &str, form: &str) -> Option<Vec<u8>> {
        let request =
            self.client.post(address).header("content-type", FORM).header("accept", "application/json");
        let answer = self.send(request.body(form.to_owned()).build().ok()?).await.ok()?;
        answer.status().is_success().then(|| answer.into_body())
    }

    async fn send(&self, request: reqwest::Request) -> Result<http::Response<Vec<u8>>, OAuthHttpClientError> {
        let host = host(request.url());
        if let Some(reason) = self.reach.refuses(request.url()) {
            return Err(self.note(Trouble::Address { host, reason }));
        }
        let spend = |left: usize| left.checked_sub(1);
        if self.allowance.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend).is_err() {
            let reason = "the server's metadata leads to too many places";
            return Err(self.note(Trouble::Address { host, reason }));
        }
        let is_post = request.method() == reqwest::Method::POST;
        // A form carries secrets; what is answered to it might repeat them.
        let carries_secrets = request
            .headers()
            .get("content-type")
            .is_some_and(|kind| kind.as_bytes().starts_with(FORM.as_bytes()));
        let unreachable = |error: &reqwest::Error| {
            let what = if error.is_timeout() { "no answer in time".to_owned() } else { root(error) };
            self.note(Trouble::Unreachable { host: host.clone(), what })
        };
        let mut response = self.client.execute(request).await.map_err(|error| unreachable(&error))?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| unreachable(&error))? {
            if body.len() + chunk.len() > BODY_BYTES_MAX {
                let what = format!("its answer is longer than {BODY_BYTES_MAX} bytes");
                return Err(self.note(Trouble::Unreachable { host, what }));
            }
            body.extend_from_slice(&chunk);
        }
        let status = response.status();
        if !status.is_success() && (is_post || is_passing(status.as_u16())) {
            let said: Said = serde_json::from_slice(&body).unwrap_or_default();
            let description = said.error_description.filter(|_| !carries_secrets);
            self.note(Trouble::Refused {
                host,
                status: status.as_u16(),
                code: said.error.as_deref().and_then(code),
                description: description.as_deref().map(shown),
            });
        }
        let mut answer = http::Response::new(body);
        *answer.status_mut() = status;
        *answer.headers_mut() = std::mem::take(response.headers_mut());
        Ok(answer)
    }
}

impl OAuthHttpClient for Wire {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        // Whatever redirects the flow would follow: a discovery follows its own, within one origin, and
        // nothing else has a reason to send us elsewhere.
        Box::pin(async move { self.send(reqwest::Request::try_from(request.request)?).await })
    }
}

/// An OAuth error, as RFC 6749 words it.
#[derive(Default, Deserialize)]
struct Said {
    error: Option<String>,
    error_description: Option<String>,
}

/// Whether a status may be another one soon.
pub(super) fn is_passing(status: u16) -> bool {
    status >= 500 || matches!(status, 408 | 425 | 429)
}

/// Host and port, for people: the rest of an address may hold a secret.
pub(super) fn host(url: &Url) -> String {
    let name = url.host_str().unwrap_or("(no host)");
    url.port().map_or_else(|| name.to_owned(), |port| format!("{name}:{port}"))
}

/// The last cause, which is the one that helps; the first repeats the address.
fn root(error: &reqwest::Error) -> String {
    let mut cause: &dyn Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    // An error without a cause would show the address with all that is in it.
    if error.source().is_none() { "the request failed".to_owned() } else { shown(&cause.to_string()) }
}
