//! A server in memory of which many processes run at once. Each has a number; its tools answer with it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use colibri::domain::audit::Pending;
use colibri::fleet::error::Cause;
use colibri::fleet::inbox::Inbox;
use colibri::fleet::link::memory::{Peer, pair};
use colibri::fleet::link::{Link, Opener, Outgoing};
use colibri::fleet::terms::Recipe;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::fleet::support::{Opens, settings};

#[derive(Clone, Default)]
pub(super) struct Crowd(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    plan: VecDeque<Opens>,
    opened: u64,
    /// Those whose process is there, each with what ends it.
    alive: BTreeMap<u64, CancellationToken>,
    most: usize,
    calling: BTreeSet<u64>,
    takes_to_leave: Duration,
    dies_after_listing: bool,
}

impl Crowd {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("sound")
    }

    pub(super) fn recipe(&self) -> Recipe {
        let crowd = self.clone();
        Arc::new(move || settings("s", Box::new(crowd.clone())))
    }

    pub(super) fn plan(&self, opens: Vec<Opens>) {
        self.state().plan.extend(opens);
    }

    pub(super) fn takes_to_leave(&self, long: Duration) {
        self.state().takes_to_leave = long;
    }

    pub(super) fn dies_after_listing(&self) {
        self.state().dies_after_listing = true;
    }

    pub(super) fn opened(&self) -> usize {
        self.state().opened as usize
    }

    /// The most that were there at the same time.
    pub(super) fn most(&self) -> usize {
        self.state().most
    }

    pub(super) fn is_alive(&self, number: u64) -> bool {
        self.state().alive.contains_key(&number)
    }

    /// Ends one, as a crash does.
    pub(super) fn cut(&self, number: u64) {
        self.state().alive[&number].cancel();
    }

    pub(super) async fn ends(&self, number: u64) {
        self.until(|state| state.opened >= number && !state.alive.contains_key(&number)).await;
    }

    pub(super) async fn is_calling(&self, number: u64) {
        self.until(|state| state.calling.contains(&number)).await;
    }

    /// Waits until so many are there and no more news is on its way.
    pub(super) async fn settles_at(&self, count: usize) {
        self.until(|state| state.alive.len() == count).await;
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        self.until(|state| state.alive.len() == count).await;
    }

    /// The clock stands still as long as somebody asks; so it is let go now and then.
    async fn until(&self, is_so: impl Fn(&State) -> bool) {
        for _ in 0..10_000 {
            if is_so(&self.state()) {
                return;
            }
            tokio::task::yield_now().await;
        }
        for _ in 0..2_000 {
            if is_so(&self.state()) {
                return;
            }
            tokio::time::advance(Duration::from_millis(10)).await;
        }
        let state = self.state();
        panic!("{:?} are there of {}", state.alive.keys(), state.opened);
    }

    async fn serve(self, mut received: mpsc::Receiver<Bytes>, send: mpsc::Sender<Bytes>, number: u64) {
        let end = self.state().alive[&number].clone();
        while let Some(Some(frame)) = end.run_until_cancelled(received.recv()).await {
            let message: Value = serde_json::from_slice(&frame).expect("we send JSON");
            if let Some(answer) = self.answer(&message, number, &end) {
                let _ = send.send(answer.to_string().into()).await;
            }
            if self.state().dies_after_listing && message["method"] == "tools/list" {
                end.cancel();
            }
        }
    }

    fn answer(&self, message: &Value, number: u64, end: &CancellationToken) -> Option<Value> {
        let id = message.get("id")?;
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} } }),
            "tools/list" => json!({ "tools": [] }),
            "tools/call" => {
                self.state().calling.insert(number);
                match message["params"]["name"].as_str().unwrap_or_default() {
                    "hang" => return None,
                    "crash" => {
                        end.cancel();
                        return None;
                    }
                    "internal" => {
                        return Some(
                            json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32_602, "message": "no" } }),
                        );
                    }
                    tool => {
                        let content = json!([{ "type": "text", "text": number.to_string() }]);
                        json!({ "content": content, "isError": tool == "fails" })
                    }
                }
            }
            _ => {
                return Some(
                    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32_601, "message": "no" } }),
                );
            }
        };
        Some(json!({ "jsonrpc": "2.0", "id": id, "result": result }))
    }
}

impl Opener for Crowd {
    fn open(&self, inbox: Inbox) -> Pending<'_, Result<Arc<dyn Link>, Cause>> {
        let number = {
            let mut state = self.state();
            state.opened += 1;
            match state.plan.pop_front() {
                Some(Opens::Fail(cause)) => return Box::pin(std::future::ready(Err(cause))),
                Some(Opens::Hang) => return Box::pin(std::future::pending()),
                None => {}
            }
            let number = state.opened;
            state.alive.insert(number, CancellationToken::new());
            state.most = state.most.max(state.alive.len());
            number
        };
        let (link, Peer { received, send }) = pair(inbox);
        let crowd = self.clone();
        tokio::spawn(async move {
            crowd.clone().serve(received, send, number).await;
            crowd.state().alive.remove(&number);
        });
        let leaves_after = self.state().takes_to_leave;
        let crowd = self.clone();
        let link = Leaving { link, leaves_after, crowd, number };
        Box::pin(std::future::ready(Ok(Arc::new(link) as Arc<dyn Link>)))
    }

    fn transport(&self) -> &'static str {
        "stdio"
    }
}

/// A link whose process takes its time to leave.
struct Leaving {
    link: Arc<dyn Link>,
    leaves_after: Duration,
    crowd: Crowd,
    number: u64,
}

impl Link for Leaving {
    fn send<'a>(&'a self, outgoing: Outgoing<'a>) -> Pending<'a, Result<(), Cause>> {
        self.link.send(outgoing)
    }

    fn close(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            tokio::time::sleep_until(tokio::time::Instant::now() + self.leaves_after).await;
            self.link.close().await;
            while self.crowd.is_alive(self.number) {
                tokio::task::yield_now().await;
            }
        })
    }
}
