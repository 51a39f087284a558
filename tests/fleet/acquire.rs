//! Calls to a server that is not there: who waits, for how long, and what it is told.

use std::sync::Arc;
use std::time::Duration;

use colibri::domain::provider::{Executed, ProviderError, Unavailable};
use colibri::fleet::roster::{Failed, Found, Member, Start, ToolSettings};
use futures_util::future::join_all;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::refused;
use super::support::{Opens, Scripted, fleet, member, secs, until};

/// A server whose tools `t5` and `t20` have so many seconds, and which is lost: it comes back after so many attempts.
fn with_deadlines(server: &Scripted) -> Member {
    let mut with = member("s", server);
    for seconds in [5, 20] {
        let timeout = Some(secs(seconds));
        with.terms.tools.insert(format!("t{seconds}"), ToolSettings { timeout, ..ToolSettings::default() });
    }
    with
}

#[track_caller]
fn unavailable(failed: &Failed) -> (Unavailable, &str, Duration) {
    match &failed.error {
        ProviderError::Unavailable { reason, why, age: Some(age) } => (*reason, why, *age),
        other => panic!("{other:?}"),
    }
}

/// PR-7: fifty callers of a server that nobody has started share one start, and all are served by it.
#[tokio::test(start_paused = true)]
async fn joiners_share_one_start() {
    let server = Scripted::new(&["a"]);
    server.plan_all([Opens::Fail(refused()), Opens::Fail(refused()), Opens::Fail(refused())]);
    let mut lazy = member("s", &server);
    lazy.terms.start = Start::OnUse;
    let fleet = fleet(vec![lazy]);
    let begun = Instant::now();
    let found = join_all((0..50).map(|_| fleet.fleet.find("s__a"))).await;
    assert!(found.iter().all(|found| matches!(found, Found::Tool(_))));
    assert_eq!((server.opened(), begun.elapsed()), (4, secs(1 + 2)), "now, at once, and after 1 and 2 s");
}

/// PR-7: each caller has its own deadline. When the first has passed, whoever comes is told at once, with the reason and
/// its age; who was there already still waits, and is reached by the recovery.
#[tokio::test(start_paused = true)]
async fn the_first_deadline_closes_the_door_and_recovery_opens_it() {
    let server = Scripted::new(&["t5", "t20"]);
    let fleet = fleet(vec![with_deadlines(&server)]);
    fleet.listed(2).await;
    // Tried after 0, 1, 3 and 8 s; the last succeeds.
    server.plan_all(vec![Opens::Fail(refused()); 3]);
    let begun = Instant::now();
    server.cut();
    fleet.state_is("s", "backoff").await;
    let short = async {
        let failed = fleet.call("s__t5").await.expect_err("five seconds are too few");
        let (reason, why, age) = unavailable(&failed);
        assert_eq!((reason, age, begun.elapsed()), (Unavailable::RestartFailed, secs(5), secs(5)));
        assert!(why.contains("connection refused"), "{why}");
    };
    let long = async {
        fleet.call("s__t20").await.expect("it was there when the server came back");
        assert_eq!(begun.elapsed(), secs(8));
    };
    let late = async {
        sleep_until(begun + secs(6)).await;
        for _ in 0..10 {
            let failed = fleet.call("s__t20").await.expect_err("somebody has waited in vain");
            assert_eq!(unavailable(&failed).2, secs(6), "told how long it has been away");
            assert_eq!(begun.elapsed(), secs(6), "and at once");
        }
        let told = fleet.call("s__t20").await.expect_err("still").error.failure("s");
        let details = told.details.expect("details");
        assert_eq!((&details["age_ms"], &details["executed"]), (&6000.into(), &"no".into()), "{details}");
    };
    tokio::join!(short, long, late);
    fleet.call("s__t5").await.expect("it is back for everybody");
    assert_eq!((server.opened(), begun.elapsed()), (1 + 4, secs(8)));
}

/// PR-7, PR-17: the short circuit belongs to one outage: the next one is waited for again. Meanwhile attempts go on in
/// the background, without any caller.
#[tokio::test(start_paused = true)]
async fn the_next_outage_is_waited_for_again() {
    let server = Scripted::new(&["t5", "t20"]);
    let fleet = fleet(vec![with_deadlines(&server)]);
    fleet.listed(2).await;
    for round in 0..2 {
        server.plan_all(vec![Opens::Fail(refused()); 3]);
        let (begun, opened) = (Instant::now(), server.opened());
        server.cut();
        fleet.state_is("s", "backoff").await;
        fleet.call("s__t5").await.expect_err("five seconds are too few");
        assert_eq!(begun.elapsed(), secs(5), "round {round}: it waited its own time");
        fleet.call("s__t20").await.expect_err("at once");
        assert_eq!(begun.elapsed(), secs(5));
        fleet.state_is("s", "ready").await;
        assert_eq!((begun.elapsed(), server.opened() - opened), (secs(8), 4), "nobody asked for it");
        fleet.call("s__t20").await.expect("it is back");
        // A minute of being well forgives the attempts, so that the next outage is like the first.
        sleep_until(Instant::now() + secs(60)).await;
    }
}

/// PR-7, SB-9: who waits when colibri stops is told that it is stopped, at once; and so is who comes after.
#[tokio::test(start_paused = true)]
async fn during_shutdown_nobody_waits() {
    let server = Scripted::new(&["t20"]);
    let fleet = fleet(vec![with_deadlines(&server)]);
    fleet.listed(1).await;
    let tool = fleet.tool("s__t20");
    server.plan_all(vec![Opens::Fail(refused()); 50]);
    let begun = Instant::now();
    server.cut();
    fleet.state_is("s", "backoff").await;
    let stop = async {
        sleep_until(begun + secs(2)).await;
        fleet.fleet.close().await;
    };
    let (waited, ()) = tokio::join!(fleet.call("s__t20"), stop);
    let after = fleet.call_tool(&tool, CancellationToken::new()).await;
    for outcome in [waited, after] {
        let error = outcome.expect_err("it is stopped").error;
        assert_eq!((error.code(), begun.elapsed()), ("PROVIDER_TERMINATED", secs(2)), "{error:?}");
    }
    let opened = server.opened();
    sleep_until(begun + secs(3600)).await;
    assert_eq!(server.opened(), opened, "nothing goes on");
}

/// PR-17, SB-5: a server is lost under load: each of its calls is told at once that it may have had an effect, and none is
/// sent again; those of another server come to their end; and the next calls of the first are served by its next life.
#[tokio::test(start_paused = true)]
async fn a_restart_under_load_costs_the_calls_under_way_and_no_other() {
    let (lost, well) = (Scripted::new(&["hang", "a"]), Scripted::new(&["hang"]));
    let fleet = Arc::new(fleet(vec![member("lost", &lost), member("well", &well)]));
    fleet.listed(3).await;
    let calls = |name: &'static str| {
        let fleet = Arc::clone(&fleet);
        tokio::spawn(async move { join_all((0..50).map(|_| fleet.call(name))).await })
    };
    let (of_lost, of_well) = (calls("lost__hang"), calls("well__hang"));
    until(|| lost.called() == 50 && well.called() == 50).await;
    let begun = Instant::now();
    lost.cut();
    for outcome in of_lost.await.expect("no panic") {
        let error = outcome.expect_err("its connection is gone").error;
        assert_eq!(
            (error.code(), error.executed()),
            ("PROVIDER_UNAVAILABLE", Executed::Unknown),
            "{error:?}"
        );
    }
    let next = join_all((0..50).map(|_| fleet.call("lost__a"))).await;
    assert!(next.iter().all(Result::is_ok), "its next life serves");
    assert!(begun.elapsed() < secs(1), "{:?}", begun.elapsed());
    assert_eq!((lost.opened(), well.opened(), lost.called()), (2, 1, 100), "nothing was sent twice");
    for _ in 0..50 {
        well.answer_hung().await;
    }
    assert!(of_well.await.expect("no panic").iter().all(Result::is_ok));
}

/// PR-5, PR-17: ten thousand tools of one server and one of another are listed, named, found and called.
#[tokio::test(start_paused = true)]
async fn ten_thousand_tools_are_as_good_as_one() {
    let names: Vec<String> = (0..10_000).map(|number| format!("tool_{number}")).collect();
    let many = Scripted::new(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let few = Scripted::new(&["a"]);
    let fleet = fleet(vec![member("many", &many), member("few", &few)]);
    fleet.listed(10_001).await;
    assert!(fleet.names().is_sorted());
    for name in ["many__tool_0", "many__tool_9999", "few__a"] {
        assert!(matches!(fleet.fleet.find(name).await, Found::Tool(_)));
        fleet.call(name).await.expect("it answers");
    }
    let Found::Refused(unknown) = fleet.fleet.find("many__tool_10000").await else { panic!("there is none") };
    assert_eq!(unknown.error.code(), "PROVIDER_TOOL_NOT_FOUND");
}
