//! Facts as records.

use colibri::domain::chronicle::{Chronicle, Fact};
use colibri::domain::merkle::Hash;
use colibri::domain::pin::{Change, PinnedBy};
use serde_json::{Value, json};

use super::{World, episode, tools};

fn facts() -> Vec<(&'static str, Fact, Value)> {
    let (server, tool) = ("git\u{1b}[31mhub".to_owned(), "search".to_owned());
    vec![
        (
            "configuration.loaded",
            Fact::ConfigurationLoaded {
                files: vec![("/etc/colibri/colibri.json".to_owned(), Hash::ZERO)],
                servers: vec![server.clone(), "files".to_owned()],
            },
            json!({
                "file_count": 1, "files": [{ "digest": Hash::ZERO, "path": "/etc/colibri/colibri.json" }],
                "server_count": 2, "servers": [server, "files"],
            }),
        ),
        (
            "sandbox.degraded",
            Fact::SandboxDegraded { server: server.clone(), layers: vec!["cgroup".to_owned()], off: false },
            json!({ "layers": ["cgroup"], "off": false, "server": server }),
        ),
        (
            "server.changed",
            Fact::ServerState { server: server.clone(), from: "ready", to: "backoff", reason: None },
            json!({ "from": "ready", "server": server, "to": "backoff" }),
        ),
        (
            "server.ended",
            Fact::ServerEnded {
                server: server.clone(),
                how: "it held too much".to_owned(),
                limit: Some("memory"),
            },
            json!({ "how": "it held too much", "limit": "memory", "server": server }),
        ),
        (
            "tool.changed",
            Fact::ToolChanged {
                server: server.clone(),
                tool: tool.clone(),
                change: Change { pinned: Some(Hash::ZERO), found: Hash([1; 32]) },
                enforced: true,
                more: 0,
            },
            json!({
                "enforced": true, "found": Hash([1; 32]), "pinned": Hash::ZERO, "server": server, "tool": tool,
            }),
        ),
        (
            "output.mismatched",
            Fact::OutputMismatch { server: server.clone(), tool: tool.clone(), message: "no".to_owned() },
            json!({ "message": "no", "server": server, "tool": tool }),
        ),
    ]
}

/// SU-4, SB-2, SB-7: every fact is one record with its correlation id, is there after a restart, and
/// verifies: in the database, in a bundle and in a proof of its own.
#[tokio::test]
async fn facts_survive_a_restart_and_verify() {
    let world = World::new();
    let open = world.open().await;
    let mut expected = Vec::new();
    for (kind, fact, mut told) in facts() {
        let call = episode();
        open.chronicle.put(call, fact).await.unwrap();
        told["call"] = json!(call);
        expected.push((kind, told));
    }
    open.chronicle.pin(episode(), "github", tools(3, "one"), PinnedBy::FirstSight).await.unwrap();
    open.close().await;

    world.open().await.close().await;
    for (kind, told) in expected {
        let records: Vec<Value> = world.records(kind).into_iter().map(|(_, facts)| facts).collect();
        assert_eq!(records, [told], "{kind}");
    }
    let verdict = world.verdict();
    assert!(verdict.valid && verdict.signed == verdict.record_count, "{verdict:?}");

    let ran = |arguments: &[&str]| {
        let output = world.colibri(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(ran(&["audit", "verify"]).starts_with("intact: 8 records"));
    std::fs::write(world.folder.path().join("auditor.key"), ran(&["audit", "key", "show"])).unwrap();
    ran(&["audit", "export"]);
    ran(&["verify", "ledger.bundle", "--key", "auditor.key"]);
    for (index, _) in world.records("tool.pinned") {
        ran(&["audit", "prove", "--index", &index.to_string()]);
        ran(&["verify", &format!("record-{index}.tlog-proof"), "--key", "auditor.key"]);
        assert!(ran(&["audit", "show", "--index", &index.to_string()]).contains("tool_00002"));
    }
}

/// SU-4: people read what happened in one line each, and nothing a server says steers their terminal.
#[tokio::test]
async fn a_tail_tells_each_fact_in_a_line() {
    let world = World::new();
    let open = world.open().await;
    for (_, fact, _) in facts() {
        open.chronicle.put(episode(), fact).await.unwrap();
    }
    open.chronicle.pin(episode(), "github", tools(3, "one"), PinnedBy::FirstSight).await.unwrap();
    open.close().await;
    let told = String::from_utf8(world.colibri(&["audit", "tail"]).stdout).unwrap();
    assert!(!told.contains('\u{1b}'), "{told:?}");
    let lines: Vec<&str> = told.lines().skip(1).map(|line| line.split("Z  ").nth(1).unwrap()).collect();
    let server = "git\\u{1b}[31mhub";
    let expected = [
        "configuration.loaded  2 servers".to_owned(),
        format!("sandbox.degraded {server} 1 layers"),
        format!("server.changed {server} ready backoff"),
        format!("server.ended {server} memory it held too much"),
        format!("tool.changed {server} search"),
        format!("output.mismatched {server} search no"),
        "tool.pinned  github first_sight 3 tools".to_owned(),
    ];
    assert_eq!(lines, expected);
}

/// SU-4: a store that cannot write says so; nothing is taken for recorded.
#[tokio::test]
async fn what_is_not_on_record_is_an_error() {
    let world = World::new();
    let open = world.open().await;
    let chronicle = open.chronicle.clone();
    open.close().await;
    for (_, fact, _) in facts() {
        assert_eq!(chronicle.put(episode(), fact).await.unwrap_err().to_string(), "the ledger is closed");
    }
    assert!(chronicle.pin(episode(), "github", tools(1, "one"), PinnedBy::FirstSight).await.is_err());
    chronicle.keep(Hash::ZERO, "[]".into()).await;
    assert_eq!(chronicle.recall(Hash::ZERO).await, None);
}
