//! The path of one call: turn → validate → audit enter → dispatch → audit exit.
//!
//! Owns: the order of the five stages, and that nothing is served around them.
//! Uses: `tools` for what is served, the audit port for what is recorded.
//! Must not know: which face the call came from, or how a record is stored.

use std::sync::Arc;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use crate::domain::audit::{CallId, Principal};
use crate::domain::clock::Moment;
use crate::domain::tool::Definition;

/// One call, as it arrived.
#[derive(Debug)]
pub struct Call {
    /// Its correlation id.
    pub id: CallId,
    /// The tool's name, as the client gave it.
    pub tool: Arc<str>,
    /// The arguments as raw JSON, if there were any.
    pub arguments: Option<Bytes>,
    /// Who asks, and in which protocol revision.
    pub caller: Caller,
    /// When it arrived.
    pub arrived: Moment,
    /// Cancelled by the client or by a shutdown.
    pub cancel: CancellationToken,
}

/// Who asks.
#[derive(Clone, Debug)]
pub struct Caller {
    /// On whose behalf.
    pub principal: Arc<Principal>,
    /// The protocol revision, by its date.
    pub revision: &'static str,
}

/// What the face passes on to its client.
#[derive(Debug)]
pub enum Reply {
    /// The tool's envelope, as raw JSON, and whether it tells of an error.
    Envelope {
        /// `{ok:true,data}` or `{ok:false,error}`.
        body: Bytes,
        /// Whether the client must see an error.
        is_error: bool,
    },
    /// No tool has that name.
    UnknownTool {
        /// What to say, with the nearest known name if there is one.
        message: String,
    },
    /// The client cancelled it: nothing is to be answered.
    Cancelled,
}

/// A cheap handle to the call path.
#[derive(Clone)]
pub struct Calls {}

impl Calls {
    /// A fresh call, named and timed.
    pub fn arrival(
        &self,
        tool: &str,
        arguments: Option<Bytes>,
        caller: Caller,
        cancel: CancellationToken,
    ) -> Call {
        let _ = (tool, arguments, caller, cancel);
        todo!()
    }

    /// What the mode admits, ordered by name.
    pub fn definitions(&self) -> Arc<[Definition]> {
        todo!()
    }

    /// The five stages.
    pub async fn run(&self, call: Call) -> Reply {
        let _ = call;
        todo!()
    }
}
