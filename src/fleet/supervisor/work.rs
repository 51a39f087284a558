//! What a supervisor has done for it: connecting, probing, listing, closing.

use std::sync::Arc;

use tokio::time::Instant;

use crate::domain::ledger::clip;
use crate::domain::life::Lasting;
use crate::domain::log::Logger;
use crate::mcp::revision::Family;

use super::{Live, Probe, Settings};
use crate::fleet::era::{Era, Parties, introduce};
use crate::fleet::error::Cause;
use crate::fleet::inbox::Handler;
use crate::fleet::listing;
use crate::fleet::offer::Offered;
use crate::fleet::session::{Request as Ask, Session};

/// Connects, and is not done before the tools are listed: a server without tools is not well.
pub(super) async fn connect(
    settings: &Settings,
    handler: Arc<dyn Handler>,
    logger: Logger,
) -> Result<(Session, Offered), Cause> {
    let until = Instant::now() + settings.connect_timeout;
    let Settings { opener, client, memory, .. } = settings;
    let parties = Parties {
        opener: opener.as_ref(),
        client: Arc::clone(client),
        handler,
        logger,
        memory: memory.clone(),
    };
    let session = introduce(parties, Era::Auto, settings.connect_timeout).await?;
    match listing::offer(&session, until.saturating_duration_since(Instant::now())).await {
        Ok(offered) => Ok((session, offered)),
        Err(cause) => {
            session.connection().close().await;
            Err(cause)
        }
    }
}

/// Asks for a sign of life. A server that refuses the question has answered it all the same.
pub(super) async fn probe(settings: &Settings, session: &Session) -> Result<(), Cause> {
    let method = match (settings.probe, session.revision().family) {
        (Probe::ListTools, _) => "tools/list",
        (Probe::Ping, Family::Legacy) => "ping",
        (Probe::Ping, Family::Modern) => "server/discover",
    };
    match session.request(method, Ask::default(), settings.probe_timeout).await {
        Ok(_) | Err(Cause::Answered { .. }) => Ok(()),
        Err(cause) => Err(cause),
    }
}

pub(super) async fn close(live: Option<Live>) {
    if let Some(live) = live {
        live.session.connection().close().await;
    }
}

pub(super) fn reason(cause: &Cause) -> Arc<str> {
    clip(&cause.to_string()).into()
}

/// What no repetition cures.
pub(super) fn lasting(cause: &Cause) -> Option<Lasting> {
    match cause {
        Cause::Start { .. } => Some(Lasting::CommandNotFound),
        Cause::Invalid(_) => Some(Lasting::BadConfiguration),
        Cause::Unauthorized(_) | Cause::Http { status: 401 | 403, .. } => Some(Lasting::NotAuthorized),
        Cause::Version { .. } => Some(Lasting::VersionMismatch),
        _ => None,
    }
}

/// In [0, 1), for the lengthening of delays. Without randomness they are not lengthened.
pub(super) fn dice() -> f64 {
    let mut bytes = [0; 4];
    let _ = getrandom::fill(&mut bytes);
    f64::from(u32::from_le_bytes(bytes)) / (f64::from(u32::MAX) + 1.0)
}
