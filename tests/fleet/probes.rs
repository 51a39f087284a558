//! Signs of life: what is asked, when, how often, and what no answer comes to.

use std::sync::Arc;
use std::time::Duration;

use colibri::domain::event::News;
use colibri::domain::life::Health;
use colibri::fleet::bus::Subscription;
use colibri::fleet::roster::Member;
use colibri::fleet::supervisor::Probe;
use serde_json::json;
use tokio::time::{Instant, advance};

use super::news::next;
use super::support::{Opens, Scripted, Watched, fleet, member, secs, until};

/// A member that is probed every 30 s, as the configuration has it.
fn probed(server: &Scripted) -> Member {
    let mut probed = member("s", server);
    probed.settings.policy.probe_interval = Some(secs(30));
    probed
}

/// The seconds after `begun` at which it was asked this.
fn seconds(server: &Scripted, method: &str, begun: Instant) -> Vec<u64> {
    server.heard_at(method).iter().map(|at| at.duration_since(begun).as_secs()).collect()
}

/// What its health changes to next.
async fn health(heard: &mut Subscription) -> Health {
    let event = next(heard, "provider.health.changed").await;
    let News::HealthChanged { to, .. } = event.news else { panic!("{event:?}") };
    to
}

/// Time passes, and everything that is due is done.
async fn pass(length: Duration) {
    let end = Instant::now() + length;
    tokio::time::sleep_until(end).await;
}

/// PR-8: a server is asked exactly every 30 s: with `ping` in the older family, `server/discover` in the newer, with
/// `tools/list` where that is configured; none of it makes it anything but healthy, and calls go on meanwhile.
#[tokio::test(start_paused = true)]
async fn a_ready_server_is_probed_every_thirty_seconds() {
    for (is_modern, probe, method) in [
        (false, Probe::Ping, "ping"),
        (true, Probe::Ping, "server/discover"),
        (false, Probe::ListTools, "tools/list"),
        (true, Probe::ListTools, "tools/list"),
    ] {
        let server = Scripted::new(&["a"]);
        server.with(|menu| menu.is_modern = is_modern);
        let mut probed = probed(&server);
        probed.settings.probe = probe;
        let begun = Instant::now();
        let fleet = fleet(vec![probed]);
        fleet.listed(1).await;
        let before = server.heard_at(method).len();
        pass(secs(100)).await;
        fleet.call("s__a").await.expect("it is well");
        assert_eq!(seconds(&server, method, begun)[before..], [30, 60, 90], "{method}, modern: {is_modern}");
        let others = ["ping", "server/discover", "tools/list"];
        for other in others.iter().filter(|other| **other != method) {
            let asked = seconds(&server, other, begun);
            assert!(asked.iter().all(|second| *second == 0), "{other} is not the probe: {asked:?}");
        }
        assert_eq!(server.opened(), 1);
    }
}

/// PR-8: a server that refuses a ping is asked for its tools: it is well if it lists them, and also if it has none to
/// list; an error in place of the list is a failed probe.
#[tokio::test(start_paused = true)]
async fn a_refused_ping_falls_back_to_the_list() {
    let server = Scripted::new(&["a"]);
    server.with(|menu| menu.fails = Some(("ping", Some(-32_601))));
    let begun = Instant::now();
    let fleet = fleet(vec![probed(&server)]);
    fleet.listed(1).await;
    pass(secs(200)).await;
    let expected = [30, 60, 90, 120, 150, 180];
    assert_eq!(seconds(&server, "ping", begun), expected);
    assert_eq!(seconds(&server, "tools/list", begun)[1..], expected);
    assert_eq!(server.opened(), 1, "it is well");

    for (code, is_well) in [(-32_601, true), (-32_603, false)] {
        let server = Scripted::new(&["a"]);
        let mut lists = probed(&server);
        lists.settings.probe = Probe::ListTools;
        let fleet = super::support::fleet(vec![lists]);
        fleet.listed(1).await;
        server.with(|menu| menu.fails = Some(("tools/list", Some(code))));
        pass(secs(89)).await;
        assert_eq!(server.opened(), 1, "two are not enough");
        pass(secs(60)).await;
        assert_eq!(server.opened() == 1, is_well, "three refusals with {code}");
    }
}

/// PR-8, PR-9, SB-8: two probes without an answer change nothing, the third makes the server degraded and starts it
/// again; together with two connects that fail they are five, and it is unavailable; one success and it is healthy.
#[tokio::test(start_paused = true)]
async fn failed_probes_are_counted() {
    let server = Scripted::new(&["a"]);
    let fleet = fleet(vec![probed(&server)]);
    fleet.listed(1).await;
    let (_, mut heard) = fleet.fleet.bus().subscribe();
    let begun = Instant::now();
    server.go_deaf();
    server.plan_all(vec![Opens::Fail(super::refused()); 3]);
    // Each is asked 30 s after the one before was given up, which takes 3 s.
    assert_eq!(health(&mut heard).await, Health::Degraded);
    assert_eq!(begun.elapsed(), secs(33 + 33 + 33));
    assert_eq!(seconds(&server, "ping", begun), [30, 63, 96]);
    assert_eq!(health(&mut heard).await, Health::Unavailable);
    assert_eq!((begun.elapsed(), server.opened()), (secs(99 + 1), 1 + 2), "at once, and a second later");
    assert_eq!(health(&mut heard).await, Health::Healthy);
    assert_eq!((begun.elapsed(), server.opened()), (secs(99 + 1 + 2 + 5), 1 + 4));
    fleet.call("s__a").await.expect("it is well");
}

/// PR-8: one answer forgives what came before: two failed probes, an answer, and two more are not four.
#[tokio::test(start_paused = true)]
async fn one_success_forgives() {
    let server = Scripted::new(&["a"]);
    let fleet = fleet(vec![probed(&server)]);
    fleet.listed(1).await;
    for _ in 0..3 {
        server.with(|menu| menu.fails = Some(("ping", None)));
        pass(secs(2 * 33 + 1)).await;
        server.with(|menu| menu.fails = None);
        pass(secs(30)).await;
    }
    assert_eq!(server.opened(), 1);
    server.with(|menu| menu.fails = Some(("ping", None)));
    pass(secs(3 * 33 + 1)).await;
    assert_eq!(server.opened(), 2, "three in a row are three");
}

/// PR-8: an interval of 0 is no probing at all.
#[tokio::test(start_paused = true)]
async fn no_interval_is_no_probing() {
    let server = Scripted::new(&["a"]);
    let fleet = fleet(vec![member("s", &server)]);
    fleet.listed(1).await;
    server.go_deaf();
    pass(secs(86_400)).await;
    assert_eq!((server.heard_at("ping").len(), server.opened()), (0, 1));
}

/// PR-8, PR-9: twenty calls that run out of time at once make one probe; passed, it restarts nothing; failed, it
/// restarts once. A call on the same connection that has time left is not lost by a probe that passes.
#[tokio::test(start_paused = true)]
async fn concurrent_timeouts_make_one_probe() {
    let server = Scripted::new(&["hang"]);
    let fleet = Arc::new(fleet(vec![member("s", &server)]));
    fleet.listed(1).await;
    let twenty = async |fleet: &Arc<Watched>| {
        let calls = (0..20).map(|_| fleet.call("s__hang"));
        let outcomes = futures_util::future::join_all(calls).await;
        assert!(outcomes.iter().all(|outcome| {
            outcome.as_ref().is_err_and(|failed| failed.error.code() == "PROVIDER_TIMEOUT")
        }));
    };
    let begun = Instant::now();
    let behind = Arc::clone(&fleet);
    let late = tokio::spawn(async move {
        tokio::time::sleep_until(begun + secs(29)).await;
        behind.call("s__hang").await.is_ok()
    });
    twenty(&fleet).await;
    assert_eq!(begun.elapsed(), secs(30), "nobody waited for the probe");
    until(|| server.heard("ping")).await;
    pass(secs(10)).await;
    assert_eq!((server.heard_at("ping").len(), server.opened()), (1, 1));
    for _ in 0..21 {
        // Those that were given up are answered too, which changes nothing.
        server.answer_hung().await;
    }
    assert!(late.await.expect("no panic"), "it was under way all the time");

    server.with(|menu| menu.fails = Some(("ping", None)));
    let begun = Instant::now();
    twenty(&fleet).await;
    assert_eq!(begun.elapsed(), secs(30));
    until(|| server.opened() == 2).await;
    assert_eq!(begun.elapsed().as_secs(), 33, "the probe's own time");
    pass(secs(10)).await;
    assert_eq!((server.heard_at("ping").len(), server.opened()), (2, 2));
}

/// SB-5, PR-9: a connection of one's own is not probed after a call ran out of time: it is ended and opened anew, once.
#[tokio::test(start_paused = true)]
async fn a_connection_of_ones_own_is_opened_anew_after_a_timeout() {
    let server = Scripted::new(&["hang", "a"]);
    let mut alone = member("s", &server);
    alone.terms.shared = false;
    let fleet = fleet(vec![alone]);
    fleet.listed(2).await;
    let begun = Instant::now();
    let calls = futures_util::future::join_all((0..5).map(|_| fleet.call("s__hang"))).await;
    assert!(calls.iter().all(Result::is_err));
    assert_eq!(begun.elapsed(), secs(30));
    until(|| server.opened() == 2).await;
    fleet.call("s__a").await.expect("the new one answers");
    pass(secs(60)).await;
    assert_eq!((server.opened(), server.heard_at("ping").len()), (2, 0));
    assert_eq!(server.opened_at()[1].duration_since(begun), secs(30));
}

/// PR-8: connected is not healthy: that is a server once its tools are listed, and not before.
#[tokio::test(start_paused = true)]
async fn healthy_only_once_its_tools_are_listed() {
    let server = Scripted::new(&["a"]);
    server.with(|menu| menu.fails = Some(("tools/list", None)));
    let fleet = fleet(vec![member("s", &server)]);
    let (_, mut heard) = fleet.fleet.bus().subscribe();
    let begun = Instant::now();
    until(|| server.heard("tools/list")).await;
    fleet.state_is("s", "connecting").await;
    advance(secs(29)).await;
    fleet.state_is("s", "connecting").await;
    server.with(|menu| menu.fails = None);
    assert_eq!(health(&mut heard).await, Health::Degraded, "it is being started");
    assert_eq!(health(&mut heard).await, Health::Healthy);
    assert_eq!(begun.elapsed().as_secs(), 30, "the attempt that never listed anything is over");
    assert_eq!((fleet.names(), server.opened()), (vec!["s__a".to_owned()], 2));
}

/// PR-8, PR-12: a probe and a list that is being read do not disturb each other: the list comes whole, however many probes
/// pass meanwhile. Every probe used to give it up and begin it again, so that a slow one never came.
#[tokio::test(start_paused = true)]
async fn a_list_outlasts_the_probes() {
    let server = Scripted::new(&["a"]);
    let mut patient = probed(&server);
    patient.settings.connect_timeout = secs(600);
    let fleet = fleet(vec![patient]);
    fleet.listed(1).await;
    server.with(|menu| menu.fails = Some(("tools/list", None)));
    server.tell("notifications/tools/list_changed").await;
    until(|| server.heard_at("ping").len() >= 3).await;
    let (id, _) = server.hung().await;
    assert_eq!(server.heard_at("tools/list").len(), 2, "it is asked for once");
    assert!(!server.heard("notifications/cancelled"), "and not taken back");
    let tools = ["a", "b"].map(|name| json!({ "name": name, "inputSchema": { "type": "object" } }));
    server.say(&json!({ "jsonrpc": "2.0", "id": id, "result": { "tools": tools } })).await;
    fleet.listed(2).await;
    assert_eq!(server.opened(), 1);
}
