//! Connections, with the clock paused and no thread: what waits, waits for ever, and a deadline is
//! met to the millisecond. The last stories use real pipes.

mod listening;

use std::io::{BufRead, BufReader, PipeWriter, Read, Write};
use std::sync::Mutex;
use std::time::Duration;

use serde_json::Value;
use tokio::task::{JoinHandle, yield_now};

use super::super::double::Double;
use super::super::{Settings, Transport};
use super::*;
use crate::domain::log::Level;
use crate::mcp::answer::Identity;

const INITIALIZE: &str =
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"REVISION"}}"#;

/// A client and the connection it talks to.
struct Client {
    chunks: mpsc::Sender<Bytes>,
    outbox: Outbox,
    gate: Arc<tokio::sync::Semaphore>,
    changes: watch::Sender<Changes>,
    stop: CancellationToken,
    log: Arc<Mutex<Vec<String>>>,
    connection: JoinHandle<Ended>,
}

impl Client {
    /// A client that has initialized.
    async fn new(limits: Limits) -> Self {
        Self::speaking("2025-11-25", limits).await
    }

    async fn speaking(revision: &str, limits: Limits) -> Self {
        let client = Self::silent(identity(), limits);
        client.send(&INITIALIZE.replace("REVISION", revision)).await;
        assert_eq!(client.answers().await.len(), 1);
        client
    }

    /// One that has said nothing yet.
    fn silent(identity: Identity, limits: Limits) -> Self {
        let (chunks, receiver) = mpsc::channel(2);
        let outbox = Outbox::new(limits.answers_bytes_max);
        let double = Double::new();
        let (gate, changes) = (Arc::clone(&double.gate), double.changes.clone());
        let stop = CancellationToken::new();
        let log = Arc::new(Mutex::new(Vec::new()));
        let lines = Arc::clone(&log);
        let logger = Logger::new(Level::Debug, move |_, line| lines.lock().unwrap().push(line.to_owned()));
        let session = Session::new(Arc::new(identity), "ada".to_owned());
        let connection =
            Connection::new(session, double, receiver, outbox.clone(), Front::default(), limits, logger);
        let connection = tokio::spawn(connection.run(stop.clone()));
        Self { chunks, outbox, gate, changes, stop, log, connection }
    }

    async fn send(&self, line: &str) {
        self.chunks.send(Bytes::from(format!("{line}\n"))).await.unwrap();
    }

    async fn call(&self, id: u32, tool: &str) {
        self.send(&call(id, tool)).await;
    }

    /// What has been answered once nothing moves any more, each as `id tool-data` or `id code`.
    async fn answers(&self) -> Vec<String> {
        settle().await;
        self.outbox.take_now().iter().map(|line| brief(line)).collect()
    }

    /// Ends the input and reads to the end.
    async fn end(self) -> (Ended, Vec<String>) {
        drop(self.chunks);
        let (ended, lines) = tokio::join!(self.connection, self.outbox.take_all());
        (ended.unwrap(), lines.iter().map(|line| brief(line)).collect())
    }
}

fn identity() -> Identity {
    Identity { version: "1".to_owned(), instructions: String::new(), skills: false, servers: false }
}

fn call(id: u32, tool: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}"}}}}"#)
}

fn brief(line: &str) -> String {
    let answer: Value = serde_json::from_str(line).unwrap();
    if let Some(batch) = answer.as_array() {
        let parts: Vec<_> = batch.iter().map(|answer| brief(&answer.to_string())).collect();
        return format!("[{}]", parts.join(", "));
    }
    let what = match (answer.get("error"), answer["result"].get("isError")) {
        (Some(error), _) => error["code"].to_string(),
        (None, Some(Value::Bool(true))) => "failed".to_owned(),
        (None, _) => "ok".to_owned(),
    };
    format!("{} {what}", answer["id"])
}

/// Lets every task run until it waits. On one thread that takes a bounded number of turns.
async fn settle() {
    for _ in 0..2_000 {
        yield_now().await;
    }
}

#[tokio::test]
async fn calls_are_answered_as_they_end_and_the_rest_in_order() {
    let client = Client::new(Limits::default()).await;
    client.call(1, "gate").await;
    client.call(2, "echo").await;
    client.send(r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#).await;
    let mut answers = client.answers().await;
    answers.sort();
    assert_eq!(answers, ["2 ok", "3 ok"]);
    client.gate.add_permits(1);
    assert_eq!(client.answers().await, ["1 ok"]);
    for (id, tool, expected) in [(4, "fail", "4 failed"), (5, "no_such", "5 -32602"), (6, "echo", "6 ok")] {
        client.call(id, tool).await;
        assert_eq!(client.answers().await, [expected]);
    }
}

/// PR-12: a client hears of exactly the lists that have changed.
#[tokio::test]
async fn a_client_hears_which_list_has_changed() {
    let client = Client::new(Limits::default()).await;
    let heard = async || {
        settle().await;
        client.outbox.take_now().iter().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>()
    };
    let told = |list: &str| format!(r#"{{"jsonrpc":"2.0","method":"notifications/{list}/list_changed"}}"#);
    client.changes.send_modify(|changes| changes.prompts += 1);
    assert_eq!(heard().await, [told("prompts")]);
    client.changes.send_modify(|changes| (changes.tools, changes.resources) = (3, 2));
    assert_eq!(heard().await, [told("tools"), told("resources")]);
}

/// CO-7, from the face's side: a panic is an answer, and the connection lives.
#[tokio::test]
async fn a_panicking_call_is_answered_and_the_next_one_works() {
    let client = Client::new(Limits::default()).await;
    client.call(1, "panic").await;
    assert_eq!(client.answers().await, ["1 -32603"]);
    assert!(client.log.lock().unwrap().iter().any(|line| line.contains("panicked: out of ideas")));
    client.call(1, "echo").await;
    assert_eq!(client.answers().await, ["1 ok"]);
}

#[tokio::test]
async fn a_cancelled_call_is_not_answered_and_its_id_is_free_again() {
    let client = Client::new(Limits::default()).await;
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    client.send(cancel).await; // Nothing of that name: ignored.
    client.call(1, "gate").await;
    client.call(1, "echo").await;
    assert_eq!(client.answers().await, ["1 -32600"]);
    client.send(cancel).await;
    client.send(cancel).await;
    assert_eq!(client.answers().await, Vec::<String>::new());
    client.call(1, "echo").await;
    assert_eq!(client.answers().await, ["1 ok"]);
}

/// Bad input on stdio: 10 000 requests without reading an answer.
#[tokio::test]
async fn a_client_that_does_not_read_is_no_longer_read() {
    let limits = Limits { answers_bytes_max: 10_000, ..Limits::default() };
    let client = Client::new(limits).await;
    let one = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#.to_owned() + "\n";
    let (chunks, all) = (client.chunks.clone(), one.repeat(10_000));
    let sender = tokio::spawn(async move {
        for chunk in all.into_bytes().chunks(4_096) {
            chunks.send(Bytes::copy_from_slice(chunk)).await.unwrap();
        }
    });
    let mut count = 0;
    while count < 10_000 {
        settle().await;
        assert!(client.outbox.bytes() < 11_000, "{} bytes wait", client.outbox.bytes());
        count += client.outbox.take_now().len();
    }
    sender.await.unwrap();
    client.call(2, "echo").await;
    assert_eq!(client.answers().await, ["2 ok"]);
}

#[tokio::test]
async fn only_so_many_calls_are_in_flight_and_large_ones_count_more() {
    let limits = Limits { calls_in_flight_max: 2, ..Limits::default() };
    let client = Client::new(limits).await;
    for (id, tool) in [(1, "gate"), (2, "gate"), (3, "echo"), (4, "echo")] {
        client.call(id, tool).await; // Two run, two wait.
    }
    client.send(r#"{"jsonrpc":"2.0","id":5,"method":"ping"}"#).await;
    assert_eq!(client.answers().await, ["5 ok"]);
    client.call(6, "echo").await;
    client.send(r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#).await;
    assert_eq!(client.answers().await, Vec::<String>::new()); // Reading waits.
    client.gate.add_permits(1);
    let mut answers = client.answers().await;
    answers.sort();
    assert_eq!(answers, ["1 ok", "3 ok", "4 ok", "6 ok", "7 ok"]);

    let large =
        call(8, "gate").replace("gate\"", &format!("gate\",\"arguments\":\"{}\"", "x".repeat(300 << 10)));
    client.send(&large).await; // Two places; one is taken.
    client.call(9, "echo").await; // And nobody overtakes it.
    assert_eq!(client.answers().await, Vec::<String>::new());
    client.gate.add_permits(2);
    assert_eq!(client.answers().await, ["2 ok", "8 ok", "9 ok"]);
}

/// A client whose calls all hang was not heard when it took them back: reading waited for a place that
/// only reading could free.
#[tokio::test]
async fn a_client_frees_the_places_of_calls_that_hang_by_taking_them_back() {
    let client = Client::new(Limits { calls_in_flight_max: 2, ..Limits::default() }).await;
    let cancel = |id: u32| {
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#)
    };
    for id in 1..=3 {
        client.call(id, "gate").await;
    }
    client.call(3, "echo").await; // It waits, and has its name already.
    assert_eq!(client.answers().await, ["3 -32600"]);
    client.send(&cancel(3)).await; // One that waits …
    client.send(&cancel(1)).await; // … and one that runs.
    client.call(4, "gate").await;
    client.call(5, "echo").await; // Behind 2 and 4, which hang.
    assert_eq!(client.answers().await, Vec::<String>::new());
    client.send(&cancel(2)).await;
    assert_eq!(client.answers().await, ["5 ok"]);
    client.gate.add_permits(1);
    assert_eq!(client.answers().await, ["4 ok"]);
}

/// Bad input on stdio: the exact error, and the next good request works.
#[tokio::test]
async fn bad_frames_are_refused_one_by_one() {
    let limits = Limits { frame_bytes_max: 1_000, ..Limits::default() };
    let client = Client::new(limits).await;
    let long = "x".repeat(2_000);
    for (frame, expected) in [
        ("{", "null -32700"),
        ("\u{feff}{}", "null -32700"),
        ("{\"a\":\"\0\"}", "null -32700"),
        ("[]", "null -32600"),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, "null -32600"), // Not in this revision.
        (r#"{"jsonrpc":"2.0","id":1,"Method":"ping"}"#, "1 -32600"),
        (&long, "null -32600"),
    ] {
        client.send(frame).await;
        client.send(r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#).await;
        assert_eq!(client.answers().await, [expected, "2 ok"], "{frame}");
    }
    client.chunks.send(Bytes::from(long)).await.unwrap(); // A line without end.
    assert_eq!(client.answers().await, ["null -32600"]);
}

#[tokio::test]
async fn a_batch_is_answered_as_one_when_all_of_it_is_done() {
    let client = Client::speaking("2025-03-26", Limits { calls_in_flight_max: 1, ..Limits::default() }).await;
    let parts = [
        call(1, "echo"),
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_owned(),
        call(2, "gate"),
        "7".to_owned(),
        r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#.to_owned(),
    ];
    client.send(&format!("[{}]", parts.join(","))).await;
    client.send(r#"{"jsonrpc":"2.0","id":4,"method":"ping"}"#).await;
    assert_eq!(client.answers().await, ["4 ok"]);
    client.gate.add_permits(1);
    assert_eq!(client.answers().await, ["[1 ok, 2 ok, null -32600, 3 ok]"]);
    client.send(r#"[{"jsonrpc":"2.0","method":"a"},{"jsonrpc":"2.0","method":"b"}]"#).await;
    assert_eq!(client.answers().await, Vec::<String>::new());
}

/// A slow member of a batch held back the answers of the others where nothing counted them: many such
/// batches took memory without bound.
#[tokio::test]
async fn answers_held_back_by_a_batch_count_as_unread() {
    let limits = Limits { answers_bytes_max: 1_000, ..Limits::default() };
    let client = Client::speaking("2025-03-26", limits).await;
    let list = r#"{"jsonrpc":"2.0","id":"l","method":"tools/list"}"#;
    client.send(&format!("[{},{}]", call(1, "gate"), [list; 20].join(","))).await;
    client.call(2, "echo").await;
    assert_eq!(client.answers().await, Vec::<String>::new()); // Reading waits.
    assert!(client.outbox.bytes() > 1_000);
    client.gate.add_permits(1);
    let answers = client.answers().await;
    assert!(answers[0].starts_with(r#"[1 ok, "l" ok, "#), "{answers:?}");
    assert_eq!(client.answers().await, ["2 ok"]); // Now that the batch is read.
    assert_eq!(client.outbox.bytes(), 0);
}

/// CO-11: `printf … | colibri serve` answers everything, the last line without a newline included.
#[tokio::test(start_paused = true)]
async fn the_end_of_input_lets_calls_end() {
    let client = Client::new(Limits::default()).await;
    let begun = Instant::now();
    client.call(1, "gate").await;
    client.chunks.send(Bytes::from(call(2, "echo"))).await.unwrap();
    client.gate.add_permits(1);
    assert_eq!(client.end().await, (Ended::EndOfInput, vec!["1 ok".to_owned(), "2 ok".to_owned()]));
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

/// CO-11: calls in flight are cancelled and finished within 1.5 s.
#[tokio::test(start_paused = true)]
async fn calls_that_do_not_end_are_cancelled_and_then_left() {
    for (tool, answer, took) in [("gate", vec!["1 -32603"], 1_000), ("stubborn", vec![], 1_300)] {
        let client = Client::new(Limits::default()).await;
        client.call(1, tool).await;
        assert_eq!(client.answers().await, Vec::<String>::new());
        let begun = Instant::now();
        client.stop.cancel();
        let log = Arc::clone(&client.log);
        let (ended, answers) = client.end().await;
        assert_eq!((ended, answers), (Ended::Stopped, answer.into_iter().map(str::to_owned).collect()));
        assert_eq!(begun.elapsed().as_millis(), took, "{tool}");
        assert_eq!(log.lock().unwrap().len(), usize::from(tool == "stubborn"));
    }
}

/// CO-11: a client that reads nothing cannot hold up the end either.
#[tokio::test(start_paused = true)]
async fn an_unread_answer_is_given_up_in_time() {
    let client =
        Client::new(Limits { answers_bytes_max: 0, calls_in_flight_max: 1, ..Limits::default() }).await;
    for id in 1..=3 {
        client.call(id, "gate").await;
    }
    settle().await; // The second waits for its place, the third even for that.
    let begun = Instant::now();
    client.stop.cancel();
    assert_eq!(client.connection.await.unwrap(), Ended::Stopped);
    assert_eq!(begun.elapsed().as_millis(), 1_500);
    let mut answers: Vec<_> = client.outbox.take_now().iter().map(|line| brief(line)).collect();
    answers.sort();
    assert_eq!(answers, ["1 -32603", "2 -32603", "3 -32603"]);
    assert!(client.log.lock().unwrap()[0].contains("did not read the last"));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_gone_ends_the_connection() {
    let client = Client::new(Limits::default()).await;
    client.call(1, "echo").await;
    settle().await;
    client.outbox.lose("broken pipe");
    assert_eq!(client.connection.await.unwrap(), Ended::ClientGone);
    assert_eq!(*client.log.lock().unwrap(), ["[colibri] the client is gone: broken pipe"]);
}

/// A face on real pipes and threads: the client's two ends, and how it ended.
fn pipes() -> (PipeWriter, impl Read, std::thread::JoinHandle<Ended>) {
    let (input, to_face) = std::io::pipe().unwrap();
    let (from_face, output) = std::io::pipe().unwrap();
    let face = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (front, limits) = (Front::default(), Limits::default());
        let settings = Settings { identity: identity(), user: "ada".to_owned(), limits, front };
        let stop = CancellationToken::new();
        let face =
            super::super::run(Transport::new(input, output), Double::new(), settings, Logger::silent(), stop);
        runtime.block_on(face).unwrap()
    });
    (to_face, from_face, face)
}

/// CO-1: any pair of pipes is a transport.
#[test]
fn everything_is_answered_before_the_end() {
    let (mut to_face, from_face, face) = pipes();
    let client = std::thread::spawn(move || {
        writeln!(to_face, "{}", INITIALIZE.replace("REVISION", "2025-11-25")).unwrap();
        for id in 1..=10_000 {
            writeln!(to_face, "{}", call(id, "echo")).unwrap();
        }
    });
    let answers = BufReader::new(from_face).lines().count();
    client.join().unwrap();
    assert_eq!((answers, face.join().unwrap()), (10_001, Ended::EndOfInput));
}

#[test]
fn a_vanished_reader_ends_the_face() {
    let (mut to_face, from_face, face) = pipes();
    drop(from_face);
    writeln!(to_face, r#"{{"jsonrpc":"2.0","id":1,"method":"ping"}}"#).unwrap();
    assert_eq!(face.join().unwrap(), Ended::ClientGone);
}
