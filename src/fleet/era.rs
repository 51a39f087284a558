//! Which family a server belongs to: asked once, the modern way first.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio::time::{Instant, timeout, timeout_at};

use crate::domain::log::Logger;
use crate::mcp::error::code;
use crate::mcp::request::{Client, initialize_params, meta};
use crate::mcp::revision::{Family, LEGACY, REVISIONS, Revision, known, modern};

use super::connection::{Ask, Connection, Handler, Session};
use super::error::Cause;
use super::link::Opener;

/// A server that says nothing to `server/discover` for this long is asked with `initialize`.
pub const PROBE_SILENCE: Duration = Duration::from_secs(10);

/// What is known of a server's family before it is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Era {
    /// Nothing: it is probed.
    #[default]
    Auto,
    /// It begins with `initialize`.
    Legacy,
    /// It has no sessions.
    Modern,
}

/// Opens a connection and introduces us, in whichever family the server speaks.
pub async fn introduce(
    opener: &dyn Opener,
    era: Era,
    client: Arc<Client>,
    handler: Arc<dyn Handler>,
    logger: &Logger,
    deadline: Duration,
) -> Result<Session, Cause> {
    let meeting =
        Meeting { opener, client, handler, logger: logger.clone(), until: Instant::now() + deadline };
    match meeting.meet(era).await {
        // Whichever clock ran out first, it is the same deadline.
        Err(Cause::TimedOut(_)) => Err(Cause::TimedOut(deadline)),
        met => met,
    }
}

struct Meeting<'o> {
    opener: &'o dyn Opener,
    client: Arc<Client>,
    handler: Arc<dyn Handler>,
    logger: Logger,
    until: Instant,
}

impl Meeting<'_> {
    async fn meet(&self, era: Era) -> Result<Session, Cause> {
        let connection = self.open().await?;
        let asked = async {
            match era {
                Era::Legacy => self.initialize(&connection).await,
                Era::Auto | Era::Modern => self.probe(&connection, era).await,
            }
        };
        // Only the asking is cut by the deadline, never the closing after it.
        let met = timeout_at(self.until, asked).await.unwrap_or(Err(Cause::TimedOut(Duration::ZERO)));
        match met {
            // It exits on what it does not know: it is started again, and asked the old way.
            Err(Cause::Gone(_)) if era == Era::Auto => {
                connection.close().await;
                let connection = self.open().await?;
                let met = self.initialize(&connection).await;
                self.or_closed(met, &connection).await
            }
            met => self.or_closed(met, &connection).await,
        }
    }

    async fn or_closed(
        &self,
        met: Result<Session, Cause>,
        connection: &Connection,
    ) -> Result<Session, Cause> {
        if met.is_err() {
            connection.close().await;
        }
        met
    }

    /// The modern question first. After an error it cannot be, or after silence, the old way; a late
    /// answer to the modern question still counts.
    async fn probe(&self, connection: &Connection, era: Era) -> Result<Session, Cause> {
        let ask = Ask { meta: meta(modern(), &self.client, None), ..Ask::default() };
        let mut discover = pin!(connection.request("server/discover", ask, self.left()));
        let Ok(answered) = timeout(PROBE_SILENCE, &mut discover).await else {
            let mut initialize = pin!(self.initialize(connection));
            return tokio::select! {
                biased;
                Ok(introduction) = &mut discover => self.discovered(connection, introduction),
                met = &mut initialize => met,
            };
        };
        match answered {
            Ok(introduction) => self.discovered(connection, introduction),
            // Only a modern server has this code.
            Err(Cause::Answered { code: code::UNSUPPORTED_PROTOCOL_VERSION, raw, .. }) => Err(versions(&raw)),
            // Any other error: never key on one code.
            Err(Cause::Answered { .. } | Cause::Protocol(_) | Cause::Network(_)) if era == Era::Auto => {
                self.initialize(connection).await
            }
            Err(Cause::Answered { .. }) => Err(versions("only revisions that begin with initialize")),
            Err(cause) => Err(cause),
        }
    }

    fn discovered(&self, connection: &Connection, introduction: Bytes) -> Result<Session, Cause> {
        let offered: Value = serde_json::from_slice(&introduction).unwrap_or_default();
        let offered = offered["supportedVersions"].as_array().cloned().unwrap_or_default();
        if offered.iter().any(|version| version == modern().date) {
            return Ok(self.session(connection, modern(), introduction));
        }
        Err(versions(&Value::from(offered).to_string()))
    }

    async fn open(&self) -> Result<Connection, Cause> {
        let opened = self.opener.open().await?;
        Ok(Connection::new(opened, Arc::clone(&self.handler), self.logger.clone()))
    }

    fn session(&self, connection: &Connection, revision: &'static Revision, introduction: Bytes) -> Session {
        Session { connection: connection.clone(), revision, client: Arc::clone(&self.client), introduction }
    }

    async fn initialize(&self, connection: &Connection) -> Result<Session, Cause> {
        let params = initialize_params(&LEGACY, &self.client);
        let ask = Ask { params: Some(&params), ..Ask::default() };
        let introduction = connection.request("initialize", ask, self.left()).await?;
        let revision = agreed(&introduction)?;
        connection.notify("notifications/initialized", None, None).await?;
        Ok(self.session(connection, revision, introduction))
    }

    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }
}

/// The revision that the server chose, if we speak it.
fn agreed(introduction: &Bytes) -> Result<&'static Revision, Cause> {
    let result: Value =
        serde_json::from_slice(introduction).map_err(|error| Cause::Protocol(error.to_string()))?;
    let chosen = result["protocolVersion"].as_str().unwrap_or_default();
    known(chosen, Family::Legacy).ok_or_else(|| versions(if chosen.is_empty() { "none" } else { chosen }))
}

fn versions(server: &str) -> Cause {
    let ours: Vec<&str> = REVISIONS.iter().map(|revision| revision.date).collect();
    let server: String = server.chars().take(200).collect();
    Cause::Version { server, ours: ours.join(", ") }
}
