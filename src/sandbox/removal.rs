//! Removing a control group with all that was made in it, however much that is: whoever is in one may have made
//! groups in groups, hundreds deep, where nothing forbids it (version 1).
//!
//! Owns: the way through such a tree, deepest first, with a few descriptors at a time and by no path that could be
//! too long. Must not know: whose groups they are, or how their members are ended.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;

/// Groups that are looked at in one go. Who has made more of them is met again by the next.
const LOOKS_MAX: u32 = 100_000;

/// A group on the way down.
struct Level {
    /// Its name in the one above.
    name: CString,
    /// Those in it that were not looked at.
    inner: Vec<CString>,
}

/// Removes a group and those in it, as far as nobody is there; `stays` is given each that is not gone, after those in
/// it. Whether all are gone.
pub(super) fn take_away(above: BorrowedFd<'_>, name: &CStr, mut stays: impl FnMut(BorrowedFd<'_>)) -> bool {
    if is_gone(above, name) {
        return true;
    }
    let Ok(mut here) = open(above, name) else { return false };
    let mut levels = vec![Level { name: name.to_owned(), inner: groups_in(&here) }];
    let mut looks_left = LOOKS_MAX;
    while let Some(level) = levels.last_mut() {
        if let Some(name) = level.inner.pop() {
            looks_left -= 1;
            if looks_left == 0 {
                return false;
            }
            // One that has members is no other than one that has groups.
            if !is_gone(here.as_fd(), &name)
                && let Ok(below) = open(here.as_fd(), &name)
            {
                here = below;
                levels.push(Level { name, inner: groups_in(&here) });
            }
            continue;
        }
        let Some(Level { name, .. }) = levels.pop() else { break };
        if levels.is_empty() {
            let is_gone = is_gone(above, &name);
            if !is_gone {
                stays(here.as_fd());
            }
            return is_gone;
        }
        // No group can be moved to another place.
        let Ok(up) = open(here.as_fd(), c"..") else { return false };
        if !is_gone(up.as_fd(), &name) {
            stays(here.as_fd());
        }
        here = up;
    }
    false
}

fn is_gone(above: BorrowedFd<'_>, name: &CStr) -> bool {
    matches!(unlinkat(above, name, AtFlags::REMOVEDIR), Ok(()) | Err(Errno::NOENT))
}

fn open(above: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(above, name, flags, Mode::empty())
}

/// The names of the groups in this one, as far as they can be read and are not more than can be looked at.
fn groups_in(group: &OwnedFd) -> Vec<CString> {
    let entries = Dir::read_from(group).into_iter().flatten().flatten();
    let groups = entries.filter(|entry| {
        let name = entry.file_name();
        entry.file_type() == FileType::Directory && name != c"." && name != c".."
    });
    groups.map(|entry| entry.file_name().to_owned()).take(LOOKS_MAX as usize).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use rustix::fs::mkdirat;

    use super::*;

    /// More levels than a process may have files, and a longer path than any call takes.
    const DEEP: usize = 3_000;

    /// Version 1: groups that lie in groups, deeper than files can be opened or paths be written, are removed. Both
    /// colibri and its helper used to give up.
    #[test]
    fn however_deep_they_lie_groups_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let above = OwnedFd::from(File::open(place.path()).unwrap());
        let mut here = above.try_clone().unwrap();
        for name in std::iter::once(c"top").chain(std::iter::repeat_n(c"deeper", DEEP)) {
            mkdirat(&here, name, Mode::RWXU).unwrap();
            here = open(here.as_fd(), name).unwrap();
            mkdirat(&here, c"beside", Mode::RWXU).unwrap();
        }
        drop(here);
        assert!(take_away(above.as_fd(), c"top", |_| panic!("nobody is there")));
        assert!(groups_in(&above).is_empty());
        assert!(take_away(above.as_fd(), c"top", |_| panic!("it is gone")));
    }

    /// One in which somebody is keeps no other, and whoever removes them is shown it, then those above it.
    #[test]
    fn what_stays_is_shown() {
        let place = tempfile::tempdir().unwrap();
        for name in ["top/a/b", "top/held/c", "top/d"] {
            std::fs::create_dir_all(place.path().join(name)).unwrap();
        }
        // A file keeps a folder as a member keeps a group.
        let member = place.path().join("top/held/member");
        std::fs::write(&member, "").unwrap();
        let above = OwnedFd::from(File::open(place.path()).unwrap());
        let has_member =
            |group: BorrowedFd<'_>| openat(group, c"member", OFlags::RDONLY, Mode::empty()).is_ok();
        let mut shown = Vec::new();
        assert!(!take_away(above.as_fd(), c"top", |group| shown.push(has_member(group))));
        assert_eq!(shown, [true, false]);
        let left: Vec<_> = std::fs::read_dir(place.path().join("top")).unwrap().flatten().collect();
        assert_eq!(left.len(), 1);
        std::fs::remove_file(member).unwrap();
        assert!(take_away(above.as_fd(), c"top", |_| panic!("nobody is there")));
    }
}
