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
    AUTHORIZATION, DATE, HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE,
};
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, Response, Url};
use tokio::time::timeout;

use crate::domain::grant::Secret;
use crate::mcp::lines::FRAME_BYTES_MAX;

use super::credentials::{Credentials, Refusal};
use super::error::Cause;

/// Redirects of one request, all on the same host.
const REDIRECTS_MAX: usize = 5;

/// What is read of an error's body; enough for a JSON-RPC error, or to say what it was.
pub(super) const ERROR_BODY_BYTES_MAX: usize = 64 << 10;

/// What is repeated of it to people.
const ERROR_TEXT_CHARS_MAX: usize = 200;

/// A secret that is shorter could be any word.
const SECRET_BYTES_MIN: usize = 4;

/// What is read of a body that nobody needs, so that its connection can be used again.
const DRAIN_BYTES_MAX: usize = 64 << 10;

/// … and for how long.
const DRAIN: Duration = Duration::from_secs(1);

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

    /// The address and the headers, with all that is secret in them: for the one who goes there instead of us.
    pub(super) fn parts(&self) -> (String, Vec<(String, String)>) {
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let headers = self.headers.iter().map(|(name, value)| (name.to_string(), text(value)));
        (self.url.as_str().to_owned(), headers.collect())
    }

    /// Who is asked for credentials, if anybody.
    pub(super) fn credentials(&self) -> Option<&Arc<dyn Credentials>> {
        self.credentials.as_ref()
    }

    /// The host and the port, as a list of hosts names them; nothing if there is no host.
    pub fn host_and_port(&self) -> Option<String> {
        let port = self.url.port_or_known_default()?;
        self.url.host_str().map(|host| format!("{host}:{port}"))
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
            let mut sent = None;
            if let Some(credentials) = credentials
                && let Some(authorization) = credentials.authorization().await?
                && let Ok(mut value) = HeaderValue::try_from(&authorization)
            {
                value.set_sensitive(true);
                request = request.header(AUTHORIZATION, value);
                sent = Some(Secret::new(authorization));
            }
            let mut response = request.send().await.map_err(|error| self.failed(&error))?;
            response.extensions_mut().insert(Sent(sent.clone()));
            let status = response.status().as_u16();
            let challenge = response.headers().get(WWW_AUTHENTICATE).and_then(|value| value.to_str().ok());
            let is_refused = status == 401 || (status == 403 && challenge.is_some());
            match credentials {
                Some(credentials) if is_refused && !asked.contains(&status) => {
                    asked.push(status);
                    let challenge = challenge.map(str::to_owned);
                    credentials.refused(Refusal { status, challenge, sent }).await?;
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

    /// The error of a status that came without a message.
    pub(super) fn refused(&self, response: &Response, body: &[u8]) -> Cause {
        let sent = response.extensions().get::<Sent>().and_then(|Sent(sent)| sent.as_ref());
        let text = self.without_secrets(&String::from_utf8_lossy(body), sent.map(Secret::expose));
        let text: String = text.trim().chars().take(ERROR_TEXT_CHARS_MAX).collect();
        let text = if text.is_empty() { text } else { format!(": {text}") };
        let header = |name| response.headers().get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let retry_after = header(RETRY_AFTER).and_then(|value| retry_after(value.trim(), header(DATE)));
        let status = response.status().as_u16();
        Cause::Http { status, text, retry_after }
    }

    /// The error of a status whose body nobody has read yet.
    pub(super) async fn refusal(&self, mut response: Response) -> Cause {
        let body = timeout(DRAIN, body(&mut response, ERROR_BODY_BYTES_MAX)).await;
        self.refused(&response, &body.ok().and_then(Result::ok).flatten().unwrap_or_default())
    }

    /// Some servers say in their errors what they were sent.
    fn without_secrets(&self, text: &str, sent: Option<&str>) -> String {
        let headers = self.headers.values().filter_map(|value| value.to_str().ok()).chain(sent);
        // Whole, and of `Bearer x` the x alone.
        let headers = headers.flat_map(|value| [Some(value), value.split(' ').next_back()]).flatten();
        let query = self.url.query().unwrap_or_default();
        let values = query.split('&').filter_map(|pair| pair.split('=').next_back());
        let secrets = headers.chain(self.url.password()).chain([query]).chain(values);
        secrets
            .filter(|secret| secret.len() >= SECRET_BYTES_MIN)
            .fold(text.to_owned(), |text, secret| text.replace(secret, "…"))
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
        } else if is_no_http(&text) {
            Cause::Protocol(format!("what came is no HTTP: {text}"))
        } else if error.is_connect() || error.is_dns() {
            Cause::Unreachable(format!("cannot reach {text}"))
        } else {
            Cause::Network(format!("the connection failed: {text}"))
        }
    }
}

/// What a request was sent with beside its headers, kept with its answer.
#[derive(Clone)]
struct Sent(Option<Secret>);

impl fmt::Debug for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Endpoint({})", self.shown())
    }
}

/// An address without user, password, query and fragment: any of them may be a secret.
pub fn shown(url: &str) -> String {
    // `user:password@host` parses, with `user` as its scheme.
    let is_address = |parsed: &Url| !(parsed.cannot_be_a_base() && url.contains('@'));
    let Some(mut parsed) = Url::parse(url).ok().filter(is_address) else {
        // It may have been meant as an address, and where its parts end nobody knows.
        let end = if url.contains('@') { url.find("://").or(Some(0)) } else { url.find(['?', '#']) };
        let public = url[..end.unwrap_or(url.len())].chars().take(ERROR_TEXT_CHARS_MAX);
        return public.collect::<String>() + if end.is_some() { "…" } else { "" };
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

/// Lets a body that nobody needs end by itself, so that its connection can be used again. One that
/// does not end soon is not worth it.
pub(super) fn leave(mut response: Response) {
    if response.content_length() == Some(0) {
        return;
    }
    let draining = async move {
        let mut left = DRAIN_BYTES_MAX;
        while let Ok(Some(chunk)) = response.chunk().await {
            let Some(rest) = left.checked_sub(chunk.len()) else { return };
            left = rest;
        }
    };
    tokio::spawn(timeout(DRAIN, draining));
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

/// Whether an error's text is that of the reader of HTTP, who has no other words for it.
fn is_no_http(text: &str) -> bool {
    text.ends_with(" parsed") || text.ends_with("message head is too large")
}

/// How long a server wants to be left alone: seconds, or a date. A date is held against the one that the server gave
/// with it, so that nobody's clock has to be right.
fn retry_after(value: &str, date: Option<&str>) -> Option<Duration> {
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let (then, now) = (seconds_of(value)?, seconds_of(date?.trim())?);
    Some(Duration::from_secs(then.saturating_sub(now)))
}

/// A date as HTTP writes it today (RFC 9110), as seconds: `Sun, 06 Nov 1994 08:49:37 GMT`.
fn seconds_of(date: &str) -> Option<u64> {
    const MONTHS: [&str; 12] =
        ["Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec", "Jan", "Feb"];
    let (_, date) = date.split_once(", ")?;
    let mut words = date.strip_suffix(" GMT")?.split(' ');
    let day: u64 = words.next()?.parse().ok().filter(|day| (1..32).contains(day))?;
    let name = words.next()?;
    let month = MONTHS.iter().position(|month| *month == name)? as u64;
    let year: u64 = words.next()?.parse().ok().filter(|year| (1970..10_000).contains(year))?;
    let mut time =
        words.next()?.splitn(3, ':').map(|part| part.parse::<u64>().ok().filter(|part| *part < 61));
    let (hour, minute, second) = (time.next()??, time.next()??, time.next()??);
    // Years are taken from March, so that the leap day is the last of its year.
    let year = year - u64::from(month >= 10);
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// BR-6: a date is as good as a number of seconds, by the server's own clock.
    #[test]
    fn a_date_is_a_wait() {
        let now = Some("Tue, 28 Feb 2023 23:59:50 GMT");
        for (value, date, seconds) in [
            ("7", None, Some(7)),
            ("Wed, 01 Mar 2023 00:00:00 GMT", now, Some(10)),
            ("Tue, 28 Feb 2023 23:59:00 GMT", now, Some(0)),
            ("Thu, 29 Feb 2024 23:59:50 GMT", now, Some(366 * 86_400)),
            ("Mon, 01 Jan 2024 00:00:00 GMT", Some("Sun, 31 Dec 2023 00:00:00 GMT"), Some(86_400)),
            ("Wed, 01 Mar 2023 00:00:00 GMT", None, None),
            ("Wed, 01 Mar 2023 00:00:00 GMT", Some("now"), None),
            ("soon", now, None),
            ("Wed, 99 Mar 2023 00:00:00 GMT", now, None),
            ("Wed, 01 Mar 2023 00:00 GMT", now, None),
            ("Wed, 01 Mar 99999999999999999999 00:00:00 GMT", now, None),
        ] {
            assert_eq!(retry_after(value, date), seconds.map(Duration::from_secs), "{value}");
        }
    }

    #[test]
    fn an_address_is_shown_without_its_secrets() {
        for (url, expected) in [
            ("https://example.com/mcp", "https://example.com/mcp"),
            ("https://user:pass@example.com:8443/mcp?key=1#x", "https://example.com:8443/mcp?…"),
            ("not an address", "not an address"),
            ("not an address?key=1", "not an address…"),
            ("https://user:pass@exam ple.com/mcp", "https…"),
            ("https://user:pa?s#s@exam ple.com/mcp?key=a@b", "https…"),
            ("user:pass@example.com", "…"),
            ("token@exam ple.com", "…"),
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
