//! A person with a browser: sent to the authorization server by an address to open, and sent back to a
//! port on this machine that listens for as long as one login takes.
//!
//! Anybody on this machine, and any page in the browser, can reach that port. What comes without the
//! `state` of this login is turned away, and the login goes on.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use reqwest::Url;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::domain::audit::Pending;

use super::error::OAuthError;
use super::person::{Person, Visit, belongs, state_of};

/// Where on the port the redirect arrives. Authorization servers compare it, so it never changes.
const PATH: &str = "/callback";

/// The first lines of a request; codes and states are long, but not this long.
const HEAD_BYTES_MAX: usize = 32 << 10;

/// How long one connection may take. Browsers open some that they never use.
const CONVERSATION: Duration = Duration::from_secs(10);

/// How many at a time; one more waits.
const CONVERSATIONS_MAX: usize = 16;

/// How long before it is tried again to take connections.
const DEAF: Duration = Duration::from_millis(50);

type Show = dyn Fn(&str) + Send + Sync;

/// A person at a browser on this machine, or beside a terminal into which an address can be pasted.
pub struct Loopback {
    fixed: Option<u16>,
    /// The port of the last login. Used again if it is free, so that a registration holds.
    last: AtomicU16,
    patience: Duration,
    show: Arc<Show>,
    pasted: Option<Arc<Mutex<Receiver<String>>>>,
}

impl Loopback {
    /// `show` is given the address that the person is to open; then it is waited for `patience`. With
    /// no port, any that is free.
    pub fn new(port: Option<u16>, patience: Duration, show: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self { fixed: port, last: AtomicU16::new(0), patience, show: Arc::new(show), pasted: None }
    }

    /// Also takes the address that the person was sent back to from here: their browser may be on
    /// another machine, where nobody listens.
    #[must_use]
    pub fn or_pasted(mut self, lines: Receiver<String>) -> Self {
        self.pasted = Some(Arc::new(Mutex::new(lines)));
        self
    }

    async fn listen(&self) -> Result<TcpListener, OAuthError> {
        let bind = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        if let Some(port) = self.fixed {
            return bind(port).await.map_err(|error| {
                OAuthError::Person(format!("cannot listen on port {port} (`oauth.callbackPort`): {error}"))
            });
        }
        match bind(self.last.load(Ordering::Relaxed)).await {
            Ok(listener) => Ok(listener),
            Err(_) => bind(0).await.map_err(|error| blocked(&error)),
        }
    }
}

fn blocked(error: &std::io::Error) -> OAuthError {
    OAuthError::Person(format!("cannot listen on 127.0.0.1: {error}"))
}

impl Person for Loopback {
    fn prepare(&self) -> Pending<'_, Result<Option<Box<dyn Visit>>, OAuthError>> {
        Box::pin(async {
            let listener = self.listen().await?;
            let port = listener.local_addr().map_err(|error| blocked(&error))?.port();
            self.last.store(port, Ordering::Relaxed);
            let uri = format!("http://{}:{port}{PATH}", Ipv4Addr::LOCALHOST);
            let (show, pasted) = (Arc::clone(&self.show), self.pasted.clone());
            let visit = Listening { listener, uri, patience: self.patience, show, pasted };
            Ok(Some(Box::new(visit) as Box<dyn Visit>))
        })
    }
}

struct Listening {
    listener: TcpListener,
    uri: String,
    patience: Duration,
    show: Arc<Show>,
    pasted: Option<Arc<Mutex<Receiver<String>>>>,
}

impl Visit for Listening {
    fn redirect_uri(&self) -> String {
        self.uri.clone()
    }

    fn authorize(self: Box<Self>, address: Url) -> Pending<'static, Result<String, OAuthError>> {
        Box::pin(async move {
            let state: Arc<str> = state_of(&address).ok_or(OAuthError::State)?.into();
            (self.show)(address.as_str());
            self.wait(state).await
        })
    }
}

/// What happened while waiting.
enum Event {
    Connected(TcpStream),
    Came(Arrival),
    /// A connection could not be taken: too many files are open, or it was already gone.
    Deaf,
    Passed,
}

/// What somebody brought.
enum Arrival {
    /// The redirect of this login.
    Ours(String),
    /// A redirect that is not.
    Stranger,
    /// Anything else: a favicon, a connection that says nothing.
    Nothing,
}

impl Listening {
    async fn wait(self, state: Arc<str>) -> Result<String, OAuthError> {
        let mut strangers = 0;
        // Dropped with everything it still holds when the login is over.
        let mut conversations: JoinSet<Arrival> = JoinSet::new();
        let mut pasted = match &self.pasted {
            Some(lines) => Some(lines.lock().await),
            None => None,
        };
        let end = sleep(self.patience);
        tokio::pin!(end);
        loop {
            let event = tokio::select! {
                accepted = self.listener.accept(), if conversations.len() < CONVERSATIONS_MAX => {
                    accepted.map_or(Event::Deaf, |(stream, _)| Event::Connected(stream))
                }
                Some(done) = conversations.join_next() => Event::Came(done.unwrap_or(Arrival::Nothing)),
                line = next_line(pasted.as_deref_mut()) => Event::Came(arrival(line.trim(), &state)),
                () = &mut end => Event::Passed,
            };
            match event {
                Event::Connected(stream) => {
                    conversations.spawn(converse(stream, self.uri.clone(), Arc::clone(&state)));
                }
                Event::Came(Arrival::Ours(redirect)) => return Ok(redirect),
                Event::Came(Arrival::Stranger) => strangers += 1,
                Event::Came(Arrival::Nothing) => {}
                Event::Deaf => sleep(DEAF).await,
                Event::Passed => return Err(OAuthError::NoAnswer { limit: self.patience, strangers }),
            }
        }
    }
}

/// The next pasted line; never, if none can come.
async fn next_line(lines: Option<&mut Receiver<String>>) -> String {
    match lines {
        Some(lines) => match lines.recv().await {
            Some(line) => line,
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

fn arrival(address: &str, state: &str) -> Arrival {
    match Url::parse(address) {
        Ok(url) if belongs(&url, state) => Arrival::Ours(address.to_owned()),
        Ok(url) if url.query().is_some() => Arrival::Stranger,
        _ => Arrival::Nothing,
    }
}

/// Reads one request, and answers it with a page.
async fn converse(mut stream: TcpStream, uri: String, state: Arc<str>) -> Arrival {
    let heard = timeout(CONVERSATION, target(&mut stream)).await;
    let Ok(Some(target)) = heard else { return Arrival::Nothing };
    let is_ours = target.strip_prefix(PATH).is_some_and(|rest| rest.is_empty() || rest.starts_with('?'));
    let arrival = match target.split_once('?') {
        Some((_, query)) if is_ours => arrival(&format!("{uri}?{query}"), &state),
        _ => Arrival::Nothing,
    };
    let (status, words) = match &arrival {
        Arrival::Ours(_) => (
            "200 OK",
            "colibri has received the answer. You may close this window; the terminal tells how it went.",
        ),
        Arrival::Stranger => ("400 Bad Request", "This does not belong to the login that colibri waits for."),
        Arrival::Nothing => ("404 Not Found", "There is nothing here."),
    };
    let _ = timeout(CONVERSATION, answer(&mut stream, status, words)).await;
    arrival
}

/// The target of a GET request, once its head is whole.
async fn target(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut buffer = [0; 4096];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let length = stream.read(&mut buffer).await.ok().filter(|length| *length > 0)?;
        head.extend_from_slice(&buffer[..length]);
        if head.len() > HEAD_BYTES_MAX {
            return None;
        }
    }
    let line = head.split(|byte| *byte == b'\r').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    (words.next()? == "GET").then_some(())?;
    words.next().map(ToOwned::to_owned)
}

/// Nothing of the request stands in the page, and the page may load nothing.
async fn answer(stream: &mut TcpStream, status: &str, words: &str) -> std::io::Result<()> {
    let page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>colibri</title><p>{words}</p></html>\n"
    );
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\n\
         Content-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\nReferrer-Policy: no-referrer\r\n\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
        page.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(page.as_bytes()).await?;
    stream.shutdown().await
}
