//! Memory of System V objects: shared segments, messages and semaphores. It is in no process, and outlives
//! whoever filled it; the namespace that the program has to itself shows all there is.

use std::collections::HashMap;
use std::fs;

use rustix::fs::{MemfdFlags, fstat, major, memfd_create, minor};
use rustix::process::Pid;

use super::super::usage::told;

/// What an object takes beside what is in it: the kernel's own notes, and the inode of a segment.
const OBJECT_BYTES: u64 = 1024;

/// What a message takes beside its text, which the kernel itself does not bound: a queue may hold as many empty
/// ones as it may hold bytes.
const MESSAGE_BYTES: u64 = 64;

/// A semaphore has a line of the processor's cache to itself.
const SEMAPHORE_BYTES: u64 = 64;

/// And each task that wants its changes undone has a note about it.
const UNDO_BYTES: u64 = 2;

/// What all objects hold at one moment.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// Bytes in memory and swap, by the segment's id. What a process has touched counts there too.
    segments: HashMap<u64, u64>,
    /// The rest, which no process can map.
    elsewhere_bytes: u64,
}

/// What is held in this process's namespace, in which there are so many tasks.
pub(super) fn held(tasks: u32) -> Held {
    let rows = |kind: &str| rows(&fs::read_to_string(format!("/proc/sysvipc/{kind}")).unwrap_or_default());
    let (segments, queues, sets) = (rows("shm"), rows("msg"), rows("sem"));
    let objects = segments.len() + queues.len() + sets.len();
    let messages = queues.iter().map(|row| {
        // A text fills at least half of what it was given.
        at(row, 3) * 2 + at(row, 4) * MESSAGE_BYTES
    });
    let semaphores = sets.iter().map(|row| at(row, 3) * (SEMAPHORE_BYTES + UNDO_BYTES * u64::from(tasks)));
    Held {
        elsewhere_bytes: objects as u64 * OBJECT_BYTES + messages.chain(semaphores).sum::<u64>(),
        segments: segments.iter().map(|row| (at(row, 1), at(row, 14) + at(row, 15))).collect(),
    }
}

impl Held {
    /// At least what is held by no process: what one maps is counted here once more.
    pub(super) fn bytes(&self) -> u64 {
        self.elsewhere_bytes + self.segments.values().sum::<u64>()
    }

    /// What is held by none of these processes. It takes longer.
    pub(super) fn exact_bytes(&self, members: &[Pid]) -> u64 {
        if self.segments.is_empty() {
            return self.elsewhere_bytes;
        }
        let mut mapped: HashMap<u64, u64> = HashMap::new();
        if let Some(device) = device_of_segments() {
            for pid in members {
                let maps = told(pid, "smaps", |text| !text.is_empty()).unwrap_or_default();
                add_mapped(&mut mapped, &maps, &device);
            }
        }
        let beyond =
            |(id, held): (&u64, &u64)| held.saturating_sub(mapped.get(id).copied().unwrap_or_default());
        self.elsewhere_bytes + self.segments.iter().map(beyond).sum::<u64>()
    }
}

/// Every line but the first, which names the columns.
fn rows(text: &str) -> Vec<Vec<u64>> {
    let number = |word: &str| word.parse().unwrap_or_default();
    text.lines().skip(1).map(|line| line.split_whitespace().map(number).collect()).collect()
}

fn at(row: &[u64], column: usize) -> u64 {
    row.get(column).copied().unwrap_or_default()
}

/// Where segments lie, as `/proc` writes it: on a device that no file can be made on, so that none can be mapped
/// for one. All memory without a file lies there.
fn device_of_segments() -> Option<String> {
    let device = fstat(memfd_create("colibri", MemfdFlags::CLOEXEC).ok()?).ok()?.st_dev;
    Some(format!("{:02x}:{:02x}", major(device), minor(device)))
}

/// Adds the process's part of what it maps of each segment.
fn add_mapped(mapped: &mut HashMap<u64, u64>, maps: &str, device: &str) {
    let mut segment = None;
    for line in maps.lines() {
        if let Some(part) = line.strip_prefix("Pss:") {
            if let Some(id) = segment {
                let kibibytes = part.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or_default();
                *mapped.entry(id).or_default() += kibibytes * 1024;
            }
        } else if !line.starts_with(|letter: char| letter.is_ascii_uppercase()) {
            segment = segment_of(line, device);
        }
    }
}

/// The segment that an entry of the list of maps is of. Its id is the number of its inode.
fn segment_of(entry: &str, device: &str) -> Option<u64> {
    let mut words = entry.split_whitespace().skip(3);
    let (found, inode, name) = (words.next()?, words.next()?, words.next()?);
    if found == device && name.starts_with("/SYSV") { inode.parse().ok() } else { None }
}
