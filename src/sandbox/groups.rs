//! Control groups, where one was given to colibri: the kernel then counts all memory of a tree, also what no
//! process maps, and ends a tree as a whole.
//!
//! Owns: finding the group that was given, one group below it for each child, and that none is left.
//! A group is used only if its owner says that what lies below is colibri's: systemd marks it so for
//! `Delegate=yes`. That one could write to another group proves nothing; whoever owns it could no longer remove
//! it. Without one the watch holds the limits alone, as it does beside a group.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::policy::Limits;

/// The marks of a group whose inside was given away.
const GIVEN: [&CStr; 2] = [c"user.delegate", c"trusted.delegate"];

/// What every group of ours begins with; then come colibri's process id and a number.
const PREFIX: &str = "colibri-";

/// The watch ends a tree that is over its limit of processes, so it must be able to go over.
const PROCESSES_ABOVE: u32 = 16;

/// How often, and how many times, it is tried to remove a group whose last process is just ending.
const REMOVE_PAUSE: Duration = Duration::from_millis(10);
const REMOVE_TRIES: u32 = 100;

/// A group of one child.
#[derive(Debug)]
pub(super) struct Group {
    place: PathBuf,
    /// What the helper gets: the folder above, by which it removes the group even if colibri is gone …
    pub(super) above: OwnedFd,
    /// … and the file by which the child enters.
    pub(super) members: OwnedFd,
}

impl Group {
    /// A new group under these limits. None if no group was given to colibri.
    pub(super) fn make(limits: &Limits) -> io::Result<Option<Self>> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let Some(base) = base() else { return Ok(None) };
        let name = format!("{PREFIX}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let place = base.join(name);
        fs::create_dir(&place)?;
        // Removed again if anything below fails.
        let made = (|| {
            set(&place, limits)?;
            let members = File::options().write(true).open(place.join("cgroup.procs"))?.into();
            Ok(Self { above: File::open(base)?.into(), members, place: place.clone() })
        })();
        if made.is_err() {
            let _ = fs::remove_dir(&place);
        }
        made.map(Some)
    }

    /// Its name in the folder above.
    pub(super) fn name(&self) -> String {
        self.place.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Ends whoever is left in it and removes it. The helper has done so, unless it was killed itself.
    pub(super) async fn end(self) {
        for _ in 0..REMOVE_TRIES {
            if remove(&self.place) {
                return;
            }
            tokio::time::sleep(REMOVE_PAUSE).await;
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A safety net for a child that was never started. One that runs is not disturbed: there it fails.
        let _ = fs::remove_dir(&self.place);
    }
}

/// Whether control groups are used here, in words for people.
pub fn control_group() -> Result<String, &'static str> {
    let base = base().ok_or("none was delegated to colibri")?;
    let has = |controller: &str| {
        let enabled = fs::read_to_string(base.join("cgroup.subtree_control")).unwrap_or_default();
        enabled.split_whitespace().any(|one| one == controller)
    };
    match (has("memory"), has("pids")) {
        (true, true) => Ok(format!("{} holds memory and processes", base.display())),
        (true, false) => Ok(format!("{} holds memory", base.display())),
        (false, true) => Ok(format!("{} holds processes, not memory", base.display())),
        (false, false) => Ok(format!("{} ends trees; it has neither memory nor processes", base.display())),
    }
}

/// Sets what the group's controllers can hold. One that is not there holds nothing; the watch does.
fn set(place: &Path, limits: &Limits) -> io::Result<()> {
    let write = |name: &str, value: String| {
        let file = place.join(name);
        if file.exists() { fs::write(file, value) } else { Ok(()) }
    };
    if let Some(bytes) = limits.memory_bytes {
        write("memory.max", bytes.to_string())?;
        write("memory.swap.max", "0".to_owned())?;
        write("memory.oom.group", "1".to_owned())?;
    }
    if let Some(count) = limits.processes {
        write("pids.max", count.saturating_add(PROCESSES_ABOVE).to_string())?;
    }
    Ok(())
}

/// Ends whoever is in a group and removes it. Whether it is gone.
fn remove(place: &Path) -> bool {
    match fs::remove_dir(place) {
        Ok(()) => true,
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(_) => {
            // Before Linux 5.14 there is no such file; then whoever is left was killed one by one.
            let _ = fs::write(place.join("cgroup.kill"), "1");
            false
        }
    }
}

/// The group that was given to colibri, found once. What dead colibris left there is removed.
fn base() -> Option<&'static Path> {
    static BASE: OnceLock<Option<PathBuf>> = OnceLock::new();
    BASE.get_or_init(|| {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        // A group that has groups with controllers has no processes: colibri's own lies in the one it was given.
        let base = own_group(&mounts, &groups)?.parent()?.to_owned();
        is_given(&base).then(|| {
            for controller in ["+memory", "+pids"] {
                let _ = fs::write(base.join("cgroup.subtree_control"), controller);
            }
            sweep(&base);
            base
        })
    })
    .as_deref()
}

fn is_given(place: &Path) -> bool {
    let mut value = [0_u8; 4];
    GIVEN.iter().any(|name| {
        rustix::fs::getxattr(place, *name, &mut value[..]).is_ok_and(|length| value[..length] == *b"1")
    })
}

/// Where this process's group lies, in the second version of control groups. Nothing if it is their root.
fn own_group(mounts: &str, groups: &str) -> Option<PathBuf> {
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        after.starts_with("cgroup2 ").then_some(())?;
        let mut fields = before.split(' ').skip(3);
        let (root, mounted_at) = (fields.next()?, fields.next()?);
        // What is mounted may begin below the root.
        let below = Path::new(own).strip_prefix(root).ok()?;
        (!below.as_os_str().is_empty()).then(|| Path::new(mounted_at).join(below))
    })
}

/// Removes the groups of colibris that are gone, with whoever is left in them.
fn sweep(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner =
            name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split_once('-')?.0.parse::<u32>().ok());
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            // Whoever is killed now is removed by the next one.
            let _ = remove(&entry.path()) || remove(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_finds_its_group() {
        let mounts = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - tmpfs tmpfs rw\n\
                      41 30 0:27 /user.slice /mnt/groups rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";
        let check = |groups: &str, expected: Option<&str>| {
            assert_eq!(own_group(mounts, groups), expected.map(PathBuf::from), "{groups}");
        };
        check("4:memory:/other\n0::/user.slice/a/main\n", Some("/mnt/groups/a/main"));
        check("0::/user.slice\n", None);
        check("0::/system.slice/a\n", None); // Outside what is mounted.
        check("4:memory:/other\n", None);
        assert_eq!(own_group("", "0::/a\n"), None);
    }

    #[test]
    fn a_group_that_nobody_gave_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!is_given(folder.path()));
        if rustix::fs::setxattr(folder.path(), c"user.delegate", b"0", rustix::fs::XattrFlags::empty())
            .is_ok()
        {
            assert!(!is_given(folder.path()));
            rustix::fs::setxattr(folder.path(), c"user.delegate", b"1", rustix::fs::XattrFlags::empty())
                .unwrap();
            assert!(is_given(folder.path()));
        }
    }
}
