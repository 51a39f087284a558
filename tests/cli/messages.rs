//! What is said when everything is new, wrongly typed, or wrongly configured.

use std::fs::{self, File};

use super::{Ran, check, run, run_with};
use crate::hostile::child::{Colibri, Home};

/// Every command tells what it is for, with examples.
#[test]
fn help_has_examples() {
    let home = Home::new();
    check(
        &home,
        &[
            (&[], 0, "colibri call server_ping", ""),
            (&["--help"], 0, "Exit codes:", ""),
            (&["help"], 0, "Exit codes:", ""),
            (&["help", "call"], 0, "colibri call server_health --json", ""),
            (&["version"], 0, "2026-07-28", ""),
            (&["--version"], 0, "colibri ", ""),
            (&["version", "--json"], 0, "\"protocols\":[\"2024-11-05\"", ""),
        ],
    );
    for command in ["serve", "tools", "call", "audit", "verify", "config", "doctor", "completions", "version"]
    {
        let help = run(&home, &[command, "--help"]);
        assert_eq!((help.code, help.stderr.as_str()), (0, ""), "{command}");
        assert!(help.stdout.contains(&format!("Examples:\n  colibri {command}")), "{}", help.stdout);
    }
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&home, &["completions", shell]);
        assert!(script.code == 0 && script.stdout.contains("colibri"), "{shell}");
    }
    assert!(!home.path().join("data").exists(), "asking for help writes nothing");
}

/// What was typed wrongly is said in one breath, with what was probably meant; exit code 2.
#[test]
fn a_slip_of_the_hand_is_a_usage_error() {
    let home = Home::new();
    check(
        &home,
        &[
            (&["toools"], 2, "", "similar"),
            (&["tools", "show", "server_pong"], 2, "", "did you mean `server_ping`?"),
            (&["tools", "show", "zzz"], 2, "", "see `colibri tools`"),
            (&["call"], 2, "", "TOOL"),
            (&["call", "server_pign"], 2, "", "did you mean `server_ping`?"),
            (&["call", "server_ping", "novalue"], 2, "", "`novalue` is not KEY=VALUE"),
            (&["call", "server_ping", "a=1", "a=2"], 2, "", "`a` is given twice"),
            (&["call", "server_ping", "--args", "{oops"], 2, "", "--args is not a JSON object: "),
            (&["call", "server_ping", "--args", "[1]"], 2, "", "it is `[1]`"),
            (&["call", "server_ping", "a=1", "--args", "{}"], 2, "", "cannot be used with"),
            (&["audit", "list", "--limit", "0"], 2, "", "0 is not in 1..=10000"),
            (&["audit", "list", "--outcome", "eror"], 2, "", "'error'"),
            (&["audit", "show"], 2, "", "required"),
            (&["completions", "tcsh"], 2, "", "possible values"),
            (&["verify", "nothing.bundle", "--key", "x"], 2, "", "--key"),
        ],
    );
}

/// `--json`: a failure is one JSON object on one line of stderr, whoever noticed it.
#[test]
fn errors_are_json_for_machines() {
    let home = Home::new();
    fs::write(home.path().join("work/colibri.json"), "{ \"mode\": 7 }").unwrap();
    for (arguments, code) in [
        (&["audit", "--json", "list", "--config", "nowhere.json"][..], 7),
        (&["tools", "--json"], 7),
        (&["tools", "--json", "--config", "/dev/null", "show", "server_pong"], 2),
        (&["tools", "--json", "--no-such-flag"], 2),
        (&["--json", "no-such-command"], 2),
        (&["config", "check", "--json"], 7),
    ] {
        let ran = run(&home, arguments);
        assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.lines().count()), (code, "", 1), "{ran:?}");
        let told: serde_json::Value = serde_json::from_str(&ran.stderr).unwrap();
        assert_eq!(told["error"]["exit"], code, "{told}");
        assert!(told["error"]["message"].as_str().is_some_and(|message| message.len() > 10), "{told}");
    }
}

/// Variables, flags, the exit code, and words of the message.
type Row<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str], i32, &'a [&'a str]);

/// Wrong surroundings: each says what, where and what to do, once, with its exit code, whether a person
/// calls or a client starts it.
#[test]
fn wrong_surroundings_are_one_clear_message() {
    let home = Home::new();
    let blocked = home.path().join("a-file");
    fs::write(&blocked, "not a folder").unwrap();
    let blocked = blocked.join("colibri.db").display().to_string();
    let corrupt = home.path().join("corrupt.db").display().to_string();
    fs::write(&corrupt, "this is no database ".repeat(1_000)).unwrap();
    let typo = home.path().join("typo.json").display().to_string();
    fs::write(&typo, "{\n  // a comment is fine\n  \"mode\": \"REDONLY\",\n}\n").unwrap();
    let syntax = home.path().join("syntax.json").display().to_string();
    fs::write(&syntax, "{\n  \"mode\": \"FULL\"\n  \"log\": \"info\"\n}\n").unwrap();
    let (at_typo, at_syntax) = (format!("{typo}:3:"), format!("{syntax}:"));

    let table: &[Row<'_>] = &[
        (&[("COLIBRI_MODE", "readonly")], &[], 7, &["COLIBRI_MODE", "unknown mode `readonly`", "READONLY"]),
        (&[("COLIBRI_MODE", "")], &[], 7, &["COLIBRI_MODE"]),
        (&[("AMS_MODE", "FULL"), ("AMS_X", "1")], &[], 7, &["AMS_MODE", "AMS_X", "COLIBRI_MODE"]),
        (&[("COLIBRI_MCP_TIMEOUT", "soon")], &[], 7, &["COLIBRI_MCP_TIMEOUT", "`soon`"]),
        (&[("COLIBRI_STARTUP_TIMEOUT_MS", "-1")], &[], 7, &["COLIBRI_STARTUP_TIMEOUT_MS"]),
        (&[("COLIBRI_LOG", "loud")], &[], 7, &["COLIBRI_LOG"]),
        (&[], &["--mode", "ALL"], 7, &["--mode", "unknown mode `ALL`"]),
        (&[], &["--config", "/nowhere/colibri.json"], 7, &["/nowhere/colibri.json"]),
        (&[], &["--config", &typo], 7, &[&at_typo, "REDONLY", "READONLY", "^"]),
        (&[], &["--config", &syntax], 7, &[&at_syntax, "not valid JSON", "^"]),
        (&[("COLIBRI_DB_PATH", &blocked)], &[], 9, &["cannot create the folder", "a-file"]),
        (
            &[("COLIBRI_DB_PATH", "/proc/colibri/colibri.db")],
            &[],
            9,
            &["cannot create the folder /proc/colibri"],
        ),
        (&[("COLIBRI_DB_PATH", &corrupt)], &[], 9, &["corrupt.db is damaged", "restore a backup"]),
    ];
    for (variables, flags, code, words) in table {
        for command in [&["serve"][..], &["call", "server_ping"]] {
            let ran = run_with(&home, variables, &[command, flags].concat());
            let what = format!("{variables:?} {flags:?} {command:?}: {ran:?}");
            assert_eq!((ran.code, ran.stdout.as_str()), (*code, ""), "{what}");
            for word in *words {
                assert!(ran.stderr.contains(word), "{word} in {what}");
            }
            assert_eq!(ran.stderr.lines().filter(|line| is_verdict(line)).count(), 1, "{what}");
        }
    }
}

/// The line that says why it ended.
fn is_verdict(line: &str) -> bool {
    line.starts_with("colibri: ")
        || line.starts_with("[colibri] fatal: ")
        || line.contains("cannot be written")
}

/// CO-11: a start that cannot get the ledger's lock in time is exit code 75, at once.
#[test]
fn a_start_that_takes_too_long_is_given_up() {
    let home = Home::new();
    assert_eq!(run(&home, &["call", "server_ping"]).code, 0);
    let lock = File::options().append(true).open(home.path().join("data/colibri.db.lock")).unwrap();
    lock.lock().unwrap();
    let soon = [("COLIBRI_STARTUP_TIMEOUT_MS", "300")];
    let call = run_with(&home, &soon, &["call", "server_ping"]);
    assert_eq!((call.code, call.stderr.as_str()), (75, "colibri: startup timeout exceeded\n"));
    let mut command = home.command();
    command.arg("serve").envs(soon);
    let mut serving = Colibri::spawn(home, command); // Its input stays open.
    assert_eq!(serving.exit_code(), 75, "{}", serving.log());
    assert!(serving.log().ends_with("[colibri] fatal: startup timeout exceeded\n"), "{}", serving.log());
}

/// CO-13: a mode limits what is listed and what is served.
#[test]
fn a_mode_limits_the_surface() {
    let all = crate::support::NATIVE_TOOLS;
    let reading = [
        "audit_verify_chain",
        "merkle_root",
        "server_health",
        "server_ping",
        "skill_list",
        "task_get",
        "task_list",
        "task_next_actions",
        "thought_record_list",
    ];
    let minimal = ["server_health", "server_ping"];
    for (mode, tools) in [("FULL", &all[..]), ("READONLY", &reading), ("TEST", &all), ("MINIMAL", &minimal)] {
        let home = Home::new();
        let listed = run(&home, &["tools", "list", "--json", "--mode", mode]).json();
        let names: Vec<&str> =
            listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert_eq!(names, tools, "{mode}");
        let read_only = |tool: &serde_json::Value| tool["annotations"]["readOnlyHint"] == true;
        if mode == "READONLY" {
            assert!(listed["tools"].as_array().unwrap().iter().all(read_only));
        }

        let mut colibri = Colibri::start_with(&[("COLIBRI_MODE", mode)]);
        colibri.initialize("2025-11-25");
        colibri.send(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
        let served = colibri.answer();
        let served = served["result"]["tools"].as_array().unwrap();
        assert!(served.iter().map(|tool| &tool["name"]).eq(tools.iter()), "{mode}: {served:?}");
        assert!(colibri.log().contains(&format!("starting in mode={mode} ")), "{}", colibri.log());
    }
}

#[test]
fn tools_are_listed_shown_and_called() {
    let home = Home::new();
    check(
        &home,
        &[
            (&["tools"], 0, "server_ping          reads", ""),
            (&["tools", "list"], 0, "TOOL", ""),
            (&["tools", "list", "--json"], 0, "\"inputSchema\":", ""),
            (&["tools", "show", "server_ping"], 0, "\"outputSchema\": {", ""),
            (&["tools", "show", "server_ping", "--json"], 0, "{\"annotations\":", ""),
            (&["call", "server_ping"], 0, "\"mode\": \"FULL\"", ""),
            (&["call", "server_ping", "--json"], 0, "{\"ok\":true,\"data\":{", ""),
            (&["call", "server_ping", "--args", "{}"], 0, "uptime_ms", ""),
            (&["call", "server_health", "--mode", "MINIMAL"], 0, "\"status\": \"ok\"", ""),
            (&["call", "server_ping", "x=1"], 5, "this tool takes no arguments", ""),
            (&["call", "server_ping", "--args", "{\"a\":1e400}"], 5, "number out of range", ""),
            (&["call", "server_ping", "--args", "{\"a\":1,\"a\":2}", "--json"], 5, "{\"ok\":false,", ""),
        ],
    );
}

#[test]
fn the_configuration_is_explained() {
    let home = Home::new();
    fs::create_dir_all(home.path().join(".config/colibri")).unwrap();
    let server = r#"{ "command": "x", "env": { "TOKEN": "s3cret" } }"#;
    let text = format!(r#"{{ "audit": {{ "payloads": "none" }}, "mcpServers": {{ "a": {server} }} }}"#);
    fs::write(home.path().join(".config/colibri/colibri.json"), text).unwrap();
    check(
        &home,
        &[
            (&["config", "path"], 0, "found     ", ""),
            (&["config", "path", "--json"], 0, "\"found\":true", ""),
            (&["config", "check"], 0, "the configuration is valid", ""),
            (&["config", "check", "--json"], 0, "\"valid\":true", ""),
            (&["config", "schema"], 0, "\"$schema\"", ""),
            (&["config", "schema", "--json"], 0, "mcpServers", ""),
            (&["config", "show"], 0, "audit.payloads", ""),
            (&["config", "show", "--origin"], 0, "colibri/colibri.json:1", ""),
            (&["config", "show", "--origin", "--log", "debug"], 0, "flag --log", ""),
            (&["config", "show", "--json"], 0, "\"key\":\"audit.payloads\"", ""),
        ],
    );
    for arguments in
        [&["config", "show"][..], &["config", "show", "--json"], &["config", "check"], &["doctor"]]
    {
        let Ran { stdout, stderr, .. } = run(&home, arguments);
        assert!(!stdout.contains("s3cret") && !stderr.contains("s3cret"), "{arguments:?} tells a secret");
    }
}

/// What is well is exit code 0; what is not is exit code 8, and is named.
#[test]
fn the_doctor_finds_what_is_wrong() {
    let home = Home::new();
    check(
        &home,
        &[
            (&["doctor"], 0, "not there yet; the first start makes it", ""),
            (&["call", "server_ping"], 0, "FULL", ""),
            (&["doctor"], 0, "records, all intact; ", ""),
            (&["doctor", "--json"], 0, "\"well\":true", ""),
            (&["doctor", "--mode", "none"], 8, "BAD configuration", ""),
        ],
    );
    fs::write(home.path().join("work/colibri.json"), "{ \"mcpServers\": { \"a\": { \"comand\": \"x\" } } }")
        .unwrap();
    check(&home, &[(&["doctor"], 8, "a is disabled", "")]);
    fs::remove_file(home.path().join("work/colibri.json")).unwrap();
    fs::remove_file(home.path().join("data/colibri.db.key")).unwrap();
    check(
        &home,
        &[(&["doctor"], 8, "BAD signing key", ""), (&["doctor", "--json"], 8, "\"well\":false", "")],
    );
    fs::write(home.database(), "no database").unwrap();
    check(&home, &[(&["doctor"], 8, "BAD ", "")]);
}
