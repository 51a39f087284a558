//! The key that signs checkpoints: made once, private, and never silently remade.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;

use crate::domain::note::{SigningKey, VerifyingKey};

use super::error::StoreError;
use super::files::{Paths, private, sync_folder_of};

/// Far more than a key takes: a file this long is not one.
const KEY_FILE_BYTES_MAX: u64 = 1 << 20;

/// Makes a key for a log and puts it in the place of the old one, public half first, so that no
/// signature is ever without its public key.
pub(super) fn create(paths: &Paths, origin: &str) -> Result<SigningKey, StoreError> {
    let key = fresh(paths, origin)?;
    publish(paths, &key.verifying_key())?;
    install(paths, &key)?;
    Ok(key)
}

/// A key that nothing knows yet.
pub(super) fn fresh(paths: &Paths, origin: &str) -> Result<SigningKey, StoreError> {
    let broken = |what: String| StoreError::Key { path: paths.key.clone(), what };
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|error| broken(format!("cannot be made: {error}")))?;
    SigningKey::from_seed(origin, seed).map_err(|error| broken(format!("cannot be made: {error}")))
}

/// Adds a public key to those that signatures are checked against.
pub(super) fn publish(paths: &Paths, key: &VerifyingKey) -> Result<(), StoreError> {
    let mut file = private(OpenOptions::new().append(true).create(true), &paths.public_keys)?;
    writeln!(file, "{key}")
        .and_then(|()| file.sync_all())
        .map_err(StoreError::file("write", &paths.public_keys))
}

/// Replaces the private key at once or not at all.
pub(super) fn install(paths: &Paths, key: &SigningKey) -> Result<(), StoreError> {
    let fresh = paths.key.with_extension("key.new");
    let mut file = private(OpenOptions::new().write(true).create(true).truncate(true), &fresh)?;
    writeln!(file, "{}", key.to_private_text())
        .and_then(|()| file.sync_all())
        .map_err(StoreError::file("write", &fresh))?;
    std::fs::rename(&fresh, &paths.key).map_err(StoreError::file("replace", &paths.key))?;
    sync_folder_of(&paths.key)
}

/// The private key. Read anew for every signature, so that a rotation reaches every process.
pub(super) fn signing(paths: &Paths) -> Result<SigningKey, StoreError> {
    let broken = |what: String| StoreError::Key { path: paths.key.clone(), what };
    let file = File::open(&paths.key).map_err(|error| match error.kind() {
        ErrorKind::NotFound => broken("is lost".to_owned()),
        _ => broken(format!("cannot be read: {error}")),
    })?;
    let mode = file.metadata().map_err(StoreError::file("read", &paths.key))?.permissions().mode();
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
