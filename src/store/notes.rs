//! The file of signed checkpoints: outside the database, appended, never rewritten.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Seek, SeekFrom, Write};

use crate::domain::note::{Checkpoint, VerifyingKey};

use super::error::StoreError;
use super::files::{Paths, private, sync_folder_of};

/// The newest note is looked for in this much of the file's end.
const TAIL_BYTES: u64 = 64 << 10;

/// A checkpoint with the note that proves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    /// What was signed.
    pub checkpoint: Checkpoint,
    /// The signed note.
    pub note: String,
}

/// Appends a note and forces it to disk before anybody relies on it.
pub(super) fn append(paths: &Paths, note: &str) -> Result<(), StoreError> {
    let is_new = !paths.checkpoints.exists();
    let mut file = private(OpenOptions::new().append(true).create(true), &paths.checkpoints)?;
    // The newline in front ends whatever an append that was cut has left.
    let written = file.write_all(format!("\n{note}").as_bytes()).and_then(|()| file.sync_data());
    written.map_err(StoreError::file("append to", &paths.checkpoints))?;
    if is_new { sync_folder_of(&paths.checkpoints) } else { Ok(()) }
}

/// The newest note, if the file has any.
pub(super) fn last(paths: &Paths, keys: &[VerifyingKey]) -> Result<Option<Signed>, StoreError> {
    let Some(mut file) = open(paths)? else { return Ok(None) };
    let length = file.metadata().map_err(StoreError::file("read", &paths.checkpoints))?.len();
    let tail = SeekFrom::Start(length.saturating_sub(TAIL_BYTES));
    file.seek(tail).map_err(StoreError::file("read", &paths.checkpoints))?;
    let mut newest = None;
    each_note(file, |note| newest = Some(note)).map_err(StoreError::file("read", &paths.checkpoints))?;
    let Some(note) = newest else { return Ok(None) };
    let checkpoint = Checkpoint::open(&note, keys).map_err(|error| StoreError::RolledBack {
        what: format!("the newest note in the checkpoint file: {error}"),
    })?;
    Ok(Some(Signed { checkpoint, note }))
}

/// Every note, oldest first.
pub(super) fn each(paths: &Paths, visit: impl FnMut(String)) -> Result<(), StoreError> {
    let Some(file) = open(paths)? else { return Ok(()) };
    each_note(file, visit).map_err(StoreError::file("read", &paths.checkpoints))
}

/// Whether anything was ever signed.
pub(super) fn exist(paths: &Paths) -> Result<bool, StoreError> {
    Ok(open(paths)?.is_some())
}

fn open(paths: &Paths) -> Result<Option<File>, StoreError> {
    match File::open(&paths.checkpoints) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::file("open", &paths.checkpoints)(error)),
    }
}

/// The key's id and the signature, 68 bytes, in base64.
const SIGNATURE_CHARACTERS: usize = 92;

/// A note is a signature line and the four lines before it. Reading it from its end makes a torn
/// append harmless: it is passed over, and the next note stands whole behind it. Who tears a note on
/// purpose has removed it, which shows in the database.
fn each_note(file: File, mut visit: impl FnMut(String)) -> std::io::Result<()> {
    let mut window: Vec<String> = Vec::with_capacity(5);
    for line in BufReader::new(file).split(b'\n') {
        if window.len() == 5 {
            window.remove(0);
        }
        window.push(String::from_utf8_lossy(&line?).into_owned());
        if window.len() == 5 && is_signature(&window[4]) {
            visit(window.join("\n") + "\n");
        }
    }
    Ok(())
}

fn is_signature(line: &str) -> bool {
    let is_base64 = |c: char| c.is_ascii_alphanumeric() || "+/=".contains(c);
    let last = line.strip_prefix("— ").and_then(|rest| rest.rsplit(' ').next());
    last.is_some_and(|word| word.len() == SIGNATURE_CHARACTERS && word.chars().all(is_base64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::merkle::EMPTY_ROOT;
    use crate::domain::note::SigningKey;

    /// SU-11: a disk that fills up or a power cut in the middle of a note costs that note only,
    /// wherever it was cut.
    #[test]
    fn a_note_that_was_cut_is_passed_over_and_the_next_one_stands() {
        let folder = tempfile::tempdir().unwrap();
        let paths = Paths::beside(&folder.path().join("ledger.db"));
        let key = SigningKey::from_seed("colibri/a", [7; 32]).unwrap();
        let keys = [key.verifying_key()];
        let note = |size| {
            let checkpoint = Checkpoint { origin: "colibri/a".to_owned(), size, root: EMPTY_ROOT };
            checkpoint.sign(&key).unwrap().into_string()
        };
        let sizes = || {
            let mut sizes = Vec::new();
            each(&paths, |note| sizes.push(Checkpoint::open(&note, &keys).unwrap().size)).unwrap();
            sizes
        };
        let cut = format!("\n{}", note(256));
        // Cut between the bytes of a character too: the dash of the signature line has three. The
        // last newline is no loss.
        for length in 0..cut.len() - 1 {
            std::fs::remove_file(&paths.checkpoints).ok();
            append(&paths, &note(1)).unwrap();
            let mut file = OpenOptions::new().append(true).open(&paths.checkpoints).unwrap();
            file.write_all(&cut.as_bytes()[..length]).unwrap();
            assert_eq!(last(&paths, &keys).unwrap().unwrap().checkpoint.size, 1, "cut after {length}");
            append(&paths, &note(300)).unwrap();
            assert_eq!(sizes(), [1, 300], "cut after {length}");
            assert_eq!(last(&paths, &keys).unwrap().unwrap().checkpoint.size, 300, "cut after {length}");
        }
    }
}
