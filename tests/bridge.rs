//! The bridge: document 000 §9 on a paused clock, over links in memory; then real children.

mod children;
mod families;
mod faults;
mod fidelity;
mod listing;
pub(crate) mod network;
pub(crate) mod support;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use colibri::domain::audit::Pending;
use colibri::domain::log::{Level, Logger};
use colibri::fleet::bridge::{Bridge, BridgeError, CallOptions, ConnectOptions, Executed};
use colibri::fleet::era::Era;
use colibri::fleet::error::Cause;
use colibri::fleet::inbox::Inbox;
use colibri::fleet::link::memory::{Peer, pair};
use colibri::fleet::link::{Link, Opener};
use serde_json::{Value, json};
use tokio::time::Instant;

/// What a scripted server does with one request.
#[derive(Clone)]
enum Do {
    /// Answers with a result.
    Result(Value),
    /// Answers with an error.
    Error(i32, &'static str),
    /// Answers with this error, whole.
    RawError(Value),
    /// Says nothing.
    Nothing,
    /// Ends the link.
    End,
}

/// A server in memory: one script for the handshake's requests by method, one for calls in order.
#[derive(Clone)]
struct Script {
    discover: Do,
    initialize: Do,
    calls: Arc<Mutex<VecDeque<Do>>>,
    lists: Arc<Mutex<VecDeque<Do>>>,
    /// Every message received, in order.
    seen: Arc<Mutex<Vec<Value>>>,
}

impl Script {
    fn legacy(calls: impl IntoIterator<Item = Do>) -> Self {
        Self {
            discover: Do::Error(-32_601, "Method not found"),
            initialize: Do::Result(
                json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": { "name": "s", "version": "1" } }),
            ),
            calls: Arc::new(Mutex::new(calls.into_iter().collect())),
            lists: Arc::default(),
            seen: Arc::default(),
        }
    }

    fn modern(calls: impl IntoIterator<Item = Do>) -> Self {
        let discover = Do::Result(json!({ "supportedVersions": ["2026-07-28"], "capabilities": {} }));
        Self { discover, initialize: Do::Error(-32_601, "gone"), ..Self::legacy(calls) }
    }

    fn methods(&self) -> Vec<String> {
        self.seen
            .lock()
            .expect("sound")
            .iter()
            .map(|message| message["method"].as_str().unwrap_or("answer").to_owned())
            .collect()
    }

    async fn serve(self, mut peer: Peer) {
        while let Some(frame) = peer.received.recv().await {
            let message: Value = serde_json::from_slice(&frame).expect("we send JSON");
            self.seen.lock().expect("sound").push(message.clone());
            let Some(id) = message.get("id").cloned() else { continue };
            let reaction = match message["method"].as_str() {
                Some("server/discover") => self.discover.clone(),
                Some("initialize") => self.initialize.clone(),
                Some("tools/list") => self.lists.lock().expect("sound").pop_front().unwrap_or(Do::Nothing),
                Some("tools/call") => self.calls.lock().expect("sound").pop_front().unwrap_or(Do::Nothing),
                _ => Do::Nothing,
            };
            let answer = match reaction {
                Do::Result(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
                Do::Error(code, message) => {
                    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
                }
                Do::RawError(error) => json!({ "jsonrpc": "2.0", "id": id, "error": error }),
                Do::Nothing => continue,
                Do::End => return,
            };
            let _ = peer.send.send(Bytes::from(answer.to_string())).await;
        }
    }
}

impl Opener for Script {
    fn open(&self, inbox: Inbox) -> Pending<'_, Result<Arc<dyn Link>, Cause>> {
        let (link, peer) = pair(inbox);
        tokio::spawn(self.clone().serve(peer));
        Box::pin(std::future::ready(Ok(link)))
    }

    fn transport(&self) -> &'static str {
        "memory"
    }
}

/// A logger that keeps its lines.
fn keeping() -> (Logger, Arc<Mutex<Vec<String>>>) {
    let lines: Arc<Mutex<Vec<String>>> = Arc::default();
    let kept = Arc::clone(&lines);
    (Logger::new(Level::Debug, move |_, line| kept.lock().expect("sound").push(line.to_owned())), lines)
}

fn options(script: &Script) -> ConnectOptions {
    ConnectOptions {
        transport: Some(Box::new(script.clone())),
        logger: Logger::silent(),
        ..ConnectOptions::default()
    }
}

async fn connect(script: &Script) -> Result<Bridge, BridgeError> {
    Bridge::connect("memory:test", options(script)).await
}

fn said(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }], "odd": 1 })
}

const INTERNAL: Do = Do::Error(-32_603, "boom");

/// BR-1, BR-2, BR-4, BR-12: connecting gives a bridge that knows its url; a call gives the result whole.
#[tokio::test(start_paused = true)]
async fn a_call_returns_the_servers_result_whole() {
    for (script, revision) in [
        (Script::legacy([Do::Result(said("hi"))]), "2025-11-25"),
        (Script::modern([Do::Result(said("hi"))]), "2026-07-28"),
    ] {
        let bridge = connect(&script).await.expect("it connects");
        assert_eq!((bridge.url(), bridge.revision().date), ("memory:test", revision));
        let result =
            bridge.call_tool("echo", &json!({ "a": 1 }), CallOptions::default()).await.expect("it answers");
        assert_eq!(serde_json::from_slice::<Value>(&result).expect("sound"), said("hi"));
        let call = script.seen.lock().expect("sound").last().cloned().expect("a call");
        assert_eq!(call["params"]["name"], "echo");
        assert_eq!(call["params"]["arguments"], json!({ "a": 1 }));
    }
}

/// BR-5, BR-6: two transient failures, then success: three attempts, exactly 3 s apart in all.
#[tokio::test(start_paused = true)]
async fn transient_failures_are_tried_again_after_one_and_two_seconds() {
    let script = Script::legacy([INTERNAL, Do::Error(-32_000, "closed"), Do::Result(said("at last"))]);
    let bridge = connect(&script).await.expect("it connects");
    let begun = Instant::now();
    bridge.call_tool("t", &json!({}), CallOptions::default()).await.expect("the third attempt succeeds");
    assert_eq!(begun.elapsed(), Duration::from_secs(3));
    assert_eq!(script.methods().iter().filter(|method| *method == "tools/call").count(), 3);
}

/// BR-5, BR-7: which failures are final, which run out, and after how many attempts.
#[tokio::test(start_paused = true)]
async fn failures_are_told_with_attempts_and_whether_to_try_later() {
    let table: [(&str, Do, u32, bool); 8] = [
        ("internal error", INTERNAL, 3, true),
        ("the SDKs' timeout", Do::Error(-32_001, "timeout"), 3, true),
        ("the SDKs' closed connection", Do::Error(-32_000, "closed"), 3, true),
        ("no answer", Do::Nothing, 3, true),
        ("invalid request", Do::Error(-32_600, "no"), 1, false),
        ("method not found", Do::Error(-32_601, "no"), 1, false),
        ("invalid params", Do::Error(-32_602, "no"), 1, false),
        ("the link is gone", Do::End, 1, true),
    ];
    for (name, reaction, attempts, retryable) in table {
        let script = Script::legacy(vec![reaction; 3]);
        let bridge = connect(&script).await.expect("it connects");
        let error = bridge.call_tool("t", &json!({}), CallOptions::default()).await.expect_err(name);
        assert_eq!((error.attempts, error.retryable), (attempts, retryable), "{name}: {error}");
    }
}

/// BR-3, BR-8: a deadline is per attempt, takes the request back on the wire, and frees its place.
#[tokio::test(start_paused = true)]
async fn a_deadline_takes_the_request_back() {
    let script = Script::legacy([Do::Nothing]);
    let bridge = connect(&script).await.expect("it connects");
    let begun = Instant::now();
    let options = CallOptions { timeout: Some(Duration::from_millis(500)), max_attempts: 1, notices: None };
    let error = bridge.call_tool("t", &json!({}), options).await.expect_err("nothing answers");
    assert_eq!(begun.elapsed(), Duration::from_millis(500));
    assert_eq!(error.source, Cause::TimedOut(Duration::from_millis(500)));
    assert_eq!(bridge.client().connection().in_flight(), 0);
    // The cancellation is sent by a task of its own.
    while !script.methods().contains(&"notifications/cancelled".to_owned()) {
        tokio::task::yield_now().await;
    }
    let seen = script.seen.lock().expect("sound");
    let call = seen.iter().find(|message| message["method"] == "tools/call").expect("the call");
    let cancelled =
        seen.iter().find(|message| message["method"] == "notifications/cancelled").expect("taken back");
    assert_eq!(cancelled["params"]["requestId"], call["id"]);
}

/// BR-3: connecting has a deadline and is not retried.
#[tokio::test(start_paused = true)]
async fn connecting_has_one_attempt_and_one_deadline() {
    let silent = Script { discover: Do::Nothing, initialize: Do::Nothing, ..Script::legacy([]) };
    let begun = Instant::now();
    let Err(error) = Bridge::connect("memory:silent", options(&silent)).await else {
        panic!("nobody answers")
    };
    assert_eq!(begun.elapsed(), Duration::from_secs(30));
    assert_eq!((error.source.clone(), error.attempts), (Cause::TimedOut(Duration::from_secs(30)), 1));
    // Ten seconds of silence, then the old way; nothing twice.
    assert_eq!(silent.methods()[..2], ["server/discover", "initialize"]);
}

/// BR-9: closing may be repeated; a call after it fails at once and is not retried.
#[tokio::test(start_paused = true)]
async fn a_call_after_close_fails_at_once() {
    let script = Script::legacy([]);
    let bridge = connect(&script).await.expect("it connects");
    bridge.close().await;
    bridge.close().await;
    let begun = Instant::now();
    let error = bridge.call_tool("t", &json!({}), CallOptions::default()).await.expect_err("it is closed");
    assert_eq!(
        error,
        BridgeError { source: Cause::Closed, attempts: 0, retryable: false, executed: Executed::No }
    );
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

/// BR-11: the six lines, word for word.
#[tokio::test(start_paused = true)]
async fn the_log_lines_are_exact() {
    let script = Script::legacy([INTERNAL, INTERNAL, Do::Error(-32_602, "bad")]);
    let (logger, lines) = keeping();
    let options = ConnectOptions { logger, era: Era::Legacy, ..options(&script) };
    let bridge = Bridge::connect("memory:log", options).await.expect("it connects");
    let two = CallOptions { max_attempts: 2, ..CallOptions::default() };
    let _ = bridge.call_tool("t", &json!({}), two.clone()).await;
    let _ = bridge.call_tool("u", &json!({}), two).await;
    assert_eq!(
        *lines.lock().expect("sound"),
        [
            "[mcp-bridge] connecting to memory:log",
            "[mcp-bridge] connected to memory:log",
            "[mcp-bridge] callTool t attempt 1/2",
            "[mcp-bridge] retrying in 1000ms (error: boom (-32603))",
            "[mcp-bridge] callTool t attempt 2/2",
            "[mcp-bridge] callTool t failed after 2 attempt(s)",
            "[mcp-bridge] callTool u attempt 1/2",
            "[mcp-bridge] callTool u non-retryable error: bad (-32602)",
        ]
    );
}

/// BR-1: a server that has no revision in common is told with both sides' versions.
#[tokio::test(start_paused = true)]
async fn a_version_mismatch_names_both_sides() {
    let ancient = Do::Result(json!({ "protocolVersion": "1999-01-01", "capabilities": {} }));
    let script = Script { initialize: ancient, ..Script::legacy([]) };
    let Err(error) = connect(&script).await else { panic!("there is nothing in common") };
    let message = error.to_string();
    assert!(message.contains("1999-01-01") && message.contains("2025-11-25"), "{message}");
    assert!(!error.retryable);
}
