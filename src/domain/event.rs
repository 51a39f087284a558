//! What happens in the fleet, told to whoever listens: typed, numbered, and never needed for
//! correctness.
//!
//! Owns: the topics and what each carries, the numbers within a topic, which news a change of state
//! makes, and the difference between two catalogs.
//! Must not know: who listens, and how it reaches them.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;

use serde::{Serialize, Serializer};

use super::audit::CallId;
use super::clock::{Moment, Timestamp};
use super::ledger::clip;
use super::life::{Health, Phase, State};
use super::merkle::Hash;
use super::provider::ProviderError;

/// How much of a result an event repeats.
pub const SUMMARY_BYTES_MAX: usize = 1 << 10;

/// How many names one list of an event has. Events are kept, and a server chooses how many tools it has.
pub const NAMES_MAX: usize = 200;

/// One event, as subscribers get it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// Counts within the topic, from 1, without gaps: what is missing was missed.
    pub sequence: u64,
    /// For people and records.
    #[serde(serialize_with = "as_text")]
    pub timestamp: Timestamp,
    /// The call's; without a call, that of the connection's episode.
    pub correlation_id: CallId,
    /// The server's slug.
    pub server: String,
    /// The topic and what it carries.
    #[serde(flatten)]
    pub news: News,
}

impl Event {
    /// Its topic.
    pub fn topic(&self) -> &'static str {
        self.news.topic()
    }
}

/// What happened. Tools are called by the names their server knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "topic", content = "payload")]
pub enum News {
    /// The tools of a server are known for the first time since it started.
    #[serde(rename = "provider.mcp.tools.discovered")]
    ToolsDiscovered {
        /// How many.
        count: usize,
        /// Their names, in the order of the list; the first [`NAMES_MAX`].
        names: Vec<String>,
    },
    /// The tools of a server were listed again.
    #[serde(rename = "provider.mcp.tools.refreshed")]
    ToolsRefreshed(Diff),
    /// A call succeeded.
    #[serde(rename = "provider.mcp.tool.completed")]
    ToolCompleted {
        /// Which tool.
        tool: String,
        /// How long it took.
        duration_ms: u64,
        /// The beginning of the result; see [`summary`].
        summary: String,
    },
    /// A call failed, was refused, or its tool said that it failed.
    #[serde(rename = "provider.mcp.tool.failed")]
    ToolFailed {
        /// Which tool.
        tool: String,
        /// One of the taxonomy.
        code: &'static str,
        /// Whether it may go better next time.
        retryable: bool,
        /// For people.
        message: String,
    },
    /// A tool's definition is not the one that was pinned, or nobody has seen it before.
    #[serde(rename = "provider.mcp.tool.changed")]
    ToolChanged {
        /// Which tool; see `pin::INSTRUCTIONS`.
        tool: String,
        /// `changed` or `new`.
        kind: &'static str,
        /// The digest that was pinned.
        #[serde(skip_serializing_if = "Option::is_none")]
        pinned: Option<Hash>,
        /// The digest now.
        found: Hash,
        /// Whether it cannot be called until it is accepted.
        enforced: bool,
        /// How many more are so, and are not told one by one.
        #[serde(skip_serializing_if = "is_zero")]
        more: u64,
    },
    /// A tool's words hide something.
    #[serde(rename = "provider.mcp.tool.flagged")]
    ToolFlagged {
        /// Which tool.
        tool: String,
        /// For people: what was found and where.
        found: Vec<String>,
    },
    /// A result does not fit its tool's output schema, and was passed on.
    #[serde(rename = "provider.mcp.tool.output_mismatch")]
    OutputMismatch {
        /// Which tool.
        tool: String,
        /// For people: the first of what does not fit.
        message: String,
    },
    /// A server was lost.
    #[serde(rename = "provider.mcp.disconnected")]
    Disconnected {
        /// For people.
        reason: String,
    },
    /// A lost server is back.
    #[serde(rename = "provider.mcp.reconnected")]
    Reconnected {
        /// How many connects it took.
        attempts: u32,
        /// How long it was away.
        downtime_ms: u64,
    },
    /// A lost server will not be tried again.
    #[serde(rename = "provider.mcp.reconnect.exhausted")]
    ReconnectExhausted {
        /// How many attempts there were.
        attempts: u32,
    },
    /// A server does something else.
    #[serde(rename = "provider.state.changed")]
    StateChanged {
        /// See `State::status`.
        from: &'static str,
        /// See `State::status`.
        to: &'static str,
        /// For people: what is wrong, if something is.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A server is better or worse.
    #[serde(rename = "provider.health.changed")]
    HealthChanged {
        /// What it was.
        from: Health,
        /// What it is.
        to: Health,
        /// For people.
        reason: String,
    },
}

impl News {
    /// The topic, as subscribers name it.
    pub fn topic(&self) -> &'static str {
        match self {
            Self::ToolsDiscovered { .. } => "provider.mcp.tools.discovered",
            Self::ToolsRefreshed(_) => "provider.mcp.tools.refreshed",
            Self::ToolCompleted { .. } => "provider.mcp.tool.completed",
            Self::ToolFailed { .. } => "provider.mcp.tool.failed",
            Self::ToolChanged { .. } => "provider.mcp.tool.changed",
            Self::ToolFlagged { .. } => "provider.mcp.tool.flagged",
            Self::OutputMismatch { .. } => "provider.mcp.tool.output_mismatch",
            Self::Disconnected { .. } => "provider.mcp.disconnected",
            Self::Reconnected { .. } => "provider.mcp.reconnected",
            Self::ReconnectExhausted { .. } => "provider.mcp.reconnect.exhausted",
            Self::StateChanged { .. } => "provider.state.changed",
            Self::HealthChanged { .. } => "provider.health.changed",
        }
    }

    /// The same within bounds: names are clipped, and lists of them end.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        match &mut self {
            Self::ToolsDiscovered { names, .. } => bound(names),
            Self::ToolsRefreshed(diff) => {
                let Diff { added, removed, changed, unchanged: _, more } = diff;
                for names in [added, removed, changed] {
                    *more += names.len().saturating_sub(NAMES_MAX) as u64;
                    bound(names);
                }
            }
            Self::ToolCompleted { tool, .. }
            | Self::ToolFailed { tool, .. }
            | Self::ToolChanged { tool, .. }
            | Self::ToolFlagged { tool, .. }
            | Self::OutputMismatch { tool, .. } => shorten(tool),
            Self::Disconnected { .. }
            | Self::Reconnected { .. }
            | Self::ReconnectExhausted { .. }
            | Self::StateChanged { .. }
            | Self::HealthChanged { .. } => {}
        }
        self
    }

    /// A call that failed, from the one taxonomy.
    pub fn failed(tool: &str, error: &ProviderError) -> Self {
        let message = summary(&error.to_string());
        Self::ToolFailed { tool: tool.to_owned(), code: error.code(), retryable: error.retryable(), message }
    }

    /// What a change of a server's state is worth telling. A probe that comes and goes is not.
    pub fn of_change(before: &State, after: &State, now: Moment) -> Vec<Self> {
        let mut news = Vec::new();
        let trouble = after.trouble(now);
        match (&before.phase, &after.phase) {
            _ if before.serves() && !after.serves() && !after.is_at_rest() => {
                let reason = lost_because(after).unwrap_or_else(|| "no reason is known".to_owned());
                news.push(Self::Disconnected { reason });
            }
            (Phase::Connecting { outage, .. }, Phase::Ready { .. }) if outage.was_ready => {
                let attempts = outage.failed_connects.saturating_add(1);
                let downtime_ms = u64::try_from(now.since(outage.since).as_millis()).unwrap_or(u64::MAX);
                news.push(Self::Reconnected { attempts, downtime_ms });
            }
            _ => {}
        }
        if let (false, Phase::Exhausted { outage, .. }) =
            (matches!(before.phase, Phase::Exhausted { .. }), &after.phase)
        {
            news.push(Self::ReconnectExhausted { attempts: outage.attempt });
        }
        let (from, to) = (before.status(), after.status());
        if from != to && !(before.serves() && after.serves()) {
            news.push(Self::StateChanged { from, to, reason: trouble.clone() });
        }
        let (from, to) = (before.health(), after.health());
        if from != to {
            let reason = trouble.unwrap_or_else(|| after.status().to_owned());
            news.push(Self::HealthChanged { from, to, reason });
        }
        news
    }
}

fn bound(names: &mut Vec<String>) {
    names.truncate(NAMES_MAX);
    names.iter_mut().for_each(shorten);
}

fn shorten(name: &mut String) {
    let end = clip(name).len();
    if end < name.len() {
        name.truncate(end);
        name.push('…');
    }
}

fn lost_because(state: &State) -> Option<String> {
    match &state.phase {
        Phase::Connecting { outage, .. }
        | Phase::Backoff { outage, .. }
        | Phase::Exhausted { outage, .. }
        | Phase::Blocked { outage, .. } => outage.reason.as_deref().map(str::to_owned),
        Phase::Idle | Phase::Ready { .. } | Phase::Probing { .. } | Phase::Closing { .. } | Phase::Closed => {
            None
        }
    }
}

/// Gives every event its number. There are as many counters as topics, and no more.
#[derive(Clone, Debug, Default)]
pub struct Sequences {
    last: HashMap<&'static str, u64>,
}

impl Sequences {
    /// The next event of its topic.
    pub fn stamp(&mut self, server: &str, correlation_id: CallId, timestamp: Timestamp, news: News) -> Event {
        let last = self.last.entry(news.topic()).or_default();
        *last += 1;
        let (sequence, server, news) = (*last, server.to_owned(), news.bounded());
        Event { sequence, timestamp, correlation_id, server, news }
    }
}

/// The difference between two catalogs of one server, in the order of the names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Diff {
    /// Names that are new.
    pub added: Vec<String>,
    /// Names that are gone.
    pub removed: Vec<String>,
    /// Names whose definition is another.
    pub changed: Vec<String>,
    /// How many are as they were.
    pub unchanged: usize,
    /// How many names are left out, where a list is longer than [`NAMES_MAX`].
    #[serde(skip_serializing_if = "is_zero")]
    pub more: u64,
}

impl Diff {
    /// Names with the digests of what they stand for, before and after.
    pub fn between<N: AsRef<str> + Ord>(before: &BTreeMap<N, Hash>, after: &BTreeMap<N, Hash>) -> Self {
        let mut diff = Self::default();
        for (name, digest) in after {
            match before.get(name) {
                None => diff.added.push(name.as_ref().to_owned()),
                Some(old) if old != digest => diff.changed.push(name.as_ref().to_owned()),
                Some(_) => diff.unchanged += 1,
            }
        }
        let gone = before.keys().filter(|name| !after.contains_key(name));
        diff.removed = gone.map(|name| name.as_ref().to_owned()).collect();
        diff
    }

    /// Whether nothing is different.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

/// The beginning of a text, in at most [`SUMMARY_BYTES_MAX`] bytes, ending in `…` if there is more.
pub fn summary(text: &str) -> String {
    if text.len() <= SUMMARY_BYTES_MAX {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(SUMMARY_BYTES_MAX - '…'.len_utf8());
    format!("{}…", &text[..end])
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

fn as_text<S: Serializer>(value: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

#[cfg(test)]
mod tests;
