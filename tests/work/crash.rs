//! Killed in the middle of work: what is there afterwards is whole, call by call.

use std::collections::BTreeMap;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use serde_json::{Value, json};

use super::client::{Client, FAMILIES, Family, Home, is_full_check};

/// SU-3: `kill -9` under load, again and again on one database. A task, its records, its reasons and their count always agree,
/// what was acknowledged is there, and the ledger is intact.
#[test]
fn a_half_done_call_is_never_visible() {
    let home = Home::new();
    let rounds = if is_full_check() { 40 } else { 4 };
    let mut acknowledged = Acknowledged::default();
    for round in 0..rounds {
        let client = Client::start(&home, FAMILIES[round % 2]);
        storm(client, Duration::from_millis(40 + 37 * (round as u64 % 7)), &mut acknowledged);
        // The next start recovers before anything is looked at.
        let mut client = Client::start(&home, Family::Modern);
        let trail = client.ok("audit_verify_chain", &json!({}));
        assert_eq!(trail["valid"], true, "round {round}: {trail}");
        drop(client);
        check(&Connection::open(home.database()).unwrap(), &acknowledged);
    }
    assert!(!acknowledged.versions.is_empty(), "something was acknowledged before the kills");
    home.says(&["audit", "verify"]);
}

/// What a client was told.
#[derive(Default)]
struct Acknowledged {
    /// The newest version of each task.
    versions: BTreeMap<String, u64>,
    thoughts: Vec<String>,
}

/// Works as fast as the server answers until it is killed. Every answer that arrived counts.
fn storm(mut client: Client, life: Duration, acknowledged: &mut Acknowledged) {
    let (told, begun) = sync_channel(1);
    let pid = client.child.id();
    let killer = std::thread::spawn(move || {
        begun.recv().unwrap();
        let deadline = Instant::now() + life;
        while Instant::now() < deadline {
            std::thread::yield_now();
        }
        let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    });
    work(&mut client, &told, acknowledged);
    killer.join().unwrap();
}

fn work(client: &mut Client, told: &SyncSender<()>, acknowledged: &mut Acknowledged) {
    let mut tasks: Vec<Value> = Vec::new();
    for number in 0_u64.. {
        let task = tasks.get(number as usize / 2 % tasks.len().max(1));
        let (tool, arguments) = match (number % 4, task) {
            (1, Some(task)) => (
                "thought_record",
                json!({ "type": "plan", "task_id": task, "agent_id": "a", "content": "why" }),
            ),
            (2, Some(task)) => (
                "task_update",
                json!({ "id": task, "patch": { "title": number.to_string(), "labels": ["l"] } }),
            ),
            (3, _) => ("task_next_actions", json!({ "agent_id": number.to_string(), "claim": true })),
            _ => (
                "task_create",
                json!({ "title": number.to_string(), "depends_on": tasks.iter().take(2).collect::<Vec<_>>() }),
            ),
        };
        client.send_call(tool, &arguments);
        let Some(answer) = client.read() else { return };
        let data = client.checked(tool, &answer)["data"].clone();
        if tool == "thought_record" {
            acknowledged.thoughts.push(text(&data["id"]));
            continue;
        }
        let task = if tool == "task_next_actions" { &data["claimed"] } else { &data };
        if let Some(version) = task["version"].as_u64() {
            acknowledged.versions.insert(text(&task["id"]), version);
        }
        if tool == "task_create" {
            tasks.push(data["id"].clone());
        }
        if number == 4 {
            told.send(()).unwrap();
        }
    }
}

/// The tables against the records, and both against what was acknowledged.
fn check(database: &Connection, acknowledged: &Acknowledged) {
    let number = |sql: &str| database.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    let changed = "FROM record WHERE bytes ->> '$.event' = 'task.changed'";
    let created = format!("SELECT count(*) {changed} AND bytes ->> '$.facts.change' = 'created'");
    assert_eq!(number("SELECT count(*) FROM task"), number(&created), "tasks and their records");
    assert_eq!(
        number("SELECT sum(version) FROM task"),
        number(&format!("SELECT count(*) {changed}")),
        "versions"
    );
    let recorded = "SELECT count(*) FROM record WHERE bytes ->> '$.event' = 'thought.recorded'";
    assert_eq!(number("SELECT count(*) FROM thought"), number(recorded), "thoughts and their records");
    assert_eq!(
        number("SELECT sum(thoughts) FROM task"),
        number(recorded),
        "thoughts as their tasks count them"
    );
    assert_eq!(
        number("SELECT count(*) FROM dependency"),
        number("SELECT sum(blocked_by) FROM task"),
        "none has ended"
    );
    assert_eq!(number("SELECT count(*) FROM dependency"), number("SELECT sum(dependants) FROM task"));
    assert_eq!(
        number("SELECT count(*) FROM label"),
        number("SELECT count(*) FROM task, json_each(task.labels)"),
        "labels"
    );
    let bodies = format!("SELECT count(*) {changed} AND place NOT IN (SELECT place FROM body)");
    assert_eq!(number(&bodies), 0, "every change has its body");
    let call_less = "SELECT count(*) FROM record WHERE bytes ->> '$.event' IN ('task.changed', 'thought.recorded') AND \
                     bytes ->> '$.facts.call' NOT IN (SELECT bytes ->> '$.facts.call' FROM record WHERE bytes ->> '$.event' = 'call.enter')";
    assert_eq!(number(call_less), 0, "nothing was done outside a call");
    for (id, version) in &acknowledged.versions {
        let kept =
            database.query_row("SELECT version FROM task WHERE id = ?", [id], |row| row.get::<_, i64>(0));
        assert!(
            kept.as_ref().is_ok_and(|kept| kept.cast_unsigned() >= *version),
            "task {id}, version {version}: {kept:?}"
        );
    }
    for id in &acknowledged.thoughts {
        let kept = database.query_row("SELECT 1 FROM thought WHERE id = ?", [id], |_| Ok(()));
        assert!(kept.is_ok(), "thought {id} was acknowledged and is gone");
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}
