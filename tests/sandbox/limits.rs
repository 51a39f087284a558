//! Limits hold for the whole tree, and what broke them is told.

use std::time::Duration;

use colibri::domain::end::End;
use colibri::sandbox::policy::Limits;
use colibri::sandbox::{Layer, Policy, start_under};

use tokio::io::AsyncBufReadExt;

use super::support::Villain;

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
    // Many looks long.
    let early = tokio::time::timeout(Duration::from_millis(700), child.life.how_it_ended()).await;
    assert!(early.is_err(), "{early:?}");
    child.life.end().await;
}

/// SB-3: the same without namespaces, where that was allowed.
#[tokio::test]
async fn memory_is_limited_without_namespaces() {
    let villain = Villain::new();
    let missing = [Layer::Namespace];
    let limits = Limits { memory_bytes: Some(128 * MB), ..Limits::default() };
    let policy = Policy {
        limits,
        pretend_missing: missing.into(),
        allow_degraded: missing.into(),
        ..Policy::default()
    };
    let child = villain.start(&["memory", "forks", "100", "4"], &policy);
    assert_eq!(child.life.how_it_ended().await, End::Memory);
    villain.assert_gone();
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
    let missing = [Layer::Namespace];
    let limits = Limits { processes: Some(64), ..Limits::default() };
    let bare =
        Policy { pretend_missing: missing.into(), allow_degraded: missing.into(), ..Policy::default() };
    for policy in [Policy::default(), Policy::strict(), bare] {
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
