//! A secret is in the configuration, in the server's environment, and nowhere a person looks.

use super::*;

const CANARY: &str = "c4n4ry-0f-th3-m1n3";

/// PR-2: what stands in `env` and `headers` is in no output, not even when the server itself writes it to its stderr or
/// gives it back as a result, nor in the command line of any process.
#[test]
fn a_secret_is_shown_nowhere() {
    let script = format!("echo \"my token is $SECRET\" >&2\n{SERVER}");
    let dying = "echo \"bad token $SECRET\" >&2; exit 3";
    let mut colibri = serving(&json!({
        "talker": { "command": "sh", "args": ["-c", script], "env": { "SECRET": CANARY } },
        "dying": { "command": "sh", "args": ["-c", dying], "env": { "SECRET": CANARY } },
        "web": { "url": "http://user:pass-w0rd@127.0.0.1:1/mcp?key=k3y", "headers": { "Authorization": format!("Bearer {CANARY}") } },
    }));
    await_state(&colibri.home, "talker", "ready");
    let leaked = call(&mut colibri, 1, "talker__echo");
    assert_eq!(
        leaked["result"]["env"], CANARY,
        "the server has it, and the client gets what the server says"
    );
    until("the other has died", || standing(&colibri.home, "dying")["trouble"].is_string().then_some(()));
    let commands: [&[&str]; 12] = [
        &["status"],
        &["server", "list"],
        &["server", "show", "talker"],
        &["server", "show", "web"],
        &["server", "test", "talker"],
        &["server", "test", "web"],
        &["server", "restart", "talker"],
        &["logs", "talker"],
        &["logs", "dying"],
        &["events"],
        &["server", "disable", "web"],
        &["server", "enable", "web"],
    ];
    let mut shown = String::new();
    for command in commands {
        for json in [&[][..], &["--json"]] {
            let ran = run(&colibri.home, &[command, json].concat());
            let said = ran.stdout + &ran.stderr;
            for secret in [CANARY, "pass-w0rd", "k3y"] {
                assert!(!said.contains(secret), "{command:?} {json:?} shows it:\n{said}");
            }
            shown += &said;
        }
    }
    // It would be easy to show nothing at all.
    for there in
        ["my token is ***", "bad token ***", "SECRET", "Authorization", "provider.mcp.tool.completed"]
    {
        assert!(shown.contains(there), "{there:?} is not shown:\n{shown}");
    }
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        assert!(!line.contains(CANARY), "{line}");
    }
    colibri.finish();
}
