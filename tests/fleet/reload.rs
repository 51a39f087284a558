//! A configuration that changes twenty times while eight calls are always under way.
#![expect(clippy::unwrap_used, reason = "a story ends at the first surprise")]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::children::processes;
use crate::cli::{Ran, SERVER, run};
use crate::hostile::child::{Colibri, Home};
use crate::support::until;

/// Calls that are under way at any moment.
const CALLS: usize = 8;

/// What came of the calls.
struct Pumped {
    colibri: Colibri,
    answered: usize,
    failed: Vec<Value>,
}

/// Keeps calls of `a` under way until it is told to end, and then waits for every answer.
fn pump(mut colibri: Colibri, stop: &AtomicBool) -> Pumped {
    let (mut next, mut under_way) = (1_u64, BTreeSet::new());
    let (mut answered, mut failed) = (0, Vec::new());
    loop {
        while under_way.len() < CALLS && !stop.load(Ordering::Relaxed) {
            let call = json!({ "name": "a__echo", "arguments": { "n": next.to_string() } });
            colibri.send(
                &json!({ "jsonrpc": "2.0", "id": next, "method": "tools/call", "params": call }).to_string(),
            );
            under_way.insert(next);
            next += 1;
        }
        if under_way.is_empty() {
            return Pumped { colibri, answered, failed };
        }
        let answer = colibri.answer();
        // Anything without an id is word of a changed list.
        let Some(id) = answer["id"].as_u64() else { continue };
        assert!(under_way.remove(&id), "answered twice: {answer}");
        if answer["result"]["heard"] == json!({ "n": id.to_string() }) {
            answered += 1;
        } else {
            failed.push(answer);
        }
    }
}

/// A colibri under load, as a person beside it sees it.
struct Stage {
    home: Home,
    pid: i32,
    mark: String,
}

/// Out of servers' reach as a whole, so that files in it may be replaced.
fn folder(home: &Home) -> std::path::PathBuf {
    home.path().join("colibri")
}

/// How a change is brought about.
#[derive(Clone, Copy, PartialEq)]
enum By {
    File,
    Hangup,
    Command,
}

impl Stage {
    fn file(&self) -> std::path::PathBuf {
        folder(&self.home).join("servers.json")
    }

    /// `b` under a mark of its own, with this beside.
    fn b(&self, mark: &str, beside: &Value) -> Value {
        let mut b = json!({ "command": "sh", "args": ["-c", SERVER, format!("{}-{mark}", self.mark)] });
        for (key, value) in beside.as_object().into_iter().flatten() {
            b[key] = value.clone();
        }
        b
    }

    fn write(&self, b: Option<Value>, by: By) -> Option<Ran> {
        let mut servers = json!({ "a": a() });
        if let Some(b) = b {
            servers["b"] = b;
        }
        self.write_text(&json!({ "mcpServers": servers }).to_string(), by)
    }

    fn write_text(&self, text: &str, by: By) -> Option<Ran> {
        let new = folder(&self.home).join("new.json");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, self.file()).unwrap();
        self.notice(by)
    }

    fn notice(&self, by: By) -> Option<Ran> {
        match by {
            By::File => None,
            By::Hangup => {
                kill_process(Pid::from_raw(self.pid).unwrap(), Signal::HUP).unwrap();
                None
            }
            By::Command => Some(run(&self.home, &["reload"])),
        }
    }

    /// What `status` says of a server; nothing, if there is none of that name.
    fn standing(&self, name: &str) -> Value {
        let status = run(&self.home, &["status", "--json"]).json();
        let servers = status["colibris"][0]["servers"].as_array().cloned().unwrap_or_default();
        servers.into_iter().find(|server| server["name"] == name).unwrap_or_default()
    }

    /// Waits until the process of `b` has that variable, and gives it.
    #[track_caller]
    fn having(&self, variable: &str) -> Value {
        until(variable, || {
            let b = self.standing("b");
            (b["state"] == "ready" && has_variable(&b["pid"], variable)).then(|| b["pid"].clone())
        })
    }

    /// Waits until `b` runs in another process than `before`, and gives that.
    #[track_caller]
    fn another(&self, before: &Value) -> Value {
        until("b has another process", || {
            let b = self.standing("b");
            (b["state"] == "ready" && b["pid"].is_u64() && b["pid"] != *before).then(|| b["pid"].clone())
        })
    }

    #[track_caller]
    fn await_said(&self, words: &str, times: usize) {
        until(words, || (self.said().matches(words).count() >= times).then_some(()));
    }

    fn said(&self) -> String {
        std::fs::read_to_string(self.home.path().join("stderr")).unwrap()
    }

    fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid)).unwrap().count()
    }
}

fn a() -> Value {
    json!({ "command": "sh", "args": ["-c", SERVER] })
}

fn has_variable(pid: &Value, variable: &str) -> bool {
    // It may have ended since it was asked for.
    let environment = std::fs::read(Path::new("/proc").join(pid.to_string()).join("environ"));
    let Ok(environment) = environment else { return false };
    environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes())
}

/// PR-2, PR-6, PR-12, PR-15, PR-17: twenty changes of the file, noticed by itself, by a signal or by command, under load:
/// every call of the server that did not change succeeds, in the same process; the other one follows; a bad file changes
/// nothing and is told with its line; in the end nothing is left of what was removed.
#[test]
fn twenty_changes_cost_no_call() {
    let home = Home::new();
    let file = folder(&home).join("servers.json");
    std::fs::create_dir(folder(&home)).unwrap();
    std::fs::write(&file, json!({ "mcpServers": { "a": a() } }).to_string()).unwrap();
    let mut command = home.command();
    command.arg("--config").arg(&file).arg("serve");
    let mut colibri = Colibri::spawn(home, command);
    colibri.initialize("2025-11-25");
    let pid = colibri.pid().as_raw_nonzero().get();
    // The calls have the pipes; who changes the file has the folder.
    let home = std::mem::replace(&mut colibri.home, Home::new());
    let stage = Stage { home, pid, mark: format!("reload-{}", std::process::id()) };
    let stop = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stop);
    let calls = std::thread::spawn(move || pump(colibri, &told));
    until("a is ready", || (stage.standing("a")["state"] == "ready").then_some(()));
    let (process, descriptors) = (stage.standing("a")["pid"].clone(), stage.descriptors());

    changes(&stage);
    bad_files(&stage);
    coming_and_going(&stage);

    assert_eq!(stage.standing("a")["pid"], process, "the same process from start to end");
    assert_eq!(stage.standing("a")["restarts"], 0);
    let words = format!("{}-", stage.mark);
    until("nothing is left of what was removed", || {
        let marks = ["1", "2", "3", "4"].map(|mark| processes(&format!("{words}{mark}")).len());
        (marks == [0; 4]).then_some(())
    });
    until("its descriptors are as before", || (stage.descriptors().abs_diff(descriptors) <= 2).then_some(()));
    stop.store(true, Ordering::Relaxed);
    let Pumped { mut colibri, answered, failed } = calls.join().unwrap();
    assert_eq!(failed, Vec::<Value>::new());
    assert!(answered > 200, "there was no load: {answered}");
    colibri.home = stage.home;
    colibri.finish();
}

/// Nine changes: added, other arguments, another secret, an `envFile`, what is in it, turned off and on, removed.
fn changes(stage: &Stage) {
    let added = stage.write(Some(stage.b("1", &json!({ "env": { "SECRET": "first-one" } }))), By::Command);
    assert!(added.is_some_and(|ran| ran.code == 0 && ran.stdout.contains("added: b")));
    let first = stage.having("SECRET=first-one");
    stage.write(Some(stage.b("2", &json!({ "env": { "SECRET": "first-one" } }))), By::File);
    let second = stage.another(&first);
    // A process is known a moment before it runs its program.
    let words = format!("{}-2", stage.mark);
    until("it runs with other arguments", || (!processes(&words).is_empty()).then_some(()));
    stage.write(Some(stage.b("2", &json!({ "env": { "SECRET": "second-one" } }))), By::Hangup);
    // A changed secret is a change.
    stage.another(&second);
    stage.having("SECRET=second-one");

    let variables = folder(&stage.home).join("b.env");
    std::fs::write(&variables, "SECRET=from-a-file\n").unwrap();
    let with_file = stage.b("2", &json!({ "envFile": variables }));
    stage.write(Some(with_file.clone()), By::File);
    stage.having("SECRET=from-a-file");
    std::fs::write(&variables, "SECRET=from-another\n").unwrap();
    // And so is what is in an envFile.
    let fifth = stage.having("SECRET=from-another");
    std::fs::write(&variables, "SECRET=from-a-third\n").unwrap();
    let ran = stage.notice(By::Command).unwrap();
    assert!(ran.code == 0 && ran.stdout.contains("changed: b"), "{ran:?}");
    let sixth = stage.another(&fifth);

    let mut off = with_file.clone();
    off["disabled"] = true.into();
    stage.write(Some(off), By::Hangup);
    until("b is off", || (stage.standing("b")["state"] == "disabled").then_some(()));
    until("its process is gone", || (!Path::new(&format!("/proc/{sixth}")).exists()).then_some(()));
    stage.write(Some(with_file), By::Command);
    stage.another(&sixth);
    stage.write(None, By::File);
    until("b is gone", || stage.standing("b").is_null().then_some(()));
}

/// Six changes: three files that are no good, an entry that is none, and a key that nobody knows.
fn bad_files(stage: &Stage) {
    stage.write(Some(stage.b("3", &json!({}))), By::Hangup);
    let b = stage.another(&Value::Null);
    let broken = "{\n  \"mcpServers\": {\n    \"a\": nonsense\n  }\n}";
    let ran = stage.write_text(broken, By::Command).unwrap();
    assert!(ran.code != 0 && ran.stderr.contains("servers.json:3"), "{ran:?}");
    stage.write_text(&format!("\n{broken}"), By::File);
    stage.await_said("the new configuration is not used (the files changed)", 1);
    stage.write_text(&format!("\n\n{broken}"), By::Hangup);
    stage.await_said("the new configuration is not used (SIGHUP)", 1);
    let said = stage.said();
    for place in ["servers.json:3", "servers.json:4", "servers.json:5"] {
        assert!(said.contains(place), "{place} is not in\n{said}");
    }
    // An entry that cannot be used costs nothing either: what ran goes on.
    stage.write(Some(json!({ "command": 7 })), By::Command);
    assert_eq!(stage.standing("b")["pid"], b);
    let odd = json!({ "mcpServers": { "a": a(), "b": stage.b("3", &json!({})) }, "zebraStripes": 7 });
    let ran = stage.write_text(&odd.to_string(), By::Command).unwrap();
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(stage.said().contains("zebraStripes"), "{}", stage.said());
    assert_eq!(stage.standing("b")["pid"], b, "nothing has changed for it");
}

/// Five changes, one right after the other.
fn coming_and_going(stage: &Stage) {
    for _ in 0..2 {
        let ran = stage.write(None, By::Command).unwrap();
        assert!(ran.stdout.contains("removed: b"), "{ran:?}");
        stage.write(Some(stage.b("4", &json!({}))), By::Hangup);
        stage.another(&Value::Null);
    }
    stage.write(None, By::Command);
}

/// SB-3: a server that writes a configuration file where there was none gets nothing started by it: colibri says so, and
/// goes on as it was.
#[test]
fn a_file_that_appears_while_servers_run_waits() {
    let home = Home::new();
    let server = json!({ "command": "sh", "args": ["-c", SERVER] });
    let project = home.path().join("work/colibri.json");
    std::fs::write(&project, json!({ "mcpServers": { "shell": server } }).to_string()).unwrap();
    let mut trust = home.command();
    assert!(trust.args(["trust", "--yes", "colibri.json"]).output().unwrap().status.success());
    let mut command = home.command();
    command.arg("serve");
    let mut colibri = Colibri::spawn(home, command);
    colibri.initialize("2025-11-25");
    until("the server is ready", || colibri.log().contains("[mcp:shell] ready").then_some(()));
    let folder = colibri.home.path().join(".config/colibri");
    std::fs::create_dir_all(&folder).unwrap();
    let planted = json!({ "mcpServers": { "planted": { "command": "sh", "sandbox": "off" } } });
    std::fs::write(folder.join("colibri.json"), planted.to_string()).unwrap();
    until("it is refused", || colibri.log().contains("was not there when colibri started").then_some(()));
    assert!(!colibri.log().contains("mcp:planted"), "{}", colibri.log());
    colibri.finish();
}
