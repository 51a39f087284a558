//! A configuration that changes while colibri runs: read again, compared, and applied to the fleet.
//!
//! Owns: when it is read again (a file changed, SIGHUP, an operator asked), and that a bad one changes nothing.
//! Must not know: what a server is.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::Signal;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::config::{ConfigError, Loaded, Server, State};
use crate::domain::log::Logger;
use crate::domain::mask::Masks;
use crate::fleet::roster::{Fleet, Summary};

use super::covers::Covers;
use super::fleet::{Yard, secrets};
use super::watch::watch as watch_files;

/// Reads the configuration anew.
pub type Load = Arc<dyn Fn() -> Result<Loaded, ConfigError> + Send + Sync>;

/// Somebody who waits to hear what came of it.
pub(super) type Request = oneshot::Sender<Result<Summary, String>>;

/// Requests that have not been looked at.
pub(super) const REQUESTS_MAX: usize = 8;

/// Follows the configuration.
pub(super) struct Reloader {
    pub(super) load: Load,
    pub(super) yard: Yard,
    pub(super) fleet: Fleet,
    pub(super) covers: Covers,
    /// What counts now, for who else wants to know.
    pub(super) publish: watch::Sender<Arc<Loaded>>,
    /// What people are not shown.
    pub(super) masks: Arc<Masks>,
    pub(super) every: Duration,
    pub(super) logger: Logger,
}

/// Why it is read again.
enum Reason {
    Files,
    Signal,
    Asked(Request),
}

impl Reloader {
    /// One loop: wait, read, apply.
    pub(super) async fn run(
        self,
        mut requests: mpsc::Receiver<Request>,
        mut hangups: Option<Signal>,
        stop: CancellationToken,
    ) {
        let (mut watched, mut changes) = self.watch(&stop);
        loop {
            // What changed before it was watched is noticed by reading once more.
            if self.differs().await {
                let _ = self.apply("the files changed").await;
            }
            // Other files may count now. The ones before were watched while they were read, so nothing is missed.
            if self.current().watched() != watched {
                (watched, changes) = self.watch(&stop);
                continue;
            }
            let reason = tokio::select! {
                () = stop.cancelled() => return,
                Some(()) = changes.recv() => Reason::Files,
                () = hung_up(&mut hangups) => Reason::Signal,
                Some(request) = requests.recv() => Reason::Asked(request),
            };
            let (why, answer) = match reason {
                Reason::Files => ("the files changed", None),
                Reason::Signal => ("SIGHUP", None),
                Reason::Asked(answer) => ("somebody asked", Some(answer)),
            };
            let outcome = self.apply(why).await;
            if let Some(answer) = answer {
                let _ = answer.send(outcome);
            }
        }
    }

    fn current(&self) -> Arc<Loaded> {
        Arc::clone(&self.publish.borrow())
    }

    /// Begins to watch the files that count now.
    fn watch(&self, stop: &CancellationToken) -> (Vec<PathBuf>, mpsc::Receiver<()>) {
        let watched = self.current().watched();
        (watched.clone(), watch_files(watched, self.every, stop.clone()))
    }

    /// Whether what is read now is no longer what counts.
    async fn differs(&self) -> bool {
        let load = Arc::clone(&self.load);
        let read = tokio::task::spawn_blocking(move || load()).await;
        matches!(read, Ok(Ok(loaded)) if differs(&self.current(), &loaded))
    }

    /// Reads it again. A bad one is told of, and changes nothing.
    async fn apply(&self, why: &str) -> Result<Summary, String> {
        let load = Arc::clone(&self.load);
        let read = tokio::task::spawn_blocking(move || load()).await;
        let loaded = match read {
            Ok(Ok(loaded)) => loaded,
            Ok(Err(error)) => return Err(self.refused(why, &error.to_string())),
            Err(error) => return Err(self.refused(why, &error.to_string())),
        };
        let before = self.current();
        if let Some(doubt) = appeared(&before, &loaded).or_else(|| self.covers.doubt(&before, &loaded)) {
            return Err(self.refused(why, &doubt));
        }
        // Before anybody can repeat them.
        self.masks.hide(secrets(&loaded));
        for warning in loaded.warnings.iter().filter(|warning| !before.warnings.contains(warning)) {
            self.logger.warn(format_args!("[colibri] warning: {}", warning.line()));
        }
        let waits = needs_a_restart(&before, &loaded);
        if !waits.is_empty() {
            let waits = waits.join(", ");
            self.logger.warn(format_args!("[colibri] {waits} changed: restart colibri to apply it"));
        }
        let summary = self.fleet.change(self.yard.plan(&loaded)).await;
        self.yard.record(&loaded).await;
        self.publish.send_replace(Arc::new(loaded));
        self.logger
            .info(format_args!("[colibri] configuration read again ({why}): {}", summary.told().join("; ")));
        Ok(summary)
    }

    fn refused(&self, why: &str, error: &str) -> String {
        let error = error.trim_end();
        self.logger.error(format_args!(
            "[colibri] the new configuration is not used ({why}); the one before goes on: {error}"
        ));
        error.to_owned()
    }
}

/// Whether one says something else than the other: by its files, or by what its servers have from elsewhere, such as
/// an `envFile` or the trust of a person.
fn differs(before: &Loaded, after: &Loaded) -> bool {
    before.files != after.files || before.config.servers != after.config.servers
}

/// A file that counts by its place alone, and was not there before. What is not there cannot be put out of a server's reach,
/// so a server may have made it, to have something started without its sandbox.
fn appeared(before: &Loaded, after: &Loaded) -> Option<String> {
    let runs = |server: &Server| server.trusted && matches!(server.state, State::Ready(_));
    if !before.config.servers.iter().any(runs) {
        return None;
    }
    let was_there = |path: &Path| before.files.iter().any(|looked| looked.found && looked.path == path);
    let stranger =
        after.files.iter().find(|looked| looked.found && looked.by_place && !was_there(&looked.path))?;
    let shown = stranger.path.display();
    Some(format!(
        "{shown} was not there when colibri started: look who wrote it, and start colibri again to use it"
    ))
}

async fn hung_up(hangups: &mut Option<Signal>) {
    if let Some(hangups) = hangups
        && hangups.recv().await.is_some()
    {
        return;
    }
    std::future::pending::<()>().await;
}

/// Settings that count only from the start on, and are others now.
fn needs_a_restart(before: &Loaded, after: &Loaded) -> Vec<String> {
    let settings = |loaded: &Loaded| -> BTreeMap<String, serde_json::Value> {
        let of_the_start = |key: &str| !key.starts_with("mcpServers.") && !key.starts_with("queues");
        let values = loaded.values().iter().filter(|value| of_the_start(&value.key));
        values.map(|value| (value.key.clone(), value.value.clone())).collect()
    };
    let (before, after) = (settings(before), settings(after));
    let keys = before.keys().chain(after.keys()).filter(|key| before.get(*key) != after.get(*key));
    let keys: std::collections::BTreeSet<&String> = keys.collect();
    keys.into_iter().map(|key| format!("`{key}`")).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use crate::config::{Flags, TrustedFile, load};
    use crate::domain::merkle::Hash;

    use super::*;

    /// PR-2: what changed between the first reading and the watching is found by reading once more, also where no
    /// configuration file did: an `envFile`, or that a person trusts a file. Only the files themselves used to count.
    #[test]
    fn what_changed_before_it_was_watched_is_found() {
        let disk = tempfile::tempdir().expect("a temporary directory");
        let (home, work) = (disk.path().join("home"), disk.path().join("work"));
        fs::create_dir_all(&work).expect("a folder");
        fs::create_dir_all(home.join(".config/colibri")).expect("a folder");
        let own = r#"{"mcpServers":{"a":{"command":"sh","envFile":"a.env"}}}"#;
        fs::write(home.join(".config/colibri/colibri.json"), own).expect("a file");
        fs::write(home.join(".config/colibri/a.env"), "TOKEN=one").expect("a file");
        let found = work.join("colibri.json");
        fs::write(&found, r#"{"mcpServers":{"b":{"command":"sh"}}}"#).expect("a file");
        let read = || load(&Flags::default(), &BTreeMap::new(), &work, Some(&home)).expect("it can be read");
        let before = read();
        assert!(!differs(&before, &read()), "the same is the same");
        fs::write(home.join(".config/colibri/a.env"), "TOKEN=two").expect("a file");
        let other_secret = read();
        assert!(differs(&before, &other_secret), "what is in an `envFile`");
        let place = fs::canonicalize(&found).expect("it is there");
        let digest =
            other_secret.files.iter().find(|looked| looked.path == found).and_then(|looked| looked.digest);
        let digest: Hash = digest.expect("it was read");
        let record = other_secret.trust.as_ref().expect("there is a home");
        record.add(TrustedFile { path: place, digest }).expect("it can be written");
        let trusted = read();
        assert!(differs(&other_secret, &trusted), "that a file is trusted");
        assert!(!differs(&trusted, &read()));
    }
}
