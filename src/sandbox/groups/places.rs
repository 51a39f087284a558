//! Where groups may be made: in which hierarchies, and in which folder of each.
//!
//! Owns: finding what was given to colibri. Must not know: what is done in it.
//! That one could write to a group proves nothing: whoever owns it counts what is in it, and could no longer
//! remove it. A folder is colibri's to use if its owner says so (systemd marks it for `Delegate=yes`), if it
//! belongs to colibri's user, or if it is the top of all that is to be seen: then nobody here is above.

use std::ffi::CStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

/// The marks of a group whose inside was given away.
const GIVEN: [&CStr; 2] = [c"user.delegate", c"trusted.delegate"];

/// A folder in which colibri may make groups, and what they hold there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    pub(super) version: Version,
    pub(super) memory: bool,
    pub(super) processes: bool,
}

/// The two versions of control groups. A machine may have both, each controller in one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// A hierarchy for each controller, entered one by one.
    First,
    /// One hierarchy for all, which can also end whoever is in a group.
    Second,
}

impl Version {
    pub(super) fn number(self) -> u8 {
        match self {
            Self::First => 1,
            Self::Second => 2,
        }
    }
}

/// All places, and why there is none for memory, if there is none.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) all: Vec<Place>,
    pub(super) no_memory: Option<String>,
}

/// What the kernel says of the mounts and the groups of this process.
struct Seen {
    mounts: String,
    groups: String,
}

/// This process's group in one hierarchy.
#[derive(Debug, PartialEq, Eq)]
struct Own {
    /// Its name in the hierarchy.
    name: String,
    folder: PathBuf,
    /// Whether what is mounted begins with it.
    is_top: bool,
}

/// Looks for every place.
pub(super) fn find() -> Places {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let seen = Seen { mounts: read("/proc/self/mountinfo"), groups: read("/proc/self/cgroup") };
    let mut all = Vec::new();
    all.extend(second(&seen));
    let holds = |all: &[Place], controller: &str| match controller {
        "memory" => all.iter().any(|place| place.memory),
        _ => all.iter().any(|place| place.processes),
    };
    let mut no_memory = None;
    for controller in ["memory", "pids"] {
        if holds(&all, controller) {
            continue;
        }
        match first(&seen, controller) {
            Ok(place) => all.push(place),
            Err(why) if controller == "memory" => no_memory = Some(why),
            Err(_) => {}
        }
    }
    Places { all, no_memory }
}

/// The place in the second version's hierarchy. A group that has groups with controllers has no processes:
/// colibri's own group lies in the one it was given.
fn second(seen: &Seen) -> Option<Place> {
    let own = seen.own_second()?;
    let path = own.folder.parent().filter(|_| !own.is_top)?.to_owned();
    is_marked(&path).then(|| {
        for controller in ["+memory", "+pids"] {
            let _ = fs::write(path.join("cgroup.subtree_control"), controller);
        }
        let enabled = fs::read_to_string(path.join("cgroup.subtree_control")).unwrap_or_default();
        let has = |controller: &str| enabled.split_whitespace().any(|one| one == controller);
        Place { version: Version::Second, memory: has("memory"), processes: has("pids"), path }
    })
}

/// The place in a hierarchy of the first version, or why there is none. There, a group may hold processes and
/// groups at once.
fn first(seen: &Seen, controller: &str) -> Result<Place, String> {
    let own = seen.own_first(controller).ok_or("the machine has no such hierarchy, or not here")?;
    let path = own.folder.clone();
    // Where limits of a group are not those of what lies below, a child would leave them.
    let hierarchy = fs::read_to_string(path.join("memory.use_hierarchy"));
    if controller == "memory" && own.name != "/" && hierarchy.is_ok_and(|set| set.trim() != "1") {
        return Err(format!("{} does not limit what lies below it", path.display()));
    }
    if !(own.is_top || is_marked(&path) || is_own(&path) || seen.is_marked_elsewhere(&own)) {
        return Err(format!("{} was not given to colibri", path.display()));
    }
    access(&path, Access::WRITE_OK).map_err(|error| format!("{}: {error}", path.display()))?;
    let has = |file: &str| path.join(file).exists();
    // Both may be mounted as one. The highest group has no limit of processes, and those below it do.
    let processes = controller == "pids" || has("pids.max");
    Ok(Place { version: Version::First, memory: has("memory.limit_in_bytes"), processes, path })
}

/// Whether its owner says that what lies below is somebody else's.
fn is_marked(place: &Path) -> bool {
    let mut value = [0_u8; 4];
    GIVEN.iter().any(|name| {
        rustix::fs::getxattr(place, *name, &mut value[..]).is_ok_and(|length| value[..length] == *b"1")
    })
}

/// Whether it was made over to colibri's user, as the first version does it. All is root's anyway.
fn is_own(place: &Path) -> bool {
    let user = rustix::process::geteuid();
    !user.is_root() && fs::metadata(place).is_ok_and(|found| found.uid() == user.as_raw())
}

impl Seen {
    fn own_second(&self) -> Option<Own> {
        let name = self.groups.lines().find_map(|line| line.strip_prefix("0::"))?;
        self.own(name, |kind, _| kind == "cgroup2")
    }

    fn own_first(&self, controller: &str) -> Option<Own> {
        let lists = |line: &&str| {
            line.split(':').nth(1).is_some_and(|all| all.split(',').any(|one| one == controller))
        };
        let name = self.groups.lines().find(lists)?.splitn(3, ':').nth(2)?;
        self.own(name, |kind, options| kind == "cgroup" && options.split(',').any(|one| one == controller))
    }

    /// systemd marks a group in the one hierarchy that it works with, and makes it anew in the others.
    fn is_marked_elsewhere(&self, own: &Own) -> bool {
        let others = [self.own_second(), self.own_first("name=systemd")];
        others.iter().flatten().any(|other| other.name == own.name && is_marked(&other.folder))
    }

    /// Where a group of that name lies, in the hierarchy that is recognised by its kind and options.
    fn own(&self, name: &str, is_it: impl Fn(&str, &str) -> bool) -> Option<Own> {
        self.mounts.lines().find_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            let mut words = after.split(' ');
            let (kind, options) = (words.next()?, words.nth(1)?);
            is_it(kind, options).then_some(())?;
            let mut fields = before.split(' ').skip(3);
            let (root, mounted_at) = (fields.next()?, fields.next()?);
            // What is mounted may begin below the root.
            let below = Path::new(name).strip_prefix(root).ok()?;
            let is_top = below.as_os_str().is_empty();
            let folder = if is_top { mounted_at.into() } else { Path::new(mounted_at).join(below) };
            Some(Own { name: name.to_owned(), folder, is_top })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(groups: &str) -> Seen {
        let mounts = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - tmpfs tmpfs rw\n\
                      41 30 0:27 /user.slice /mnt/groups rw,nosuid shared:9 - cgroup2 cgroup2 rw\n\
                      42 30 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      43 30 0:29 /docker/1 /sys/fs/cgroup/pids rw - cgroup cgroup rw,net_prio,pids\n";
        Seen { mounts: mounts.to_owned(), groups: groups.to_owned() }
    }

    #[test]
    fn a_process_finds_its_group_in_the_second_version() {
        let check = |groups: &str, expected: Option<(&str, bool)>| {
            let found = seen(groups).own_second().map(|own| (own.folder, own.is_top));
            assert_eq!(found, expected.map(|(folder, is_top)| (folder.into(), is_top)), "{groups}");
        };
        check("4:memory:/other\n0::/user.slice/a/main\n", Some(("/mnt/groups/a/main", false)));
        check("0::/user.slice\n", Some(("/mnt/groups", true)));
        check("0::/system.slice/a\n", None); // Outside what is mounted.
        check("4:memory:/other\n", None);
        assert_eq!(Seen { mounts: String::new(), groups: "0::/a\n".to_owned() }.own_second(), None);
    }

    #[test]
    fn a_process_finds_its_groups_in_the_first_version() {
        let check = |groups: &str, controller: &str, expected: Option<(&str, bool)>| {
            let found = seen(groups).own_first(controller).map(|own| (own.folder, own.is_top));
            assert_eq!(found, expected.map(|(folder, is_top)| (folder.into(), is_top)), "{groups}");
        };
        let groups = "8:net_prio,pids:/docker/1\n4:memory:/jobs/a:b\n0::/\n";
        check(groups, "memory", Some(("/sys/fs/cgroup/memory/jobs/a:b", false)));
        check(groups, "pids", Some(("/sys/fs/cgroup/pids", true))); // As a container sees its own.
        check("4:memory:/\n", "memory", Some(("/sys/fs/cgroup/memory", true)));
        check("8:pids:/docker/2\n", "pids", None);
        check("8:pids:/docker/1\n", "memory", None);
    }

    #[test]
    fn a_group_that_nobody_gave_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!is_marked(folder.path()));
        if rustix::fs::setxattr(folder.path(), c"user.delegate", b"0", rustix::fs::XattrFlags::empty())
            .is_ok()
        {
            assert!(!is_marked(folder.path()));
            rustix::fs::setxattr(folder.path(), c"user.delegate", b"1", rustix::fs::XattrFlags::empty())
                .unwrap();
            assert!(is_marked(folder.path()));
        }
        let mounts = format!("42 30 0:28 / {} rw - cgroup cgroup rw,memory\n", folder.path().display());
        let check = |group: &str, hierarchy: &str, expected: Result<bool, &str>| {
            let own = folder.path().join(group);
            fs::create_dir_all(&own).unwrap();
            fs::write(own.join("memory.use_hierarchy"), hierarchy).unwrap();
            fs::write(own.join("memory.limit_in_bytes"), "").unwrap();
            let seen = Seen { mounts: mounts.clone(), groups: format!("4:memory:/{group}\n") };
            match (first(&seen, "memory"), expected) {
                (Ok(place), Ok(memory)) => assert_eq!((place.memory, place.path), (memory, own)),
                (Err(why), Err(expected)) => assert!(why.ends_with(expected), "{why}"),
                (found, expected) => panic!("{group}: {found:?}, not {expected:?}"),
            }
        };
        check("", "1\n", Ok(true));
        check("flat", "0\n", Err("does not limit what lies below it"));
        if rustix::process::geteuid().is_root() {
            check("theirs", "1\n", Err("was not given to colibri"));
        }
    }
}
