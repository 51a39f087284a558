//! Stories of the program: what its surroundings do to it, and how it ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// colibri in surroundings of its own: nothing of the tester's environment, files in `home` alone.
fn colibri(home: &Path, env: &[(&str, &str)], arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_colibri"));
    command
        .args(arguments)
        .env_clear()
        .envs(crate::support::measured())
        .env("HOME", home)
        .env("COLIBRI_DB_PATH", home.join("ledger.db"))
        .envs(env.iter().copied())
        // Where a run that measures coverage collects it.
        .envs(std::env::var_os("LLVM_PROFILE_FILE").map(|file| ("LLVM_PROFILE_FILE", file)))
        .current_dir(home)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn run(env: &[(&str, &str)], arguments: &[&str]) -> Output {
    let home = TempDir::new().unwrap();
    colibri(home.path(), env, arguments).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// T-6, CO-11: in valid surroundings it starts, says so, and ends with its client.
#[test]
fn a_valid_environment_starts_and_ends_cleanly() {
    for mode in ["FULL", "READONLY", "TEST", "MINIMAL"] {
        let output = run(&[("COLIBRI_MODE", mode), ("COLIBRI_STARTUP_TIMEOUT_MS", "30000")], &["serve"]);
        let told = stderr(&output);
        assert_eq!(output.status.code(), Some(0), "{told}");
        let version = env!("CARGO_PKG_VERSION");
        let expected =
            [format!("[colibri] starting in mode={mode} version={version}"), "[colibri] ready".into()];
        assert_eq!(told.lines().collect::<Vec<_>>(), expected);
        assert_eq!(output.stdout, b"", "stdout carries frames, and nobody asked for one");
    }
}

/// T-26, CO-13, CO-14: what the configuration refuses reaches the one who starts it: exit code 7,
/// words on stderr, nothing on stdout.
#[test]
fn a_refused_environment_is_told_and_nothing_starts() {
    for (name, value, words) in [
        ("AMS_MODE", "FULL", ["AMS_MODE", "COLIBRI_MODE"]),
        ("AMS_SOMETHING", "1", ["AMS_SOMETHING", "COLIBRI_"]),
        ("COLIBRI_MODE", "full", ["full", "READONLY"]),
        ("COLIBRI_STARTUP_TIMEOUT_MS", "soon", ["COLIBRI_STARTUP_TIMEOUT_MS", "soon"]),
    ] {
        let output = run(&[(name, value)], &["serve"]);
        let told = stderr(&output);
        assert_eq!(output.status.code(), Some(7), "{name}: {told}");
        assert!(words.iter().all(|word| told.contains(word)), "{name}: {told}");
        assert!(!told.contains("starting"), "{told}");
        assert_eq!(output.stdout, b"");
    }
}

/// CO-11: SIGTERM, SIGINT and the end of stdin are a clean stop.
#[test]
fn signals_and_the_end_of_input_are_a_clean_stop() {
    for signal in [Some(Signal::TERM), Some(Signal::INT), None] {
        let home = TempDir::new().unwrap();
        let mut child = colibri(home.path(), &[], &["serve"]).stdin(Stdio::piped()).spawn().unwrap();
        let told = wait_until_ready(&mut child);
        match signal {
            Some(signal) => kill_process(Pid::from_child(&child), signal).unwrap(),
            None => drop(child.stdin.take()),
        }
        let status = child.wait().unwrap();
        let rest = told.lines().map(Result::unwrap).collect::<Vec<_>>();
        assert_eq!((status.code(), rest), (Some(0), vec![]), "{signal:?}");
    }
}

/// CO-11: a ledger that another holds is waited for until the startup deadline: exit code 75.
#[test]
fn a_start_that_takes_too_long_has_its_own_exit_code() {
    let home = TempDir::new().unwrap();
    assert!(colibri(home.path(), &[], &["serve"]).status().unwrap().success());
    let held = std::fs::File::open(home.path().join("ledger.db.lock")).unwrap();
    held.lock().unwrap();
    let env = [("COLIBRI_STARTUP_TIMEOUT_MS", "200")];
    let output = colibri(home.path(), &env, &["serve"]).stdin(Stdio::piped()).output().unwrap();
    let told = stderr(&output);
    assert_eq!(output.status.code(), Some(75), "{told}");
    assert_eq!(told.lines().last(), Some("[colibri] fatal: startup timeout exceeded"));
}

/// T-12, T-24, CO-12: over the real stdin and stdout, stdout carries one frame a request and nothing else.
#[test]
fn stdout_carries_frames_alone() {
    let home = TempDir::new().unwrap();
    let mut child =
        colibri(home.path(), &[("COLIBRI_LOG", "trace")], &["serve"]).stdin(Stdio::piped()).spawn().unwrap();
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    let mut stdin = child.stdin.take().unwrap();
    for (id, name) in ["server_ping", "no_such_tool", "server_health"].iter().enumerate() {
        writeln!(
            stdin,
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{name}",{meta}}}}}"#
        )
        .unwrap();
    }
    drop(stdin);
    let mut frames = String::new();
    child.stdout.take().unwrap().read_to_string(&mut frames).unwrap();
    assert!(child.wait().unwrap().success());
    let mut ids: Vec<u64> = frames
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["id"].as_u64().unwrap())
        .collect();
    ids.sort_unstable();
    assert_eq!(ids, [0, 1, 2]);
}

/// Reads stderr up to `ready`; gives the rest of it.
fn wait_until_ready(child: &mut Child) -> BufReader<impl Read + use<>> {
    let mut told = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while line != "[colibri] ready\n" {
        line.clear();
        assert_ne!(told.read_line(&mut line).unwrap(), 0, "it ended before it was ready");
    }
    told
}
