//! Whether what a configuration says may have been written by a server that runs.
//!
//! Owns: which of its files were put out of servers' reach, and whether they are still the same files. What keeps a server
//! away is put on a file when the server starts; it is gone when another file takes its place, and what is named later
//! never had it. Must not know: what is in a file.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::config::{Loaded, SandboxLevel, Server, State, is_in_own_folder};
use crate::domain::merkle::Hash;

/// What tells a file from another in its place.
type Identity = (u64, u64);

/// The files that servers were kept away from, or from writing to, when the first of them started.
pub(super) struct Covers(BTreeMap<PathBuf, Identity>);

impl Covers {
    /// Before any server runs.
    pub(super) fn of(loaded: &Loaded) -> Self {
        let files = said(loaded).into_keys();
        Self(files.filter_map(|path| Some((path.clone(), identity(&path)?))).collect())
    }

    /// Why what is read now is not used, if it is not: a file that says something else now, and that a server may have
    /// written.
    pub(super) fn doubt(&self, before: &Loaded, after: &Loaded) -> Option<String> {
        if !before.config.servers.iter().any(runs_confined) {
            return None;
        }
        let told = said(before);
        let another = said(after).into_iter().filter(|(path, digest)| told.get(path) != Some(digest));
        let doubtful =
            another.map(|(path, _)| path).find(|path| !self.holds(path, told.contains_key(path)))?;
        Some(format!(
            "{} was replaced, or named, while servers ran that may have written it since: look at it, and start colibri \
             again to use it; in a folder with the name `colibri` it is out of their reach",
            doubtful.display()
        ))
    }

    /// Whether no server can have written it. What is named for the first time is as it was found, as any file is.
    fn holds(&self, path: &Path, was_named: bool) -> bool {
        let is_same = self.0.get(path).is_some_and(|then| Some(*then) == identity(path));
        is_same || !was_named || lies_in_own_folder(path)
    }
}

/// Every file that is believed by its place, with what is in it.
fn said(loaded: &Loaded) -> BTreeMap<PathBuf, Option<Hash>> {
    let files = loaded.files.iter().filter(|looked| looked.found && looked.by_place);
    let files = files.map(|looked| (looked.path.clone(), looked.digest));
    files.chain(loaded.env_files().clone()).collect()
}

fn identity(path: &Path) -> Option<Identity> {
    std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// Whether its folder is covered whole, and it is really in there.
fn lies_in_own_folder(path: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    is_in_own_folder(path)
        && path
            .parent()
            .and_then(real)
            .is_some_and(|folder| real(path).is_some_and(|file| file.parent() == Some(folder.as_path())))
}

/// Whether it is a process that is kept away from anything.
fn runs_confined(server: &Server) -> bool {
    let State::Ready(configured) = &server.state else { return false };
    server.trusted && configured.command.is_some() && configured.sandbox.level != SandboxLevel::Off
}
