//! What is put on record and remembered of servers: over a real database, restarted, shared, migrated
//! and tampered with.

#![expect(clippy::unwrap_used, reason = "in a story, what must hold and does not is a panic")]

mod catalogs;
mod facts;
mod pins;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use colibri::domain::audit::{CallId, Durability, Payloads};
use colibri::domain::clock::{Clock, Moment, Timestamp};
use colibri::domain::log::Logger;
use colibri::domain::merkle::Hash;
use colibri::domain::pin::digest;
use colibri::store::{Closing, LedgerChronicle, Options, Paths, Reader, Store, Verdict};
use rusqlite::Connection;
use serde_json::Value;
use tempfile::TempDir;
use uuid::Uuid;

/// A day that a story can let pass.
#[derive(Clone)]
struct Calendar(Arc<AtomicU64>);

impl Calendar {
    fn pass(&self, days: u64) {
        self.0.fetch_add(days * 24 * 60 * 60 * 1000, Ordering::Relaxed);
    }
}

impl Clock for Calendar {
    fn now(&self) -> Moment {
        Moment { wall: Timestamp(self.0.load(Ordering::Relaxed)), since_boot: Duration::ZERO }
    }
}

/// A folder with one ledger in it.
struct World {
    folder: TempDir,
    calendar: Calendar,
}

impl World {
    fn new() -> Self {
        let calendar = Calendar(Arc::new(AtomicU64::new(1_794_776_100_000)));
        Self { folder: tempfile::tempdir().unwrap(), calendar }
    }

    /// The same ledger once more, closed as it is, to do anything to.
    fn copy(&self) -> Self {
        let copy = Self::new();
        for name in ["ledger.db", "ledger.db.checkpoints", "ledger.db.key", "ledger.db.keys"] {
            std::fs::copy(self.folder.path().join(name), copy.folder.path().join(name)).unwrap();
        }
        copy
    }

    fn database(&self) -> PathBuf {
        self.folder.path().join("ledger.db")
    }

    fn options(&self) -> Options {
        Options {
            database: self.database(),
            durability: Durability::Relaxed,
            payloads: Payloads::default(),
            version: "0.0.0".to_owned(),
            clock: Arc::new(self.calendar.clone()),
            logger: Logger::silent(),
        }
    }

    /// A store of its own: its writer, its presence, as another process would have them.
    async fn open(&self) -> Open {
        let (store, closing) = Store::open(self.options()).unwrap();
        store.ready().await.unwrap();
        Open { chronicle: Arc::new(LedgerChronicle::new(store)), closing }
    }

    fn verdict(&self) -> Verdict {
        let reader = Reader::open(&Paths::beside(&self.database())).unwrap();
        reader.verify(&mut |_, _| true).unwrap()
    }

    /// The facts of every record of that kind, in order, each with its index.
    fn records(&self, kind: &str) -> Vec<(u64, Value)> {
        let reader = Reader::open(&Paths::beside(&self.database())).unwrap();
        let parsed = |row: colibri::store::RecordRow| {
            let mut record: Value = serde_json::from_str(&row.bytes).unwrap();
            (record["event"] == kind).then(|| (row.index, record["facts"].take()))
        };
        reader.records(0, u64::MAX).unwrap().into_iter().filter_map(parsed).collect()
    }

    /// The attacker's connection.
    fn sql(&self, sql: &str) {
        Connection::open(self.database()).unwrap().execute_batch(sql).unwrap();
    }

    /// The real binary on this ledger, with no configuration but that.
    fn colibri(&self, arguments: &[&str]) -> Output {
        self.fit(Command::new(env!("CARGO_BIN_EXE_colibri"))).args(arguments).output().unwrap()
    }

    fn fit(&self, mut command: Command) -> Command {
        let home: &Path = self.folder.path();
        command
            .env_clear()
            .env("HOME", home)
            .env("COLIBRI_DB_PATH", self.database())
            .envs(super::support::measured());
        command.current_dir(home).stdin(Stdio::null());
        command
    }
}

struct Open {
    closing: Closing,
    chronicle: Arc<LedgerChronicle>,
}

impl Open {
    async fn close(self) {
        self.closing.close().await;
    }
}

fn episode() -> CallId {
    CallId(Uuid::now_v7())
}

/// Some tools, each with the digest of a definition of that version.
fn tools(count: usize, version: &str) -> Vec<(String, Hash)> {
    let tool = |number: usize| {
        let name = format!("tool_{number:05}");
        let found = digest(format!(r#"{{"name":"{name}","description":"{version}"}}"#).as_bytes());
        (name, found)
    };
    (0..count).map(tool).collect()
}
