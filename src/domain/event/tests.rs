//! What is told, of what, and in which words.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use super::*;
use crate::domain::life::{self, Policy, Restart};
use serde_json::{Value, json};
use uuid::Uuid;

fn hash(byte: u8) -> Hash {
    Hash([byte; 32])
}

fn every() -> Vec<News> {
    let tool = || "read".to_owned();
    vec![
        News::ToolsDiscovered { count: 1, names: vec![tool()] },
        News::ToolsRefreshed(Diff { unchanged: 1, ..Diff::default() }),
        News::ToolCompleted { tool: tool(), duration_ms: 4, summary: "done".to_owned() },
        News::failed("read", &ProviderError::TimedOut { limit: Duration::from_secs(1), sent: true }),
        News::ToolChanged {
            tool: tool(),
            kind: "changed",
            pinned: Some(hash(1)),
            found: hash(2),
            enforced: true,
            more: 0,
        },
        News::ToolFlagged { tool: tool(), found: vec!["a tag".to_owned()] },
        News::OutputMismatch { tool: tool(), message: "/a".to_owned() },
        News::Disconnected { reason: "exit 1".to_owned() },
        News::Reconnected { attempts: 2, downtime_ms: 1000 },
        News::ReconnectExhausted { attempts: 10 },
        News::StateChanged { from: "ready", to: "backoff", reason: None },
        News::HealthChanged { from: Health::Healthy, to: Health::Degraded, reason: "exit 1".to_owned() },
    ]
}

/// SB-7: each with a correlation id, a sequence of its topic and a timestamp; the topic on the wire is the
/// topic of the type.
#[test]
fn events_as_subscribers_get_them() {
    let (mut sequences, id) = (Sequences::default(), CallId(Uuid::nil()));
    for round in 1..=2 {
        for news in every() {
            let topic = news.topic();
            let event = sequences.stamp("fs", id, Timestamp(0), news);
            assert_eq!((event.topic(), event.sequence), (topic, round), "topics are counted one by one");
            let shown = serde_json::to_value(&event).unwrap();
            assert_eq!((&shown["topic"], &shown["sequence"]), (&json!(topic), &json!(round)));
            assert!(shown["payload"].is_object(), "{shown}");
        }
    }
    let event = sequences.stamp("fs", id, Timestamp(1_794_776_101_123), every().swap_remove(3));
    assert_eq!(
        serde_json::to_value(event).unwrap(),
        json!({
            "topic": "provider.mcp.tool.failed",
            "sequence": 3,
            "timestamp": "2026-11-15T20:55:01.123Z",
            "correlation_id": "00000000-0000-0000-0000-000000000000",
            "server": "fs",
            "payload": {
                "tool": "read",
                "code": "PROVIDER_TIMEOUT",
                "retryable": true,
                "message": "no answer within 1000 ms",
            },
        })
    );
}

/// SB-7: what the contract names, under the names it has there.
#[test]
fn the_topics_of_the_contract() {
    let payload = |news: &News| serde_json::to_value(news).unwrap()["payload"].take();
    let fields = |payload: Value| payload.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    let told: BTreeMap<&str, String> =
        every().iter().map(|news| (news.topic(), fields(payload(news)))).collect();
    for (topic, carries) in [
        ("provider.mcp.tools.discovered", "count names"),
        ("provider.mcp.tools.refreshed", "added changed removed unchanged"),
        ("provider.mcp.tool.completed", "duration_ms summary tool"),
        ("provider.mcp.tool.failed", "code message retryable tool"),
        ("provider.mcp.disconnected", "reason"),
        ("provider.mcp.reconnected", "attempts downtime_ms"),
        ("provider.mcp.reconnect.exhausted", "attempts"),
        ("provider.health.changed", "from reason to"),
    ] {
        assert_eq!(told.get(topic).map(String::as_str), Some(carries), "{topic}");
    }
    assert_eq!(told.len(), every().len(), "no two kinds share a topic");
}

fn at(seconds: u64) -> Moment {
    Moment { wall: Timestamp(seconds * 1000), since_boot: Duration::from_secs(seconds) }
}

/// One line per piece of news, with the second at which it is told. A probe that comes at 31 s and goes
/// at 32 s is none.
const NEWS_OF_A_LIFE: &str = r#"
0 provider.state.changed {"from":"idle","to":"connecting"}
0 provider.health.changed {"from":"unavailable","reason":"connecting","to":"degraded"}
1 provider.state.changed {"from":"connecting","to":"ready"}
1 provider.health.changed {"from":"degraded","reason":"ready","to":"healthy"}
40 provider.mcp.disconnected {"reason":"exit 1"}
40 provider.state.changed {"from":"ready","reason":"exit 1; attempt 1 in 1 s","to":"backoff"}
40 provider.health.changed {"from":"healthy","reason":"exit 1; attempt 1 in 1 s","to":"degraded"}
41 provider.state.changed {"from":"backoff","reason":"exit 1","to":"restarting"}
42 provider.state.changed {"from":"restarting","reason":"refused; attempt 2 in 2 s","to":"backoff"}
44 provider.state.changed {"from":"backoff","reason":"refused","to":"restarting"}
45 provider.mcp.reconnected {"attempts":2,"downtime_ms":5000}
45 provider.state.changed {"from":"restarting","to":"ready"}
45 provider.health.changed {"from":"degraded","reason":"ready","to":"healthy"}
46 provider.mcp.disconnected {"reason":"exit 2"}
46 provider.mcp.reconnect.exhausted {"attempts":2}
46 provider.state.changed {"from":"ready","reason":"exit 2; gave up after 2 attempts: restart it by hand","to":"exhausted"}
46 provider.health.changed {"from":"healthy","reason":"exit 2; gave up after 2 attempts: restart it by hand","to":"unavailable"}
47 provider.state.changed {"from":"exhausted","to":"closing"}
"#;

/// SB-7, SB-8: the news of a life, step by step.
#[test]
fn the_news_of_a_life() {
    let restart = Restart { jitter: 0.0, max_attempts: Some(2), ..Restart::preset_bounded() };
    let policy = Policy { restart, probe_interval: Some(Duration::from_secs(30)) };
    let (mut state, mut told) = (State::new(), "\n".to_owned());
    for (seconds, event) in [
        (0, life::Event::Wanted),
        (1, life::Event::Listed(1)),
        (31, life::Event::Woke),
        (32, life::Event::ProbePassed(1)),
        (40, life::Event::Lost(1, "exit 1".into())),
        (41, life::Event::Woke),
        (42, life::Event::ConnectFailed(2, life::Failure { reason: "refused".into(), lasting: None })),
        (44, life::Event::Woke),
        (45, life::Event::Listed(3)),
        (46, life::Event::Lost(3, "exit 2".into())),
        (47, life::Event::Close),
    ] {
        let before = state.clone();
        state = state.on(event, at(seconds), &policy, 0.0);
        for news in News::of_change(&before, &state, at(seconds)) {
            let payload = serde_json::to_value(&news).unwrap()["payload"].take();
            writeln!(told, "{seconds} {} {payload}", news.topic()).unwrap();
        }
    }
    assert_eq!(told, NEWS_OF_A_LIFE);
}

/// SB-7: added, removed, changed, and how many are as they were.
#[test]
fn the_difference_between_two_catalogs() {
    let catalog = |names: &[(&'static str, u8)]| -> BTreeMap<&str, Hash> {
        names.iter().map(|(name, digest)| (*name, hash(*digest))).collect()
    };
    let before = catalog(&[("a", 1), ("b", 1), ("c", 1), ("d", 1)]);
    let after = catalog(&[("e", 1), ("b", 2), ("c", 1), ("d", 1)]);
    let diff = Diff::between(&before, &after);
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!((diff.added, diff.removed), (names(&["e"]), names(&["a"])));
    assert_eq!((diff.changed, diff.unchanged), (names(&["b"]), 2));
    assert!(Diff::between(&after, &after).is_empty());
    assert!(!Diff::between(&before, &after).is_empty());
}

/// SB-7: a summary is at most 1 KiB, whole characters of it.
#[test]
fn summaries_are_short() {
    assert_eq!(summary("short"), "short");
    assert_eq!(summary(&"x".repeat(1024)).len(), 1024);
    let long = summary(&"é".repeat(5000));
    assert!(long.len() <= SUMMARY_BYTES_MAX && long.ends_with("é…"), "{}", long.len());
}

/// SB-7: however many tools a server has, and however long their names, an event stays small; how many there are is
/// told all the same.
#[test]
fn names_in_events_have_bounds() {
    let long = "é".repeat(1000);
    let many: BTreeMap<String, Hash> = (0..5000).map(|number| (format!("{number}{long}"), hash(1))).collect();
    let bytes = |news: News| serde_json::to_vec(&news.bounded()).unwrap().len();
    let names: Vec<String> = many.keys().cloned().collect();
    assert!(bytes(News::ToolsDiscovered { count: names.len(), names }) < 64 << 10);
    let News::ToolsRefreshed(diff) = News::ToolsRefreshed(Diff::between(&BTreeMap::new(), &many)).bounded()
    else {
        panic!("it is the same")
    };
    assert_eq!((diff.added.len(), diff.more), (NAMES_MAX, 5000 - NAMES_MAX as u64));
    assert!(diff.added[0].ends_with('…') && diff.added[0].len() < 300, "{}", diff.added[0]);
    let call = News::ToolCompleted { tool: long, duration_ms: 1, summary: String::new() };
    assert!(bytes(call) < 1 << 10);
    let short = News::ToolFlagged { tool: "read".to_owned(), found: Vec::new() };
    assert_eq!(short.clone().bounded(), short);
}
