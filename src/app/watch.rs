//! Notices that files changed, by looking at them again and again.
//!
//! Owns: what counts as a change, and that one is told when it is over: an editor writes in steps. Looking
//! works on every file system, network mounts included, where notices of the kernel do not come; a few
//! looks a second cost nothing, and it needs no dependency.
//! Must not know: what the files are, or what is done about a change.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// How often files are looked at: a person who saves a file waits for two looks.
pub const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Watches files, there or not, from now on. A change is told once the files have been the same for one
/// more look; changes that nobody has taken yet are one. What differed before this was called is for the
/// caller to find out. Ends when it is stopped, or when nobody listens.
pub fn watch(paths: Vec<PathBuf>, every: Duration, stop: CancellationToken) -> mpsc::Receiver<()> {
    let (tell, changes) = mpsc::channel(1);
    // At once, and not in the task: what happens from here on counts.
    let first = look(&paths);
    tokio::spawn(async move {
        let told = tell.clone();
        tokio::select! {
            () = keep_looking(paths, first, every, &tell) => {}
            () = stop.cancelled() => {}
            () = told.closed() => {}
        }
    });
    changes
}

async fn keep_looking(paths: Vec<PathBuf>, first: Vec<Mark>, every: Duration, tell: &mpsc::Sender<()>) {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    let (mut told, mut before) = (first.clone(), first);
    loop {
        ticks.tick().await;
        let asked = paths.clone();
        // A mount that hangs holds this look back and nothing else.
        let Ok(now) = tokio::task::spawn_blocking(move || look(&asked)).await else { return };
        if now == before && now != told {
            told.clone_from(&now);
            // If there is no room, a change is waiting to be taken already, and this one is in it.
            let _ = tell.try_send(());
        }
        before = now;
    }
}

/// All that is known about a file without reading it. A replaced file is another inode, a rewritten one has
/// another time; `ctime` cannot be set back by a program that keeps the old `mtime`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Mark {
    /// Not there, or out of reach: its folder may be gone.
    Absent,
    There {
        device: u64,
        inode: u64,
        size: u64,
        modified: (i64, i64),
        changed: (i64, i64),
    },
}

fn look(paths: &[PathBuf]) -> Vec<Mark> {
    paths.iter().map(|path| mark(path)).collect()
}

fn mark(path: &Path) -> Mark {
    match std::fs::metadata(path) {
        Err(_) => Mark::Absent,
        Ok(found) => Mark::There {
            device: found.dev(),
            inode: found.ino(),
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;
    use tokio::time::timeout;

    use super::*;

    const EVERY: Duration = Duration::from_millis(10);
    const PATIENCE: Duration = Duration::from_secs(20);

    struct Watched {
        disk: TempDir,
        changes: mpsc::Receiver<()>,
        stop: CancellationToken,
    }

    impl Watched {
        fn new(paths: &[&str], prepare: impl FnOnce(&Path)) -> Self {
            let disk = tempfile::tempdir().expect("a temporary directory");
            prepare(disk.path());
            let stop = CancellationToken::new();
            let paths = paths.iter().map(|path| disk.path().join(path)).collect();
            Self { changes: watch(paths, EVERY, stop.clone()), stop, disk }
        }

        fn path(&self, path: &str) -> PathBuf {
            self.disk.path().join(path)
        }

        async fn told(&mut self, what: &str) {
            assert_eq!(timeout(PATIENCE, self.changes.recv()).await, Ok(Some(())), "{what}");
        }

        /// Nothing comes for several looks.
        async fn quiet(&mut self, what: &str) {
            assert!(timeout(EVERY * 10, self.changes.recv()).await.is_err(), "{what}");
        }
    }

    #[tokio::test]
    async fn every_kind_of_change_is_told_once() {
        let mut watched =
            Watched::new(&["a", "later/b"], |disk| fs::write(disk.join("a"), "1").expect("a file"));
        watched.quiet("nothing changed").await;
        let a = watched.path("a");
        fs::write(&a, "22").expect("a file");
        watched.told("rewritten").await;
        watched.quiet("once").await;
        fs::write(watched.path("new"), "33").expect("a file");
        fs::rename(watched.path("new"), &a).expect("a rename");
        watched.told("replaced by one of the same size").await;
        fs::remove_file(&a).expect("a file");
        watched.told("removed").await;
        fs::create_dir(watched.path("later")).expect("a folder");
        fs::write(watched.path("later/b"), "1").expect("a file");
        watched.told("come into being, with its folder").await;
        fs::remove_dir_all(watched.path("later")).expect("a folder");
        watched.told("gone, with its folder").await;
        fs::create_dir(watched.path("later")).expect("a folder");
        fs::write(watched.path("later/b"), "1").expect("a file");
        watched.told("and come back").await;
        fs::write(watched.path("other"), "1").expect("a file");
        watched.quiet("another file").await;
    }

    /// A hundred changes that nobody takes are one, and the last of them is not lost.
    #[tokio::test]
    async fn changes_are_told_together_and_the_last_is_not_lost() {
        let mut watched = Watched::new(&["a"], |_| {});
        for number in 0..100 {
            fs::write(watched.path("a"), "x".repeat(number)).expect("a file");
            tokio::task::yield_now().await;
        }
        watched.told("something").await;
        // At most one more was on its way when the first was taken.
        let _ = timeout(EVERY * 10, watched.changes.recv()).await;
        watched.quiet("no hundred").await;
        fs::write(watched.path("a"), "last").expect("a file");
        watched.told("the last").await;
    }

    #[tokio::test]
    async fn it_ends_when_it_is_stopped_or_nobody_listens() {
        let mut watched = Watched::new(&["a"], |_| {});
        watched.stop.cancel();
        assert_eq!(timeout(PATIENCE, watched.changes.recv()).await, Ok(None));
        let stop = CancellationToken::new();
        drop(watch(Vec::new(), Duration::from_hours(1), stop));
        let runtime = tokio::runtime::Handle::current();
        timeout(PATIENCE, async {
            while runtime.metrics().num_alive_tasks() > 0 {
                tokio::task::yield_now().await;
            }
        })
        .await
        .expect("its task ends");
    }
}
