//! Everything a child started, as the kernel shows it below `/proc`: how much it uses, and its end.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::event::Timespec;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, wait};
use tokio::time::Instant;

use super::super::usage::{tells_memory, told};

/// A tree that forks without end is killed again and again for this long.
const KILL_WAIT: Duration = Duration::from_secs(3);

/// The kernel needs about as long to end a process.
const KILL_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// What a tree uses at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// Memory that is not a file's. What several share is counted for each of them, so that this is at
    /// least what they hold; [`exact_memory_bytes`] knows better, and takes longer.
    pub(super) memory_bytes: u64,
    /// Processes and threads.
    pub(super) tasks: u32,
    /// Processor time, with that of the dead; the [`Clock`](super::clock::Clock) tells it.
    pub(super) cpu: Duration,
    /// Whether processor time is being lost to the watch.
    pub(super) loses_cpu: bool,
}

/// What these processes hold. One that ends while it is looked at counts nothing.
pub(super) fn usage(members: &[Pid]) -> Usage {
    let mut whole = Usage::default();
    for pid in members {
        if let Some(status) = told(pid, "status", tells_memory) {
            add_status(&mut whole, &status);
        }
    }
    whole
}

fn add_status(whole: &mut Usage, status: &str) {
    for line in status.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        let number = || value.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0);
        match name {
            "RssAnon" | "RssShmem" | "VmSwap" => whole.memory_bytes += number() * 1024,
            "Threads" => whole.tasks += u32::try_from(number()).unwrap_or(u32::MAX),
            _ => {}
        }
    }
}

/// Memory that is not a file's, what several share counted once. A process that cannot be looked into
/// counts as it does for [`usage`].
pub(super) fn exact_memory_bytes(members: &[Pid]) -> u64 {
    let exact = |pid: &Pid| {
        let rollup = told(pid, "smaps_rollup", |text| !text.is_empty());
        rollup.as_deref().and_then(proportional).unwrap_or_else(|| usage(&[*pid]).memory_bytes)
    };
    members.iter().map(exact).sum()
}

/// A process's part of what it maps, nothing on kernels that do not tell it by kind.
fn proportional(rollup: &str) -> Option<u64> {
    let of = |name: &str| {
        let line = rollup.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().trim_end_matches(" kB").parse::<u64>().ok()
    };
    Some((of("Pss_Anon:")? + of("Pss_Shmem:")? + of("SwapPss:").unwrap_or(0)) * 1024)
}

/// The fields after the name, which may itself hold spaces and brackets.
pub(super) fn fields(stat: &str) -> Vec<&str> {
    stat.rsplit_once(')').map_or_else(Vec::new, |(_, rest)| rest.split_whitespace().collect())
}

/// Everybody else in the process namespace of which this is the first.
pub(super) fn everybody_else() -> Vec<Pid> {
    let own = getpid();
    processes().filter(|pid| *pid != own).collect()
}

/// Everybody who descends from this process. Who reads slowly misses some; who kills looks again.
pub(super) fn descendants() -> Vec<Pid> {
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    let mut next = vec![getpid()];
    // Without the kernel's own list of children, everybody is asked for their parent.
    let parents =
        (!Path::new("/proc/self/task").join(getpid().to_string()).join("children").exists()).then(by_parent);
    while let Some(pid) = next.pop() {
        let children = parents
            .as_ref()
            .map_or_else(|| children_of(pid), |all| all.get(&pid).cloned().unwrap_or_default());
        for child in children {
            if seen.insert(child) {
                found.push(child);
                next.push(child);
            }
        }
    }
    found
}

/// The children of every thread of a process.
fn children_of(pid: Pid) -> Vec<Pid> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let parse = |text: &str| text.parse().ok().and_then(Pid::from_raw);
    lists.flat_map(|list| list.split_whitespace().filter_map(parse).collect::<Vec<_>>()).collect()
}

fn by_parent() -> HashMap<Pid, Vec<Pid>> {
    let mut children: HashMap<Pid, Vec<Pid>> = HashMap::new();
    for pid in processes() {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent = fields(&stat).get(1).and_then(|text| text.parse().ok()).and_then(Pid::from_raw);
        if let Some(parent) = parent {
            children.entry(parent).or_default().push(pid);
        }
    }
    children
}

/// Kills and reaps all that descends from this process, until nobody does.
pub(super) fn kill_descendants() {
    let begun = Instant::now();
    let mut killed = Vec::new();
    loop {
        reap(|_, _| {});
        let left = descendants();
        if left.is_empty() || begun.elapsed() > KILL_WAIT {
            return;
        }
        for pid in &left {
            // Dead already is what was wanted.
            let _ = kill_process(*pid, Signal::KILL);
        }
        // Who is new may fork; who was killed before needs a moment to die.
        if left == killed {
            let _ = rustix::event::poll(&mut [], Some(&KILL_PAUSE));
        }
        killed = left;
    }
}

/// Takes in everybody who has ended.
pub(super) fn reap(mut each: impl FnMut(Pid, i32)) {
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        each(pid, status.as_raw());
    }
}

fn processes() -> impl Iterator<Item = Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_added_up() {
        let mut whole = Usage { memory_bytes: 1024, tasks: 1, ..Usage::default() };
        add_status(
            &mut whole,
            "Name:\tx: 9 kB\nRssAnon:\t      12 kB\nRssFile:\t 99 kB\nRssShmem:\t4 kB\nThreads:\t3\n",
        );
        assert_eq!(whole, Usage { memory_bytes: 17 * 1024, tasks: 4, ..Usage::default() });
    }

    #[test]
    fn a_part_is_read() {
        let rollup = "0-1 ---p 0 0 0 [rollup]\nPss:  99 kB\nPss_Anon:  10 kB\nPss_File: 80 kB\nPss_Shmem:  4 kB\nSwapPss: 2 kB\n";
        assert_eq!(proportional(rollup), Some(16 * 1024));
        assert_eq!(proportional("Pss: 99 kB\n"), None);
    }

    #[test]
    fn a_name_cannot_forge_fields() {
        let stat = "7 (a) R 1 (b)) S 3 7 7 0 -1 0 0 0 0 0 100 50 25 25 20 0 1";
        assert_eq!(fields(stat)[1], "3");
    }
}
