//! SIGKILL at random moments: what was answered is on record, and the next start repairs the rest.

use std::collections::BTreeSet;
use std::time::Duration;

use super::support::{Answer, Chance, Place, Ran, ids, rounds, system, tell};

/// Calls on their way at once.
const WIDTH: u64 = 16;

/// The tools that the storm calls. Each runs one call at a time, so each can lose one end.
const TOOLS: usize = 2;

/// SU-3, SU-4, CO-6: whatever was answered before a `kill -9` has its enter record, the log stays
/// whole, and after the next start no call is left running.
#[test]
fn a_storm_that_is_killed_loses_nothing_it_answered() {
    check_kills("admission", |outcome| ["ok", "unknown"].contains(&outcome));
}

/// SU-4: under `strict` the end of every answered call is on record too.
#[test]
fn a_strict_storm_that_is_killed_loses_no_end_it_answered() {
    check_kills("strict", |outcome| outcome == "ok");
}

/// Twenty kills on one ledger, and more ledgers in the long run.
fn check_kills(durability: &str, may_end: impl Fn(&str) -> bool) {
    let mut chance = Chance::new(durability);
    for _ in 0..rounds(1, 10) {
        check_ledger(&Place::new().durability(durability), &mut chance, &may_end);
    }
}

/// `may_end` says how an answered call may stand after the next start.
fn check_ledger(place: &Place, chance: &mut Chance, may_end: impl Fn(&str) -> bool) {
    let (mut answered, mut unknown, mut rounds_with_loss) = (BTreeSet::new(), 0, 0);
    for round in 0..20 {
        let name = format!("round {round}");
        let mut client = place.serve(&name);
        let mut answers = client.storm(WIDTH, chance.below(200));
        // The child runs on meanwhile: it dies wherever it happens to be.
        let moment = Duration::from_micros(chance.below(3000));
        answers.extend(client.answer_within(moment).into_iter().flatten());
        answers.extend(client.kill());
        assert!(answers.iter().all(Answer::is_ok), "{name}: {answers:?}");
        answered.extend(answers.into_iter().map(|answer| answer.call));

        place.recover();
        place.verify();
        let actions = place.actions();
        let missing: Vec<_> = answered.difference(&ids(&actions)).cloned().collect();
        assert!(missing.is_empty(), "{name}: answered, but not on record: {missing:?}");
        for action in &actions {
            let may_be = if answered.contains(&action.call) {
                may_end(&action.outcome)
            } else {
                ["ok", "unknown"].contains(&action.outcome.as_str())
            };
            assert!(may_be, "{name}: {action:?}");
        }
        let of_round = actions.iter().filter(|action| action.client == name && action.outcome == "unknown");
        let lost = of_round.count();
        assert!(lost <= TOOLS, "{name}: {lost} ends are unknown, and only {TOOLS} calls can have been open");
        unknown += lost;
        rounds_with_loss += usize::from(lost > 0);
    }
    tell(format_args!("kills: {} answered, {unknown} unknown in {rounds_with_loss} rounds", answered.len()));
}

/// SU-3: the very first start can be killed at any of its steps; the next one begins as if nothing
/// had been, and asks nobody to accept a loss.
#[test]
fn a_first_start_that_is_killed_is_simply_begun_again() {
    let mut chance = Chance::new("first start");
    system("strace", &["strace", "--version"]);
    let steps =
        ["fsync", "fdatasync", "pwrite64", "write", "ftruncate", "rename", "openat", "mkdir", "flock"];
    let mut hits = 0;
    for _ in 0..rounds(30, 400) {
        let step = steps[chance.below(steps.len() as u64) as usize];
        let when = 1 + chance.below(12);
        let (place, inject) = (Place::new(), format!("inject={step}:signal=KILL:when={when}"));
        let strace = ["strace", "-f", "-o", "/dev/null", "-e", &inject];
        let killed = Ran::of(&mut place.colibri_under(&strace, &["call", "server_ping"]));
        hits += usize::from(killed.code.is_none());
        let again = place.run(&["call", "server_ping"]);
        assert_eq!(again.code, Some(0), "killed at {step} {when}, and then: {again:?}");
        place.verify();
        assert!(place.actions().iter().all(|action| ["ok", "unknown"].contains(&action.outcome.as_str())));
    }
    assert!(hits > 0, "no start was killed: the story tells nothing");
    tell(format_args!("first start: killed {hits} times"));
}

/// SU-11: what a killed process left unsigned is signed by the next one, though nobody calls it. It
/// once stayed unsigned for as long as the next one was idle, and could be rewritten meanwhile.
#[test]
fn an_idle_start_signs_what_was_left() {
    let place = Place::new();
    let mut client = place.serve("killed");
    client.storm(WIDTH, 40);
    client.kill();
    let idle = place.serve("idle");
    let begun = std::time::Instant::now();
    loop {
        let verdict = place.verify();
        if verdict["signed"] == verdict["record_count"] {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{verdict}");
    }
    drop(idle);
}
