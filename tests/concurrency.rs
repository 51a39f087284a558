//! Sixty-four clients at once on one database: sixteen processes, four calls in flight in each.

#![expect(clippy::unwrap_used, reason = "in a story, what must hold and does not is a panic")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::work::client::{Client, FAMILIES, Family, Home, error, is_full_check, succeeded};

const PROCESSES: usize = 16;
const LANES: usize = 4;
/// Tasks that everybody changes.
const SHARED: usize = 4;

/// SU-7, SU-8, SU-9: everybody creates, changes, claims and records for a while. No change is lost, no task is claimed twice, no chain
/// is broken, no number is missing.
#[test]
fn sixty_four_clients_share_one_database() {
    let home = Home::new();
    let mut first = Client::start(&home, Family::Modern);
    let shared: Vec<Value> = (0..SHARED)
        .map(|number| {
            first.ok("task_create", &json!({ "title": format!("shared {number}"), "assignee": "all" }))["id"]
                .clone()
        })
        .collect();
    let life = Duration::from_secs(if is_full_check() { 30 } else { 6 });
    let started = AtomicUsize::new(0);
    let done: Vec<Done> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..PROCESSES)
            .map(|process| {
                let (home, shared, started) = (&home, &shared, &started);
                scope.spawn(move || {
                    let client = Client::start(home, FAMILIES[process % 2]);
                    started.fetch_add(1, Ordering::SeqCst);
                    while started.load(Ordering::SeqCst) < PROCESSES {
                        std::thread::yield_now();
                    }
                    Worker { client, process, shared, done: Done::default(), turn: 0 }
                        .work(Instant::now() + life)
                })
            })
            .collect();
        // Whoever asks meanwhile is not told of breaks that are none.
        while workers.iter().any(|worker| !worker.is_finished()) {
            let trail = first.ok("audit_verify_chain", &json!({}));
            assert_eq!(trail["valid"], true, "while everybody works: {trail}");
        }
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    let total = Done::sum(done);
    println!(
        "{} calls, {} created, {} claimed, {} conflicts",
        total.calls,
        total.created.len(),
        total.claimed.len(),
        total.conflicts
    );
    check(&mut first, &shared, &total);
    drop(first);
    check_database(&home, &total);
}

/// What one process was told, all lanes together.
#[derive(Default)]
struct Done {
    calls: u64,
    created: Vec<String>,
    claimed: Vec<String>,
    /// Accepted changes of each shared task, by their versions.
    versions: BTreeMap<String, Vec<u64>>,
    conflicts: u64,
    thoughts: BTreeMap<String, u64>,
}

impl Done {
    fn sum(all: Vec<Self>) -> Self {
        let mut total = Self::default();
        for done in all {
            assert!(done.calls > 0, "every process had its turn");
            total.calls += done.calls;
            total.created.extend(done.created);
            total.claimed.extend(done.claimed);
            total.conflicts += done.conflicts;
            for (id, versions) in done.versions {
                total.versions.entry(id).or_default().extend(versions);
            }
            for (id, count) in done.thoughts {
                *total.thoughts.entry(id).or_default() += count;
            }
        }
        total
    }
}

struct Worker<'w> {
    client: Client,
    process: usize,
    shared: &'w [Value],
    done: Done,
    turn: usize,
}

impl Worker<'_> {
    /// Four calls go out together; when all are answered, four more.
    fn work(mut self, until: Instant) -> Done {
        // The version of each shared task as this process last saw it.
        let mut seen = vec![1_u64; self.shared.len()];
        while Instant::now() < until {
            let mut open = BTreeMap::new();
            for lane in 0..LANES {
                let (tool, arguments) = self.next(lane, &seen);
                open.insert(self.client.send_call(tool, &arguments), tool);
            }
            for _ in 0..LANES {
                let answer = self.client.read().expect("the server answers");
                let tool = open.remove(&answer["id"].as_u64().unwrap()).expect("an answer to an open call");
                let envelope = self.client.checked(tool, &answer);
                self.note(tool, &envelope, &mut seen);
            }
        }
        self.done
    }

    fn next(&mut self, lane: usize, seen: &[u64]) -> (&'static str, Value) {
        self.turn += 1;
        let place = (self.process + self.turn) % self.shared.len();
        let agent = format!("{}.{lane}", self.process);
        match (lane + self.turn / LANES) % 4 {
            0 => ("task_create", json!({ "title": agent })),
            1 => ("task_next_actions", json!({ "agent_id": agent, "claim": true, "limit": 1 })),
            2 => (
                "thought_record",
                json!({ "type": "analysis", "task_id": self.shared[place], "agent_id": agent, "content": "x" }),
            ),
            _ => {
                let patch = json!({ "title": agent });
                ("task_update", json!({ "id": self.shared[place], "patch": patch, "version": seen[place] }))
            }
        }
    }

    fn note(&mut self, tool: &str, envelope: &Value, seen: &mut [u64]) {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let data = &envelope["data"];
        self.done.calls += 1;
        match tool {
            "task_update" if !succeeded(envelope) => {
                let error = error(envelope);
                assert_eq!(error["code"], "ERR_CONFLICT", "{envelope}");
                self.done.conflicts += 1;
                // Whose it was is not said; the newest version that any answer tells is as good as any.
                let newest = error["found"].as_u64().unwrap();
                let stale = error["expected"].as_u64().unwrap();
                seen.iter_mut().filter(|version| **version == stale).for_each(|version| *version = newest);
            }
            _ if !succeeded(envelope) => panic!("{tool} said: {envelope}"),
            "task_create" => self.done.created.push(text(&data["id"])),
            "task_next_actions" => {
                if let Some(task) = data.get("claimed") {
                    self.done.claimed.push(text(&task["id"]));
                }
            }
            "thought_record" => *self.done.thoughts.entry(text(&data["task_id"])).or_default() += 1,
            _ => {
                let place = self.shared.iter().position(|id| *id == data["id"]).unwrap();
                seen[place] = data["version"].as_u64().unwrap();
                self.done.versions.entry(text(&data["id"])).or_default().push(seen[place]);
            }
        }
    }
}

/// What the tools say, against what everybody was told.
fn check(client: &mut Client, shared: &[Value], total: &Done) {
    let mut claimed = total.claimed.clone();
    claimed.sort();
    claimed.dedup();
    assert_eq!(claimed.len(), total.claimed.len(), "a task was claimed twice");
    assert!(total.conflicts > 0 && !claimed.is_empty(), "there was something to fight for");
    for id in shared {
        let task = client.ok("task_get", &json!({ "id": id }));
        let id = id.as_str().unwrap();
        let mut versions = total.versions.get(id).cloned().unwrap_or_default();
        versions.sort_unstable();
        let expected: Vec<u64> = (2..=task["version"].as_u64().unwrap()).collect();
        assert_eq!(versions, expected, "each version of {id} was written once, and by somebody who was told");
        assert_eq!(task["thoughts"], json!(total.thoughts.get(id).copied().unwrap_or(0)), "thoughts of {id}");
    }
    let trail = client.ok("audit_verify_chain", &json!({}));
    assert_eq!(trail["valid"], true, "{trail}");
    assert_eq!(trail["record_count"], json!(total.thoughts.values().sum::<u64>()));
}

/// What is in the database, once everybody has left.
fn check_database(home: &Home, total: &Done) {
    home.says(&["audit", "verify"]);
    let database = Connection::open(home.database()).unwrap();
    let number = |sql: &str| database.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    let index = "place & 0xFFFFFFFFFF";
    let gaps = format!("SELECT count(*) - 1 - max({index}) FROM record");
    assert_eq!(number(&gaps), 0, "the sequence has no gap");
    assert_eq!(number("SELECT count(*) - 1 - max(number & 0xFFFFFFFFFF) FROM call"), 0);
    assert_eq!(number("SELECT count(*) FROM call WHERE exit IS NULL"), 0, "every call has ended");
    assert_eq!(number("SELECT count(*) FROM task").cast_unsigned(), (total.created.len() + SHARED) as u64);
}
