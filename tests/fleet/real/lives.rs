//! How real processes are lost, come back, rest and are joined.

use std::collections::BTreeSet;
use std::time::Instant;

use serde_json::{Value, json};

use super::stage::{Stage, text, told};
use crate::cli::run;
use crate::fleet::canary::{Web, call, state};
use crate::fleet::children::{processes, started};
use crate::support::until;

/// PR-9: a server that stayed up as long as `restart.stable` says is started again as if for the first time, however often
/// it is lost; one that dies younger waits for its second delay.
#[test]
fn a_stable_time_forgives() {
    let entry = |stable: u64| json!({ "restart": { "delays": [0, 600_000], "stable": stable, "jitter": 0 } });
    let stage = Stage::start(&[("old", "a", entry(1)), ("young", "a", entry(600_000))], &json!({}));
    for round in 1..=3 {
        stage.await_state("old", "ready");
        stage.kill("old");
        until("it is back at once", || (stage.starts("old").len() == round + 1).then_some(()));
    }
    stage.await_state("old", "ready");
    let back = stage.events("old", "provider.mcp.reconnected");
    assert_eq!(back.len(), 3);
    stage.await_state("young", "ready");
    stage.kill("young");
    until("the first time at once", || {
        (stage.events("young", "provider.mcp.reconnected").len() == 1).then_some(())
    });
    stage.await_state("young", "ready");
    stage.kill("young");
    let waits = stage.await_state("young", "backoff");
    assert!(waits["trouble"].as_str().is_some_and(|said| said.contains("attempt 2 in ")), "{waits}");
    assert_eq!(stage.starts("young").len(), 2);
    stage.colibri.finish();
}

/// PR-9, SB-7: `restart.jitter` lengthens delays, each by its own chance, and never shortens one; without it a delay is as
/// it is written. How long a server was down is told with its return.
#[test]
fn jitter_sets_them_apart() {
    const DELAY: u64 = 400;
    let entry = |jitter: f64| json!({ "restart": { "delays": [DELAY], "jitter": jitter } });
    let names = ["exact", "a", "b", "c", "d", "e", "f"];
    let servers = names.map(|name| (name, "t", entry(if name == "exact" { 0.0 } else { 1.0 })));
    let stage = Stage::start(&servers, &json!({}));
    for name in names {
        stage.await_state(name, "ready");
    }
    for name in names {
        stage.kill(name);
    }
    let (mut announced, mut apart) = (Vec::new(), BTreeSet::new());
    for name in names {
        let back = until("it is back", || stage.events(name, "provider.mcp.reconnected").pop());
        let downtime = back["payload"]["downtime_ms"].as_u64().unwrap();
        assert!(back["payload"]["attempts"] == 1 && downtime >= DELAY, "{name}: {back}");
        let changes = stage.events(name, "provider.state.changed");
        let waits = changes.iter().find(|event| event["payload"]["to"] == "backoff").unwrap();
        let said = waits["payload"]["reason"].as_str().unwrap();
        let wait: u64 = said.rsplit(' ').nth(1).unwrap().parse().unwrap_or_else(|_| panic!("{said}"));
        assert!(wait <= 2 * DELAY && wait <= downtime, "{name}: {said}");
        if name == "exact" {
            announced.push(wait);
        } else {
            apart.insert(wait);
        }
    }
    assert!(announced[0] <= DELAY && apart.len() > 3, "{announced:?} {apart:?}");
    stage.colibri.finish();
}

/// SB-7, SB-8, PR-9: when a server comes back after attempts that failed, it is told how many there were and how long it was
/// down: no less than its delays, and no more than passed.
#[test]
fn how_long_it_was_down_is_told() {
    let entry = json!({ "restart": { "delays": [100, 250], "jitter": 0 }, "acquireTimeout": 1 });
    let mut stage = Stage::start(&[("s", "a", entry)], &json!({}));
    stage.await_state("s", "ready");
    stage.set("s", "down");
    let begun = Instant::now();
    stage.kill("s");
    let waits = |stage: &Stage| {
        let changes = stage.events("s", "provider.state.changed");
        changes.iter().filter(|event| event["payload"]["to"] == "backoff").count()
    };
    until("it was lost, and two attempts failed", || (waits(&stage) >= 3).then_some(()));
    let meanwhile = stage.call("s__a", &json!({}));
    assert_eq!(told(&meanwhile), ("PROVIDER_UNAVAILABLE".to_owned(), "no".to_owned()), "{meanwhile}");
    stage.unset("s", "down");
    let back = until("it is back", || stage.events("s", "provider.mcp.reconnected").pop());
    let (attempts, downtime) =
        (back["payload"]["attempts"].as_u64().unwrap(), back["payload"]["downtime_ms"].as_u64().unwrap());
    let waited = 100 + 250 * (attempts - 1);
    assert!(attempts >= 3 && downtime >= waited, "{back}");
    assert!(u128::from(downtime) <= begun.elapsed().as_millis(), "{back}");
    assert_eq!(text(&stage.call("s__a", &json!({}))), "a");
    stage.colibri.finish();
}

/// PR-9: the words that a process says when it ends reach nobody: started again by hand until three have said theirs, it has
/// run once more than that, and nothing else was started or listed for them.
#[test]
fn last_words_of_an_old_process_change_nothing() {
    let mut stage = Stage::start(&[("s", "a", json!({}))], &json!({}));
    stage.await_state("s", "ready");
    let mut restarts = 0;
    // A process that takes too long to end is ended before its last words.
    until("three have said their last words", || {
        let ran = run(&stage.colibri.home, &["server", "restart", "s"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        restarts += 1;
        (stage.count("s", "end") >= 3).then_some(())
    });
    assert_eq!(text(&stage.call("s__a", &json!({}))), "a");
    let standing = stage.standing("s");
    let told = (&standing["restarts"], &standing["starts"]);
    assert_eq!(told, (&json!(restarts), &json!(restarts + 1)), "{standing}");
    let heard = (stage.starts("s").len(), stage.count("s", "tools/list"));
    assert_eq!(heard, (restarts + 1, restarts + 1), "{:?}", stage.heard("s"));
    stage.colibri.finish();
}

/// PR-6: a server that starts on use is closed when nobody has called it for `idleClose`, its tools stay known, and the next
/// call starts it; a call that takes longer than that keeps it, and so does a client the one that starts with colibri.
#[test]
fn an_unused_process_rests() {
    // In the command lines of its processes, and in no other's.
    let lazy = &format!("lazy-{}", std::process::id());
    let (entry, tool) =
        (json!({ "start": "onUse", "idleClose": 300 }), |tool: &str| format!("{lazy}__{tool}"));
    let servers = [(lazy.as_str(), "a slow", entry), ("eager", "b", json!({ "idleClose": 300 }))];
    let mut stage = Stage::start(&servers, &json!({}));
    stage.await_state("eager", "ready");
    let rests = stage.await_state(lazy, "idle");
    assert_eq!((&rests["pid"], stage.starts(lazy).len(), processes(lazy).len()), (&Value::Null, 0, 0));
    // Who calls a server that nobody knows yet has it started, but holds it only when the call itself begins: on a busy
    // machine it may have been closed by then, and is started once more.
    assert_eq!(text(&stage.call(&tool("a"), &json!({}))), "a");
    stage.await_state(lazy, "idle");
    until("its process has ended", || processes(lazy).is_empty().then_some(()));
    assert!(stage.listed().contains(&tool("a")), "what it offers is still known");
    let before = stage.starts(lazy).len();
    assert_eq!(text(&stage.call(&tool("slow"), &json!({ "s": 1 }))), "slow");
    assert_eq!(stage.starts(lazy).len(), before + 1, "the call started it, and kept it");
    assert_eq!(stage.starts("eager").len(), 1);
    assert_eq!(stage.standing("eager")["state"], "ready", "a client is there");
    stage.colibri.finish();
}

/// PR-2, PR-5, PR-9: an attempt takes no longer than `connectTimeout`, its process is ended, and another follows; under
/// `initConcurrency` the next server starts when the first attempt of the one before is over.
#[test]
fn a_process_that_says_nothing_is_given_up() {
    let home = crate::hostile::child::Home::new();
    std::fs::write(home.path().join("mute.mute"), "").unwrap();
    let mute = json!({ "connectTimeout": 1500, "restart": { "delays": [50] } });
    let servers = [("mute", "a", mute), ("well", "b", json!({}))];
    let mut stage = Stage::start_in(home, &servers, &json!({ "initConcurrency": 1 }), &[]);
    stage.await_state("well", "ready");
    assert_eq!(text(&stage.call("well__b", &json!({}))), "b");
    until("it is tried again", || (stage.starts("mute").len() >= 2).then_some(()));
    let changed = |server: &str, key: &str| {
        let changes = stage.events(server, "provider.state.changed");
        let first = changes.iter().find(|event| event["payload"][key] == "connecting");
        first.and_then(|event| event["sequence"].as_u64()).unwrap_or_else(|| panic!("{server}: {changes:?}"))
    };
    let (is_over, begins) = (changed("mute", "from"), changed("well", "to"));
    assert!(is_over < begins, "one after the other: {is_over} {begins}");
    stage.unset("mute", "mute");
    stage.await_state("mute", "ready");
    assert_eq!(text(&stage.call("mute__a", &json!({}))), "a");
    stage.colibri.finish();
}

/// PR-5, PR-7: what a server offered in another run is listed at once by the next colibri, though its process says nothing;
/// a call of it waits as long as it may, and no longer.
#[test]
fn the_last_catalog_outlives_colibri() {
    let servers = [("s", "a b c", json!({ "acquireTimeout": 300 }))];
    let stage = Stage::start(&servers, &json!({}));
    stage.await_state("s", "ready");
    let home = stage.leave();
    std::fs::write(home.path().join("s.mute"), "").unwrap();
    let mut stage = Stage::start_in(home, &servers, &json!({}), &[]);
    assert_eq!(stage.listed(), ["s__a", "s__b", "s__c"]);
    let waited = stage.call("s__a", &json!({}));
    assert_eq!(told(&waited), ("PROVIDER_UNAVAILABLE".to_owned(), "no".to_owned()), "{waited}");
    stage.colibri.finish();
}

/// PR-7: ten calls at once of a server that nobody has started share one start.
#[test]
fn calls_share_one_start() {
    let mut stage = Stage::start(&[("s", "a", json!({ "start": "onUse" }))], &json!({}));
    let ids: Vec<u64> = (0..10).map(|_| stage.send_call("s__a", &json!({}))).collect();
    let mut answered = BTreeSet::new();
    while answered.len() < ids.len() {
        let answer = stage.colibri.answer();
        if let Some(id) = answer["id"].as_u64() {
            assert_eq!(text(&answer), "a", "{answer}");
            answered.insert(id);
        }
    }
    assert_eq!(stage.starts("s").len(), 1);
    stage.colibri.finish();
}

/// PR-9: a server that answers 401 is not tried again by itself: a call is told why at once, until a person, or a later call,
/// asks anew.
#[test]
fn who_is_refused_waits_for_a_change() {
    let folder = tempfile::tempdir().unwrap();
    let web = Web::start(0, folder.path());
    let entry = json!({ "url": format!("http://127.0.0.1:{}/mcp", web.port), "restart": { "delays": [0] } });
    let mut colibri = started(&json!({ "mcpServers": { "web": entry } }));
    colibri.initialize("2025-11-25");
    until("it is blocked", || (state(&colibri.home, "web") == "blocked").then_some(()));
    let starts = |colibri: &crate::hostile::child::Colibri| {
        run(&colibri.home, &["server", "list", "--json"]).json()["servers"][0]["starts"].take()
    };
    let before = starts(&colibri);
    let refused = call(&mut colibri, 1, "web__echo");
    assert_eq!(told(&refused), ("PROVIDER_INIT_FAILED".to_owned(), "no".to_owned()), "{refused}");
    std::fs::write(folder.path().join("open"), "").unwrap();
    assert_eq!(
        (state(&colibri.home, "web"), starts(&colibri)),
        (json!("blocked"), before),
        "nobody has asked"
    );
    let ran = run(&colibri.home, &["server", "restart", "web"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(text(&call(&mut colibri, 2, "web__echo")), "from the web");
    colibri.finish();
}

/// PR-2: `${VAR}` and `${VAR:-default}` reach the process filled in; an entry whose variable is missing is not started, and it
/// is said which server, field and variable that is.
#[test]
fn variables_reach_the_process() {
    let entry = |secret: &str| json!({ "command": "sh", "args": ["-c", crate::cli::SERVER], "env": { "SECRET": secret } });
    let servers = json!({
        "filled": entry("${COLIBRI_DB_PATH}"),
        "given": entry("${NOT_SET_HERE:-by default}"),
        "missing": entry("${NOT_SET_HERE}"),
    });
    let mut colibri = started(&json!({ "mcpServers": servers }));
    colibri.initialize("2025-11-25");
    let filled = colibri.home.database().display().to_string();
    for (id, tool, expected) in [(1, "filled__echo", filled.as_str()), (2, "given__echo", "by default")] {
        let answer = call(&mut colibri, id, tool);
        assert_eq!(answer["result"]["env"], expected, "{answer}");
    }
    let log = colibri.log();
    let told = log
        .lines()
        .find(|line| line.contains("[mcp:missing] not started"))
        .unwrap_or_else(|| panic!("{log}"));
    assert!(told.contains("NOT_SET_HERE") && told.contains("env"), "{told}");
    assert_eq!(call(&mut colibri, 3, "missing__echo")["error"]["code"], -32_602);
    colibri.finish();
}
