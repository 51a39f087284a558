//! The file of signed checkpoints: outside the database, appended, never rewritten.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Seek, SeekFrom, Write};

use crate::domain::note::{Checkpoint, VerifyingKey};

use super::error::StoreError;
use super::files::{Paths, private};

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
    let mut file = private(OpenOptions::new().append(true).create(true), &paths.checkpoints)?;
    let written = file.write_all(format!("{note}\n").as_bytes()).and_then(|()| file.sync_data());
    written.map_err(StoreError::file("append to", &paths.checkpoints))
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

fn open(paths: &Paths) -> Result<Option<File>, StoreError> {
    match File::open(&paths.checkpoints) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::file("open", &paths.checkpoints)(error)),
    }
}

/// A note is a signature line and the four lines before it. Reading it from its end makes a torn
/// append harmless: it is passed over, and the next note stands whole behind it.
fn each_note(file: File, mut visit: impl FnMut(String)) -> std::io::Result<()> {
    let mut window: Vec<String> = Vec::with_capacity(5);
    for line in BufReader::new(file).split(b'\n') {
        if window.len() == 5 {
            window.remove(0);
        }
        window.push(String::from_utf8_lossy(&line?).into_owned());
        if window.len() == 5 && window[4].starts_with("— ") {
            visit(window.join("\n") + "\n");
        }
    }
    Ok(())
}
