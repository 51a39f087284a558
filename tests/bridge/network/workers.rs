//! Servers on the network, called from a worker process: what a caller is told is the same, and what becomes of the
//! worker itself is the end of a process.

use std::sync::Arc;
use std::time::Duration;

use colibri::domain::audit::Pending;
use colibri::domain::end::End;
use colibri::domain::log::Logger;
use colibri::fleet::bridge::{Bridge, CallOptions, ConnectOptions, Executed, Handler};
use colibri::fleet::era::Era;
use colibri::fleet::error::Cause;
use colibri::fleet::link::Carrier as Link;
use colibri::fleet::web::Endpoint;
use colibri::mcp::error::Error;
use colibri::sandbox::{Layer, Policy};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::bridge::support::{Held, Kind, LONG, Told, call, connect, tell_in_turns, until, worker_under};

use super::mcp::{Carrier, Place, WAYS, answer, response};
use super::wire::{Server, Step};
use super::{matrix, sessions, statuses};

/// Workers at the same time.
const AT_ONCE: usize = 8;

/// One way for each transport, and both families; with `COLIBRI_CHECK=full` every way.
fn ways() -> Vec<(Carrier, Era)> {
    let some = [
        (Carrier::Json, Era::Modern),
        (Carrier::Events, Era::Legacy),
        (Carrier::OldEvents, Era::Legacy),
        (Carrier::Socket, Era::Modern),
    ];
    WAYS.into_iter().filter(|way| crate::work::client::is_full_check() || some.contains(way)).collect()
}

/// SB-4, SB-11, BR-5, BR-7: whatever goes wrong on whichever transport, a caller is told the same through a worker as
/// without one, and no process is left.
#[tokio::test]
async fn every_fault_is_told_the_same_through_a_worker() {
    let before = Held::now();
    let stories = matrix::Fault::ALL.into_iter().flat_map(|fault| {
        ways().into_iter().map(move |(carrier, era)| matrix::tell(Place::Worker, fault, carrier, era))
    });
    tell_in_turns(AT_ONCE, stories).await;
    before.comes_back("every fault, through workers").await;
}

/// SB-4, SB-11: the same for a status instead of an answer, and for a session that the server forgot.
#[tokio::test]
async fn every_status_is_told_the_same_through_a_worker() {
    let before = Held::now();
    let to_calls = statuses::STATUSES
        .into_iter()
        .map(|(status, told)| statuses::to_a_call(Place::Worker, status, told, Carrier::Json, Era::Modern));
    tell_in_turns(AT_ONCE, to_calls).await;
    let connecting = statuses::STATUSES.into_iter().map(|(status, told)| {
        statuses::while_connecting(Place::Worker, status, told, Carrier::Socket, Era::Modern)
    });
    tell_in_turns(AT_ONCE, connecting).await;
    sessions::forgotten(Place::Worker).await;
    before.comes_back("every status, through workers").await;
}

/// SB-4: a request that is given up ends its exchange where giving up tells the server, and is taken back by a message
/// where it does not.
#[tokio::test]
async fn giving_up_reaches_the_server_through_a_worker() {
    for (carrier, era) in ways() {
        let server =
            carrier.serve(move |_| if carrier.is_shared() { vec![] } else { vec![Step::Hold] }).await;
        let opener = carrier.opener_from(Place::Worker, &server);
        let bridge = connect(opener, era, LONG).await.expect("it connects");
        let said = |what: &str| {
            let in_frames = server.frames().into_iter().filter(|frame| says(&frame.payload, what)).count();
            server.count(what) + in_frames == 1
        };
        tokio::select! {
            outcome = bridge.client().call("t", b"{}", None, LONG) => panic!("it is silent: {outcome:?}"),
            () = until("the call is there", || said("tools/call")) => {}
        }
        let leaves = !carrier.is_shared() && era == Era::Modern;
        let is_told = || if leaves { server.left() == 1 } else { said("notifications/cancelled") };
        until(&format!("the server is told over {carrier:?}, {era:?}"), is_told).await;
        bridge.close().await;
    }
}

fn says(payload: &[u8], what: &str) -> bool {
    memchr::memmem::find(payload, what.as_bytes()).is_some()
}

/// A client that knows its name.
struct Named;

impl Handler for Named {
    fn asked(&self, method: &str, _: Option<bytes::Bytes>) -> Pending<'_, Result<bytes::Bytes, Error>> {
        let name = format!(r#"{{"asked":"{method}"}}"#);
        Box::pin(std::future::ready(Ok(name.into())))
    }
}

/// SB-4, PR-11: progress and questions of the server's come through a worker, and our answers go back; and every byte of
/// a result is as the server wrote it, line ends and numbers that no type holds included.
#[tokio::test]
async fn everything_that_is_said_comes_through_a_worker() {
    let result = "{\"content\": [\r\n],\n\t\"n\": 1.50e400, \"s\": \"\\ud800 \u{fc}\"}";
    let script = move |call: &super::mcp::Call| {
        let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":ID,"progress":1}}"#;
        let question = r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#;
        let told =
            [progress.replace("ID", &call.id.to_string()), question.to_owned(), answer(call.id, result)];
        told.iter().map(|message| Step::Send(Carrier::Socket.whole(message))).collect()
    };
    let server = Carrier::Socket.serve(script).await;
    let options = ConnectOptions {
        transport: Some(Carrier::Socket.opener_from(Place::Worker, &server)),
        era: Era::Legacy,
        handler: Arc::new(Named),
        logger: Logger::silent(),
        ..ConnectOptions::default()
    };
    let bridge = Bridge::connect("scripted", options).await.expect("it connects");
    let (notices, mut told) = tokio::sync::mpsc::channel(4);
    let options = CallOptions { notices: Some(notices), ..CallOptions::default() };
    let came = bridge.call_tool("t", &json!({}), options).await.expect("it answers");
    assert_eq!(std::str::from_utf8(&came).expect("UTF-8"), result);
    assert_eq!(told.recv().await.expect("progress").method, "notifications/progress");
    let answered = || {
        let frames = server.frames();
        frames.iter().any(|frame| {
            serde_json::from_slice::<Value>(&frame.payload)
                .is_ok_and(|said| said["id"] == "q" && said["result"]["asked"] == "roots/list")
        })
    };
    until("the question is answered", answered).await;
    bridge.close().await;
}

/// SB-4, SB-5: a worker that is killed in the middle of a call fails that call as the end of a process, and no other
/// worker's.
#[tokio::test]
async fn a_killed_worker_fails_its_own_call_alone() {
    let go_on = Arc::new(Notify::new());
    let waits = Arc::clone(&go_on);
    let script = move |call: &super::mcp::Call| {
        vec![Step::Wait(Arc::clone(&waits)), Step::Send(Carrier::Json.whole(&call.good()))]
    };
    let server = Carrier::Json.serve(script).await;
    let open = || connect(Carrier::Json.opener_from(Place::Worker, &server), Era::Modern, LONG);
    let (one, other) = (open().await.expect("it connects"), open().await.expect("it connects"));
    let killing = async {
        until("both are called", || server.count("tools/call") == 2).await;
        let helper = one.client().connection().pid().expect("it is a process");
        let worker = worker_below(helper);
        kill_process(worker, Signal::KILL).expect("it lives");
        until("its end is known", || one.client().connection().end().is_some()).await;
        go_on.notify_one();
        go_on.notify_one();
    };
    let (failed, answered, ()) = tokio::join!(call(&one, LONG), call(&other, LONG), killing);
    let failed = failed.expect_err("its worker was killed");
    Told(Kind::Gone, 1, true, Executed::Unknown).check("killed", LONG, &failed);
    assert_eq!(failed.to_string(), "the connection ended: its worker was killed by signal 9");
    assert_eq!(one.client().connection().end(), Some(End::Crashed { signal: 9 }));
    answered.expect("the other one was not touched");
    one.close().await;
    other.close().await;
}

/// The worker that this helper keeps: its grandchild.
fn worker_below(helper: u32) -> Pid {
    let only_child = |parent: u32| {
        let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
        children.expect("Linux").trim().parse::<u32>().expect("it has one child")
    };
    let worker = only_child(only_child(helper));
    Pid::from_raw(i32::try_from(worker).expect("a process id")).expect("a process id")
}

/// SB-4: what ends a server's side of the link is not the end of its worker: a socket that closes is told as it is
/// without one.
#[tokio::test]
async fn a_socket_that_closes_is_no_crash_of_its_worker() {
    let server = Carrier::Socket.serve(|_| vec![Step::Close]).await;
    let opener = Carrier::Socket.opener_from(Place::Worker, &server);
    let bridge = connect(opener, Era::Modern, LONG).await.expect("it connects");
    Told::lost().check("closed", LONG, &call(&bridge, LONG).await.expect_err("it was closed"));
    assert_eq!(bridge.client().connection().end(), None);
    bridge.close().await;
}

/// SB-3, SB-4: a layer of the sandbox that is missing refuses a worker as it refuses a program, unless it may be
/// missing; then that is told.
#[tokio::test]
async fn a_worker_without_its_sandbox_is_refused() {
    let server = Carrier::Json.serve(|call| vec![Step::Send(Carrier::Json.whole(&call.good()))]).await;
    let open = |allow_degraded: Vec<Layer>| {
        let mut policy = Policy::default();
        policy.files.allow_read.push("/proc/self/exe".into());
        policy.pretend_missing.insert(Layer::Landlock);
        policy.allow_degraded.extend(allow_degraded);
        let endpoint = Endpoint::new(&server.url()).expect("an address");
        connect(worker_under(policy, endpoint, Link::Http), Era::Modern, LONG)
    };
    let Err(refused) = open(Vec::new()).await else { panic!("a layer is missing") };
    assert!(
        matches!(&refused.source, Cause::Start { reason, .. } if reason.contains("landlock")),
        "{refused}"
    );
    assert_eq!(server.opened(), 0, "nobody was reached");
    let bridge = open(vec![Layer::Landlock]).await.expect("it may be missing");
    assert_eq!(bridge.client().connection().degraded(), ["landlock"]);
    call(&bridge, LONG).await.expect("it answers");
    bridge.close().await;
}

/// SB-3, SB-4: a worker in the strictest sandbox reaches its own server through colibri's proxy, and nobody else.
#[tokio::test]
async fn a_strict_worker_reaches_its_own_server_alone() {
    use colibri::sandbox::policy::{Hosts, Network};
    let server = Carrier::Json.serve(|call| vec![Step::Send(Carrier::Json.whole(&call.good()))]).await;
    let other = Carrier::Json.serve(|_| vec![Step::Send(response("200 OK", ""))]).await;
    let policy = |to: &Server| {
        let hosts = Hosts::allowing(&[to.address.to_string()]).expect("an address");
        Policy { network: Some(Network::Hosts(hosts)), ..Policy::strict() }
    };
    let endpoint = Endpoint::new(&server.url()).expect("an address");
    let open = |policy| connect(worker_under(policy, endpoint.clone(), Link::Http), Era::Modern, LONG);
    let bridge = open(policy(&server)).await.expect("its own server is reached");
    call(&bridge, LONG).await.expect("it answers");
    bridge.close().await;
    let Err(refused) = open(policy(&other)).await else { panic!("it is not in the list") };
    assert!(refused.to_string().contains("is not in this server's sandbox.network"), "{refused}");
}

/// SB-4, SB-9: a worker whose server does not say goodbye is ended all the same, and closing twice is closing once.
#[tokio::test]
async fn a_worker_is_ended_without_a_farewell() {
    let before = Held::now();
    let server = Server::start(|heard| match heard.verb.as_str() {
        "DELETE" => vec![Step::Hold],
        "GET" => vec![Step::send(super::mcp::STREAM_HEAD), Step::Hold],
        _ if heard.asks() == "initialize" => {
            let head = "200 OK\ncontent-type: application/json\nmcp-session-id: s";
            let id = heard.message()["id"].as_u64().expect("a request");
            let result = r#"{"protocolVersion":"2025-11-25","capabilities":{}}"#;
            vec![Step::Send(response(head, &answer(id, result)))]
        }
        _ => vec![Step::Send(response("202 Accepted", ""))],
    })
    .await;
    let opener = Carrier::Json.opener_from(Place::Worker, &server);
    let bridge = connect(opener, Era::Legacy, LONG).await.expect("it connects");
    let closing = async {
        bridge.close().await;
        bridge.close().await;
    };
    tokio::time::timeout(LONG + Duration::from_secs(1), closing).await.expect("it closes");
    assert_eq!(server.count("DELETE"), 1);
    drop((server, bridge));
    before.comes_back("a worker without a farewell").await;
}
