//! A ledger to tamper with: built once through the library, then copied for every story.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, OnceLock};

use colibri::app::SystemClock;
use colibri::domain::audit::{AuditSink, CallId, Durability, Enter, Exit, Outcome, Payloads, Principal};
use colibri::domain::chronicle::Chronicle;
use colibri::domain::clock::Clock;
use colibri::domain::log::Logger;
use colibri::domain::merkle::Hash;
use colibri::domain::pin::PinnedBy;
use colibri::store::{
    Closing, LedgerChronicle, LedgerSink, Options, Paths, Reader, Store, StoreError, Verdict,
};
use rusqlite::Connection;
use tempfile::TempDir;
use uuid::Uuid;

/// Enough for two complete subtrees of 256 and a ragged end.
const CALLS: usize = 350;

/// How many bits of a place are the index within its log.
const INDEX_BITS: u32 = 40;

/// The place of a record of the first log.
pub(super) fn place(index: u64) -> i64 {
    1 << INDEX_BITS | index.cast_signed()
}

/// A closed ledger: about 700 records, several checkpoints, a rotated key, truncated bodies, and one
/// call that never ended.
pub(super) struct Ledger {
    folder: TempDir,
    /// How many records it has.
    pub(super) size: u64,
    /// The sizes that are signed, ascending; the last is [`Self::size`].
    pub(super) signed: Vec<u64>,
    /// The database as it was when it had about half of its records.
    pub(super) older: PathBuf,
}

impl Ledger {
    /// The one that most stories start from.
    pub(super) fn get() -> &'static Self {
        static LEDGER: OnceLock<Ledger> = OnceLock::new();
        LEDGER.get_or_init(|| Self::build(CALLS))
    }

    /// Another one, with an origin and a key of its own.
    pub(super) fn build(calls: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("ledger.db");
        let older = folder.path().join("older.db");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(write_calls(&database, &older, calls));
        let reader = Reader::open(&Paths::beside(&database)).unwrap();
        let size = reader.extent().unwrap().1;
        let signed = {
            let connection = Connection::open(&database).unwrap();
            let mut sizes = connection.prepare("SELECT size FROM checkpoint ORDER BY size").unwrap();
            let sizes = sizes.query_map([], |row| row.get::<_, i64>(0)).unwrap();
            sizes.map(|size| size.unwrap().cast_unsigned()).collect::<Vec<_>>()
        };
        assert_eq!(signed.last(), Some(&size), "closing signs");
        Self { folder, size, signed, older }
    }

    /// The same with tools pinned at its end, some of them twice.
    pub(super) fn with_pins(mut self) -> Self {
        let database = self.folder.path().join("ledger.db");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let writing = Writing::to(&database).await;
            let chronicle = LedgerChronicle::new(writing.store.clone());
            for (server, by, version) in [
                ("github", PinnedBy::FirstSight, 1),
                ("files", PinnedBy::FirstSight, 1),
                ("github", PinnedBy::Accepted, 2),
            ] {
                let tools = (0..5 * version).map(|tool| (format!("tool_{tool}"), Hash([version; 32])));
                let tools = tools.collect();
                chronicle.pin(CallId(Uuid::now_v7()), server, tools, by).await.unwrap();
            }
            writing.close().await;
        });
        self.size = Reader::open(&Paths::beside(&database)).unwrap().extent().unwrap().1;
        self.signed.push(self.size);
        self
    }

    /// The largest signed size that is not above `index`: all that the checkpoints can say of it.
    pub(super) fn signed_before(&self, index: u64) -> u64 {
        self.signed.iter().copied().rfind(|size| *size <= index).unwrap_or(0)
    }

    /// A copy to do anything to.
    pub(super) fn copy(&self) -> Copy {
        let copy = Copy { folder: tempfile::tempdir().unwrap() };
        copy.restore(self);
        copy
    }
}

/// A store with a sink, and the calls that fill it.
pub(super) struct Writing {
    pub(super) store: Store,
    closing: Closing,
    sink: LedgerSink,
    clock: SystemClock,
    principal: Arc<Principal>,
}

impl Writing {
    pub(super) async fn to(database: &Path) -> Self {
        let clock = SystemClock::start();
        let (store, closing) = Store::open(Options {
            database: database.to_owned(),
            durability: Durability::Relaxed,
            payloads: Payloads::Truncated,
            version: "0.0.0".to_owned(),
            clock: Arc::new(clock),
            logger: Logger::silent(),
        })
        .unwrap();
        store.ready().await.unwrap();
        let principal = Arc::new(Principal { client: "story".to_owned(), user: "tester".to_owned() });
        Self { sink: LedgerSink::new(store.clone()), store, closing, clock, principal }
    }

    /// The beginning of a call.
    pub(super) async fn enter(&self, tool: &str, arguments: String) -> Enter {
        let (call, principal) = (CallId(Uuid::now_v7()), Arc::clone(&self.principal));
        let enter =
            Enter::new(call, tool.into(), arguments.into(), principal, "2025-11-25", self.clock.now());
        self.sink.enter(&enter).await.unwrap();
        enter
    }

    /// A whole call. Some results are longer than what is kept of them, and some are empty.
    pub(super) async fn call(&self, number: usize) {
        let arguments = format!(r#"{{"number":{number},"text":"{}"}}"#, "a".repeat(number % 7));
        let enter = self.enter(&format!("tool_{}", number % 5), arguments).await;
        let result = match number % 10 {
            0 => String::new(),
            1 => format!(r#"{{"long":"{}"}}"#, "b".repeat(5000)),
            _ => format!(r#"{{"ok":true,"data":{number}}}"#),
        };
        let exit = Exit::of(&enter, self.clock.now(), Outcome::Ok, result.into(), None);
        self.sink.exit(&exit).await.unwrap();
    }

    /// Signs and closes.
    pub(super) async fn close(self) {
        self.closing.close().await;
    }
}

async fn write_calls(database: &Path, older: &Path, calls: usize) {
    let writing = Writing::to(database).await;
    for number in 0..calls {
        writing.call(number).await;
        if number == calls / 5 || number == calls / 2 || number == calls * 2 / 3 {
            writing.store.checkpoint().await.unwrap();
        }
        if number == calls / 3 {
            writing.store.rotate_key().await.unwrap();
        }
        if number == calls / 2 {
            let connection = Connection::open(database).unwrap();
            connection.execute("VACUUM INTO ?", [older.to_str().unwrap()]).unwrap();
        }
    }
    writing.enter("endless", "{}".to_owned()).await;
    writing.close().await;
}

/// A ledger of one's own.
pub(super) struct Copy {
    folder: TempDir,
}

impl Copy {
    pub(super) fn paths(&self) -> Paths {
        Paths::beside(&self.folder.path().join("ledger.db"))
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Makes it again what the ledger is.
    pub(super) fn restore(&self, ledger: &Ledger) {
        for entry in std::fs::read_dir(self.folder()).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                std::fs::remove_file(path).unwrap();
            }
        }
        for name in ["ledger.db", "ledger.db.checkpoints", "ledger.db.key", "ledger.db.keys"] {
            std::fs::copy(ledger.folder.path().join(name), self.folder().join(name)).unwrap();
        }
    }

    /// The attacker's connection: no foreign eyes, no ceremony.
    pub(super) fn connect(&self) -> Connection {
        let connection = Connection::open(self.paths().database).unwrap();
        connection.pragma_update(None, "synchronous", "OFF").unwrap();
        connection
    }

    /// One statement of the attacker's.
    #[track_caller]
    pub(super) fn sql(&self, sql: &str) {
        let changed = self.connect().execute(sql, []).unwrap();
        assert!(changed > 0, "`{sql}` changes nothing");
    }

    /// What the library says.
    pub(super) fn verdict(&self) -> Result<Verdict, StoreError> {
        Reader::open(&self.paths())?.verify(&mut |_, _| true)
    }

    /// Runs the binary on it.
    pub(super) fn colibri(&self, arguments: &[&str]) -> Output {
        let database = self.paths().database;
        let mut all = vec!["--database", database.to_str().unwrap()];
        all.extend(arguments);
        colibri(self.folder(), &all)
    }

    /// The text of a checkpoint file, changed.
    pub(super) fn change_notes(&self, change: impl FnOnce(String) -> String) {
        let path = self.paths().checkpoints;
        let text = std::fs::read_to_string(&path).unwrap();
        let changed = change(text.clone());
        assert_ne!(text, changed, "the notes are changed");
        std::fs::write(&path, changed).unwrap();
    }
}

/// Runs the binary in a folder, with no configuration and nothing on stdin.
pub(super) fn colibri(folder: &Path, arguments: &[&str]) -> Output {
    run(Path::new(env!("CARGO_BIN_EXE_colibri")), folder, arguments)
}

/// Runs a program in a folder that is also its home, with nothing on stdin.
#[expect(clippy::disallowed_methods, reason = "the story is about programs")]
pub(super) fn run(program: &Path, folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("COLIBRI_") || name.starts_with("XDG_")) {
            command.env_remove(name);
        }
    }
    command.args(arguments).current_dir(folder).env("HOME", folder).stdin(Stdio::null()).output().unwrap()
}

/// Whether the long runs were asked for.
#[expect(clippy::disallowed_methods, reason = "this is how `./check full` asks")]
pub(super) fn is_full() -> bool {
    std::env::var("COLIBRI_CHECK").is_ok_and(|check| check == "full")
}
