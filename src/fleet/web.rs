//! The one HTTP client, and where a server on the network is: shared by every network link.
//!
//! Owns: TLS (rustls with ring, the system's roots), proxies from the environment, which redirects are
//! followed, who we are (headers, credentials), and what a failure on the network means.
//! Must not know: what is sent.

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::header::{
    AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE,
};
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, Response, Url};

use crate::mcp::lines::FRAME_BYTES_MAX;

use super::credentials::{Credentials, Refusal};
use super::error::Cause;

/// Redirects of one request, all on the same host.
const REDIRECTS_MAX: usize = 5;

/// What is read of an error's body; enough for a JSON-RPC error, or to say what it was.
pub(super) const ERROR_BODY_BYTES_MAX: usize = 64 << 10;

/// What is repeated of it to people.
const ERROR_TEXT_CHARS_MAX: usize = 200;

/// A connection that was idle for this long may be dead without a word.
const POOL_IDLE: Duration = Duration::from_mins(1);

/// A peer that vanished is noticed by these.
const KEEPALIVE: Duration = Duration::from_secs(30);

static CLIENT: LazyLock<Result<Client, String>> = LazyLock::new(|| build(false));
/// A protocol that takes over the connection needs one of its own.
static CLIENT_HTTP1: LazyLock<Result<Client, String>> = LazyLock::new(|| build(true));

fn build(http1_only: bool) -> Result<Client, String> {
    // Another library in the process may have chosen before; then its choice holds.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = Client::builder()
        .user_agent(concat!("colibri/", env!("CARGO_PKG_VERSION")))
        .redirect(Policy::custom(|attempt| {
            let same_host =
                attempt.previous().last().is_some_and(|from| from.origin() == attempt.url().origin());
            // The others turn a POST into a GET.
            let keeps_method = matches!(attempt.status().as_u16(), 307 | 308);
            if same_host && keeps_method && attempt.previous().len() <= REDIRECTS_MAX {
                attempt.follow()
            } else {
                attempt.stop()
            }
        }))
        .pool_idle_timeout(POOL_IDLE)
        .tcp_keepalive(KEEPALIVE)
        .tcp_nodelay(true)
        .referer(false);
    if http1_only {
        builder = builder.http1_only();
    }
    builder.build().map_err(|error| format!("TLS cannot be set up: {}", innermost(&error)))
}

/// The client that all requests share.
pub(super) fn client() -> Result<&'static Client, Cause> {
    CLIENT.as_ref().map_err(|reason| Cause::Unreachable(reason.clone()))
}

/// The client of connections that become something else.
pub(super) fn client_http1() -> Result<&'static Client, Cause> {
    CLIENT_HTTP1.as_ref().map_err(|reason| Cause::Unreachable(reason.clone()))
}

/// Where a server is, and what it wants to know of us.
#[derive(Clone)]
pub struct Endpoint {
    pub(super) url: Url,
    headers: HeaderMap,
    credentials: Option<Arc<dyn Credentials>>,
    /// The longest frame of the server.
    pub(super) frame_bytes_max: usize,
}

impl Endpoint {
    /// An `http`, `https`, `ws` or `wss` address.
    pub fn new(url: &str) -> Result<Self, Cause> {
        let invalid = |reason: &str| Cause::Invalid(format!("`{}` is no address: {reason}", shown(url)));
        let url = Url::parse(url).map_err(|error| invalid(&error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https" | "ws" | "wss") {
            return Err(invalid("it must begin with http, https, ws or wss"));
        }
        Ok(Self { url, headers: HeaderMap::new(), credentials: None, frame_bytes_max: FRAME_BYTES_MAX })
    }

    /// Sends this header with every request. Its value is a secret: it appears in no error.
    pub fn with_header(mut self, name: &str, value: &str) -> Result<Self, Cause> {
        let header = HeaderName::try_from(name)
            .map_err(|_| Cause::Invalid(format!("`{}` is no header name", name.escape_default())))?;
        let mut value = HeaderValue::try_from(value)
            .map_err(|_| Cause::Invalid(format!("the value of the header `{header}` cannot be sent")))?;
        value.set_sensitive(true);
        self.headers.insert(header, value);
        Ok(self)
    }

    /// Asks these for the `Authorization` of each request, unless a header gives it.
    #[must_use]
    pub fn with_credentials(mut self, credentials: Arc<dyn Credentials>) -> Self {
        self.credentials = Some(credentials);
        self
    }

    /// The longest frame of the server.
    #[must_use]
    pub fn with_frame_bytes_max(mut self, frame_bytes_max: usize) -> Self {
        self.frame_bytes_max = frame_bytes_max;
        self
    }

    pub(super) fn is_websocket(&self) -> bool {
        matches!(self.url.scheme(), "ws" | "wss")
    }

    /// The address without what may be secret in it.
    pub fn shown(&self) -> String {
        shown(self.url.as_str())
    }

    /// Sends a request as who we are. A refusal is taken to the credentials once for each status: a token
    /// that was missing may then turn out to be too weak.
    pub(super) async fn send(&self, request: impl Fn() -> RequestBuilder) -> Result<Response, Cause> {
        let credentials = self.credentials.as_ref().filter(|_| !self.headers.contains_key(AUTHORIZATION));
        let mut asked = Vec::new();
        loop {
            let mut request = request().headers(self.headers.clone());
            if let Some(credentials) = credentials
                && let Some(authorization) = credentials.authorization().await?
                && let Ok(mut value) = HeaderValue::try_from(authorization)
            {
                value.set_sensitive(true);
                request = request.header(AUTHORIZATION, value);
            }
            let response = request.send().await.map_err(|error| self.failed(&error))?;
            let status = response.status().as_u16();
            let challenge = response.headers().get(WWW_AUTHENTICATE).and_then(|value| value.to_str().ok());
            let is_refused = status == 401 || (status == 403 && challenge.is_some());
            match credentials {
                Some(credentials) if is_refused && !asked.contains(&status) => {
                    asked.push(status);
                    let challenge = challenge.map(str::to_owned);
                    credentials.refused(Refusal { status, challenge }).await?;
                }
                _ if is_refused => {
                    return Err(Cause::Unauthorized(format!(
                        "{} wants to know who asks (HTTP {status}): give it a header, or run `colibri auth login`",
                        self.shown()
                    )));
                }
                _ if response.status().is_redirection() => return Err(self.redirected(&response)),
                _ => return Ok(response),
            }
        }
    }

    fn redirected(&self, response: &Response) -> Cause {
        let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok()).unwrap_or("?");
        let (from, to) = (self.shown(), shown(location));
        let status = response.status().as_u16();
        Cause::Protocol(format!(
            "{from} redirects to {to} (HTTP {status}), which is not followed: if you trust it, use that address"
        ))
    }

    /// What a failure on the network means. Its text names no more of the address than its host.
    pub(super) fn failed(&self, error: &reqwest::Error) -> Cause {
        let host = self.url.host_str().unwrap_or("?");
        let port = self.url.port_or_known_default().unwrap_or_default();
        let mut text = format!("{host}:{port}: {}", innermost(error));
        if text.ends_with("InvalidContentType") {
            text.push_str(" (that is no TLS: does the address begin with http?)");
        }
        if error.is_builder() {
            Cause::Invalid(text)
        } else if error.is_connect() || error.is_dns() {
            Cause::Unreachable(format!("cannot reach {text}"))
        } else {
            Cause::Network(format!("the connection failed: {text}"))
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Endpoint({})", self.shown())
    }
}

/// An address without user, password, query and fragment: any of them may be a secret.
pub fn shown(url: &str) -> String {
    let Ok(mut parsed) = Url::parse(url) else {
        return url.split(['?', '#']).next().unwrap_or_default().chars().take(ERROR_TEXT_CHARS_MAX).collect();
    };
    let has_more = parsed.query().is_some() || parsed.fragment().is_some();
    let _ = (parsed.set_username(""), parsed.set_password(None));
    parsed.set_query(None);
    parsed.set_fragment(None);
    format!("{parsed}{}", if has_more { "?…" } else { "" })
}

/// A body, as long as it is not longer than `limit`.
pub(super) async fn body(response: &mut Response, limit: usize) -> Result<Option<Bytes>, reqwest::Error> {
    let Some(first) = response.chunk().await? else { return Ok(Some(Bytes::new())) };
    // Most bodies are one chunk, and are not copied.
    let Some(second) = response.chunk().await? else { return Ok((first.len() <= limit).then_some(first)) };
    let mut whole =
        BytesMut::with_capacity(response.content_length().unwrap_or(0).min(limit as u64) as usize);
    whole.extend_from_slice(&first);
    let mut next = Some(second);
    while let Some(chunk) = next {
        if whole.len() + chunk.len() > limit {
            return Ok(None);
        }
        whole.extend_from_slice(&chunk);
        next = response.chunk().await?;
    }
    Ok(Some(whole.freeze()))
}

/// The error of a status that came without a message.
pub(super) fn refused(response: &Response, body: &[u8]) -> Cause {
    let text = String::from_utf8_lossy(body);
    let text: String = text.trim().chars().take(ERROR_TEXT_CHARS_MAX).collect();
    let text = if text.is_empty() { text } else { format!(": {text}") };
    let seconds =
        response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    Cause::Http { status: response.status().as_u16(), text, retry_after: seconds.map(Duration::from_secs) }
}

/// The media type of a body, without its parameters.
pub(super) fn media_type(response: &Response) -> &str {
    let value = response.headers().get(reqwest::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    value.unwrap_or_default().split(';').next().unwrap_or_default().trim()
}

/// The reason at the bottom: what is above it repeats the address, or says only that something failed.
fn innermost(error: &reqwest::Error) -> String {
    let mut reason: &dyn std::error::Error = error;
    let mut text = "the request could not be made".to_owned();
    while let Some(source) = reason.source() {
        text = source.to_string();
        reason = source;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_secrets() {
        for (url, expected) in [
            ("https://example.com/mcp", "https://example.com/mcp"),
            ("https://user:pass@example.com:8443/mcp?key=1#x", "https://example.com:8443/mcp?…"),
            ("not an address?key=1", "not an address"),
        ] {
            assert_eq!(shown(url), expected);
        }
    }

    #[test]
    fn what_is_no_address_or_header_is_refused() {
        for url in ["", "mcp", "ftp://example.com", "file:///etc/passwd"] {
            assert!(matches!(Endpoint::new(url), Err(Cause::Invalid(_))), "{url}");
        }
        let endpoint = Endpoint::new("http://localhost/mcp").expect("an address");
        assert!(matches!(endpoint.clone().with_header("a b", "x"), Err(Cause::Invalid(_))));
        let error = endpoint.with_header("x-key", "se\ncret").expect_err("no header carries a line's end");
        assert!(!error.to_string().contains("cret"), "{error}");
    }
}
