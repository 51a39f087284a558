//! Which family a server belongs to: asked once, the modern way first.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, timeout, timeout_at};

use crate::domain::audit::Pending;
use crate::domain::log::Logger;
use crate::mcp::error::code;
use crate::mcp::request::{Client, meta_members};
use crate::mcp::revision::{Family, REVISIONS, Revision, known, modern};

use super::connection::{Ask, Connection};
use super::error::Cause;
use super::inbox::Handler;
use super::link::Opener;
use super::session::{Session, initialize};

/// A server that says nothing to `server/discover` for this long is asked with `initialize`.
pub const PROBE_SILENCE: Duration = Duration::from_secs(10);

/// Errors that only a modern server has, the last of them the one for versions.
const MODERN_ONLY: std::ops::RangeInclusive<i32> = code::UNSUPPORTED_PROTOCOL_VERSION..=code::HEADER_MISMATCH;

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

/// What a server spoke the last time, kept between two starts by whoever can. A memory that fails is
/// no memory: nothing depends on it but time.
pub trait Memory: Send + Sync {
    /// The family, if it is known.
    fn recall(&self) -> Pending<'_, Option<Family>>;

    /// It speaks this one.
    fn remember(&self, family: Family) -> Pending<'_, ()>;
}

/// Who meets whom.
pub struct Parties<'a> {
    /// How the server is reached.
    pub opener: &'a dyn Opener,
    /// Who we are.
    pub client: Arc<Client>,
    /// What the server may ask of us.
    pub handler: Arc<dyn Handler>,
    /// Where lines for people go.
    pub logger: Logger,
    /// What it spoke the last time.
    pub memory: Option<Arc<dyn Memory>>,
}

/// Opens a connection and introduces us, in whichever family the server speaks.
pub async fn introduce(parties: Parties<'_>, era: Era, deadline: Duration) -> Result<Session, Cause> {
    let meeting = Meeting { parties, until: Instant::now() + deadline };
    match meeting.remembered(era).await {
        // Whichever clock ran out first, it is the same deadline.
        Err(Cause::TimedOut(_)) => Err(Cause::TimedOut(deadline)),
        met => met,
    }
}

struct Meeting<'a> {
    parties: Parties<'a>,
    until: Instant,
}

impl Meeting<'_> {
    /// What it spoke the last time is tried first; if it has changed, it is asked as if for the first
    /// time.
    async fn remembered(&self, era: Era) -> Result<Session, Cause> {
        let Some(memory) = self.parties.memory.as_ref().filter(|_| era == Era::Auto) else {
            return self.meet(era).await;
        };
        let recalled = match memory.recall().await {
            Some(Family::Legacy) => Some(self.meet(Era::Legacy).await),
            Some(Family::Modern) => Some(self.meet(Era::Modern).await),
            None => None,
        };
        match recalled {
            // What it says no longer fits what it said.
            Some(Err(
                Cause::Answered { .. }
                | Cause::Http { .. }
                | Cause::Protocol(_)
                | Cause::Version { .. }
                | Cause::Gone(_),
            ))
            | None => {}
            Some(met) => return met,
        }
        let session = self.meet(Era::Auto).await?;
        memory.remember(session.revision().family).await;
        Ok(session)
    }

    async fn meet(&self, era: Era) -> Result<Session, Cause> {
        let opener = self.parties.opener;
        match self.meet_by(opener, era).await {
            // It exits on what it does not know: it is started again, and asked the old way.
            Err(Cause::Gone(_)) if era == Era::Auto => self.meet_by(opener, Era::Legacy).await,
            // It does not know this transport; perhaps the one before it.
            Err(unknown @ Cause::Http { status: 400 | 404 | 405, .. }) => match opener.older() {
                None => Err(unknown),
                Some(older) => match self.meet_by(older.as_ref(), Era::Legacy).await {
                    // Neither: what it said first is about the address as it was meant.
                    Err(Cause::Http { .. } | Cause::Protocol(_)) => Err(unknown),
                    met => met,
                },
            },
            met => met,
        }
    }

    async fn meet_by(&self, opener: &dyn Opener, era: Era) -> Result<Session, Cause> {
        let opening =
            Connection::open(opener, Arc::clone(&self.parties.handler), self.parties.logger.clone());
        let late = || Cause::TimedOut(Duration::ZERO);
        let connection = timeout_at(self.until, opening).await.map_err(|_| late())??;
        let asked = async {
            match era {
                Era::Legacy => self.initialize(&connection).await,
                Era::Auto | Era::Modern => self.probe(&connection, era).await,
            }
        };
        // Only the asking is cut by the deadline, never the closing after it.
        let met = timeout_at(self.until, asked).await.unwrap_or_else(|_| Err(late()));
        if met.is_err() {
            connection.close().await;
        }
        met
    }

    /// The modern question first. After an error it cannot be, or after silence, the old way; a late
    /// answer to the modern question still counts.
    async fn probe(&self, connection: &Connection, era: Era) -> Result<Session, Cause> {
        let meta = meta_members(modern(), &self.parties.client);
        let ask = || Ask { meta: &meta, ..Ask::default() };
        let mut discover = pin!(connection.request("server/discover", ask(), self.left()));
        let Ok(mut answered) = timeout(PROBE_SILENCE, &mut discover).await else {
            let mut initialize = pin!(self.initialize(connection));
            return tokio::select! {
                biased;
                Ok(introduction) = &mut discover => self.discovered(connection, era, introduction).await,
                met = &mut initialize => met,
            };
        };
        // It names what it speaks. If that is ours after all, it is asked once more.
        if let Err(Cause::Answered { code: code::UNSUPPORTED_PROTOCOL_VERSION, raw, .. }) = &answered {
            let supported = supported(raw);
            match common(&supported, era) {
                Some(Family::Modern) => {
                    answered = connection.request("server/discover", ask(), self.left()).await;
                }
                Some(Family::Legacy) => return self.initialize(connection).await,
                None => return Err(versions(&supported.join(", "))),
            }
        }
        match answered {
            Ok(introduction) => self.discovered(connection, era, introduction).await,
            // These say that it is modern, and that something is wrong all the same.
            Err(Cause::Answered { code, message, raw }) if MODERN_ONLY.contains(&code) => {
                Err(Cause::Answered { code, message, raw })
            }
            // One that wants to be left alone is not asked a second question.
            Err(cause @ Cause::Http { status: 429, .. }) => Err(cause),
            // Any other error: never key on one code.
            Err(Cause::Answered { .. } | Cause::Protocol(_) | Cause::Http { status: 400..=501, .. })
                if era == Era::Auto =>
            {
                self.initialize(connection).await
            }
            Err(Cause::Answered { .. }) => Err(versions("only revisions that begin with initialize")),
            Err(cause) => Err(cause),
        }
    }

    async fn discovered(
        &self,
        connection: &Connection,
        era: Era,
        introduction: Bytes,
    ) -> Result<Session, Cause> {
        let supported = Introduction::read(&introduction).supported_versions;
        if !supported.is_array() && era == Era::Auto {
            // It answers anything with something. What it does not say, it does not mean.
            return self.initialize(connection).await;
        }
        let offered = texts(&supported);
        match common(&offered, era) {
            Some(Family::Modern) => self.session(connection, modern(), introduction).await,
            Some(Family::Legacy) => self.initialize(connection).await,
            None => Err(versions(&offered.join(", "))),
        }
    }

    async fn initialize(&self, connection: &Connection) -> Result<Session, Cause> {
        let introduction = initialize(connection, &self.parties.client, self.left()).await?;
        self.session(connection, agreed(&introduction)?, introduction).await
    }

    async fn session(
        &self,
        connection: &Connection,
        revision: &'static Revision,
        introduction: Bytes,
    ) -> Result<Session, Cause> {
        let (client, handler) = (Arc::clone(&self.parties.client), Arc::clone(&self.parties.handler));
        Session::begin(connection.clone(), revision, client, handler, introduction).await
    }

    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }
}

/// What is read of a server's word for itself. The rest may hold numbers and texts that no type of
/// ours holds, and is none of our business.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Introduction {
    supported_versions: Value,
    protocol_version: Value,
}

impl Introduction {
    fn read(raw: &Bytes) -> Self {
        serde_json::from_slice(raw).unwrap_or_default()
    }
}

/// What a modern server says it speaks when it refuses a revision.
fn supported(error: &str) -> Vec<String> {
    let error: Value = serde_json::from_str(error).unwrap_or_default();
    texts(&error["data"]["supported"])
}

/// The family that both sides speak, the newer first.
fn common(offered: &[String], era: Era) -> Option<Family> {
    let has = |family| offered.iter().any(|date| known(date, family).is_some());
    if has(Family::Modern) {
        Some(Family::Modern)
    } else {
        (era == Era::Auto && has(Family::Legacy)).then_some(Family::Legacy)
    }
}

fn texts(list: &Value) -> Vec<String> {
    let texts = list.as_array().into_iter().flatten().filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}

/// The revision that the server chose, if we speak it.
fn agreed(introduction: &Bytes) -> Result<&'static Revision, Cause> {
    let version = Introduction::read(introduction).protocol_version;
    let chosen = version.as_str().unwrap_or_default();
    known(chosen, Family::Legacy).ok_or_else(|| versions(if chosen.is_empty() { "none" } else { chosen }))
}

fn versions(server: &str) -> Cause {
    let ours: Vec<&str> = REVISIONS.iter().map(|revision| revision.date).collect();
    let server: String = server.chars().take(200).collect();
    Cause::Version { server, ours: ours.join(", ") }
}
