//! Many servers behind one face: on a paused clock over links in memory, then with real children.

mod acquire;
mod ancestors;
mod asks;
mod canary;
mod changes;
mod children;
mod crowd;
mod deadlines;
mod isolation;
mod listen;
mod news;
mod offers;
mod operate;
mod overhead;
mod own_files;
mod pins;
mod probes;
mod promises;
mod queues;
mod real;
mod reload;
mod reviews;
mod scenarios;
mod schemas;
mod support;
mod workers;

pub(crate) use children::processes;

use std::time::Duration;

use colibri::domain::provider::{ProviderError, Unavailable};
use colibri::fleet::error::Cause;
use colibri::fleet::roster::{Found, Start};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use support::{Opens, Scripted, fleet, member, secs};

const NO_PROGRAM: fn() -> Cause =
    || Cause::Start { program: "npx".to_owned(), reason: "there is no such program".to_owned() };

fn refused() -> Cause {
    Cause::Unreachable("connection refused".to_owned())
}

/// PR-3, PR-4, SB-1: tools of all servers under one rule, filtered, in a stable order, each definition
/// whole but for its name.
#[tokio::test(start_paused = true)]
async fn the_catalog_names_filters_and_orders() {
    let (files, git) = (Scripted::new(&["read", "Write", "delete_all"]), Scripted::new(&["log", "read"]));
    let mut withheld = member("files", &files);
    withheld.terms.filter =
        colibri::domain::filter::Filter::new(&["*"], &["DELETE*"]).expect("short patterns");
    let fleet = fleet(vec![withheld, member("git", &git)]);
    fleet.listed(4).await;
    assert_eq!(fleet.names(), ["files__Write", "files__read", "git__log", "git__read"]);
    let catalog = fleet.fleet.catalog();
    let definition = catalog.borrow().get("files__read").expect("it is there").definition.clone();
    let whole = r#"{"name":"files__read","inputSchema":{"type":"object"},"annotations":{},"x-odd":1.50}"#;
    assert_eq!(std::str::from_utf8(&definition).expect("UTF-8"), whole);
    assert!(catalog.borrow().get("files__delete_all").is_none());
}

/// PR-5: a server that hangs and one that is dead delay no other.
#[tokio::test(start_paused = true)]
async fn one_bad_server_holds_nobody_back() {
    let (hung, dead, well) = (Scripted::new(&["a"]), Scripted::new(&["b"]), Scripted::new(&["c"]));
    hung.plan(Opens::Hang);
    dead.plan_all(vec![Opens::Fail(refused()); 50]);
    let begun = Instant::now();
    let fleet = fleet(vec![member("hung", &hung), member("dead", &dead), member("well", &well)]);
    fleet.listed(1).await;
    assert_eq!((fleet.names(), begun.elapsed()), (vec!["well__c".to_owned()], Duration::ZERO));
    assert!(fleet.call("well__c").await.is_ok());
}

/// PR-9: a lost server is started again at once, then after 1, 2, 5 s; one success, and calls work again.
#[tokio::test(start_paused = true)]
async fn a_lost_server_is_started_again_with_exact_delays() {
    let server = Scripted::new(&["a"]);
    let fleet = fleet(vec![member("s", &server)]);
    fleet.listed(1).await;
    server.plan_all([Opens::Fail(refused()), Opens::Fail(refused()), Opens::Fail(refused())]);
    let begun = Instant::now();
    server.cut();
    fleet.state_is("s", "backoff").await;
    // The call waits for the fourth attempt, which succeeds.
    assert!(fleet.call("s__a").await.is_ok());
    assert_eq!(begun.elapsed(), secs(1 + 2 + 5));
    assert_eq!(server.opened(), 1 + 4);
}

/// PR-9: what no repetition cures waits for a change, and says so at once.
#[tokio::test(start_paused = true)]
async fn a_permanent_failure_is_not_tried_again() {
    let server = Scripted::new(&["a"]);
    let fleet = fleet(vec![member("s", &server)]);
    fleet.listed(1).await;
    server.plan(Opens::Fail(NO_PROGRAM()));
    server.cut();
    fleet.state_is("s", "blocked").await;
    let begun = Instant::now();
    let failed = fleet.call("s__a").await.expect_err("it is blocked");
    assert!(
        matches!(&failed.error, ProviderError::InitFailed(why) if why.contains("no such program")),
        "{failed:?}"
    );
    assert_eq!(begun.elapsed(), Duration::ZERO);
    tokio::time::advance(secs(3600)).await;
    assert_eq!(server.opened(), 2, "an hour later nothing was tried");
}

/// PR-7: callers of a starting server wait, each to its own deadline; the first that waited in vain spares
/// the others; recovery reaches those who come after.
#[tokio::test(start_paused = true)]
async fn waiting_in_vain_is_done_once() {
    let server = Scripted::new(&["a"]);
    let mut impatient = member("s", &server);
    impatient.terms.acquire_timeout = secs(4);
    let fleet = fleet(vec![impatient]);
    fleet.listed(1).await;
    server.plan_all(vec![Opens::Fail(refused()); 3]);
    server.cut();
    fleet.state_is("s", "backoff").await;
    let begun = Instant::now();
    let failed = fleet.call("s__a").await.expect_err("it takes longer than that");
    let expected =
        matches!(failed.error, ProviderError::Unavailable { reason: Unavailable::RestartFailed, .. });
    assert!(expected, "{failed:?}");
    assert_eq!(begun.elapsed(), secs(4));
    fleet.call("s__a").await.expect_err("nobody waits again");
    assert_eq!(begun.elapsed(), secs(4));
    fleet.state_is("s", "ready").await;
    assert_eq!(begun.elapsed(), secs(8));
    assert!(fleet.call("s__a").await.is_ok());
}

/// Settled readings: the fleet repeats only what surely had no effect, or may have it twice.
#[tokio::test(start_paused = true)]
async fn only_what_may_be_repeated_is_repeated() {
    let server = Scripted::new(&["internal", "internal_idempotent", "invalid_idempotent"]);
    let fleet = fleet(vec![member("s", &server)]);
    fleet.listed(3).await;
    for (tool, calls, seconds) in
        [("internal", 1, 0), ("internal_idempotent", 3, 3), ("invalid_idempotent", 1, 0)]
    {
        let (before, begun) = (server.called(), Instant::now());
        let failed = fleet.call(&format!("s__{tool}")).await.expect_err(tool);
        assert!(matches!(failed.error, ProviderError::ExecuteFailed { .. }), "{failed:?}");
        assert!(failed.relayed.is_some(), "the server's own error is passed on");
        assert_eq!((server.called() - before, begun.elapsed()), (calls, secs(seconds)), "{tool}");
    }
}

/// PR-8, PR-9, SB-5: a call past its deadline is taken back and the server probed; one that does not
/// answer that either is started again.
#[tokio::test(start_paused = true)]
async fn a_timeout_leads_to_a_probe_and_a_restart() {
    let server = Scripted::new(&["hang", "a"]);
    let fleet = fleet(vec![member("s", &server)]);
    fleet.listed(2).await;
    let failed = fleet.call("s__hang").await.expect_err("it hangs");
    assert!(
        matches!(failed.error, ProviderError::TimedOut { limit, sent: true } if limit == secs(30)),
        "{failed:?}"
    );
    while !(server.heard("ping") && server.heard("notifications/cancelled")) {
        tokio::task::yield_now().await;
    }
    fleet.state_is("s", "ready").await;
    assert_eq!(server.opened(), 1, "it answered the probe");

    server.go_deaf();
    let begun = Instant::now();
    let later = async {
        tokio::time::advance(secs(20)).await;
        fleet.call("s__hang").await
    };
    let (_, lost) = tokio::join!(fleet.call("s__hang"), later);
    // Its server was started again under it: it may have had its effect, and that is no end of the server.
    let error = lost.expect_err("it hangs").error;
    let expected =
        matches!(error, ProviderError::Unavailable { reason: Unavailable::LinkLost { sent: true }, .. });
    assert!(expected, "{error:?}");
    assert_eq!(begun.elapsed(), secs(30 + 3), "the first call's deadline, and the probe's");
    while server.opened() < 2 {
        tokio::task::yield_now().await;
    }
    assert!(fleet.call("s__a").await.is_ok(), "the new one hears");
}

/// PR-12: a changed list is read again; what is gone is not callable, what is new is.
#[tokio::test(start_paused = true)]
async fn a_changed_list_is_read_again() {
    let server = Scripted::new(&["a", "b"]);
    let fleet = fleet(vec![member("s", &server)]);
    fleet.listed(2).await;
    let mut changes = fleet.fleet.changes();
    changes.borrow_and_update();
    server.offer(&["b", "c", "d"]);
    server.tell("notifications/tools/list_changed").await;
    changes.changed().await.expect("the fleet is there");
    assert_eq!(fleet.names(), ["s__b", "s__c", "s__d"]);
    // Said while it was being started again, it counts all the same.
    server.cut();
    server.say_changed_on_start(&["e"]);
    fleet.listed(1).await;
    assert_eq!(fleet.names(), ["s__e"]);
}

/// PR-11: cancelling reaches the server, and the caller does not wait for it.
#[tokio::test(start_paused = true)]
async fn cancelling_reaches_the_server() {
    let server = Scripted::new(&["hang"]);
    let fleet = fleet(vec![member("s", &server)]);
    fleet.listed(1).await;
    let cancel = CancellationToken::new();
    let begun = Instant::now();
    let call = fleet.call_with("s__hang", cancel.clone());
    let cancelling = async {
        while !server.heard("tools/call") {
            tokio::task::yield_now().await;
        }
        cancel.cancel();
    };
    let (failed, ()) = tokio::join!(call, cancelling);
    let error = failed.expect_err("it was cancelled").error;
    assert!(matches!(error, ProviderError::Cancelled { queued: false, .. }), "{error:?}");
    assert_eq!(begun.elapsed(), Duration::ZERO);
    while !server.heard("notifications/cancelled") {
        tokio::task::yield_now().await;
    }
}

/// PR-5: a server that starts on use is not opened before one of its tools is asked for.
#[tokio::test(start_paused = true)]
async fn a_lazy_server_is_not_started_with_colibri() {
    let (lazy, eager) = (Scripted::new(&["a"]), Scripted::new(&["b"]));
    let mut on_use = member("lazy", &lazy);
    on_use.terms.start = Start::OnUse;
    let fleet = fleet(vec![on_use, member("eager", &eager)]);
    fleet.listed(1).await;
    assert_eq!((lazy.opened(), fleet.names()), (0, vec!["eager__b".to_owned()]));
    let Found::Tool(found) = fleet.fleet.find("lazy__a").await else {
        panic!("asking for its tool starts it")
    };
    assert_eq!((lazy.opened(), &*found.name), (1, "lazy__a"));
    let Found::Refused(refused) = fleet.fleet.find("lazy__z").await else { panic!("there is no such tool") };
    assert_eq!(refused.error.code(), "PROVIDER_TOOL_NOT_FOUND");
    assert!(matches!(fleet.fleet.find("nobody__a").await, Found::Stranger));
}

/// PR-15, SB-9: closing ends every connection, forgets the catalog, may be repeated, and a call after it is told so.
#[tokio::test(start_paused = true)]
async fn closing_ends_them_all() {
    let servers = [Scripted::new(&["a"]), Scripted::new(&["b"]), Scripted::new(&[])];
    servers[2].plan(Opens::Hang);
    let fleet =
        fleet(servers.iter().enumerate().map(|(n, server)| member(&format!("s{n}"), server)).collect());
    fleet.listed(2).await;
    let tool = fleet.tool("s0__a");
    fleet.fleet.close().await;
    fleet.fleet.close().await;
    assert!(servers.iter().all(Scripted::is_ended));
    assert_eq!(fleet.names(), Vec::<String>::new());
    let failed = fleet.call_tool(&tool, CancellationToken::new()).await.expect_err("it is closed");
    assert!(matches!(failed.error, ProviderError::Terminated), "{failed:?}");
}
