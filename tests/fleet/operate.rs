//! What a person does to a fleet while calls are under way.

use std::sync::Arc;
use std::time::Duration;

use colibri::domain::face::SessionId;
use colibri::fleet::roster::{Found, Lives, Plan, Start};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::support::{Opens, Scripted, Watched, fleet, identity, member, secs, settings, until};
use super::{NO_PROGRAM, refused};

/// A call that is under way when this returns.
async fn under_way(
    fleet: &Arc<Watched>,
    server: &Scripted,
    name: &'static str,
) -> (tokio::task::JoinHandle<bool>, CancellationToken) {
    let (cancel, behind) = (CancellationToken::new(), Arc::clone(fleet));
    let given_up = cancel.clone();
    let calling = tokio::spawn(async move { behind.call_with(name, given_up).await.is_ok() });
    while server.called() == 0 && !server.heard("tools/call") {
        tokio::task::yield_now().await;
    }
    (calling, cancel)
}

/// PR-12: a server that is turned off offers nothing from then on; the call under way keeps its connection, and when it
/// has ended so has the server. Turned on, it starts.
#[tokio::test(start_paused = true)]
async fn a_server_that_is_turned_off_ends_with_its_last_call() {
    let server = Scripted::new(&["a", "hang"]);
    let fleet = Arc::new(fleet(vec![member("s", &server)]));
    fleet.listed(2).await;
    let (calling, cancel) = under_way(&fleet, &server, "s__hang").await;
    assert_eq!(fleet.fleet.disable("s").expect("it is there").state, "off");
    fleet.listed(0).await;
    fleet.state_is("s", "off").await;
    tokio::time::advance(secs(5)).await;
    assert!(!server.is_ended(), "a call is under way");
    cancel.cancel();
    assert!(!calling.await.expect("no panic"));
    let begun = Instant::now();
    while !server.is_ended() {
        tokio::time::advance(Duration::from_millis(20)).await;
    }
    assert!(begun.elapsed() < secs(1));
    assert_eq!(fleet.fleet.enable("s").await.expect("it is there").state, "ready");
    fleet.listed(2).await;
    assert!(fleet.call("s__a").await.is_ok());
    assert_eq!(server.opened(), 2);
}

/// A call that would be tried again does not wake a server that was turned off meanwhile.
#[tokio::test(start_paused = true)]
async fn a_repeated_call_does_not_wake_what_was_turned_off() {
    let server = Scripted::new(&["b_idempotent"]);
    let fleet = Arc::new(fleet(vec![member("s", &server)]));
    fleet.listed(1).await;
    server.go_deaf();
    let (calling, _cancel) = under_way(&fleet, &server, "s__b_idempotent").await;
    fleet.fleet.disable("s").expect("it is there");
    server.cut();
    assert!(!calling.await.expect("no panic"));
    assert_eq!(server.called(), 0, "nothing was answered, and nothing asked again");
    while !server.is_ended() {
        tokio::time::advance(Duration::from_millis(20)).await;
    }
    tokio::time::advance(secs(600)).await;
    assert!(server.is_ended());
}

/// PR-9: a person does not wait for the next attempt, and can cure what no repetition cures.
#[tokio::test(start_paused = true)]
async fn a_person_tries_at_once() {
    let server = Scripted::new(&["a"]);
    let fleet = fleet(vec![member("s", &server)]);
    fleet.listed(1).await;
    server.plan_all(vec![Opens::Fail(refused()); 5]);
    server.cut();
    fleet.state_is("s", "backoff").await;
    let begun = Instant::now();
    let tested = fleet.fleet.test("s").await.expect("it is there");
    let why = tested.error.expect("it is not well");
    assert!(!tested.well && why.contains("connection refused") && begun.elapsed() < secs(1), "{why}");
    server.plan(Opens::Fail(NO_PROGRAM()));
    fleet.state_is("s", "blocked").await;
    let opened = server.opened();
    let restarted = fleet.fleet.restart("s", "a test").await.expect("it is there");
    assert_eq!((restarted.state, server.opened()), ("ready", opened + 1));
    let tested = fleet.fleet.test("s").await.expect("it is there");
    assert!(tested.well && tested.tools == Some(1) && tested.connect_ms.is_none(), "{tested:?}");
    let unknown = fleet.fleet.restart("x", "a test").await.expect_err("it is not there");
    assert!(unknown.contains("no server `x`"), "{unknown}");
}

/// Two entries that share a connection are turned off one by one.
#[tokio::test(start_paused = true)]
async fn turning_off_one_of_two_leaves_the_connection_to_the_other() {
    let server = Scripted::new(&["a"]);
    let (mut one, mut two) = (member("one", &server), member("two", &server));
    (one.identity, two.identity) = (identity("same"), identity("same"));
    let fleet = fleet(vec![one, two]);
    fleet.listed(2).await;
    fleet.fleet.disable("one").expect("it is there");
    fleet.listed(1).await;
    tokio::time::advance(secs(60)).await;
    assert!(fleet.call("two__a").await.is_ok());
    assert_eq!((server.opened(), fleet.names()), (1, vec!["two__a".to_owned()]));
}

/// PR-6, PR-12: a connection whose members are all turned off is nobody's, and ends; the first that is turned on starts
/// it. So it is when the others go from the configuration instead. It used to stay up, since it was shared.
#[tokio::test(start_paused = true)]
async fn turning_off_both_of_two_ends_the_connection() {
    let server = Scripted::new(&["a"]);
    let same = |name: &str| {
        let mut same = member(name, &server);
        same.identity = identity("same");
        same
    };
    let fleet = fleet(vec![same("one"), same("two")]);
    fleet.listed(2).await;
    for name in ["one", "two"] {
        fleet.fleet.disable(name).expect("it is there");
    }
    until(|| server.is_ended()).await;
    assert_eq!(fleet.fleet.enable("two").await.expect("it is there").state, "ready");
    assert!(fleet.call("two__a").await.is_ok());
    assert_eq!((server.opened(), fleet.names()), (2, vec!["two__a".to_owned()]));
    // Only the one that is turned off is left.
    fleet.fleet.change(Plan { members: vec![same("one")], ..Plan::default() }).await;
    until(|| server.is_ended()).await;
    assert_eq!(fleet.fleet.enable("one").await.expect("it is there").state, "ready");
    fleet.fleet.close().await;
    assert_eq!((server.opened(), server.is_ended()), (3, true));
}

/// PR-9: turning a server on tries it anew, also one that had given up: what was wrong may be mended. It used to stay
/// blocked until it was restarted.
#[tokio::test(start_paused = true)]
async fn turning_on_tries_anew() {
    for start in [Start::Eager, Start::OnUse] {
        let server = Scripted::new(&["a"]);
        let mut member = member("s", &server);
        member.terms.start = start;
        let fleet = fleet(vec![member]);
        let Found::Tool(_) = fleet.fleet.find("s__a").await else { panic!("it is there") };
        server.plan(Opens::Fail(NO_PROGRAM()));
        server.cut();
        fleet.state_is("s", "blocked").await;
        fleet.fleet.disable("s").expect("it is there");
        fleet.state_is("s", "off").await;
        assert_eq!(fleet.fleet.enable("s").await.expect("it is there").state, "ready");
        assert!(fleet.call("s__a").await.is_ok());
        assert_eq!(server.opened(), 3);
    }
}

/// SB-4: what a server keeps for each session ends too when it is turned off, once its calls have; turned on, each
/// session begins anew. It used to live on, without anybody who could reach it.
#[tokio::test(start_paused = true)]
async fn turning_off_ends_the_connections_of_sessions() {
    let (scout, own) = (Scripted::new(&["a"]), Scripted::new(&["a"]));
    let mut member = member("s", &scout);
    let made = own.clone();
    member.terms.lives = Lives::Session(Arc::new(move || settings("s", Box::new(made.clone()))));
    let fleet = fleet(vec![member]);
    fleet.listed(1).await;
    let tool = fleet.tool("s__a");
    let sessions = [1, 2].map(SessionId);
    for session in sessions {
        fleet.call_in(session, &tool, CancellationToken::new()).await.expect("it works");
    }
    assert_eq!((scout.opened(), own.opened()), (1, 1));
    fleet.fleet.disable("s").expect("it is there");
    until(|| scout.is_ended() && own.is_ended()).await;
    fleet.fleet.enable("s").await.expect("it is there");
    for session in sessions {
        fleet.call_in(session, &tool, CancellationToken::new()).await.expect("it works again");
    }
    assert_eq!((scout.opened(), own.opened()), (2, 2));
    fleet.fleet.close().await;
    assert!(scout.is_ended() && own.is_ended());
}
