//! The binary as a child: its own home, no environment, a watchdog, and an eye on every line it writes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// A story that takes longer hangs; its child is killed, so that reading ends.
const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) const PING: &str = r#"{"jsonrpc":"2.0","id":"ping","method":"ping"}"#;

/// A folder to live in.
pub(crate) struct Home(tempfile::TempDir);

impl Home {
    pub(crate) fn new() -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        std::fs::create_dir(home.path().join("work")).unwrap();
        home
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.path().join("data/colibri.db")
    }

    /// The binary, with nothing in its environment but this home.
    pub(crate) fn command(&self) -> Command {
        self.wrapped(&[])
    }

    /// The same, started by another program.
    pub(crate) fn wrapped(&self, wrapper: &[&str]) -> Command {
        let binary = env!("CARGO_BIN_EXE_colibri");
        let mut words = wrapper.iter().copied().chain([binary]);
        let mut command = Command::new(words.next().expect("the binary at least"));
        command
            .args(words)
            .env_clear()
            .envs(crate::support::measured())
            .current_dir(self.path().join("work"));
        command.env("HOME", self.path()).env("COLIBRI_DB_PATH", self.database());
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
        command
    }
}

/// A running `colibri serve`.
pub(crate) struct Colibri {
    pub(crate) home: Home,
    child: Child,
    stdin: Option<ChildStdin>,
    /// Gone if the story no longer reads.
    stdout: Option<BufReader<ChildStdout>>,
    _watchdog: SyncSender<()>,
}

impl Colibri {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    pub(crate) fn start_with(variables: &[(&str, &str)]) -> Self {
        let home = Home::new();
        let mut command = home.command();
        command.arg("serve").envs(variables.iter().copied());
        Self::spawn(home, command)
    }

    pub(crate) fn spawn(home: Home, command: Command) -> Self {
        Self::spawn_for(home, command, PATIENCE)
    }

    /// The same, for a story that takes longer.
    pub(crate) fn spawn_for(home: Home, mut command: Command, patience: Duration) -> Self {
        let log = File::create(home.path().join("stderr")).unwrap();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().unwrap();
        let stdout = child.stdout.take().map(BufReader::new);
        let stdin = child.stdin.take();
        let watchdog = watch(child.id(), patience);
        Self { home, child, stdin, stdout, _watchdog: watchdog }
    }

    /// The same, after `initialize` in a legacy revision.
    pub(crate) fn speaking(revision: &str) -> Self {
        let mut colibri = Self::start();
        colibri.initialize(revision);
        colibri
    }

    pub(crate) fn initialize(&mut self, revision: &str) {
        self.send(&initialize(revision));
        assert_eq!(self.answer()["result"]["protocolVersion"], revision);
    }

    pub(crate) fn send(&mut self, line: &str) {
        self.send_bytes(format!("{line}\n").as_bytes());
    }

    /// What the child no longer wants to read is its affair.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        let _ = self.stdin.as_mut().expect("not ended yet").write_all(bytes);
    }

    /// For a thread that writes while the story reads, or does not.
    pub(crate) fn take_stdin(&mut self) -> ChildStdin {
        self.stdin.take().expect("taken once")
    }

    /// Gives it back.
    pub(crate) fn put_stdin(&mut self, stdin: ChildStdin) {
        self.stdin = Some(stdin);
    }

    /// Ends the input.
    pub(crate) fn end_input(&mut self) {
        self.stdin = None;
    }

    /// No longer reads, and lets the child see it.
    pub(crate) fn stop_reading(&mut self) {
        self.stdout = None;
    }

    /// The next answer. Panics if the child ends instead.
    #[track_caller]
    pub(crate) fn answer(&mut self) -> Value {
        match self.next() {
            Some(answer) => answer,
            None => panic!("no more answers; stderr: {}", self.log()),
        }
    }

    fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        let stdout = self.stdout.as_mut().expect("still read");
        let length = stdout.read_line(&mut line).expect("what it writes is UTF-8");
        (length > 0).then(|| frame(&line))
    }

    /// All answers until the child closes its side.
    pub(crate) fn rest(&mut self) -> Vec<Value> {
        std::iter::from_fn(|| self.next()).collect()
    }

    /// Sends a line, and says how it was answered: see [`brief`].
    #[track_caller]
    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.send(line);
        brief(&self.answer())
    }

    /// A ping is answered next: nothing else was, and it lives.
    #[track_caller]
    pub(crate) fn assert_lives(&mut self) {
        let answered = self.ask(PING);
        assert_eq!(answered, "\"ping\" ok");
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// The exit code, once the child has ended; -1 if a signal ended it.
    pub(crate) fn exit_code(&mut self) -> i32 {
        self.child.wait().unwrap().code().unwrap_or(-1)
    }

    /// Ends the input, reads everything, and expects a clean end.
    #[track_caller]
    pub(crate) fn finish(mut self) -> Vec<Value> {
        self.end_input();
        let rest = self.rest();
        assert_eq!(self.exit_code(), 0, "{}", self.log());
        rest
    }

    pub(crate) fn log(&self) -> String {
        let bytes = std::fs::read(self.home.path().join("stderr")).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The most memory it ever held, in MiB.
    pub(crate) fn peak_mib(&self) -> u64 {
        self.status("VmHWM:") / 1024
    }

    pub(crate) fn now_mib(&self) -> u64 {
        self.status("VmRSS:") / 1024
    }

    fn status(&self, key: &str) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(key)).expect("Linux tells it");
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

/// Kills the child when the story takes too long. Ends when the sender is dropped.
fn watch(child: u32, patience: Duration) -> SyncSender<()> {
    let (alive, watched) = sync_channel(1);
    let pid = Pid::from_raw(i32::try_from(child).unwrap()).unwrap();
    std::thread::spawn(move || {
        if watched.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            let _ = kill_process(pid, Signal::KILL);
        }
    });
    alive
}

impl Drop for Colibri {
    fn drop(&mut self) {
        self.stdin = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let _ = writeln!(std::io::stderr(), "what colibri said:\n{}", self.log());
        }
    }
}

/// CO-12: a line of stdout is an answer, or an array of them, or something that a server tells or asks through
/// colibri, and nothing else.
fn frame(line: &str) -> Value {
    let value: Value =
        serde_json::from_str(line).unwrap_or_else(|error| panic!("stdout carries {line:?}: {error}"));
    assert!(line.ends_with('\n'), "a frame was cut: {line:?}");
    let told = [
        "notifications/tools/list_changed",
        "notifications/resources/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/updated",
        "notifications/subscriptions/acknowledged",
        "notifications/progress",
        "notifications/message",
        "notifications/cancelled",
    ];
    let asked = ["elicitation/create", "sampling/createMessage", "roots/list"];
    let is_told = told.iter().any(|method| value["method"] == *method) && value["id"].is_null();
    let is_asked = asked.iter().any(|method| value["method"] == *method) && value["id"].is_u64();
    if is_told || is_asked {
        return value;
    }
    let answers = value.as_array().map_or(std::slice::from_ref(&value), Vec::as_slice);
    assert!(!answers.is_empty(), "an empty batch");
    for answer in answers {
        let keys: Vec<&str> = answer.as_object().expect("an object").keys().map(String::as_str).collect();
        let known = [["id", "jsonrpc", "result"], ["error", "id", "jsonrpc"]];
        assert!(known.iter().any(|known| keys == known), "stdout carries {line:?}");
        assert_eq!(answer["jsonrpc"], "2.0");
        if let Some(error) = answer.get("error") {
            assert!(error["code"].is_i64() && error["message"].is_string(), "{line:?}");
        }
    }
    value
}

/// `ID ok`, `ID CODE` for a JSON-RPC error, `ID CODE` of colibri's own for a tool's.
pub(crate) fn brief(answer: &Value) -> String {
    if let Some(batch) = answer.as_array() {
        return format!("[{}]", batch.iter().map(brief).collect::<Vec<_>>().join(", "));
    }
    let id = &answer["id"];
    let envelope = || -> Value {
        let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
        serde_json::from_str(text).unwrap()
    };
    match (answer["error"]["code"].as_i64(), &answer["result"]["isError"]) {
        (Some(code), _) => format!("{id} {code}"),
        (None, Value::Bool(true)) => {
            format!("{id} {}", envelope()["error"]["code"].as_str().unwrap_or_default())
        }
        (None, _) => format!("{id} ok"),
    }
}

pub(crate) fn initialize(revision: &str) -> String {
    let params =
        json!({ "protocolVersion": revision, "capabilities": {}, "clientInfo": { "name": "story" } });
    request(0, "initialize", &params)
}

pub(crate) fn request(id: u64, method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
}

pub(crate) fn call(id: u64, tool: &str) -> String {
    request(id, "tools/call", &json!({ "name": tool }))
}

/// A modern request.
pub(crate) fn modern(id: u64, method: &str, mut params: Value) -> String {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    request(id, method, &params)
}

/// How often each answer was given.
pub(crate) fn tally(answers: &[Value], kind: impl Fn(&Value) -> String) -> BTreeMap<String, usize> {
    answers.iter().fold(BTreeMap::new(), |mut counts, answer| {
        *counts.entry(kind(answer)).or_default() += 1;
        counts
    })
}
