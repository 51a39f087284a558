//! Twenty defects of the ancestor's servers, and what shows that colibri does not have them.
//!
//! | | the defect | shown by |
//! |---|---|---|
//! | 1 | wrappers leak grandchildren | [`a_restart_takes_the_whole_family`], `bridge::children::closing_ends_the_whole_group` |
//! | 2 | one name, one connection, whatever the configuration | [`one_connection_and_two_filters`], `fleet::changes::a_new_plan_loses_no_call`, `fleet::reload` |
//! | 3 | the first page is the list | `bridge::listing::every_page_is_read_and_every_definition_kept`, `bridge::listing::a_list_without_end_is_given_up` |
//! | 4 | `isError` is success | `fleet::scenarios::the_twelve`, `fleet::children::servers_are_listed_called_and_on_record` |
//! | 5 | results are kept, also of errors and others | [`nothing_is_answered_from_memory`] |
//! | 6 | a restarted server keeps its old catalog | [`a_restart_brings_a_new_catalog`], `fleet::a_changed_list_is_read_again` |
//! | 7 | odd names are cut, and meet | [`odd_names_stay_apart`], `config::servers::names_become_slugs` |
//! | 8 | late news of an old connection restarts the new one | [`the_end_of_an_old_connection_changes_nothing`] |
//! | 9 | a stop leaves attempts running | [`a_stop_stops_every_attempt`], [`who_is_dropped_ends`] |
//! | 10 | the timeout of an entry is not applied; two timers race | [`one_deadline_one_cancel_one_probe`] |
//! | 11 | who ran out of time waits for the probe, in its place | [`who_ran_out_of_time_leaves_at_once`] |
//! | 12 | references count for nothing | `fleet::changes::nobody_uses_it_so_it_rests`, `fleet::real::lives::an_unused_process_rests` |
//! | 13 | queues without end that wake nobody | `fleet::queues::a_queue_has_an_end`, `who_gives_up_makes_room`, `queues_are_shared_overridden_and_resized` |
//! | 14 | what was killed is believed dead | `sandbox::orphans::closing_leaves_nobody_behind`, `sandbox::orphans::many_runs_leave_nothing` |
//! | 15 | a child that does not list is left; its end is not seen | [`a_child_that_does_not_list_is_ended`], [`a_connection_of_ones_own_is_watched_too`] |
//! | 16 | more start at once than may | [`no_more_start_at_once_than_may`] |
//! | 17 | labels without a bound | [`a_failure_has_one_of_few_codes`] |
//! | 18 | first frames are lost; closing waits for a handshake | [`a_handshake_that_hangs_is_not_waited_for`], `bridge::network::sockets` |
//! | 19 | secrets in logs | `fleet::canary`, `operator::secrets::a_secret_is_shown_nowhere`, `bridge::network::trust::no_word_of_ours_repeats_a_secret` |
//! | 20 | all come back at the same moment | [`who_fell_together_comes_back_apart`], `fleet::real::lives::jitter_sets_them_apart` |

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use colibri::domain::filter::Filter;
use colibri::domain::life::Restart;
use colibri::domain::provider::ProviderError;
use colibri::domain::queue::Bounds;
use colibri::fleet::link::stdio::{Children, Stdio};
use colibri::fleet::roster::{Found, Member, Plan};
use colibri::sandbox::{Policy, Spec};
use serde_json::Value;
use tokio::time::{Instant, advance, sleep_until};

use super::children::processes;
use super::refused;
use super::support::{Opens, Scripted, fleet, identity, member, planned, secs, until};

/// Waits on the real clock, with an end.
pub(super) async fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < secs(20), "{what} has not come true");
        tokio::task::yield_now().await;
    }
}

/// A member behind which a shell runs this.
pub(super) fn child(script: &str, mark: &str) -> Member {
    let spec = Spec {
        program: "sh".into(),
        arguments: ["-c", script, mark].map(Into::into).to_vec(),
        environment: vec![("PATH".into(), "/usr/bin:/bin".into())],
        directory: None,
    };
    let opener =
        Stdio { spec, policy: Policy::off(), frame_bytes_max: 4 << 20, children: Children::default() };
    let mut child = member("s", &Scripted::new(&[]));
    child.settings.opener = Box::new(opener);
    child
}

/// The server of a few lines of shell, which keeps nothing of what it hears.
pub(super) fn shell() -> String {
    let keeps = r#"echo "$line" >> "$HOME/heard""#;
    assert!(crate::cli::SERVER.contains(keeps));
    crate::cli::SERVER.replace(keeps, ":")
}

/// 1; PR-9, PR-15: a wrapper's child belongs to the server: a restart ends it, and so does the end of the fleet.
#[tokio::test]
async fn a_restart_takes_the_whole_family() {
    let mark = format!("family-{}", std::process::id());
    let script = format!("sh -c 'sleep 600' {mark} & \n{}", shell());
    let fleet = fleet(vec![child(&script, "wrapper")]);
    fleet.listed(2).await;
    let before = processes(&mark);
    assert_eq!(before.len(), 1, "{before:?}");
    fleet.fleet.restart("s", "a test").await.expect("it is there");
    eventually("the old one is gone and a new one is there", || {
        let now = processes(&mark);
        now.len() == 1 && now != before
    })
    .await;
    fleet.fleet.close().await;
    assert_eq!(processes(&mark), Vec::<PathBuf>::new());
}

/// 2; PR-4, PR-6: two entries with one effective configuration share a connection, and nothing else: each has its own
/// list of tools.
#[tokio::test(start_paused = true)]
async fn one_connection_and_two_filters() {
    let server = Scripted::new(&["a", "b"]);
    let narrowed = |name: &str, denied: &str| {
        let mut narrowed = member(name, &server);
        narrowed.identity = identity("the same");
        narrowed.terms.filter = Filter::new(&["*"], &[denied]).expect("short patterns");
        narrowed
    };
    let fleet = fleet(vec![narrowed("x", "a"), narrowed("y", "b")]);
    fleet.listed(2).await;
    assert_eq!((fleet.names(), server.opened()), (vec!["x__b".to_owned(), "y__a".to_owned()], 1));
    let Found::Refused(refused) = fleet.fleet.find("x__a").await else { panic!("it is denied") };
    assert_eq!(refused.error.code(), "PROVIDER_POLICY_DENIED");
}

/// 5: every call reaches its server, the same one twice too, and also one that failed before.
#[tokio::test(start_paused = true)]
async fn nothing_is_answered_from_memory() {
    let server = Scripted::new(&["same", "internal"]);
    let fleet = fleet(vec![member("s", &server)]);
    fleet.listed(2).await;
    for round in 1..=3 {
        fleet.call("s__same").await.expect("it answers");
        fleet.call("s__internal").await.expect_err("it fails");
        assert_eq!(server.called(), 2 * round);
    }
}

/// 6; PR-12: what a server offers after a restart is what counts: what is gone is not callable, what is new is.
#[tokio::test(start_paused = true)]
async fn a_restart_brings_a_new_catalog() {
    let server = Scripted::new(&["old", "both"]);
    let fleet = fleet(vec![member("s", &server)]);
    fleet.listed(2).await;
    server.offer(&["both", "new", "newer"]);
    server.redefine("both", "another one");
    server.cut();
    fleet.listed(3).await;
    assert_eq!(fleet.names(), ["s__both", "s__new", "s__newer"]);
    let definition = String::from_utf8_lossy(&fleet.tool("s__both").definition).into_owned();
    assert!(definition.contains("another one"), "{definition}");
    let Found::Refused(gone) = fleet.fleet.find("s__old").await else { panic!("it is gone") };
    assert_eq!(gone.error.code(), "PROVIDER_TOOL_NOT_FOUND");
    fleet.call("s__new").await.expect("it is new");
}

/// 7; PR-3: names that differ in one odd character are different tools, and each call reaches the one it names.
#[tokio::test(start_paused = true)]
async fn odd_names_stay_apart() {
    let odd = ["fs.read", "fs.write", "fs/read", "fs read", "fs__read", "fs_read", "fs"];
    let server = Scripted::new(&odd);
    let fleet = fleet(vec![member("s", &server)]);
    fleet.listed(odd.len()).await;
    let mut reached = BTreeSet::new();
    for name in fleet.names() {
        let answer: Value = serde_json::from_slice(&fleet.call(&name).await.expect("it answers")).unwrap();
        reached.insert(answer["content"][0]["text"].as_str().unwrap_or_default().to_owned());
    }
    assert_eq!(reached, odd.map(str::to_owned).into());
}

/// 8; PR-9: the old connection ends after the new one is up, and nothing happens to the new one.
#[tokio::test(start_paused = true)]
async fn the_end_of_an_old_connection_changes_nothing() {
    let server = Scripted::new(&["a"]);
    let fleet = fleet(vec![member("s", &server)]);
    fleet.listed(1).await;
    let old = server.held();
    fleet.fleet.restart("s", "a test").await.expect("it is there");
    assert_eq!(server.opened(), 2);
    // Late frames of it, and then its end.
    for frame in [r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#, "no message at all"] {
        let _ = old.send(frame.into()).await;
    }
    drop(old);
    sleep_until(Instant::now() + secs(3600)).await;
    fleet.call("s__a").await.expect("it is well");
    assert_eq!(server.opened(), 2);
}

/// 9; SB-9, PR-15: whatever a server is doing when the fleet is closed, nothing is tried any more.
#[tokio::test(start_paused = true)]
async fn a_stop_stops_every_attempt() {
    let (hanging, failing, lost) = (Scripted::new(&["a"]), Scripted::new(&["a"]), Scripted::new(&["a"]));
    hanging.plan_all(vec![Opens::Hang; 9]);
    failing.plan_all(vec![Opens::Fail(refused()); 99]);
    let fleet = fleet(vec![member("h", &hanging), member("f", &failing), member("l", &lost)]);
    fleet.listed(1).await;
    lost.plan_all(vec![Opens::Fail(refused()); 99]);
    lost.cut();
    sleep_until(Instant::now() + secs(20)).await;
    fleet.state_is("l", "backoff").await;
    let begun = Instant::now();
    fleet.fleet.close().await;
    assert_eq!(begun.elapsed(), Duration::ZERO, "nobody is waited for");
    let opened = [&hanging, &failing, &lost].map(Scripted::opened);
    sleep_until(begun + secs(86_400)).await;
    assert_eq!([&hanging, &failing, &lost].map(Scripted::opened), opened);
}

/// 9: a fleet that nobody holds any more ends what it started, though nobody closed it.
#[tokio::test(start_paused = true)]
async fn who_is_dropped_ends() {
    let server = Scripted::new(&["a"]);
    let fleet = fleet(vec![member("s", &server)]);
    fleet.listed(1).await;
    drop(fleet);
    until(|| server.is_ended()).await;
    sleep_until(Instant::now() + secs(3600)).await;
    assert_eq!(server.opened(), 1);
}

/// 10; SB-5, PR-11: the timeout that an entry has is the one that counts, to the millisecond; the server is told once, and
/// asked once whether it is well.
#[tokio::test(start_paused = true)]
async fn one_deadline_one_cancel_one_probe() {
    let server = Scripted::new(&["hang"]);
    let mut short = member("s", &server);
    short.terms.timeout = Duration::from_millis(1234);
    let fleet = fleet(vec![short]);
    fleet.listed(1).await;
    let begun = Instant::now();
    let failed = fleet.call("s__hang").await.expect_err("nobody answers");
    assert!(matches!(failed.error, ProviderError::TimedOut { limit, .. } if limit.as_millis() == 1234));
    assert_eq!(begun.elapsed(), Duration::from_millis(1234));
    sleep_until(begun + secs(600)).await;
    let heard = ["notifications/cancelled", "ping"].map(|method| server.heard_at(method).len());
    assert_eq!((heard, server.opened()), ([1, 1], 1));
}

/// 11; SB-5, PR-10: who ran out of time is answered at that moment, and its place is the next one's, though the server
/// does not answer the probe for seconds.
#[tokio::test(start_paused = true)]
async fn who_ran_out_of_time_leaves_at_once() {
    let server = Scripted::new(&["hang"]);
    let mut narrow = member("s", &server);
    (narrow.terms.queue, narrow.settings.probe_timeout) = ("one".into(), secs(25));
    let bounds = Bounds { concurrent: 1, max_waiting: 9, max_wait: secs(60) };
    let queues = [("one".into(), bounds)].into();
    let fleet = Arc::new(planned(Plan { members: vec![narrow], queues, ..Plan::default() }));
    fleet.listed(1).await;
    server.with(|menu| menu.fails = Some(("ping", None)));
    let begun = Instant::now();
    let behind = Arc::clone(&fleet);
    let second = tokio::spawn(async move {
        sleep_until(begun + secs(10)).await;
        behind.call("s__hang").await.is_err()
    });
    fleet.call("s__hang").await.expect_err("nobody answers");
    assert_eq!(begun.elapsed(), secs(30), "the probe takes until 55 s");
    until(|| server.called() == 2).await;
    assert_eq!(begun.elapsed().as_secs(), 30, "the next one has its place");
    assert!(second.await.expect("no panic"));
    assert_eq!(begun.elapsed(), secs(40), "its own deadline, from its own arrival");
}

/// The process group of a process that is still there. One that is being taken away has none, -1.
fn group(process: &Path) -> Option<String> {
    let stat = std::fs::read_to_string(process.join("stat")).ok()?;
    let group = stat.rsplit_once(')')?.1.split_whitespace().nth(2)?;
    (group != "-1").then(|| group.to_owned())
}

/// 15; SB-6: a child that is there and never lists its tools is ended with every attempt: there is never more than one.
#[tokio::test]
async fn a_child_that_does_not_list_is_ended() {
    let mark = format!("listless-{}", std::process::id());
    let folder = tempfile::tempdir().expect("a folder");
    let starts = folder.path().join("starts");
    let refusing = r#"*tools/list*) answer='"error":{"code":-32603,"message":"no list today"}';; *nothing*)"#;
    let script = format!("echo x >> {}\n{}", starts.display(), shell().replace("*tools/list*)", refusing));
    let mut listless = child(&script, &mark);
    listless.terms.shared = false;
    let fleet = fleet(vec![listless]);
    let started = || std::fs::read_to_string(&starts).map_or(0, |text| text.lines().count());
    // The first attempt asks twice, since it may be of either family; the others follow after 0 and 1 s.
    eventually("it is started three times", || {
        // A shell that is about to run another program looks like itself twice, in the same group.
        let groups: BTreeSet<String> = processes(&mark).iter().filter_map(|process| group(process)).collect();
        assert!(groups.len() <= 1, "{groups:?}");
        started() >= 3
    })
    .await;
    fleet.fleet.close().await;
    assert_eq!(processes(&mark), Vec::<PathBuf>::new());
}

/// 15; PR-6, PR-9: the end of a connection that is nobody else's is noticed when it happens, not by the next call.
#[tokio::test(start_paused = true)]
async fn a_connection_of_ones_own_is_watched_too() {
    let server = Scripted::new(&["a"]);
    let mut alone = member("s", &server);
    alone.terms.shared = false;
    let fleet = fleet(vec![alone]);
    fleet.listed(1).await;
    let begun = Instant::now();
    server.cut();
    until(|| server.opened() == 2).await;
    assert!(begun.elapsed() < secs(1), "nobody called");
    assert_eq!(server.called(), 0);
}

/// 16; PR-5: eight start at once and not one more, also when more are added meanwhile.
#[tokio::test(start_paused = true)]
async fn no_more_start_at_once_than_may() {
    let servers: Vec<Scripted> = (0..30).map(|_| Scripted::new(&["a"])).collect();
    for server in &servers {
        server.plan_all(vec![Opens::Hang; 9]);
    }
    let members = |count: usize| -> Vec<Member> {
        servers[..count].iter().enumerate().map(|(n, server)| member(&format!("s{n}"), server)).collect()
    };
    let begun = Instant::now();
    let fleet = fleet(members(20));
    let attempts = |second: u64| -> usize {
        let within = |at: &Instant| at.duration_since(begun).as_secs() == second;
        servers.iter().map(|server| usize::from(server.opened_at().first().is_some_and(within))).sum()
    };
    sleep_until(begun + secs(5)).await;
    assert_eq!(attempts(0), 8);
    fleet.fleet.change(Plan { members: members(30), ..Plan::default() }).await;
    sleep_until(begun + secs(29)).await;
    assert_eq!(servers.iter().filter(|server| server.opened() > 0).count(), 8, "who is added waits too");
    sleep_until(begun + secs(125)).await;
    // An attempt takes 30 s; whoever failed tries again without taking a place of those that have not started.
    assert_eq!([0, 30, 60, 90].map(attempts), [8, 8, 8, 6]);
}

/// 17; SB-11, PR-16: whatever words a server fails with, a failure is counted and told under one of few codes.
#[tokio::test(start_paused = true)]
async fn a_failure_has_one_of_few_codes() {
    let names: Vec<String> = (0..50).map(|number| format!("internal{number}")).collect();
    let server = Scripted::new(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let fleet = fleet(vec![member("s", &server)]);
    fleet.listed(50).await;
    let mut codes = BTreeSet::new();
    for name in fleet.names() {
        codes.insert(fleet.call(&name).await.expect_err("it fails").error.code());
    }
    assert_eq!(codes, ["PROVIDER_EXECUTE_FAILED"].into());
    let report = serde_json::to_value(fleet.fleet.report()).expect("plain values");
    assert_eq!(report[0]["tally"]["failed"], 50);
    assert_eq!(report[0]["tally"].as_object().map(serde_json::Map::len), Some(4), "and nothing by name");
}

/// 18: a handshake that nobody answers is given up at once when the fleet is closed.
#[tokio::test]
async fn a_handshake_that_hangs_is_not_waited_for() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("ws://{}/", silent.local_addr().expect("an address"));
    let endpoint = colibri::fleet::web::Endpoint::new(&url).expect("an address");
    let mut slow = member("s", &Scripted::new(&[]));
    slow.settings.opener = Box::new(colibri::fleet::link::websocket::WebSocket(endpoint));
    let fleet = fleet(vec![slow]);
    let (_held, _) = silent.accept().await.expect("it comes");
    let begun = std::time::Instant::now();
    fleet.fleet.close().await;
    assert!(begun.elapsed() < secs(2), "{:?}", begun.elapsed());
}

/// 20; PR-9: twenty servers that are lost together are tried again apart, and none of them sooner than it is written.
#[tokio::test(start_paused = true)]
async fn who_fell_together_comes_back_apart() {
    let servers: Vec<Scripted> = (0..20).map(|_| Scripted::new(&["a"])).collect();
    let shaken = |(number, server): (usize, &Scripted)| {
        let mut shaken = member(&format!("s{number}"), server);
        shaken.settings.policy.restart = Restart::preset_default();
        shaken
    };
    let fleet = fleet(servers.iter().enumerate().map(shaken).collect());
    fleet.listed(20).await;
    let begun = Instant::now();
    for server in &servers {
        server.plan(Opens::Fail(refused()));
        server.cut();
    }
    advance(Duration::ZERO).await;
    until(|| servers.iter().all(|server| server.opened() == 3)).await;
    let third = servers.iter().map(|server| server.opened_at()[2].duration_since(begun).as_millis());
    let moments: BTreeSet<u128> = third.collect();
    assert!(moments.len() > 10, "{moments:?}");
    assert!(moments.first() >= Some(&1000) && moments.last() <= Some(&1201), "{moments:?}");
}
