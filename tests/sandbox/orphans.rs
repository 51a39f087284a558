//! Nothing is left behind, however the program behaves and however colibri ends.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use colibri::domain::end::End;
use colibri::sandbox::policy::Limits;
use colibri::sandbox::{Layer, Policy};

use super::support::{PATIENCE, Villain, assert_no_groups, groups_of, rounds, wait_until};

/// Ways to be hard to end. A bomb is bounded, and by less than its limit, so that it is not ended for it.
const STUBBORN: [&[&str]; 5] = [&["daemons", "10"], &["leave", "5"], &["deaf"], &["stop"], &["bomb", "100"]];

/// With every layer there is, without namespaces, and with nothing but the lifeline.
fn policies() -> [Policy; 3] {
    let without = [Layer::Namespace].into();
    let degraded =
        Policy { pretend_missing: Clone::clone(&without), allow_degraded: without, ..Policy::default() };
    [Policy::default(), degraded, Policy::off()]
}

/// SB-6, PR-15: closing ends daemons that left their session, ignore everything or have stopped.
#[tokio::test]
async fn closing_leaves_nobody_behind() {
    let mut all = tokio::task::JoinSet::new();
    for policy in policies() {
        for words in STUBBORN {
            let policy = policy.clone();
            all.spawn(async move {
                let villain = Villain::new();
                let child = villain.ready(words, &policy).await;
                tokio::time::timeout(PATIENCE, child.life.end()).await.expect("it ends");
                let left = villain.survivors().join("\n");
                assert!(left.is_empty(), "{words:?} under {policy:?}, when closing returned:\n{left}");
            });
        }
    }
    all.join_all().await;
}

/// SB-6: a handle that is dropped ends the tree, without anybody waiting for it.
#[tokio::test]
async fn dropping_leaves_nobody_behind() {
    let villain = Villain::new();
    for policy in policies() {
        for words in STUBBORN {
            let child = villain.ready(words, &policy).await;
            let life = child.life.clone();
            drop(child);
            let mut ended = std::pin::pin!(life.how_it_ended());
            // Still held by `life`: it runs, or left by itself.
            let early = tokio::time::timeout(Duration::from_millis(20), &mut ended).await;
            assert!(matches!(early, Err(_) | Ok(End::Exited { code: 0 })), "{words:?}: {early:?}");
        }
        // Every handle is gone; the tasks that kept the trees end them now.
        let gone = async {
            while !villain.survivors().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), gone).await.expect("dropped trees end");
    }
}

/// SB-6: a runtime that stops takes every tree with it, and every control group.
#[test]
fn a_runtime_that_stops_leaves_nobody_behind() {
    let villain = Villain::new();
    for policy in policies() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let children: Vec<_> =
            STUBBORN.iter().map(|words| runtime.block_on(villain.ready(words, &policy))).collect();
        runtime.shutdown_background();
        villain.assert_gone();
        assert_no_groups(std::process::id());
        drop(children);
    }
}

/// SB-6: colibri is killed at any moment, in any way; one second later nobody is left, and no control group
/// in any hierarchy. The trees were starting, running or ending just then.
#[test]
fn however_colibri_ends_nobody_is_left() {
    let villain = Villain::new();
    let seed = std::process::id() as usize;
    println!("seed {seed}");
    let signals = ["KILL", "TERM", "INT", "HUP", "KILL"];
    let options: [&[&str]; 4] = [
        &[],
        &["--sandbox", "off"],
        &["--network", "example.com"],
        &["--pretend-missing", "namespace", "--allow-degraded", "namespace"],
    ];
    let mut killed = Vec::new();
    for round in 0..rounds() {
        let words = STUBBORN[(seed + round) % STUBBORN.len()];
        let options = options[(seed + round / 2) % options.len()];
        let mut colibri = villain
            .run(options, words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let moment = Duration::from_micros(((seed * 7919 + round * 104_729) % 60_000) as u64);
        if round % 2 == 0 {
            let mut line = String::new();
            BufReader::new(colibri.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
            assert_eq!(line, "ready\n", "round {round}: {words:?}");
        } else {
            wait_until(moment, || false);
        }
        signal(colibri.id(), signals[round % signals.len()]);
        colibri.wait().unwrap();
        villain.assert_gone();
        killed.push(colibri.id());
    }
    // One that was killed between making a group and starting who would remove it leaves it to the next.
    assert!(villain.run(&[], &["leave"]).output().unwrap().status.success());
    killed.into_iter().for_each(assert_no_groups);
}

/// SB-6: twenty trees at once, and colibri is killed.
#[test]
fn twenty_trees_die_with_colibri() {
    let villain = Villain::new();
    let mut colibris: Vec<_> = (0..20)
        .map(|_| {
            let mut command = villain.run(&[], &["daemons", "6"]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
        })
        .collect();
    for colibri in &mut colibris {
        let mut line = String::new();
        BufReader::new(colibri.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
    }
    // The program and six daemons each, the init and the helper.
    assert!(villain.survivors().len() >= 20 * 9, "all of them run");
    for colibri in &colibris {
        signal(colibri.id(), "KILL");
    }
    villain.assert_gone();
    for mut colibri in colibris {
        colibri.wait().unwrap();
        assert_no_groups(colibri.id());
    }
}

/// SB-6: what keeps a tree is killed from outside, the init or the helper; the tree goes, and that is told.
#[tokio::test]
async fn a_killed_keeper_takes_the_tree_with_it() {
    let villain = Villain::new();
    for policy in policies() {
        for keeper in ["helper", "init"] {
            let child = villain.ready(&["daemons", "5"], &policy).await;
            let pid = if keeper == "helper" { child.life.pid } else { child_of(child.life.pid) };
            signal(pid, "KILL");
            let end = tokio::time::timeout(PATIENCE, child.life.how_it_ended()).await.expect("it is told");
            assert_eq!(end, End::Lost, "{keeper} under {:?}", policy.level);
            // Without a namespace the helper's death is noticed by the init, which then kills.
            villain.assert_gone();
        }
    }
}

/// SB-6: what keeps a tree is stopped, from outside or, where there is no namespace, by the program: it watches no
/// more, so the tree goes, and that is told. A stopped init once kept everything alive, whatever became of colibri.
#[tokio::test]
async fn a_stopped_init_takes_the_tree_with_it() {
    let villain = Villain::new();
    let ways = policies().into_iter().map(|policy| (policy, "daemons", "5"));
    let ways = ways.chain(policies().into_iter().skip(1).map(|policy| (policy, "hold", "init")));
    for (policy, verb, word) in ways {
        let child = villain.ready(&[verb, word], &policy).await;
        if verb == "daemons" {
            signal(child_of(child.life.pid), "STOP");
        }
        let end = tokio::time::timeout(PATIENCE, child.life.how_it_ended()).await.expect("it is told");
        assert_eq!(end, End::Lost, "{verb} under {:?}", policy.level);
        villain.assert_gone();
    }
}

/// SB-6: a program stops the helper, or both who keep it; then colibri is killed. Its death lets the helper go on, and
/// the helper ends everything.
#[test]
fn stopped_keepers_go_on_when_colibri_is_gone() {
    let villain = Villain::new();
    let degraded = ["--pretend-missing", "namespace", "--allow-degraded", "namespace"];
    for options in [&["--sandbox", "off"][..], &degraded] {
        for who in ["helper", "both"] {
            let mut command = villain.run(options, &["hold", who]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
            let mut colibri = command.spawn().unwrap();
            let mut line = String::new();
            BufReader::new(colibri.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
            assert_eq!(line, "ready\n");
            let helper = child_of(colibri.id());
            assert!(wait_until(PATIENCE, || is_stopped(helper)), "the helper was stopped");
            let init = child_of(helper);
            assert!(who == "helper" || wait_until(PATIENCE, || is_stopped(init)), "the init was stopped");
            signal(colibri.id(), "KILL");
            colibri.wait().unwrap();
            villain.assert_gone();
        }
    }
}

/// SB-6: an init that is held in a way that nobody is told of does not outlive colibri for long: the helper watches
/// the line too. Tracing is such a way, and root's alone.
#[test]
fn a_held_init_goes_soon_after_colibri() {
    let villain = Villain::new();
    let mut command = villain.run(&["--sandbox", "off"], &["hold", "trace"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut colibri = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(colibri.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let is_root = rustix::process::geteuid().is_root();
    assert_eq!(line, if is_root { "trace ok\n" } else { "trace EPERM\n" });
    signal(colibri.id(), "KILL");
    colibri.wait().unwrap();
    wait_until(Duration::from_secs(10), || villain.survivors().is_empty());
    villain.assert_gone();
}

/// SB-6: both who keep a tree are stopped, and the helper is killed, as colibri does if it takes too long: then the
/// init goes on, and ends everything.
#[tokio::test]
async fn a_stopped_init_goes_on_when_the_helper_is_killed() {
    let villain = Villain::new();
    for policy in policies().into_iter().skip(1) {
        let child = villain.ready(&["hold", "both"], &policy).await;
        let init = child_of(child.life.pid);
        assert!(wait_until(PATIENCE, || is_stopped(child.life.pid) && is_stopped(init)), "both were stopped");
        signal(child.life.pid, "KILL");
        villain.assert_gone();
    }
}

/// PR-15: a program stops the helper and leaves; its end is not held up until colibri loses patience with the helper.
#[tokio::test]
async fn a_stopped_helper_holds_up_no_end() {
    let villain = Villain::new();
    for policy in policies().into_iter().skip(1) {
        let child = villain.ready(&["hold", "helper", "leave"], &policy).await;
        let end = tokio::time::timeout(Duration::from_secs(4), child.life.how_it_ended()).await;
        assert_eq!(end.expect("it is told at once"), End::Exited { code: 0 }, "{:?}", policy.level);
        villain.assert_gone();
    }
}

/// PR-15: whoever starts colibri may ignore the end of children, and that is inherited. The init once never heard that
/// the program had ended, and colibri waited for ever.
#[test]
fn an_end_is_noticed_though_colibris_parent_ignores_them() {
    let villain = Villain::new();
    for level in ["off", "standard", "strict"] {
        let inner = villain.run(&["--sandbox", level], &["leave", "2"]);
        let mut command = Command::new("env");
        command.arg("--ignore-signal=CHLD").arg(inner.get_program()).args(inner.get_args());
        command.env("HOME", &villain.folder).current_dir(&villain.folder).stdout(Stdio::null());
        let mut colibri = command.spawn().unwrap();
        let ended = wait_until(PATIENCE / 3, || colibri.try_wait().unwrap().is_some());
        let _ = colibri.kill();
        assert!(ended && colibri.wait().unwrap().success(), "{level}");
        villain.assert_gone();
    }
}

/// SB-6, PR-15: hundreds of runs leave no zombie, no descriptor and no control group.
#[tokio::test]
async fn many_runs_leave_nothing() {
    let villain = Villain::new();
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    villain.ready(&["leave", "2"], &Policy::default()).await.life.ended().await;
    let before = open();
    for _ in 0..rounds() * 5 {
        let policy = Policy { limits: Limits::default(), ..Policy::default() };
        let child = villain.ready(&["leave", "2"], &policy).await;
        assert_eq!(child.life.how_it_ended().await, End::Exited { code: 0 });
    }
    villain.assert_gone();
    assert!(open() <= before, "{} descriptors, {before} before", open());
    let own = std::process::id();
    assert_eq!(groups_of(own), Vec::<std::path::PathBuf>::new());
    let children = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap();
    assert_eq!(children, "", "no zombie of ours");
}

fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).status().unwrap();
    assert!(sent.success());
}

fn is_stopped(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T')))
}

/// The only child of a process, whichever of its threads started it.
fn child_of(pid: u32) -> u32 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let children: String = threads
        .map(|thread| std::fs::read_to_string(thread.path().join("children")).unwrap_or_default())
        .collect();
    children.trim().parse().unwrap_or_else(|_| panic!("one child of {pid}: {children:?}"))
}
