//! The sandbox's control groups, as the helper and the init see them: by descriptors alone, since in the view
//! their files are out of sight or to be read alone.

use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::Timespec;
use rustix::fs::{Mode, OFlags, openat};

use super::super::removal::take_away;
use super::super::wire::INNER_GROUP;

/// The kernel needs a moment to let the last process go.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
const TRIES: u32 = 100;

/// The control groups that colibri has made for the program, one in each hierarchy.
#[derive(Debug)]
pub(super) struct Groups {
    /// The folders above.
    pub(super) above: Vec<OwnedFd>,
    /// Their name in each of them.
    pub(super) name: String,
    /// Whether this process was born in that of the second version.
    pub(super) is_born_inside: bool,
}

impl Groups {
    /// The folder in which a process can be born: the second version has it, if any does. To enter later
    /// takes the kernel some milliseconds.
    pub(super) fn cradle(&self) -> Option<OwnedFd> {
        let above = self.above.iter().find(|above| self.is_second(above.as_fd()))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(above, format!("{}/{INNER_GROUP}", self.name), flags, Mode::empty()).ok()
    }

    /// Enters them all, with all that this process will start. This process says that it means itself, so
    /// that its number does not matter: in its namespace it has another.
    pub(super) fn enter(&self) -> std::io::Result<()> {
        for above in self.above.iter().map(AsFd::as_fd) {
            if !(self.is_born_inside && self.is_second(above)) {
                let members = format!("{INNER_GROUP}/cgroup.procs");
                let mut members = self.open(above, &members, OFlags::WRONLY)?;
                members.write_all(b"0")?;
            }
        }
        Ok(())
    }

    /// Whether the kernel has ended somebody in them because their limit of memory was reached. One who was
    /// ended because the whole machine had none left did not break it.
    pub(super) fn broke_memory(&self) -> bool {
        self.above.iter().map(AsFd::as_fd).any(|above| {
            let first = || {
                // Counted where whoever was ended is, not where the limit is.
                let ended = self.number(above, &format!("{INNER_GROUP}/memory.oom_control"), "oom_kill ")?;
                // Where swap is counted, that limit is the same, and is met first.
                let met = |file: &&str| self.number(above, file, "").is_some_and(|count| count > 0);
                Some(ended > 0 && ["memory.failcnt", "memory.memsw.failcnt"].iter().any(met))
            };
            let second = || {
                let ended = self.number(above, "memory.events", "oom_kill ")?;
                Some(ended > 0 && self.number(above, "memory.events", "oom ")? > 0)
            };
            second().or_else(first).unwrap_or(false)
        })
    }

    /// Whether they bound the number of processes.
    pub(super) fn bound_processes(&self) -> bool {
        self.above.iter().any(|above| self.number(above.as_fd(), "pids.max", "").is_some())
    }

    /// Ends whoever is in them.
    pub(super) fn kill(&self) {
        for above in self.above.iter().map(AsFd::as_fd) {
            // Nor the first version nor Linux before 5.14 has such a file; everybody is killed one by one in
            // any case.
            let _ = self.open(above, "cgroup.kill", OFlags::WRONLY).map(|mut file| file.write_all(b"1"));
        }
    }

    /// Removes them, once nobody is left in them.
    pub(super) fn remove(&self) {
        let Ok(name) = CString::new(self.name.as_str()) else { return };
        for _ in 0..TRIES {
            // Every one is tried, whatever became of the others. Whoever is in them is being killed already.
            let is_left = |above: &&OwnedFd| !take_away(above.as_fd(), &name, |_| {});
            if self.above.iter().filter(is_left).count() == 0 {
                return;
            }
            let _ = rustix::event::poll(&mut [], Some(&PAUSE));
        }
    }

    fn is_second(&self, above: BorrowedFd<'_>) -> bool {
        self.open(above, "cgroup.controllers", OFlags::RDONLY).is_ok()
    }

    /// The number after a word at the beginning of a line.
    fn number(&self, above: BorrowedFd<'_>, file: &str, word: &str) -> Option<u64> {
        let mut text = String::new();
        self.open(above, file, OFlags::RDONLY).ok()?.read_to_string(&mut text).ok()?;
        text.lines().find_map(|line| line.strip_prefix(word)?.trim().parse().ok())
    }

    fn open(&self, above: BorrowedFd<'_>, file: &str, how: OFlags) -> std::io::Result<File> {
        let path = format!("{}/{file}", self.name);
        Ok(openat(above, path, how | OFlags::CLOEXEC, Mode::empty())?.into())
    }
}
