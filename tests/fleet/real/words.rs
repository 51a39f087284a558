//! Names, lists, instructions, lines and events of real processes.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::stage::{Stage, text, told};
use crate::cli::run;
use crate::support::until;

/// PR-3, PR-4, SB-1: the tools of all pages, under names that every client takes, each of which leads back to its own; what
/// the filter leaves out is neither listed nor callable.
#[test]
fn odd_names_lead_back_and_filtered_ones_do_not() {
    let long = "a_name_that_is_longer_than_any_client_would_take_it_in_one_piece_".repeat(2);
    let kept = ["fs.read", "fs/read", "FS__read", "fs_read", "fs", &format!("fs_{long}")];
    let offers = format!("{} fs.write other secret_fs", kept.join(" "));
    let entry = json!({ "toolsAllowed": [" FS* ", "*_fs"], "toolsDenied": ["*WRITE", "Secret*"] });
    let mut stage = Stage::start(&[("My Files", &offers, entry)], &json!({}));
    stage.await_state("My Files", "ready");
    let names = stage.listed();
    assert_eq!(names.len(), kept.len(), "{names:?}");
    assert!(names.iter().all(|name| name.starts_with("My-Files__") && name.len() <= 64), "{names:?}");
    let mut reached = BTreeSet::new();
    for name in &names {
        reached.insert(text(&stage.call(name, &json!({}))).to_owned());
    }
    assert_eq!(reached, kept.map(str::to_owned).into());
    for (tool, code) in [
        ("other", "PROVIDER_POLICY_DENIED"),
        ("secret_fs", "PROVIDER_POLICY_DENIED"),
        ("none", "PROVIDER_TOOL_NOT_FOUND"),
    ] {
        let refused = stage.call(&format!("My-Files__{tool}"), &json!({}));
        assert_eq!(told(&refused), (code.to_owned(), "no".to_owned()), "{refused}");
    }
    assert_eq!(stage.count("My Files", "tools/call"), kept.len());
    stage.colibri.finish();
}

/// PR-12: a process that says that its list has changed is listed again, the client is told, what is gone is not callable
/// and what is new is; of two processes with one resource the first in the file keeps its URI, the other has an alias, and
/// reading either is on record.
#[test]
fn lists_change_and_resources_meet() {
    let home = crate::hostile::child::Home::new();
    for server in ["z", "a"] {
        std::fs::write(home.path().join(format!("{server}.resources")), "mem://same").unwrap();
    }
    let servers = [("z", "change old", json!({})), ("a", "t", json!({}))];
    let mut stage = Stage::start_in(home, &servers, &json!({}), &[]);
    for server in ["z", "a"] {
        stage.await_state(server, "ready");
    }
    let resources = stage.ask("resources/list", &json!({}));
    let uris: Vec<&str> = resources["result"]["resources"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|found| found["uri"].as_str())
        .collect();
    assert_eq!(uris, ["mem://same", "colibri://a/mem%3A%2F%2Fsame"]);
    for (uri, said) in [(uris[0], "of z"), (uris[1], "of a"), ("colibri://z/mem%3A%2F%2Fsame", "of z")] {
        let read = stage.ask("resources/read", &json!({ "uri": uri }));
        assert_eq!(read["result"]["contents"][0]["text"], said, "{read}");
    }
    let recorded = run(&stage.colibri.home, &["audit", "list", "--json"]).stdout;
    assert_eq!(recorded.matches("resources/read").count(), 3, "{recorded}");

    let changing = stage.send_call("z__change", &json!({ "tools": ["change", "new"] }));
    let (mut is_told, mut is_answered) = (false, false);
    while !(is_told && is_answered) {
        let message = stage.colibri.answer();
        is_told |= message["method"] == "notifications/tools/list_changed";
        is_answered |= message["id"] == changing;
    }
    until("the new list is there", || (stage.listed() == ["a__t", "z__change", "z__new"]).then_some(()));
    assert_eq!(text(&stage.call("z__new", &json!({}))), "new");
    assert_eq!(told(&stage.call("z__old", &json!({}))).0, "PROVIDER_TOOL_NOT_FOUND");
    assert_eq!(stage.starts("z").len(), 1);
    stage.colibri.finish();
}

/// PR-13: what clients are told, server by server in the order of the file, with what the file says of single tools.
#[test]
fn instructions_follow_the_file() {
    let home = crate::hostile::child::Home::new();
    for server in ["z", "a"] {
        std::fs::write(home.path().join(format!("{server}.instructions")), "").unwrap();
    }
    let entry = json!({ "tools": { "t": { "instructions": "Handle with care." } } });
    let servers = [("z", "t", entry), ("a", "t", json!({}))];
    let mut stage = Stage::start_in(home, &servers, &json!({}), &[]);
    for server in ["z", "a"] {
        stage.await_state(server, "ready");
    }
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let discovered = stage.ask("server/discover", &json!({ "_meta": meta }));
    let said = discovered["result"]["instructions"].as_str().unwrap();
    let expected =
        "#### MCP Server: z\nI am z.\n##### Tool: z__t\nHandle with care.\n#### MCP Server: a\nI am a.";
    assert!(said.replace("\n\n", "\n").ends_with(expected), "{said}");
    stage.colibri.finish();
}

/// PR-16: at `trace` colibri tells of lists and bodies, of latencies, of a process that is lost and of attempts that fail, each
/// with the server it is of; at `error` of the failures alone.
#[test]
fn lines_have_the_severity_that_was_asked_for() {
    let mut logs = Vec::new();
    for level in ["trace", "error"] {
        let entry = json!({ "restart": { "delays": [20] } });
        let mut stage = Stage::start_in(
            crate::hostile::child::Home::new(),
            &[("s", "a b", entry)],
            &json!({}),
            &["--log", level],
        );
        stage.await_state("s", "ready");
        stage.call("s__a", &json!({ "pad": " and a word" }));
        stage.set("s", "down");
        stage.kill("s");
        until("attempts fail", || {
            stage.colibri.log().contains("[mcp:s] could not be connected").then_some(())
        });
        logs.push(stage.colibri.log());
        stage.colibri.finish();
    }
    let of_the_server = |log: &str| -> Vec<String> {
        log.lines().filter(|line| line.contains("[mcp:s]")).map(str::to_owned).collect()
    };
    let (all, few) = (of_the_server(&logs[0]), of_the_server(&logs[1]));
    for words in [
        "stdio, revision 2025-06-18: a, b",
        "a answered: ",
        "a: ",
        "ready with 2 tools after",
        "backoff: ",
        "could not be connected: ",
    ] {
        assert!(all.iter().any(|line| line.contains(words)), "{words}: {all:#?}");
    }
    assert!(!few.is_empty() && few.iter().all(|line| line.contains("could not be connected: ")), "{few:#?}");
}

/// SB-7: a program that follows the events and has stopped holds up no call; when it goes on, it is told how many it missed,
/// and hears the newest.
#[test]
fn a_stopped_follower_holds_up_nobody() {
    const CALLS: usize = 2000;
    let mut stage = Stage::start(&[("s", "a", json!({}))], &json!({}));
    stage.await_state("s", "ready");
    let mut command = stage.colibri.home.command();
    command.args(["events", "--follow", "--json", "--topic", "provider.mcp.tool.*"]);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    stage.call("s__a", &json!({}));
    assert!(lines.next().unwrap().unwrap().contains("provider.mcp.tool.completed"), "it follows");
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::STOP).unwrap();
    let (mut sent, mut answered) = (0, 0);
    while answered < CALLS {
        while sent < CALLS && sent - answered < 32 {
            stage.send_call("s__a", &json!({ "pad": "x".repeat(2000) }));
            sent += 1;
        }
        let answer = stage.colibri.answer();
        if answer["id"].is_u64() {
            assert_eq!(told(&answer).0, "ok", "{answer}");
            answered += 1;
        }
    }
    kill_process(pid, Signal::CONT).unwrap();
    let (mut heard, mut missed) = (1, 0);
    while heard + missed < CALLS + 1 {
        let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        match line["missed"].as_u64() {
            Some(count) => missed += usize::try_from(count).unwrap(),
            None => heard += 1,
        }
    }
    assert!(missed > 0, "there was nothing to miss");
    child.kill().unwrap();
    child.wait().unwrap();
    stage.colibri.finish();
}
