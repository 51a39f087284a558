//! Servers and clients of the newer family: what changes is told on a request that stays open.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use colibri::domain::audit::Pending;
use colibri::fleet::error::Cause;
use colibri::fleet::inbox::Inbox;
use colibri::fleet::link::memory::{Peer, pair};
use colibri::fleet::link::{Link, Opener};
use colibri::fleet::roster::{Member, Start};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::support::{Scripted, fleet, member, secs, until};
use crate::hostile::child::{Colibri, Home, modern};

/// How a server answers the request to listen.
#[derive(Clone)]
enum Listens {
    /// It says first what it agrees to, and ends with this, if with anything.
    Agrees(Value, Option<Value>),
    /// It answers with this alone.
    Answers(Value),
}

/// A server in memory, of the newer family.
#[derive(Clone)]
struct Telling(Arc<Mutex<State>>);

struct State {
    tools: Vec<String>,
    ttl: Value,
    listens: Listens,
    /// When each list was read.
    listed: Vec<Instant>,
    /// Each request to listen: when, its id, what it asked for.
    asked: Vec<(Instant, u64, Value)>,
    cancelled: Vec<u64>,
    /// Probes that it does not answer, if it does not.
    unanswered: Option<Vec<Value>>,
    /// What it offers from right after its next listing on, without a word.
    changes_to: Option<&'static str>,
    out: Option<mpsc::Sender<Bytes>>,
}

fn agrees() -> Listens {
    Listens::Agrees(json!({ "toolsListChanged": true }), None)
}

fn refuses() -> Listens {
    Listens::Answers(json!({ "error": { "code": -32601, "message": "no such method" } }))
}

impl Telling {
    fn new(listens: Listens, ttl: Value) -> Self {
        Self(Arc::new(Mutex::new(State {
            tools: vec!["a".to_owned()],
            ttl,
            listens,
            listed: Vec::new(),
            asked: Vec::new(),
            cancelled: Vec::new(),
            unanswered: None,
            changes_to: None,
            out: None,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("sound")
    }

    fn offer(&self, tool: &str) {
        self.state().tools.push(tool.to_owned());
    }

    fn say(&self, message: Value) {
        let mut message = message;
        message["jsonrpc"] = json!("2.0");
        if let Some(out) = &self.state().out {
            out.try_send(message.to_string().into()).expect("somebody reads");
        }
    }

    /// Tells on the newest request that the tools have changed.
    fn tell(&self) {
        let id = self.state().asked.last().expect("somebody listens").1;
        self.say(json!({ "method": "notifications/tools/list_changed", "params": tagged(id, &json!({})) }));
    }

    fn answer(&self, message: &Value) {
        let (method, id) = (message["method"].as_str().unwrap_or_default(), message["id"].clone());
        let result = match method {
            "server/discover" => {
                if let Some(unanswered) = &mut self.state().unanswered {
                    return unanswered.push(id);
                }
                json!({
                    "supportedVersions": ["2026-07-28"], "capabilities": { "tools": { "listChanged": true } },
                    "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
                })
            }
            "tools/list" => {
                let mut state = self.state();
                state.listed.push(Instant::now());
                let tool = |name: &String| json!({ "name": name, "inputSchema": { "type": "object" } });
                let tools: Vec<Value> = state.tools.iter().map(tool).collect();
                let changes = state.changes_to.take();
                state.tools.extend(changes.map(str::to_owned));
                json!({ "tools": tools, "ttlMs": state.ttl })
            }
            "tools/call" => json!({ "content": [] }),
            "subscriptions/listen" => return self.listen(id.as_u64().expect("a number"), &message["params"]),
            "notifications/cancelled" => {
                let id = message["params"]["requestId"].as_u64().expect("our id");
                return self.state().cancelled.push(id);
            }
            _ => return,
        };
        self.say(json!({ "id": id, "result": result }));
    }

    fn listen(&self, id: u64, params: &Value) {
        self.state().asked.push((Instant::now(), id, params["notifications"].clone()));
        let listens = self.state().listens.clone();
        let end = match listens {
            Listens::Agrees(filter, end) => {
                let params = tagged(id, &json!({ "notifications": filter }));
                self.say(json!({ "method": "notifications/subscriptions/acknowledged", "params": params }));
                end
            }
            Listens::Answers(answer) => Some(answer),
        };
        if let Some(mut end) = end {
            if end["method"] == "notifications/cancelled" {
                end["params"] = json!({ "requestId": id });
            } else {
                end["id"] = json!(id);
            }
            self.say(end);
        }
    }

    /// The delays between requests to listen, in seconds.
    fn delays(&self) -> Vec<u64> {
        let asked: Vec<Instant> = self.state().asked.iter().map(|(at, ..)| *at).collect();
        asked.windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect()
    }

    fn asked(&self) -> usize {
        self.state().asked.len()
    }

    fn listed(&self) -> usize {
        self.state().listed.len()
    }

    /// A member with this server.
    fn member(&self) -> Member {
        let mut member = member("s", &Scripted::new(&[]));
        member.settings.opener = Box::new(self.clone());
        member
    }
}

fn tagged(id: u64, params: &Value) -> Value {
    let mut params = params.clone();
    params["_meta"] = json!({ "io.modelcontextprotocol/subscriptionId": id });
    params
}

impl Opener for Telling {
    fn open(&self, inbox: Inbox) -> Pending<'_, Result<Arc<dyn Link>, Cause>> {
        let (link, Peer { mut received, send }) = pair(inbox);
        self.state().out = Some(send);
        let server = self.clone();
        tokio::spawn(async move {
            while let Some(frame) = received.recv().await {
                server.answer(&serde_json::from_slice(&frame).expect("we send JSON"));
            }
            server.state().out = None;
        });
        Box::pin(std::future::ready(Ok(link)))
    }

    fn transport(&self) -> &'static str {
        "memory"
    }
}

/// PR-12: a modern server that announces changes is asked once to tell them, and what it tells is read, again and
/// again.
#[tokio::test(start_paused = true)]
async fn a_modern_server_tells_and_is_read_again() {
    let server = Telling::new(agrees(), json!(0));
    let fleet = fleet(vec![server.member()]);
    fleet.listed(1).await;
    until(|| server.asked() == 1).await;
    assert_eq!(server.state().asked[0].2, json!({ "toolsListChanged": true }), "what it announced, no more");
    for (count, tool) in [(2, "b"), (3, "c")] {
        server.offer(tool);
        server.tell();
        fleet.listed(count).await;
    }
    fleet.call("s__c").await.expect("it is there");
    tokio::time::advance(secs(7200)).await;
    assert_eq!(
        (server.asked(), server.state().cancelled.len()),
        (1, 0),
        "one, for as long as the connection"
    );
}

/// PR-12: what changed after the list was read and before the server began to tell is not missed.
#[tokio::test(start_paused = true)]
async fn what_changed_before_it_told_is_read() {
    let server = Telling::new(agrees(), json!(0));
    server.state().changes_to = Some("b");
    let fleet = fleet(vec![server.member()]);
    fleet.listed(2).await;
    assert_eq!(server.listed(), 2);
    tokio::time::advance(secs(7200)).await;
    until(|| true).await;
    assert_eq!(server.listed(), 2, "and nobody asks again without a reason");
}

/// PR-12: however the request ends, it is opened again: after 1, 2, 5, 10, 30 s, then once a minute.
#[tokio::test(start_paused = true)]
async fn listening_that_ends_is_begun_again_and_never_spins() {
    let filter = json!({ "toolsListChanged": true });
    for end in [
        json!({ "result": { "resultType": "complete" } }),
        json!({ "error": { "code": -32603, "message": "a bad day" } }),
        json!({ "method": "notifications/cancelled" }),
    ] {
        for listens in [Listens::Agrees(filter.clone(), Some(end.clone())), Listens::Answers(end.clone())] {
            let server = Telling::new(listens, json!(0));
            let fleet = fleet(vec![server.member()]);
            until(|| server.asked() == 8).await;
            assert_eq!(server.delays(), [1, 2, 5, 10, 30, 60, 60], "{end}");
            fleet.fleet.close().await;
        }
    }
}

/// PR-12: a request that was open for long did not fail, and is opened again after a second; what changed meanwhile is
/// read.
#[tokio::test(start_paused = true)]
async fn a_long_stream_that_ends_is_soon_replaced() {
    let server = Telling::new(agrees(), json!(0));
    let fleet = fleet(vec![server.member()]);
    fleet.listed(1).await;
    for round in 1..=3 {
        until(|| server.asked() == round).await;
        tokio::time::advance(secs(300)).await;
        server.offer(&format!("more{round}"));
        let id = server.state().asked.last().expect("it listens").1;
        server.say(json!({ "id": id, "result": { "resultType": "complete" } }));
        fleet.listed(round + 1).await;
    }
    assert!(server.delays().iter().all(|delay| (300..=303).contains(delay)), "{:?}", server.delays());
}

/// PR-12: a server that does not know the request is asked once, and read again when its list is stale by its own
/// word, within reason; one that gives no word is not.
#[tokio::test(start_paused = true)]
async fn who_refuses_to_tell_is_read_when_its_list_is_stale() {
    let agrees_to_nothing = Listens::Agrees(json!({}), None);
    for (listens, ttl, seconds) in [
        (refuses(), json!(20_000), Some(20)),
        (refuses(), json!(1), Some(5)),
        (refuses(), json!(u64::MAX), Some(3600)),
        (agrees_to_nothing, json!(20_000), Some(20)),
        (agrees(), json!(20_000), None),
        (refuses(), json!(0), None),
        (refuses(), json!("soon"), None),
    ] {
        let server = Telling::new(listens, ttl.clone());
        let fleet = fleet(vec![server.member()]);
        let _client = fleet.fleet.attach(colibri::domain::face::SessionId::default());
        fleet.listed(1).await;
        until(|| server.asked() == 1).await;
        // As long as four readings take, and where there are none, long enough for many.
        for _ in 0..20_000 {
            if server.listed() == 4 {
                break;
            }
            tokio::time::sleep_until(Instant::now() + secs(1)).await;
        }
        let read: Vec<Instant> = server.state().listed.clone();
        let gaps: Vec<u64> = read.windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect();
        match seconds {
            Some(seconds) => assert_eq!(gaps, [seconds; 3], "{ttl}"),
            // Where it tells, it is read once more when it begins to, and then only when it does.
            None => assert!(read.len() <= 2, "{ttl}: {gaps:?}"),
        }
        assert_eq!(server.asked(), 1, "{ttl}");
        fleet.fleet.close().await;
    }
}

/// PR-8, PR-12: a list whose time runs out while a probe is not answered is read after it. The supervisor used to run in
/// circles from then on until the probe had ended.
#[tokio::test(start_paused = true)]
async fn what_is_stale_during_a_probe_is_read_after_it() {
    let server = Telling::new(refuses(), json!(20_000));
    let mut member = server.member();
    (member.settings.policy.probe_interval, member.settings.probe_timeout) = (Some(secs(18)), secs(10));
    let fleet = fleet(vec![member]);
    let _client = fleet.fleet.attach(colibri::domain::face::SessionId::default());
    fleet.listed(1).await;
    until(|| server.asked() == 1).await;
    let begun = server.state().listed[0];
    server.state().unanswered = Some(Vec::new());
    until(|| begun.elapsed() >= secs(25)).await;
    let unanswered = server.state().unanswered.take().expect("it answers none");
    assert_eq!((unanswered.len(), server.listed()), (1, 1));
    server.say(json!({ "id": unanswered[0], "result": {} }));
    let read = tokio::time::timeout(secs(10), until(|| server.listed() == 2)).await;
    assert!(read.is_ok() && begun.elapsed() < secs(26), "after {:?}", begun.elapsed());
    fleet.fleet.close().await;
}

/// PR-6, PR-12: nobody there, nobody asks: a stale list is read only for somebody.
#[tokio::test(start_paused = true)]
async fn a_stale_list_is_read_only_for_somebody() {
    let server = Telling::new(refuses(), json!(20_000));
    let fleet = fleet(vec![server.member()]);
    fleet.listed(1).await;
    tokio::time::sleep_until(Instant::now() + secs(1000)).await;
    assert_eq!(server.listed(), 1);
    let client = fleet.fleet.attach(colibri::domain::face::SessionId::default());
    server.offer("b");
    let came = Instant::now();
    fleet.listed(2).await;
    assert!(came.elapsed() <= secs(20), "{:?}", came.elapsed());
    drop(client);
    let read = server.listed();
    tokio::time::sleep_until(Instant::now() + secs(1000)).await;
    assert!(server.listed() <= read + 1, "it was used when its time began");
}

/// PR-6, PR-15: listening is no use of a server, holds no call, and ends with its connection at once.
#[tokio::test(start_paused = true)]
async fn listening_keeps_nothing_open() {
    let server = Telling::new(agrees(), json!(0));
    let mut resting = server.member();
    (resting.terms.start, resting.settings.idle_close) = (Start::OnUse, Some(secs(300)));
    let fleet = fleet(vec![resting]);
    let _ = fleet.fleet.find("s__a").await;
    fleet.call("s__a").await.expect("it is there");
    until(|| server.asked() == 1).await;
    let used = Instant::now();
    fleet.state_is("s", "idle").await;
    assert!(used.elapsed() <= secs(300) && server.state().out.is_none(), "{:?}", used.elapsed());

    fleet.call("s__a").await.expect("it is started again");
    until(|| server.asked() == 2).await;
    let begun = Instant::now();
    fleet.fleet.close().await;
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert!(server.state().cancelled.is_empty(), "what is over is not taken back");
}

/// A server of the newer family, on stdio or, with `http` as its argument, at an address that it prints. Its tool
/// `grow` gives it one more tool, and it tells whoever listens.
const GROWING: &str = include_str!("growing.py");

/// A server at an address, for as long as this is held.
struct AtAddress {
    child: std::process::Child,
    url: String,
}

impl AtAddress {
    fn start() -> Self {
        use std::io::BufRead;
        use std::process::Stdio;
        let mut command = std::process::Command::new("python3");
        command.args(["-c", GROWING, "http"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3 is there");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        std::io::BufReader::new(stdout).read_line(&mut line).expect("it says where it is");
        Self { child, url: serde_json::from_str(&line).expect("a text") }
    }
}

impl Drop for AtAddress {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn serving(server: &Value) -> Colibri {
    let home = Home::new();
    let file = home.path().join("servers.json");
    std::fs::write(&file, json!({ "mcpServers": { "s": server } }).to_string()).expect("a file");
    let mut command = home.command();
    command.arg("--config").arg(&file).arg("serve");
    Colibri::spawn(home, command)
}

/// The next message that this is true of.
fn next(colibri: &mut Colibri, is_it: impl Fn(&Value) -> bool) -> Value {
    loop {
        let message = colibri.answer();
        if is_it(&message) {
            return message;
        }
    }
}

/// PR-12: a change goes all the way: a real server of the newer family tells colibri, on a pipe and over HTTP, and
/// colibri a client of the newer family that listens; when colibri ends, the client is answered.
#[test]
fn a_change_reaches_a_client_that_listens() {
    let remote = AtAddress::start();
    for server in [json!({ "command": "python3", "args": ["-c", GROWING] }), json!({ "url": remote.url })] {
        let mut colibri = serving(&server);
        colibri.send(&modern(1, "server/discover", json!({})));
        let discovered = next(&mut colibri, |message| message["id"] == 1);
        let capabilities = &discovered["result"]["capabilities"];
        assert_eq!(capabilities["tools"], json!({ "listChanged": true }), "{discovered}");
        let everything = json!({ "toolsListChanged": true, "resourceSubscriptions": ["file:///a"] });
        colibri.send(&modern(2, "subscriptions/listen", json!({ "notifications": everything })));
        let of_two =
            |message: &Value| message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == 2;
        let first = next(&mut colibri, of_two);
        assert_eq!(first["method"], "notifications/subscriptions/acknowledged", "{first}");
        assert_eq!(first["params"]["notifications"], json!({ "toolsListChanged": true }), "{first}");

        // Each call is a change, and is told, the one that the server made before colibri listened too.
        for id in 3..=5 {
            colibri.send(&modern(id, "tools/call", json!({ "name": "s__grow", "arguments": {} })));
            let called = next(&mut colibri, |message| message["id"] == id || message["error"].is_object());
            assert!(called["result"]["content"].is_array(), "{called}");
            let grown = format!("s__grown{}", id - 2);
            loop {
                colibri.send(&modern(100, "tools/list", json!({})));
                let listed = next(&mut colibri, |message| message["id"] == 100);
                assert_eq!(listed["result"]["ttlMs"], 0);
                if listed["result"]["tools"]
                    .as_array()
                    .expect("a list")
                    .iter()
                    .any(|tool| tool["name"] == *grown)
                {
                    break;
                }
                let told = next(&mut colibri, of_two);
                assert_eq!(told["method"], "notifications/tools/list_changed", "{told}");
            }
        }
        let rest = colibri.finish();
        let end = rest.iter().find(|message| message["id"] == 2).expect("the end is told");
        assert_eq!(end["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 2, "{end}");
    }
}
