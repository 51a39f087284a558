//! Every end has its word: what a program did, what was done to it, and what never ran.

use std::time::Duration;

use colibri::domain::end::End;
use colibri::sandbox::policy::Limits;
use colibri::sandbox::{Layer, Policy, Spec, start_under};
use tokio::io::AsyncReadExt;

use super::support::{PATIENCE, Villain};

fn limited(limits: Limits) -> Policy {
    Policy { limits, ..Policy::default() }
}

/// A shell script, under a policy.
fn script(text: &str) -> Spec {
    Spec {
        program: "sh".into(),
        arguments: vec!["-c".into(), text.into()],
        environment: vec![("PATH".into(), "/usr/bin:/bin".into())],
        directory: Some("/".into()),
    }
}

/// SB-5: a program's own end is told as it was, with its last words.
#[tokio::test]
async fn a_program_ends_by_itself() {
    let villain = Villain::new();
    for policy in [Policy::default(), Policy::strict(), Policy::off()] {
        let child = start_under(&script("echo no licence >&2; exit 3"), &policy).unwrap();
        assert_eq!(child.life.how_it_ended().await, End::Exited { code: 3 });
        assert_eq!(child.life.ended().await.code(), Some(3));
        assert_eq!(child.life.last_words(), "no licence\n");

        let child = villain.ready(&["crash"], &policy).await;
        assert_eq!(child.life.how_it_ended().await, End::Crashed { signal: 11 });
        assert!(child.life.ended().await.code().is_none());
    }
}

/// SB-5, T5 of the abuse list: a program that spins, sleeps, stops itself or ignores TERM ends at its
/// deadline, for that reason, and the next one starts.
#[tokio::test]
async fn a_deadline_ends_whatever_is_done_about_it() {
    let villain = Villain::new();
    let policy = limited(Limits { wall: Some(Duration::from_millis(300)), ..Limits::default() });
    for words in [&["spin"][..], &["sleep"], &["stop"], &["deaf"]] {
        let child = villain.start(words, &policy);
        let end = tokio::time::timeout(PATIENCE, child.life.how_it_ended()).await.expect("it ends");
        assert_eq!(end, End::Wall, "{words:?}");
        villain.assert_gone();
    }
}

/// SB-3: processor time is counted for the whole tree, also of those who ignore the signal for it.
#[tokio::test]
async fn processor_time_is_limited() {
    let villain = Villain::new();
    let policy = limited(Limits { cpu: Some(Duration::from_secs(1)), ..Limits::default() });
    let child = villain.ready(&["spin"], &policy).await;
    assert_eq!(child.life.how_it_ended().await, End::Cpu, "alone");
    // Four together, none of which reaches the limit alone.
    let spin = format!("for i in 1 2 3 4; do {} spin & done; wait", villain.program().display());
    let child = start_under(&script(&spin), &policy).unwrap();
    assert_eq!(child.life.how_it_ended().await, End::Cpu, "four together");
    villain.assert_gone();
}

/// SB-5: whoever ends a program says why, and that is what is told.
#[tokio::test]
async fn the_one_who_ends_it_gives_the_reason() {
    let villain = Villain::new();
    for policy in [Policy::default(), Policy::off()] {
        let child = villain.ready(&["sleep"], &policy).await;
        child.life.end_because(End::Output).await;
        assert_eq!(child.life.how_it_ended().await, End::Output);
        let child = villain.ready(&["sleep"], &policy).await;
        child.life.end().await;
        assert_eq!(child.life.how_it_ended().await, End::Asked);
    }
}

/// T7 of the abuse list: a flood of stderr is read and forgotten; a flood of stdout waits to be read.
#[tokio::test]
async fn a_flood_fills_nothing() {
    let villain = Villain::new();
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap().to_owned();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    let loud = villain.ready(&["flood", "2"], &Policy::default()).await;
    let mut waiting = villain.ready(&["flood", "1"], &Policy::default()).await;
    let before = resident();
    let mut read = 0;
    let mut buffer = vec![0; 1 << 16];
    while read < 256 << 20 {
        read += waiting.stdout.read(&mut buffer).await.unwrap();
    }
    assert!(resident() < before + (16 << 10), "{} kB before, {} kB after", before, resident());
    assert_eq!(loud.life.last_words().len(), colibri::sandbox::STDERR_TAIL_BYTES_MAX);
    tokio::join!(loud.life.end(), waiting.life.end_because(End::Output));
    assert_eq!(waiting.life.how_it_ended().await, End::Output);
    villain.assert_gone();
}

/// T8 of the abuse list: a program that never reads its stdin does not keep it from being ended.
#[tokio::test]
async fn a_program_that_does_not_read_can_be_ended() {
    use tokio::io::AsyncWriteExt;
    let villain = Villain::new();
    let mut child = villain.ready(&["deaf"], &Policy::default()).await;
    let full =
        tokio::time::timeout(Duration::from_millis(200), child.stdin.write_all(&vec![b'x'; 1 << 20])).await;
    assert!(full.is_err(), "the pipe is full, and the writer waits");
    tokio::time::timeout(PATIENCE, child.life.end()).await.expect("it ends");
    villain.assert_gone();
}

/// T14 of the abuse list: what cannot be executed is told, at once where it can be seen from here.
#[tokio::test]
async fn what_cannot_be_executed_is_told() {
    let villain = Villain::new();
    let spec = |program: &str| Spec { program: program.into(), ..villain.spec(&[]) };
    let error = start_under(&spec("no-such-program-here"), &Policy::default()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    let plain = villain.folder.join("plain");
    std::fs::write(&plain, "no program").unwrap();
    let error = start_under(&spec(plain.to_str().unwrap()), &Policy::default()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    // Executable, but by a program that is not there.
    let strange = villain.folder.join("strange");
    std::fs::write(&strange, "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(&strange, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for policy in [Policy::default(), Policy::strict(), Policy::off()] {
        let child = start_under(&spec(strange.to_str().unwrap()), &policy).unwrap();
        let end = child.life.how_it_ended().await;
        assert!(matches!(end, End::NotStarted { .. }), "{end}");
        assert!(child.life.started().await.is_none());
        assert!(child.life.last_words().contains("could not be started"), "{}", child.life.last_words());
    }
    let lost = Spec { directory: Some(villain.folder.join("nowhere")), ..villain.spec(&["sleep"]) };
    let child = start_under(&lost, &Policy::default()).unwrap();
    let end = child.life.how_it_ended().await;
    assert!(matches!(end, End::NotStarted { .. }), "{end}");
}

/// A program that runs says so, and without which layers.
#[tokio::test]
async fn a_running_program_is_known_to_run() {
    let villain = Villain::new();
    let child = villain.start(&["sleep"], &Policy::default());
    assert_eq!(child.life.started().await, Some([].into()));
    child.life.end().await;
    let missing = [Layer::Namespace];
    let policy =
        Policy { pretend_missing: missing.into(), allow_degraded: missing.into(), ..Policy::default() };
    let child = villain.start(&["sleep"], &policy);
    assert_eq!(child.life.started().await, Some(missing.into()));
    child.life.end().await;
}
