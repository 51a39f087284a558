//! Whether work stays flat as the ledger grows: the cost of the tools that agents use all day at 1 000 records and
//! at a million, side by side, and their ratio.
//!
//! ```sh
//! cargo bench --bench scale                     # 1 000 000 records, 100 000 tasks; some minutes
//! cargo bench --bench scale -- 100000 10000     # fewer of both
//! ```
//!
//! Each line is the best of several medians of calls through the store's own verbs, taken from both ledgers in turn, so that
//! a neighbour's load falls on both. A proof grows with the logarithm of the records; all else should not grow. The ledgers are made by the same verbs, with
//! durability `relaxed`, so that the disk's patience is not what is measured.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures time and prints")]
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark measures time and prints")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use colibri::domain::audit::{CallId, Durability, Payloads};
use colibri::domain::clock::{Clock, Moment, Timestamp};
use colibri::domain::log::Logger;
use colibri::domain::task::ask::{Fields, Labels, New, NextActions, Patch, Query};
use colibri::domain::task::{Priority, Status};
use colibri::domain::thought::Kind;
use colibri::store::{Act, Closing, NewThought, Options, Store};
use tempfile::TempDir;
use uuid::Uuid;

/// The ledger that every other is compared with.
const SMALL: u64 = 1_000;
/// Verbs in flight while a ledger is made: as many as one transaction takes.
const CROWD: usize = 256;
/// Calls of each kind that are measured.
const CALLS: usize = 101;
/// Medians taken of each.
const ROUNDS: usize = 5;
/// Above this ratio a line is marked.
const GOAL: f64 = 1.5;

fn main() {
    let mut sizes = std::env::args().skip(1).filter_map(|word| word.parse::<u64>().ok());
    let records = sizes.next().unwrap_or(1_000_000);
    let tasks = sizes.next().unwrap_or(100_000).min(records / 2);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (small, large) = runtime.block_on(async {
        let benches = (Bench::make(SMALL, SMALL / 2).await, Bench::make(records, tasks).await);
        let mut best = (benches.0.measure().await, benches.1.measure().await);
        for _ in 1..ROUNDS {
            least(&mut best.0, benches.0.measure().await);
            least(&mut best.1, benches.1.measure().await);
        }
        benches.0.close().await;
        benches.1.close().await;
        best
    });
    println!("{:<34} {:>12} {:>12} {:>7}", "microseconds", SMALL, records, "ratio");
    for ((name, before), (_, after)) in small.iter().zip(&large) {
        let ratio = after.as_secs_f64() / before.as_secs_f64();
        let mark = if ratio > GOAL { "  above the goal" } else { "" };
        println!("{name:<34} {:>12.1} {:>12.1} {ratio:>7.2}{mark}", micros(*before), micros(*after));
    }
}

type Lines = Vec<(&'static str, Duration)>;

fn least(best: &mut Lines, lines: Lines) {
    for ((_, best), (_, time)) in best.iter_mut().zip(lines) {
        *best = time.min(*best);
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

struct Bench {
    store: Store,
    closing: Closing,
    ids: Vec<String>,
    records: u64,
    folder: TempDir,
}

impl Bench {
    /// A ledger of that many records: tasks, then changes and reasons of them.
    async fn make(records: u64, tasks: u64) -> Self {
        let folder = TempDir::new().unwrap();
        let options = Options {
            database: folder.path().join("colibri.db"),
            durability: Durability::Relaxed,
            payloads: Payloads::None,
            version: "bench".to_owned(),
            clock: Arc::new(Still),
            logger: Logger::silent(),
        };
        let (store, closing) = Store::open(options).unwrap();
        store.ready().await.unwrap();
        let started = Instant::now();
        let mut ids = Vec::new();
        let mut crowd = tokio::task::JoinSet::new();
        for number in 0..tasks {
            let store = store.clone();
            crowd.spawn(async move { store.create_task(act(), task(number)).await.unwrap().unwrap().id });
            if crowd.len() == CROWD {
                ids.extend(crowd.join_next().await.map(Result::unwrap));
            }
        }
        ids.extend(crowd.join_all().await);
        let mut crowd = tokio::task::JoinSet::new();
        for number in tasks + 1..records {
            let (store, id) = (store.clone(), ids[(number * 7919 % tasks) as usize].clone());
            crowd.spawn(async move { change(&store, id, number).await });
            if crowd.len() == CROWD {
                crowd.join_next().await.unwrap().unwrap();
            }
        }
        crowd.join_all().await;
        store.checkpoint().await.unwrap();
        println!("made {records} records of {tasks} tasks in {:.1} s", started.elapsed().as_secs_f64());
        Self { store, closing, ids, records, folder }
    }

    async fn measure(&self) -> Lines {
        let agent = |agent: &str| NextActions { agent_id: Some(agent.to_owned()), ..NextActions::default() };
        let project =
            || NextActions { project_id: Some("p7".to_owned()), limit: Some(3), ..NextActions::default() };
        let held = NextActions { agent_id: Some("nobody".to_owned()), ..project() };
        // Pages that both ledgers can fill: what is compared is the way to them.
        let label = Query { label: Some("l3".to_owned()), limit: Some(20), ..Query::default() };
        let rare = Query { label: Some("rare".to_owned()), ..Query::default() };
        let middle = Query { cursor: Some((self.ids.len() / 2).to_string()), ..Query::default() };
        let full = Query { fields: Fields::Full, status: Some(Status::Init), ..Query::default() };
        let of_agent = Query { assignee: Some("a5".to_owned()), limit: Some(5), ..Query::default() };
        let urgent = Query { priority: Some(Priority::Critical), ..Query::default() };
        let mut lines = vec![
            ("task_get", self.get().await),
            ("task_next_actions", self.next(NextActions::default()).await),
            ("task_next_actions, of a project", self.next(project()).await),
            ("task_next_actions, for an agent", self.next(agent("a5")).await),
            ("task_next_actions, for a stranger", self.next(agent("nobody")).await),
            ("task_next_actions, both", self.next(held).await),
            ("task_list", self.list(Query::default()).await),
            ("task_list, from the middle", self.list(middle).await),
            ("task_list, of a label", self.list(label).await),
            ("task_list, of a rare label", self.list(rare).await),
            ("task_list, full, of a status", self.list(full).await),
            ("task_list, of an agent", self.list(of_agent).await),
            ("task_list, of a priority", self.list(urgent).await),
            ("a proof (logarithmic)", self.prove()),
        ];
        lines.push(("task_update", self.update().await));
        lines.push(("task_next_actions, claim", self.claim().await));
        lines.push(("thought_record", self.think().await));
        lines
    }

    async fn close(self) {
        self.closing.close().await;
        println!("{} records take {} MB on disk", self.records, size_of(self.folder.path()) >> 20);
    }

    async fn get(&self) -> Duration {
        let mut times = Times::default();
        for number in 0..CALLS {
            let id = self.ids[number * 7919 % self.ids.len()].clone();
            times.time(self.store.read(move |reader| reader.task(&id, NOW))).await.unwrap();
        }
        times.median()
    }

    async fn next(&self, ask: NextActions) -> Duration {
        let mut times = Times::default();
        for _ in 0..CALLS {
            let ask = ask.clone();
            times.time(self.store.read(move |reader| reader.next_actions(&ask, NOW))).await;
        }
        times.median()
    }

    async fn list(&self, query: Query) -> Duration {
        let mut times = Times::default();
        for _ in 0..CALLS {
            let query = query.clone();
            times.time(self.store.read(move |reader| reader.tasks(&query, NOW))).await;
        }
        times.median()
    }

    async fn claim(&self) -> Duration {
        let mut times = Times::default();
        // Few, so that the small ledger has one for each.
        for number in 0..CALLS / ROUNDS {
            let ask =
                NextActions { agent_id: Some(number.to_string()), claim: true, ..NextActions::default() };
            times.time(self.store.claim_task(act(), ask)).await;
        }
        times.median()
    }

    async fn update(&self) -> Duration {
        let mut times = Times::default();
        for number in 0..CALLS {
            let id = self.ids[number * 7919 % self.ids.len()].clone();
            let patch = Patch { title: Some(number.to_string()), ..Patch::default() };
            times.time(self.store.update_task(act(), id, patch, None)).await.unwrap();
        }
        times.median()
    }

    async fn think(&self) -> Duration {
        let mut times = Times::default();
        for number in 0..CALLS {
            let id = self.ids[number * 7919 % self.ids.len()].clone();
            times.time(self.store.record_thought(act(), thought(id))).await.unwrap();
        }
        times.median()
    }

    /// As `audit prove` does it: a connection of its own, one record anywhere.
    fn prove(&self) -> Duration {
        let mut times = Times::default();
        for number in 0..CALLS as u64 {
            let started = Instant::now();
            self.store.reader().unwrap().prove(number * 7919 % self.records).unwrap();
            times.0.push(started.elapsed());
        }
        times.median()
    }
}

#[derive(Default)]
struct Times(Vec<Duration>);

impl Times {
    async fn time<T, E: std::fmt::Debug>(&mut self, work: impl Future<Output = Result<T, E>>) -> T {
        let started = Instant::now();
        let done = work.await;
        self.0.push(started.elapsed());
        done.unwrap()
    }

    fn median(mut self) -> Duration {
        self.0.sort_unstable();
        self.0[self.0.len() / 2]
    }
}

/// A tenth is claimed by name, spread over a hundred projects and ten labels.
fn task(number: u64) -> New {
    let labels = if number == 17 { vec!["rare".to_owned()] } else { vec![format!("l{}", number % 10)] };
    New {
        title: format!("task {number}"),
        description: Some("What is to be done, in some more words than its title has.".to_owned()),
        priority: Priority::of_rank((number % 4) as u8),
        labels: Some(Labels(labels)),
        assignee: (number % 10 == 3).then(|| format!("a{}", number / 10 % 10)),
        project_id: Some(format!("p{}", number % 100)),
        depends_on: None,
    }
}

async fn change(store: &Store, id: String, number: u64) {
    match number % 4 {
        0 => {
            let patch = Patch { title: Some(format!("changed {number}")), ..Patch::default() };
            drop(store.update_task(act(), id, patch, None).await.unwrap().unwrap());
        }
        _ => drop(store.record_thought(act(), thought(id)).await.unwrap().unwrap()),
    }
}

fn thought(task_id: String) -> NewThought {
    NewThought {
        kind: Kind::Analysis,
        task_id,
        agent_id: "a".to_owned(),
        content: "Because of what was found.".to_owned(),
        session_id: None,
    }
}

const NOW: Timestamp = Timestamp(1_794_776_100_000);

fn act() -> Act {
    Act { call: CallId(Uuid::now_v7()), at: NOW }
}

struct Still;

impl Clock for Still {
    fn now(&self) -> Moment {
        Moment { wall: NOW, since_boot: Duration::ZERO }
    }
}

fn size_of(folder: &Path) -> u64 {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
}
