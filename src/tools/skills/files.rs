//! The files of one skill: which belong to it, what they hash to, and reading one of them.
//!
//! Owns: the bounds of a skill, and the memory of what has been hashed already.
//! Must not know: where skills are looked for, or what a `SKILL.md` means.

use std::collections::HashMap;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;
use sha2::{Digest, Sha256};

use crate::domain::clock::Timestamp;
use crate::domain::log::visible;
use crate::domain::merkle::Hash;
use crate::domain::skill::{FILE, Finding, Skill, load};

/// Of a `SKILL.md`. The format advises 500 lines.
pub(super) const SKILL_BYTES_MAX: u64 = 1 << 20;
/// Of one skill: what every host of the Skills extension must accept, and none need exceed.
pub(super) const FILES_MAX: usize = 512;
/// Of one skill, all files together; the extension's limit too.
pub(super) const BYTES_MAX: u64 = 16 << 20;
/// Of all skills together, so that a scan ends.
pub(super) const ALL_FILES_MAX: usize = 20_000;
/// Of all skills together: about a second of hashing, once.
pub(super) const ALL_BYTES_MAX: u64 = 256 << 20;
/// Folders within folders.
pub(super) const DEPTH_MAX: usize = 6;
/// In one folder; a folder with more is no place that people keep skills in.
const ENTRIES_MAX: usize = 10_000;
/// Of one skill.
const FOLDERS_MAX: usize = 1_000;
/// A file that changed less than this before it was hashed may change again within the same tick of
/// the file system's clock, and look the same.
const SETTLED_AFTER_MS: u64 = 2_000;

/// Folders that are not part of a skill, and that no skill is looked for in.
const SKIPPED: [&str; 2] = [".git", "node_modules"];

/// One file of a skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SkillFile {
    /// From the skill's folder, with `/`.
    pub(super) path: String,
    pub(super) size: u64,
    pub(super) digest: Hash,
}

/// The files of a skill, in the order of their paths.
#[derive(Debug, Default)]
pub(super) struct Inventory {
    pub(super) files: Vec<SkillFile>,
    /// How many files are there but not here: too many, too large, or with a name that cannot be shown.
    pub(super) left_out: usize,
    /// What somebody should know.
    pub(super) warnings: Vec<String>,
}

/// What a `SKILL.md` came to.
pub(super) type Loaded = Arc<(Option<Skill>, Vec<Finding>)>;

/// What is known of files, by path. A scan keeps what it has met, so that it never outgrows the disk.
#[derive(Debug, Default)]
pub(super) struct Cache {
    before: HashMap<PathBuf, Known>,
    now: HashMap<PathBuf, Known>,
    /// Files and bytes counted in this scan.
    files: usize,
    bytes: u64,
}

#[derive(Clone, Debug)]
struct Known {
    stamp: Stamp,
    hashed_at: Timestamp,
    digest: Hash,
    loaded: Option<Loaded>,
}

/// What changes when a file does. The change time among it: unlike the others, nobody can set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Cache {
    /// A scan begins.
    pub(super) fn begin(&mut self) {
        self.before = std::mem::take(&mut self.now);
        (self.files, self.bytes) = (0, 0);
    }

    /// What a `SKILL.md` says; read again only if it may have changed.
    pub(super) fn skill(&mut self, folder: &Path, at: Timestamp) -> Result<Loaded, String> {
        let path = regular(folder, &folder.join(FILE)).map_err(Refused::words)?;
        let (file, metadata) = open(&path).map_err(|error| format!("cannot be read: {error}"))?;
        let stamp = Stamp::of(&metadata);
        if let Some(Known { loaded: Some(loaded), .. }) = self.known(&path, stamp) {
            return Ok(loaded);
        }
        let too_long = || format!("longer than {SKILL_BYTES_MAX} bytes; it is not read");
        if metadata.len() > SKILL_BYTES_MAX {
            return Err(too_long());
        }
        let bytes = read_within(file, SKILL_BYTES_MAX).map_err(|error| format!("cannot be read: {error}"))?;
        let bytes = bytes.ok_or_else(too_long)?;
        let digest = Hash(Sha256::digest(&bytes).into());
        let text = String::from_utf8(bytes).map_err(|error| {
            format!("not valid UTF-8 at byte {}; save it as UTF-8", error.utf8_error().valid_up_to())
        })?;
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let loaded = Arc::new(load(&text, &name));
        self.now.insert(path, Known { stamp, hashed_at: at, digest, loaded: Some(Arc::clone(&loaded)) });
        Ok(loaded)
    }

    /// The files of a skill, each with its digest.
    pub(super) fn inventory(&mut self, folder: &Path, at: Timestamp) -> Inventory {
        let mut inventory = Inventory::default();
        let mut paths = Vec::new();
        collect(folder, &mut paths, &mut inventory);
        // It comes first, so that whatever is left out, the instructions are not.
        paths.sort_by_key(|(path, _)| (path != FILE, path.clone()));
        let mut bytes = 0;
        for (path, place) in paths {
            let room = BYTES_MAX.saturating_sub(bytes).min(ALL_BYTES_MAX.saturating_sub(self.bytes));
            let is_room = inventory.files.len() < FILES_MAX && self.files < ALL_FILES_MAX;
            match if is_room { self.digest(&place, room, at) } else { Ok(None) } {
                Ok(Some((digest, size))) => {
                    (self.files, self.bytes, bytes) = (self.files + 1, self.bytes + size, bytes + size);
                    inventory.files.push(SkillFile { path, size, digest });
                }
                Ok(None) => inventory.left_out += 1,
                Err(error) => {
                    inventory.left_out += 1;
                    inventory.warn(format!("`{}` cannot be read: {error}", visible(&path)));
                }
            }
        }
        inventory.files.sort_by(|one, other| one.path.cmp(&other.path));
        inventory
    }

    /// The digest and size of a file; nothing if it is longer than `bytes_max`.
    fn digest(&mut self, path: &Path, bytes_max: u64, at: Timestamp) -> io::Result<Option<(Hash, u64)>> {
        let (file, metadata) = open(path)?;
        let stamp = Stamp::of(&metadata);
        if stamp.size > bytes_max {
            return Ok(None);
        }
        if let Some(known) = self.known(path, stamp) {
            return Ok(Some((known.digest, stamp.size)));
        }
        let Some((digest, size)) = hash_within(file, bytes_max)? else { return Ok(None) };
        self.now.insert(path.to_owned(), Known { stamp, hashed_at: at, digest, loaded: None });
        Ok(Some((digest, size)))
    }

    /// What is known of a file, if it cannot have changed since.
    fn known(&mut self, path: &Path, stamp: Stamp) -> Option<Known> {
        if let Some(known) = self.now.get(path).filter(|known| known.stamp == stamp) {
            return Some(known.clone());
        }
        let known = self.before.get(path).filter(|known| known.stamp == stamp && known.is_settled())?;
        self.now.insert(path.to_owned(), known.clone());
        Some(known.clone())
    }
}

impl Known {
    fn is_settled(&self) -> bool {
        let changed_ms =
            self.stamp.changed.0.saturating_mul(1_000).saturating_add(self.stamp.changed.1 / 1_000_000);
        u64::try_from(changed_ms)
            .is_ok_and(|changed| changed.saturating_add(SETTLED_AFTER_MS) < self.hashed_at.0)
    }
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl Inventory {
    fn warn(&mut self, warning: String) {
        if self.warnings.len() < crate::domain::skill::FINDINGS_MAX {
            self.warnings.push(warning);
        }
    }
}

/// The content of a skill's file, if it is still the one whose digest was told. A file that was
/// exchanged meanwhile, for a link to another perhaps, is not given out.
pub(super) fn read(folder: &Path, file: &SkillFile) -> Result<Vec<u8>, String> {
    let path = regular(folder, &folder.join(&file.path)).map_err(Refused::words)?;
    let (opened, _) = open(&path).map_err(|error| format!("cannot be read: {error}"))?;
    let bytes = read_within(opened, file.size).map_err(|error| format!("cannot be read: {error}"))?;
    bytes
        .filter(|bytes| Hash(Sha256::digest(bytes).into()) == file.digest)
        .ok_or_else(|| "changed while it was read; ask again".to_owned())
}

/// Every file below a folder that belongs to it, with the place to read it from.
fn collect(folder: &Path, found: &mut Vec<(String, PathBuf)>, inventory: &mut Inventory) {
    let mut below = vec![(folder.to_owned(), String::new(), 0)];
    let mut folders = 0;
    while let Some((place, path, depth)) = below.pop() {
        folders += 1;
        if folders > FOLDERS_MAX {
            inventory.left_out += 1 + below.len();
            return;
        }
        let entries = match entries(&place) {
            Ok(entries) => entries,
            Err(error) => {
                inventory.left_out += 1;
                inventory.warn(format!("`{}` cannot be read: {error}", visible(&path)));
                continue;
            }
        };
        for Entry { name, kind } in entries {
            let Some(name) = name.to_str().filter(|name| !name.chars().any(char::is_control)) else {
                inventory.left_out += 1;
                inventory.warn(format!("the name of `{}` cannot be shown", visible(&name.to_string_lossy())));
                continue;
            };
            let (path, place) = (format!("{path}{name}"), place.join(name));
            match kind {
                Kind::Folder if SKIPPED.contains(&name) => {}
                Kind::Folder if depth < DEPTH_MAX => below.push((place, format!("{path}/"), depth + 1)),
                Kind::Folder => inventory.left_out += 1,
                // Counted further on, not kept: a million names would be a million strings.
                _ if found.len() >= 2 * FILES_MAX => inventory.left_out += 1,
                Kind::File => found.push((path, place)),
                Kind::Link => match regular(folder, &place) {
                    Ok(place) => found.push((path, place)),
                    Err(refused) => inventory.warn(format!("`{}` {}", visible(&path), refused.words())),
                },
                Kind::Other => {
                    inventory.warn(format!("`{}` is no regular file, and is ignored", visible(&path)));
                }
            }
        }
    }
}

/// One name in a folder.
pub(super) struct Entry {
    pub(super) name: std::ffi::OsString,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Folder,
    Link,
    Other,
}

/// What is in a folder, by name, not looking through links.
pub(super) fn entries(folder: &Path) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder)? {
        if entries.len() >= ENTRIES_MAX {
            return Err(io::Error::other(format!("it has more than {ENTRIES_MAX} entries")));
        }
        let entry = entry?;
        let kind = entry.file_type()?;
        let kind = match kind {
            kind if kind.is_file() => Kind::File,
            kind if kind.is_dir() => Kind::Folder,
            kind if kind.is_symlink() => Kind::Link,
            _ => Kind::Other,
        };
        entries.push(Entry { name: entry.file_name(), kind });
    }
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(entries)
}

/// Whether nothing of a skill is to be found in a folder of that name.
pub(super) fn is_skipped(name: &std::ffi::OsStr) -> bool {
    SKIPPED.iter().any(|skipped| name == *skipped)
}

/// Why a name is not given out.
enum Refused {
    Outside,
    NotAFile,
    Unreadable(io::Error),
}

impl Refused {
    fn words(self) -> String {
        match self {
            Self::Outside => "is a link that leaves the skill's folder, and is ignored".to_owned(),
            Self::NotAFile => "is no regular file, and is ignored".to_owned(),
            Self::Unreadable(error) => format!("cannot be read: {error}"),
        }
    }
}

/// Where the regular file of that name really is, which must be in the folder.
fn regular(folder: &Path, path: &Path) -> Result<PathBuf, Refused> {
    let metadata = fs::symlink_metadata(path).map_err(Refused::Unreadable)?;
    if metadata.is_file() {
        return Ok(path.to_owned());
    }
    if !metadata.is_symlink() {
        return Err(Refused::NotAFile);
    }
    let inside = fs::canonicalize(folder).map_err(Refused::Unreadable)?;
    let target = fs::canonicalize(path).map_err(Refused::Unreadable)?;
    if !target.starts_with(inside) {
        return Err(Refused::Outside);
    }
    // A link to a folder is not followed: what is in it is found where it is.
    if target.is_file() { Ok(target) } else { Err(Refused::NotAFile) }
}

/// Opens a regular file, waiting for nobody: a pipe that was put in its place would never open.
fn open(path: &Path) -> io::Result<(File, Metadata)> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_file() { Ok((file, metadata)) } else { Err(io::Error::other("no regular file")) }
}

/// All of a file; nothing if it is longer.
fn read_within(file: File, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= bytes_max).then_some(bytes))
}

/// The digest of a file and how much it covers; nothing if it is longer.
fn hash_within(file: File, bytes_max: u64) -> io::Result<Option<(Hash, u64)>> {
    let (mut whole, mut size, mut chunk) = (Sha256::new(), 0, vec![0; 64 << 10]);
    let mut file = file.take(bytes_max + 1);
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok((size <= bytes_max).then(|| (Hash(whole.finalize().into()), size))),
            read => {
                whole.update(&chunk[..read]);
                size += read as u64;
            }
        }
    }
}
