//! What the sandbox costs: starting `true` and reading its end, plainly and under each level, in turns;
//! the same from a process that holds a gigabyte; and the memory of what keeps a sandbox.
//!
//! `cargo bench --bench sandbox`

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a benchmark runs programs and tells the time"
)]

use std::time::{Duration, Instant};

use colibri::domain::end::End;
use colibri::sandbox::{Policy, Spec, start_under, use_helper};

const ROUNDS: usize = 200;

fn main() {
    use_helper(env!("CARGO_BIN_EXE_colibri").into());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    println!("start of `true` to its end, {ROUNDS} rounds\n");
    println!("| how | median | p95 | added, median |");
    println!("|---|---|---|---|");
    table(&runtime, "");
    let ballast = vec![1_u8; 1 << 30];
    table(&runtime, ", from a process of 1 GB");
    drop(std::hint::black_box(ballast));
    let (own, whole) = runtime.block_on(kept_kilobytes());
    println!("\nmemory of the helper and the init of one idle sandbox: {own} kB, and their part of the");
    println!("program's pages, which colibri itself has in memory anyway: {} kB", whole - own);
    println!("\nDifferences count; absolute times are the machine's as much as colibri's.");
}

fn table(runtime: &tokio::runtime::Runtime, note: &str) {
    let levels = [("off", Policy::off()), ("standard", Policy::default()), ("strict", Policy::strict())];
    let mut times: [Vec<Duration>; 4] = Default::default();
    for _ in 0..ROUNDS {
        times[0].push(plain(runtime));
        for (index, (_, policy)) in levels.iter().enumerate() {
            times[index + 1].push(runtime.block_on(kept(policy)));
        }
    }
    for one in &mut times {
        one.sort();
    }
    let names = ["plain spawn", levels[0].0, levels[1].0, levels[2].0];
    let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
    let base = times[0][ROUNDS / 2];
    for (name, one) in names.iter().zip(&times) {
        let (median, p95) = (one[ROUNDS / 2], one[ROUNDS * 95 / 100]);
        let added = milliseconds(median) - milliseconds(base);
        println!(
            "| {name}{note} | {:.2} ms | {:.2} ms | {added:.2} ms |",
            milliseconds(median),
            milliseconds(p95)
        );
    }
}

fn spec(program: &str) -> Spec {
    let environment = vec![("PATH".into(), "/usr/bin:/bin".into())];
    Spec { program: program.into(), arguments: Vec::new(), environment, directory: Some("/".into()) }
}

/// Piped like a server, and waited for by the same runtime.
fn plain(runtime: &tokio::runtime::Runtime) -> Duration {
    runtime.block_on(async {
        let start = Instant::now();
        let mut command = tokio::process::Command::new("/usr/bin/true");
        command.stdin(std::process::Stdio::piped());
        let output = command.output().await.expect("every system has it");
        assert!(output.status.success());
        start.elapsed()
    })
}

async fn kept(policy: &Policy) -> Duration {
    let start = Instant::now();
    let child = start_under(&spec("/usr/bin/true"), policy).expect("it starts");
    let end = child.life.how_it_ended().await;
    assert_eq!(end, End::Exited { code: 0 }, "{}", child.life.last_words());
    start.elapsed()
}

/// What the helper and the init hold themselves, and with their part of what they share with others.
async fn kept_kilobytes() -> (u64, u64) {
    let child = start_under(&spec("/usr/bin/cat"), &Policy::default()).expect("it starts");
    child.life.started().await.expect("it runs");
    let helper = child.life.pid;
    let children =
        std::fs::read_to_string(format!("/proc/{helper}/task/{helper}/children")).expect("its list");
    let held = |pid: &str, name: &str| {
        let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("the right to look");
        let line = rollup.lines().find(|line| line.starts_with(name)).expect("a sum").to_owned();
        line.split_whitespace().nth(1).and_then(|text| text.parse::<u64>().ok()).expect("a number")
    };
    let both = [helper.to_string(), children.trim().to_owned()];
    let sum = |name: &str| both.iter().map(|pid| held(pid, name)).sum();
    let sums = (sum("Pss_Anon:"), sum("Pss:"));
    child.life.end().await;
    sums
}
