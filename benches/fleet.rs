//! What ten, a thousand and ten thousand tools cost: starting their servers, listing them all, and one call through
//! the whole path, side by side and in turns.
//!
//! ```sh
//! cargo bench --bench fleet
//! ```
//!
//! The servers are in this process and answer at once, nothing is put on record, and one thread does everything, so
//! that what is measured is colibri. A call should cost the same among ten tools and among ten thousand; a list should
//! cost what writing its bytes costs, and at most twice that.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures time and prints")]
#![expect(clippy::print_stdout, reason = "a benchmark measures time and prints")]

#[path = "support/member.rs"]
mod member;

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use colibri::app::SystemClock;
use colibri::call::{Caller, Calls, Parts, Reply};
use colibri::domain::audit::{NoAudit, OnExitFailure, Pending, Principal};
use colibri::domain::clock::Clock;
use colibri::domain::face::SessionId;
use colibri::domain::log::Logger;
use colibri::domain::mode::Mode;
use colibri::fleet::error::Cause;
use colibri::fleet::inbox::Inbox;
use colibri::fleet::link::memory::{Peer, pair};
use colibri::fleet::link::{Link, Opener};
use colibri::fleet::roster::{Fleet, Lives, Member, Plan};
use colibri::mcp::answer::Identity;
use colibri::mcp::lists::PAGE_BYTES_MAX;
use colibri::mcp::revision::REVISIONS;
use serde::Deserialize;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use member::{common, member, settings};

/// Servers, and tools of each.
const SIZES: [(usize, usize); 3] = [(1, 10), (10, 100), (50, 200)];
/// Rounds, each size once in each; the best median counts.
const ROUNDS: usize = 30;
/// Calls of one size in one round.
const CALLS: usize = 400;
/// Whole lists of one size in one round.
const LISTS: usize = 7;
/// Tools that are called again and again, as by an agent at work.
const FAVOURITES: usize = 10;
/// A list that was read a moment ago is not read again before.
const LIST_PAUSE: Duration = Duration::from_millis(1100);
/// Above these a line is marked.
const CALL_GOAL: f64 = 1.1;
const LIST_GOAL: f64 = 2.0;

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(measure());
}

async fn measure() {
    let mut stages = Vec::new();
    println!(
        "| tools | servers | started in | catalogs on the way | bytes of the list | one server changes |"
    );
    println!("|---|---|---|---|---|---|");
    for (servers, each) in SIZES {
        let stage = Stage::start(servers, each).await;
        let changed = stage.change().await;
        println!(
            "| {} | {servers} | {:.1} ms | {} | {} | {:.2} ms |",
            stage.names.len(),
            millis(stage.started_in),
            stage.catalogs,
            stage.list().len(),
            millis(changed),
        );
        stages.push(stage);
    }
    for stage in &stages {
        // Schemas are compiled with the first call.
        for name in &stage.names {
            stage.call(name).await;
        }
    }
    let mut best = vec![Costs::default(); SIZES.len()];
    for _ in 0..ROUNDS {
        for (best, stage) in best.iter_mut().zip(&stages) {
            best.least(&stage.costs().await);
        }
    }
    print_calls(&stages, &best);
    print_lists(&stages, &best);
    for stage in stages {
        stage.fleet.close().await;
    }
}

fn print_calls(stages: &[Stage], best: &[Costs]) {
    println!("\n| tools | one call, of ten tools | ratio | one call, of all in turn | ratio |");
    println!("|---|---|---|---|---|");
    for (stage, costs) in stages.iter().zip(best) {
        let ratios = [ratio(costs.call, best[0].call), ratio(costs.any_call, best[0].any_call)];
        println!(
            "| {} | {:.2} µs | {}{:.2} | {:.2} µs | {:.2} |",
            stage.names.len(),
            micros(costs.call),
            mark(ratios[0], CALL_GOAL),
            ratios[0],
            micros(costs.any_call),
            ratios[1],
        );
    }
}

fn print_lists(stages: &[Stage], best: &[Costs]) {
    println!(
        "\n| tools | the whole list | for each tool | writing the same bytes | ratio | first list of a catalog |"
    );
    println!("|---|---|---|---|---|---|");
    for (stage, costs) in stages.iter().zip(best) {
        let ratio = ratio(costs.list, costs.bytes);
        println!(
            "| {} | {:.1} µs | {} ns | {:.1} µs | {}{ratio:.2} | {:.1} µs |",
            stage.names.len(),
            micros(costs.list),
            costs.list.as_nanos() / stage.names.len() as u128,
            micros(costs.bytes),
            mark(ratio, LIST_GOAL),
            micros(costs.first_list),
        );
    }
}

fn mark(ratio: f64, goal: f64) -> &'static str {
    if ratio > goal { "above the goal: " } else { "" }
}

fn ratio(one: Duration, other: Duration) -> f64 {
    one.as_secs_f64() / other.as_secs_f64()
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// The best of each so far.
#[derive(Clone)]
struct Costs {
    call: Duration,
    any_call: Duration,
    list: Duration,
    bytes: Duration,
    first_list: Duration,
}

impl Default for Costs {
    fn default() -> Self {
        let never = Duration::MAX;
        Self { call: never, any_call: never, list: never, bytes: never, first_list: never }
    }
}

impl Costs {
    fn least(&mut self, other: &Self) {
        self.call = self.call.min(other.call);
        self.any_call = self.any_call.min(other.any_call);
        self.list = self.list.min(other.list);
        self.bytes = self.bytes.min(other.bytes);
        self.first_list = self.first_list.min(other.first_list);
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

struct Stage {
    fleet: Fleet,
    calls: Calls,
    names: Vec<Arc<str>>,
    /// The server that changes its list.
    changing: Canned,
    started_in: Duration,
    catalogs: u64,
    caller: Caller,
}

impl Stage {
    async fn start(servers: usize, each: usize) -> Self {
        let canned: Vec<Canned> = (0..servers).map(|_| Canned::new(each)).collect();
        let members = canned.iter().enumerate().map(|(number, server)| member_of(number, server)).collect();
        let begun = Instant::now();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
        let fleet = Fleet::start(Plan { members, ..Plan::default() }, common(&clock));
        let mut catalog = fleet.catalog();
        let all = catalog.wait_for(|catalog| catalog.tools().len() == servers * each).await;
        let all = Arc::clone(&all.expect("the fleet is there"));
        let names = all.tools().iter().map(|tool| Arc::clone(&tool.name)).collect();
        let started_in = begun.elapsed();
        let calls = path(&fleet, clock);
        let principal = Arc::new(Principal { client: "bench".to_owned(), user: "bench".to_owned() });
        let caller = Caller { principal, revision: "2025-11-25", session: SessionId::default() };
        let (catalogs, changing) = (fleet.changes().borrow().tools, canned[0].clone());
        Self { fleet, calls, names, changing, started_in, catalogs, caller }
    }

    /// From a server's word that its list has changed to the catalog that has it.
    async fn change(&self) -> Duration {
        let mut changes = self.fleet.changes();
        changes.borrow_and_update();
        tokio::time::sleep(LIST_PAUSE).await;
        let begun = Instant::now();
        self.changing.change().await;
        changes.changed().await.expect("the fleet is there");
        begun.elapsed()
    }

    async fn costs(&self) -> Costs {
        let (mut call, mut any_call) = (Vec::new(), Vec::new());
        for number in 0..CALLS {
            call.push(self.call(&self.names[number % FAVOURITES]).await);
            // A prime, so that it comes to all of them in no order.
            any_call.push(self.call(&self.names[number * 7919 % self.names.len()]).await);
        }
        let (mut list, mut bytes) = (Vec::new(), Vec::new());
        let copied = pages(&self.calls);
        for _ in 0..LISTS {
            let begun = Instant::now();
            black_box(pages(&self.calls));
            list.push(begun.elapsed());
            let begun = Instant::now();
            black_box(copied.iter().map(|page| page.as_slice().to_vec()).collect::<Vec<_>>());
            bytes.push(begun.elapsed());
        }
        // A new path has not put any list together yet.
        let fresh = path(&self.fleet, Arc::new(SystemClock::start()));
        let begun = Instant::now();
        black_box(pages(&fresh));
        let first_list = begun.elapsed();
        Costs {
            call: median(call),
            any_call: median(any_call),
            list: median(list),
            bytes: median(bytes),
            first_list,
        }
    }

    async fn call(&self, name: &str) -> Duration {
        let arguments = Bytes::from_static(br#"{"query":"what is there","limit":20,"tags":["a","b"]}"#);
        let begun = Instant::now();
        let call = self.calls.arrival(name, Some(arguments), self.caller.clone(), CancellationToken::new());
        let reply = self.calls.run(call).await;
        let time = begun.elapsed();
        assert!(matches!(reply, Reply::Result { .. }), "{reply:?}");
        time
    }

    fn list(&self) -> Vec<u8> {
        pages(&self.calls).concat()
    }
}

/// As a client reads it: page after page.
fn pages(calls: &Calls) -> Vec<Vec<u8>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Tail {
        next_cursor: Option<String>,
    }
    let identity =
        Identity { version: "1".to_owned(), instructions: String::new(), skills: false, servers: true };
    let revision = REVISIONS.iter().find(|revision| revision.date == "2025-11-25").expect("it is known");
    let (mut pages, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let page = calls.listed().page(cursor.as_deref(), &identity, revision, PAGE_BYTES_MAX);
        let page = page.expect("the cursor is colibri's own");
        // What follows the entries is short; reading all of it would be the client's cost.
        let end = memchr::memmem::rfind(&page, b"],").map(|at| [b"{", &page[at + 2..]].concat());
        let tail = end.and_then(|end| serde_json::from_slice::<Tail>(&end).ok());
        pages.push(page);
        cursor = tail.and_then(|tail| tail.next_cursor);
        if cursor.is_none() {
            return pages;
        }
    }
}

fn path(fleet: &Fleet, clock: Arc<dyn Clock>) -> Calls {
    let parts = Parts {
        registry: colibri::tools::Registry::default(),
        fleet: Some(fleet.clone()),
        mode: Mode::Full,
        sink: Arc::new(NoAudit),
        on_exit_failure: OnExitFailure::default(),
        clock,
        logger: Logger::silent(),
        trouble: watch::Sender::new(None),
    };
    Calls::new(parts).expect("there are no tools of its own")
}

fn member_of(number: usize, server: &Canned) -> Member {
    member(settings(&format!("server{number}"), Box::new(server.clone())), Lives::Used)
}

/// A server in this process that has its answers ready.
#[derive(Clone)]
struct Canned(Arc<State>);

struct State {
    /// What it lists first, and from its first change on.
    lists: [String; 2],
    is_changed: std::sync::atomic::AtomicBool,
    out: std::sync::Mutex<Option<mpsc::Sender<Bytes>>>,
}

impl Canned {
    fn new(tools: usize) -> Self {
        let list = |first: &str| {
            let all = (0..tools).map(|number| definition(number, if number == 0 { first } else { "Finds" }));
            all.collect::<Vec<_>>().join(",")
        };
        let state =
            State { lists: [list("Finds"), list("Seeks")], is_changed: false.into(), out: None.into() };
        Self(Arc::new(state))
    }

    /// One of its tools is described in other words from now on, and it says so.
    async fn change(&self) {
        self.0.is_changed.store(true, std::sync::atomic::Ordering::SeqCst);
        let out = self.0.out.lock().expect("sound").clone().expect("it is connected");
        let told = Bytes::from_static(br#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#);
        out.send(told).await.expect("somebody reads");
    }

    async fn serve(self, Peer { mut received, send }: Peer) {
        #[derive(Deserialize)]
        struct Asked<'a> {
            id: Option<u64>,
            method: &'a str,
        }
        *self.0.out.lock().expect("sound") = Some(send.clone());
        while let Some(frame) = received.recv().await {
            let Ok(Asked { id: Some(id), method }) = serde_json::from_slice(&frame) else { continue };
            let answer = match method {
                "initialize" => r#""result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}}}"#.to_owned(),
                "tools/list" => {
                    let is_changed = self.0.is_changed.load(std::sync::atomic::Ordering::SeqCst);
                    format!(r#""result":{{"tools":[{}]}}"#, self.0.lists[usize::from(is_changed)])
                }
                "tools/call" => r#""result":{"content":[{"type":"text","text":"found"}]}"#.to_owned(),
                "ping" => r#""result":{}"#.to_owned(),
                _ => r#""error":{"code":-32601,"message":"no such method"}"#.to_owned(),
            };
            if send.send(format!(r#"{{"jsonrpc":"2.0","id":{id},{answer}}}"#).into()).await.is_err() {
                return;
            }
        }
        *self.0.out.lock().expect("sound") = None;
    }
}

/// As large as tools are: about four hundred bytes.
fn definition(number: usize, verb: &str) -> String {
    format!(
        r#"{{"name":"find_{number}","description":"{verb} records of kind {number} that match a query, newest first.","inputSchema":{{"type":"object","properties":{{"query":{{"type":"string","minLength":1,"description":"What to look for."}},"limit":{{"type":"integer","minimum":1,"maximum":100}},"tags":{{"type":"array","items":{{"type":"string"}}}}}},"required":["query"],"additionalProperties":false}},"annotations":{{"readOnlyHint":true}}}}"#
    )
}

impl Opener for Canned {
    fn open(&self, inbox: Inbox) -> Pending<'_, Result<Arc<dyn Link>, Cause>> {
        let (link, peer) = pair(inbox);
        tokio::spawn(self.clone().serve(peer));
        Box::pin(std::future::ready(Ok(link)))
    }

    fn transport(&self) -> &'static str {
        "memory"
    }
}
