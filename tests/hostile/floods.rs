//! Too much of everything: the memory stays bounded, everything due is answered, and then a good request
//! works.

use std::fs::File;
use std::io::Write;
use std::process::ChildStdin;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};

use super::child::{Colibri, PING, brief, call, request, tally};

/// What a flood may add. The answers that wait are bounded at 16 MiB; the rest is slack for an allocator.
const FLOOD_MIB_MAX: u64 = 40;

/// Nothing moved for so long: whoever writes is held up.
const STILL: Duration = Duration::from_millis(400);

/// Writes in a thread, and tells after each line, until all is written or nobody reads.
pub(super) fn write_all(mut stdin: ChildStdin, lines: Vec<String>) -> (Receiver<()>, JoinHandle<ChildStdin>) {
    let (told, progress) = sync_channel(lines.len());
    let thread = std::thread::spawn(move || {
        for line in lines {
            if stdin.write_all(format!("{line}\n").as_bytes()).is_err() {
                break;
            }
            let _ = told.send(());
        }
        stdin
    });
    (progress, thread)
}

/// How many lines were written before the writer was held up, or was done.
pub(super) fn until_still(progress: &Receiver<()>) -> usize {
    let mut count = 0;
    loop {
        match progress.recv_timeout(STILL) {
            Ok(()) => count += 1,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return count,
        }
    }
}

/// Sends all, reads all, and gives the answers in their order.
fn exchange(colibri: &mut Colibri, lines: Vec<String>, answers: usize) -> Vec<Value> {
    let (_progress, thread) = write_all(colibri.take_stdin(), lines);
    let answers = (0..answers).map(|_| colibri.answer()).collect();
    colibri.put_stdin(thread.join().unwrap());
    answers
}

/// Bad input on stdio: a line without end is refused at once, costs nothing, and ends at its newline.
#[test]
fn a_line_without_end_costs_nothing() {
    let mut colibri = Colibri::speaking("2025-11-25");
    let before = colibri.now_mib();
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..5 {
        colibri.send_bytes(&piece);
    }
    assert_eq!(brief(&colibri.answer()), "null -32600"); // Long before its end.
    for _ in 5..64 {
        colibri.send_bytes(&piece);
    }
    colibri.send("");
    colibri.assert_lives();
    let grown = colibri.peak_mib() - before;
    assert!(grown < FLOOD_MIB_MAX, "grew by {grown} MiB");
    assert!(colibri.finish().is_empty());
}

/// Bad input on stdio: 10 000 requests without reading an answer. Reading stops, memory is bounded, and
/// every one is answered once the client reads.
#[test]
fn a_client_that_does_not_read_is_no_longer_read_and_loses_nothing() {
    let mut colibri = Colibri::speaking("2025-11-25");
    let before = colibri.now_mib();
    let lines = (0..10_000).map(|id| request(id, "tools/list", &json!({}))).collect();
    let (progress, thread) = write_all(colibri.take_stdin(), lines);
    let written = until_still(&progress);
    assert!(written < 10_000, "all of {written} requests were read though no answer was");
    let mut next = 0;
    while next < 10_000 {
        let answer = colibri.answer();
        assert_eq!(answer["id"], next, "in order: nothing overtakes a list");
        assert_eq!(answer["result"]["tools"].as_array().map(Vec::len), Some(14));
        next += 1;
    }
    colibri.put_stdin(thread.join().unwrap());
    colibri.assert_lives();
    let grown = colibri.peak_mib() - before;
    assert!(grown < FLOOD_MIB_MAX, "grew by {grown} MiB");
    assert!(colibri.finish().is_empty());
}

/// The same with calls, each on record before it is answered.
#[test]
fn a_thousand_calls_at_once_are_all_answered() {
    let mut colibri = Colibri::speaking("2025-11-25");
    let before = colibri.now_mib();
    let answers = exchange(&mut colibri, (0..1_000).map(|id| call(id, "server_ping")).collect(), 1_000);
    let mut ids: Vec<u64> = answers.iter().map(|answer| answer["id"].as_u64().unwrap()).collect();
    ids.sort_unstable();
    assert!(ids.into_iter().eq(0..1_000), "each once");
    assert_eq!(tally(&answers, |answer| answer["result"]["isError"].to_string())["false"], 1_000);
    let grown = colibri.peak_mib() - before;
    assert!(grown < FLOOD_MIB_MAX, "grew by {grown} MiB");
    assert!(colibri.finish().is_empty());
}

/// Nothing is remembered of what was refused or ignored: names, ids, notifications.
#[test]
fn what_is_refused_or_ignored_leaves_nothing_behind() {
    let mut colibri = Colibri::speaking("2025-11-25");
    let before = colibri.now_mib();
    let methods = (0..10_000).map(|id| request(id, &format!("no/such/{id}"), &json!({}))).collect();
    let answers = exchange(&mut colibri, methods, 10_000);
    assert!(answers.iter().enumerate().all(|(id, answer)| brief(answer) == format!("{id} -32601")));

    let mut noise = Vec::new();
    for id in 0..20_000 {
        noise.push(format!(r#"{{"jsonrpc":"2.0","method":"notifications/{id}","params":{{}}}}"#));
        noise.push(cancel(id));
        noise.push(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"roots":[]}}}}"#));
    }
    noise.push(PING.to_owned());
    assert_eq!(brief(&exchange(&mut colibri, noise, 1)[0]), "\"ping\" ok");

    // A name of a megabyte is refused, and cut in the record. Looking for what may have been meant took
    // seconds, and hundreds of megabytes.
    let name = "n".repeat(1 << 20);
    assert_eq!(colibri.ask(&call(1, &name)), "1 -32602");
    colibri.assert_lives();
    let grown = colibri.peak_mib() - before;
    assert!(grown < FLOOD_MIB_MAX, "grew by {grown} MiB");
    assert!(colibri.finish().is_empty());
}

fn cancel(id: u64) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#)
}

/// Calls that are taken back as fast as they are made: each is answered once or not at all, and the
/// ledger has an end for every one.
#[test]
fn a_storm_of_cancellations_leaves_every_call_on_record() {
    const CALLS: u64 = 500;
    let mut colibri = Colibri::speaking("2025-11-25");
    let mut lines = Vec::new();
    for id in 0..CALLS {
        lines.push(call(id, "server_ping"));
        lines.push(cancel(id));
        lines.push(cancel(id.saturating_sub(3)));
    }
    let (_progress, thread) = write_all(colibri.take_stdin(), lines);
    colibri.put_stdin(thread.join().unwrap());
    let home = colibri.home.path().to_owned();
    colibri.end_input();
    let answers = colibri.rest();
    assert_eq!(colibri.exit_code(), 0);
    let counts = tally(&answers, |answer| answer["id"].to_string());
    assert!(counts.values().all(|count| *count == 1), "{counts:?}");

    let listed = crate::cli::run(&colibri.home, &["audit", "list", "--limit", "1000", "--json"]);
    let actions: Value = serde_json::from_str(&listed.stdout).unwrap();
    let outcomes = tally(actions["actions"].as_array().unwrap(), |action| {
        action["outcome"].as_str().unwrap().to_owned()
    });
    assert_eq!(outcomes.values().sum::<usize>() as u64, CALLS, "{outcomes:?} in {}", home.display());
    assert!(outcomes.keys().all(|outcome| outcome == "ok" || outcome == "cancelled"), "{outcomes:?}");
    assert_eq!(crate::cli::run(&colibri.home, &["audit", "verify"]).code, 0);
}

/// While a call runs, its id names it and no other. The call is kept running by holding the ledger's
/// write lock, as a stopped process would.
#[test]
fn an_id_names_one_call_at_a_time() {
    let mut colibri = Colibri::speaking("2025-11-25");
    assert_eq!(colibri.ask(&call(1, "server_ping")), "1 ok");
    let lock = hold(&colibri);
    colibri.send(&call(7, "server_ping"));
    assert_eq!(colibri.ask(&call(7, "server_ping")), "7 -32600");
    assert_eq!(colibri.ask(&call(7, "server_health")), "7 -32600");
    colibri.assert_lives(); // And the connection is not held up by a call that is.
    drop(lock);
    assert_eq!(brief(&colibri.answer()), "7 ok");
    assert_eq!(colibri.ask(&call(7, "server_ping")), "7 ok");
    assert!(colibri.finish().is_empty());
}

/// While all places are taken by calls that hang, the client is still heard, up to a bound, and every
/// call is answered in the end.
#[test]
fn calls_beyond_the_bound_wait_and_the_client_is_heard() {
    let mut colibri = Colibri::speaking("2025-11-25");
    assert_eq!(colibri.ask(&call(1, "server_ping")), "1 ok");
    let lock = hold(&colibri);
    for id in 0..400 {
        colibri.send(&call(id, "server_ping"));
    }
    colibri.assert_lives();
    let lines = (400..2_000).map(|id| call(id, "no_such_tool")).collect();
    let (progress, thread) = write_all(colibri.take_stdin(), lines);
    until_still(&progress);
    drop(lock);
    let answers: Vec<Value> = (0..2_000).map(|_| colibri.answer()).collect();
    colibri.put_stdin(thread.join().unwrap());
    assert_eq!(tally(&answers, |answer| answer["id"].to_string()).len(), 2_000);
    assert!(colibri.finish().is_empty());
}

/// Holds the lock that every writer takes before it commits.
pub(super) fn hold(colibri: &Colibri) -> File {
    let lock = File::options().append(true).open(colibri.home.path().join("data/colibri.db.lock")).unwrap();
    lock.lock().unwrap();
    lock
}
