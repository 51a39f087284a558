//! What the sandbox costs: starting `true` and reading its end, plainly and under each level, in turns; the
//! same from a process that holds more and more, and in a control group; and the memory of what keeps a sandbox.
//!
//! `cargo bench --bench sandbox`

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a benchmark runs programs and tells the time"
)]

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use colibri::domain::end::End;
use colibri::sandbox::{Layer, Policy, Spec, control_groups, start_under, use_helper};

const ROUNDS: usize = 200;

/// What colibri itself holds while it starts others, in MB: a start must not depend on it.
const SIZES_MB: [usize; 4] = [0, 64, 256, 1024];

/// What keeps a sandbox may hold, beside the program in it.
const KEPT_KB_MAX: u64 = 2048;

/// With this argument the benchmark runs in a control group that was given to it.
const INSIDE: &str = "--inside";

fn main() {
    use_helper(env!("CARGO_BIN_EXE_colibri").into());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    if std::env::args().any(|argument| argument == INSIDE) {
        return table(&runtime, ", in a given group of version 2");
    }
    println!("start of `true` to its end, {ROUNDS} rounds; control groups: {}\n", control_groups());
    println!("| how | median | p95 | added, median |");
    println!("|---|---|---|---|");
    for size in SIZES_MB {
        let ballast = vec![1_u8; size << 20];
        let note = if size == 0 { String::new() } else { format!(", from a process of {size} MB") };
        table(&runtime, &note);
        drop(std::hint::black_box(ballast));
    }
    if !in_a_group() {
        println!("\n(no group of version 2 could be made to run in)");
    }
    let (own, whole) = runtime.block_on(kept_kilobytes());
    let verdict = if own < KEPT_KB_MAX { "held" } else { "missed" };
    println!("\nmemory of one idle sandbox beside the server's own, that is of its helper and its init:");
    println!(
        "{own} kB; the goal is under {KEPT_KB_MAX} kB: {verdict}. Their part of the program's pages, which"
    );
    println!("colibri itself has in memory anyway: {} kB", whole - own);
    println!("\nDifferences count; absolute times are the machine's as much as colibri's.");
}

/// Runs this program again in a control group as a service manager gives one. Whether it could be made.
fn in_a_group() -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mount =
        mounts.lines().find(|line| line.contains(" - cgroup2 ")).and_then(|line| line.split(' ').nth(4));
    let Some(place) = mount.map(|mount| Path::new(mount).join(format!("bench-{}", std::process::id())))
    else {
        return false;
    };
    let main = place.join("main");
    let made = std::fs::create_dir(&place).is_ok() && std::fs::create_dir(&main).is_ok();
    let given =
        made && rustix::fs::setxattr(&place, c"user.delegate", b"1", rustix::fs::XattrFlags::empty()).is_ok();
    let done = given && {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "echo $$ >\"$0\"/cgroup.procs && exec \"$@\""]).arg(&main);
        shell.arg(std::env::current_exe().expect("this program")).arg(INSIDE);
        shell.status().is_ok_and(|status| status.success())
    };
    let _ = (std::fs::remove_dir(&main), std::fs::remove_dir(&place));
    done
}

fn table(runtime: &tokio::runtime::Runtime, note: &str) {
    let without = BTreeSet::from([Layer::Namespace]);
    let exposed = Policy { pretend_missing: without.clone(), allow_degraded: without, ..Policy::default() };
    let strict = if rustix::process::geteuid().is_root() { "strict, as a user of its own" } else { "strict" };
    let levels = [
        ("off", Policy::off()),
        ("standard", Policy::default()),
        ("standard, without namespaces", exposed),
        (strict, Policy::strict()),
    ];
    let mut times: [Vec<Duration>; 5] = Default::default();
    for _ in 0..ROUNDS {
        times[0].push(plain(runtime));
        for (index, (_, policy)) in levels.iter().enumerate() {
            times[index + 1].push(runtime.block_on(kept(policy)));
        }
    }
    for one in &mut times {
        one.sort();
    }
    let names = std::iter::once("plain spawn").chain(levels.iter().map(|(name, _)| *name));
    let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
    let base = times[0][ROUNDS / 2];
    for (name, one) in names.zip(&times) {
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
