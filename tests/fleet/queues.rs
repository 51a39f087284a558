//! Queues: who runs, who waits, who is turned away.

use std::sync::Arc;

use colibri::domain::audit::CallId;
use colibri::domain::clock::Moment;
use colibri::domain::face::SessionId;
use colibri::domain::provider::{Crowded, Executed, ProviderError};
use colibri::domain::queue::Bounds;
use colibri::fleet::roster::{Calling, Member, Plan, ToolSettings, What};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::support::{Scripted, Watched, member, planned, secs};

fn narrow(server: &Scripted) -> Member {
    let mut narrow = member("s", server);
    narrow.terms.queue = "one".into();
    narrow
}

fn bounds(concurrent: usize, max_waiting: usize, max_wait: u64) -> Bounds {
    Bounds { concurrent, max_waiting, max_wait: secs(max_wait) }
}

fn plan(members: Vec<Member>, bounds: Bounds) -> Plan {
    Plan { members, queues: [("one".into(), bounds)].into(), ..Plan::default() }
}

/// Runs while `fleet` has that many inside the queue.
async fn crowd(fleet: &Watched, running: usize, waiting: usize) {
    let is_so = || {
        let crowds = fleet.fleet.crowds();
        crowds.iter().any(|crowd| crowd.running == running && crowd.waiting == waiting)
    };
    while !is_so() {
        tokio::task::yield_now().await;
    }
}

fn crowded(error: &ProviderError) -> Option<Crowded> {
    match error {
        ProviderError::ConcurrencyExceeded { crowded, .. } => Some(*crowded),
        _ => None,
    }
}

/// PR-10: as many run as may, the next waits in its turn, one more is turned away at once; and one that has waited
/// long enough, too. None of them was sent.
#[tokio::test(start_paused = true)]
async fn a_queue_has_an_end() {
    let server = Scripted::new(&["hang"]);
    let fleet = planned(plan(vec![narrow(&server)], bounds(1, 1, 5)));
    fleet.listed(1).await;
    let begun = Instant::now();
    let story = async {
        crowd(&fleet, 1, 1).await;
        let third = fleet.call("s__hang").await.expect_err("there is no room");
        assert_eq!((crowded(&third.error), begun.elapsed()), (Some(Crowded::Full), secs(0)));
        assert_eq!(third.error.code(), "PROVIDER_CONCURRENCY_EXCEEDED");
    };
    let (first, (second, waited), ()) = tokio::join!(
        fleet.call("s__hang"),
        async {
            let second = fleet.call("s__hang").await;
            (second, begun.elapsed())
        },
        story
    );
    assert!(first.is_err());
    assert_eq!((crowded(&second.expect_err("it waits").error), waited), (Some(Crowded::Waited), secs(5)));
    assert_eq!(server.called(), 1);
}

/// SB-5, SB-11: a deadline that passes while the call waits in its queue is a timeout, and the call surely had no
/// effect: it was never sent. It used to say that nobody could know.
#[tokio::test(start_paused = true)]
async fn who_runs_out_of_time_in_a_queue_was_not_sent() {
    let server = Scripted::new(&["hang", "quick"]);
    let mut member = narrow(&server);
    let short = ToolSettings { timeout: Some(secs(3)), ..ToolSettings::default() };
    member.terms.tools.insert("quick".to_owned(), short);
    let fleet = planned(plan(vec![member], bounds(1, 9, 60)));
    fleet.listed(2).await;
    let begun = Instant::now();
    let story = async {
        crowd(&fleet, 1, 0).await;
        let late = fleet.call("s__quick").await.expect_err("there is no room in time").error;
        assert_eq!((late.code(), begun.elapsed()), ("PROVIDER_TIMEOUT", secs(3)));
        assert_eq!((late.executed(), late.retryable()), (Executed::No, true));
        assert!(late.to_string().ends_with("was not sent"), "{late}");
        server.answer_hung().await;
    };
    let (first, ()) = tokio::join!(fleet.call("s__hang"), story);
    first.expect("it has its answer");
    assert_eq!(server.called(), 1);
}

/// PR-10, PR-11: a caller that gives up leaves at once, waiting or running, and the next has its place.
#[tokio::test(start_paused = true)]
async fn who_gives_up_makes_room() {
    let server = Scripted::new(&["hang", "quick"]);
    let fleet = planned(plan(vec![narrow(&server)], bounds(1, 9, 60)));
    fleet.listed(2).await;
    let (running, waiting) = (CancellationToken::new(), CancellationToken::new());
    let begun = Instant::now();
    let story = async {
        crowd(&fleet, 1, 2).await;
        waiting.cancel();
        crowd(&fleet, 1, 1).await;
        assert_eq!(server.called(), 1, "it was never sent");
        running.cancel();
    };
    let (first, second, third, ()) = tokio::join!(
        fleet.call_with("s__hang", running.clone()),
        fleet.call_with("s__hang", waiting.clone()),
        fleet.call("s__quick"),
        story
    );
    let queued =
        |outcome: Result<_, colibri::fleet::roster::Failed>| match outcome.expect_err("cancelled").error {
            ProviderError::Cancelled { queued, .. } => queued,
            other => panic!("{other:?}"),
        };
    assert_eq!((queued(first), queued(second)), (false, true));
    third.expect("there is room again");
    assert_eq!(begun.elapsed(), secs(0));
    assert_eq!(fleet.fleet.crowds()[0].running, 0);
}

/// PR-10: those that wait are served in the order in which their calls arrived, though they got to the queue in another:
/// what comes before it takes each of them another time.
#[tokio::test(start_paused = true)]
async fn the_order_of_arrival_is_the_order_of_the_queue() {
    let server = Scripted::new(&["hang", "a", "b", "c"]);
    let fleet = planned(plan(vec![narrow(&server)], bounds(1, 9, 60)));
    fleet.listed(4).await;
    tokio::time::advance(secs(10)).await;
    let ended = std::sync::Mutex::new(Vec::new());
    let call = async |name: &'static str, ago: u64, waiting: usize| {
        crowd(&fleet, 1, waiting).await;
        let tool = fleet.tool(name);
        let now = fleet.clock.now();
        let arrived = Moment { since_boot: now.since_boot.saturating_sub(secs(ago)), ..now };
        let (what, id) = (What::Tool { tool: &tool, arguments: b"{}" }, CallId(Uuid::nil()));
        let (session, cancel) = (SessionId::default(), CancellationToken::new());
        let calling = Calling { id, arrived, session, what, notices: None, cancel, rounds: None };
        fleet.fleet.call(calling).await.expect("it answers");
        ended.lock().expect("sound").push(name);
    };
    let story = async {
        crowd(&fleet, 1, 3).await;
        server.answer_hung().await;
    };
    let (first, ..) = tokio::join!(
        fleet.call("s__hang"),
        call("s__c", 1, 0),
        call("s__a", 3, 1),
        call("s__b", 2, 2),
        story
    );
    first.expect("it has its answer");
    assert_eq!(*ended.lock().expect("sound"), ["s__a", "s__b", "s__c"]);
}

/// PR-10: a tool may have a queue of its own, several servers may share one, and new bounds count at once.
#[tokio::test(start_paused = true)]
async fn queues_are_shared_overridden_and_resized() {
    let (one, other) = (Scripted::new(&["hang", "free"]), Scripted::new(&["quick"]));
    let mut first = narrow(&one);
    let free = ToolSettings { queue: Some("default".into()), ..ToolSettings::default() };
    first.terms.tools.insert("free".to_owned(), free);
    let mut second = member("t", &other);
    second.terms.queue = "one".into();
    let fleet = planned(plan(vec![first, second], bounds(1, 9, 60)));
    fleet.listed(3).await;
    let cancel = CancellationToken::new();
    let story = async {
        crowd(&fleet, 1, 1).await;
        fleet.call("s__free").await.expect("its tool has another queue");
        assert_eq!(other.called(), 0, "the other server's call waits in the same queue");
        fleet.fleet.queues().change([(Arc::from("one"), bounds(2, 9, 60))].into());
    };
    let (_, second, ()) = tokio::join!(
        fleet.call_with("s__hang", cancel.clone()),
        async {
            let second = fleet.call("t__quick").await;
            cancel.cancel();
            second
        },
        story
    );
    second.expect("there is room for two now");
}
