//! The view: the same files as everywhere, with some covered, and a few places private.
//!
//! Everything is a mount in a mount namespace, so that nothing is left when the sandbox ends.
//! A process inside has no right to unmount, and in a namespace it makes itself the covers are locked.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, OsString};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FsWord, StatVfsMountFlags, statfs};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, UnmountFlags, fsconfig_create, fsmount, fsopen, mount, mount_bind, mount_bind_recursive,
    mount_change, mount_remount, move_mount, open_tree, unmount,
};

use super::super::policy::Level;
use super::super::wire::Request;
use super::{links, owner, program, sys};

/// Private temporary files, if the policy has no limit of memory to take it from.
const TEMPORARY_BYTES_MAX: u64 = 256 << 20;

/// From this version on, a process namespace has a highest process id of its own. Before, there is one
/// for the whole machine, and it must not be touched.
const OWN_PID_MAX_SINCE: (u32, u32) = (6, 14);

/// Ids below this are given out once and never again, so they come on top of a limit.
const LOW_PIDS: u32 = 301;

/// Where control groups usually are.
const GROUPS: &str = "/sys/fs/cgroup";

/// How the kernel marks its own file systems: control groups of either version, and `/sys`.
const GROUP_FILES: [FsWord; 2] = [0x27_e0eb, 0x6367_7270];
const SYS_FILES: FsWord = 0x6265_6572;

const SHARED_MEMORY: &str = "/dev/shm";
const TEMPORARY: &str = "/tmp";

/// Makes the view. Called in the first process of a process namespace. Tells whether the kernel itself
/// bounds the number of processes in it. What was named is shown as the program's own, if it has a user of
/// its own.
pub(super) fn make(request: &Request, own_user: Option<u32>) -> io::Result<bool> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let strict = request.policy.level == Level::Strict;
    // Before anything is frozen: a copy of a mount has the rights that the mount had.
    let written = if strict { detach_all(&real(&request.policy.files.allow_write))? } else { Vec::new() };
    if strict {
        sys::freeze_mounts(c"/")?;
    }
    // After: what is to be read is to be read alone.
    let read = if own_user.is_some() { detach_all(&named_to_read(request))? } else { Vec::new() };
    // For root the rights of a file are no hindrance: devices and the kernel's settings must be out of
    // sight.
    let guarded = strict || rustix::process::geteuid().is_root();
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None::<&CStr>)?;
    let is_bounded = bound_processes(request);
    if let Some(user) = own_user.filter(|_| !(read.is_empty() && written.is_empty())) {
        let map = owner::map_of(user)?;
        read.iter().chain(&written).for_each(|taken| owner::show_as_own(&taken.tree, &map));
    }
    if guarded {
        read_only(Path::new("/proc"))?;
        bare_sys(strict)?;
        bare_dev()?;
    }
    freeze_groups()?;
    private(SHARED_MEMORY, request)?;
    if strict {
        private_temporary(request)?;
    }
    if own_user.is_some() {
        open_closed(read.iter().chain(&written), request)?;
    }
    attach_all(&read)?;
    attach_all(&written)?;
    cover(request)?;
    Ok(is_bounded)
}

/// Memory that is held by private files in memory, and by no process. The machine's own temporary
/// files may lie in memory too; they are nobody's here.
pub(super) fn memory_bytes(request: &Request) -> u64 {
    let used = |place: &&str| {
        let filled = rustix::fs::statvfs(*place).ok()?;
        Some((filled.f_blocks - filled.f_bfree) * filled.f_frsize)
    };
    let places = [SHARED_MEMORY, TEMPORARY];
    let private = if request.policy.level == Level::Strict { &places[..] } else { &places[..1] };
    private.iter().filter_map(used).sum()
}

/// A second bound of processes, somewhat higher than the limit and held by the kernel itself. The watch
/// holds the limit.
fn bound_processes(request: &Request) -> bool {
    // Where it does not work the watch is alone, as on older machines.
    counts_processes_in_namespaces()
        && request.policy.limits.processes.is_some_and(|most| {
            fs::write("/proc/sys/kernel/pid_max", (most.saturating_add(LOW_PIDS)).to_string()).is_ok()
        })
}

/// Whether a process namespace bounds how many processes are in it.
pub(in crate::sandbox) fn counts_processes_in_namespaces() -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|text| text.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= OWN_PID_MAX_SINCE
}

/// Remounts what is mounted there, for reading alone. What was forbidden stays so: in a user namespace
/// the kernel would refuse anything else.
fn read_only(place: &Path) -> io::Result<()> {
    let was = rustix::fs::statvfs(place)?.f_flag;
    let mut flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    flags.set(MountFlags::NOEXEC, was.contains(StatVfsMountFlags::NOEXEC));
    Ok(mount_remount(place, flags, c"")?)
}

/// The machine's own facts, for reading, without what else is mounted there but, if the view is not strict,
/// control groups: programs ask them how much memory they may use. In a user namespace what is mounted there
/// may not be uncovered, and is kept; there, root is nobody.
fn bare_sys(strict: bool) -> io::Result<()> {
    if !Path::new("/sys").is_dir() {
        return Ok(());
    }
    let has_groups = statfs(GROUPS).is_ok_and(|found| found.f_type != SYS_FILES);
    let groups = (has_groups && !strict).then(|| detach(Path::new(GROUPS))).transpose()?;
    if mount_bind("/sys", "/sys").is_err() {
        mount_bind_recursive("/sys", "/sys")?;
        return read_only(Path::new("/sys"));
    }
    read_only(Path::new("/sys"))?;
    groups.map_or(Ok(()), |groups| attach(&groups, Path::new(GROUPS)))
}

/// Control groups are to be read alone, wherever they are mounted: their files' owner, who may be the program's
/// user, could raise its limits and leave them.
fn freeze_groups() -> io::Result<()> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let mounted = mounts.lines().filter_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        after.starts_with("cgroup").then(|| before.split(' ').nth(4)).flatten()
    });
    for place in mounted.chain([GROUPS]) {
        // What is covered by something else is out of reach already.
        let found = statfs(place).map(|found| found.f_type);
        if found.is_ok_and(|kind| GROUP_FILES.contains(&kind) || (place == GROUPS && kind != SYS_FILES)) {
            sys::freeze_mounts(&CString::new(place)?)?;
        }
    }
    Ok(())
}

/// Devices that are no way to anything, and none else.
fn bare_dev() -> io::Result<()> {
    let names = ["null", "zero", "full", "random", "urandom", "tty"];
    let kept: Vec<(PathBuf, OwnedFd)> = names
        .iter()
        .map(|name| Path::new("/dev").join(name))
        .filter(|path| fs::metadata(path).is_ok_and(|found| found.file_type().is_char_device()))
        .map(|path| Ok((path.clone(), detach(&path)?)))
        .collect::<io::Result<_>>()?;
    memory_files(Path::new("/dev"), 0o755, 1 << 20)?;
    for (path, tree) in &kept {
        fs::write(path, "")?;
        attach(tree, path)?;
    }
    for (name, target) in [("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")] {
        symlink(Path::new("/proc/self").join(target), Path::new("/dev").join(name))?;
    }
    fs::create_dir(SHARED_MEMORY)?;
    fs::create_dir("/dev/pts")?;
    symlink("pts/ptmx", "/dev/ptmx")?;
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    // Terminals are a comfort; a machine that gives none is no less safe.
    let _ = mount("devpts", "/dev/pts", "devpts", flags, c"newinstance,ptmxmode=0666,mode=620");
    Ok(())
}

/// A private place for files in memory, gone with the sandbox.
fn private(place: &str, request: &Request) -> io::Result<()> {
    if !Path::new(place).is_dir() {
        return Ok(());
    }
    // Twice the limit: who fills it is ended for it, rather than told that it is full.
    let most =
        request.policy.limits.memory_bytes.map_or(TEMPORARY_BYTES_MAX, |bytes| bytes.saturating_mul(2));
    memory_files(Path::new(place), 0o1777, most)
}

fn memory_files(place: &Path, mode: u32, most_bytes: u64) -> io::Result<()> {
    let options = CString::new(format!("mode={mode:o},size={most_bytes},nr_inodes=65536"))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    Ok(mount("colibri", place, "tmpfs", flags, options.as_c_str())?)
}

/// A private folder for temporary files. What was named and lies in the old one is carried over; the
/// working directory is there, and empty.
fn private_temporary(request: &Request) -> io::Result<()> {
    let Ok(old) = fs::canonicalize(TEMPORARY) else { return Ok(()) };
    let mut carried = real(&request.policy.files.allow_read);
    carried.extend(real(&[Path::new(&request.directory).join(&request.program).into_os_string()]));
    carried.retain(|path| path.starts_with(&old) && *path != old);
    let carried = detach_all(&outermost(carried))?;
    private(TEMPORARY, request)?;
    if Path::new(&request.directory).starts_with(&old) {
        fs::create_dir_all(&request.directory)?;
    }
    attach_all(&carried)
}

/// What was named to be read, and the program itself, unless anybody may run it as it is.
fn named_to_read(request: &Request) -> BTreeSet<PathBuf> {
    let mut named = real(&request.policy.files.allow_read);
    named.extend(program::program_file(request).filter(|program| !owner::is_open(program)));
    // The whole is not shown through anything: what is not closed to strangers can be read as it is.
    named.retain(|path| path.parent().is_some());
    outermost(named)
}

/// Puts an empty folder, which anybody may pass, where one that is closed to strangers lies above what was
/// named; nothing else in it was to be seen anyway. The working directory is there, and empty.
fn open_closed<'a>(taken: impl Iterator<Item = &'a Taken>, request: &Request) -> io::Result<()> {
    let closed: BTreeSet<PathBuf> = taken.filter_map(|taken| owner::closed_above(&taken.place)).collect();
    for place in &closed {
        memory_files(place, 0o755, 1 << 20)?;
        if Path::new(&request.directory).starts_with(place) {
            fs::create_dir_all(&request.directory)?;
        }
    }
    Ok(())
}

/// Where these really are, as far as they are.
fn real(paths: &[OsString]) -> BTreeSet<PathBuf> {
    paths.iter().filter_map(|path| fs::canonicalize(path).ok()).collect()
}

/// Without those that lie in another.
fn outermost(mut paths: BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
    let whole = paths.clone();
    paths.retain(|path| !path.ancestors().skip(1).any(|above| whole.contains(above)));
    paths
}

/// A file or folder taken out of the view, to be put back in its place.
struct Taken {
    place: PathBuf,
    is_folder: bool,
    tree: OwnedFd,
}

fn detach_all(places: &BTreeSet<PathBuf>) -> io::Result<Vec<Taken>> {
    let take =
        |place: &PathBuf| Ok(Taken { place: place.clone(), is_folder: place.is_dir(), tree: detach(place)? });
    places.iter().map(take).collect()
}

/// Puts them back, the highest first. A place that is gone is made anew, which works in private folders
/// alone: nowhere else can it be gone.
fn attach_all(taken: &[Taken]) -> io::Result<()> {
    for Taken { place, is_folder, tree } in taken {
        if !place.exists() {
            let folder = if *is_folder { Some(place.as_path()) } else { place.parent() };
            folder.map_or(Ok(()), fs::create_dir_all)?;
            if !is_folder {
                fs::write(place, "")?;
            }
        }
        attach(tree, place)?;
    }
    Ok(())
}

fn detach(path: &Path) -> io::Result<OwnedFd> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    Ok(open_tree(CWD, path, flags)?)
}

fn attach(tree: &OwnedFd, path: &Path) -> io::Result<()> {
    Ok(move_mount(tree, "", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

/// Covers what is hidden, and forbids writing what is to be read alone.
fn cover(request: &Request) -> io::Result<()> {
    let files = &request.policy.files;
    // What lies in a covered folder is covered with it, and is no longer there to be covered.
    let (hidden, frozen) = (outermost(real(&files.hidden)), real(&files.read_only));
    let links = links::leading_to(files.hidden.iter().chain(&files.read_only));
    pin_above(hidden.iter().chain(&frozen).chain(&links))?;
    links.iter().try_for_each(|link| links::hold(link))?;
    for path in &frozen {
        mount_bind_recursive(path, path)?;
        read_only(path)?;
    }
    Nothing::lend(|nothing| hidden.iter().try_for_each(|path| nothing.cover(path)))
}

/// Makes a mount of every folder above what is covered: a folder that is one cannot be renamed, and a
/// covered folder whose parent is renamed could be made anew, uncovered, in its old place.
fn pin_above<'a>(covered: impl Iterator<Item = &'a PathBuf>) -> io::Result<()> {
    // In order, so that the highest come first: what is mounted later lies on what is there by then.
    let above: BTreeSet<&Path> = covered.flat_map(|path| path.ancestors().skip(1)).collect();
    let below_root = above.into_iter().filter(|path| path.parent().is_some());
    Ok(below_root.into_iter().try_for_each(|path| mount_bind_recursive(path, path))?)
}

/// A file and a folder that nobody may open. Before Linux 6.15 there is no copy of what is mounted nowhere, so it is in a
/// place that is always there, for as long as it is copied.
struct Nothing(OwnedFd);

impl Nothing {
    const PLACE: &str = "/proc";
    const FILE: &str = "file";
    const FOLDER: &str = "folder";

    /// What is covered with it stays so.
    fn lend(cover: impl FnOnce(&Self) -> io::Result<()>) -> io::Result<()> {
        cover(&Self::new()?)?;
        Ok(unmount(Self::PLACE, UnmountFlags::DETACH)?)
    }

    fn new() -> io::Result<Self> {
        let made = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&made)?;
        let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        let root = fsmount(&made, FsMountFlags::FSMOUNT_CLOEXEC, flags)?;
        rustix::fs::mkdirat(&root, Self::FOLDER, rustix::fs::Mode::empty())?;
        let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC;
        let file = rustix::fs::openat(&root, Self::FILE, flags, rustix::fs::Mode::empty())?;
        fs::File::from(file).set_permissions(fs::Permissions::from_mode(0o000))?;
        attach(&root, Path::new(Self::PLACE))?;
        Ok(Self(root))
    }

    fn cover(&self, path: &Path) -> io::Result<()> {
        let name = if path.is_dir() { Self::FOLDER } else { Self::FILE };
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        attach(&open_tree(&self.0, name, flags)?, path)?;
        read_only(path)
    }
}
