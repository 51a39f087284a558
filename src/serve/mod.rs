//! Faces: how a client reaches the call path — today one, stdio — and how a person reaches a running colibri.
//!
//! Owns: a connection's protocol state, its calls in flight, its answers on their way out, and — in
//! `stdio` alone — the process's stdout.
//! Uses: `mcp` for what the bytes mean, `call` for what a call does.
//! Must not know: how a call is validated or recorded, HTTP, the environment; sockets, but for `operator`.

mod connection;
#[cfg(test)]
mod double;
mod front;
mod in_flight;
mod listening;
pub mod operator;
mod outbox;
mod places;
mod session;
mod stdio;

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::call::{Call, Caller, Calls, Reply};
use crate::domain::log::Logger;
use crate::domain::offer::{Changes, Entries, Kind};
use crate::mcp::answer::Identity;
use crate::mcp::lines::FRAME_BYTES_MAX;
use crate::mcp::lists::ToolList;

use connection::Connection;
pub use front::Front;
use outbox::Outbox;
use session::Session;
pub use stdio::Transport;

/// Calls that run at once on one connection. As many again may wait; beyond that, reading waits.
pub const CALLS_IN_FLIGHT_MAX: u32 = 256;

/// Answers that a client has not read yet. Beyond it, reading waits.
pub const ANSWERS_BYTES_MAX: usize = 16 << 20;

/// How long calls in flight may go on when the connection ends. Nearly all end by themselves in it.
pub const CALLS_GRACE: Duration = Duration::from_secs(1);

/// How long cancelled calls have to come back, after the grace.
pub const CALLS_CANCEL: Duration = Duration::from_millis(300);

/// From the end of a connection to the return of [`run`]. The SDKs kill a server that takes 2 s; what
/// is left belongs to the store.
pub const STOP_WITHIN: Duration = Duration::from_millis(1_500);

/// The bounds of one connection.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// One frame of a client.
    pub frame_bytes_max: usize,
    /// See [`ANSWERS_BYTES_MAX`].
    pub answers_bytes_max: usize,
    /// See [`CALLS_IN_FLIGHT_MAX`].
    pub calls_in_flight_max: u32,
    /// See [`CALLS_GRACE`].
    pub calls_grace: Duration,
    /// See [`CALLS_CANCEL`].
    pub calls_cancel: Duration,
    /// See [`STOP_WITHIN`].
    pub stop_within: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes_max: FRAME_BYTES_MAX,
            answers_bytes_max: ANSWERS_BYTES_MAX,
            calls_in_flight_max: CALLS_IN_FLIGHT_MAX,
            calls_grace: CALLS_GRACE,
            calls_cancel: CALLS_CANCEL,
            stop_within: STOP_WITHIN,
        }
    }
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The client closed its side.
    EndOfInput,
    /// colibri was told to stop.
    Stopped,
    /// The client no longer reads.
    ClientGone,
}

/// What a face needs to know of the world.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who answers.
    pub identity: Identity,
    /// The operating-system user on whose behalf calls are made.
    pub user: String,
    /// What bounds the connection.
    pub limits: Limits,
    /// By which servers reach the client.
    pub front: Front,
}

/// What clients can ask for; looked at only if they do.
pub trait Menu {
    /// What may be called, ordered by name.
    fn listed(&self) -> Arc<ToolList>;

    /// What servers offer of another kind.
    fn entries(&self, kind: Kind) -> Entries;

    /// What there is to know of the servers; nothing if there are none.
    fn instructions(&self) -> Option<Arc<str>>;
}

/// The call path, as far as a face needs it. [`Calls`] is the real one; the face's own tests hand in
/// one that panics, hangs or refuses at will.
pub trait CallPath: Menu + Clone + Send + Sync + 'static {
    /// Changes whenever one of the lists does.
    fn list_changes(&self) -> watch::Receiver<Changes>;

    /// Tells all servers something of the client's.
    fn tell_servers(&self, method: &'static str);

    /// Tells all servers how severe a log message must be to be sent.
    fn log_level(&self, level: &'static str);

    /// A fresh call, named and timed.
    fn arrival(
        &self,
        tool: &str,
        arguments: Option<Bytes>,
        caller: Caller,
        cancel: CancellationToken,
    ) -> Call;

    /// Runs it.
    fn run(&self, call: Call) -> impl Future<Output = Reply> + Send;
}

impl Menu for Calls {
    fn listed(&self) -> Arc<ToolList> {
        Calls::listed(self)
    }

    fn entries(&self, kind: Kind) -> Entries {
        Calls::entries(self, kind)
    }

    fn instructions(&self) -> Option<Arc<str>> {
        Calls::instructions(self)
    }
}

impl CallPath for Calls {
    fn list_changes(&self) -> watch::Receiver<Changes> {
        Calls::list_changes(self)
    }

    fn tell_servers(&self, method: &'static str) {
        Calls::tell_servers(self, method);
    }

    fn log_level(&self, level: &'static str) {
        Calls::log_level(self, level);
    }

    fn arrival(
        &self,
        tool: &str,
        arguments: Option<Bytes>,
        caller: Caller,
        cancel: CancellationToken,
    ) -> Call {
        Calls::arrival(self, tool, arguments, caller, cancel)
    }

    fn run(&self, call: Call) -> impl Future<Output = Reply> + Send {
        Calls::run(self, call)
    }
}

/// Serves one client until it leaves or `stop` is cancelled. When this returns, every call has ended
/// and every answer is written, or [`Limits::stop_within`] has passed.
pub async fn run(
    transport: Transport,
    calls: impl CallPath,
    settings: Settings,
    logger: Logger,
    stop: CancellationToken,
) -> io::Result<Ended> {
    let outbox = Outbox::new(settings.limits.answers_bytes_max);
    let chunks = stdio::start(transport, outbox.clone(), logger.clone())?;
    let session = Session::new(Arc::new(settings.identity), settings.user);
    let connection = Connection::new(session, calls, chunks, outbox, settings.front, settings.limits, logger);
    Ok(connection.run(stop).await)
}
