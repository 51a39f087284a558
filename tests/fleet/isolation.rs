//! How long a process serves, and whom: for one call, for one session, for one owner. On a paused clock over links
//! in memory; the children of `crowds` are real.

mod crowd;
mod crowds;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use colibri::domain::face::SessionId;
use colibri::domain::provider::{Executed, ProviderError};
use colibri::fleet::roster::{Apart, Lending, Lives, Member, PoolBounds};
use colibri::fleet::terms::Recipe;
use futures_util::future::join_all;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::support::{Opens, Scripted, Watched, fleet, member, secs};
use super::{NO_PROGRAM, refused};
use crowd::Crowd;

const TOOLS: [&str; 6] = ["who", "hang", "crash", "fails", "internal", "big"];

fn bounds(size: usize, max_uses: u32) -> PoolBounds {
    PoolBounds { size, max_age: secs(300), max_uses }
}

/// A server in `call` isolation: what lists its tools, and those that serve its calls.
fn lent(bounds: PoolBounds) -> (Scripted, Crowd, Member) {
    let (scout, crowd) = (Scripted::new(&TOOLS), Crowd::default());
    let mut member = member("s", &scout);
    member.terms.lives = Lives::Call(Lending { bounds, recipe: crowd.recipe(), apart: Vec::new() });
    (scout, crowd, member)
}

/// A fleet with such a server, as soon as its pool is full.
async fn lending(bounds: PoolBounds) -> (Scripted, Crowd, Watched) {
    let (scout, crowd, member) = lent(bounds);
    let fleet = fleet(vec![member]);
    fleet.listed(TOOLS.len()).await;
    crowd.settles_at(bounds.size).await;
    (scout, crowd, fleet)
}

/// Which process answered.
async fn who(fleet: &Watched) -> u64 {
    number(&fleet.call("s__who").await.expect("it answers"))
}

fn number(result: &[u8]) -> u64 {
    let result: serde_json::Value = serde_json::from_slice(result).expect("JSON");
    result["content"][0]["text"].as_str().and_then(|text| text.parse().ok()).expect("a number")
}

/// SB-4: every call has a process of its own that was waiting for it, and that ends with it; the pool is full again
/// after each, and never more than full.
#[tokio::test(start_paused = true)]
async fn each_call_has_a_process_of_its_own() {
    let (scout, crowd, fleet) = lending(bounds(2, 1)).await;
    let begun = Instant::now();
    let mut seen = Vec::new();
    for _ in 0..5 {
        seen.push(who(&fleet).await);
        crowd.settles_at(2).await;
    }
    assert_eq!(seen, [1, 2, 3, 4, 5], "the one that has waited longest, and none twice");
    assert_eq!((crowd.opened(), crowd.most(), begun.elapsed()), (7, 3, Duration::ZERO));
    assert_eq!((scout.called(), scout.opened()), (0, 1), "who lists the tools serves no call");
}

/// SB-4: as many calls at once as come; those beyond the pool start theirs, and afterwards the pool has its size.
#[tokio::test(start_paused = true)]
async fn an_empty_pool_starts_them_on_demand() {
    for size in [0, 2] {
        let (_scout, crowd, fleet) = lending(bounds(size, 1)).await;
        let answers: BTreeSet<u64> = join_all((0..10).map(|_| who(&fleet))).await.into_iter().collect();
        assert_eq!(answers.len(), 10, "no two calls meet");
        crowd.settles_at(size).await;
        assert!(crowd.opened() <= 10 + size + size, "{} for ten calls", crowd.opened());
    }
}

/// SB-4: however many come at once and however long processes take to leave, there are never more than the bound.
#[tokio::test(start_paused = true)]
async fn there_are_never_more_than_the_bound() {
    let (_scout, crowd, fleet) = lending(bounds(2, 1)).await;
    crowd.takes_to_leave(secs(1));
    let answers = join_all((0..200).map(|_| who(&fleet))).await;
    assert_eq!(answers.into_iter().collect::<BTreeSet<_>>().len(), 200);
    assert!(crowd.most() <= 2 + 32, "{} at once", crowd.most());
    crowd.settles_at(2).await;
}

/// SB-4: one that has waited too long is replaced without a call, and one that has died too.
#[tokio::test(start_paused = true)]
async fn the_old_and_the_dead_are_replaced() {
    let (_scout, crowd, fleet) = lending(bounds(2, 1)).await;
    tokio::time::advance(secs(299)).await;
    assert_eq!(who(&fleet).await, 1);
    crowd.settles_at(2).await;
    tokio::time::advance(secs(2)).await;
    crowd.ends(2).await;
    assert_eq!(who(&fleet).await, 3, "the second was too old");
    crowd.settles_at(2).await;
    crowd.cut(4);
    crowd.ends(4).await;
    assert_eq!(who(&fleet).await, 5);
}

/// SB-4, PR-9: processes that die as soon as they wait are not started on and on.
#[tokio::test(start_paused = true)]
async fn those_that_die_waiting_are_started_ever_later() {
    let (_scout, crowd, member) = lent(bounds(1, 1));
    crowd.dies_after_listing();
    let fleet = fleet(vec![member]);
    fleet.listed(TOOLS.len()).await;
    for _ in 0..20 {
        tokio::time::advance(secs(1)).await;
        crowd.settles_at(0).await;
    }
    // At once, and after 0, 1, 2, 5, 10 s.
    assert!((5..=7).contains(&crowd.opened()), "{} starts in 20 s", crowd.opened());
}

/// SB-4: one may serve several calls, if they end well; after a failure of any kind it serves none.
#[tokio::test(start_paused = true)]
async fn only_a_good_end_leads_to_another_use() {
    let (_scout, crowd, fleet) = lending(bounds(1, 3)).await;
    let seen = [who(&fleet).await, who(&fleet).await, who(&fleet).await, who(&fleet).await];
    assert_eq!(seen, [1, 1, 1, 2], "three uses, and then the next");
    for (place, bad) in ["fails", "internal", "hang", "crash"].into_iter().enumerate() {
        let _ = fleet.call(&format!("s__{bad}")).await;
        crowd.ends(2 + place as u64).await;
        crowd.settles_at(1).await;
        assert_eq!(who(&fleet).await, 3 + place as u64, "after {bad}");
    }
    let cancel = CancellationToken::new();
    let cancelling = async {
        crowd.is_calling(6).await;
        cancel.cancel();
    };
    let (cancelled, ()) = tokio::join!(fleet.call_with("s__hang", cancel.clone()), cancelling);
    assert!(matches!(cancelled.expect_err("it hangs").error, ProviderError::Cancelled { .. }));
    crowd.ends(6).await;
    crowd.settles_at(1).await;
    assert_eq!(who(&fleet).await, 7);
}

/// SB-4, SB-5: a call that hangs ends at its deadline with its process, and one that crashes says so; nobody else
/// notices either.
#[tokio::test(start_paused = true)]
async fn a_bad_call_touches_no_other() {
    let (scout, crowd, fleet) = lending(bounds(2, 1)).await;
    let begun = Instant::now();
    let slow = fleet.call("s__hang");
    let others = async {
        crowd.is_calling(1).await;
        fleet.call("s__crash").await.expect_err("it crashes");
        let seen = [who(&fleet).await, who(&fleet).await];
        (seen, begun.elapsed())
    };
    let (hung, (seen, elapsed)) = tokio::join!(slow, others);
    assert!(
        matches!(hung.expect_err("it hangs").error, ProviderError::TimedOut { limit, .. } if limit == secs(30))
    );
    assert_eq!((seen, elapsed), ([3, 4], Duration::ZERO));
    assert_eq!(begun.elapsed(), secs(30));
    crowd.settles_at(2).await;
    assert!(!crowd.is_alive(1) && scout.opened() == 1 && !scout.heard("ping"), "no probe, no restart");
}

/// PR-7, PR-9: starts that fail are repeated with the delays of the restart policy while callers wait, each to its
/// own deadline; who comes after one that waited in vain does not wait.
#[tokio::test(start_paused = true)]
async fn starts_that_fail_are_repeated_with_the_policys_delays() {
    let (_scout, crowd, mut member) = lent(bounds(0, 1));
    member.terms.acquire_timeout = secs(10);
    let fleet = fleet(vec![member]);
    fleet.listed(TOOLS.len()).await;
    crowd.plan(vec![Opens::Fail(refused()); 4]);
    let begun = Instant::now();
    assert_eq!(who(&fleet).await, 5);
    // At once, and after 0, 1, 2, 5 s.
    assert_eq!((crowd.opened(), begun.elapsed()), (5, secs(8)));

    crowd.plan(vec![Opens::Fail(refused()); 30]);
    let (begun, before) = (Instant::now(), crowd.opened());
    let failed = fleet.call("s__who").await.expect_err("it takes longer than that");
    assert!(matches!(failed.error, ProviderError::Unavailable { .. }), "{failed:?}");
    assert_eq!(failed.error.executed(), Executed::No);
    let waited = begun.elapsed();
    assert!(crowd.opened() - before <= 6, "{} starts in {waited:?}", crowd.opened() - before);
}

/// PR-9: what no repetition cures is told at once, and the server is down as a whole until its scout says otherwise.
#[tokio::test(start_paused = true)]
async fn a_lasting_failure_is_the_servers() {
    let (scout, crowd, member) = lent(bounds(0, 1));
    let fleet = fleet(vec![member]);
    fleet.listed(TOOLS.len()).await;
    crowd.plan(vec![Opens::Fail(NO_PROGRAM())]);
    scout.plan(Opens::Fail(NO_PROGRAM()));
    let begun = Instant::now();
    let failed = fleet.call("s__who").await.expect_err("there is no program");
    assert!(
        matches!(&failed.error, ProviderError::InitFailed(why) if why.contains("no such program")),
        "{failed:?}"
    );
    fleet.state_is("s", "blocked").await;
    fleet.call("s__who").await.expect_err("it is blocked");
    assert_eq!((crowd.opened(), begun.elapsed()), (1, Duration::ZERO));
}

/// SB-4, PR-9: tools with limits of their own that cannot be started under them are the trouble of these tools alone:
/// they say so at once from then on, and nothing is tried before the server is started again. Each of their calls used
/// to start the scout again, and with it everybody's pool.
#[tokio::test(start_paused = true)]
async fn what_is_apart_fails_alone() {
    for (failure, tries) in [(NO_PROGRAM(), 1), (refused(), 4)] {
        let (scout, crowd, mut member) = lent(bounds(1, 1));
        let (others, asked) = (Crowd::default(), BTreeSet::from(["big".to_owned()]));
        let recipe = others.recipe();
        // Three more attempts, in a policy that has an end.
        let bounded: Recipe = Arc::new(move || {
            let mut settings = recipe();
            settings.policy.restart.max_attempts = Some(3);
            settings
        });
        if let Lives::Call(lending) = &mut member.terms.lives {
            lending.apart = vec![Apart { tools: asked, recipe: bounded }];
        }
        let fleet = fleet(vec![member]);
        fleet.listed(TOOLS.len()).await;
        crowd.settles_at(1).await;
        for round in 1..=2 {
            others.plan(vec![Opens::Fail(failure.clone()); tries]);
            for _ in 0..3 {
                let failed = fleet.call("s__big").await.expect_err("it cannot be started");
                assert!(matches!(failed.error, ProviderError::InitFailed(_)), "{failed:?}");
            }
            tokio::time::advance(secs(250)).await;
            assert_eq!(others.opened(), (tries + 1) * round - 1, "all attempts, once");
            assert_eq!(scout.opened(), round, "the scout is as it was");
            assert!(fleet.call("s__who").await.is_ok());
            fleet.fleet.restart("s", "a person asks").await.expect("it is there");
            assert!(fleet.call("s__big").await.is_ok(), "all is forgotten");
        }
    }
}

/// SB-4, PR-9: while the scout is blocked nothing is started for calls, and they are refused as any other's.
#[tokio::test(start_paused = true)]
async fn a_blocked_scout_refuses_calls() {
    let (scout, crowd, member) = lent(bounds(2, 1));
    let fleet = fleet(vec![member]);
    fleet.listed(TOOLS.len()).await;
    crowd.settles_at(2).await;
    scout.plan(Opens::Fail(NO_PROGRAM()));
    scout.cut();
    fleet.state_is("s", "blocked").await;
    let before = crowd.opened();
    let failed = fleet.call("s__who").await.expect_err("it is blocked");
    assert!(matches!(failed.error, ProviderError::InitFailed(_)), "{failed:?}");
    assert_eq!(crowd.opened(), before);
}

/// PR-6, SB-4: when nobody has used the server for so long that it rests, nothing of it waits; the next call finds it
/// as before.
#[tokio::test(start_paused = true)]
async fn nobody_waits_while_the_server_rests() {
    let (scout, crowd, mut member) = lent(bounds(2, 1));
    member.settings.idle_close = Some(secs(60));
    let fleet = fleet(vec![member]);
    fleet.listed(TOOLS.len()).await;
    crowd.settles_at(2).await;
    tokio::time::advance(secs(61)).await;
    crowd.settles_at(0).await;
    fleet.state_is("s", "idle").await;
    assert_eq!(crowd.opened(), 2, "nothing was started meanwhile");
    who(&fleet).await;
    crowd.settles_at(2).await;
    assert_eq!(scout.opened(), 2);
}

/// SB-4: when the scout was started again, calls get processes that were started after it.
#[tokio::test(start_paused = true)]
async fn a_restart_replaces_those_that_wait() {
    let (scout, crowd, fleet) = lending(bounds(2, 1)).await;
    scout.cut();
    crowd.ends(1).await;
    crowd.ends(2).await;
    crowd.settles_at(2).await;
    assert!(who(&fleet).await > 2);
    assert_eq!(scout.opened(), 2);
}

/// SB-9, PR-15: closing ends those that wait, those on their way, and the calls that have one; whoever comes after
/// is told.
#[tokio::test(start_paused = true)]
async fn closing_leaves_no_process() {
    let (_scout, crowd, fleet) = lending(bounds(2, 1)).await;
    let tool = fleet.tool("s__who");
    crowd.plan(vec![Opens::Hang; 4]);
    let (hung, late) = (fleet.call("s__hang"), async {
        crowd.is_calling(1).await;
        while crowd.opened() < 3 {
            tokio::task::yield_now().await;
        }
        fleet.fleet.close().await;
        fleet.call_tool(&tool, CancellationToken::new()).await
    });
    let begun = Instant::now();
    let (hung, late) = tokio::join!(hung, late);
    assert!(matches!(late.expect_err("it is closed").error, ProviderError::Terminated));
    // It was sent: what it did nobody knows.
    let hung = hung.expect_err("it is closed").error;
    assert_eq!((hung.code(), hung.executed()), ("PROVIDER_UNAVAILABLE", Executed::Unknown));
    assert_eq!(begun.elapsed(), Duration::ZERO);
    crowd.settles_at(0).await;
}

/// SB-3, SB-4: a tool with limits of its own gets a process that was started with them, on demand.
#[tokio::test(start_paused = true)]
async fn a_tool_with_limits_of_its_own_has_processes_of_its_own() {
    let (_scout, crowd, mut member) = lent(bounds(2, 1));
    let large = Crowd::default();
    let apart = vec![Apart { tools: ["big".to_owned()].into(), recipe: large.recipe() }];
    member.terms.lives = Lives::Call(Lending { bounds: bounds(2, 1), recipe: crowd.recipe(), apart });
    let fleet = fleet(vec![member]);
    fleet.listed(TOOLS.len()).await;
    crowd.settles_at(2).await;
    assert_eq!(large.opened(), 0);
    fleet.call("s__big").await.expect("it answers");
    assert_eq!((who(&fleet).await, large.opened()), (1, 1));
    large.settles_at(0).await;
    fleet.fleet.close().await;
    crowd.settles_at(0).await;
}

/// A server with one process for each session; the first of them is the scout's.
async fn in_sessions() -> (Scripted, Crowd, Watched) {
    let (scout, crowd) = (Scripted::new(&TOOLS), Crowd::default());
    let mut member = member("s", &scout);
    member.terms.lives = Lives::Session(crowd.recipe());
    let fleet = fleet(vec![member]);
    fleet.listed(TOOLS.len()).await;
    (scout, crowd, fleet)
}

/// SB-4, SB-5: each session has a process of its own, the first the one that listed the tools; a timeout kills the
/// process of its session, the next use starts it anew, and no other session notices.
#[tokio::test(start_paused = true)]
async fn each_session_has_a_process_of_its_own() {
    let (scout, crowd, fleet) = in_sessions().await;
    let who = fleet.tool("s__who");
    let call = |session: u64, tool: Arc<_>| {
        let fleet = &fleet;
        async move { fleet.call_in(SessionId(session), &tool, CancellationToken::new()).await }
    };
    let first = call(7, Arc::clone(&who)).await.expect("it answers");
    assert!(String::from_utf8_lossy(&first).contains("who"), "the scout answers in its own words");
    let ask = async |session: u64| number(&call(session, Arc::clone(&who)).await.expect("it answers"));
    assert_eq!([ask(8).await, ask(9).await, ask(8).await], [1, 2, 1]);
    assert_eq!((scout.opened(), scout.called(), crowd.opened()), (1, 1, 2));

    let hung = call(8, fleet.tool("s__hang")).await.expect_err("it hangs");
    assert!(matches!(hung.error, ProviderError::TimedOut { .. }), "{hung:?}");
    crowd.ends(1).await;
    assert_eq!((ask(9).await, crowd.opened()), (2, 2), "nothing is started before it is used");
    assert_eq!([ask(8).await, ask(9).await], [3, 2]);
    call(7, fleet.tool("s__hang")).await.expect_err("it hangs");
    while !scout.is_ended() {
        tokio::task::yield_now().await;
    }
    call(7, Arc::clone(&who)).await.expect("it is started anew");
    assert_eq!((scout.opened(), ask(9).await), (2, 2));
}

/// SB-4: what a session has ends with it, and nobody gets it after; what another has stays.
#[tokio::test(start_paused = true)]
async fn a_session_takes_its_process_with_it() {
    let (scout, crowd, fleet) = in_sessions().await;
    let who = fleet.tool("s__who");
    let ask = |session: u64| fleet.call_in(SessionId(session), &who, CancellationToken::new());
    let attached = [1, 2, 3].map(|session| fleet.fleet.attach(SessionId(session)));
    for session in 1..=3 {
        ask(session).await.expect("it answers");
    }
    let [first, second, third] = attached;
    drop(second);
    crowd.ends(1).await;
    assert!(crowd.is_alive(2) && !scout.is_ended());
    drop(first);
    // Who comes while the first is leaving does not get what the first has used.
    let fourth = ask(4).await.expect("it answers");
    assert_eq!(number(&fourth), 3);
    while !scout.is_ended() {
        tokio::task::yield_now().await;
    }
    assert_eq!(number(&ask(3).await.expect("it answers")), 2);
    ask(5).await.expect("it answers");
    assert_eq!((scout.opened(), crowd.opened()), (2, 3), "the scout serves anew, with a new process");
    drop(third);
    fleet.fleet.close().await;
    crowd.settles_at(0).await;
    assert!(scout.is_ended());
}

/// SB-9, PR-15: what a server that was turned off has for its sessions takes its time to leave; who closes the fleet
/// meanwhile waits for it too.
#[tokio::test(start_paused = true)]
async fn closing_waits_for_what_is_put_to_rest() {
    let (_scout, crowd, fleet) = in_sessions().await;
    crowd.takes_to_leave(secs(5));
    let who = fleet.tool("s__who");
    for session in 1..=2 {
        let called = fleet.call_in(SessionId(session), &who, CancellationToken::new()).await;
        called.expect("it answers");
    }
    let begun = Instant::now();
    fleet.fleet.disable("s").expect("it is there");
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    assert!(crowd.is_alive(1), "it takes its time");
    fleet.fleet.close().await;
    assert!(!crowd.is_alive(1) && begun.elapsed() == secs(5), "after {:?}", begun.elapsed());
}

/// SB-5: a server of one's own is started again after a timeout, without being asked whether it is well; of two
/// calls that were late on the same connection, the second does not end the new one.
#[tokio::test(start_paused = true)]
async fn a_server_of_ones_own_is_restarted_after_a_timeout() {
    let server = Scripted::new(&["hang", "a"]);
    let mut own = member("s", &server);
    own.terms.shared = false;
    let fleet = fleet(vec![own]);
    fleet.listed(2).await;
    let (one, other) = tokio::join!(fleet.call("s__hang"), fleet.call("s__hang"));
    for late in [one, other] {
        assert!(matches!(late.expect_err("it hangs").error, ProviderError::TimedOut { .. }));
    }
    assert!(fleet.call("s__a").await.is_ok());
    assert_eq!((server.opened(), server.heard("ping")), (2, false));
}
