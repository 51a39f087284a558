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

use crate::domain::log::{Level, Logger};
use crate::mcp::request::{Client, call_params};
use crate::mcp::revision::Revision;

use super::connection::{Deaf, Handler, Session};
use super::era::{Era, introduce};
use super::error::{Cause, Verdict};
use super::link::Opener;
use super::listing::{Tools, tools};

/// The default deadline of connecting and of each attempt, unless `COLIBRI_MCP_TIMEOUT` says otherwise.
pub const TIMEOUT: Duration = Duration::from_secs(30);

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
}

/// How to connect.
pub struct ConnectOptions {
    /// How long connecting may take.
    pub timeout: Duration,
    /// What is known of the server's family.
    pub era: Era,
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
            timeout: TIMEOUT,
            era: Era::Auto,
            client: Client { name, version, capabilities: json!({}) },
            handler: Arc::new(Deaf),
            logger: Logger::new(Level::Info, |_, line| {
                use std::io::Write;
                let _ = writeln!(std::io::stderr(), "{line}");
            }),
        }
    }
}

/// How to call.
#[derive(Clone, Copy, Debug)]
pub struct CallOptions {
    /// The deadline of each attempt.
    pub timeout: Duration,
    /// At least 1.
    pub max_attempts: u32,
}

impl Default for CallOptions {
    fn default() -> Self {
        Self { timeout: TIMEOUT, max_attempts: ATTEMPTS }
    }
}

/// A connected server.
pub struct Bridge {
    url: String,
    session: Session,
    logger: Logger,
    closed: AtomicBool,
}

impl Bridge {
    /// Opens a link, introduces us, and gives the bridge. `url` is for people: what is on the other side.
    pub async fn connect(
        url: &str,
        opener: &dyn Opener,
        options: ConnectOptions,
    ) -> Result<Self, BridgeError> {
        let ConnectOptions { timeout, era, client, handler, logger } = options;
        logger.info(format_args!("[mcp-bridge] connecting to {url}"));
        let session =
            introduce(opener, era, Arc::new(client), handler, &logger, timeout).await.map_err(|source| {
                let retryable = source.verdict() != Verdict::Final;
                BridgeError { source, attempts: 1, retryable }
            })?;
        logger.info(format_args!("[mcp-bridge] connected to {url}"));
        Ok(Self { url: url.to_owned(), session, logger, closed: AtomicBool::new(false) })
    }

    /// What is on the other side.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The connection itself, for what the bridge does not do.
    pub fn client(&self) -> &Session {
        &self.session
    }

    /// The revision spoken.
    pub fn revision(&self) -> &'static Revision {
        self.session.revision
    }

    /// All tools of the server.
    pub async fn tools(&self, timeout: Duration) -> Result<Tools, BridgeError> {
        let failed = |source: Cause| BridgeError {
            retryable: source.verdict() != Verdict::Final,
            source,
            attempts: 1,
        };
        tools(&self.session, timeout).await.map_err(failed)
    }

    /// Calls a tool; gives the server's result whole, as the bytes it sent. What may go better is
    /// tried again, after 1 s, then 2 s, and so on.
    pub async fn call_tool(
        &self,
        name: &str,
        arguments: &Value,
        options: CallOptions,
    ) -> Result<Bytes, BridgeError> {
        let params = call_params(name, arguments.to_string().as_bytes());
        let max_attempts = options.max_attempts.max(1);
        let mut attempt = 0;
        loop {
            if self.closed.load(Ordering::Acquire) {
                return Err(BridgeError { source: Cause::Closed, attempts: attempt, retryable: false });
            }
            attempt += 1;
            self.logger.info(format_args!("[mcp-bridge] callTool {name} attempt {attempt}/{max_attempts}"));
            let source = match self.session.request("tools/call", Some(&params), None, options.timeout).await
            {
                Ok(result) => return Ok(result),
                Err(source) => source,
            };
            let retryable = match source.verdict() {
                Verdict::Final => {
                    self.logger
                        .warn(format_args!("[mcp-bridge] callTool {name} non-retryable error: {source}"));
                    return Err(BridgeError { source, attempts: attempt, retryable: false });
                }
                Verdict::Lost => false,
                Verdict::Transient => attempt < max_attempts,
            };
            if !retryable {
                self.logger
                    .warn(format_args!("[mcp-bridge] callTool {name} failed after {attempt} attempt(s)"));
                return Err(BridgeError { source, attempts: attempt, retryable: true });
            }
            let delay = delay_ms(attempt);
            self.logger.info(format_args!("[mcp-bridge] retrying in {delay}ms (error: {source})"));
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
    }

    /// Ends the connection and everything behind it. May be called any number of times.
    pub async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.session.connection.close().await;
    }
}

/// Before attempt n+1: 1000·2^(n-1) ms, saturating.
fn delay_ms(attempt: u32) -> u64 {
    1u64.checked_shl(attempt - 1).map_or(u64::MAX, |factor| FIRST_DELAY_MS.saturating_mul(factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// BR-6: the delays double, and never overflow.
    #[test]
    fn delays_double_and_saturate() {
        for (attempt, delay) in
            [(1, 1000), (2, 2000), (3, 4000), (10, 512_000), (64, u64::MAX), (100, u64::MAX)]
        {
            assert_eq!(delay_ms(attempt), delay, "before attempt {}", attempt + 1);
        }
    }
}
