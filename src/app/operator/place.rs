//! Where the sockets of running colibris lie: one folder of this user's alone, one socket a process.
//!
//! Owns: which folder, what it must be, the names in it, and that nothing is left of the dead.

use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, geteuid, test_kill_process};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::config::{Config, variable};

/// A socket of the dead refuses at once.
const REFUSAL_WAIT: Duration = Duration::from_millis(500);

/// More files than this are not looked at: nobody runs as many.
const SOCKETS_MAX: usize = 1024;

/// Where sockets may lie: the one that counts here first, then where one that was started in other surroundings
/// may have put its own.
pub fn folders(config: &Config) -> Vec<PathBuf> {
    let runtime = variable("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| folder.is_absolute());
    let is_ours = |folder: &PathBuf| {
        std::fs::metadata(folder).is_ok_and(|found| found.is_dir() && found.uid() == geteuid().as_raw())
    };
    // Where a session's folder usually is: another colibri may know it, though nobody told this one.
    let usual = PathBuf::from(format!("/run/user/{}", geteuid().as_raw()));
    let session = runtime.into_iter().chain([usual]).filter(is_ours).map(|folder| folder.join("colibri"));
    let mut folders: Vec<PathBuf> = Vec::new();
    for folder in session.chain([config.data_dir.join("run")]) {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    folders
}

/// The socket of a process.
pub(super) fn socket(folder: &Path, pid: u32) -> PathBuf {
    folder.join(format!("{pid}.sock"))
}

/// Makes the folder, and makes sure that it is nobody else's.
pub(super) fn prepare(config: &Config) -> Result<PathBuf, String> {
    let folder = folders(config).swap_remove(0);
    let shown = folder.display();
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)
        .map_err(|error| format!("{shown} cannot be made: {error}"))?;
    let found = std::fs::symlink_metadata(&folder).map_err(|error| format!("{shown}: {error}"))?;
    if !found.is_dir() {
        return Err(format!("{shown} is no folder: remove it"));
    }
    if found.uid() != geteuid().as_raw() {
        return Err(format!("{shown} belongs to another user: remove it, or set XDG_RUNTIME_DIR"));
    }
    if found.mode() & 0o077 != 0 {
        return Err(format!("{shown} is open to others: chmod 700 {shown}"));
    }
    Ok(folder)
}

/// Every socket, with the process that made it, in the order of their numbers.
pub fn sockets(folder: &Path) -> Vec<(u32, PathBuf)> {
    let mut found: Vec<(u32, PathBuf)> = named(folder, "sock");
    found.sort_unstable();
    found
}

fn named(folder: &Path, extension: &str) -> Vec<(u32, PathBuf)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().take(SOCKETS_MAX);
    let numbered = entries.filter_map(|entry| {
        let path = entry.path();
        let pid = path.file_stem()?.to_str()?.parse().ok()?;
        (path.extension()? == extension).then_some((pid, path))
    });
    numbered.collect()
}

/// Removes what processes left behind that are gone: nobody answers, and nobody has their number.
pub async fn sweep(folder: &Path) {
    for (pid, path) in named(folder, "sock").into_iter().chain(named(folder, "new")) {
        if is_gone(pid) && refuses(&path).await {
            let _ = std::fs::remove_file(&path);
        }
    }
}

fn is_gone(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_none_or(|pid| test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
}

async fn refuses(path: &Path) -> bool {
    let connected = timeout(REFUSAL_WAIT, UnixStream::connect(path)).await;
    matches!(connected, Ok(Err(error)) if error.kind() == std::io::ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a dead process left is removed; what lives, what is no socket and what is no number stays.
    #[tokio::test]
    async fn only_the_dead_are_swept() {
        let folder = tempfile::tempdir().unwrap();
        let bind = |name: &str| std::os::unix::net::UnixListener::bind(folder.path().join(name)).unwrap();
        // Larger than any process number of Linux.
        let (dead, own) = (4_194_305, std::process::id());
        drop(bind(&format!("{dead}.sock")));
        drop(bind(&format!("{dead}.new")));
        let _heard = bind(&format!("{}.sock", dead + 1));
        drop(bind(&format!("{own}.sock")));
        std::fs::write(folder.path().join("note.sock"), "").unwrap();
        sweep(folder.path()).await;
        let found: Vec<u32> = sockets(folder.path()).into_iter().map(|(pid, _)| pid).collect();
        assert_eq!(found, [own, dead + 1]);
        assert!(
            !folder.path().join(format!("{dead}.new")).exists() && folder.path().join("note.sock").exists()
        );
    }
}
