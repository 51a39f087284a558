//! The store alone, where a story needs what no client can do: hold a call open, break the database
//! under it, or watch its transactions.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use colibri::app::SystemClock;
use colibri::domain::audit::{
    AuditError, AuditSink, CallId, Durability, Enter, Exit, Outcome, Payloads, Principal,
};
use colibri::domain::clock::Clock;
use colibri::domain::log::Logger;
use colibri::store::{Closing, LedgerSink, Options, Phase, Reader, Store};
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

fn block_on<T>(story: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(story)
}

async fn one_call(place: &Place, client: &str) {
    let (store, closing) = open(place);
    store.ready().await.unwrap_or_else(|error| panic!("{client}: {error}"));
    call(&store, client).await.unwrap();
    closing.close().await;
}

/// SU-11: a note that a full disk or a crash tore in its middle is passed over and does not spoil the
/// next one, wherever it was torn.
#[test]
fn a_torn_checkpoint_is_passed_over() {
    let signed = Place::new();
    block_on(async {
        one_call(&signed, "first").await;
        let notes = std::fs::read_to_string(signed.paths().checkpoints).unwrap();
        let note = &notes.as_bytes()[notes.rfind("\ncolibri/").expect("a note begins with its origin")..];
        for kept in (1..note.len() - 1).step_by(37) {
            // A crash in the middle of an append leaves the beginning of a note, and no row for it.
            let place = Place::new();
            one_call(&place, "before").await;
            let mut torn = std::fs::OpenOptions::new().append(true).open(place.paths().checkpoints).unwrap();
            std::io::Write::write_all(&mut torn, &note[..kept]).unwrap();
            one_call(&place, &format!("torn at {kept}")).await;
            let verdict = Reader::open(&place.paths()).unwrap().verify(&mut |_, _| true).unwrap();
            assert!(verdict.valid, "torn at {kept}: {verdict:?}");
        }
    });
}

/// SU-11: what is unsigned is signed within a second or so, also when calls keep trickling in.
#[test]
fn a_trickle_of_calls_is_signed_too() {
    let place = Place::new();
    block_on(async {
        let (store, closing) = open(&place);
        store.ready().await.unwrap();
        let mut beat = tokio::time::interval(Duration::from_millis(300));
        let mut calls = 0;
        while store.status().signed < 2 {
            beat.tick().await;
            call(&store, "trickle").await.unwrap();
            calls += 1;
            assert!(calls < 20, "no signature during {calls} calls, 300 ms apart");
        }
        closing.close().await;
    });
}

/// SU-4: a call that cannot be recorded since its record's commit failed is not run; the writer
/// reopens for the next one, and an entry that this process lost is closed as unknown.
#[test]
fn a_poisoned_writer_reopens_and_closes_what_it_lost() {
    let place = Place::new();
    block_on(async {
        let (store, closing) = open(&place);
        store.ready().await.unwrap();
        let sink = LedgerSink::new(store.clone());
        let (kept, lost) = (arrival("kept"), arrival("lost"));
        sink.enter(&kept).await.unwrap();
        // An entry that nobody holds any more, as after a commit that failed and yet reached the disk.
        LedgerSink::new(store.clone()).enter(&lost).await.unwrap();

        let breaker = rusqlite::Connection::open(&place.database).unwrap();
        let made = "SELECT sql FROM sqlite_schema WHERE name = 'body'";
        let made: String = breaker.query_row(made, [], |row| row.get(0)).unwrap();
        breaker.execute_batch("ALTER TABLE body RENAME TO elsewhere").unwrap();
        let refused = call(&store, "refused").await.unwrap_err();
        assert!(refused.0.contains("no such table"), "{refused}");
        assert!(matches!(store.status().phase, Phase::Failed(_)));
        // Back to the letter: SQLite quotes what it renames, and verification would notice.
        breaker.execute_batch("ALTER TABLE elsewhere RENAME TO body; PRAGMA writable_schema = ON").unwrap();
        breaker.execute("UPDATE sqlite_schema SET sql = ? WHERE name = 'body'", [made]).unwrap();
        breaker.execute_batch("PRAGMA writable_schema = RESET").unwrap();

        call(&store, "after").await.unwrap();
        assert_eq!(store.status().phase, Phase::Open);
        let outcome = |client: &str| {
            let actions = place.actions_of(client);
            actions.iter().map(|action| action.outcome.clone()).collect::<Vec<_>>()
        };
        assert_eq!(outcome("lost"), ["unknown"]);
        assert_eq!(outcome("kept"), ["running"], "an entry that is held is not touched");
        assert!(outcome("refused").is_empty());
        sink.exit(&ending(&kept)).await.unwrap();
        closing.close().await;
        assert_eq!((outcome("kept"), outcome("after")), (vec!["ok".to_owned()], vec!["ok".to_owned()]));
    });
    place.verify();
}

/// SU-4: a crowd shares its commits, and nobody waits for company.
#[test]
fn many_verbs_share_one_commit() {
    let place = Place::new();
    let calls = 400;
    block_on(async {
        let (store, closing) = open(&place);
        store.ready().await.unwrap();
        let watcher = rusqlite::Connection::open(&place.database).unwrap();
        // Changes once for every commit of another connection that this one gets to see.
        let version = || watcher.query_row("PRAGMA data_version", [], |row| row.get::<_, i64>(0)).unwrap();
        let before = version();
        let mut crowd = tokio::task::JoinSet::new();
        for _ in 0..calls {
            let store = store.clone();
            crowd.spawn(async move { call(&store, "crowd").await });
        }
        let mut commits = 0;
        let mut seen = before;
        while let Some(done) = crowd.join_next().await {
            done.unwrap().unwrap();
            let now = version();
            commits += i64::from(now != seen);
            seen = now;
        }
        closing.close().await;
        assert!(commits < calls / 10, "{commits} commits seen for {calls} calls");
    });
    assert_eq!(place.actions_of("crowd").len(), usize::try_from(calls).unwrap());
    place.verify();
}

/// SU-4: a reader sees the log as it stands while a foreign program holds a write transaction open;
/// a call fails closed once its patience ends, and the next one works.
#[test]
fn readers_never_wait_and_writers_wait_with_an_end() {
    let place = Place::new();
    block_on(async {
        let (store, closing) = open(&place);
        store.ready().await.unwrap();
        call(&store, "before").await.unwrap();
        store.checkpoint().await.unwrap();
        let foreign = rusqlite::Connection::open(&place.database).unwrap();
        foreign.execute_batch("BEGIN IMMEDIATE; UPDATE log SET calls = calls").unwrap();
        let waiting = tokio::spawn({
            let store = store.clone();
            async move { call(&store, "waiting").await }
        });
        tokio::task::yield_now().await;
        let reader = store.reader().unwrap();
        assert_eq!(reader.extent().unwrap().1, 3);
        assert!(reader.verify(&mut |_, _| true).unwrap().valid);
        assert!(!waiting.is_finished(), "the reader was not what waited");
        let refused = waiting.await.unwrap().unwrap_err();
        assert!(refused.0.contains("locked"), "{refused}");
        foreign.execute_batch("ROLLBACK").unwrap();
        call(&store, "after").await.unwrap();
        closing.close().await;
    });
    assert!(place.actions_of("waiting").is_empty());
    place.verify();
}

/// SU-4, CO-11: when another process is stopped while it holds the write lock, a call is told so
/// after a while, and the end of the process does not wait for it for ever.
#[test]
fn a_stopped_process_makes_the_ledger_busy_and_holds_up_no_end() {
    let place = Place::new();
    block_on(async {
        one_call(&place, "before").await;
        let (store, closing) = open(&place);
        store.ready().await.unwrap();
        let lock = std::fs::OpenOptions::new().append(true).open(place.database.with_extension("db.lock"));
        let lock = lock.unwrap();
        lock.lock().unwrap();
        let refused = call(&store, "refused").await.unwrap_err();
        assert!(refused.0.contains("busy") && refused.0.contains("write lock"), "{refused}");
        closing.close().await;
        drop(lock);
        one_call(&place, "after").await;
    });
    assert!(place.actions_of("refused").is_empty(), "a call that gave up does not appear later");
    place.verify();
}

/// SB-3: the files of a store stay the same ones, whether the key is replaced, the ledger fails and is opened again, or
/// the store is closed: what keeps servers away from a file would be gone with it.
#[test]
fn the_files_of_a_store_are_never_replaced() {
    use std::os::unix::fs::MetadataExt;
    let place = Place::new();
    let folder = place.database.parent().unwrap();
    let files = || {
        let found = std::fs::read_dir(folder).unwrap().flatten();
        let numbered = found.map(|entry| (entry.file_name(), entry.metadata().unwrap().ino()));
        numbered.collect::<std::collections::BTreeMap<_, _>>()
    };
    block_on(async {
        let (store, closing) = open(&place);
        store.ready().await.unwrap();
        let first = files();
        assert_eq!(first.len(), 10, "{first:?}");
        store.rotate_key().await.unwrap();
        call(&store, "after the rotation").await.unwrap();
        assert_eq!(files(), first);
        closing.close().await;
        assert_eq!(files(), first, "closed");
        let wal = place.database.with_extension("db-wal");
        assert_eq!(std::fs::metadata(wal).unwrap().len(), 0, "all of it is in the database");
        one_call(&place, "the next one").await;
        assert_eq!(files(), first, "opened again");
    });
    place.verify();
}
