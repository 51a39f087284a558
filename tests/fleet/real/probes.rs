//! Signs of life of real processes.
#![expect(clippy::unwrap_used, reason = "a story ends at the first surprise")]

use serde_json::{Value, json};

use super::stage::{Stage, text, told};
use crate::support::until;

fn healths(stage: &Stage, server: &str) -> Vec<String> {
    let events = stage.events(server, "provider.health.changed");
    events.iter().map(|event| event["payload"]["to"].as_str().unwrap().to_owned()).collect()
}

/// PR-8, PR-9: a process that does not answer three periodic probes is degraded, and another is started in its place; one
/// answered list, and it is healthy.
#[test]
fn three_silent_probes_are_a_restart() {
    // Long enough for any answer that comes at all: one that is late three times would be a restart too.
    let entry = json!({ "probeInterval": 100, "probeTimeout": 1000, "restart": { "delays": [50] } });
    let mut stage = Stage::start(&[("s", "deafen a", entry)], &json!({}));
    until("it is probed", || (stage.count("s", "ping") >= 2).then_some(()));
    let before = stage.await_state("s", "ready")["pid"].clone();
    assert_eq!(text(&stage.call("s__deafen", &json!({}))), "deafen");
    let steps = until("it is healthy again", || Some(healths(&stage, "s")).filter(|steps| steps.len() >= 4));
    assert_eq!(steps, ["degraded", "healthy", "degraded", "healthy"]);
    let after = stage.await_state("s", "ready");
    assert!(after["pid"] != before && after["failed_probes"].as_u64() >= Some(3), "{after}");
    assert_eq!(text(&stage.call("s__a", &json!({}))), "a");
    stage.colibri.finish();
}

/// PR-8: how a process is asked: by a ping; by its list where the entry says so, or where it refuses pings; by
/// `server/discover` in the newer family. All of them are well.
#[test]
fn each_is_asked_in_its_own_way() {
    let home = crate::hostile::child::Home::new();
    for flag in ["refusing.refuses", "modern.modern"] {
        std::fs::write(home.path().join(flag), "").unwrap();
    }
    let entry = |probe: &str| json!({ "probeInterval": 50, "healthProbe": probe });
    let servers = [
        ("pinged", "a", entry("ping")),
        ("listed", "a", entry("listTools")),
        ("refusing", "a", entry("ping")),
        ("modern", "a", entry("ping")),
    ];
    let stage = Stage::start_in(home, &servers, &json!({}), &[]);
    for (server, asked, not_asked) in [
        ("pinged", "ping", None),
        ("listed", "tools/list", Some("ping")),
        ("refusing", "tools/list", None),
        ("modern", "server/discover", Some("ping")),
    ] {
        until(server, || (stage.count(server, asked) >= 4).then_some(()));
        let standing = stage.standing(server);
        assert!(matches!(standing["state"].as_str(), Some("ready" | "probing")), "{standing}");
        assert_eq!((&standing["failed_probes"], &standing["restarts"]), (&json!(0), &json!(0)), "{standing}");
        assert!(not_asked.is_none_or(|word| stage.count(server, word) == 0), "{:?}", stage.heard(server));
    }
    assert_eq!(stage.count("pinged", "tools/list"), 1);
    stage.colibri.finish();
}

/// PR-8, SB-5: calls that run out of time while a probe is under way make no other probe; answered, it restarts nothing.
#[test]
fn timeouts_share_a_probe() {
    let entry = json!({ "timeout": 1500, "probeInterval": 0, "probeTimeout": 20_000 });
    let mut stage = Stage::start(&[("s", "hang a", entry)], &json!({}));
    stage.await_state("s", "ready");
    stage.set("s", "slow");
    let ids: Vec<u64> = (0..8).map(|_| stage.send_call("s__hang", &json!({}))).collect();
    for _ in &ids {
        let answer = std::iter::repeat_with(|| stage.colibri.answer()).find(|answer| answer["id"].is_u64());
        let (code, executed) = told(&answer.unwrap());
        assert_eq!((code.as_str(), executed.as_str()), ("PROVIDER_TIMEOUT", "unknown"));
    }
    until("each is taken back", || {
        (stage.count("s", "notifications/cancelled timeout") == ids.len()).then_some(())
    });
    let standing = stage.await_state("s", "ready");
    assert_eq!((&standing["probes"], &standing["restarts"]), (&json!(1), &json!(0)), "{standing}");
    assert_eq!(text(&stage.call("s__a", &json!({}))), "a");
    stage.colibri.finish();
}

/// PR-8, SB-8: five failed starts in a row make it unavailable, though attempts go on; the first that succeeds, healthy.
#[test]
fn five_failed_starts_are_unavailable() {
    let entry = json!({ "restart": { "delays": [20] } });
    let stage = Stage::start(&[("s", "a", entry)], &json!({}));
    stage.await_state("s", "ready");
    stage.set("s", "down");
    stage.kill("s");
    until("it is unavailable", || (healths(&stage, "s").last()? == "unavailable").then_some(()));
    assert!(stage.starts("s").len() >= 6, "the one that ran, and five that did not");
    stage.unset("s", "down");
    until("it is healthy again", || (healths(&stage, "s").last()? == "healthy").then_some(()));
    let steps: Vec<String> = healths(&stage, "s").split_off(2);
    assert_eq!(steps, ["degraded", "unavailable", "healthy"]);
    assert_ne!(stage.standing("s")["state"], Value::Null);
    stage.colibri.finish();
}
