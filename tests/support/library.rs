//! A server in this process, with its clock, its record, its log and its client in the test's hands.

#![expect(clippy::unwrap_used, reason = "a helper of a test is a test")]

use std::collections::{BTreeSet, HashMap};
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write, pipe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use colibri::app::{Builder, Server};
use colibri::domain::audit::{AuditError, AuditSink, Enter, Exit, Pending};
use colibri::domain::clock::{Clock, Moment, Timestamp};
use colibri::domain::log::{Level, Logger};
use colibri::serve::Transport;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

/// Longer than anything here takes on a busy machine; a test that waits longer has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// 2026-11-15T20:55:01.123Z.
pub(crate) const SOME_DAY: u64 = 1_794_776_101_123;

/// The parts of a server that a test looks at.
pub(crate) struct Bench {
    pub(crate) sink: Recorder,
    pub(crate) log: Log,
    pub(crate) clock: Arc<StepClock>,
    pub(crate) client: Client,
}

/// A builder wired to a bench. Handlers are the process's, which other tests share: not installed.
pub(crate) fn bench() -> (Builder, Bench) {
    let (client, transport) = Client::pair();
    let bench = Bench {
        sink: Recorder::default(),
        log: Log::default(),
        clock: Arc::new(StepClock::default()),
        client,
    };
    let builder = Server::builder()
        .transport(transport)
        .audit_sink(bench.sink.clone())
        .logger(bench.log.logger())
        .clock(bench.clock.clone())
        .user("ada")
        .install_handlers(false);
    (builder, bench)
}

impl Bench {
    /// Starts the server and lets its client shake hands.
    pub(crate) async fn start(&mut self, server: &mut Server) {
        server.start().await.expect("the transport is there");
        self.client.initialize().await;
    }
}

/// A clock that stands still, but for one step at every reading: what has an order has a duration.
pub(crate) struct StepClock {
    pub(crate) now_ms: AtomicU64,
    pub(crate) step_ms: u64,
}

impl Default for StepClock {
    fn default() -> Self {
        Self { now_ms: AtomicU64::new(0), step_ms: 1 }
    }
}

impl Clock for StepClock {
    fn now(&self) -> Moment {
        let now = self.now_ms.fetch_add(self.step_ms, Ordering::SeqCst);
        Moment { wall: Timestamp(SOME_DAY + now), since_boot: Duration::from_millis(now) }
    }
}

/// Keeps every line.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn logger(&self) -> Logger {
        let lines = Arc::clone(&self.0);
        Logger::new(Level::Info, move |_, line| lines.lock().unwrap().push(line.to_owned()))
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// What a sink was told.
#[derive(Clone, Debug)]
pub(crate) enum Seen {
    Enter(Enter),
    Exit(Exit),
    Rejected(Enter, Exit),
}

impl Seen {
    /// `enter echo`, `exit echo ok`, `rejected echo rejected INVALID_PARAMS`.
    pub(crate) fn brief(&self) -> String {
        let end = |exit: &Exit| {
            let code = exit.error.as_ref().map(|failure| format!(" {}", failure.code)).unwrap_or_default();
            format!("{} {}{code}", exit.tool, exit.outcome.name())
        };
        match self {
            Self::Enter(enter) => format!("enter {}", enter.tool),
            Self::Exit(exit) => format!("exit {}", end(exit)),
            Self::Rejected(_, exit) => format!("rejected {}", end(exit)),
        }
    }
}

/// A sink that remembers, and fails where it is told to.
#[derive(Clone)]
pub(crate) struct Recorder {
    seen: Arc<watch::Sender<Vec<Seen>>>,
    failing: Arc<Mutex<BTreeSet<&'static str>>>,
}

impl Default for Recorder {
    fn default() -> Self {
        Self { seen: Arc::new(watch::channel(Vec::new()).0), failing: Arc::default() }
    }
}

impl Recorder {
    /// From now on `enter`, `exit` or `rejected` fails, after it was seen.
    pub(crate) fn fail(&self, verb: &'static str) {
        self.failing.lock().unwrap().insert(verb);
    }

    /// From now on nothing fails.
    pub(crate) fn recover(&self) {
        self.failing.lock().unwrap().clear();
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.borrow().clone()
    }

    pub(crate) fn briefs(&self) -> Vec<String> {
        self.seen().iter().map(Seen::brief).collect()
    }

    pub(crate) fn enters(&self) -> Vec<Enter> {
        self.seen()
            .into_iter()
            .filter_map(|seen| if let Seen::Enter(enter) = seen { Some(enter) } else { None })
            .collect()
    }

    pub(crate) fn exits(&self) -> Vec<Exit> {
        self.seen()
            .into_iter()
            .filter_map(|seen| if let Seen::Exit(exit) = seen { Some(exit) } else { None })
            .collect()
    }

    /// Returns when it was told this.
    pub(crate) async fn told(&self, brief: &str) {
        let mut seen = self.seen.subscribe();
        let told = seen.wait_for(|seen| seen.iter().any(|seen| seen.brief() == brief));
        let told = tokio::time::timeout(PATIENCE, told).await.map(drop);
        assert!(told.is_ok(), "never told `{brief}`, but {:?}", self.briefs());
    }

    fn note(&self, verb: &'static str, seen: Seen) -> Pending<'static, Result<(), AuditError>> {
        self.seen.send_modify(|all| all.push(seen));
        let fails = self.failing.lock().unwrap().contains(verb);
        let result = if fails { Err(AuditError(format!("no ink for {verb}"))) } else { Ok(()) };
        Box::pin(std::future::ready(result))
    }
}

impl AuditSink for Recorder {
    fn enter<'a>(&'a self, event: &'a Enter) -> Pending<'a, Result<(), AuditError>> {
        self.note("enter", Seen::Enter(event.clone()))
    }

    fn exit<'a>(&'a self, event: &'a Exit) -> Pending<'a, Result<(), AuditError>> {
        self.note("exit", Seen::Exit(event.clone()))
    }

    fn rejected<'a>(&'a self, enter: &'a Enter, exit: &'a Exit) -> Pending<'a, Result<(), AuditError>> {
        self.note("rejected", Seen::Rejected(enter.clone(), exit.clone()))
    }
}

/// A sink that knows two verbs, as the first library user's will.
pub(crate) struct TwoVerbs(pub(crate) Recorder);

impl AuditSink for TwoVerbs {
    fn enter<'a>(&'a self, event: &'a Enter) -> Pending<'a, Result<(), AuditError>> {
        self.0.enter(event)
    }

    fn exit<'a>(&'a self, event: &'a Exit) -> Pending<'a, Result<(), AuditError>> {
        self.0.exit(event)
    }
}

/// A JSON-RPC client at the other end of two pipes. Threads write and read its frames, so that a test
/// never blocks the server that it waits for.
pub(crate) struct Client {
    /// Gone once the client has said all it had to say.
    out: Option<mpsc::Sender<String>>,
    frames: mpsc::Receiver<Value>,
    /// Answers that came before they were asked for.
    early: HashMap<u64, Value>,
    next_id: u64,
}

impl Client {
    pub(crate) fn pair() -> (Self, Transport) {
        let (server_in, output) = pipe().expect("a pipe");
        let (input, server_out) = pipe().expect("a pipe");
        let (out, unsent) = mpsc::channel(1024);
        let (sender, frames) = mpsc::channel(1024);
        std::thread::spawn(move || write(output, unsent));
        std::thread::spawn(move || read(input, &sender));
        let client = Self { out: Some(out), frames, early: HashMap::new(), next_id: 1 };
        (client, Transport::new(server_in, server_out))
    }

    pub(crate) async fn initialize(&mut self) {
        let client = json!({ "name": "a test", "version": "1" });
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
        let answer = self.request("initialize", &params).await;
        assert_eq!(answer["result"]["serverInfo"]["name"], "colibri", "{answer}");
        self.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    }

    /// One frame, as it is.
    pub(crate) fn send(&mut self, frame: &str) {
        let out = self.out.as_mut().expect("the client has not ended");
        out.try_send(format!("{frame}\n")).expect("no story sends a thousand frames at once");
    }

    /// Sends a request and goes on; gives its id.
    pub(crate) fn begin(&mut self, method: &str, params: &Value) -> u64 {
        self.begin_raw(method, &params.to_string())
    }

    /// The same, with params that no JSON library would write.
    pub(crate) fn begin_raw(&mut self, method: &str, params: &str) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.send(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#));
        id
    }

    /// Sends a call and goes on.
    pub(crate) fn begin_call(&mut self, tool: &str, arguments: &Value) -> u64 {
        self.begin("tools/call", &json!({ "name": tool, "arguments": arguments }))
    }

    pub(crate) fn cancel(&mut self, id: u64) {
        let params = json!({ "requestId": id });
        self.send(
            &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params }).to_string(),
        );
    }

    /// The answer to a request that was begun.
    pub(crate) async fn answer(&mut self, id: u64) -> Value {
        while !self.early.contains_key(&id) {
            let frame = self.frame().await.expect("the server is there");
            self.early.insert(frame["id"].as_u64().expect("our ids are numbers"), frame);
        }
        self.early.remove(&id).expect("it is there")
    }

    /// The next answer, whichever it is; `None` once the server has closed its side.
    pub(crate) async fn frame(&mut self) -> Option<Value> {
        tokio::time::timeout(PATIENCE, self.frames.recv()).await.expect("an answer in time")
    }

    pub(crate) async fn request(&mut self, method: &str, params: &Value) -> Value {
        let id = self.begin(method, params);
        self.answer(id).await
    }

    /// Calls a tool; gives the `result`.
    pub(crate) async fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        let id = self.begin_call(tool, arguments);
        result(&self.answer(id).await)
    }

    /// Calls a tool; gives its envelope.
    pub(crate) async fn envelope(&mut self, tool: &str, arguments: &Value) -> Value {
        self.call(tool, arguments).await["structuredContent"].clone()
    }

    /// The names that `tools/list` shows.
    pub(crate) async fn tools(&mut self) -> Vec<Value> {
        let answer = self.request("tools/list", &json!({})).await;
        answer["result"]["tools"].as_array().expect("a list").clone()
    }

    /// Says no more, and reads what is left.
    pub(crate) async fn end(&mut self) -> Vec<Value> {
        self.out = None;
        let mut frames: Vec<Value> = self.early.drain().map(|(_, frame)| frame).collect();
        while let Some(frame) = self.frame().await {
            frames.push(frame);
        }
        frames
    }
}

/// The result of a call, after what is true of every one.
pub(crate) fn result(answer: &Value) -> Value {
    let result = answer["result"].clone();
    let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no result: {answer}"));
    let as_text: Value = serde_json::from_str(text).expect("the text is the envelope");
    assert_eq!(as_text, result["structuredContent"], "text and structure say the same");
    result
}

fn write(mut output: PipeWriter, mut frames: mpsc::Receiver<String>) {
    while let Some(frame) = frames.blocking_recv() {
        // A server that has stopped reads no more; what it should have read, a story misses.
        let _ = output.write_all(frame.as_bytes());
    }
}

fn read(input: PipeReader, frames: &mpsc::Sender<Value>) {
    for line in BufReader::new(input).lines() {
        let line = line.expect("a pipe can be read");
        let frame = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line}"));
        if frames.blocking_send(frame).is_err() {
            return;
        }
    }
}
