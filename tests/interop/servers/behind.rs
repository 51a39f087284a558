//! Real servers behind one colibri, used by real clients: five children and one on the network.

use serde_json::{Value, json};

use super::partners::{self, node_at_a_port, package_script};
use crate::interop::{BINARY, Home, cache, last_line, run, said, script};

/// PR-3, PR-5, PR-11, PR-14, SB-1, SB-2: both lines of the Python SDK, both families, call every server's tools through
/// colibri: text, Unicode, images, errors, progress, a server that refuses.
#[tokio::test]
async fn python_sdks_call_six_servers_behind_colibri() {
    for (environment, era) in [("mcp1", "legacy"), ("mcp2", "legacy"), ("mcp2", "modern")] {
        let home = Home::new();
        let report = fleet(&home, environment, era).await;
        check(&report, &format!("{environment} {era}"));
    }
}

async fn fleet(home: &Home, environment: &str, era: &str) -> Value {
    let folder = home.0.path().join("shared");
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::write(folder.join("note.txt"), "a note ✓").expect("a file");
    assert!(run(home.command("git".as_ref()).args(["init", "-q"]).arg(&folder)).status.success());
    let elsewhere = partners::Home::new();
    let web = node_at_a_port(&elsewhere, "server-everything", &["streamableHttp"]).await;
    let node = cache("node/bin/node");
    let python = |program: &str| cache(&format!("python-mcp2/bin/{program}"));
    let servers = json!({ "mcpServers": {
        "every": { "command": node, "args": [package_script("server-everything"), "stdio"] },
        "files": { "command": node, "args": [package_script("server-filesystem"), folder] },
        "memory": { "command": node, "args": [package_script("server-memory")], "env": { "MEMORY_FILE_PATH": folder.join("memory.json") } },
        "time": { "command": python("mcp-server-time"), "args": ["--local-timezone", "UTC"] },
        "git": { "command": python("mcp-server-git"), "args": ["--repository", folder] },
        "web": { "url": web.at(|port| format!("http://127.0.0.1:{port}/mcp")).url },
    }});
    let config = home.0.path().join("servers.json");
    std::fs::write(&config, servers.to_string()).expect("a file");
    let mut client = home.command(&cache(&format!("python-{environment}/bin/python")));
    client.arg(script("python_fleet.py")).arg(era).arg(&folder);
    let output = run(client.arg(BINARY).arg("--config").arg(&config).arg("serve"));
    assert!(output.status.success(), "{environment} {era}:\n{}", said(&output));
    last_line(&output.stdout).unwrap_or_else(|| panic!("the client printed no JSON:\n{}", said(&output)))
}

#[track_caller]
fn check(report: &Value, who: &str) {
    let says = |key: &str, word: &str| {
        assert!(
            report[key]["text"].to_string().contains(word),
            "{who}: {key} lacks {word:?}: {}",
            report[key]
        );
        report[key]["isError"] == true
    };
    let names = report["names"].as_array().expect("a list");
    for server in ["every__", "files__", "git__", "memory__", "time__", "web__", "server_ping"] {
        let has = names.iter().any(|name| name.as_str().is_some_and(|name| name.starts_with(server)));
        assert!(has, "{who}: {server} is not in {names:?}");
    }
    for (key, word) in [
        ("echo", "hällo 🐦"),
        ("web", "over HTTP"),
        ("long", "completed"),
        ("file", "a note ✓"),
        ("git", "note.txt"),
        ("memory", "entityType"),
        ("time", "UTC"),
        ("ping", "ok"),
    ] {
        assert!(!says(key, word), "{who}: {key} is an error: {}", report[key]);
    }
    assert!(says("outside", "denied"), "{who}: {}", report["outside"]);
    assert!(says("nowhere", "Nowhere"), "{who}: {}", report["nowhere"]);
    assert_eq!(report["image"], "image", "{who}");
    assert_eq!(report["progress"], json!([1.0, 2.0]), "{who}");
}
