//! The same tools from a terminal: what is typed, what is printed, what is on record.

use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};

use super::client::{Home, Ran};

/// SU-7, SU-9, SU-11: a person's day, and every act of it on record as a call.
#[test]
fn a_person_does_what_an_agent_does() {
    let home = Home::new();
    let first = home.says(&[
        "task",
        "create",
        "Write it",
        "--priority",
        "high",
        "--label",
        "b",
        "-l",
        "a",
        "-d",
        "one\ntwo",
    ]);
    let first = first.trim_end();
    let second = home.says(&["task", "create", "Publish it", "--depends-on", first, "--project", "p"]);
    let second = second.trim_end();
    let list = home.says(&["task", "list"]);
    assert_eq!(
        columns(&list),
        [
            vec!["TASK", "STATUS", "PRIORITY", "ASSIGNEE", "BLOCKED BY", "TITLE"],
            vec![first, "INIT", "high", "0", "Write it"],
            vec![second, "INIT", "medium", "1", "Publish it"],
        ]
    );
    let next = home.says(&["task", "next"]);
    assert_eq!(
        columns(&next)[1],
        [first, "INIT", "Write it", "unblocked, high priority, 1 task waits for it"]
    );
    let claimed = home.says(&["task", "next", "--agent", "ada", "--claim"]);
    assert!(
        claimed.starts_with(&format!("{first} is yours until ")) && claimed.ends_with(": Write it\n"),
        "{claimed}"
    );
    assert_eq!(home.says(&["task", "next", "--agent", "bob", "--claim"]), "nothing is free now\n");
    let shown = home.says(&["task", "show", first]);
    assert!(
        shown.contains("\ndescription  one\n             two\n") && shown.contains("\nlabels       a, b\n"),
        "{shown}"
    );

    assert_eq!(home.says(&["session", "start", "Why", "--id", "s", "--task", first]), "s\n");
    assert!(home.says(&["session", "show", "s"]).starts_with("session      s\nstate        open\n\nRECORD"));
    for status in ["gather", "Analyze", "PLAN", "APPLY", "VERIFY"] {
        home.says(&["task", "update", first, "--status", status]);
    }
    let early = home.run(&["task", "update", first, "--status", "done"]);
    assert_eq!((early.code, &*early.out), (Some(5), ""));
    assert!(
        early.err.starts_with("colibri: ERR_WRITEBACK_REQUIRED: a task is not done before"),
        "{}",
        early.err
    );
    home.says(&["thought", "add", "--task", first, "--type", "decision", "--session", "s", "Because"]);
    let piped = pipe(
        &home,
        &["thought", "add", "--task", first, "--type", "reflection", "--agent", "bob", "-"],
        "two\nlines\n",
    );
    assert_eq!(piped.code, Some(0), "{piped:?}");
    let thoughts: Value =
        serde_json::from_str(&home.says(&["thought", "list", "--task", first, "--json"])).unwrap();
    assert_eq!(thoughts["data"]["records"][1]["content"], "two\nlines");
    assert_eq!(thoughts["data"]["records"][1]["agent_id"], "bob");
    let done = home.says(&["task", "update", first, "--status", "DONE"]);
    assert_eq!(done, format!("{first} is DONE now, version 8\n"));

    let sealed = home.says(&["session", "finalize", "s"]);
    assert!(sealed.contains("\nrecords      1\nroot         "), "{sealed}");
    assert!(home.says(&["session", "show", "s"]).starts_with(&sealed), "{sealed}");
    let listed = home.says(&["audit", "list", "-n", "100"]);
    for client in ["colibri task", "colibri thought", "colibri session"] {
        assert!(listed.contains(client), "{client} is not on record:\n{listed}");
    }
    home.says(&["audit", "verify"]);
}

/// SU-5: `--json` prints the tool's envelope, whatever it says, and the exit code tells.
#[test]
fn machines_get_the_envelope() {
    let home = Home::new();
    let created = json(&home.says(&["task", "create", "x", "--json"]));
    assert_eq!([&created["ok"], &created["data"]["title"]], [&json!(true), &json!("x")]);
    let id = created["data"]["id"].as_str().unwrap();
    let cases: [(&[&str], &str, &str); 4] = [
        (&["task", "show", "ghost"], "/data/error/code", "ERR_NOT_FOUND"),
        (&["task", "update", id, "--title", "y", "--version", "7"], "/data/error/code", "ERR_CONFLICT"),
        (
            &["thought", "add", "--task", "ghost", "--type", "plan", "x"],
            "/error/details/code",
            "ERR_NOT_FOUND",
        ),
        (&["session", "show", "ghost"], "/data/error/code", "ERR_SESSION_NOT_FOUND"),
    ];
    for (arguments, path, code) in cases {
        let Ran { code: exit, out, err } = home.run(&[arguments, &["--json"]].concat());
        assert_eq!((exit, &*err), (Some(5), ""), "{arguments:?}");
        assert_eq!(json(&out).pointer(path), Some(&json!(code)), "{arguments:?}: {out}");
        let Ran { code: exit, out, err } = home.run(arguments);
        assert_eq!((exit, &*out), (Some(5), ""), "{arguments:?}");
        assert!(err.starts_with(&format!("colibri: {code}: ")), "{arguments:?}: {err}");
    }
    let cleared = home.says(&[
        "task",
        "update",
        id,
        "--assignee",
        "a",
        "--clear",
        "description",
        "--clear",
        "labels",
        "--json",
    ]);
    assert_eq!(json(&cleared)["data"]["assignee"], "a");
    let cleared = home.says(&[
        "task",
        "update",
        id,
        "--clear",
        "assignee",
        "--clear",
        "depends-on",
        "--clear",
        "project",
        "--json",
    ]);
    assert_eq!(json(&cleared)["data"]["assignee"], Value::Null);
    let listed = home.says(&[
        "task",
        "list",
        "--status",
        "init",
        "--priority",
        "MEDIUM",
        "--full",
        "-n",
        "1",
        "--json",
    ]);
    assert_eq!(json(&listed)["data"]["tasks"][0]["version"], 3);
}

/// What does not fit is refused before or by the tool; either way nothing is done.
#[test]
fn mistakes_are_told_on_stderr() {
    let home = Home::new();
    home.says(&["task", "create", "x"]);
    let cases: [(&[&str], i32, &str); 5] = [
        (
            &["task", "create", ""],
            5,
            "INVALID_PARAMS: invalid arguments: /title: \"\" is shorter than 1 character",
        ),
        (&["task", "list", "--status", "gone"], 2, "possible values: INIT, GATHER"),
        (&["task", "next", "--claim"], 2, "--agent <NAME>"),
        (
            &["thought", "add", "--task", "x", "--type", "guess", "x"],
            2,
            "possible values: plan, analysis, decision, reflection",
        ),
        (&["--mode", "READONLY", "task", "create", "x"], 5, "TOOL_NOT_ADMITTED"),
    ];
    for (arguments, code, says) in cases {
        let ran = home.run(arguments);
        assert_eq!((ran.code, &*ran.out), (Some(code), ""), "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains(says), "{arguments:?}: {}", ran.err);
    }
    let page = home.run(&["task", "list", "-n", "1"]);
    assert_eq!(page.err, "", "there is no more");
    home.says(&["task", "create", "y"]);
    let page = home.run(&["task", "list", "-n", "1"]);
    assert_eq!(page.err, "more: colibri task list --cursor 1, with the same filters\n");
    assert!(home.says(&["task", "list", "--cursor", "1"]).contains(" y\n"));
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// The cells of a table, by the two spaces between them.
fn columns(table: &str) -> Vec<Vec<&str>> {
    table
        .lines()
        .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
        .collect()
}

fn pipe(home: &Home, arguments: &[&str], text: &str) -> Ran {
    let mut command = home.command(arguments);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    Ran::of(child.wait_with_output().unwrap())
}
