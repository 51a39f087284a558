//! Twelve servers that crash, hang, flood, vanish, come back and change their lists, while calls go on: what is well stays
//! well, every call is answered, nothing is left, and the ledger verifies.
#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "a story ends at the first surprise")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cli::run;
use crate::fleet::processes;
use crate::hostile::child::{Colibri, Home};

/// Servers that misbehave, and servers that do not.
const WILD: usize = 10;
const TAME: usize = 2;

/// Calls that are under way at any moment.
const CALLS: usize = 32;

/// PR-17, SB-12: chaos with a printed seed; `COLIBRI_SEED` takes it back.
#[test]
fn what_is_well_stays_well() {
    let seed = std::env::var("COLIBRI_SEED").unwrap_or_else(|_| uuid::Uuid::now_v7().to_string());
    println!("COLIBRI_SEED={seed}");
    let seconds = if crate::work::client::is_full_check() { 40 } else { 8 };
    let mark = format!("chaos-{}", std::process::id());
    let mut colibri = start(&seed, &mark);
    let outcomes = storm(&mut colibri, Duration::from_secs(seconds));
    println!("{outcomes:?}");
    for tame in 0..TAME {
        let outcomes = &outcomes[&format!("tame{tame}")];
        assert_eq!(outcomes.keys().collect::<Vec<_>>(), ["ok"], "tame{tame}: {outcomes:?}");
    }
    // No server was removed, and colibri did not stop.
    assert!(outcomes.values().all(|of| !of.contains_key("PROVIDER_TERMINATED")), "{outcomes:?}");
    assert!(outcomes.values().map(|of| of.get("ok").unwrap_or(&0)).sum::<u64>() > 100, "{outcomes:?}");
    colibri.end_input();
    colibri.rest();
    assert_eq!(colibri.exit_code(), 0, "{}", colibri.log());
    assert!(processes(&mark).is_empty(), "{:?}", processes(&mark));
    let verified = run(&colibri.home, &["audit", "verify"]);
    assert_eq!(verified.code, 0, "{verified:?}");
    let listed = run(&colibri.home, &["audit", "list", "-n", "100000", "--json"]);
    let open = listed.stdout.lines().filter(|line| !line.contains("\"outcome\":\"")).count();
    assert_eq!(open, 0, "an exit for every enter");
}

fn start(seed: &str, mark: &str) -> Colibri {
    let home = Home::new();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/chaos/server.py");
    let server = |name: &str, chaos: &str| {
        json!({
            "command": "python3", "args": [script, name, seed, chaos, mark], "timeout": 1000, "acquireTimeout": 1000,
            "probeTimeout": 500, "restart": { "delays": [0, 100, 300], "jitter": 0 },
        })
    };
    let mut servers = serde_json::Map::new();
    for number in 0..WILD {
        servers.insert(format!("wild{number}"), server(&format!("wild{number}"), "1"));
    }
    for number in 0..TAME {
        let mut tame = server(&format!("tame{number}"), "0");
        (tame["timeout"], tame["acquireTimeout"]) = (json!(30_000), json!(30_000));
        servers.insert(format!("tame{number}"), tame);
    }
    let file = home.path().join("servers.json");
    std::fs::write(&file, json!({ "mcpServers": servers }).to_string()).unwrap();
    let mut command = home.command();
    command.arg("--config").arg(&file).args(["--log", "error", "serve"]);
    let mut colibri = Colibri::spawn(home, command);
    colibri.initialize("2025-11-25");
    await_tame(&mut colibri);
    colibri
}

/// Those that behave are listed; of the others, whatever has come up.
fn await_tame(colibri: &mut Colibri) {
    let mut id = 1_000_000;
    loop {
        colibri.send(&json!({ "jsonrpc": "2.0", "id": id, "method": "tools/list" }).to_string());
        let mut answer = colibri.answer();
        while answer["id"] != id {
            answer = colibri.answer();
        }
        let names = answer["result"]["tools"].to_string();
        if (0..TAME).all(|number| names.contains(&format!("tame{number}__work"))) {
            return;
        }
        id += 1;
    }
}

/// Keeps so many calls under way for so long, then waits for the last answer. Outcomes by server.
fn storm(colibri: &mut Colibri, length: Duration) -> BTreeMap<String, BTreeMap<String, u64>> {
    let until = Instant::now() + length;
    let (mut next, mut under_way) = (0_usize, BTreeMap::new());
    let mut outcomes: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
    loop {
        while under_way.len() < CALLS && Instant::now() < until {
            let number = next % (WILD + TAME);
            let server =
                if number < WILD { format!("wild{number}") } else { format!("tame{}", number - WILD) };
            let call = json!({ "name": format!("{server}__work"), "arguments": {} });
            let request = json!({ "jsonrpc": "2.0", "id": next, "method": "tools/call", "params": call });
            colibri.send(&request.to_string());
            under_way.insert(next as u64, server);
            next += 1;
        }
        if under_way.is_empty() {
            return outcomes;
        }
        let answer = colibri.answer();
        // Anything without an id of ours is word of a changed list.
        if let Some(server) = answer["id"].as_u64().and_then(|id| under_way.remove(&id)) {
            *outcomes.entry(server).or_default().entry(outcome(&answer)).or_default() += 1;
        }
    }
}

/// `ok`, a code of colibri's, or the server's own error.
fn outcome(answer: &Value) -> String {
    if let Some(error) = answer.get("error") {
        // A server that has not come up yet has no tools.
        return format!("JSON-RPC {}", error["code"]);
    }
    if answer["result"]["isError"] != true {
        return "ok".to_owned();
    }
    let code =
        answer["result"]["structuredContent"]["error"]["code"].as_str().expect("every failure has a code");
    assert!(code.starts_with("PROVIDER_"), "{answer}");
    code.to_owned()
}
