//! The key that signs checkpoints: made once, private, and never silently remade.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::domain::note::{SigningKey, VerifyingKey};

use super::error::StoreError;
use super::files::{Paths, private, sync_folder_of};

/// Far more than a key takes: a file this long is not one.
const KEY_FILE_BYTES_MAX: u64 = 1 << 20;

/// Makes a key that nothing relies on yet, and puts it on disk where only [`adopt`] looks. A crash
/// before its record is committed leaves a key that the next one overwrites.
pub(super) fn prepare(paths: &Paths, origin: &str) -> Result<SigningKey, StoreError> {
    let broken = |what: String| StoreError::Key { path: paths.key.clone(), what };
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|error| broken(format!("cannot be made: {error}")))?;
    let key =
        SigningKey::from_seed(origin, seed).map_err(|error| broken(format!("cannot be made: {error}")))?;
    overwrite(&paths.waiting_key, &line(&key.to_private_text()))?;
    Ok(key)
}

/// Puts the prepared key in the place of the old one, public half first, so that no signature is
/// ever without its public key. It waits until all of that is on disk: see [`finish`].
pub(super) fn adopt(paths: &Paths, key: &SigningKey) -> Result<(), StoreError> {
    let mut known = public(paths)?;
    if !known.contains(&key.verifying_key()) {
        known.push(key.verifying_key());
        let lines: String = known.iter().map(|known| line(&known.to_string())).collect();
        overwrite(&paths.public_keys, &lines)?;
    }
    overwrite(&paths.key, &line(&key.to_private_text()))?;
    overwrite(&paths.waiting_key, "")
}

/// Finishes what was cut short: the start of a log, between its first record and the key that this record
/// names, or an adoption that had begun. No other key is ever taken.
pub(super) fn finish(paths: &Paths, named_first: Option<&str>) -> Result<(), StoreError> {
    let Ok(waiting) = read(&paths.waiting_key) else {
        // One of an older colibri has none, and there has to be something to keep servers away from.
        return private(OpenOptions::new().append(true).create(true), &paths.waiting_key).map(drop);
    };
    let public_half = waiting.verifying_key();
    let is_first = named_first == Some(public_half.to_string().as_str());
    if is_first || public(paths)?.contains(&public_half) { adopt(paths, &waiting) } else { Ok(()) }
}

fn line(text: &str) -> String {
    format!("{text}\n")
}

/// Writes over a file, which stays the same one.
fn overwrite(path: &Path, text: &str) -> Result<(), StoreError> {
    let is_new = !path.exists();
    let mut file = private(OpenOptions::new().write(true).create(true).truncate(false), path)?;
    file.write_all(text.as_bytes())
        .and_then(|()| file.set_len(text.len() as u64))
        .and_then(|()| file.sync_all())
        .map_err(StoreError::file("write", path))?;
    if is_new { sync_folder_of(path) } else { Ok(()) }
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
    if path.is_symlink() {
        // It could not be replaced: nothing here is written through a link.
        return Err(broken("is a link: put the file itself there".to_owned()));
    }
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
    let mut keys: Vec<_> = text.lines().enumerate().filter(|(_, line)| !line.is_empty()).map(parse).collect();
    // A line without an end was cut while it was written, and its key has signed nothing.
    if !text.ends_with('\n') && keys.last().is_some_and(Result::is_err) {
        keys.pop();
    }
    keys.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORIGIN: &str = "colibri/00000000000000000000000000000000";

    fn adopted(paths: &Paths) -> SigningKey {
        let key = prepare(paths, ORIGIN).unwrap();
        adopt(paths, &key).unwrap();
        key
    }

    /// SU-11: keys are written over, and a power cut may leave any part of that undone. The next start finishes it,
    /// wherever it was cut.
    #[test]
    fn an_adoption_that_was_cut_is_finished() {
        let folder = tempfile::tempdir().unwrap();
        let paths = Paths::beside(&folder.path().join("ledger.db"));
        let old = adopted(&paths);
        let texts = |paths: &Paths| [&paths.key, &paths.public_keys].map(|path| std::fs::read(path).unwrap());
        let before = texts(&paths);
        let new = prepare(&paths, ORIGIN).unwrap();
        let waiting = std::fs::read(&paths.waiting_key).unwrap();
        adopt(&paths, &new).unwrap();
        let after = texts(&paths);
        assert_eq!(std::fs::read(&paths.waiting_key).unwrap(), b"", "nothing waits any more");

        // As much of each as was written, on top of what was there.
        let cut = |which: usize, length: usize| {
            let mut text = after[which][..length].to_vec();
            text.extend(before[which].iter().skip(length));
            text
        };
        let lay = |key: Vec<u8>, public_keys: Vec<u8>| {
            std::fs::write(&paths.key, key).unwrap();
            std::fs::write(&paths.public_keys, public_keys).unwrap();
            std::fs::write(&paths.waiting_key, &waiting).unwrap();
        };
        for length in 0..=after[0].len() {
            lay(cut(0, length), after[1].clone());
            finish(&paths, None).unwrap();
            assert_eq!(texts(&paths), after, "the key was cut at {length}");
        }
        for length in 0..after[1].len() - 1 {
            lay(before[0].clone(), cut(1, length));
            finish(&paths, None).unwrap();
            assert_eq!(read(&paths.key).unwrap().verifying_key(), old.verifying_key(), "{length}");
            assert_eq!(
                public(&paths).unwrap(),
                [old.verifying_key()],
                "the public keys were cut at {length}"
            );
        }
    }

    /// SU-11: a line that has an end was written whole, and one that is no key was changed by somebody.
    #[test]
    fn a_changed_public_key_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let paths = Paths::beside(&folder.path().join("ledger.db"));
        adopted(&paths);
        let text = std::fs::read_to_string(&paths.public_keys).unwrap();
        std::fs::write(&paths.public_keys, format!("{text}{}\n", &text[..20])).unwrap();
        assert!(public(&paths).unwrap_err().to_string().contains("a bad key on line 2"));
    }
}
