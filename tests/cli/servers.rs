//! Calling other servers by hand: by name, by address, by command.

use std::path::PathBuf;

use serde_json::json;

use super::{check, run, run_with};
use crate::hostile::child::Home;

/// A server of the older family in a few lines of shell: every line it reads goes to a file. `echo`
/// repeats its arguments, `fail` says that it failed, anything else is no tool.
pub(crate) const SERVER: &str = r#"
while read -r line; do
  echo "$line" >> "$HOME/heard"
  id=$(printf %s "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *server/discover*) answer='"error":{"code":-32601,"message":"no such method"}';;
    *'"initialize"'*) answer='"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"shell","version":"7"}}';;
    *tools/list*) answer='"result":{"tools":[{"name":"echo","inputSchema":{"type":"object","properties":{"n":{"type":"string"}}}},{"name":"fail","inputSchema":{"type":"object"}}]}';;
    *'"echo"'*) answer='"result":{"content":[],"big":12345678901234567890123,"env":"'"$SECRET"'","heard":'$(printf %s "$line" | sed 's/.*"arguments":\(.*\)}}$/\1/')'}';;
    *'"fail"'*) answer='"result":{"content":[{"type":"text","text":"it is broken"}],"isError":true}';;
    *tools/call*) answer='"error":{"code":-32602,"message":"unknown tool"}';;
    *) continue;;
  esac
  echo '{"jsonrpc":"2.0","id":'$id','$answer'}'
done"#;

fn configured(home: &Home) -> PathBuf {
    let file = home.path().join("servers.json");
    let server = json!({ "command": "sh", "args": ["-c", SERVER], "env": { "SECRET": "c4n4ry" } });
    let text = json!({ "mcpServers": { "shell": server, "off": { "command": "sh", "disabled": true } } });
    std::fs::write(&file, text.to_string()).unwrap();
    file
}

fn heard(home: &Home, method: &str) -> usize {
    let heard = std::fs::read_to_string(home.path().join("heard")).unwrap_or_default();
    heard.lines().filter(|line| line.contains(method)).count()
}

/// BR-4, PR-1: a configured server is called by its name, once; its answer is shown whole, and what it
/// spoke is remembered for the next time.
#[test]
fn a_configured_server_is_called_by_name() {
    let home = Home::new();
    let file = configured(&home);
    let config = ["--config", file.to_str().unwrap()];
    let call = |rest: &[&'static str]| [config.as_slice(), &["call", "--server", "shell"], rest].concat();
    for _ in 0..2 {
        let ran = run(&home, &call(&["echo", "n=5", "m=5", "--json"]));
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
        // `n` is text by its schema, `m` has none; the number no machine holds stays what it is.
        assert!(ran.stdout.contains(r#""heard":{"m":5,"n":"5"}"#), "{ran:?}");
        assert!(ran.stdout.contains("12345678901234567890123"), "{ran:?}");
    }
    assert_eq!(heard(&home, "server/discover"), 1, "the second time its family was known");
    check(&home, &[(&call(&["fail"]), 5, "it is broken", "")]);
    check(&home, &[(&call(&["nothing"]), 5, "", "unknown tool (-32602)")]);
    assert_eq!(heard(&home, r#""nothing""#), 1, "a person's call is made once");
}

/// CO-6, PR-1: a tool of a configured server is called by the name clients know, by the same path, on record; the one
/// server is started for it and nothing is left of it.
#[test]
fn a_tool_behind_colibri_is_called_on_record() {
    let home = Home::new();
    let file = home.path().join("servers.json");
    let server = json!({ "command": "sh", "args": ["-c", SERVER], "env": { "SECRET": "c4n4ry" } });
    let other = json!({ "command": "sh", "args": ["-c", "touch \"$HOME/other\"; exec sleep 60"] });
    let off = json!({ "command": "sh", "disabled": true });
    let gone = json!({ "command": "no-such-program" });
    let text =
        json!({ "mcpServers": { "shell": server, "other": other, "off": off, "gone": gone } }).to_string();
    std::fs::write(&file, text).unwrap();
    let config = ["--config", file.to_str().unwrap()];
    let with = |rest: &[&'static str]| [config.as_slice(), rest].concat();
    for arguments in [&["n=5", "m=5"][..], &[r#"{"m":5,"n":"5"}"#], &["--args", r#"{"m":5,"n":"5"}"#]] {
        let ran = run(&home, &with(&[&["call", "shell__echo", "--json"], arguments].concat()));
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{arguments:?}: {ran:?}");
        assert!(ran.stdout.contains(r#""heard":{"m":5,"n":"5"}"#), "{ran:?}");
        assert!(ran.stdout.contains("12345678901234567890123"), "{ran:?}");
    }
    check(
        &home,
        &[
            (&with(&["call", "shell__fail"]), 5, "it is broken", ""),
            (&with(&["call", "shell__echo", "n=5"]), 0, "", ""),
            (&with(&["call", "shell__ech"]), 5, "PROVIDER_TOOL_NOT_FOUND", ""),
            (&with(&["call", "shell__echo", r#"{"n":5}"#]), 5, "PROVIDER_INVALID_INPUT", ""),
            (&with(&["call", "gone__echo"]), 4, "PROVIDER_INIT_FAILED", "no such program"),
            (&with(&["call", "off__echo"]), 7, "", "the server `off` cannot be used"),
            (&with(&["call", "nobody__echo"]), 2, "", "unknown tool `nobody__echo`"),
        ],
    );
    assert!(!home.path().join("other").exists(), "no other server is started");
    let records = run(&home, &["audit", "list", "--json"]).json();
    let ours = records["actions"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|action| action["tool"] == "shell__echo" && action["client"] == "colibri call");
    assert_eq!(ours.count(), 5, "{records}");
    let left = std::fs::read_dir("/proc").unwrap().flatten().filter(|process| {
        let line = std::fs::read(process.path().join("environ")).unwrap_or_default();
        let told = String::from_utf8_lossy(&line).into_owned();
        told.contains(home.path().to_str().unwrap())
    });
    assert_eq!(left.count(), 0, "nothing is left");
}

/// CO-6: the error that a server answers is told whole, whatever it has beside the code and the message; nothing in it
/// is taken for colibri's own words.
#[test]
fn an_error_of_a_server_is_told_whole() {
    let home = Home::new();
    let error = r#"{"code":-32007,"message":"no such bird","data":1.5}"#;
    let posing = r#"{"code":-32007,"message":"posing","data":{"error":{"code":"PROVIDER_TIMEOUT"}},"error":{"code":"PROVIDER_CRASHED"}}"#;
    let answers = |name: &str, error: &str| format!(r#"*'"{name}"'*) answer='"error":{error}';; "#);
    let answers = answers("echo", error) + &answers("fail", posing);
    let script = SERVER.replace(r#"*'"echo"'*)"#, &format!(r#"{answers}*'"echo"'*)"#));
    assert_ne!(script, SERVER);
    let file = home.path().join("servers.json");
    let servers = json!({ "shell": { "command": "sh", "args": ["-c", script] } });
    std::fs::write(&file, json!({ "mcpServers": servers }).to_string()).unwrap();
    let with = |rest: &[&'static str]| [&["--config", file.to_str().unwrap(), "call"], rest].concat();
    let ran = run(&home, &with(&["shell__echo"]));
    assert_eq!((ran.code, ran.json()), (5, serde_json::from_str(error).unwrap()), "{ran:?}");
    let ran = run(&home, &with(&["shell__echo", "--json"]));
    assert_eq!((ran.code, ran.stdout.trim()), (5, error), "{ran:?}");
    let ran = run(&home, &with(&["shell__fail"]));
    assert_eq!((ran.code, &ran.json()["message"]), (5, &json!("posing")), "it was there: {ran:?}");
}

/// PR-14: what a tool says is text to people; machines get the whole outcome, with the result as it came; a deadline
/// that passes is an outcome too.
#[test]
fn an_outcome_is_text_to_people_and_typed_to_machines() {
    let home = Home::new();
    let late = SERVER.replace(r#"*'"fail"'*)"#, r#"*'"late"'*) continue;; *'"fail"'*)"#);
    let server = format!("sh -c '{}'", late.replace('\'', r"'\''"));
    let ran = run(&home, &["call", "--server", &server, "fail"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (5, "it is broken\n"), "{ran:?}");
    let ran = run(&home, &["call", "--server", &server, "fail", "--json"]);
    let told = ran.json();
    assert_eq!((ran.code, &told["ok"], &told["text"]), (5, &json!(false), &json!("it is broken")), "{ran:?}");
    assert_eq!((&told["server"], &told["tool"], &told["bytesIn"]), (&json!("sh"), &json!("fail"), &json!(2)));
    assert_eq!(told["raw"]["isError"], true);
    assert!(told["bytesOut"].as_u64() > Some(2) && told["latencyMs"].is_u64(), "{ran:?}");
    assert!(told["correlationId"].as_str().is_some_and(|id| id.len() == 36), "{ran:?}");

    let impatient = [("COLIBRI_MCP_TIMEOUT", "2000")];
    let ran = run_with(&home, &impatient, &["call", "--server", &server, "late"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (4, "(tool failed: timeout)\n"), "{ran:?}");
}

/// PR-1: what cannot be called says why, and what to do.
#[test]
fn what_cannot_be_called_says_why() {
    let home = Home::new();
    let file = configured(&home);
    let config = ["--config", file.to_str().unwrap()];
    let with = |rest: &[&'static str]| [config.as_slice(), rest].concat();
    check(
        &home,
        &[
            (&with(&["call", "--server", "shel", "echo"]), 2, "", "did you mean `shell`?"),
            (&with(&["call", "--server", "off", "echo"]), 7, "", "cannot be used"),
            (&["call", "--server", "sh -c 'exit 3", "echo"], 2, "", "a quote in the command is not closed"),
            (&["call", "--server", "sh -c 'exit 3'", "echo"], 4, "", "code 3"),
            (&["call", "--server", "http://127.0.0.1:1/mcp", "echo"], 4, "", "Connection refused"),
            (&["call", "--server", "ftp://host/", "echo"], 2, "", "must begin with http"),
            (&["probe", "http://127.0.0.1:1/", "--env", "A=1"], 2, "", "--env is for commands"),
            (&["probe", "--header", "A: 1", "--", "true"], 2, "", "--header is for addresses"),
            (&["probe", "http://127.0.0.1:1/", "--header", "A"], 2, "", "takes `Name: value`"),
            (
                &["probe", "http://127.0.0.1:1/", "--header", "A: ${NOT_SET_HERE}"],
                2,
                "",
                "`NOT_SET_HERE` is not set",
            ),
            (&["probe", "--env", "NOT_SET_HERE", "--", "true"], 2, "", "it is not set here"),
            (&["probe"], 2, "", "required"),
        ],
    );
}

/// A cloned repository must not run anything: a server of a file that was only found is not started.
#[test]
fn a_found_file_starts_nothing() {
    let home = Home::new();
    let file = configured(&home);
    let folder = home.path().join("clone");
    std::fs::create_dir(&folder).unwrap();
    std::fs::rename(file, folder.join("colibri.json")).unwrap();
    let mut command = home.command();
    let output = command.args(["call", "--server", "shell", "echo"]).current_dir(&folder).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{told}");
    assert!(told.contains("not trusted"), "{told}");
    assert_eq!(heard(&home, ""), 0);
}

/// What is passed on by name reaches the command, and the name alone is in the process list.
#[test]
fn a_variable_is_passed_on_by_name() {
    let home = Home::new();
    let server = format!("sh -c '{}'", SERVER.replace('\'', r"'\''"));
    let call = ["call", "--server", server.as_str(), "--env", "SECRET", "echo", "--json"];
    let ran = run_with(&home, &[("SECRET", "c4n4ry")], &call);
    assert!(ran.stdout.contains(r#""env":"c4n4ry""#), "{ran:?}");
    let ran = run_with(&home, &[("SECRET", "c4n4ry")], &["call", "--server", &server, "echo", "--json"]);
    assert!(ran.stdout.contains(r#""env":"""#), "{ran:?}");
}
