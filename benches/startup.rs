//! From starting the process to the first answer of `tools/list`, on a database that exists, as a
//! ratio to starting `true` the same way. The two take turns, so that a busy machine slows both.
//!
//! `cargo bench --bench startup`

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a benchmark runs programs and tells the time"
)]

mod support;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::{COLIBRI, Client, colibri_serve, ping};

const ROUNDS: usize = 50;

/// The database is not new and not huge: it has about this many calls.
const CALLS: u32 = 500;

fn main() {
    let folder = tempfile::tempdir().expect("a folder for the database");
    let database = folder.path().join("ledger.db");
    fill(&database);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        theirs.push(time_true());
        ours.push(time_colibri(&database));
    }
    let (ours, theirs) = (median_and_p95(&mut ours), median_and_p95(&mut theirs));
    let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
    println!("start to the first tools/list answer, {ROUNDS} rounds, database of {CALLS} calls\n");
    println!("| program | median | p95 |");
    println!("|---|---|---|");
    for (name, (median, p95)) in [("colibri serve", ours), ("true", theirs)] {
        println!("| {name} | {:.2} ms | {:.2} ms |", milliseconds(median), milliseconds(p95));
    }
    let ratio = |one: Duration, other: Duration| one.as_secs_f64() / other.as_secs_f64();
    println!("| **ratio** | **{:.1}** | {:.1} |", ratio(ours.0, theirs.0), ratio(ours.1, theirs.1));
    println!("\nRatios count; absolute times are the machine's as much as colibri's.");
}

fn time_true() -> Duration {
    let start = Instant::now();
    let output = Command::new("true").stdin(Stdio::piped()).stdout(Stdio::piped()).output();
    assert!(output.expect("every system has it").status.success());
    start.elapsed()
}

fn time_colibri(database: &Path) -> Duration {
    let mut command = Command::new(COLIBRI);
    colibri_serve(database, &mut command);
    let start = Instant::now();
    let mut client = Client::start(&mut command);
    client.send("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}\n");
    let answer = client.answer(1);
    let time = start.elapsed();
    assert!(answer.contains("server_ping"), "{answer}");
    client.end();
    time
}

fn fill(database: &Path) {
    let mut command = Command::new(COLIBRI);
    colibri_serve(database, &mut command);
    let mut client = Client::start(&mut command);
    for id in 1..=CALLS {
        client.send(&ping(id));
        client.answer(id);
    }
    client.end();
}

/// The middle, and what 95 of 100 stay below.
fn median_and_p95(times: &mut [Duration]) -> (Duration, Duration) {
    times.sort();
    (times[times.len() / 2], times[times.len() * 95 / 100])
}
