//! Who serves the calls of a server: one connection for all, one for each session, or one for each call.
//!
//! Owns: which connection an attempt gets, and what becomes of it when the attempt is over.
//! Must not know: deadlines, queues, or what is asked.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::domain::face::SessionId;
use crate::domain::life::{Generation, Phase};
use crate::domain::provider::{ProviderError, Unavailable};
use crate::mcp::raw::Members;

use super::pool::{Held, Pool, Refused};
use super::session::Session;
use super::sessions::Sessions;
use super::ship::{Calling, Failed, Ship, What};
use super::supervisor::{Hold, Live, Status, Supervised, Surroundings};
use super::terms::{Apart, Lending, Lives};

/// Who serves calls.
pub(super) enum Crew {
    /// The supervised connection, which others use too.
    Joined,
    /// The supervised connection, which nobody else uses.
    Own,
    /// One for each session.
    Sessions(Sessions),
    /// One for each call.
    Pools(Pools),
}

/// The pools of one server.
pub(super) struct Pools {
    usual: Pool,
    /// For tools with limits of their own.
    apart: Vec<(BTreeSet<String>, Pool)>,
}

/// A connection for one attempt.
pub(super) enum Hand {
    /// Of a supervised server.
    Kept {
        /// Who supervises it.
        supervised: Supervised,
        /// The connection.
        live: Live,
        /// It is used until this is dropped.
        _used: Hold,
    },
    /// Of a pool, for this attempt alone.
    Lent(Held),
}

impl Crew {
    pub(super) fn new(lives: Lives, is_joined: bool, scout: &Supervised, around: &Surroundings) -> Self {
        match lives {
            Lives::Used if is_joined => Self::Joined,
            Lives::Used => Self::Own,
            Lives::Session(recipe) => Self::Sessions(Sessions::new(recipe, scout, around)),
            Lives::Call(Lending { bounds, recipe, apart }) => {
                let apart = apart
                    .into_iter()
                    .map(|Apart { tools, recipe }| (tools, Pool::apart(&recipe, bounds, scout, around)));
                let apart = apart.collect();
                Self::Pools(Pools { usual: Pool::start(&recipe, bounds, scout, around), apart })
            }
        }
    }

    /// A session has left.
    pub(super) fn left(&self, session: SessionId) {
        if let Self::Sessions(sessions) = self {
            sessions.left(session);
        }
    }

    /// Ends what it has beside the supervised connection and would outlast it, for now.
    pub(super) async fn rest(&self) {
        match self {
            Self::Sessions(sessions) => sessions.rest().await,
            // What waits in a pool goes when its scout rests.
            Self::Joined | Self::Own | Self::Pools(_) => {}
        }
    }

    /// Whether what it has beside the supervised connection has ended, or is about to.
    pub(super) fn is_over(&self) -> bool {
        matches!(self, Self::Pools(pools) if pools.usual.is_over())
    }

    /// Ends what it has beside the supervised connection; returns when nothing of it is left.
    pub(super) async fn close(&self) {
        match self {
            Self::Joined | Self::Own => {}
            Self::Sessions(sessions) => sessions.close().await,
            Self::Pools(Pools { usual, apart }) => {
                let apart = apart.iter().map(|(_, pool)| pool);
                join_all(apart.chain([usual]).map(Pool::close)).await;
            }
        }
    }
}

impl Pools {
    /// The pool for what is asked; none for what outlives its request.
    fn of(&self, what: What<'_>) -> Option<&Pool> {
        match what {
            What::Tool { tool, .. } => {
                let apart = self.apart.iter().find(|(tools, _)| tools.contains(&*tool.tool));
                Some(apart.map_or(&self.usual, |(_, pool)| pool))
            }
            What::Other { method: "resources/subscribe" | "resources/unsubscribe", .. } => None,
            What::Other { .. } => Some(&self.usual),
        }
    }
}

impl Ship {
    /// A connection for one attempt, within the deadline.
    pub(super) async fn hand(&self, calling: &Calling<'_>, until: Instant) -> Result<Hand, Failed> {
        let supervised = match &self.crew {
            Crew::Joined | Crew::Own => self.supervised.clone(),
            Crew::Sessions(sessions) => sessions.of(calling.session).map_err(|error| self.for_now(error))?,
            Crew::Pools(pools) => match pools.of(calling.what) {
                Some(pool) => return self.lent(pool, until).await.map(Hand::Lent),
                None => self.supervised.clone(),
            },
        };
        let used = supervised.usage().hold();
        let live = self.acquire(&supervised, until).await.map_err(|error| self.for_good(error))?;
        Ok(Hand::Kept { supervised, live, _used: used })
    }

    /// A connection for this attempt alone. A server that is not well as a whole is refused as any other; one that
    /// only its scout has lost is not.
    async fn lent(&self, pool: &Pool, until: Instant) -> Result<Held, Failed> {
        let status = Arc::clone(&self.status().borrow());
        if needs_the_scout(&status) {
            self.acquire(&self.supervised, until).await.map_err(|error| self.for_good(error))?;
        }
        let until = until.min(Instant::now() + self.terms.acquire_timeout);
        pool.take(until).await.map_err(|refused| match refused {
            Refused::Over => self.for_good(ProviderError::Terminated),
            Refused::Lasting(why) => self.for_good(ProviderError::InitFailed(why)),
            Refused::NotReady { why, age } => {
                self.for_now(ProviderError::Unavailable { reason: Unavailable::InitFailed, why, age })
            }
        })
    }
}

/// Whether nothing can be said before the scout serves: it never did, rests, or has given up.
fn needs_the_scout(status: &Status) -> bool {
    let is_being_brought_back =
        status.connects > 0 && matches!(status.state.phase, Phase::Connecting { .. } | Phase::Backoff { .. });
    status.live.is_none() && !is_being_brought_back
}

impl Hand {
    /// The connection.
    pub(super) fn session(&self) -> &Session {
        match self {
            Self::Kept { live, .. } => &live.session,
            Self::Lent(held) => held.session(),
        }
    }

    /// How many of its questions wait for a person.
    pub(super) fn asking(&self) -> watch::Receiver<usize> {
        match self {
            Self::Kept { supervised, .. } => supervised.asking(),
            Self::Lent(held) => held.asking(),
        }
    }

    /// Returns when it is ended under its call, where nobody else would say so.
    pub(super) async fn over(&self) {
        match self {
            Self::Kept { .. } => std::future::pending().await,
            Self::Lent(held) => held.over().await,
        }
    }

    /// The attempt has its answer. Whether a tool's own error left something behind nobody knows, so that is no good
    /// end.
    pub(super) fn ended_well(self, result: &Bytes) {
        if let Self::Lent(held) = self
            && !says_error(result)
        {
            held.give_back();
        }
    }

    /// The attempt ran out of time, or its connection cannot be written to. What was lent ends when it is dropped.
    pub(super) fn timed_out(&self, crew: &Crew) {
        let Self::Kept { supervised, live: Live { generation, .. }, .. } = self else { return };
        let generation: Generation = *generation;
        match crew {
            Crew::Joined | Crew::Pools(_) => supervised.timed_out(generation),
            Crew::Own => supervised.distrust(generation),
            Crew::Sessions(_) => supervised.kill(generation),
        }
    }
}

/// Nearly no result says the word at all, and those are not taken apart.
fn says_error(result: &Bytes) -> bool {
    memchr::memmem::find(result, b"isError").is_some()
        && Members::of(result)
            .and_then(|members| members.get("isError").map(|is| is.get() == "true"))
            .unwrap_or(false)
}
