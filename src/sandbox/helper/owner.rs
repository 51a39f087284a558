//! A user of its own for a program that root runs under `strict`: one that owns nothing on this machine.
//!
//! What was named for the program is shown to it as its own: the same files, through a mount on which
//! root's are this user's, so that what it writes there is root's on the disk. Where a file system cannot do
//! that, the program sees the files as they are, as any stranger would.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, fchown, fstat};
use rustix::process::{Gid, Uid, WaitOptions, waitpid};
use rustix::thread::{UnshareFlags, set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::super::policy::Level;
use super::super::wire::Request;
use super::sys::{self, Fork};
use super::{Streams, leave};

/// From here on nobody gives out ids: distributions and containers stay below.
const FIRST: u32 = 0x7000_0000;

/// The user that a program gets, if it gets one: no other sandbox has the same at the same time. Where a
/// user namespace is around everything, root is nobody outside already.
pub(super) fn of(request: &Request) -> Option<u32> {
    let is_root = rustix::process::geteuid().is_root();
    let wanted = request.policy.level == Level::Strict && is_root && is_outermost();
    wanted.then(|| FIRST + rustix::process::getpid().as_raw_nonzero().get().cast_unsigned())
}

/// Whether no user namespace is around everything.
pub(super) fn is_outermost() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map");
    map.is_ok_and(|map| map.split_whitespace().eq(["0", "0", "4294967295"]))
}

/// Becomes that user, for good. Its streams go with it: who reopens `/dev/stdout` must own the pipe.
pub(super) fn become_user(user: u32, streams: &Streams) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
    for stream in [&streams.stdin, &streams.stdout, &streams.stderr] {
        // A file or a terminal is somebody's; a pipe is the sandbox's.
        if FileType::from_raw_mode(fstat(stream)?.st_mode) == FileType::Fifo {
            fchown(stream, Some(uid), Some(gid))?;
        }
    }
    // Of the thread, which is the only one.
    set_thread_groups(&[])?;
    set_thread_res_gid(gid, gid, gid)?;
    Ok(set_thread_res_uid(uid, uid, uid)?)
}

/// A user namespace in which root is that user and everybody else is who they are: what a mount is told by.
/// Needs a `/proc` of this process namespace that can be written.
pub(super) fn map_of(user: u32) -> io::Result<OwnedFd> {
    let ((mut entered, has_entered), (may_leave, stays)) = (io::pipe()?, io::pipe()?);
    match sys::fork()? {
        Fork::Child => {
            drop((entered, stays));
            let done = sys::unshare(UnshareFlags::NEWUSER);
            drop(has_entered);
            // Until it has been looked at.
            let _ = { may_leave }.read(&mut [0]);
            leave(i32::from(done.is_err()))
        }
        Fork::Parent(child) => {
            drop((has_entered, may_leave));
            let made = entered.read(&mut [0]).and_then(|_| {
                let own = PathBuf::from(format!("/proc/{child}"));
                // Two lines: root, and everybody below the ids that nobody gives out.
                let map = format!("0 {user} 1\n1 1 {}\n", FIRST - 1);
                fs::write(own.join("uid_map"), &map)?;
                fs::write(own.join("gid_map"), &map)?;
                Ok(File::open(own.join("ns/user"))?.into())
            });
            drop(stays);
            let _ = waitpid(Some(child), WaitOptions::empty());
            made
        }
    }
}

/// Shows a detached tree through that namespace. One that cannot be shown so stays as it is.
pub(super) fn show_as_own(tree: &OwnedFd, map: &OwnedFd) {
    let _ = sys::map_mounts(tree.as_fd(), map.as_fd());
}

/// The highest folder above a place that a stranger cannot pass.
pub(super) fn closed_above(place: &Path) -> Option<PathBuf> {
    let mut above: Vec<&Path> = place.ancestors().skip(1).collect();
    above.reverse();
    above.iter().find(|path| !allows_strangers(path, 0o001)).map(|path| path.to_path_buf())
}

/// Whether a stranger may read and run this file.
pub(super) fn is_open(file: &Path) -> bool {
    allows_strangers(file, 0o005) && closed_above(file).is_none()
}

fn allows_strangers(path: &Path, rights: u32) -> bool {
    fs::metadata(path).is_ok_and(|found| found.permissions().mode() & rights == rights)
}
