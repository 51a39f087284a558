//! Which files found in a working directory may start programs: those that somebody looked at.
//!
//! Owns: the record of trusted files, by canonical path and by the SHA-256 digest of their bytes, and its
//! file. What is not understood is trusted by nobody.
//! Must not know: who asks, or what a trusted file says.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::Flags;
use super::files::{hold_folder_of, make_folder_of, read, read_regular, replace_privately};
use super::layers::{FILE_BYTES_MAX, user_folder};
use super::problem::Problem;
use crate::domain::merkle::Hash;

/// More folders than anybody keeps at work.
const FILES_MAX: usize = 1000;

/// Every file with the longest path there is.
const RECORD_BYTES_MAX: u64 = 8 << 20;

/// The version of the format.
const VERSION: u32 = 1;

/// What is recorded of a file's bytes.
pub(super) fn digest(bytes: &[u8]) -> Hash {
    Hash(Sha256::digest(bytes).into())
}

/// What to type to trust a file, ready for a shell.
pub fn command_for(path: &Path) -> String {
    let path = path.to_string_lossy();
    let is_plain =
        |c: char| c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '+' | ':' | '@' | ',');
    if !path.is_empty() && path.chars().all(is_plain) {
        format!("colibri trust {path}")
    } else {
        format!("colibri trust '{}'", path.replace('\'', r"'\''"))
    }
}

/// What is known about a file that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Somebody trusted these very bytes at this very place.
    Trusted,
    /// Somebody trusted others.
    Changed,
    /// Nobody ever did.
    Unknown,
}

/// The record as of now, read when the first file asks for it.
pub(super) struct Trusted {
    record: Option<TrustRecord>,
    known: Option<BTreeMap<PathBuf, Hash>>,
    /// Why nothing is trusted, if the record is there and cannot be used.
    pub(super) problem: Option<Problem>,
}

impl Trusted {
    pub(super) fn new(record: Option<TrustRecord>) -> Self {
        Self { record, known: None, problem: None }
    }

    pub(super) fn judge(&mut self, path: &Path, found: Hash) -> Verdict {
        if self.known.is_none() {
            let files = self.record.as_ref().map_or(Ok(Vec::new()), TrustRecord::files);
            let files = files.unwrap_or_else(|problem| {
                self.problem = Some(problem);
                Vec::new()
            });
            self.known = Some(files.into_iter().map(|file| (file.path, file.digest)).collect());
        }
        let place = place_of(path).ok();
        match place.and_then(|place| self.known.as_ref()?.get(&place)) {
            Some(digest) if *digest == found => Verdict::Trusted,
            Some(_) => Verdict::Changed,
            None => Verdict::Unknown,
        }
    }
}

/// A file that somebody trusts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedFile {
    /// Where it is, with no symbolic link on the way to it.
    pub path: PathBuf,
    /// Of the bytes that were trusted.
    pub digest: Hash,
}

/// What became of a trusted file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// It is what it was.
    Trusted,
    /// It is another, and starts nothing.
    Changed,
    /// It cannot be read.
    Gone,
}

impl TrustedFile {
    /// What became of it.
    pub fn standing(&self) -> Standing {
        match read_regular(&self.path, FILE_BYTES_MAX) {
            Ok((bytes, _)) if digest(&bytes) == self.digest => Standing::Trusted,
            Ok(_) => Standing::Changed,
            Err(_) => Standing::Gone,
        }
    }
}

/// The record of trusted files: `trusted.json` among colibri's data, for its owner alone.
#[derive(Clone, Debug)]
pub struct TrustRecord {
    path: PathBuf,
}

impl TrustRecord {
    /// Where these surroundings have it; nowhere, if there is no place for data.
    pub(super) fn find(
        flags: &Flags,
        env: &BTreeMap<String, String>,
        cwd: &Path,
        home: Option<&Path>,
    ) -> Option<Self> {
        let data = user_folder(env, "XDG_DATA_HOME", home, ".local/share").map(|path| path.join("colibri"));
        // Without a home, data lies beside the database. That a file names one does not count here: whether
        // that file is trusted is the question.
        let beside = || {
            let named = flags.database.clone().or_else(|| env.get("COLIBRI_DB_PATH").map(PathBuf::from))?;
            Some(cwd.join(named).parent()?.to_owned())
        };
        Some(Self { path: data.or_else(beside)?.join("trusted.json") })
    }

    /// Where it is kept.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Every trusted file, in the order of their paths; none if there is no record yet.
    pub fn files(&self) -> Result<Vec<TrustedFile>, Problem> {
        let broken = |what: String| {
            let message = format!("{what}, so no file is trusted");
            Problem::of_file(&self.path, message, "`colibri trust` makes it anew")
        };
        let (bytes, metadata) = match read_regular(&self.path, RECORD_BYTES_MAX) {
            Ok(read) => read,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(Vec::new());
            }
            Err(error) => return Err(broken(format!("cannot be read: {error}"))),
        };
        if metadata.uid() != rustix::process::geteuid().as_raw() || metadata.mode() & 0o022 != 0 {
            return Err(broken("can be written by others".to_owned()));
        }
        let written: Option<Written> = serde_json::from_slice(&bytes).ok();
        let written =
            written.filter(|written| written.version == VERSION && written.files.len() <= FILES_MAX);
        let files = written.and_then(|written| written.files.into_iter().map(WrittenFile::parse).collect());
        files.ok_or_else(|| broken("is damaged, or of another version of colibri".to_owned()))
    }

    /// Trusts these bytes at this place.
    pub fn add(&self, file: TrustedFile) -> Result<(), Problem> {
        self.change(|files| {
            files.retain(|known| known.path != file.path);
            if files.len() >= FILES_MAX {
                let message = format!("{FILES_MAX} files are trusted already");
                let remedy =
                    "see `colibri trust --list`, and take some back with `colibri trust --revoke FILE`";
                return Err(Problem::of_file(&self.path, message, remedy));
            }
            files.push(file);
            Ok(())
        })
    }

    /// Trusts a file no longer. Tells whether it was.
    pub fn revoke(&self, path: &Path) -> Result<bool, Problem> {
        let mut was_trusted = false;
        self.change(|files| {
            was_trusted = files.extract_if(.., |known| known.path == path).count() > 0;
            Ok(())
        })?;
        Ok(was_trusted)
    }

    /// Reads, changes and replaces the record, alone. One that cannot be understood is begun anew: nobody
    /// is trusted by it.
    fn change(
        &self,
        change: impl FnOnce(&mut Vec<TrustedFile>) -> Result<(), Problem>,
    ) -> Result<(), Problem> {
        let failed = |error: std::io::Error| {
            Problem::of_file(
                &self.path,
                format!("cannot be written: {error}"),
                "check its folder's permissions",
            )
        };
        make_folder_of(&self.path).map_err(failed)?;
        let _alone = hold_folder_of(&self.path).map_err(failed)?;
        let mut files = self.files().unwrap_or_default();
        change(&mut files)?;
        files.sort_by(|one, other| one.path.cmp(&other.path));
        let written = files.iter().map(WrittenFile::of).collect::<Result<_, _>>()?;
        let written = Written { version: VERSION, files: written };
        let text = serde_json::to_vec_pretty(&written).expect("texts and numbers serialise");
        replace_privately(&self.path, &text).map_err(failed)
    }
}

/// Where a file is, with no symbolic link on the way to it. A link itself is a place of its own: what is relative in the
/// file is relative to the link, so that a link to a trusted file would make it mean another's programs.
pub(super) fn place_of(path: &Path) -> std::io::Result<PathBuf> {
    let whole = std::path::absolute(path)?;
    match (whole.parent(), whole.file_name()) {
        (Some(folder), Some(name)) => Ok(std::fs::canonicalize(folder)?.join(name)),
        _ => std::fs::canonicalize(&whole),
    }
}

/// Reads a file once: where it is, and its bytes.
pub(super) fn read_once(path: &Path) -> Result<(PathBuf, Vec<u8>), Problem> {
    let read = place_of(path).and_then(|place| Ok((read(&place, FILE_BYTES_MAX)?, place)));
    let (bytes, place) = read.map_err(|error| {
        let remedy = "check the path and its permissions";
        Problem::of_file(path, format!("cannot be read: {error}"), remedy)
    })?;
    Ok((place, bytes))
}

#[derive(Serialize, Deserialize)]
struct Written {
    version: u32,
    files: Vec<WrittenFile>,
}

#[derive(Serialize, Deserialize)]
struct WrittenFile {
    path: String,
    sha256: String,
}

impl WrittenFile {
    fn of(file: &TrustedFile) -> Result<Self, Problem> {
        let Some(path) = file.path.to_str() else {
            let message = "its path is not UTF-8, so it cannot be put on record";
            return Err(Problem::of_file(&file.path, message, "rename it, or name it with --config"));
        };
        Ok(Self { path: path.to_owned(), sha256: file.digest.to_string() })
    }

    fn parse(self) -> Option<TrustedFile> {
        let path = PathBuf::from(self.path);
        path.is_absolute().then_some(TrustedFile { path, digest: self.sha256.parse().ok()? })
    }
}
