//! Every fact is a record, whatever it says.

use std::collections::BTreeSet;

use sha2::{Digest as _, Sha256};

use super::*;
use crate::domain::ledger::{FORMAT, Record};

const CALL: CallId = CallId(uuid::Uuid::nil());

fn digest(of: &str) -> Hash {
    Hash(Sha256::digest(of).into())
}

/// Every kind of fact, each text of it `text` and each list this long.
fn facts(text: &str, length: usize) -> Vec<Fact> {
    let (server, tool) = (text.to_owned(), text.to_owned());
    let hash = digest(text);
    vec![
        Fact::ServerState { server: server.clone(), from: "ready", to: "backoff", reason: Some(text.into()) },
        Fact::ServerState { server: server.clone(), from: "idle", to: "connecting", reason: None },
        Fact::ServerEnded { server: server.clone(), how: text.into(), limit: Some("memory") },
        Fact::ServerEnded { server: server.clone(), how: text.into(), limit: None },
        Fact::ToolChanged {
            server: server.clone(),
            tool: tool.clone(),
            change: Change { pinned: Some(hash), found: Hash::ZERO },
            enforced: true,
            more: 7,
        },
        Fact::ToolChanged {
            server: server.clone(),
            tool: tool.clone(),
            change: Change { pinned: None, found: hash },
            enforced: true,
            more: 0,
        },
        Fact::OutputMismatch { server: server.clone(), tool, message: text.into() },
        Fact::SandboxDegraded { server: server.clone(), layers: vec![text.into(); length], off: false },
        Fact::ConfigurationLoaded { files: vec![(text.into(), hash); length], servers: vec![server; length] },
    ]
}

fn bytes_of(event: Event) -> Vec<u8> {
    let (at, log) = ("9999-12-31T23:59:59.999Z".to_owned(), "l".repeat(256));
    let index = (1 << 53) - 1;
    let record = Record { at, event, index, log, prev: Hash::ZERO, v: FORMAT };
    let bytes = record.to_bytes();
    assert!(bytes.len() <= RECORD_BYTES_MAX, "{} bytes", bytes.len());
    let value: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(bytes, serde_json_canonicalizer::to_vec(&value).unwrap(), "it is canonical JSON");
    assert_eq!(serde_json::from_slice::<Record>(&bytes).unwrap(), record, "it reads back as it was");
    bytes
}

/// SU-4: whatever a server calls itself or says, its record is canonical JSON below the bound.
#[test]
fn every_fact_fits_a_record() {
    let texts = ["", "github", "é \"q\" \\ \u{1b}[31m", "\u{1}", "🐦", "\u{2028}"];
    for text in texts {
        for times in [1, 300, 100_000] {
            for length in [0, 1, 5_000] {
                for fact in facts(&text.repeat(times), length.min(500_000 / times)) {
                    bytes_of(fact.into_event(CALL));
                }
            }
        }
    }
}

/// SU-4: a list that does not fit says how long it was.
#[test]
fn a_long_list_is_counted_whole() {
    let servers = (0..50_000).map(|number| format!("server-{number}")).collect();
    let event = Fact::ConfigurationLoaded { files: Vec::new(), servers }.into_event(CALL);
    let Event::ConfigurationLoaded(loaded) = &event else { panic!("{event:?}") };
    assert_eq!(loaded.server_count, 50_000);
    assert!((1_000..50_000).contains(&loaded.servers.len()), "{}", loaded.servers.len());
    assert_eq!(loaded.servers[0], "server-0");
}

/// SU-4: as many tools as a server may have are pinned whole, in few records, each within its bound.
#[test]
fn many_tools_are_pinned_in_few_records() {
    for (name, count, records_max) in [("tool", 20_000, 64), (&*"\u{1}".repeat(1_000), 1_000, 40)] {
        let tools: Vec<_> =
            (0..count).map(|number| (format!("{name}{number}"), digest(&number.to_string()))).collect();
        let records = pinned(CALL, &"\u{1}".repeat(5_000), tools.clone(), PinnedBy::FirstSight);
        assert!(records.len() <= records_max, "{}", records.len());
        let told: BTreeSet<_> = records
            .iter()
            .flat_map(|record| &record.tools)
            .map(|pin| (pin.tool.clone(), pin.digest))
            .collect();
        let meant: BTreeSet<_> =
            tools.iter().map(|(tool, digest)| (identify(tool).into_owned(), *digest)).collect();
        assert_eq!((told.len(), told), (count, meant));
        for record in records {
            bytes_of(Event::ToolPinned(record));
        }
    }
    assert_eq!(pinned(CALL, "github", [], PinnedBy::Accepted), []);
}

/// SU-4: no two names are one in a record.
#[test]
fn shortened_names_stay_apart() {
    let long = "x".repeat(257);
    let names = [&*long, &long[1..], &format!("{long}y"), &identify(&long), &"é".repeat(129)];
    let known: BTreeSet<_> = names.iter().map(|name| identify(name)).collect();
    assert_eq!(known.len(), names.len(), "{known:?}");
    assert_eq!(identify(&long[1..]), &long[1..], "what fits is left as it is");
    assert!(known.iter().all(|name| name.len() <= 256 + 3 + 64));
}
