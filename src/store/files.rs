//! The files of a store: where they lie, who holds them, and whether the disk can be trusted.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::error::StoreError;

/// Everything lies beside the database, so that moving one path moves all of it. What is there once is never
/// replaced by another file: what keeps servers away from a file is put on that very file.
#[derive(Clone, Debug)]
pub struct Paths {
    /// The database.
    pub database: PathBuf,
    /// Signed checkpoints, appended, outside the database.
    pub checkpoints: PathBuf,
    /// The key that signs, mode 0600.
    pub key: PathBuf,
    /// Where the next key waits, empty if there is none.
    pub(super) waiting_key: PathBuf,
    /// Every public key that ever signed, one a line, the newest last.
    pub public_keys: PathBuf,
    lock: PathBuf,
    live: PathBuf,
}

impl Paths {
    /// The files that belong to a database.
    pub fn beside(database: &Path) -> Self {
        let with = |suffix: &str| beside(database, suffix);
        Self {
            database: database.to_owned(),
            checkpoints: with(".checkpoints"),
            key: with(".key"),
            waiting_key: with(".key.new"),
            public_keys: with(".keys"),
            lock: with(".lock"),
            live: with(".live"),
        }
    }

    /// Refuses a folder on another machine, untouched; else makes it, for its owner alone.
    pub(super) fn prepare(&self) -> Result<(), StoreError> {
        let folder =
            self.database.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let there = folder.ancestors().find_map(|ancestor| ancestor.canonicalize().ok());
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        if let Some(kind) = there.and_then(|there| network_file_system(&mounts, &there)) {
            return Err(StoreError::NetworkFileSystem { path: self.database.clone(), kind });
        }
        for folder in [folder, &self.live] {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
            made.map_err(StoreError::file("create the folder", folder))?;
        }
        let is_link = self.live.symlink_metadata().is_ok_and(|found| found.is_symlink());
        let no_folder = || StoreError::file("use", &self.live)(ErrorKind::NotADirectory.into());
        if is_link { Err(no_folder()) } else { Ok(()) }
    }

    /// Makes what SQLite looks for beside a database that is there, empty, as if it were not: who may write in the
    /// folder, if not in the database, could make it first, and SQLite would write it into the database. With the
    /// database it is out of their reach.
    pub fn take_names(&self) -> std::io::Result<()> {
        // SQLite follows a link, and keeps its own where that leads.
        let Ok(database) = self.database.canonicalize() else { return Ok(()) };
        for suffix in ["-journal", "-wal", "-shm"] {
            let made =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(beside(&database, suffix));
            match made {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Creates the database for its owner alone: SQLite would take the umask's word.
    pub(super) fn create_database(&self) -> Result<(), StoreError> {
        let made = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.database);
        made.map(drop).map_err(StoreError::file("open", &self.database))
    }

    /// The lock that every writer takes before a transaction. SQLite's own busy waiting starves.
    pub(super) fn write_lock(&self) -> Result<File, StoreError> {
        private(OpenOptions::new().append(true).create(true), &self.lock)
    }
}

/// A name beside a file: its own and more.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Opens a file that nobody else may read. A link in its place is nobody's that means well.
pub(super) fn private(options: &mut OpenOptions, path: &Path) -> Result<File, StoreError> {
    let no_link = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    options.mode(0o600).custom_flags(no_link).open(path).map_err(StoreError::file("open", path))
}

/// Proof that this process lives: a lock that the kernel drops with the process, however it ends.
#[derive(Debug)]
pub(super) struct Presence {
    pub(super) id: String,
    path: PathBuf,
    _lock: File,
}

impl Presence {
    /// Announces this process. Only under the write lock, so that nobody sweeps in between.
    pub(super) fn announce(paths: &Paths) -> Result<Self, StoreError> {
        let id = Uuid::now_v7().simple().to_string();
        let path = paths.live.join(&id);
        let lock = private(OpenOptions::new().append(true).create_new(true), &path)?;
        lock.try_lock().map_err(|error| StoreError::File {
            action: "lock",
            path: path.clone(),
            cause: error.to_string(),
        })?;
        Ok(Self { id, path, _lock: lock })
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        // A file left behind is swept by the next start; its lock is gone either way.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Whether the process of that id still holds its lock.
pub(super) fn is_alive(paths: &Paths, process: &str) -> Result<bool, StoreError> {
    let path = paths.live.join(process);
    let file = match OpenOptions::new().append(true).open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(StoreError::file("open", &path)(error)),
    };
    match file.try_lock() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(StoreError::file("lock", &path)(error)),
    }
}

/// Removes what dead processes left. Only under the write lock.
pub(super) fn sweep(paths: &Paths) {
    for entry in std::fs::read_dir(&paths.live).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if name.to_str().is_some_and(|process| matches!(is_alive(paths, process), Ok(false))) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Forces a folder's entries to disk, so that a file just made or renamed survives a power cut.
pub(super) fn sync_folder_of(path: &Path) -> Result<(), StoreError> {
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(StoreError::file("sync", folder))
}

/// File systems whose locks or shared memory stop at the machine's border.
const NETWORK: [&str; 14] = [
    "9p",
    "afs",
    "ceph",
    "cifs",
    "coda",
    "fuse.glusterfs",
    "fuse.rclone",
    "fuse.s3fs",
    "fuse.sshfs",
    "gfs2",
    "lustre",
    "nfs",
    "nfs4",
    "smb3",
];

/// The type of the network file system that holds `path`, if one does.
fn network_file_system(mountinfo: &str, path: &Path) -> Option<String> {
    let holder = mountinfo
        .lines()
        .filter_map(|line| {
            let (place, kind) = line.split_once(" - ")?;
            let mount_point = place.split(' ').nth(4)?.replace("\\040", " ");
            path.starts_with(&mount_point).then_some((mount_point.len(), kind.split(' ').next()?))
        })
        // The last of equals: a later mount hides an earlier one.
        .max_by_key(|(length, _)| *length)?
        .1;
    NETWORK.contains(&holder).then(|| holder.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_file_system_is_known_by_the_mount_that_holds_the_path() {
        let mounts = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
                      80 22 0:44 / /net rw shared:9 - nfs4 host:/export rw\n\
                      81 80 0:45 / /net/local rw - tmpfs tmpfs rw\n\
                      82 22 0:46 / /with\\040space rw - fuse.sshfs me@host: rw\n\
                      83 22 0:47 / /hidden rw - nfs host:/x rw\n\
                      84 22 0:48 / /hidden rw - ext4 /dev/vdb rw\n";
        let check = |path: &str, expected: Option<&str>| {
            assert_eq!(network_file_system(mounts, Path::new(path)).as_deref(), expected, "{path}");
        };
        check("/var/lib/colibri", None);
        check("/net/data", Some("nfs4"));
        check("/network", None);
        check("/net/local/data", None);
        check("/with space/data", Some("fuse.sshfs"));
        check("/hidden/data", None);
    }
}
