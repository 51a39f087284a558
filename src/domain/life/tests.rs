//! Lives, one line each.

use super::*;
use crate::domain::clock::Timestamp;
use proptest::prelude::*;

fn at(millis: u64) -> Moment {
    Moment { wall: Timestamp(1_800_000_000_000 + millis), since_boot: Duration::from_millis(millis) }
}

fn exact(restart: Restart) -> Policy {
    Policy { restart: Restart { jitter: 0.0, ..restart }, probe_interval: Some(Duration::from_secs(30)) }
}

fn failure(lasting: Option<Lasting>) -> Failure {
    Failure { reason: "refused".into(), lasting }
}

/// One letter, one event, told of the connection that counts: `w` wanted, `u` unused, `L` listed, `f`
/// connect failed, `b` failed for good, `l` lost, `t` a call timed out, `p` probe passed, `x` probe
/// failed, `r` restart, `q` close, `e` ended, `k` a timer that rings now. `.` waits for the next wake, `m`
/// lets a minute pass, `s` a second.
fn event(letter: char, generation: Generation) -> Event {
    match letter {
        'w' => Event::Wanted,
        'u' => Event::Unused,
        'L' => Event::Listed(generation),
        'f' => Event::ConnectFailed(generation, failure(None)),
        'b' => Event::ConnectFailed(generation, failure(Some(Lasting::CommandNotFound))),
        'l' => Event::Lost(generation, "exit 1".into()),
        't' => Event::CallTimedOut(generation),
        'p' => Event::ProbePassed(generation),
        'x' => Event::ProbeFailed(generation, "no answer".into()),
        'r' => Event::Restart("asked for".into()),
        'q' => Event::Close,
        'e' => Event::Ended(generation),
        'k' => Event::Woke,
        other => panic!("`{other}` is no event"),
    }
}

fn live(letters: &str, policy: &Policy) -> (State, u64) {
    let (mut state, mut now) = (State::new(), 0);
    for letter in letters.chars().filter(|letter| *letter != ' ') {
        let event = match letter {
            'm' | 's' => {
                now += if letter == 'm' { 60_000 } else { 1000 };
                continue;
            }
            '.' => {
                let wake = state.next_wake().expect("something is waited for").since_boot;
                now = now.max(u64::try_from(wake.as_millis()).unwrap());
                Event::Woke
            }
            letter => event(letter, state.generation),
        };
        state = state.on(event, at(now), policy, 0.0);
    }
    (state, now)
}

/// Where a life leads, how well the server is then, and when to look again.
#[track_caller]
fn check_with(policy: &Policy, letters: &str, expected: &str) {
    let (state, now) = live(letters, policy);
    let wake = state
        .next_wake()
        .map_or(String::new(), |at| format!(" {} ms", at.since_boot.as_millis() - u128::from(now)));
    assert_eq!(format!("{} {}{wake}", state.status(), state.health()), expected, "{letters}");
}

/// PR-9: the exact delays of `default`, after a loss and at a first start.
#[test]
fn restarts_by_default() {
    let check =
        |letters: &str, expected: &str| check_with(&exact(Restart::preset_default()), letters, expected);
    check("", "idle unavailable");
    check("w", "connecting degraded");
    check("wL", "ready healthy 30000 ms");
    check("wLl", "restarting degraded"); // At once.
    check("wLlf", "backoff degraded 1000 ms");
    check("wLlf.", "restarting degraded");
    check("wLlf.f", "backoff degraded 2000 ms");
    check("wLlf.f.f", "backoff degraded 5000 ms");
    check("wLlf.f.f.f", "backoff degraded 10000 ms");
    check("wLlf.f.f.f.f", "backoff unavailable 30000 ms"); // The fifth connect that failed.
    check("wLlf.f.f.f.f.", "restarting unavailable");
    check("wLlf.f.f.f.f.f", "backoff unavailable 60000 ms");
    check("wLlf.f.f.f.f.f.f.f.f.f.f.f", "backoff unavailable 60000 ms"); // For ever.
    check("wLlf.f.f.f.f.f.f.L", "ready healthy 30000 ms"); // One success is enough.
    check("wf", "connecting degraded"); // A first start repeats by the same table.
    check("wff", "backoff degraded 1000 ms");
    check("wff.f.f.f", "backoff unavailable 10000 ms");
    check("wff.f.f.f.L", "ready healthy 30000 ms");
    check("wl", "connecting degraded"); // It ended before it was connected.
}

/// SB-8: `bounded` waits, doubles, and gives up after ten attempts.
#[test]
fn restarts_within_bounds() {
    let check =
        |letters: &str, expected: &str| check_with(&exact(Restart::preset_bounded()), letters, expected);
    check("wLl", "backoff degraded 1000 ms");
    check("wLl.f", "backoff degraded 2000 ms");
    check("wLl.f.f.f.f", "backoff degraded 16000 ms");
    check("wLl.f.f.f.f.f", "backoff unavailable 30000 ms");
    check(&format!("wLl{}", ".f".repeat(9)), "backoff unavailable 30000 ms");
    check(&format!("wLl{}", ".f".repeat(10)), "exhausted unavailable");
    check(&format!("wLl{}wukmt", ".f".repeat(10)), "exhausted unavailable"); // Nothing wakes it,
    check(&format!("wLl{}r", ".f".repeat(10)), "restarting degraded"); // but a person,
    check(&format!("wLl{}rf", ".f".repeat(10)), "backoff degraded 1000 ms"); // with a clean record.
    check(&format!("wf{}", ".f".repeat(10)), "exhausted unavailable"); // A first connect and ten attempts.
    check(&format!("wL{}l", "l.L".repeat(10)), "exhausted unavailable"); // Coming up is not staying up.
}

/// PR-9: a stable minute, and no less, forgives the past.
#[test]
fn a_stable_minute_resets_the_counter() {
    let check =
        |letters: &str, expected: &str| check_with(&exact(Restart::preset_default()), letters, expected);
    check("wLlL", "ready healthy 30000 ms");
    check("wLlLl", "backoff degraded 1000 ms"); // The second loss in a minute.
    check("wLlLl.Ll", "backoff degraded 2000 ms");
    check("wLlLl.L m l", "restarting degraded"); // At once, as the first time.
    check("wLlLl.L m lf", "backoff degraded 1000 ms");
    let almost = "s".repeat(59);
    check(&format!("wLlLl.L {almost} l"), "backoff degraded 2000 ms");
    check("m wLlLl", "backoff degraded 1000 ms"); // The minute counts from being ready.
}

/// PR-8: degraded after three failed periodic probes, which also start it again; healthy after one success.
#[test]
fn periodic_probes() {
    let check =
        |letters: &str, expected: &str| check_with(&exact(Restart::preset_bounded()), letters, expected);
    check("wL.", "probing healthy");
    check("wL.p", "ready healthy 30000 ms");
    check("wL.x", "ready healthy 30000 ms");
    check("wL.x.x", "ready healthy 30000 ms");
    check("wL.x.x.", "probing healthy");
    check("wL.x.x.x", "backoff degraded 1000 ms");
    check("wL.x.x.p.x.x", "ready healthy 30000 ms"); // In a row.
    check("wL.x.x.x.", "restarting degraded");
    check("wL.x.x.x.f", "backoff degraded 2000 ms"); // The fourth check that failed,
    check("wL.x.x.x.f.f", "backoff unavailable 4000 ms"); // and the fifth.
    check("wL.x.x.x.f.f.L", "ready healthy 30000 ms");
    check("wL.x.x.x.L.x.x", "ready healthy 30000 ms"); // A success clears the row.
    let mut never = exact(Restart::default());
    never.probe_interval = None;
    check_with(&never, "wLmmk", "ready healthy");
    check_with(&never, "wLt", "probing healthy"); // Asked after a timeout all the same.
    check_with(&never, "wLtp", "ready healthy");
}

/// PR-9: after a timeout one failed probe is enough; probes coalesce.
#[test]
fn a_timeout_asks_for_a_probe() {
    let check =
        |letters: &str, expected: &str| check_with(&exact(Restart::preset_bounded()), letters, expected);
    check("wLt", "probing healthy");
    check("wLtp", "ready healthy 30000 ms");
    check("wLtx", "backoff degraded 1000 ms");
    check("wLttp", "ready healthy 30000 ms"); // One probe answers for both calls.
    check("wLttpx", "ready healthy 30000 ms");
    check("wL.t", "probing healthy"); // A periodic probe is under way: it answers for the call,
    check("wL.tx", "backoff degraded 1000 ms"); // with all that follows.
    check("wLtl", "backoff degraded 1000 ms");
    check("wtx", "connecting degraded"); // Before it is ready there is nothing to probe.
}

/// PR-9: what no repetition cures waits for a change, and says so.
#[test]
fn a_lasting_failure_is_not_repeated() {
    let policy = exact(Restart::preset_default());
    let check = |letters: &str, expected: &str| check_with(&policy, letters, expected);
    check("wb", "blocked unavailable");
    check("wbwumkt", "blocked unavailable");
    check("wLlb", "blocked unavailable");
    check("wbr", "connecting degraded");
    check("wbrL", "ready healthy 30000 ms");
    check("wLlbr", "restarting degraded");
    let (state, now) = live("wb", &policy);
    let told = "refused; waits for a restart once it is installed, or another configuration";
    assert_eq!(state.trouble(at(now)).as_deref(), Some(told));
    for lasting in [Lasting::BadConfiguration, Lasting::NotAuthorized, Lasting::VersionMismatch] {
        let (state, now) = live("wLl", &policy);
        let failed = Event::ConnectFailed(state.generation, failure(Some(lasting)));
        let state = state.on(failed, at(now), &policy, 0.0);
        assert_eq!((state.status(), state.next_wake()), ("blocked", None));
        assert!(state.trouble(at(now)).unwrap().contains("waits for"));
    }
}

/// PR-9, SB-9: a deliberate close starts nothing and is final; PR-6: an idle one is not.
#[test]
fn closing_is_deliberate() {
    let check =
        |letters: &str, expected: &str| check_with(&exact(Restart::preset_default()), letters, expected);
    for life in ["", "w", "wL", "wL.", "wLlf", "wb", "wLu", "wLuw"] {
        check(&format!("{life}q"), "closing unavailable");
        check(&format!("{life}qwlfLxpkr"), "closing unavailable");
        check(&format!("{life}qe"), "closed unavailable");
        check(&format!("{life}qewLrluq"), "closed unavailable");
    }
    check("wLul", "closing unavailable"); // The end that was asked for is no loss.
    check("wLue", "idle unavailable");
    check("wLuew", "connecting degraded");
    check("wLuw", "closing unavailable"); // Wanted again while it closes:
    check("wLuwe", "connecting degraded"); // it starts when the old one is gone.
    check("wLuwue", "idle unavailable");
    check("wLure", "connecting degraded");
    check("wLlfue", "idle unavailable"); // Nobody waits for it: the attempts end.
    check("u", "idle unavailable");
}

/// PR-9: a person's restart is at once, whatever the delays, and forgets the past.
#[test]
fn a_restart_by_hand() {
    let check =
        |letters: &str, expected: &str| check_with(&exact(Restart::preset_bounded()), letters, expected);
    check("r", "connecting degraded");
    check("wLr", "restarting degraded");
    check("wL.r", "restarting degraded");
    check("wLl.f.f.f.fr", "restarting degraded");
    check("wLl.f.f.f.frf", "backoff degraded 1000 ms");
    check("wr", "connecting degraded");
}

/// PR-9: late timers, and news that fits no question, change nothing.
#[test]
fn idle_news() {
    let check =
        |letters: &str, expected: &str| check_with(&exact(Restart::preset_default()), letters, expected);
    check("Lflxpte", "idle unavailable");
    check("wk", "connecting degraded");
    check("wLkLfpxew", "ready healthy 30000 ms");
    check("wLlfk", "backoff degraded 1000 ms"); // Too early.
    check("wLlfLlxptw", "backoff degraded 1000 ms"); // All of a connection that has ended.
}

/// PR-9: news of an old connection changes nothing, in whatever state the new one is.
#[test]
fn late_news_of_an_old_connection() {
    let policy = exact(Restart::preset_default());
    for life in ["wLl", "wLlL", "wLlL.", "wLlf", "wLlLq", "wLr", "wLlb", "wLuew", "wLuewL"] {
        let (state, now) = live(life, &policy);
        for letter in "Lfblpxte".chars() {
            let late = event(letter, state.generation - 1);
            assert_eq!(state.clone().on(late, at(now), &policy, 0.0), state, "{life}, then an old {letter}");
        }
    }
}

#[test]
fn duties_and_words() {
    let policy = exact(Restart::preset_default());
    let check = |letters: &str, duty: Duty, trouble: Option<&str>| {
        let (state, now) = live(letters, &policy);
        assert_eq!((state.duty(), state.trouble(at(now)).as_deref()), (duty, trouble), "{letters}");
    };
    check("", Duty::Rest, None);
    check("w", Duty::Connect(1), None);
    check("wL", Duty::Serve(1), None);
    check("wL.", Duty::Probe(1), None);
    check("wLl", Duty::Connect(2), Some("exit 1"));
    check("wLlf", Duty::Rest, Some("refused; attempt 2 in 1 s"));
    check("wLlf.", Duty::Connect(3), Some("refused"));
    check("wLu", Duty::Close(1), None);
    check("wLqe", Duty::Rest, None);
    let (state, now) = live("wLl.f", &exact(Restart { max_attempts: Some(1), ..Restart::preset_bounded() }));
    let told = "refused; gave up after 1 attempts: restart it by hand";
    assert_eq!(state.trouble(at(now)).as_deref(), Some(told));
    assert!(!state.is_at_rest() && State::new().is_at_rest());
}

/// SB-8, PR-7: what a call is told that does not wait, or has waited long enough.
#[test]
fn calls_that_arrive() {
    let restarting = "being restarted: exit 1 (for 0 s)";
    for (life, told) in [
        ("", "not started: it is not started yet"),
        ("w", "not started: it is starting (for 0 s)"),
        ("wff s", "not started: refused (for 1 s)"), // Callers wait while its attempts repeat.
        ("wL", ""),
        ("wL.", ""),
        ("wLl", restarting),
        ("wLlLl", restarting), // Nothing has failed yet.
        ("wLlf s", "restarting it has failed: refused (for 1 s)"),
        ("wLlf.", "being restarted: refused (for 1 s)"),
        ("wb", "cannot be started: refused; waits for"),
        ("wLu", "not started: it is not started yet"),
        ("wLq", "being stopped"),
        ("wLqe", "being stopped"),
    ] {
        let (state, now) = live(life, &exact(Restart::preset_default()));
        let refusal = state.refusal(at(now)).map_or(String::new(), |error| error.to_string());
        assert!(refusal.contains(told), "{life}: {refusal}");
        assert_eq!(state.serves(), told.is_empty(), "{life}");
    }
    let once = exact(Restart { max_attempts: Some(1), ..Restart::preset_bounded() });
    for (life, told) in [("wf.f", "init_failed"), ("wLl.f", "mcp_restart_failed")] {
        let (state, now) = live(life, &once);
        assert_eq!(state.refusal(at(now)).unwrap().reason(), Some(told));
    }
}

proptest! {
    /// PR-8, PR-9: whatever happens, in whatever order: generations only grow, only Listed makes a server
    /// healthy, the end is the end, a wake is never in the past, and attempts stay within the policy.
    #[test]
    fn any_life_keeps_the_rules(letters in "[wuLfbltpxrqekms]{0,60}", bounded: bool, dice in 0.0..1.0_f64) {
        let restart = if bounded { Restart::preset_bounded() } else { Restart::preset_default() };
        let policy = Policy { restart, probe_interval: Some(Duration::from_secs(7)) };
        let (mut state, mut now) = (State::new(), 0);
        for letter in letters.chars() {
            if letter == 'm' || letter == 's' {
                now += 1000;
                continue;
            }
            let before = state.clone();
            state = state.on(event(letter, before.generation), at(now), &policy, dice);
            prop_assert!(before.generation <= state.generation && state.generation <= before.generation + 1);
            prop_assert!(before.phase != Phase::Closed || state == before);
            if state.health() == Health::Healthy {
                prop_assert!(before.health() == Health::Healthy || letter == 'L');
            }
            if let Phase::Backoff { until, outage } = &state.phase {
                prop_assert!(before == state || until.since_boot > at(now).since_boot);
                prop_assert!(policy.restart.allows(outage.attempt));
            }
            if let Duty::Connect(generation) = state.duty() {
                prop_assert!(generation > before.generation || before == state);
            }
        }
    }
}
