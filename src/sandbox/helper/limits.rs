//! Limits: per process by the kernel, of the whole tree by looking.

use std::io;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::domain::end::End;

use super::super::policy::Limits;
use super::tree::Usage;

/// The watch looks this often when nothing can go wrong soon …
const PACE_SLOWEST: Duration = Duration::from_millis(250);

/// … and this often when something may.
const PACE_FASTEST: Duration = Duration::from_millis(10);

/// No tree takes memory faster than this: two cores that only touch fresh pages. What is left of the
/// limit, divided by this, is how long one may look away.
const GROWTH_BYTES_PER_MS: u64 = 4 << 20;

/// Nor does it grow by more processes than this.
const GROWTH_TASKS_PER_MS: u64 = 4;

/// Sets the limits that the kernel holds for each process by itself.
///
/// Private memory is limited to twice the tree's limit: a runtime may reserve what it never touches, and
/// a single process that takes memory faster than the watch looks stops there.
pub(super) fn set(limits: &Limits, counts_processes: bool) -> io::Result<()> {
    lower(Resource::Core, Some(0))?;
    lower(Resource::Nofile, limits.open_files.map(u64::from))?;
    lower(Resource::Fsize, limits.file_bytes)?;
    lower(Resource::Data, limits.memory_bytes.map(|bytes| bytes.saturating_mul(2)))?;
    if counts_processes {
        lower(Resource::Nproc, limits.processes.map(|count| u64::from(count) + HELPERS))?;
    }
    if let Some(cpu) = limits.cpu {
        let seconds = cpu.as_secs() + u64::from(cpu.subsec_nanos() > 0);
        // The first is a signal that can be caught, the second cannot.
        limit(Resource::Cpu, seconds, seconds + 1)?;
    }
    Ok(())
}

/// The helper and the init count as processes of the same user.
const HELPERS: u64 = 2;

fn lower(resource: Resource, most: Option<u64>) -> io::Result<()> {
    most.map_or(Ok(()), |most| limit(resource, most, most))
}

/// A limit is never raised above what colibri itself was given.
fn limit(resource: Resource, current: u64, maximum: u64) -> io::Result<()> {
    let given = getrlimit(resource).maximum.unwrap_or(u64::MAX);
    let wanted = Rlimit { current: Some(current.min(given)), maximum: Some(maximum.min(given)) };
    Ok(setrlimit(resource, wanted)?)
}

/// Which limit of the tree is broken, if one is.
pub(super) fn broken(limits: &Limits, usage: &Usage) -> Option<End> {
    if limits.memory_bytes.is_some_and(|most| usage.memory_bytes > most) {
        Some(End::Memory)
    } else if limits.processes.is_some_and(|most| usage.tasks > most) {
        Some(End::Processes)
    } else if limits.cpu.is_some_and(|most| usage.cpu > most) {
        Some(End::Cpu)
    } else {
        None
    }
}

/// How long one may look away: as long as the tree needs at the very least to break a limit that nobody
/// else holds. What is lost is what was used after the last look, so where time is lost the next comes soon.
pub(super) fn pace(limits: &Limits, usage: &Usage, is_bounded: bool) -> Duration {
    if usage.loses_cpu {
        return PACE_FASTEST;
    }
    let memory =
        limits.memory_bytes.map(|most| most.saturating_sub(usage.memory_bytes) / GROWTH_BYTES_PER_MS);
    let tasks =
        limits.processes.map(|most| u64::from(most.saturating_sub(usage.tasks)) / GROWTH_TASKS_PER_MS);
    let tasks = tasks.filter(|_| !is_bounded);
    let least = memory.into_iter().chain(tasks).min();
    least.map_or(PACE_SLOWEST, Duration::from_millis).clamp(PACE_FASTEST, PACE_SLOWEST)
}

/// Whether anything of the tree must be watched.
pub(super) fn need_watching(limits: &Limits) -> bool {
    limits.memory_bytes.is_some() || limits.processes.is_some() || limits.cpu.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits { memory_bytes: Some(256 << 20), processes: Some(100), ..Limits::none() }
    }

    #[test]
    fn the_watch_looks_more_often_the_closer_it_gets() {
        let check = |memory_mb: u64, tasks, expected_ms| {
            let usage = Usage { memory_bytes: memory_mb << 20, tasks, ..Usage::default() };
            assert_eq!(pace(&limits(), &usage, false), Duration::from_millis(expected_ms), "{usage:?}");
        };
        check(16, 0, 25);
        check(56, 0, 25);
        check(176, 0, 20);
        check(250, 0, 10);
        check(999, 0, 10);
        check(16, 96, 10);
        assert_eq!(pace(&Limits::none(), &Usage::default(), false), PACE_SLOWEST);
        let losing = Usage { loses_cpu: true, ..Usage::default() };
        assert_eq!(pace(&Limits::none(), &losing, true), PACE_FASTEST);
        let crowded = Usage { memory_bytes: 16 << 20, tasks: 96, ..Usage::default() };
        assert_eq!(pace(&limits(), &crowded, true), Duration::from_millis(60), "the kernel holds the other");
        assert_eq!(
            pace(
                &Limits { processes: None, memory_bytes: Some(8 << 30), ..limits() },
                &Usage::default(),
                false
            ),
            PACE_SLOWEST
        );
    }

    #[test]
    fn a_limit_is_broken_by_more_than_it_allows() {
        let check = |memory_mb: u64, tasks, expected| {
            let usage = Usage { memory_bytes: memory_mb << 20, tasks, ..Usage::default() };
            assert_eq!(broken(&limits(), &usage), expected, "{usage:?}");
        };
        check(256, 100, None);
        check(257, 100, Some(End::Memory));
        check(1, 101, Some(End::Processes));
        let cpu = Limits { cpu: Some(Duration::from_secs(1)), ..Limits::none() };
        let used = Usage { cpu: Duration::from_millis(1001), ..Usage::default() };
        assert_eq!(broken(&cpu, &used), Some(End::Cpu));
    }
}
