//! Limits hold for the whole tree, and what broke them is told.

use std::time::Duration;

use colibri::domain::end::End;
use colibri::sandbox::policy::Limits;
use colibri::sandbox::{Child, Layer, Policy, start_under};

use tokio::io::AsyncBufReadExt;

use super::support::Villain;
use super::users::as_nobody;

const MB: u64 = 1 << 20;

fn limited(limits: Limits) -> Policy {
    Policy { limits, ..Policy::default() }
}

/// The most that was resident at once in a tree, as the kernel saw it from outside, while it ran.
async fn peak_of(villain: &Villain, words: &[&str], policy: &Policy) -> (End, u64) {
    let child = villain.start(words, policy);
    let mut peak = 0;
    let mut ended = std::pin::pin!(child.life.how_it_ended());
    loop {
        let pause = Duration::from_millis(1);
        if let Ok(end) = tokio::time::timeout(pause, &mut ended).await {
            return (end, peak);
        }
        peak = peak.max(villain.resident_bytes());
    }
}

/// SB-3, T4 of the abuse list: memory is that of the tree, however it is taken; what goes over is
/// ended for it, and goes over by no more than as much again.
#[tokio::test]
async fn memory_of_the_tree_is_limited() {
    let villain = Villain::new();
    let most = 256 * MB;
    let policy = limited(Limits { memory_bytes: Some(most), ..Limits::default() });
    let kinds: [&[&str]; 4] = [
        &["memory", "malloc", "400"],
        &["memory", "forks", "200", "8"],
        &["memory", "shared", "400"],
        &["memory", "shm", "400"],
    ];
    for words in kinds {
        let (end, peak) = peak_of(&villain, words, &policy).await;
        assert_eq!(end, End::Memory, "{words:?}");
        assert!(peak <= 2 * most, "{words:?}: {} MB of {} MB", peak / MB, most / MB);
        villain.assert_gone();
    }
}

/// SB-3: what forks share with their parent is counted once.
#[tokio::test]
async fn shared_memory_is_counted_once() {
    let villain = Villain::new();
    let policy = limited(Limits { memory_bytes: Some(256 * MB), ..Limits::default() });
    let child = villain.ready(&["memory", "parent", "150", "6"], &policy).await;
    assert!(villain.resident_bytes() > 2 * 256 * MB, "naively it is far more than it may have");
    assert_stays(&child).await;
}

/// It is not ended, for many looks; then it is.
async fn assert_stays(child: &Child) {
    let early = tokio::time::timeout(Duration::from_millis(700), child.life.how_it_ended()).await;
    assert!(early.is_err(), "{early:?}");
    child.life.end().await;
}

/// SB-3: the same without namespaces, where that was allowed.
#[tokio::test]
async fn memory_is_limited_without_namespaces() {
    let villain = Villain::new();
    let limits = Limits { memory_bytes: Some(128 * MB), ..Limits::default() };
    let policy = Policy { limits, ..without_namespaces() };
    let child = villain.start(&["memory", "forks", "100", "4"], &policy);
    assert_eq!(child.life.how_it_ended().await, End::Memory);
    villain.assert_gone();
}

fn without_namespaces() -> Policy {
    let missing = [Layer::Namespace];
    Policy { pretend_missing: missing.into(), allow_degraded: missing.into(), ..Policy::default() }
}

/// SB-3: a process goes on without its first thread, and its memory still counts. The watch once read only what the
/// kernel tells of that thread, for which a dead one holds nothing; nor does it help to pass on from thread to thread.
#[tokio::test]
async fn memory_counts_when_the_first_thread_has_ended() {
    let villain = Villain::new();
    let limits = Limits { memory_bytes: Some(64 * MB), ..Limits::default() };
    for policy in [Policy::default(), Policy::strict(), without_namespaces()] {
        let policy = Policy { limits: limits.clone(), ..policy };
        for kind in ["leaderless", "passed-on"] {
            let child = villain.start(&["memory", kind, "400"], &policy);
            assert_eq!(child.life.how_it_ended().await, End::Memory, "{kind} {:?}", policy.level);
            villain.assert_gone();
        }
    }
}

/// SB-3: whoever looks from outside sees it too.
#[tokio::test]
async fn memory_is_shown_when_the_first_thread_has_ended() {
    let villain = Villain::new();
    let child = villain.ready(&["memory", "leaderless", "40"], &Policy::default()).await;
    let used = colibri::sandbox::usage(&[child.life.pid])[0].expect("it runs");
    assert!(used.memory_bytes >= 40 * MB && used.processes == 1, "{used:?}");
    child.life.end().await;
    villain.assert_gone();
}

/// SB-3: memory of System V objects counts, though it is in no process. It once counted nowhere.
#[tokio::test]
async fn memory_of_system_v_objects_is_limited() {
    let villain = Villain::new();
    let limits = Limits { memory_bytes: Some(64 * MB), ..Limits::default() };
    for policy in [Policy::default(), Policy::strict()] {
        let policy = Policy { limits: limits.clone(), ..policy };
        for kind in ["segments", "messages", "semaphores"] {
            let child = villain.start(&["memory", kind, "200"], &policy);
            assert_eq!(child.life.how_it_ended().await, End::Memory, "{kind} {:?}", policy.level);
            villain.assert_gone();
        }
    }
    if rustix::process::geteuid().is_root() {
        let options = ["--sandbox", "strict", "--memory-mb", "64"];
        let over = as_nobody(&villain, &options, &["memory", "segments", "200"]).output().unwrap();
        assert!(String::from_utf8_lossy(&over.stderr).contains("more memory than it may"), "{over:?}");
    }
}

/// SB-3: a segment that several have mapped is one segment.
#[tokio::test]
async fn a_segment_that_is_mapped_is_counted_once() {
    let villain = Villain::new();
    let limits = Limits { memory_bytes: Some(64 * MB), ..Limits::default() };
    for policy in [Policy::default(), Policy::strict()] {
        let policy = Policy { limits: limits.clone(), ..policy };
        let child = villain.ready(&["memory", "attached", "40", "3"], &policy).await;
        assert_stays(&child).await;
    }
}

/// SB-3: the time of a child whose parent ignores its end counts. The kernel adds it to nobody's, and so it was once
/// used without end.
#[tokio::test]
async fn time_of_children_that_nobody_waits_for_is_limited() {
    let villain = Villain::new();
    let limits = Limits { cpu: Some(Duration::from_secs(1)), ..Limits::default() };
    for policy in [Policy::default(), Policy::strict(), without_namespaces()] {
        let policy = Policy { limits: limits.clone(), ..policy };
        // No child comes near the limit of a single process, and the last less than a tick of the kernel's clock.
        for each_ms in ["300", "30", "8"] {
            let child = villain.start(&["burn", "ignored", each_ms, "10000"], &policy);
            assert_eq!(child.life.how_it_ended().await, End::Cpu, "{each_ms} ms {:?}", policy.level);
            villain.assert_gone();
        }
    }
}

/// SB-3: nobody's time is counted twice, whoever waits for them.
#[tokio::test]
async fn time_of_children_that_are_waited_for_is_counted_once() {
    let villain = Villain::new();
    let limits = Limits { cpu: Some(Duration::from_secs(2)), ..Limits::default() };
    for policy in [Policy::default(), without_namespaces()] {
        let policy = Policy { limits: limits.clone(), ..policy };
        for words in [["waited", "200"], ["waited", "30"], ["orphans", "200"], ["orphans", "30"]] {
            let child = villain.start(&["burn", words[0], words[1], "1200"], &policy);
            assert_eq!(child.life.how_it_ended().await, End::Exited { code: 0 }, "{words:?}");
        }
    }
}

/// T4 of the abuse list: memory that no process maps cannot be seen by the watch; under `strict` it
/// cannot be had.
#[tokio::test]
async fn memory_out_of_sight_is_refused_under_strict() {
    let villain = Villain::new();
    let child = villain.start(&["memory", "memfd", "1"], &Policy::strict());
    let mut said = tokio::io::BufReader::new(child.stdout).lines();
    assert_eq!(said.next_line().await.unwrap().as_deref(), Some("ready"));
    assert_eq!(
        said.next_line().await.unwrap().as_deref(),
        Some("memfd EBADF"),
        "it got no descriptor to write to"
    );
    child.life.end().await;
}

/// SB-3, T1 of the abuse list: a fork bomb ends for what it is.
#[tokio::test]
async fn a_fork_bomb_is_ended() {
    let villain = Villain::new();
    let limits = Limits { processes: Some(64), ..Limits::default() };
    for policy in [Policy::default(), Policy::strict(), without_namespaces()] {
        let policy = Policy { limits: limits.clone(), ..policy };
        // Far beyond the limit, but not without one: the machine is shared.
        let child = villain.start(&["bomb", "2000"], &policy);
        assert_eq!(child.life.how_it_ended().await, End::Processes, "{:?}", policy.level);
        villain.assert_gone();
    }
}

/// SB-3, T6 of the abuse list: a file grows no longer than it may.
#[tokio::test]
async fn a_file_is_limited() {
    let villain = Villain::new();
    let policy = limited(Limits { file_bytes: Some(4 * MB), ..Limits::default() });
    let file = villain.folder.join("large");
    let child = villain.start(&["file", file.to_str().unwrap(), "64"], &policy);
    assert_eq!(child.life.how_it_ended().await, End::FileSize);
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 4 * MB);
}

/// T6 of the abuse list: under `strict` the only place that can be filled is in memory, is bounded in
/// bytes and in files, and is gone with the program.
#[tokio::test]
async fn a_private_folder_is_bounded_and_leaves_nothing() {
    let villain = Villain::new();
    let said = villain.said(&["files", "/tmp", "200000"], &Policy::strict()).await;
    assert_eq!(said, ["last ENOSPC"]);
    assert!(!std::path::Path::new("/tmp/0").exists(), "it was not the machine's own");
    let limits = Limits { memory_bytes: Some(64 * MB), ..Limits::default() };
    let child = villain.start(&["file", "/tmp/large", "512"], &Policy { limits, ..Policy::strict() });
    assert_eq!(child.life.how_it_ended().await, End::Memory);
}

/// SB-3: what each process may have, as it sees it; and no core is dumped.
#[tokio::test]
async fn limits_of_each_process_are_set() {
    use tokio::io::AsyncReadExt;
    let villain = Villain::new();
    let limits = Limits { open_files: Some(99), memory_bytes: Some(64 * MB), ..Limits::default() };
    let spec = colibri::sandbox::Spec {
        program: "cat".into(),
        arguments: vec!["/proc/self/limits".into()],
        ..villain.spec(&[])
    };
    let mut child = start_under(&spec, &limited(limits)).unwrap();
    let mut text = String::new();
    child.stdout.read_to_string(&mut text).await.unwrap();
    let limit = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line[name.len()..].split_whitespace().map(str::to_owned).take(2).collect::<Vec<_>>()
    };
    assert_eq!(limit("Max core file size"), ["0", "0"]);
    assert_eq!(limit("Max open files"), ["99", "99"]);
    assert_eq!(limit("Max data size")[1], (128 * MB).to_string());
}
