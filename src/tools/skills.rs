//! Skills: what they are called, what they are for, and — for those who speak the Skills extension —
//! what is in them. Every question looks at the disk again.
//!
//! Owns: the tool `skill_list`, the hidden tools behind the protocol's own methods, and that a skill is
//! on record before anybody is told of it. Uses: `scan` for the disk, the store for the record.
//! Must not know: protocol revisions or frames.

mod files;
mod list;
mod methods;
mod scan;

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::json;

use crate::domain::clock::Timestamp;
use crate::domain::skill::{Places, Severity};
use crate::store::{SeenSkill, Store};

use super::tasks::act;
use super::{Context, RegisterError, Registry, ToolError};
use scan::{Found, Scan, Scanner};

/// A cheap handle to what is known of the folders.
#[derive(Clone)]
pub struct Skills(Arc<Shared>);

struct Shared {
    places: Places,
    store: Store,
    /// One scan at a time; it is held on a thread that may block, never across a wait.
    scanner: Mutex<Scanner>,
}

/// How many skills there are, and how many things are to be said about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// Skills that can be used.
    pub skills: u64,
    /// Files and folders that cannot.
    pub errors: u64,
    /// What somebody should look at.
    pub warnings: u64,
}

impl Skills {
    /// Looks nowhere yet.
    pub fn new(places: Places, store: Store) -> Self {
        Self(Arc::new(Shared { places, store, scanner: Mutex::default() }))
    }

    /// Registers what there is to ask.
    pub fn register(&self, registry: &mut Registry) -> Result<(), RegisterError> {
        list::register(registry, self)?;
        methods::register(registry, self)
    }

    /// How many there are now. Puts nothing on record.
    pub async fn count(&self, now: Timestamp) -> Result<Count, String> {
        let scan = self.scan(now).await.map_err(|error| error.to_string())?;
        let of = |severity| scan.diagnostics.iter().filter(|one| one.severity == severity).count();
        let told: usize = scan.skills.iter().map(|found| found.warnings.len()).sum();
        Ok(Count {
            skills: scan.skills.len() as u64,
            errors: of(Severity::Error) as u64,
            warnings: (of(Severity::Warning) + told + scan.left_off) as u64,
        })
    }

    /// What there is now. When this returns, every skill in it is on record as it is: what an agent
    /// was told to do can be looked up.
    async fn look(&self, context: &Context) -> Result<Scan, ToolError> {
        let scan = self.scan(context.arrived.wall).await?;
        let met: Vec<(String, _)> = scan.skills.iter().map(|found| (folder(found), found.digest)).collect();
        let known = self.0.store.read(move |reader| reader.has_seen(&met)).await?;
        let new: Vec<SeenSkill> =
            scan.skills.iter().zip(known).filter(|(_, known)| !known).map(|(found, _)| seen(found)).collect();
        if !new.is_empty() {
            self.0.store.see_skills(act(context), new).await?;
        }
        Ok(scan)
    }

    async fn scan(&self, now: Timestamp) -> Result<Scan, tokio::task::JoinError> {
        let shared = Arc::clone(&self.0);
        tokio::task::spawn_blocking(move || {
            // A scan that panicked left a memory that the next one checks against the disk anyway.
            let mut scanner = shared.scanner.lock().unwrap_or_else(PoisonError::into_inner);
            scanner.scan(&shared.places.roots(), now)
        })
        .await
    }
}

fn folder(found: &Found) -> String {
    found.folder.to_string_lossy().into_owned()
}

fn seen(found: &Found) -> SeenSkill {
    let files: Vec<_> = found
        .files
        .iter()
        .map(|file| json!({ "path": file.path, "size": file.size, "digest": file.digest }))
        .collect();
    let content = json!({ "folder": folder(found), "files": files });
    SeenSkill {
        folder: folder(found),
        name: found.skill.name.clone(),
        source: found.source,
        digest: found.digest,
        files: found.files.len() as u64,
        content: content.to_string().into_bytes(),
    }
}
