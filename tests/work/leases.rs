//! Claims and their leases, on a clock that only the test moves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use colibri::app::Server;
use colibri::call::{Caller, Calls, Reply};
use colibri::domain::audit::{Durability, Payloads, Principal};
use colibri::domain::clock::{Clock, Moment, Timestamp};
use colibri::domain::face::SessionId;
use colibri::domain::log::Logger;
use colibri::domain::mode::Mode;
use colibri::store::{Closing, LedgerSink, Options, Store};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// 2026-11-15T20:55:00Z.
const START: u64 = 1_794_776_100_000;
const LEASE: u64 = 30 * 60 * 1000;

/// SU-8: a claim is one agent's until its last millisecond, then anyone's.
#[tokio::test]
async fn a_claim_lasts_as_long_as_its_lease() {
    let desk = Desk::new(Mode::Full).await;
    let task = desk.create("only").await;
    assert_eq!(desk.claim("ada").await["id"], task);
    assert_eq!(desk.show(&task).await["lease_until"], "2026-11-15T21:25:00.000Z");
    assert_eq!(desk.claim("bob").await, Value::Null);
    assert_eq!(desk.claim("ada").await, Value::Null, "what one holds is not taken again");
    assert_eq!(desk.next(&json!({ "agent_id": "ada" })).await, [&*task], "but it is still next");
    assert_eq!(desk.next(&json!({ "agent_id": "bob" })).await, [""; 0]);
    assert_eq!(desk.next(&json!({})).await, [""; 0]);

    desk.clock.set(LEASE - 1);
    assert_eq!(desk.claim("bob").await, Value::Null);
    assert_eq!(desk.assigned("ada").await, 1);
    desk.clock.set(LEASE);
    assert_eq!(desk.show(&task).await["assignee"], Value::Null, "given back, without anybody's doing");
    assert_eq!(desk.assigned("ada").await, 0);
    assert_eq!(desk.next(&json!({ "agent_id": "bob" })).await, [&*task]);
    assert_eq!(desk.next(&json!({})).await, [&*task]);
    let claimed = desk.claim("bob").await;
    assert_eq!([&claimed["assignee"], &claimed["lease_until"]], ["bob", "2026-11-15T21:55:00.000Z"]);
    assert_eq!(desk.claim("ada").await, Value::Null);
    desk.close().await;
}

/// SU-8: who works on a claimed task keeps it; who is named for a task keeps it without a lease.
#[tokio::test]
async fn work_renews_a_lease() {
    let desk = Desk::new(Mode::Full).await;
    let task = desk.create("only").await;
    desk.claim("ada").await;
    desk.clock.set(LEASE - 1);
    desk.update(&task, json!({ "status": "GATHER" })).await;
    desk.clock.set(LEASE);
    assert_eq!(desk.claim("bob").await, Value::Null);
    desk.clock.set(2 * LEASE - 1);
    assert_eq!(desk.claim("bob").await["id"], task, "renewed once, from the change on");

    desk.update(&task, json!({ "assignee": "cleo" })).await;
    desk.clock.set(9 * LEASE);
    assert_eq!(desk.claim("bob").await, Value::Null, "named is not claimed: no lease ends");
    assert_eq!(desk.claim("cleo").await["id"], task);
    desk.update(&task, json!({ "assignee": null })).await;
    assert_eq!(desk.claim("bob").await["id"], task);
    desk.update(&task, json!({ "status": "CANCELLED" })).await;
    desk.clock.set(20 * LEASE);
    assert_eq!(desk.claim("ada").await, Value::Null, "what has ended is not given back");
    desk.close().await;
}

/// SU-8: of several, the best one is claimed, and blocked ones never are.
#[tokio::test]
async fn the_best_free_task_is_claimed() {
    let desk = Desk::new(Mode::Full).await;
    let low = desk.make(json!({ "title": "low", "priority": "low" })).await;
    let old = desk.make(json!({ "title": "old", "project_id": "p" })).await;
    let needed = desk.make(json!({ "title": "needed" })).await;
    let waiting =
        desk.make(json!({ "title": "waiting", "priority": "critical", "depends_on": [needed] })).await;
    let urgent = desk.make(json!({ "title": "urgent", "priority": "high", "assignee": "bob" })).await;
    assert_eq!(desk.next(&json!({})).await, [&*urgent, &*needed, &*old, &*low]);
    assert_eq!(desk.next(&json!({ "agent_id": "ada" })).await, [&*needed, &*old, &*low]);
    assert_eq!(desk.next(&json!({ "project_id": "p", "agent_id": "ada" })).await, [&*old]);
    let claim = json!({ "agent_id": "ada", "claim": true, "project_id": "p" });
    assert_eq!(desk.call("task_next_actions", &claim).await["claimed"]["id"], old);
    assert_eq!(desk.claim("ada").await["id"], needed);
    assert_eq!(desk.claim("bob").await["id"], urgent);
    desk.update(&needed, json!({ "status": "CANCELLED" })).await;
    assert_eq!(desk.claim("ada").await["id"], waiting, "what blocked it has ended");
    desk.close().await;
}

/// SU-8, CO-13: in READONLY the list is there, and nothing is claimed.
#[tokio::test]
async fn readonly_lists_but_does_not_claim() {
    let mut desk = Desk::new(Mode::Full).await;
    let task = desk.create("only").await;
    desk.calls = desk.calls_in(Mode::Readonly);
    assert_eq!(desk.next(&json!({ "agent_id": "ada" })).await, [&*task]);
    let refused = desk.envelope("task_next_actions", &json!({ "agent_id": "ada", "claim": true })).await;
    assert_eq!(refused["error"]["code"], "HANDLER_ERROR");
    assert_eq!(desk.show(&task).await["version"], 1);
    desk.close().await;
}

/// SU-8: a claim is somebody's.
#[tokio::test]
async fn a_claim_needs_a_name() {
    let desk = Desk::new(Mode::Full).await;
    let refused = desk.envelope("task_next_actions", &json!({ "claim": true })).await;
    assert_eq!(refused["error"]["message"], "a claim needs agent_id: who takes the task?");
    desk.close().await;
}

/// The call path over a store, both on one clock.
struct Desk {
    calls: Calls,
    store: Store,
    closing: Closing,
    clock: Arc<Hands>,
    _folder: TempDir,
}

/// A clock that is set, as milliseconds after [`START`].
#[derive(Default)]
struct Hands(AtomicU64);

impl Hands {
    fn set(&self, ms: u64) {
        self.0.store(ms, Ordering::SeqCst);
    }
}

impl Clock for Hands {
    fn now(&self) -> Moment {
        let ms = self.0.load(Ordering::SeqCst);
        Moment { wall: Timestamp(START + ms), since_boot: Duration::from_millis(ms) }
    }
}

impl Desk {
    async fn new(mode: Mode) -> Self {
        let folder = TempDir::new().unwrap();
        let clock = Arc::new(Hands::default());
        let options = Options {
            database: folder.path().join("colibri.db"),
            durability: Durability::Relaxed,
            payloads: Payloads::default(),
            version: "1".to_owned(),
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            logger: Logger::silent(),
        };
        let (store, closing) = Store::open(options).unwrap();
        store.ready().await.unwrap();
        let calls = calls(&store, &clock, mode);
        Self { calls, store, closing, clock, _folder: folder }
    }

    fn calls_in(&self, mode: Mode) -> Calls {
        calls(&self.store, &self.clock, mode)
    }

    async fn envelope(&self, tool: &str, arguments: &Value) -> Value {
        let principal = Arc::new(Principal { client: "test".to_owned(), user: "test".to_owned() });
        let caller = Caller { principal, revision: "test", session: SessionId::default() };
        let arguments = Some(Bytes::from(arguments.to_string()));
        let call = self.calls.arrival(tool, arguments, caller, CancellationToken::new());
        match self.calls.run(call).await {
            Reply::Envelope { body, .. } => serde_json::from_slice(&body).unwrap(),
            other => panic!("{tool}: {other:?}"),
        }
    }

    async fn call(&self, tool: &str, arguments: &Value) -> Value {
        let envelope = self.envelope(tool, arguments).await;
        assert_eq!(envelope["ok"], true, "{tool} {arguments}: {envelope}");
        envelope["data"].clone()
    }

    async fn make(&self, new: Value) -> String {
        self.call("task_create", &new).await["id"].as_str().unwrap().to_owned()
    }

    async fn create(&self, title: &str) -> String {
        self.make(json!({ "title": title })).await
    }

    async fn claim(&self, agent: &str) -> Value {
        self.call("task_next_actions", &json!({ "agent_id": agent, "claim": true })).await["claimed"].clone()
    }

    async fn next(&self, ask: &Value) -> Vec<String> {
        let next = self.call("task_next_actions", ask).await;
        let ids = next["actions"].as_array().unwrap().iter();
        ids.map(|task| task["id"].as_str().unwrap().to_owned()).collect()
    }

    async fn show(&self, id: &str) -> Value {
        self.call("task_get", &json!({ "id": id })).await
    }

    async fn update(&self, id: &str, patch: Value) -> Value {
        self.call("task_update", &json!({ "id": id, "patch": patch })).await
    }

    async fn assigned(&self, agent: &str) -> usize {
        self.call("task_list", &json!({ "assignee": agent })).await["tasks"].as_array().unwrap().len()
    }

    async fn close(self) {
        self.closing.close().await;
    }
}

fn calls(store: &Store, clock: &Arc<Hands>, mode: Mode) -> Calls {
    Server::builder()
        .audit_sink(LedgerSink::new(store.clone()))
        .store(store.clone())
        .clock(Arc::clone(clock) as Arc<dyn Clock>)
        .logger(Logger::silent())
        .mode(mode)
        .build()
        .into_calls()
        .unwrap()
}
