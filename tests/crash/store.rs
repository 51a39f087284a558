//! The store alone, where a story needs what no client can do: hold a call open, break the database
//! under it, or watch its transactions.

use std::sync::Arc;

use bytes::Bytes;
use colibri::app::SystemClock;
use colibri::domain::audit::{
    AuditError, AuditSink, CallId, Durability, Enter, Exit, Outcome, Payloads, Principal,
};
use colibri::domain::clock::Clock;
use colibri::domain::log::Logger;
use colibri::store::{Closing, LedgerSink, Options, Store};
use uuid::Uuid;

use super::support::Place;

/// A store of its own: its writer, its presence, as another process would have them.
pub(crate) fn open(place: &Place) -> (Store, Closing) {
    let options = Options {
        database: place.database.clone(),
        durability: Durability::default(),
        payloads: Payloads::default(),
        version: "test".to_owned(),
        clock: Arc::new(SystemClock::start()),
        logger: Logger::silent(),
    };
    Store::open(options).unwrap()
}

/// A call of that client, about to begin.
pub(crate) fn arrival(client: &str) -> Enter {
    let principal = Principal { client: client.to_owned(), user: "test".to_owned() };
    let (id, now) = (CallId(Uuid::now_v7()), SystemClock::start().now());
    Enter::new(id, "slow".into(), Bytes::from_static(b"{}"), Arc::new(principal), "2025-06-18", now)
}

/// Its good end.
pub(crate) fn ending(enter: &Enter) -> Exit {
    Exit::of(enter, enter.at, Outcome::Ok, Bytes::from_static(b"{\"ok\":true}"), None)
}

/// A whole call.
pub(crate) async fn call(store: &Store, client: &str) -> Result<(), AuditError> {
    let (sink, enter) = (LedgerSink::new(store.clone()), arrival(client));
    sink.enter(&enter).await?;
    sink.exit(&ending(&enter)).await
}
