//! The sandbox's control group, as the helper and the init see it: by descriptors alone, since its files are
//! out of sight in the view.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;

use rustix::event::Timespec;
use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};

/// The kernel needs a moment to let the last process go.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
const TRIES: u32 = 100;

/// A control group that colibri has made for the program.
#[derive(Debug)]
pub(super) struct Group {
    /// The folder above.
    pub(super) above: OwnedFd,
    /// The file by which one enters.
    pub(super) members: OwnedFd,
    /// Its name in the folder above.
    pub(super) name: String,
}

impl Group {
    /// Enters it, with all that this process will start.
    pub(super) fn enter(&self) -> std::io::Result<()> {
        File::from(self.members.try_clone()?).write_all(b"0")
    }

    /// Whether the kernel has ended somebody in it for the memory it held.
    pub(super) fn broke_memory(&self) -> bool {
        let mut text = String::new();
        let read = self.open("memory.events", OFlags::RDONLY).map(|mut file| file.read_to_string(&mut text));
        let ended =
            |line: &str| line.strip_prefix("oom_kill ").and_then(|count| count.trim().parse::<u64>().ok());
        read.is_some() && text.lines().find_map(ended).is_some_and(|count| count > 0)
    }

    /// Ends whoever is in it.
    pub(super) fn kill(&self) {
        // Before Linux 5.14 there is no such file; everybody is killed one by one in any case.
        let _ = self.open("cgroup.kill", OFlags::WRONLY).map(|mut file| file.write_all(b"1"));
    }

    /// Removes it, once nobody is left in it.
    pub(super) fn remove(&self) {
        for _ in 0..TRIES {
            match unlinkat(&self.above, &self.name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(rustix::io::Errno::NOENT) => return,
                Err(_) => drop(rustix::event::poll(&mut [], Some(&PAUSE))),
            }
        }
    }

    fn open(&self, file: &str, how: OFlags) -> Option<File> {
        let path = format!("{}/{file}", self.name);
        openat(&self.above, path, how | OFlags::CLOEXEC, Mode::empty()).ok().map(File::from)
    }
}
