//! One deadline for a call: from its arrival, with progress, in a queue, and while a person decides.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use colibri::domain::audit::{CallId, Pending};
use colibri::domain::face::{Face, Unasked};
use colibri::domain::provider::ProviderError;
use colibri::fleet::roster::{Calling, Failed, What};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::support::{Scripted, Watched, fleet, member, secs};

/// A call that asks for progress and arrived so long ago.
async fn call(fleet: &Watched, ago: Duration) -> Result<Bytes, Failed> {
    let tool = fleet.tool("s__hang");
    let (notices, mut told) = mpsc::channel(8);
    let now = fleet.clock.now();
    let arrived = colibri::domain::clock::Moment { since_boot: now.since_boot.saturating_sub(ago), ..now };
    let calling = Calling {
        id: CallId(Uuid::nil()),
        arrived,
        what: What::Tool { tool: &tool, arguments: b"{}" },
        notices: Some(notices),
        cancel: CancellationToken::new(),
        rounds: None,
        session: colibri::domain::face::SessionId::default(),
    };
    let outcome = fleet.fleet.call(calling).await;
    told.close();
    outcome
}

#[track_caller]
fn timed_out(outcome: Result<Bytes, Failed>, limit: u64) {
    let failed = outcome.expect_err("nobody answers");
    assert!(
        matches!(failed.error, ProviderError::TimedOut { limit: told, .. } if told == secs(limit)),
        "{failed:?}"
    );
}

/// SB-5: the deadline counts from the call's arrival, not from when it was sent.
#[tokio::test(start_paused = true)]
async fn waiting_before_it_was_sent_counts() {
    let server = Scripted::new(&["hang"]);
    let fleet = fleet(vec![member("s", &server)]);
    fleet.listed(1).await;
    tokio::time::advance(secs(100)).await;
    let begun = Instant::now();
    timed_out(call(&fleet, secs(25)).await, 30);
    assert_eq!(begun.elapsed(), secs(5));
}

/// SB-5: progress gives new time, up to the total.
#[tokio::test(start_paused = true)]
async fn progress_resets_it_up_to_the_total() {
    let server = Scripted::new(&["hang"]);
    let mut slow = member("s", &server);
    slow.terms.max_total_timeout = secs(100);
    let fleet = fleet(vec![slow]);
    fleet.listed(1).await;
    let begun = Instant::now();
    let working = async {
        let (_, token) = server.hung().await;
        for step in 1_u64.. {
            sleep_until(begun + secs(20 * step)).await;
            let params = json!({ "progressToken": token, "progress": step });
            server
                .say(&json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params }))
                .await;
        }
    };
    let outcome = tokio::select! {
        outcome = call(&fleet, Duration::ZERO) => outcome,
        () = working => unreachable!("it works for ever"),
    };
    timed_out(outcome, 100);
    assert_eq!(begun.elapsed(), secs(100));
}

/// SB-5: without progress it is over, though there was some before.
#[tokio::test(start_paused = true)]
async fn progress_that_ends_is_none() {
    let server = Scripted::new(&["hang"]);
    let fleet = fleet(vec![member("s", &server)]);
    fleet.listed(1).await;
    let begun = Instant::now();
    let working = async {
        let (_, token) = server.hung().await;
        sleep_until(begun + secs(20)).await;
        let params = json!({ "progressToken": token, "progress": 1 });
        server.say(&json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params })).await;
        std::future::pending::<()>().await;
    };
    let outcome = tokio::select! {
        outcome = call(&fleet, Duration::ZERO) => outcome,
        () = working => unreachable!("it works for ever"),
    };
    timed_out(outcome, 30);
    assert_eq!(begun.elapsed(), secs(50));
}

/// A client whose person takes 70 s over everything.
struct Slow;

impl Face for Slow {
    fn introduced(&self) -> Pending<'_, Value> {
        Box::pin(std::future::ready(json!({ "elicitation": {} })))
    }

    fn ask<'a>(&'a self, _: &'a str, _: &'a str, _: Option<Bytes>) -> Pending<'a, Result<Bytes, Unasked>> {
        let decided = Instant::now() + secs(70);
        Box::pin(async move {
            sleep_until(decided).await;
            Ok(Bytes::from_static(br#"{"action":"accept"}"#))
        })
    }

    fn tell(&self, _: &str, _: Option<Bytes>) {}

    fn log_level(&self) -> Option<&'static str> {
        None
    }
}

/// SB-5: it stands still while a person decides.
#[tokio::test(start_paused = true)]
async fn a_persons_time_is_not_the_calls() {
    let server = Scripted::new(&["hang"]);
    let mut asking = member("s", &server);
    asking.settings.face = Some(Arc::new(Slow));
    let fleet = fleet(vec![asking]);
    fleet.listed(1).await;
    let begun = Instant::now();
    let story = async {
        server.hung().await;
        sleep_until(begun + secs(10)).await;
        server
            .say(&json!({ "jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {} }))
            .await;
        sleep_until(begun + secs(95)).await;
        server.answer_hung().await;
        std::future::pending::<()>().await;
    };
    let outcome = tokio::select! {
        outcome = call(&fleet, Duration::ZERO) => outcome,
        () = story => unreachable!("it waits for ever"),
    };
    outcome.expect("10 s, a person's 70 s, and 15 s are less than 30 s and a person's 70 s");
    assert_eq!(begun.elapsed(), secs(95));
}

/// PR-11: the server is told that a call is taken back, and why: by its client, by its deadline, by colibri's end; once each.
#[tokio::test(start_paused = true)]
async fn what_is_taken_back_says_why() {
    let server = Scripted::new(&["hang"]);
    let fleet = fleet(vec![member("s", &server)]);
    fleet.listed(1).await;
    let cancel = CancellationToken::new();
    let cancelled = async {
        server.hung().await;
        cancel.cancel();
        cancel.cancel();
    };
    let (outcome, ()) = tokio::join!(fleet.call_with("s__hang", cancel.clone()), cancelled);
    assert_eq!(outcome.expect_err("it is taken back").error.reason(), Some("client"));
    timed_out(call(&fleet, Duration::ZERO).await, 30);
    let stopped = CancellationToken::new();
    let stop = async {
        server.taken_back(2).await;
        while server.called() < 3 {
            tokio::task::yield_now().await;
        }
        fleet.stopping.cancel();
        stopped.cancel();
    };
    let (outcome, ()) = tokio::join!(fleet.call_with("s__hang", stopped.clone()), stop);
    assert_eq!(outcome.expect_err("it is taken back").error.reason(), Some("shutdown"));
    assert_eq!(server.taken_back(3).await, ["client", "timeout", "shutdown"]);
}
