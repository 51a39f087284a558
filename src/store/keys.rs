//! The key that signs checkpoints: made once, private, and never silently remade.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::domain::note::{SigningKey, VerifyingKey};

use super::error::StoreError;
use super::files::{Paths, private, sync_folder_of};

/// Far more than a key takes: a file this long is not one.
const KEY_FILE_BYTES_MAX: u64 = 1 << 20;

/// Makes a key that nothing relies on yet, and puts it on disk where only [`adopt`] looks. A crash
/// before its record is committed leaves a file that the next key overwrites.
pub(super) fn prepare(paths: &Paths, origin: &str) -> Result<SigningKey, StoreError> {
    let broken = |what: String| StoreError::Key { path: paths.key.clone(), what };
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|error| broken(format!("cannot be made: {error}")))?;
    let key =
        SigningKey::from_seed(origin, seed).map_err(|error| broken(format!("cannot be made: {error}")))?;
    write(&waiting(&paths.key), &key.to_private_text())?;
    sync_folder_of(&paths.key)?;
    Ok(key)
}

/// Puts the prepared key in the place of the old one, public half first, so that no signature is
/// ever without its public key.
pub(super) fn adopt(paths: &Paths, key: &VerifyingKey) -> Result<(), StoreError> {
    let mut known = public(paths)?;
    if !known.contains(key) {
        known.push(key.clone());
        let lines: Vec<String> = known.iter().map(ToString::to_string).collect();
        write(&waiting(&paths.public_keys), &lines.join("\n"))?;
        replace(&paths.public_keys)?;
    }
    replace(&paths.key)
}

/// A start that was cut short between the first record of its log and the key that the record names
/// is finished here. No other key is ever taken.
pub(super) fn adopt_if_named(paths: &Paths, named: &str) -> Result<(), StoreError> {
    // The key of a log that was given up may still lie there.
    if read(&paths.key).is_ok_and(|key| key.verifying_key().to_string() == named) {
        return Ok(());
    }
    match read(&waiting(&paths.key)) {
        Ok(key) if key.verifying_key().to_string() == named => adopt(paths, &key.verifying_key()),
        _ => Ok(()),
    }
}

/// Where a file waits to take the place of `path`: at once or not at all.
fn waiting(path: &Path) -> PathBuf {
    let mut waiting = path.as_os_str().to_owned();
    waiting.push(".new");
    PathBuf::from(waiting)
}

fn write(path: &Path, line: &str) -> Result<(), StoreError> {
    let mut file = private(OpenOptions::new().write(true).create(true).truncate(true), path)?;
    writeln!(file, "{line}").and_then(|()| file.sync_all()).map_err(StoreError::file("write", path))
}

fn replace(path: &Path) -> Result<(), StoreError> {
    std::fs::rename(waiting(path), path).map_err(StoreError::file("replace", path))?;
    sync_folder_of(path)
}

/// The private key of a log. Read anew for every signature, so that a rotation reaches every process.
pub(super) fn signing(paths: &Paths, origin: &str) -> Result<SigningKey, StoreError> {
    let key = read(&paths.key)?;
    if key.name() == origin && public(paths)?.contains(&key.verifying_key()) {
        return Ok(key);
    }
    Err(StoreError::Key { path: paths.key.clone(), what: format!("is not the key of {origin}") })
}

/// Whatever private key lies there, if it is private and one.
pub(super) fn read(path: &Path) -> Result<SigningKey, StoreError> {
    let broken = |what: String| StoreError::Key { path: path.to_owned(), what };
    let file = File::open(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => broken("is lost".to_owned()),
        _ => broken(format!("cannot be read: {error}")),
    })?;
    let mode = file.metadata().map_err(StoreError::file("read", path))?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(broken(format!("is open to others (mode {:03o}): run `chmod 600` on it", mode & 0o777)));
    }
    let mut text = String::new();
    file.take(KEY_FILE_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(|error| broken(format!("cannot be read: {error}")))?;
    text.trim_end().parse().map_err(|error| broken(format!("is not a key: {error}")))
}

/// Every public key that ever signed, the newest last.
pub fn public(paths: &Paths) -> Result<Vec<VerifyingKey>, StoreError> {
    let path = &paths.public_keys;
    let broken = |what: String| StoreError::Key { path: path.clone(), what };
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(broken(format!("cannot be read: {error}"))),
    };
    let parse = |(number, line): (usize, &str)| {
        line.parse().map_err(|error| broken(format!("has a bad key on line {}: {error}", number + 1)))
    };
    text.lines().enumerate().filter(|(_, line)| !line.is_empty()).map(parse).collect()
}
