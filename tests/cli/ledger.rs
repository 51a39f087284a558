//! Reading the ledger from the command line.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use super::{check, run};
use crate::hostile::child::{Colibri, Home, call, request};

#[test]
fn without_a_ledger_it_says_how_to_begin() {
    let home = Home::new();
    for arguments in [
        &["audit", "list"][..],
        &["audit", "show", "0"],
        &["audit", "tail"],
        &["audit", "tail", "-f"],
        &["audit", "verify"],
        &["audit", "prove", "--index", "0"],
        &["audit", "export"],
    ] {
        check(&home, &[(arguments, 2, "", "run `colibri serve` or `colibri call server_ping` first")]);
    }
    check(&home, &[(&["audit", "key", "show"], 2, "", "there is no key yet")]);
    assert!(!home.path().join("data").exists(), "looking makes nothing");
}

#[test]
fn calls_are_listed_and_shown() {
    let home = Home::new();
    run(&home, &["call", "server_ping"]);
    run(&home, &["call", "server_ping", "x=1"]);
    run(&home, &["call", "server_pign"]);
    let listed = run(&home, &["audit", "list", "--json"]).json();
    let call = listed["actions"][2]["call"].as_str().unwrap_or_default().to_owned();
    check(
        &home,
        &[
            (&["audit", "list"], 0, "rejected (INVALID_PARAMS)", ""),
            (&["audit", "list", "--outcome", "ok"], 0, "server_ping", ""),
            (&["audit", "list", "--tool", "server_pign"], 0, "UNKNOWN_TOOL", ""),
            (&["audit", "list", "--tool", "nobody"], 0, "CALL", ""),
            (&["audit", "show", "0"], 0, "\"event\": \"call.exit\"", ""),
            (&["audit", "show", "1", "--json"], 0, "\"body\":{\"x\":1}", ""),
            (&["audit", "show", &call], 0, "call.enter", ""),
            (&["audit", "show", "--index", "0"], 0, "log.opened", ""),
            (&["audit", "show", "99"], 2, "", "99"),
            (&["audit", "show", "--index", "99"], 2, "", "99"),
            (&["audit", "show", "nonsense"], 2, "", "nonsense"),
            (&["audit", "tail"], 0, "call 2 rejected UNKNOWN_TOOL", ""),
            (&["audit", "tail", "-n", "1", "--json"], 0, "\"event\":\"call.exit\"", ""),
            (&["audit", "verify"], 0, "intact: 7 records", ""),
            (&["audit", "verify", "--json"], 0, "\"valid\":true", ""),
        ],
    );
    assert_eq!(run(&home, &["audit", "tail", "-n", "1"]).stdout.lines().count(), 1);
    assert_eq!(run(&home, &["audit", "list", "-n", "2"]).stdout.lines().count(), 3);
}

/// `tail -f` shows what others write, and ends when nobody reads it any more.
#[test]
fn tail_follows_and_ends_with_its_reader() {
    let home = Home::new();
    run(&home, &["call", "server_ping"]);
    let mut tail = home.command();
    tail.args(["audit", "tail", "-f", "-n", "0"]).stdout(Stdio::piped()).stdin(Stdio::null());
    let mut tail = tail.spawn().unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    run(&home, &["call", "server_health"]);
    let first = lines.next().unwrap().unwrap();
    assert!(first.contains("call.enter") && first.contains("server_health"), "{first}");
    drop(lines);
    run(&home, &["call", "server_ping"]); // Something to write, and nobody to read it.
    assert_eq!(tail.wait().unwrap().code(), Some(0));
}

/// CO-12's other half: what a client calls itself and its tools cannot steer the terminal of whoever
/// reads the record, nor the log.
#[test]
fn what_a_client_says_is_shown_and_not_obeyed() {
    let hostile = "\u{1b}]0;owned\u{7}\u{1b}[31m\u{9b}2J\r\n\u{202e}evil\u{200b}";
    let mut colibri = Colibri::start_with(&[("COLIBRI_LOG", "trace")]);
    let name = format!("{hostile}{}", "n".repeat(10_000));
    let info = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": name } });
    assert_eq!(colibri.ask(&request(0, "initialize", &info)), "0 ok");
    assert_eq!(colibri.ask(&call(1, hostile)), "1 -32602");
    assert_eq!(colibri.ask(&call(2, &name)), "2 -32602");
    let arguments = json!({ "name": "server_ping", "arguments": { hostile: hostile } });
    assert_eq!(colibri.ask(&request(3, "tools/call", &arguments)), "3 INVALID_PARAMS");
    assert_eq!(colibri.ask(&request(4, hostile, &json!({}))), "4 -32601");
    colibri.end_input();
    assert!(colibri.rest().is_empty());
    assert_eq!(colibri.exit_code(), 0);
    assert_tame(&colibri.log());
    for arguments in [
        &["audit", "list"][..],
        &["audit", "show", "0"],
        &["audit", "show", "2"],
        &["audit", "tail", "-n", "100"],
        &["call", hostile],
        &["call", "server_ping", &format!("{hostile}=1")],
        &["tools", "show", hostile],
        &["audit", "show", hostile],
    ] {
        let ran = run(&colibri.home, arguments);
        assert!(!ran.stdout.is_empty() || !ran.stderr.is_empty());
        assert_tame(&ran.stdout);
        assert_tame(&ran.stderr);
        assert!(ran.stdout.lines().all(|line| line.chars().count() < 5_000), "{arguments:?}");
    }
    let listed: Value = run(&colibri.home, &["audit", "list", "--json"]).json();
    let oldest = listed["actions"].as_array().and_then(|actions| actions.last());
    assert_eq!(oldest.unwrap()["tool"], hostile, "for machines it is what it was");
}

/// A file in a cloned repository says no more than a client may.
#[test]
fn what_a_file_says_is_shown_and_not_obeyed() {
    let home = Home::new();
    let hostile = "\u{9b}31m\u{202e}evil";
    let text =
        json!({ hostile: 1, "mcpServers": { hostile: { "command": hostile, hostile: 1 } } }).to_string();
    std::fs::write(home.path().join("work/colibri.json"), text).unwrap();
    for arguments in [
        &["tools"][..],
        &["config", "check"],
        &["config", "show", "--origin"],
        &["doctor"],
        &["serve"],
        &["call", "server_health"],
    ] {
        let ran = run(&home, arguments);
        assert_tame(&ran.stdout);
        assert_tame(&ran.stderr);
    }
}

#[track_caller]
fn assert_tame(text: &str) {
    let steers = |c: char| (c.is_control() && c != '\n') || ['\u{202e}', '\u{200b}'].contains(&c);
    assert!(!text.contains(steers), "{:?}", text.lines().find(|line| line.contains(steers)));
}

/// SU-11: an export that is refused leaves the bundle that was there before, and nothing else.
#[test]
fn a_refused_export_costs_no_earlier_bundle() {
    let home = Home::new();
    run(&home, &["call", "server_ping"]);
    let bundle = home.path().join("ledger.bundle");
    let export = ["audit", "export", "-o", bundle.to_str().expect("plain")];
    check(&home, &[(&export, 0, "", "wrote")]);
    let before = std::fs::read(&bundle).unwrap();

    let edit = "UPDATE record SET bytes = replace(bytes, 'server_ping', 'server_pong')";
    rusqlite::Connection::open(home.database()).unwrap().execute(edit, []).unwrap();
    check(&home, &[(&export, 6, "", "the ledger is broken")]);
    assert_eq!(std::fs::read(&bundle).unwrap(), before);
    let left = std::fs::read_dir(home.path()).unwrap().flatten();
    assert!(left.into_iter().all(|entry| !entry.file_name().to_string_lossy().contains("partial")));
}

/// BR-8: a server that lists its tools and then hangs is told as such, and in time.
#[test]
fn a_probe_does_not_take_silence_for_latency() {
    let home = Home::new();
    let script = r#"read line; echo '{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}'
        read line; echo '{"jsonrpc":"2.0","id":2,"result":{"protocolVersion":"2025-11-25","capabilities":{}}}'
        read line; read line; echo '{"jsonrpc":"2.0","id":3,"result":{"tools":[]}}'; cat >/dev/null"#;
    let probe = ["probe", "--mcp-timeout", "400", "--", "sh", "-c", script];
    check(&home, &[(&probe, 4, "", "no answer within 400 ms")]);
    check(&home, &[(&["probe", "--", "sh", "-c", "echo no licence >&2; exit 3"], 4, "", "no licence")]);
    check(&home, &[(&["probe", "--", "colibri-is-not-here"], 4, "", "cannot start")]);
}

/// SU-9, SU-10: the chains of reasons are verified with the ledger they are made of.
#[test]
fn a_hidden_reason_is_found_by_the_command_too() {
    let home = Home::new();
    let id = run(&home, &["task", "create", "Choose"]).stdout.trim().to_owned();
    run(&home, &["thought", "add", "--task", &id, "--type", "decision", "because"]);
    check(&home, &[(&["audit", "verify"], 0, "the reasons of 1 tasks agree", "")]);
    rusqlite::Connection::open(home.database()).unwrap().execute("DELETE FROM thought", []).unwrap();
    check(&home, &[(&["audit", "verify"], 6, &id, "")]);
    check(&home, &[(&["audit", "verify", "--json"], 6, "\"valid\":false", "")]);
}
