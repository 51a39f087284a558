//! The file of signed checkpoints: outside the database, appended, never rewritten.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};

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

/// Appends a note and forces it to disk before anybody relies on it. A full disk may tear it: what
/// was torn now is taken back, and what a crash left torn is cut off, since it would run into the
/// next note and make both look forged.
pub(super) fn append(paths: &Paths, note: &str) -> Result<(), StoreError> {
    let path = &paths.checkpoints;
    let failed = StoreError::file("append to", path);
    let mut file = private(OpenOptions::new().read(true).append(true).create(true), path)?;
    let is_new = file.metadata().map_err(&failed)?.len() == 0;
    let whole = whole_length(&mut file).map_err(&failed)?;
    file.set_len(whole).map_err(&failed)?;
    if let Err(error) = file.write_all(format!("{note}\n").as_bytes()).and_then(|()| file.sync_data()) {
        let _ = file.set_len(whole);
        return Err(failed(error));
    }
    if is_new { sync_folder_of(path) } else { Ok(()) }
}

/// The length of the file up to its last line end.
fn whole_length(file: &mut File) -> std::io::Result<u64> {
    let from = file.metadata()?.len().saturating_sub(TAIL_BYTES);
    file.seek(SeekFrom::Start(from))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    Ok(tail.iter().rposition(|byte| *byte == b'\n').map_or(from, |end| from + end as u64 + 1))
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
/// append harmless: lines without a signature are passed over, and so is one without an end.
fn each_note(file: File, mut visit: impl FnMut(String)) -> std::io::Result<()> {
    let mut file = BufReader::new(file);
    let mut window: Vec<String> = Vec::with_capacity(5);
    loop {
        let mut line = Vec::new();
        file.read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            return Ok(());
        }
        if window.len() == 5 {
            window.remove(0);
        }
        window.push(String::from_utf8_lossy(&line).into_owned());
        if window.len() == 5 && window[4].starts_with("— ") {
            visit(window.concat());
        }
    }
}
