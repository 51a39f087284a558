//! Servers in memory that do as they are told, and a fleet of them.

mod watched;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use colibri::domain::audit::Pending;
use colibri::domain::filter::Filter;
use colibri::domain::life::{Policy, Restart};
use colibri::domain::merkle::Hash;
use colibri::fleet::error::Cause;
use colibri::fleet::inbox::Inbox;
use colibri::fleet::link::memory::{Peer, pair};
use colibri::fleet::link::{Link, Opener};
use colibri::fleet::roster::{Lives, Member, Start, Terms};
use colibri::fleet::supervisor::{Probe, Settings};
use colibri::mcp::request::Client;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

pub(super) use watched::{Watched, fleet, joining, logging, planned, remembering};

pub(super) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Waits on the paused clock until something is so.
pub(super) async fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        tokio::time::sleep_until(Instant::now() + Duration::from_millis(10)).await;
    }
}

/// What opening a link comes to.
#[derive(Clone)]
pub(super) enum Opens {
    Fail(Cause),
    /// Neither opens nor fails.
    Hang,
}

/// A server in memory. It opens unless it is planned otherwise. A tool does what its name says: `hang` says
/// nothing, `internal…` and `invalid…` are errors, `echo` gives back what it was given, anything else answers;
/// `…idempotent` says so.
#[derive(Clone, Default)]
pub(super) struct Scripted(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    plan: VecDeque<Opens>,
    tools: Vec<String>,
    /// When each attempt to open it began.
    opened: Vec<Instant>,
    called: usize,
    deaf: bool,
    /// What it offers from right after its next listing on.
    changes_to: Option<Vec<String>>,
    heard: Vec<(String, Instant)>,
    /// Why calls were taken back.
    taken_back: Vec<String>,
    /// Calls, and what it fails with silence, that nobody has answered: their ids, and the tokens under which progress is
    /// told.
    hung: Vec<(u64, u64)>,
    /// Whole definitions of tools that have another than the usual one.
    defined: BTreeMap<String, String>,
    /// Descriptions of tools that have one.
    described: BTreeMap<String, String>,
    menu: Menu,
    /// What it was asked beside lists, with the params.
    asked: Vec<(String, Value)>,
    /// Where the live connection's frames go.
    out: Option<mpsc::Sender<Bytes>>,
}

/// What a server offers beside tools, as it writes it. Without capabilities it has none of it.
#[derive(Clone, Default)]
pub(super) struct Menu {
    pub(super) capabilities: Value,
    pub(super) instructions: Option<String>,
    pub(super) resources: Vec<String>,
    pub(super) templates: Vec<String>,
    pub(super) prompts: Vec<String>,
    /// Entries of one page; all, if it is none.
    pub(super) page: usize,
    /// Whether it is of the newer family.
    pub(super) is_modern: bool,
    /// A method that it fails: with the code, or with silence.
    pub(super) fails: Option<(&'static str, Option<i32>)>,
}

impl Menu {
    fn introduction(&self) -> Value {
        let mut said = json!({
            "protocolVersion": "2025-11-25", "supportedVersions": ["2026-07-28"],
            "capabilities": { "tools": {} }, "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
        });
        for (key, value) in self.capabilities.as_object().into_iter().flatten() {
            said["capabilities"][key] = value.clone();
        }
        if let Some(instructions) = &self.instructions {
            said["instructions"] = json!(instructions);
        }
        said
    }

    /// One page of a list, written as text, so that what must not change can be seen to.
    fn page(&self, method: &str, cursor: &Value) -> Option<String> {
        let (member, entries) = match method {
            "resources/list" => ("resources", &self.resources),
            "resources/templates/list" => ("resourceTemplates", &self.templates),
            "prompts/list" => ("prompts", &self.prompts),
            _ => return None,
        };
        let start = cursor.as_str().map_or(0, |cursor| cursor.parse().expect("our own cursor"));
        let end = if self.page == 0 { entries.len() } else { entries.len().min(start + self.page) };
        let next = if end < entries.len() { format!(r#","nextCursor":"{end}""#) } else { String::new() };
        Some(format!(r#"{{"{member}":[{}]{next}}}"#, entries[start..end].join(",")))
    }
}

impl Scripted {
    /// From the next list or connection on it offers this too.
    pub(super) fn with(&self, change: impl FnOnce(&mut Menu)) -> &Self {
        change(&mut self.state().menu);
        self
    }

    /// The params of the last request of that method.
    pub(super) fn asked(&self, method: &str) -> Value {
        let state = self.state();
        let last = state.asked.iter().rev().find(|(asked, _)| asked == method);
        last.map(|(_, params)| params.clone()).unwrap_or_default()
    }

    pub(super) fn new(tools: &[&str]) -> Self {
        let server = Self::default();
        server.offer(tools);
        server
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("sound")
    }

    pub(super) fn offer(&self, tools: &[&str]) {
        self.state().tools = tools.iter().map(ToString::to_string).collect();
    }

    /// From now on a tool is described so.
    pub(super) fn redefine(&self, tool: &str, description: &str) {
        self.state().described.insert(tool.to_owned(), description.to_owned());
    }

    /// From now on a tool is defined so, with these schemas of what goes in and comes out.
    pub(super) fn define(&self, tool: &str, input: &Value, output: &Value) {
        let definition = json!({ "name": tool, "inputSchema": input, "outputSchema": output });
        self.state().defined.insert(tool.to_owned(), definition.to_string());
    }

    pub(super) fn plan(&self, opens: Opens) {
        self.state().plan.push_back(opens);
    }

    pub(super) fn plan_all(&self, opens: impl IntoIterator<Item = Opens>) {
        self.state().plan.extend(opens);
    }

    /// Ends the connection, as a crash does.
    pub(super) fn cut(&self) {
        self.state().out = None;
    }

    /// Right after the next list it says that the list has changed, to this.
    pub(super) fn say_changed_on_start(&self, tools: &[&str]) {
        self.state().changes_to = Some(tools.iter().map(ToString::to_string).collect());
    }

    /// From now on this connection answers nothing.
    pub(super) fn go_deaf(&self) {
        self.state().deaf = true;
    }

    pub(super) async fn tell(&self, method: &str) {
        let out = self.state().out.clone().expect("it is connected");
        let frame = json!({ "jsonrpc": "2.0", "method": method }).to_string();
        out.send(frame.into()).await.expect("somebody reads");
    }

    /// Any message of its own.
    pub(super) async fn say(&self, message: &Value) {
        let out = self.state().out.clone().expect("it is connected");
        out.send(message.to_string().into()).await.expect("somebody reads");
    }

    /// The call that hangs longest: its id and its progress token.
    pub(super) async fn hung(&self) -> (u64, u64) {
        loop {
            if let Some(hung) = self.state().hung.first() {
                return *hung;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Answers the call that hangs longest.
    pub(super) async fn answer_hung(&self) {
        let (id, _) = self.hung().await;
        self.state().hung.remove(0);
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "result": { "content": [] } })).await;
    }

    /// Why calls were taken back, once so many were.
    pub(super) async fn taken_back(&self, count: usize) -> Vec<String> {
        while self.state().taken_back.len() < count {
            tokio::task::yield_now().await;
        }
        self.state().taken_back.clone()
    }

    pub(super) fn opened(&self) -> usize {
        self.state().opened.len()
    }

    /// When each attempt to open it began.
    pub(super) fn opened_at(&self) -> Vec<Instant> {
        self.state().opened.clone()
    }

    /// When it was asked or told this.
    pub(super) fn heard_at(&self, method: &str) -> Vec<Instant> {
        self.state().heard.iter().filter(|(heard, _)| heard == method).map(|(_, at)| *at).collect()
    }

    /// The way out of the live connection: as long as this is held, that connection has not ended.
    pub(super) fn held(&self) -> mpsc::Sender<Bytes> {
        self.state().out.clone().expect("it is connected")
    }

    pub(super) fn called(&self) -> usize {
        self.state().called
    }

    pub(super) fn heard(&self, method: &str) -> bool {
        !self.heard_at(method).is_empty()
    }

    pub(super) fn is_ended(&self) -> bool {
        self.state().out.is_none()
    }

    async fn serve(self, mut received: mpsc::Receiver<Bytes>, generation: usize) {
        while let Some(frame) = received.recv().await {
            let message: Value = serde_json::from_slice(&frame).expect("we send JSON");
            let answer = self.answer(&message);
            let Some(out) = self.state().out.clone() else { break };
            if let Some(answer) = answer {
                let _ = out.send(answer.to_string().into()).await;
            }
        }
        let mut state = self.state();
        if state.opened.len() == generation {
            state.out = None;
        }
    }

    fn answer(&self, message: &Value) -> Option<Value> {
        let mut state = self.state();
        let method = message["method"].as_str().unwrap_or_default().to_owned();
        state.heard.push((method.clone(), Instant::now()));
        if method == "notifications/cancelled" {
            let reason = message["params"]["reason"].as_str().unwrap_or_default().to_owned();
            state.taken_back.push(reason);
        }
        let id = message.get("id").filter(|_| !state.deaf)?.clone();
        let error =
            |code: i32| json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": "no" } });
        if let Some((fails, how)) = state.menu.fails
            && fails == method
        {
            if how.is_none() {
                state.hung.push((id.as_u64().unwrap_or_default(), 0));
            }
            return how.map(error);
        }
        if let Some(page) = state.menu.page(&method, &message["params"]["cursor"]) {
            drop(state);
            self.raw(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{page}}}"#));
            return None;
        }
        let params = &message["params"];
        state.asked.push((method.clone(), params.clone()));
        let result = match method.as_str() {
            "initialize" if !state.menu.is_modern => state.menu.introduction(),
            "server/discover" if state.menu.is_modern => state.menu.introduction(),
            "resources/read" if params["uri"].as_str().is_some_and(|uri| uri.ends_with("gone")) => {
                return Some(error(-32_002));
            }
            "resources/read" => json!({ "contents": [{ "uri": params["uri"], "text": "read" }] }),
            "prompts/get" => json!({ "messages": [], "description": params["name"] }),
            "completion/complete" => json!({ "completion": { "values": [params["argument"]["value"]] } }),
            "resources/subscribe" | "resources/unsubscribe" | "ping" => json!({}),
            "tools/list" => {
                // Written as text, so that what must not change can be seen to.
                let described = |name: &String| {
                    let own = state.defined.get(name).cloned();
                    own.unwrap_or_else(|| definition(name, state.described.get(name)))
                };
                let tools: Vec<String> = state.tools.iter().map(described).collect();
                let raw =
                    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"tools":[{}]}}}}"#, tools.join(","));
                let changes_to = state.changes_to.take();
                drop(state);
                self.raw(raw);
                if let Some(tools) = changes_to {
                    self.state().tools = tools;
                    self.raw(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#.to_owned());
                }
                return None;
            }
            "tools/call" => {
                state.called += 1;
                match message["params"]["name"].as_str().unwrap_or_default() {
                    "hang" => {
                        let token = message["params"]["_meta"]["progressToken"].as_u64().unwrap_or_default();
                        state.hung.push((id.as_u64().unwrap_or_default(), token));
                        return None;
                    }
                    tool if tool.starts_with("internal") => return Some(error(-32_603)),
                    tool if tool.starts_with("invalid") => return Some(error(-32_602)),
                    "echo" => json!({ "content": [], "structuredContent": params["arguments"] }),
                    tool => json!({ "content": [{ "type": "text", "text": tool }] }),
                }
            }
            _ => return Some(error(-32_601)),
        };
        Some(json!({ "jsonrpc": "2.0", "id": id, "result": result }))
    }

    fn raw(&self, frame: String) {
        if let Some(out) = &self.state().out {
            let _ = out.try_send(frame.into());
        }
    }
}

fn definition(name: &str, description: Option<&String>) -> String {
    let described = description.map(|text| format!(r#", "description":{}"#, json!(text))).unwrap_or_default();
    let hints = if name.ends_with("idempotent") { r#"{"idempotentHint":true}"# } else { "{}" };
    format!(
        r#"{{ "name":"{name}", "inputSchema":{{"type":"object"}}, "annotations":{hints},"x-odd":1.50{described}}}"#
    )
}

impl Opener for Scripted {
    fn open(&self, inbox: Inbox) -> Pending<'_, Result<Arc<dyn Link>, Cause>> {
        let planned = {
            let mut state = self.state();
            state.opened.push(Instant::now());
            state.plan.pop_front()
        };
        match planned {
            Some(Opens::Fail(cause)) => return Box::pin(std::future::ready(Err(cause))),
            Some(Opens::Hang) => return Box::pin(std::future::pending()),
            None => {}
        }
        let (link, Peer { received, send }) = pair(inbox);
        let generation = {
            let mut state = self.state();
            (state.out, state.deaf) = (Some(send), false);
            state.hung.clear();
            state.opened.len()
        };
        tokio::spawn(self.clone().serve(received, generation));
        Box::pin(std::future::ready(Ok(link)))
    }

    fn transport(&self) -> &'static str {
        "memory"
    }
}

/// A member with the defaults of a configuration, and no jitter.
pub(super) fn member(name: &str, server: &Scripted) -> Member {
    member_by(name, Box::new(server.clone()))
}

/// How a server is supervised that is reached by this.
pub(super) fn settings(name: &str, opener: Box<dyn Opener>) -> Settings {
    let restart = Restart { jitter: 0.0, ..Restart::preset_default() };
    let client = Client { name: "test".to_owned(), version: "1".to_owned(), capabilities: json!({}) };
    Settings {
        name: name.into(),
        slug: name.into(),
        opener,
        policy: Policy { restart, probe_interval: None },
        probe: Probe::Ping,
        probe_timeout: secs(3),
        connect_timeout: secs(30),
        idle_close: None,
        client: Arc::new(client),
        memory: None,
        key: None,
        is_unconfined: false,
        pin_enforced: false,
        face: None,
    }
}

/// The same member, reached by this.
pub(super) fn member_by(name: &str, opener: Box<dyn Opener>) -> Member {
    let settings = settings(name, opener);
    let terms = Terms {
        filter: Filter::default(),
        start: Start::Eager,
        shared: true,
        required: false,
        lives: Lives::Used,
        timeout: secs(30),
        max_total_timeout: secs(600),
        acquire_timeout: secs(60),
        queue: "default".into(),
        tools: BTreeMap::new(),
        enforce_output: false,
    };
    Member { identity: identity(name), settings, terms }
}

/// Another one for every text.
pub(super) fn identity(text: &str) -> Hash {
    let mut bytes = [0; 32];
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    Hash(bytes)
}
