//! Links that lead to what is covered. A cover lies where a link leads; the link itself could be removed, and something
//! else be made in its place.
//!
//! Owns: finding them, and holding them where they are. Must not know: what they lead to, or why it is covered.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

/// As many as the kernel follows in one path.
const LINKS_MAX: usize = 40;

/// Every link on the way to these places, where it really lies.
pub(super) fn leading_to<'a>(places: impl Iterator<Item = &'a OsString>) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    places.for_each(|place| follow(Path::new(place), &mut found));
    found
}

/// Walks as the kernel does, step by step; what was walked has no link in it.
fn follow(place: &Path, found: &mut BTreeSet<PathBuf>) {
    let mut walked = PathBuf::from("/");
    let mut ahead = steps(place);
    let mut left = LINKS_MAX;
    while let Some(step) = ahead.pop() {
        match step.as_os_str() {
            step if step == "/" => walked = PathBuf::from("/"),
            step if step == ".." => drop(walked.pop()),
            step => {
                walked.push(step);
                let Ok(target) = fs::read_link(&walked) else { continue };
                found.insert(walked.clone());
                walked.pop();
                ahead.extend(steps(&target));
                left -= 1;
                if left == 0 {
                    return;
                }
            }
        }
    }
}

/// The steps of a path, the first one last.
fn steps(path: &Path) -> Vec<OsString> {
    let named = path.components().filter(|step| *step != Component::CurDir);
    named.rev().map(Component::as_os_str).map(OsStr::to_owned).collect()
}

/// Makes a mount of a link, of itself: it is followed as before, but neither removed nor replaced.
pub(super) fn hold(link: &Path) -> io::Result<()> {
    let itself = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    let tree = open_tree(CWD, link, itself)?;
    // Without a word about links the place is taken as it is, and not where it leads.
    Ok(move_mount(&tree, "", CWD, link, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// SB-3: every link on the way, through links to links and folders above, and none twice or without end.
    #[test]
    fn every_link_on_the_way_is_found() {
        let disk = tempfile::tempdir().unwrap();
        let top = disk.path().canonicalize().unwrap();
        fs::create_dir_all(top.join("real/colibri")).unwrap();
        fs::create_dir_all(top.join("home")).unwrap();
        symlink("real", top.join("dotfiles")).unwrap();
        symlink("../dotfiles/colibri", top.join("home/colibri")).unwrap();
        symlink("nowhere", top.join("real/colibri/dangling")).unwrap();
        symlink("round", top.join("round")).unwrap();
        let check = |place: &str, expected: &[&str]| {
            let found = leading_to([top.join(place).into_os_string()].iter());
            let expected: BTreeSet<PathBuf> = expected.iter().map(|link| top.join(link)).collect();
            assert_eq!(found, expected, "{place}");
        };
        check("real/colibri/file", &[]);
        check("home/colibri/file", &["home/colibri", "dotfiles"]);
        check("home/./colibri/../../home/colibri", &["home/colibri", "dotfiles"]);
        check("home/colibri/dangling", &["home/colibri", "dotfiles", "real/colibri/dangling"]);
        check("round/file", &["round"]);
        check("not/there/at/all", &[]);
    }
}
