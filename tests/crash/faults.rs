//! A disk that fails or is full: nothing is answered that is not on record, calls fail closed and say
//! why, and when the fault is over everything goes on.

use std::fs;
use std::io::Write;

use super::support::{Answer, Chance, Client, Disk, Place, Ran, ids, in_own_mounts, rounds, system, tell};

/// Calls in each story, and how many of them are on their way at once.
const CALLS: u64 = 60;
const WIDTH: u64 = 6;

/// SU-3, SU-4, CO-6: wherever in its life the writer's system call fails, once or from then on, an
/// answered call is on record, a refused one says so, and the next start is clean.
#[test]
fn a_failing_system_call_is_never_a_false_answer() {
    system("strace", &["strace", "--version"]);
    let mut chance = Chance::new("faults");
    let mut matrix = Vec::new();
    for call in ["fsync", "pwrite64", "ftruncate", "fdatasync", "rename", "unlink", "flock"] {
        for error in ["EIO", "ENOSPC"] {
            for when in ["1", "2", "3", "5", "8", "13", "21", "34", "55", "4+", "20+", "50+"] {
                matrix.push(format!("inject={call}:error={error}:when={when}"));
            }
        }
    }
    let (mut told, mut refused, mut answered) = (0, 0, 0);
    for _ in 0..rounds(24, matrix.len() as u64) {
        let inject = matrix.swap_remove(chance.below(matrix.len() as u64) as usize);
        let (ok, failed) = check(&inject);
        told += u64::from(failed > 0);
        refused += failed;
        answered += ok;
    }
    tell(format_args!("faults: {answered} answered, {refused} refused in {told} stories"));
    assert!(told > 0, "no fault was felt: the story tells nothing");
}

/// How many calls were answered well, and how many were refused.
#[track_caller]
fn check(inject: &str) -> (u64, u64) {
    let place = Place::new();
    let strace = ["strace", "-f", "-o", "/dev/null", "-e", inject];
    let mut client = Client::start(place.colibri_under(&strace, &["serve"]), "faulty");
    let mut answers = client.storm(WIDTH, CALLS);
    // The storm leaves some on their way; end of stdin lets them finish.
    let (status, rest, talk) = client.end();
    answers.extend(rest);
    assert!(matches!(status.code(), Some(0 | 9)), "{inject}: {status}: {talk}");
    for answer in answers.iter().filter(|answer| !answer.is_ok()) {
        let (code, message) = answer.error();
        assert_eq!(code, "AUDIT_ENTER_FAILED", "{inject}: {answer:?}");
        assert!(!message.is_empty() && talk.contains("[colibri]"), "{inject}: it says why: {talk}");
    }
    place.recover();
    place.verify();
    let actions = place.actions();
    let on_record = ids(&actions);
    let (ok, failed): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.is_ok());
    let missing: Vec<_> = ok.iter().filter(|answer| !on_record.contains(&answer.call)).collect();
    assert!(missing.is_empty(), "{inject}: answered, but not on record: {missing:?}");
    assert!(actions.iter().all(|action| action.outcome != "running"), "{inject}: {actions:?}");
    // A refused call did not run; if its record reached the disk all the same, nobody claims it did.
    let refused: Vec<_> = failed.iter().map(|answer| &answer.call).collect();
    let ran = actions.iter().filter(|action| refused.contains(&&action.call) && action.outcome == "ok");
    assert_eq!(ran.count(), 0, "{inject}: refused, and yet on record as run");
    (ok.len() as u64, failed.len() as u64)
}

/// CO-6, CO-8: under `strict` with `onExitFailure: fail`, an answer means that the end is on record too.
#[test]
fn a_failing_disk_fails_the_end_of_a_call_too_if_asked_to() {
    system("strace", &["strace", "--version"]);
    let settings = serde_json::json!({ "durability": "strict", "onExitFailure": "fail" });
    let mut ends = 0;
    for when in 3..rounds(15, 19) {
        let place = Place::new().audit(&settings);
        place.recover();
        let inject = format!("inject=fsync:error=EIO:when={when}");
        let strace = ["strace", "-f", "-o", "/dev/null", "-e", &inject];
        let mut client = Client::start(place.colibri_under(&strace, &["serve"]), "faulty");
        let answers: Vec<Answer> = (0..8).map(|_| client.call("server_ping")).collect();
        assert!(client.end().0.success(), "{inject}");
        place.recover();
        place.verify();
        let actions = place.actions();
        for answer in answers {
            let outcome = actions.iter().find(|action| action.call == answer.call);
            let outcome = outcome.map_or("nothing", |action| &action.outcome);
            match (answer.is_ok(), answer.error().0.as_str()) {
                (true, _) => assert_eq!(outcome, "ok", "{inject}: {answer:?}"),
                (false, "AUDIT_EXIT_FAILED") => {
                    ends += 1;
                    assert_eq!(outcome, "unknown", "{inject}: {answer:?}");
                }
                (false, code) => assert_eq!(code, "AUDIT_ENTER_FAILED", "{inject}: {answer:?}"),
            }
        }
    }
    assert!(ends > 0, "no end of a call was hit: the story tells nothing");
}

/// SU-13: a checkpoint that cannot be written does not stop calls; health says it, and is well again
/// once it could be signed.
#[test]
fn a_checkpoint_that_cannot_be_written_degrades_health_only() {
    let place = Place::new();
    place.recover();
    let file = place.paths().checkpoints;
    let inject = "inject=write:error=ENOSPC:when=1..3";
    let strace = ["strace", "-f", "-o", "/dev/null", "-P", file.to_str().unwrap(), "-e", inject];
    let mut client = Client::start(place.colibri_under(&strace, &["serve"]), "unsigned");
    let mut health = |wanted: &str| {
        let mut told = (0..3000).map(|_| client.call("server_health").envelope["data"].take());
        told.find(|health| health["status"] == wanted).unwrap_or_else(|| panic!("never {wanted}"))
    };
    let degraded = health("degraded");
    assert!(degraded["reasons"][0].as_str().unwrap().contains("No space left"), "{degraded}");
    health("ok");
    assert!(client.end().0.success());
    place.verify();
}

/// CO-6, CO-8, SU-13: a disk that is really full. Calls are refused and say so; once there is room, the
/// same process goes on.
#[test]
fn a_full_disk_stops_calls_until_there_is_room() {
    in_own_mounts(concat!(module_path!(), "::a_full_disk_stops_calls_until_there_is_room"), || {
        let disk = Disk::new(16);
        let place = Place::new().with_database(&disk.mount.join("data/colibri.db"));
        let ballast = disk.mount.join("ballast");
        let mut client = place.serve("patient");
        let mut answers = Vec::new();
        for round in 0..rounds(2, 10) {
            assert!(client.call("server_ping").is_ok(), "round {round}");
            fill(&ballast);
            // What is allocated already still takes some.
            let refused = (0..3000).find_map(|_| {
                let answer = client.call("server_ping");
                answers.push(answer.clone());
                (!answer.is_ok()).then_some(answer)
            });
            let (code, message) = refused.expect("a full disk is felt").error();
            assert_eq!(code, "AUDIT_ENTER_FAILED");
            assert!(message.contains("full") || message.contains("No space left"), "{message}");
            let other = place.run(&["call", "server_ping"]);
            assert!(matches!(other.code, Some(0 | 5 | 9)), "a second process fails in words: {other:?}");

            fs::remove_file(&ballast).unwrap();
            let answer = client.call("server_ping");
            assert!(answer.is_ok(), "there is room again: {answer:?}");
            answers.push(answer);
            let health = client.call("server_health").envelope;
            let data = &health["data"];
            assert_eq!(data["ledger"]["writable"], true, "{health}");
            assert_eq!(data["status"], "degraded", "what was not recorded is told: {health}");
            assert!(data["last_audit_error"]["message"].is_string(), "{health}");
        }
        assert!(client.end().0.success());
        place.recover();
        place.verify();
        let on_record = ids(&place.actions());
        for answer in &answers {
            assert_eq!(answer.is_ok(), on_record.contains(&answer.call), "{answer:?}");
        }
        let ran: Ran = place.run(&["doctor"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
    });
}

/// Takes the last byte.
fn fill(path: &std::path::Path) {
    let mut file = fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
    for size in [1 << 20, 1 << 16, 1 << 12, 1 << 8, 1] {
        while file.write_all(&vec![0; size]).is_ok() {}
    }
    let _ = file.sync_all();
}
