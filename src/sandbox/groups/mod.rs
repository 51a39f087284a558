//! Control groups, where one may be made: the kernel then counts all memory of a tree, also what no process
//! maps, and holds its processes.
//!
//! Owns: the groups of each child, one in every hierarchy that is used, and that none is left.
//! Where there is none (`places.rs`) the watch holds the limits alone, as it does beside a group.
//!
//! ```text
//! colibri-PID-NUMBER      the limits
//!   └─ in                 the child and all it starts
//! ```
//!
//! Two levels, since who is in a group may look at it as the top of a new hierarchy (a namespace of control
//! groups, which a user namespace lets anybody make) and write there what its files' owner may.

mod places;

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags, flock, openat};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::helper::counts_processes_in_namespaces;
use super::policy::{Layer, Level, Limits, Policy};
use super::removal;
use super::wire::{GROUPS_MAX, INNER_GROUP};
use places::{Place, Places, Version};

/// What every group of ours begins with; then come colibri's process id and a number.
const PREFIX: &str = "colibri-";

/// The watch ends a tree that is over its limit of processes, so it must be able to go over.
const PROCESSES_ABOVE: u32 = 16;

/// How often, and how many times, it is tried to remove a group whose last process is just ending.
const REMOVE_PAUSE: Duration = Duration::from_millis(10);
const REMOVE_TRIES: u32 = 100;

/// Processes that are held at the same time to be killed.
const HELD_MAX: usize = 64;

/// The groups of one child, all of the same name.
#[derive(Debug)]
pub(super) struct Groups {
    name: String,
    parts: Vec<Part>,
}

/// The group in one hierarchy.
#[derive(Debug)]
struct Part {
    path: PathBuf,
    /// The folder above, by which the helper reaches the group in spite of the view, and removes it even if
    /// colibri is gone.
    above: OwnedFd,
    /// Locked for as long as colibri lives, so that no other removes it.
    _lock: File,
}

impl Groups {
    /// New groups for what the policy limits. None where none may be made.
    pub(super) fn make(policy: &Policy) -> io::Result<Option<Self>> {
        let places = &places().all;
        let (name, mut parts) = (next_name(places), Vec::new());
        for place in places.iter().filter(|place| is_wanted(place, policy)) {
            match Part::make(place, &name, &policy.limits) {
                Ok(part) => parts.push(part),
                // The watch holds the same limits; nobody has promised this group to anybody.
                Err(_) if place.version == Version::First => {}
                Err(error) => return Err(error),
            }
        }
        assert!(parts.len() <= GROUPS_MAX, "a hierarchy for each controller, and one for all");
        Ok((!parts.is_empty()).then_some(Self { name, parts }))
    }

    /// Their name in the folders above.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The folders above, which go to the helper.
    pub(super) fn above(&self) -> impl Iterator<Item = &OwnedFd> {
        self.parts.iter().map(|part| &part.above)
    }

    /// Ends whoever is left in them and removes them. The helper has done so, unless it was killed itself.
    pub(super) async fn end(mut self) {
        for _ in 0..REMOVE_TRIES {
            if !self.parts.iter().any(|part| part.path.exists()) {
                return;
            }
            // What a server has made in them may be much: not on a thread that others wait for.
            let removing = tokio::task::spawn_blocking(move || {
                // Every one is tried, whatever became of the others.
                let left = self.parts.iter().filter(|part| !remove(&part.path)).count();
                (self, left)
            });
            // Fails only if the runtime ends, and then the next colibri removes them.
            let Ok((groups, 1..)) = removing.await else { return };
            self = groups;
            tokio::time::sleep(REMOVE_PAUSE).await;
        }
    }
}

impl Part {
    fn make(place: &Place, name: &str, limits: &Limits) -> io::Result<Self> {
        let path = place.path.join(name);
        fs::create_dir(&path)?;
        // Removed again if anything below fails.
        let made = (|| {
            let lock = File::open(&path)?;
            flock(&lock, FlockOperation::NonBlockingLockShared)?;
            set(&path, limits)?;
            fs::create_dir(path.join(INNER_GROUP))?;
            Ok(Self { above: File::open(&place.path)?.into(), path: path.clone(), _lock: lock })
        })();
        if made.is_err() {
            let _ = take_away(&path, |_| {});
        }
        made
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // A safety net for a child that was never started. One that runs is not disturbed: there it fails.
        let _ = fs::remove_dir(self.path.join(INNER_GROUP));
        let _ = fs::remove_dir(&self.path);
    }
}

/// What control groups hold here, in words for people. Groups are made to find out.
pub fn control_groups() -> String {
    let Places { all, no_memory } = places();
    let trial = Limits { memory_bytes: Some(1 << 30), processes: Some(512), ..Limits::none() };
    let (mut said, mut no_memory) = (Vec::new(), no_memory.clone());
    for place in all {
        let path = place.path.display();
        if let Err(error) = Part::make(place, &next_name(all), &trial) {
            let why = format!("no group can be made in {path}: {error}");
            if place.memory {
                no_memory = Some(why);
            } else {
                said.push(why);
            }
            continue;
        }
        let what = match (place.memory, place.processes) {
            (true, true) => "memory and processes are held",
            (true, false) => "memory is held",
            (false, true) if place.version == Version::First && counts_processes_in_namespaces() => {
                "processes are held, where no namespace counts them,"
            }
            (false, true) => "processes are held",
            (false, false) => "trees are ended",
        };
        said.push(format!("{what} by control groups in {path} (version {})", place.version.number()));
    }
    said.extend(no_memory.map(|why| {
        format!("no control group holds memory ({why}), so that memory in no process is not seen")
    }));
    said.join("; ")
}

/// A name that nobody has, though one of the same number may have left some that could not be removed at once.
fn next_name(places: &[Place]) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    loop {
        let name = format!("{PREFIX}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        if !places.iter().any(|place| place.path.join(&name).exists()) {
            return name;
        }
    }
}

/// Whether a group there is of use. In the first version it costs a child some milliseconds to enter one.
fn is_wanted(place: &Place, policy: &Policy) -> bool {
    let limits = &policy.limits;
    let counted_anyway = policy.needs().contains(&Layer::Namespace)
        && !policy.allow_degraded.contains(&Layer::Namespace)
        && counts_processes_in_namespaces();
    match place.version {
        Version::Second => true,
        Version::First if policy.level == Level::Off => false,
        Version::First => {
            (place.memory && limits.memory_bytes.is_some())
                || (place.processes && limits.processes.is_some() && !counted_anyway)
        }
    }
}

/// Sets what the group's controllers can hold, in the words of either version. One that is not there holds
/// nothing; the watch does.
fn set(path: &Path, limits: &Limits) -> io::Result<()> {
    let write = |name: &str, value: String| {
        let file = path.join(name);
        if file.exists() { fs::write(file, value) } else { Ok(()) }
    };
    if let Some(bytes) = limits.memory_bytes {
        write("memory.max", bytes.to_string())?;
        write("memory.swap.max", "0".to_owned())?;
        write("memory.oom.group", "1".to_owned())?;
        write("memory.limit_in_bytes", bytes.to_string())?;
        // With what is swapped out; there it cannot be less than the other.
        write("memory.memsw.limit_in_bytes", bytes.to_string())?;
    }
    if let Some(count) = limits.processes {
        write("pids.max", count.saturating_add(PROCESSES_ABOVE).to_string())?;
    }
    // Whoever is inside makes no groups of its own.
    write("cgroup.max.descendants", "1".to_owned())
}

/// Removes a group, with what was made in it, and ends whoever is there. Whether it is gone.
fn remove(path: &Path) -> bool {
    let all_at_once = path.join("cgroup.kill");
    // The first version has no such file, nor has Linux before 5.14.
    let kills_all = all_at_once.exists();
    let is_gone = take_away(path, |group| {
        if !kills_all {
            kill_members(group);
        }
    });
    if !is_gone && kills_all {
        let _ = fs::write(all_at_once, "1");
    }
    is_gone
}

/// Removes a group and those in it, as far as nobody is there; see [`removal::take_away`].
fn take_away(path: &Path, stays: impl FnMut(BorrowedFd<'_>)) -> bool {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return false };
    let (Ok(above), Ok(name)) = (File::open(above), CString::new(name.as_encoded_bytes())) else {
        return false;
    };
    removal::take_away(above.as_fd(), &name, stays)
}

fn groups_in(path: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path())
}

/// Kills one by one. Who is out of sight, in a process namespace that is not below this one's, reads as zero.
fn kill_members(group: BorrowedFd<'_>) {
    let listed = || -> Vec<i32> {
        let file = openat(group, c"cgroup.procs", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let text = file.map_err(io::Error::from).and_then(|file| io::read_to_string(File::from(file)));
        text.unwrap_or_default().lines().filter_map(|line| line.parse().ok()).collect()
    };
    let open = |pid: &i32| Some((*pid, pidfd_open(Pid::from_raw(*pid)?, PidfdFlags::empty()).ok()?));
    for some in listed().chunks(HELD_MAX) {
        let held: Vec<_> = some.iter().filter_map(open).collect();
        // Whose number has become somebody else's is not listed any more.
        let still: BTreeSet<i32> = listed().into_iter().collect();
        for (_, handle) in held.iter().filter(|(pid, _)| still.contains(pid)) {
            let _ = pidfd_send_signal(handle, Signal::KILL);
        }
    }
}

/// Where groups are made, found once. What dead colibris left there is removed.
fn places() -> &'static Places {
    static PLACES: OnceLock<Places> = OnceLock::new();
    PLACES.get_or_init(|| {
        let found = places::find();
        found.all.iter().for_each(|place| sweep(&place.path));
        found
    })
}

/// Removes the groups of colibris that are gone, with whoever is left in them.
fn sweep(place: &Path) {
    for path in groups_in(place) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-')?.0.parse::<u32>().ok());
        // This one has made none yet: what bears its number is of one before it that had the same.
        let is_dead =
            |pid: u32| pid == std::process::id() || !Path::new("/proc").join(pid.to_string()).exists();
        let is_left = owner.is_some_and(is_dead)
            // A colibri in another process namespace is not seen; its lock is.
            && File::open(&path).is_ok_and(|open| flock(open, FlockOperation::NonBlockingLockExclusive).is_ok());
        if is_left {
            // Whoever is killed now is removed by the next one.
            let _ = remove(&path) || remove(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process id that no machine gives out.
    const NOBODY: &str = "colibri-2147483647-1";

    #[test]
    fn what_a_dead_colibri_left_is_swept_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let path = place.path().join(name);
            fs::create_dir_all(path.join(INNER_GROUP).join("deeper")).unwrap();
            path
        };
        let (dead, other) = (make(NOBODY), make("something-else"));
        let of = |pid: u32| make(&format!("{PREFIX}{pid}-1"));
        // In a container a colibri may have the number that the one before it had.
        let (alive, namesake) = (of(std::os::unix::process::parent_id()), of(std::process::id()));
        sweep(place.path());
        assert!(!dead.exists() && !namesake.exists() && alive.exists() && other.exists());
        // Of a colibri in another process namespace.
        let hidden = make(NOBODY);
        let lock = File::open(&hidden).unwrap();
        flock(&lock, FlockOperation::NonBlockingLockShared).unwrap();
        sweep(place.path());
        assert!(hidden.exists());
        drop(lock);
        sweep(place.path());
        assert!(!hidden.exists());
    }

    #[test]
    fn a_group_of_the_first_version_is_made_where_something_needs_it() {
        let place =
            |memory, processes| Place { path: "/".into(), version: Version::First, memory, processes };
        let free = Policy { limits: Limits::none(), ..Policy::default() };
        let bare = Policy { allow_degraded: [Layer::Namespace].into(), ..Policy::default() };
        assert!(is_wanted(&place(true, false), &Policy::default()));
        assert!(is_wanted(&place(false, true), &bare));
        assert!(!is_wanted(&place(true, true), &free));
        assert!(!is_wanted(&place(true, true), &Policy::off()));
        assert_eq!(is_wanted(&place(false, true), &Policy::default()), !counts_processes_in_namespaces());
    }
}
