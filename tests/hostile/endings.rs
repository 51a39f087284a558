//! How it ends: the input, a signal, or the client.

use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use super::child::{Colibri, Home, PING, brief, call, initialize, modern, request};
use super::floods::{hold, until_still, write_all};

/// Runs a command to its end with this input, all of it there at once.
pub(super) fn pipe(command: &mut Command, input: &[u8]) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

/// CO-11: `printf … | colibri serve` answers everything first, the last line without a newline included.
#[test]
fn the_end_of_input_waits_for_every_answer() {
    let home = Home::new();
    let mut lines = vec![initialize("2025-11-25")];
    lines.extend((1..=20).map(|id| call(id, if id % 2 == 0 { "server_ping" } else { "server_health" })));
    lines.push(modern(21, "tools/call", json!({ "name": "server_ping" })));
    let output = pipe(home.command().arg("serve"), lines.join("\n").as_bytes());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let answered = String::from_utf8(output.stdout).unwrap();
    assert_eq!(answered.lines().count(), 22);
    assert!(answered.lines().all(|line| line.contains(r#""result":"#)), "{answered}");

    for (input, expected) in [
        ("", ""),
        ("\n\n\r\n", ""),
        (PING, "{\"jsonrpc\":\"2.0\",\"id\":\"ping\",\"result\":{}}\n"),
        // Half a frame, and then nothing: refused like any other that is not JSON.
        (
            r#"{"jsonrpc":"2.0","id":1,"meth"#,
            "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32700,\"message\":\"not valid JSON: a string has no end at byte 29\"}}\n",
        ),
    ] {
        let output = pipe(home.command().arg("serve"), input.as_bytes());
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{input:?}");
        assert_eq!(output.status.code(), Some(0), "{input:?}");
    }
}

/// CO-11: SIGTERM and SIGINT are a clean stop: what runs may end, its answer is written, the exit code
/// is 0. The call is kept running by holding the ledger's write lock.
#[test]
fn a_signal_is_a_clean_stop() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut colibri = Colibri::speaking("2025-11-25");
        assert_eq!(colibri.ask(&call(1, "server_ping")), "1 ok");
        let lock = hold(&colibri);
        colibri.send(&call(2, "server_ping"));
        colibri.send(&call(3, "server_health"));
        colibri.assert_lives();
        colibri.signal(signal);
        drop(lock);
        let mut rest: Vec<String> = colibri.rest().iter().map(brief).collect();
        rest.sort();
        assert_eq!(rest, ["2 ok", "3 ok"], "{signal:?}");
        assert_eq!(colibri.exit_code(), 0, "{signal:?}: {}", colibri.log());

        let mut idle = Colibri::speaking("2025-11-25");
        idle.signal(signal);
        assert!(idle.rest().is_empty());
        assert_eq!(idle.exit_code(), 0);
        let mut early = Colibri::start(); // Perhaps before it has begun to listen for signals.
        early.assert_lives();
        early.signal(signal);
        assert_eq!(early.exit_code(), 0);
    }
}

/// CO-11: a client that reads nothing cannot hold up the end.
#[test]
fn a_signal_ends_it_though_the_client_does_not_read() {
    let mut colibri = Colibri::speaking("2025-11-25");
    let lines = (0..10_000).map(|id| request(id, "tools/list", &json!({}))).collect();
    let (progress, writer) = write_all(colibri.take_stdin(), lines);
    until_still(&progress);
    let begun = Instant::now();
    colibri.signal(Signal::TERM);
    assert_eq!(colibri.exit_code(), 0);
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    assert!(colibri.log().contains("the client did not read the last"), "{}", colibri.log());
    drop(writer.join().unwrap());
}

/// A client that closes its reading end, or is killed in the middle of a frame, ends colibri cleanly.
#[test]
fn a_client_that_is_gone_ends_it() {
    let mut colibri = Colibri::speaking("2025-11-25");
    colibri.stop_reading();
    colibri.send(PING);
    assert_eq!(colibri.exit_code(), 0, "though its input is still open");
    assert_eq!(colibri.log().matches("the client is gone").count(), 1, "{}", colibri.log());

    let mut killed = Colibri::speaking("2025-11-25");
    killed.stop_reading();
    killed.send(&call(1, "server_ping"));
    killed.send_bytes(&call(2, "server_ping").as_bytes()[..40]);
    killed.end_input();
    assert_eq!(killed.exit_code(), 0, "{}", killed.log());
}
