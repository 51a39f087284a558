//! What running children use, as the kernel shows it from outside: for people who look. The watch over limits looks
//! from inside, and has only [`told`] from here.
//!
//! Owns: reading `/proc` for a child and everything it started. Must not know: what the child is for.

use std::collections::HashMap;
use std::fmt::Display;
use std::fs;
use std::io;

/// The name under which colibri's program keeps a child; it is no part of what the child uses.
#[cfg(target_os = "linux")]
const KEEPER: &str = super::wire::HELPER_NAME;
#[cfg(not(target_os = "linux"))]
const KEEPER: &str = "colibri-sandbox";

/// What a child and all it started use at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The program's own process, not that of the helper which keeps it.
    pub pid: u32,
    /// Memory that is not a file's, as `limits.memoryMb` counts it.
    pub memory_bytes: u64,
    /// How many processes there are.
    pub processes: usize,
}

/// What each of these children uses, by [`super::Life::pid`]; nothing for one that is gone, or where there is no
/// `/proc`. Everybody is looked at once, however many are asked for.
pub fn usage(children: &[u32]) -> Vec<Option<Usage>> {
    if children.is_empty() {
        return Vec::new();
    }
    let by_parent = by_parent();
    children.iter().map(|child| usage_of(*child, &by_parent)).collect()
}

/// The name of a process, as the kernel has it.
pub fn name_of(pid: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

fn usage_of(child: u32, by_parent: &HashMap<u32, Vec<u32>>) -> Option<Usage> {
    let mut roots = vec![child];
    // The helper and the init below it are colibri's own. No deeper: a program may call itself what it likes.
    for _ in 0..2 {
        if roots.iter().all(|root| is_keeper(*root)) {
            roots =
                roots.iter().flat_map(|root| by_parent.get(root).into_iter().flatten().copied()).collect();
        }
    }
    let pid = roots.iter().copied().min()?;
    let (mut whole, mut next) = (Usage { pid, memory_bytes: 0, processes: 0 }, roots);
    while let Some(process) = next.pop() {
        let Some(status) = told(process, "status", tells_memory) else { continue };
        whole.processes += 1;
        whole.memory_bytes += memory_of(&status);
        next.extend(by_parent.get(&process).into_iter().flatten());
    }
    (whole.processes > 0).then_some(whole)
}

/// A thread may end between being listed and being read; after so many reads none is looked for any longer.
const READS_MAX: usize = 256;

/// What `/proc` tells of a process in one of its files. Of one whose first thread has ended it tells nothing there,
/// though the others live on with all its memory; then it is what one of them tells, if that tells something.
pub(super) fn told(pid: impl Display, file: &str, tells: impl Fn(&str) -> bool) -> Option<String> {
    let first = fs::read_to_string(format!("/proc/{pid}/{file}"));
    if first.as_deref().is_ok_and(&tells) {
        return first.ok();
    }
    let (own, mut reads) = (pid.to_string(), 0);
    while reads < READS_MAX {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
        let others: Vec<_> = threads.filter(|thread| thread.file_name() != *own).collect();
        reads += others.len();
        if others.is_empty() {
            break;
        }
        // Every one, however many there are: all but one of them may be dead.
        for thread in others {
            match fs::read_to_string(thread.path().join(file)) {
                Ok(text) if tells(&text) => return Some(text),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return first.ok(),
                _ => {}
            }
        }
    }
    first.ok()
}

/// Whether a status is that of somebody who has memory.
pub(super) fn tells_memory(status: &str) -> bool {
    status.contains("\nRssAnon:")
}

fn is_keeper(pid: u32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline"))
        .is_ok_and(|line| line.split(|byte| *byte == 0).next() == Some(KEEPER.as_bytes()))
}

fn memory_of(status: &str) -> u64 {
    let kibibytes = status.lines().filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        let counts = ["RssAnon", "RssShmem", "VmSwap"].contains(&name);
        value.trim().trim_end_matches(" kB").parse::<u64>().ok().filter(|_| counts)
    });
    kibibytes.sum::<u64>() * 1024
}

/// Every process under its parent. A name may hold brackets and blanks, so fields are counted after the last one.
fn by_parent() -> HashMap<u32, Vec<u32>> {
    let mut all: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        if let Some(parent) = parent {
            all.entry(parent).or_default().push(pid);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_no_files_counts() {
        let status = "Name:\tsh\nVmRSS:\t 900 kB\nRssAnon:\t 100 kB\nRssFile:\t 800 kB\nRssShmem:\t 4 kB\nVmSwap:\t 2 kB\n";
        assert_eq!(memory_of(status), 106 * 1024);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_very_process_is_found_and_one_that_is_not_there_is_not() {
        let found = usage(&[std::process::id(), u32::MAX]);
        let own = found[0].expect("this process runs");
        assert!(own.pid == std::process::id() && own.memory_bytes > 0 && own.processes >= 1, "{own:?}");
        assert_eq!(found[1], None);
        assert!(name_of(std::process::id()).is_some());
    }
}
