//! Looking for skills: which folders have one, which of two with one name counts, and what is wrong.
//!
//! Owns: reading folders, within bounds. Uses: `files` for what is in a skill.
//! Must not know: who asks, or what is on record. It blocks; whoever calls it does so off the runtime.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::domain::clock::Timestamp;
use crate::domain::log::visible;
use crate::domain::merkle::Hash;
use crate::domain::skill::{Diagnostic, FILE, Root, Severity, Skill, Source, digest};

use super::files::{
    ALL_BYTES_MAX, ALL_FILES_MAX, BYTES_MAX, Cache, DEPTH_MAX, Entry, FILES_MAX, Inventory, Kind, SkillFile,
    entries, is_skipped,
};

/// Folders looked into below one root. Far more than anyone keeps, few enough to read at every question.
const FOLDERS_MAX: usize = 2_000;

/// More diagnostics than this help nobody.
const DIAGNOSTICS_MAX: usize = 200;

/// A skill that was found.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) skill: Skill,
    pub(super) folder: PathBuf,
    pub(super) source: Source,
    /// In the order of their paths.
    pub(super) files: Vec<SkillFile>,
    /// Whether `files` are all.
    pub(super) is_complete: bool,
    /// Over `files`.
    pub(super) digest: Hash,
    /// What somebody should know.
    pub(super) warnings: Vec<String>,
}

/// What a scan found.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// Ordered by name; no two have the same.
    pub(super) skills: Vec<Found>,
    /// About what is not among them.
    pub(super) diagnostics: Vec<Diagnostic>,
    /// How many diagnostics are not listed.
    pub(super) left_off: usize,
}

/// Looks for skills, and remembers what it has read.
#[derive(Debug, Default)]
pub(super) struct Scanner {
    cache: Cache,
}

impl Scanner {
    /// Everything, as it is now.
    pub(super) fn scan(&mut self, roots: &[Root], at: Timestamp) -> Scan {
        self.cache.begin();
        let mut scan = Scan::default();
        let mut known: BTreeMap<String, Found> = BTreeMap::new();
        let real: Vec<(&Root, PathBuf)> =
            roots.iter().filter_map(|root| Some((root, scan.real(root)?))).collect();
        let mut seen = HashSet::new();
        for (root, path) in &real {
            // Two names of one folder: `.claude/skills` is often a link to `.agents/skills`.
            if !seen.insert(path) {
                continue;
            }
            for folder in scan.search(path, &real) {
                let Some(found) = self.read(&folder, root.source, at, &mut scan) else { continue };
                match known.get(&found.skill.name) {
                    Some(stronger) => scan.warn(&found.folder, shadowed(&found, stronger)),
                    None => drop(known.insert(found.skill.name.clone(), found)),
                }
            }
        }
        scan.skills = known.into_values().collect();
        scan
    }

    /// The skill in a folder that has a `SKILL.md`.
    fn read(&mut self, folder: &Path, source: Source, at: Timestamp, scan: &mut Scan) -> Option<Found> {
        let path = folder.join(FILE);
        let loaded = match self.cache.skill(folder, at) {
            Ok(loaded) => loaded,
            Err(message) => {
                scan.tell(&path, Severity::Error, message);
                return None;
            }
        };
        let (skill, findings) = &*loaded;
        let Some(skill) = skill.clone() else {
            for finding in findings {
                scan.add(finding.clone().at(&path.to_string_lossy()));
            }
            return None;
        };
        let Inventory { files, left_out, warnings } = self.cache.inventory(folder, at);
        let said = findings.iter().map(|finding| match finding.line {
            Some(line) => format!("{FILE} line {line}: {}", finding.message),
            None => format!("{FILE}: {}", finding.message),
        });
        let mut said: Vec<String> = said.chain(warnings).collect();
        if left_out > 0 {
            said.push(format!(
                "{left_out} of its files are left out: a skill has at most {FILES_MAX} files and {BYTES_MAX} bytes, \
                 all together {ALL_FILES_MAX} and {ALL_BYTES_MAX}"
            ));
        }
        let digest = digest(files.iter().map(|file| (&*file.path, file.digest)));
        let (folder, is_complete) = (folder.to_owned(), left_out == 0);
        Some(Found { skill, folder, source, files, is_complete, digest, warnings: said })
    }
}

fn shadowed(found: &Found, stronger: &Found) -> String {
    let (name, place) = (&found.skill.name, visible(&stronger.folder.to_string_lossy()));
    format!("`{name}` is hidden by the one of the same name in {place}: rename or remove one of them")
}

impl Scan {
    /// Where a root really is; nothing if it is not there, or may not be looked into.
    fn real(&mut self, root: &Root) -> Option<PathBuf> {
        let path = match fs::canonicalize(&root.path) {
            Ok(path) => path,
            Err(error) => {
                let is_absent =
                    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
                if !is_absent || root.source == Source::Configured {
                    self.warn(&root.path, format!("this folder for skills cannot be read: {error}"));
                }
                return None;
            }
        };
        let within = root.within.as_ref().map(fs::canonicalize);
        let is_inside = within.is_none_or(|within| within.is_ok_and(|within| path.starts_with(within)));
        if !is_inside {
            let remedy = "name its target under `skills` in the configuration, if you trust it";
            self.warn(
                &root.path,
                format!("this folder for skills is a link that leaves the project: {remedy}"),
            );
        }
        is_inside.then_some(path)
    }

    /// The folders below a root that have a `SKILL.md`; none is looked for inside another.
    fn search(&mut self, root: &Path, roots: &[(&Root, PathBuf)]) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut below = vec![(root.to_owned(), 0)];
        let (mut folders, mut is_deep) = (0, false);
        while let Some((folder, depth)) = below.pop() {
            folders += 1;
            if folders > FOLDERS_MAX {
                self.warn(
                    root,
                    format!("more than {FOLDERS_MAX} folders are in it; the rest is not looked into"),
                );
                break;
            }
            let entries = match entries(&folder) {
                Ok(entries) => entries,
                Err(error) => {
                    self.warn(&folder, format!("this folder cannot be read: {error}"));
                    continue;
                }
            };
            if entries.iter().any(|entry| entry.name == FILE) {
                found.push(folder);
                continue;
            }
            // Taken from the end, so that the first comes first.
            for Entry { name, kind } in entries.into_iter().rev() {
                match kind {
                    Kind::Folder if is_skipped(&name) => {}
                    Kind::Folder if depth < DEPTH_MAX => below.push((folder.join(name), depth + 1)),
                    Kind::Folder => is_deep = true,
                    Kind::Link => self.link(&folder.join(name), roots),
                    Kind::File | Kind::Other => {}
                }
            }
        }
        if is_deep {
            self.warn(root, format!("folders more than {DEPTH_MAX} deep are not looked into"));
        }
        found
    }

    /// A link is never followed, so that no loop can be walked. What it leads to within any of the
    /// roots is found there; what it leads to elsewhere is told.
    fn link(&mut self, path: &Path, roots: &[(&Root, PathBuf)]) {
        let Ok(target) = fs::canonicalize(path) else {
            return self.warn(path, "this link leads nowhere, or round in a circle".to_owned());
        };
        if target.is_dir() && !roots.iter().any(|(_, root)| target.starts_with(root)) {
            let remedy = "name its target under `skills` in the configuration";
            self.warn(path, format!("this link leaves the folder and is not followed: {remedy}"));
        }
    }

    fn warn(&mut self, path: &Path, message: String) {
        self.tell(path, Severity::Warning, message);
    }

    fn tell(&mut self, path: &Path, severity: Severity, message: String) {
        self.add(Diagnostic { path: visible(&path.to_string_lossy()), line: None, severity, message });
    }

    fn add(&mut self, diagnostic: Diagnostic) {
        if self.diagnostics.len() < DIAGNOSTICS_MAX {
            self.diagnostics.push(diagnostic);
        } else {
            self.left_off += 1;
        }
    }
}
