//! Twenty servers that crash, hang, flood, vanish, come back and change their lists, while calls go on: what is well
//! stays well, every call is answered in time, nothing is left, and the ledger verifies.
#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "a story ends at the first surprise")]

mod stage;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::cli::run;
use crate::fleet::processes;
use crate::hostile::child::{Colibri, Home};
use stage::{Stage, TIMEOUT, names};

/// Calls that are under way at any moment.
const CALLS: usize = 32;

/// How much longer than its deadline a call may take: for finding its server's list, and for two records that are
/// forced to disk on a busy machine. Nothing like a hang fits in.
const ALLOWANCE: Duration = Duration::from_secs(3);

/// Descriptors and threads beyond those after the warm-up that are nobody's leak: reads of the database in flight,
/// connections that the HTTP client keeps, and helpers of the runtime that end when they have been idle for a while.
const SLACK: usize = 6;

/// What colibri may hold in memory at the most, with floods on all sides.
const PEAK_MIB_MAX: u64 = 400;

/// How long it takes all of them to come back, at the most.
const RECOVERY: Duration = Duration::from_mins(1);

/// Codes that a server's misbehaviour may have. `PROVIDER_TERMINATED` is none of them: no server was removed.
const CODES: [&str; 6] = [
    "PROVIDER_INIT_FAILED",
    "PROVIDER_UNAVAILABLE",
    "PROVIDER_TIMEOUT",
    "PROVIDER_CRASHED",
    "PROVIDER_CONCURRENCY_EXCEEDED",
    "PROVIDER_EXECUTE_FAILED",
];

/// PR-9, PR-17, SB-12: chaos with a printed seed; `COLIBRI_SEED` takes it back. A minute with `COLIBRI_CHECK=full`.
#[test]
fn what_is_well_stays_well() {
    let seed = std::env::var("COLIBRI_SEED").unwrap_or_else(|_| uuid::Uuid::now_v7().to_string());
    println!("COLIBRI_SEED={seed}");
    let length = Duration::from_secs(if crate::work::client::is_full_check() { 60 } else { 10 });
    let mark = format!("chaos-{}", std::process::id());
    let mut stage = Stage::start(&seed, &mark, length + 2 * RECOVERY);
    await_ready(&mut stage.colibri);
    let before = Held::by(&stage.colibri, &mark);

    let Storm { outcomes, sent, .. } = Storm::over(&mut stage, length);
    println!("{sent} calls");
    for (server, of) in &outcomes {
        println!("{server}: {:?}, the longest {:?}", of.counts, of.longest);
        assert!(of.longest <= of.limit + ALLOWANCE, "{server}: {of:?}");
        if server.starts_with("tame") {
            assert_eq!(of.counts.keys().collect::<Vec<_>>(), ["ok"], "{server}: {of:?}");
        }
    }
    assert_eq!(outcomes.len(), names().count(), "every one was called");
    assert!(outcomes.values().map(|of| of.counts.get("ok").unwrap_or(&0)).sum::<u64>() > 100, "{outcomes:?}");

    stage.bring_all_back();
    await_ready(&mut stage.colibri);
    let after = before.comes_again(&mut stage.colibri, &mark);
    println!("{before:?}, then {after:?}; at most {} MiB", stage.colibri.peak_mib());
    assert!(stage.colibri.peak_mib() < PEAK_MIB_MAX);
    let Stage { mut colibri, .. } = stage;
    colibri.end_input();
    colibri.rest();
    assert_eq!(colibri.exit_code(), 0, "{}", colibri.log());
    assert_eq!(processes(&mark), Vec::<PathBuf>::new());
    check_ledger(&colibri.home, sent);
}

/// The ledger verifies, and has an exit for every enter, and a code for whatever failed.
fn check_ledger(home: &Home, sent: u64) {
    let verified = run(home, &["audit", "verify"]);
    assert_eq!(verified.code, 0, "{verified:?}");
    let database = Connection::open(home.database()).unwrap();
    let number = |sql: &str| database.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    let calls = "SELECT count(*) FROM actions WHERE tool LIKE '%\\_\\_work' ESCAPE '\\'";
    assert_eq!(number(calls), i64::try_from(sent).unwrap(), "every call is on record");
    assert_eq!(number("SELECT count(*) FROM call WHERE exit IS NULL"), 0, "an exit for every enter");
    let nameless = "SELECT count(*) FROM actions WHERE outcome <> 'ok' AND code IS NULL";
    assert_eq!(number(nameless), 0, "a code for every failure");
}

/// What colibri holds while all its servers are up.
#[derive(Debug)]
struct Held {
    descriptors: usize,
    threads: usize,
    /// Of its servers.
    processes: usize,
}

impl Held {
    fn by(colibri: &Colibri, mark: &str) -> Self {
        let count = |what: &str| {
            let folder = format!("/proc/{}/{what}", colibri.pid().as_raw_nonzero());
            std::fs::read_dir(folder).unwrap().count()
        };
        Self { descriptors: count("fd"), threads: count("task"), processes: processes(mark).len() }
    }

    fn is_at_most(&self, before: &Self) -> bool {
        self.descriptors <= before.descriptors + SLACK
            && self.threads <= before.threads + SLACK
            && self.processes <= before.processes
    }

    /// Waits until no more is held than before. Each look is a call, which is a wait too.
    fn comes_again(&self, colibri: &mut Colibri, mark: &str) -> Self {
        let until = Instant::now() + RECOVERY;
        loop {
            let now = Self::by(colibri, mark);
            if now.is_at_most(self) {
                return now;
            }
            assert!(Instant::now() < until, "before {self:?}, and then {now:?}");
            health(colibri);
        }
    }
}

/// All are up at the same moment.
fn await_ready(colibri: &mut Colibri) {
    let until = Instant::now() + RECOVERY;
    loop {
        let health = health(colibri);
        let servers = health["result"]["structuredContent"]["data"]["servers"].as_array().unwrap();
        let down = servers.iter().filter(|server| server["state"] != "ready");
        let down: Vec<&Value> = down.collect();
        if servers.len() == names().count() && down.is_empty() {
            return;
        }
        assert!(Instant::now() < until, "not ready: {down:?}");
    }
}

fn health(colibri: &mut Colibri) -> Value {
    let call = json!({ "name": "server_health", "arguments": {} });
    colibri.send(
        &json!({ "jsonrpc": "2.0", "id": "health", "method": "tools/call", "params": call }).to_string(),
    );
    loop {
        let answer = colibri.answer();
        if answer["id"] == "health" {
            return answer;
        }
    }
}

/// What became of the calls to one server.
#[derive(Debug)]
struct Outcomes {
    counts: BTreeMap<String, u64>,
    longest: Duration,
    /// Within which each must be answered.
    limit: Duration,
}

/// Calls on their way to all servers in turn.
#[derive(Default)]
struct Storm {
    sent: u64,
    under_way: BTreeMap<u64, (String, Instant)>,
    outcomes: BTreeMap<String, Outcomes>,
}

impl Storm {
    /// Keeps so many calls under way for so long, then waits for the last answer.
    fn over(stage: &mut Stage, length: Duration) -> Self {
        let until = Instant::now() + length;
        let mut storm = Self::default();
        loop {
            while storm.under_way.len() < CALLS && Instant::now() < until {
                storm.send(stage);
            }
            if storm.under_way.is_empty() {
                return storm;
            }
            stage.play_pranks();
            storm.hear(&stage.colibri.answer());
        }
    }

    fn send(&mut self, stage: &mut Stage) {
        let place = usize::try_from(self.sent).unwrap() % names().count();
        let server = names().nth(place).unwrap();
        let call = json!({ "name": format!("{server}__work"), "arguments": {} });
        let request = json!({ "jsonrpc": "2.0", "id": self.sent, "method": "tools/call", "params": call });
        stage.colibri.send(&request.to_string());
        self.under_way.insert(self.sent, (server, Instant::now()));
        self.sent += 1;
    }

    /// Anything without an id of ours is word of a changed list.
    fn hear(&mut self, answer: &Value) {
        let Some((server, sent)) = answer["id"].as_u64().and_then(|id| self.under_way.remove(&id)) else {
            return;
        };
        let limit = if server.starts_with("tame") { 30 * TIMEOUT } else { TIMEOUT };
        let none = || Outcomes { counts: BTreeMap::new(), longest: Duration::ZERO, limit };
        let of = self.outcomes.entry(server).or_insert_with(none);
        *of.counts.entry(outcome(answer)).or_default() += 1;
        of.longest = of.longest.max(sent.elapsed());
    }
}

/// `ok`, a code of colibri's, or the server's own error.
fn outcome(answer: &Value) -> String {
    if let Some(error) = answer.get("error") {
        assert_eq!(error["message"], "a bad day", "only what a server says itself: {answer}");
        return "its own error".to_owned();
    }
    if answer["result"]["isError"] != true {
        return "ok".to_owned();
    }
    let code = answer["result"]["structuredContent"]["error"]["code"].as_str();
    let code = code.unwrap_or_else(|| panic!("a failure without a code: {answer}"));
    assert!(CODES.contains(&code), "{answer}");
    code.to_owned()
}
