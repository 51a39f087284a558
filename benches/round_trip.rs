//! What one `server_ping` costs from frame to frame, with the ledger and without it: in instructions,
//! which do not depend on how busy the machine is, and in pipelined calls a second, as a ratio.
//!
//! `cargo bench --bench round_trip`; the instructions need valgrind.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a benchmark runs programs and tells the time"
)]

mod support;

use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use colibri::app::Server;
use colibri::domain::log::Logger;
use support::{COLIBRI, Client, colibri_serve, ping};

/// Calls of the shorter run; the longer has twice as many. The difference leaves the start out.
const CALLS: u32 = 300;

/// Enough for a second or more of each.
const PIPELINED: [(Audit, u32); 3] =
    [(Audit::Admission, 2_000), (Audit::Relaxed, 10_000), (Audit::Off, 50_000)];

/// With this argument the benchmark is a server itself, one without audit.
const SERVE: &str = "--serve-without-audit";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Audit {
    /// The default: a call runs once its enter record is on disk.
    Admission,
    /// Recorded all the same, but nobody waits for the disk.
    Relaxed,
    /// Not recorded.
    Off,
}

fn main() -> ExitCode {
    if std::env::args().any(|argument| argument == SERVE) {
        return serve_without_audit();
    }
    let folder = tempfile::tempdir().expect("a folder for the databases");
    println!("calls a second, pipelined\n\n| audit | calls/s | ratio |\n|---|---|---|");
    let rates = PIPELINED.map(|(audit, calls)| (audit, rate(folder.path(), audit, calls)));
    for (audit, rate) in rates {
        println!("| {audit:?} | {rate:.0} | {:.3} |", rate / rates[2].1);
    }
    if Command::new("valgrind").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("\nno instruction counts: valgrind is missing (Debian package valgrind)");
        return ExitCode::FAILURE;
    }
    println!("\ninstructions for one `server_ping` round trip, callgrind, {CALLS} calls\n");
    println!("| audit | instructions | ratio |\n|---|---|---|");
    let counts =
        [Audit::Admission, Audit::Off].map(|audit| (audit, instructions_a_call(folder.path(), audit)));
    for (audit, count) in counts {
        println!("| {audit:?} | {count:.0} | {:.2} |", count / counts[1].1);
    }
    ExitCode::SUCCESS
}

/// The difference of a run and one twice as long, so that starting and ending cancel out.
fn instructions_a_call(folder: &Path, audit: Audit) -> f64 {
    let [short, long] = [CALLS, 2 * CALLS].map(|calls| {
        let counts = folder.join(format!("callgrind-{audit:?}-{calls}"));
        let mut command = Command::new("valgrind");
        command.arg("--tool=callgrind").arg(format!("--callgrind-out-file={}", counts.display()));
        let database = folder.join(format!("counted-{calls}.db"));
        let mut client = Client::start(server(&database, audit, &mut command));
        for id in 1..=calls {
            client.send(&ping(id));
            client.answer(id);
        }
        client.end();
        instructions(&counts)
    });
    (long - short) / f64::from(CALLS)
}

/// The `totals:` line of callgrind's file.
fn instructions(path: &Path) -> f64 {
    let text = std::fs::read_to_string(path).expect("callgrind has written its file");
    let totals = text.lines().find_map(|line| line.strip_prefix("totals: "));
    totals.and_then(|total| total.trim().parse().ok()).expect("callgrind's file ends with its totals")
}

/// Calls a second when none waits for the answer before it.
fn rate(folder: &Path, audit: Audit, calls: u32) -> f64 {
    let mut command = Command::new("env");
    let mut client = Client::start(server(&folder.join(format!("piped-{audit:?}.db")), audit, &mut command));
    client.answer(0);
    let mut stdin = client.stdin.take().expect("it is taken once");
    let start = Instant::now();
    let writer = std::thread::spawn(move || {
        for id in 1..=calls {
            stdin.write_all(ping(id).as_bytes()).expect("the server reads");
        }
        stdin
    });
    for _ in 0..calls {
        client.next();
    }
    let time = start.elapsed();
    drop(writer.join().expect("the writer has nothing to panic about"));
    client.end();
    f64::from(calls) / time.as_secs_f64()
}

/// Completes a command that takes a program and its arguments: `env`, or valgrind.
fn server<'c>(database: &Path, audit: Audit, command: &'c mut Command) -> &'c mut Command {
    match audit {
        Audit::Admission | Audit::Relaxed => {
            let config = database.with_extension("json");
            let durability = format!("{audit:?}").to_lowercase();
            std::fs::write(&config, format!(r#"{{"audit":{{"durability":"{durability}"}}}}"#))
                .expect("the folder is ours");
            command.arg(COLIBRI).arg("--config").arg(config);
            colibri_serve(database, command);
        }
        Audit::Off => {
            command.arg(std::env::current_exe().expect("this program has a path")).arg(SERVE);
            command.stderr(Stdio::null());
        }
    }
    command
}

fn serve_without_audit() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let mut server = Server::builder().logger(Logger::silent()).build();
        server.start().await.expect("stdin and stdout are there");
        let _ = server.wait().await;
    });
    ExitCode::SUCCESS
}
