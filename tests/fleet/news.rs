//! What happens in the fleet, told to whoever listens.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use colibri::domain::event::{Event, News};
use colibri::domain::log::{Level, Logger};
use colibri::fleet::bus::{Heard, Subscription};

use super::support::{Opens, Scripted, fleet, logging, member, secs};

/// The next event of that topic.
pub(super) async fn next(subscription: &mut Subscription, topic: &str) -> Arc<Event> {
    loop {
        match subscription.next().await.expect("the fleet is there") {
            Heard::Event(event) if event.topic() == topic => return event,
            Heard::Event(_) => {}
            Heard::Missed(count) => panic!("missed {count}"),
        }
    }
}

/// SB-7, SB-8: a server is found, lost and found again, its list changes; each is told once, in order, numbered by topic,
/// and joined by the episode's id.
#[tokio::test(start_paused = true)]
async fn the_life_of_a_server_is_told() {
    let server = Scripted::new(&["a", "b"]);
    let fleet = fleet(vec![member("s", &server)]);
    let (_, mut heard) = fleet.fleet.bus().subscribe();
    let found = next(&mut heard, "provider.mcp.tools.discovered").await;
    let names = vec!["a".to_owned(), "b".to_owned()];
    assert_eq!(found.news, News::ToolsDiscovered { count: 2, names });
    assert_eq!((found.sequence, found.server.as_str()), (1, "s"));

    server.offer(&["b", "c"]);
    server.tell("notifications/tools/list_changed").await;
    let changed = next(&mut heard, "provider.mcp.tools.refreshed").await;
    let News::ToolsRefreshed(diff) = &changed.news else { panic!("{changed:?}") };
    assert_eq!(
        (&diff.added[..], &diff.removed[..], diff.unchanged),
        (&["c".to_owned()][..], &["a".to_owned()][..], 1)
    );

    server.plan_all([Opens::Fail(super::refused()), Opens::Fail(super::refused())]);
    server.cut();
    let lost = next(&mut heard, "provider.mcp.disconnected").await;
    let worse = next(&mut heard, "provider.health.changed").await;
    let back = next(&mut heard, "provider.mcp.reconnected").await;
    assert_eq!(lost.correlation_id, back.correlation_id, "one episode");
    assert_eq!(lost.correlation_id, worse.correlation_id);
    let News::Reconnected { attempts, downtime_ms } = back.news else { panic!("{back:?}") };
    assert_eq!((attempts, downtime_ms), (3, 3000));
}

/// SB-7: a subscriber that sleeps misses the oldest, is told how many, and holds up nobody.
#[tokio::test(start_paused = true)]
async fn who_sleeps_is_told_what_it_missed() {
    let server = Scripted::new(&["a"]);
    let fleet = fleet(vec![member("s", &server)]);
    fleet.listed(1).await;
    let (_, mut asleep) = fleet.fleet.bus().subscribe();
    let flood = 5_000_u64;
    let episode = colibri::domain::audit::CallId(uuid::Uuid::nil());
    for _ in 0..flood {
        let news = News::Disconnected { reason: "again".to_owned() };
        fleet.fleet.bus().tell("s", episode, news);
    }
    let Some(Heard::Missed(missed)) = asleep.next().await else { panic!("it missed some") };
    let mut seen = BTreeSet::new();
    for _ in missed..flood {
        let Some(Heard::Event(event)) = asleep.next().await else { panic!("what is left is there") };
        seen.insert(event.sequence);
    }
    assert_eq!(missed + seen.len() as u64, flood);
    assert_eq!(seen.last().copied(), Some(flood), "the newest are kept");
    let (kept, _) = fleet.fleet.bus().subscribe();
    assert!(!kept.is_empty() && kept.len() <= 256, "{}", kept.len());
}

/// SB-8: a server that cannot be had again is told as exhausted, with its attempts.
#[tokio::test(start_paused = true)]
async fn giving_up_is_told() {
    let server = Scripted::new(&["a"]);
    let mut bounded = member("s", &server);
    let restart = colibri::domain::life::Restart::preset_bounded();
    bounded.settings.policy.restart = colibri::domain::life::Restart { jitter: 0.0, ..restart };
    let fleet = fleet(vec![bounded]);
    fleet.listed(1).await;
    let (_, mut heard) = fleet.fleet.bus().subscribe();
    server.plan_all(vec![Opens::Fail(super::refused()); 10]);
    let begun = tokio::time::Instant::now();
    server.cut();
    let over = next(&mut heard, "provider.mcp.reconnect.exhausted").await;
    assert_eq!(over.news, News::ReconnectExhausted { attempts: 10 });
    assert_eq!(begun.elapsed(), secs(1 + 2 + 4 + 8 + 16 + 5 * 30), "1 s, doubled, at most 30 s, ten times");
}

/// PR-16: four severities, each line with the server it is of: bodies without secrets and lists at trace, latencies and
/// what is filtered at debug, restarts at warn, failed connects at error.
#[tokio::test(start_paused = true)]
async fn lines_have_a_severity() {
    let lines: Arc<Mutex<Vec<(Level, String)>>> = Arc::default();
    let kept = Arc::clone(&lines);
    let logger = Logger::new(Level::Trace, move |level, line| {
        kept.lock().expect("sound").push((level, line.to_owned()));
    });
    let server = Scripted::new(&["a", "hidden"]);
    let mut filtered = member("s", &server);
    filtered.terms.filter = colibri::domain::filter::Filter::new(&[] as &[&str], &["hidden"]).expect("short");
    let fleet = logging(vec![filtered], logger);
    fleet.masks.hide(["c4n4ry-token"]);
    fleet.listed(1).await;
    fleet.call_saying("s__a", br#"{"token":"c4n4ry-token"}"#).await.expect("it works");
    server.plan(Opens::Fail(super::refused()));
    server.cut();
    fleet.state_is("s", "backoff").await;
    let lines = lines.lock().expect("sound").clone();
    let said =
        |level: Level, words: &str| lines.iter().any(|(at, line)| *at == level && line.contains(words));
    for (level, words) in [
        (Level::Trace, "[mcp:s] memory, revision 2025-11-25: a, hidden"),
        (Level::Trace, r#"[mcp:s] a asked: {"token":"***"}"#),
        (Level::Debug, "filtered or withheld: s__hidden"),
        (Level::Debug, "[mcp:s] a: 0 ms, "),
        (Level::Info, "[mcp:s] ready with 2 tools after 0 ms"),
        (Level::Warn, "[mcp:s] backoff: "),
        (Level::Error, "[mcp:s] could not be connected: "),
    ] {
        assert!(said(level, words), "{level:?} {words}: {lines:#?}");
    }
    assert!(!lines.iter().any(|(_, line)| line.contains("c4n4ry")), "{lines:#?}");
}
