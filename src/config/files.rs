//! Files as they are read and written here: within bounds, and replaced whole or not at all, where they may be.
//!
//! Owns: that no reading is endless or waits for a pipe, and that a crash leaves the old file or the new
//! one, except where servers are kept away from the file and not from its folder. Must not know: what is in a file.

use std::fs::{DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io::{Error, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use uuid::Uuid;

/// How long another process may take to replace a file that this one wants to replace too.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);

/// How often it is looked whether the other is done. A wait in the kernel could not be given up.
const LOCK_POLL: Duration = Duration::from_millis(20);

/// For its owner alone.
const PRIVATE: u32 = 0o600;

/// A file's bytes; one more than `bytes_max` if it has more, for the caller to complain about.
pub(super) fn read(path: &Path, bytes_max: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The same, of a file proper: opening a pipe or a device may wait for ever, and one that was named by a
/// file is no way to answer a question. Also gives what the system says about it.
pub(super) fn read_regular(path: &Path, bytes_max: u64) -> std::io::Result<(Vec<u8>, Metadata)> {
    let without_waiting = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(without_waiting).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(Error::new(ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    Ok((bytes, metadata))
}

/// Whether a file is out of servers' reach by its folder, which is colibri's own.
pub fn is_in_own_folder(path: &Path) -> bool {
    path.parent().and_then(Path::file_name).is_some_and(|name| name == "colibri")
}

/// A new file in the place of the old, on disk when this returns. It has the owner and the mode of the old
/// one, or is private if there is none. Servers that run are kept away from the old file itself, unless they are from
/// its folder; so elsewhere it is written over, and stays the same file.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    match std::fs::metadata(path) {
        Ok(_) if !is_in_own_folder(path) => overwrite(path, bytes),
        Ok(old) => replace_with(path, bytes, Some(&old)),
        Err(error) if error.kind() == ErrorKind::NotFound => replace_with(path, bytes, None),
        Err(error) => Err(error),
    }
}

fn overwrite(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    file.write_all(bytes)?;
    file.set_len(bytes.len() as u64)?;
    file.sync_all()
}

/// The same, and private whatever the old one was.
pub(super) fn replace_privately(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    replace_with(path, bytes, None)
}

fn replace_with(path: &Path, bytes: &[u8], like: Option<&Metadata>) -> std::io::Result<()> {
    let waiting = waiting(path);
    let replaced = write(&waiting, bytes, like).and_then(|()| std::fs::rename(&waiting, path));
    if replaced.is_err() {
        let _ = std::fs::remove_file(&waiting);
    }
    replaced?;
    File::open(folder_of(path))?.sync_all()
}

/// The folder a file lies in, made for its owner alone if it is missing.
pub(super) fn make_folder_of(path: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder_of(path))
}

/// Keeps other colibris from replacing files of this folder until it is dropped.
pub(super) fn hold_folder_of(path: &Path) -> std::io::Result<File> {
    let folder = File::open(folder_of(path))?;
    let mut waited = Duration::ZERO;
    loop {
        match folder.try_lock() {
            Ok(()) => return Ok(folder),
            Err(TryLockError::WouldBlock) if waited < LOCK_PATIENCE => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::new(ErrorKind::TimedOut, "another colibri is changing files there"));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        std::thread::park_timeout(LOCK_POLL);
        waited += LOCK_POLL;
    }
}

fn write(path: &Path, bytes: &[u8], like: Option<&Metadata>) -> std::io::Result<()> {
    // Private from its first moment: what is written may be a secret.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(PRIVATE).open(path)?;
    if let Some(like) = like {
        let own = file.metadata()?;
        if (own.uid(), own.gid()) != (like.uid(), like.gid()) {
            std::os::unix::fs::fchown(&file, Some(like.uid()), Some(like.gid()))?;
        }
        file.set_permissions(PermissionsExt::from_mode(like.mode() & 0o7777))?;
    }
    file.write_all(bytes)?;
    file.sync_all()
}

/// A name of its own beside the file, so that two writers never share one.
fn waiting(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.new", Uuid::now_v7().simple()));
    path.with_file_name(name)
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
