//! A running colibri: what the configuration says, put together, and taken apart in reverse.

use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::call::Calls;
use crate::config::{self, Config, Loaded};
use crate::domain::log::Logger;
use crate::domain::mask::Masks;
use crate::fleet::roster::Fleet;
use crate::serve::Limits;
use crate::serve::operator::Bound;
use crate::store::{Closing, LedgerSink, Options, Store, StoreError};

use super::clock::SystemClock;
use super::covers::Covers;
use super::fleet::{self, secrets};
use super::operator::{self, Desk};
use super::reload::{self, Load, Reloader};
use super::server::{Builder, Server, StartError};
use super::watch::WATCH_INTERVAL;

/// Why colibri did not run, or ended badly.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The ledger cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The server did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A server behind it that is `required` did not start.
    #[error("the server `{server}` is required, and did not start: {reason}")]
    Required {
        /// Its name.
        server: String,
        /// For people.
        reason: String,
    },
}

/// The ledger's options, as the configuration has them.
pub fn store_options(config: &Config, logger: &Logger) -> Options {
    Options {
        database: config.database.clone(),
        durability: config.audit.durability,
        payloads: config.audit.payloads,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        clock: Arc::new(SystemClock::start()),
        logger: logger.clone(),
    }
}

/// Serves one client on stdio until it leaves or a signal comes. Shutdown is start in reverse: the
/// face first, the ledger last, since everybody above writes to it.
/// `load` reads the configuration again when it may have changed.
pub async fn serve(loaded: &Loaded, load: Load, logger: &Logger) -> Result<(), RunError> {
    let config = &loaded.config;
    let masks = Arc::<Masks>::default();
    masks.hide(secrets(loaded));
    // What a server says may be in any line, so none is written without a look.
    let masking = Arc::clone(&masks);
    let logger = &logger.through(move |line| masking.text(line));
    // Before anything takes time: nobody who sends one means that colibri should end.
    let hangups = signal(SignalKind::hangup()).ok();
    let (store, closing) = Store::open(store_options(config, logger))?;
    // Before any server runs: what is out of their reach has to be there.
    let opened = ready(&store, config.startup_timeout).await;
    let socket = operator::open(config, logger).await;
    let covers = Covers::of(loaded);
    let behind = (loaded.clone(), store.clone(), logger.clone());
    let (hand_over, mut handed) = oneshot::channel();
    let hiding = Arc::clone(&masks);
    let mut server = server(config, &store, logger)
        .servers(move |berth| {
            let (fleet, yard) = fleet::start(&behind.0, &behind.1, berth, hiding, &behind.2)?;
            let _ = hand_over.send((fleet.clone(), yard));
            Some(fleet)
        })
        .build();
    let outcome = match opened {
        Ok(()) => server.start().await.map_err(RunError::from),
        Err(error) => Err(error),
    };
    let (ask, asked) = mpsc::channel(reload::REQUESTS_MAX);
    let (publish, current) = watch::channel(Arc::new(loaded.clone()));
    let handed = handed.try_recv().ok();
    let outcome = match (&handed, outcome) {
        (Some((fleet, yard)), Ok(())) => {
            yard.record(loaded).await;
            let stopped = server.stopper();
            let required = required(fleet, config.startup_timeout);
            // Who is told to stop meanwhile stops, and nothing is wrong with that.
            stopped.run_until_cancelled(required).await.unwrap_or(Ok(()))
        }
        (_, outcome) => outcome,
    };
    let fleet = handed.as_ref().map(|(fleet, _)| fleet.clone());
    if let (Some((fleet, yard)), Ok(())) = (handed, &outcome) {
        let (masks, logger) = (Arc::clone(&masks), logger.clone());
        let reloader = Reloader { load, yard, fleet, covers, publish, masks, every: WATCH_INTERVAL, logger };
        tokio::spawn(reloader.run(asked, hangups, server.stopper()));
    }
    match &outcome {
        Ok(()) => {
            let desk = Desk::new(current, fleet, Arc::new(SystemClock::start()), masks, ask);
            let operating = socket.map(|socket| operate(socket, desk));
            let _ = server.wait().await;
            if let Some((stop, operating)) = operating {
                stop.cancel();
                let _ = operating.await;
            }
        }
        Err(_) => server.stop().await,
    }
    // A ledger that did not open in time has nothing to finish, and would be waited for again.
    if !matches!(outcome, Err(RunError::Start(StartError::Timeout))) {
        closing.close().await;
    }
    outcome
}

/// Waits for the servers without which colibri is of no use, and no longer than a start may take.
async fn required(fleet: &Fleet, patience: Duration) -> Result<(), RunError> {
    match tokio::time::timeout(patience, fleet.required()).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err((server, reason))) => Err(RunError::Required { server: server.to_string(), reason }),
        Err(_) => Err(StartError::Timeout.into()),
    }
}

/// Serves people who look, beside the client.
fn operate(socket: Bound, desk: Desk) -> (CancellationToken, JoinHandle<()>) {
    let stop = CancellationToken::new();
    let serving = socket.serve(Arc::new(desk), stop.clone());
    (stop, tokio::spawn(serving))
}

/// The call path without a client: for a person's call from the command line.
pub async fn calls(config: &Config, logger: &Logger) -> Result<(Calls, Closing), RunError> {
    let (store, closing) = Store::open(store_options(config, logger))?;
    ready(&store, config.startup_timeout).await?;
    let calls = server(config, &store, logger).build().into_calls()?;
    Ok((calls, closing))
}

/// The same with one server of the configuration behind it, by its name. It is started, and ends with the fleet; none
/// of the others is.
pub async fn calls_of(
    loaded: &Loaded,
    name: &str,
    logger: &Logger,
) -> Result<(Calls, Option<Fleet>, Closing), RunError> {
    let masks = Arc::<Masks>::default();
    masks.hide(secrets(loaded));
    let masking = Arc::clone(&masks);
    let logger = &logger.through(move |line| masking.text(line));
    let config = &loaded.config;
    let (store, closing) = Store::open(store_options(config, logger))?;
    ready(&store, config.startup_timeout).await?;
    let mut only = loaded.clone();
    only.config.servers.retain(|server| server.name == name);
    let (hand_over, mut handed) = oneshot::channel();
    let behind = (store.clone(), logger.clone());
    let server = server(config, &store, logger).servers(move |berth| {
        let (fleet, _) = fleet::start(&only, &behind.0, berth, masks, &behind.1)?;
        let _ = hand_over.send(fleet.clone());
        Some(fleet)
    });
    let calls = server.build().into_calls()?;
    Ok((calls, handed.try_recv().ok(), closing))
}

/// Waits until it is known whether the ledger can be written, and no longer than a start may take.
pub async fn ready(store: &Store, patience: Duration) -> Result<(), RunError> {
    match tokio::time::timeout(patience, store.ready()).await {
        Ok(opened) => Ok(opened?),
        Err(_) => Err(StartError::Timeout.into()),
    }
}

fn server(config: &Config, store: &Store, logger: &Logger) -> Builder {
    Server::builder()
        .audit_sink(LedgerSink::new(store.clone()))
        .store(store.clone())
        .skills(config.skills.clone())
        .mode(config.mode)
        .logger(logger.clone())
        .startup_timeout(config.startup_timeout)
        .on_exit_failure(config.audit.on_exit_failure)
        .require_session(config.audit.require_session)
        .user(&config::os_user())
        .limits(Limits { frame_bytes_max: config.limits.frame_bytes as usize, ..Limits::default() })
}
