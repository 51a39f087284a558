//! What a supervisor has done for it: connecting, probing, listing, closing.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::domain::audit::CallId;
use crate::domain::ledger::clip;
use crate::domain::life::Lasting;
use crate::domain::log::Logger;
use crate::domain::mask::Masks;
use crate::mcp::error::code;
use crate::mcp::request::Client;
use crate::mcp::revision::Family;

use super::{Live, Probe, Settings};
use crate::fleet::era::{Era, Parties, introduce};
use crate::fleet::error::Cause;
use crate::fleet::inbox::Handler;
use crate::fleet::inspect::Inspector;
use crate::fleet::listen::Listening;
use crate::fleet::listing;
use crate::fleet::offer::Offered;
use crate::fleet::session::{Request as Ask, Session};

/// How long a server that starts with colibri waits for a client to say what it can do.
const INTRODUCTION_WAIT: Duration = Duration::from_secs(1);

/// A look at what a server offers, before anybody sees it.
pub(super) struct Inspection {
    pub(super) inspector: Arc<Inspector>,
    pub(super) before: Arc<Offered>,
    pub(super) episode: CallId,
}

impl Inspection {
    pub(super) async fn at(&self, offered: Offered) -> Result<Offered, Cause> {
        self.inspector.inspect(offered, &self.before, self.episode).await
    }
}

/// Connects, and is not done before the tools are listed: a server without tools is not well.
pub(super) async fn connect(
    settings: &Settings,
    handler: Arc<dyn Handler>,
    logger: Logger,
    look: Option<Inspection>,
) -> Result<(Session, Offered), Cause> {
    let client = client(settings).await;
    let until = Instant::now() + settings.connect_timeout;
    let Settings { opener, memory, .. } = settings;
    let parties = Parties { opener: opener.as_ref(), client, handler, logger, memory: memory.clone() };
    let session = introduce(parties, Era::Auto, settings.connect_timeout).await?;
    let offered = match listing::offer(&session, until.saturating_duration_since(Instant::now())).await {
        Ok(offered) => match look {
            Some(look) => look.at(offered).await,
            None => Ok(offered),
        },
        Err(cause) => Err(cause),
    };
    match offered {
        Ok(offered) => {
            set_log_level(settings, &session, &offered).await;
            Ok((session, offered))
        }
        Err(cause) => {
            session.connection().close().await;
            Err(cause)
        }
    }
}

/// Who we are, and what the client behind us can do for the server. It is waited for, but not for long: a server
/// that starts with colibri would not know otherwise, and is told only once.
async fn client(settings: &Settings) -> Arc<Client> {
    let Some(face) = &settings.face else { return Arc::clone(&settings.client) };
    let capabilities = timeout(INTRODUCTION_WAIT, face.introduced()).await;
    let Ok(serde_json::Value::Object(mut capabilities)) = capabilities else {
        return Arc::clone(&settings.client);
    };
    capabilities.retain(|name, _| matches!(name.as_str(), "roots" | "sampling" | "elicitation"));
    Arc::new(Client { capabilities: capabilities.into(), ..Client::clone(&settings.client) })
}

/// A client's wish that came before the server did.
async fn set_log_level(settings: &Settings, session: &Session, offered: &Offered) {
    let level = settings.face.as_ref().and_then(|face| face.log_level());
    if let Some(level) = level.filter(|_| offered.abilities.logging) {
        let params = serde_json::json!({ "level": level }).to_string();
        let request = Ask { params: Some(params.as_bytes()), ..Ask::default() };
        // One that does not do as it says is not worth failing for.
        let _ = session.request("logging/setLevel", request, settings.probe_timeout).await;
    }
}

/// Asks for a sign of life. A server that refuses the question is asked for its tools; one that has none has answered
/// all the same.
pub(super) async fn probe(settings: &Settings, session: &Session) -> Result<(), Cause> {
    let until = Instant::now() + settings.probe_timeout;
    if settings.probe == Probe::Ping {
        let method = match session.revision().family {
            Family::Legacy => "ping",
            Family::Modern => "server/discover",
        };
        match session.request(method, Ask::default(), settings.probe_timeout).await {
            Err(Cause::Answered { .. }) => {}
            answered => return answered.map(drop),
        }
    }
    let left = until.saturating_duration_since(Instant::now());
    match session.request("tools/list", Ask::default(), left).await {
        Ok(_) | Err(Cause::Answered { code: code::METHOD_NOT_FOUND, .. }) => Ok(()),
        Err(cause) => Err(cause),
    }
}

/// Ends a connection, and with it the listening: what is over is not taken back.
pub(super) async fn close(live: Option<Live>, listening: Option<Listening>) {
    if let Some(live) = live {
        live.session.connection().close().await;
    }
    drop(listening);
}

pub(super) fn reason(cause: &Cause, masks: &Masks) -> Arc<str> {
    clip(&masks.text(&cause.to_string())).into()
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
