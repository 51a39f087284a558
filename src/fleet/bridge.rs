//! The bridge: one outbound connection, called with patience. Three lines of Rust to call any MCP
//! server well.
//!
//! Connecting is never retried, and a retried call never reconnects: a dropped connection is the
//! caller's to reopen.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::domain::log::{Level, Logger};
use crate::mcp::request::Client;
use crate::mcp::revision::Revision;

pub use super::era::{Era, Memory};
pub use super::error::{Cause, Executed};
pub use super::inbox::{Handler, Notice};
pub use super::listing::{Tool, Tools};
pub use super::session::{Request, Session};

use super::era::{Parties, introduce};
use super::error::Verdict;
use super::inbox::Deaf;
use super::link::{self, Opener};
use super::listing::tools;
use super::web::shown;

/// The deadline of connecting and of each attempt, if nobody says.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// What says otherwise: a positive number of milliseconds.
pub const TIMEOUT_VARIABLE: &str = "COLIBRI_MCP_TIMEOUT";

/// Attempts of a call, if nobody says.
pub const ATTEMPTS: u32 = 3;

/// Before the second attempt; doubled before each one after.
const FIRST_DELAY_MS: u64 = 1000;

/// A failure, with everything a caller needs to decide what to do.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{source}")]
pub struct BridgeError {
    /// What happened, the last time.
    #[source]
    pub source: Cause,
    /// How many attempts were made; 0 for a call after close.
    pub attempts: u32,
    /// Whether the attempts ran out on something that may go better later.
    pub retryable: bool,
    /// Whether the server may have done what was asked, in any of the attempts.
    pub executed: Executed,
}

/// Looks a variable of the environment up.
pub type Environment = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// How to connect.
pub struct ConnectOptions {
    /// How long connecting may take; else `COLIBRI_MCP_TIMEOUT` of the environment, else 30 s. It is
    /// also the deadline of a call that has none.
    pub timeout: Option<Duration>,
    /// Where that variable is looked up. The default has none.
    pub environment: Environment,
    /// What carries the messages; by default what the address says: Streamable HTTP for `http(s)`, a
    /// WebSocket for `ws(s)`.
    pub transport: Option<Box<dyn Opener>>,
    /// What is known of the server's family.
    pub era: Era,
    /// What the server spoke the last time, if anybody keeps that.
    pub memory: Option<Arc<dyn Memory>>,
    /// Who we are.
    pub client: Client,
    /// What the server may ask of us.
    pub handler: Arc<dyn Handler>,
    /// Where lines for people go.
    pub logger: Logger,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        let (name, version) = ("colibri".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        Self {
            timeout: None,
            environment: Arc::new(|_| None),
            transport: None,
            era: Era::Auto,
            memory: None,
            client: Client { name, version, capabilities: json!({}) },
            handler: Arc::new(Deaf),
            logger: Logger::new(Level::Info, |_, line| {
                use std::io::Write;
                let _ = writeln!(std::io::stderr(), "{line}");
            }),
        }
    }
}

impl ConnectOptions {
    fn deadline(&self) -> Result<Duration, Cause> {
        let set = || (self.environment)(TIMEOUT_VARIABLE);
        let Some(text) = self.timeout.is_none().then(set).flatten() else {
            return Ok(self.timeout.unwrap_or(TIMEOUT));
        };
        let millis = text.trim().parse().ok().filter(|millis: &u64| *millis > 0);
        millis.map(Duration::from_millis).ok_or_else(|| {
            let shown: String = text.chars().take(40).collect();
            Cause::Invalid(format!(
                "{TIMEOUT_VARIABLE} must be a positive number of milliseconds, not `{}`",
                shown.escape_debug()
            ))
        })
    }
}

/// How to call.
#[derive(Clone, Debug)]
pub struct CallOptions {
    /// The deadline of each attempt; by default that of connecting.
    pub timeout: Option<Duration>,
    /// At least 1.
    pub max_attempts: u32,
    /// Where progress and log messages of the call go.
    pub notices: Option<mpsc::Sender<Notice>>,
}

impl Default for CallOptions {
    fn default() -> Self {
        Self { timeout: None, max_attempts: ATTEMPTS, notices: None }
    }
}

/// A connected server.
pub struct Bridge {
    url: String,
    session: Session,
    timeout: Duration,
    logger: Logger,
    closed: AtomicBool,
}

impl Bridge {
    /// Opens a link, introduces us, and gives the bridge.
    pub async fn connect(url: &str, options: ConnectOptions) -> Result<Self, BridgeError> {
        let opened = async {
            let timeout = options.deadline()?;
            let ConnectOptions { transport, era, memory, client, handler, logger, .. } = options;
            let opener = transport.map_or_else(|| link::for_address(url), Ok)?;
            logger.info(format_args!("[mcp-bridge] connecting to {}", shown(url)));
            let parties = Parties {
                opener: opener.as_ref(),
                client: Arc::new(client),
                handler,
                logger: logger.clone(),
                memory,
            };
            let session = introduce(parties, era, timeout).await?;
            logger.info(format_args!("[mcp-bridge] connected to {}", shown(url)));
            Ok(Self { url: url.to_owned(), session, timeout, logger, closed: AtomicBool::new(false) })
        };
        opened.await.map_err(|source| failed_once(source, Executed::No))
    }

    /// What is on the other side, as it was given.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The connection itself, for what the bridge does not do.
    pub fn client(&self) -> &Session {
        &self.session
    }

    /// The revision spoken.
    pub fn revision(&self) -> &'static Revision {
        self.session.revision()
    }

    /// All tools of the server.
    pub async fn tools(&self) -> Result<Tools, BridgeError> {
        let listed = tools(&self.session, self.timeout).await;
        listed.map_err(|source| failed_once(source, Executed::No))
    }

    /// Calls a tool; gives the server's result whole, as the bytes it sent. What may go better is
    /// tried again, after 1 s, then 2 s, and so on.
    pub async fn call_tool(
        &self,
        name: &str,
        arguments: &Value,
        options: CallOptions,
    ) -> Result<Bytes, BridgeError> {
        let arguments = arguments.to_string();
        let timeout = options.timeout.unwrap_or(self.timeout);
        let max_attempts = options.max_attempts.max(1);
        let (mut attempts, mut executed) = (0, Executed::No);
        loop {
            let failed =
                |source, attempts, retryable, executed| BridgeError { source, attempts, retryable, executed };
            if self.closed.load(Ordering::Acquire) {
                return Err(failed(Cause::Closed, attempts, false, executed));
            }
            attempts += 1;
            self.logger.info(format_args!("[mcp-bridge] callTool {name} attempt {attempts}/{max_attempts}"));
            let notices = options.notices.clone();
            let source = match self.session.call(name, arguments.as_bytes(), notices, timeout).await {
                Ok(result) => return Ok(result),
                Err(source) => source,
            };
            executed = executed.or(source.executed());
            let is_last = match source.verdict() {
                Verdict::Final => {
                    self.logger
                        .warn(format_args!("[mcp-bridge] callTool {name} non-retryable error: {source}"));
                    return Err(failed(source, attempts, false, executed));
                }
                Verdict::Lost => true,
                Verdict::Transient => attempts >= max_attempts,
            };
            if is_last {
                self.logger
                    .warn(format_args!("[mcp-bridge] callTool {name} failed after {attempts} attempt(s)"));
                return Err(failed(source, attempts, true, executed));
            }
            let delay = delay_ms(attempts, source.retry_after(), timeout);
            self.logger.info(format_args!("[mcp-bridge] retrying in {delay}ms (error: {source})"));
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
    }

    /// Ends the connection and everything behind it. May be called any number of times.
    pub async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.session.connection().close().await;
    }
}

fn failed_once(source: Cause, executed: Executed) -> BridgeError {
    BridgeError { retryable: source.verdict() != Verdict::Final, source, attempts: 1, executed }
}

/// Before attempt n+1: 1000·2^(n-1) ms, saturating; or what the server asked for, if that is longer
/// and within the deadline.
fn delay_ms(attempt: u32, retry_after: Option<Duration>, deadline: Duration) -> u64 {
    let ours = 1u64.checked_shl(attempt - 1).map_or(u64::MAX, |factor| FIRST_DELAY_MS.saturating_mul(factor));
    let theirs = retry_after.filter(|theirs| *theirs <= deadline).unwrap_or_default();
    ours.max(theirs.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// BR-6: the delays double, and never overflow; a server's wish counts if it is longer and within
    /// the deadline.
    #[test]
    fn delays_double_and_saturate() {
        for (attempt, wish, delay) in [
            (1, None, 1000),
            (2, None, 2000),
            (3, None, 4000),
            (10, None, 512_000),
            (64, None, u64::MAX),
            (100, None, u64::MAX),
            (1, Some(7), 7000),
            (3, Some(1), 4000),
            (1, Some(31), 1000),
        ] {
            let wish = wish.map(Duration::from_secs);
            assert_eq!(delay_ms(attempt, wish, TIMEOUT), delay, "before attempt {}", attempt + 1);
        }
    }
}
