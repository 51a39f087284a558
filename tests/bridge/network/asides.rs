//! What a server says besides its answer, and what it does with a connection between two.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use colibri::domain::audit::Pending;
use colibri::domain::log::Logger;
use colibri::fleet::bridge::{Bridge, CallOptions, Cause, ConnectOptions, Handler, Notice};
use colibri::fleet::era::Era;
use colibri::fleet::link::http::Http;
use colibri::fleet::web::Endpoint;
use colibri::mcp::error::Error;
use serde_json::json;
use tokio::sync::mpsc;

use crate::bridge::support::{Held, LONG, SHORT, call, connect, tell_all, until};

use super::frames::TEXT;
use super::mcp::{Call, Carrier, EVENTS_HEAD, LAST_CHUNK, STREAM_HEAD, WAYS, answer, chunk};
use super::wire::{Envelope, Server, Step};

/// Keeps what it is told and what it is asked, and knows its roots.
#[derive(Default)]
struct Keeper(Mutex<Vec<String>>);

impl Handler for Keeper {
    fn asked(&self, method: &str, _: Option<Bytes>) -> Pending<'_, Result<Bytes, Error>> {
        self.0.lock().expect("sound").push(method.to_owned());
        Box::pin(std::future::ready(Ok(json!({ "roots": [] }).to_string().into())))
    }

    fn told(&self, method: &str, _: Option<Bytes>) {
        self.0.lock().expect("sound").push(method.to_owned());
    }
}

async fn connect_with(keeper: &Arc<Keeper>, carrier: Carrier, era: Era, server: &Server) -> Bridge {
    let options = ConnectOptions {
        transport: Some(carrier.opener(server)),
        era,
        handler: Arc::clone(keeper) as Arc<dyn Handler>,
        logger: Logger::silent(),
        ..ConnectOptions::default()
    };
    Bridge::connect("scripted", options).await.expect("it connects")
}

/// These messages, then the answer.
fn say(carrier: Carrier, call: &Call, messages: &[String]) -> Vec<Step> {
    let all = messages.iter().cloned().chain([call.good()]);
    match carrier {
        Carrier::Events => {
            let events: String = all.map(|message| chunk(&format!("data: {message}\n\n"))).collect();
            vec![Step::send(format!("{EVENTS_HEAD}{events}{LAST_CHUNK}"))]
        }
        _ => all.map(|message| Step::Send(carrier.whole(&message))).collect(),
    }
}

fn notification(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#)
}

/// BR-8, PR-1: progress reaches the caller it belongs to, byte for byte; so does a log message where the
/// stream tells whose it is, and else it reaches the handler. Strangers' progress reaches nobody.
#[tokio::test]
async fn what_is_said_during_a_call_reaches_its_caller() {
    let told = |(carrier, era): (Carrier, Era)| async move {
        let name = format!("{carrier:?}, {era:?}");
        let script = move |call: &Call| {
            let progress = |token: u64| format!(r#"{{ "progressToken":{token}, "progress":1.50 }}"#);
            let messages = [
                notification("notifications/progress", &progress(call.id)),
                notification("notifications/progress", &progress(call.id + 9)),
                notification("notifications/progress", r#"{"progressToken":"x"}"#),
                notification("notifications/message", r#"{"level":"info","data":"hi"}"#),
            ];
            say(carrier, call, &messages)
        };
        let server = carrier.serve(script).await;
        let keeper = Arc::<Keeper>::default();
        let bridge = connect_with(&keeper, carrier, era, &server).await;
        let (notices, mut listener) = mpsc::channel(8);
        let options = CallOptions { timeout: Some(LONG), max_attempts: 1, notices: Some(notices) };
        bridge.call_tool("t", &json!({}), options).await.expect(&name);
        let mut seen = Vec::new();
        while let Some(Notice { method, params }) = listener.recv().await {
            seen.push(format!("{method} {}", String::from_utf8_lossy(&params.expect("params"))));
        }
        let id = seen[0].split_once("Token\":").and_then(|(_, rest)| rest.split_once(',')).expect("ours").0;
        let progress = format!(r#"notifications/progress {{ "progressToken":{id}, "progress":1.50 }}"#);
        let log = r#"notifications/message {"level":"info","data":"hi"}"#.to_owned();
        let (to_caller, to_handler) = match carrier {
            Carrier::Events => (vec![progress, log], Vec::new()),
            _ => (vec![progress], vec!["notifications/message".to_owned()]),
        };
        assert_eq!((seen, keeper.0.lock().expect("sound").clone()), (to_caller, to_handler), "{name}");
        bridge.close().await;
    };
    tell_all(WAYS.into_iter().filter(|(carrier, _)| *carrier != Carrier::Json).map(told)).await;
}

/// BR-8: a caller that does not listen to its notices misses some, and nobody waits for it.
#[tokio::test]
async fn a_caller_that_does_not_listen_delays_nobody() {
    let script = |call: &Call| {
        let progress = format!(r#"{{"progressToken":{},"progress":1}}"#, call.id);
        say(Carrier::Socket, call, &vec![notification("notifications/progress", &progress); 500])
    };
    let server = Carrier::Socket.serve(script).await;
    let bridge = connect(Carrier::Socket.opener(&server), Era::Modern, LONG).await.expect("it connects");
    let (notices, mut listener) = mpsc::channel(3);
    let options = CallOptions { timeout: Some(LONG), max_attempts: 1, notices: Some(notices) };
    bridge.call_tool("t", &json!({}), options).await.expect("the answer comes through");
    let mut seen = 0;
    while listener.recv().await.is_some() {
        seen += 1;
    }
    assert_eq!(seen, 3);
    bridge.close().await;
}

/// PR-1: what a server of the older family asks of us, on whichever stream, is asked of the handler,
/// and answered; a ping needs no handler.
#[tokio::test]
async fn what_a_server_asks_is_answered() {
    let asks = |method: &str| format!(r#"{{"jsonrpc":"2.0","id":"{method}!","method":"{method}"}}"#);
    let told = |carrier: Carrier| async move {
        let script = move |call: &Call| say(carrier, call, &[asks("ping"), asks("roots/list")]);
        let server = carrier.serve(script).await;
        let keeper = Arc::<Keeper>::default();
        let bridge = connect_with(&keeper, carrier, Era::Legacy, &server).await;
        call(&bridge, LONG).await.expect("it answers");
        let answers = || {
            let frames = server.frames().into_iter().filter(|frame| frame.opcode == TEXT);
            let frames = frames.map(|frame| Bytes::from(frame.payload));
            let all = server.heard().into_iter().map(|heard| heard.body).chain(frames);
            all.filter(|body| memchr::memmem::find(body, br#"!","result""#).is_some()).collect::<Vec<_>>()
        };
        until("both are answered", || answers().len() == 2).await;
        let mut answers = answers();
        answers.sort();
        assert_eq!(answers[0], r#"{"jsonrpc":"2.0","id":"ping!","result":{}}"#);
        assert_eq!(answers[1], r#"{"jsonrpc":"2.0","id":"roots/list!","result":{"roots":[]}}"#);
        assert_eq!(*keeper.0.lock().expect("sound"), ["roots/list"]);
        bridge.close().await;
    };
    tell_all([Carrier::Events, Carrier::OldEvents, Carrier::Socket].map(told)).await;
}

/// PR-1: a server of the older family may speak without being asked, on a stream of its own; one that
/// ends is opened again where it stood.
#[tokio::test]
async fn what_a_server_says_without_being_asked_is_heard() {
    let changed = notification("notifications/tools/list_changed", "{}");
    let sound = Carrier::Json.script(|call| vec![Step::Send(Carrier::Json.whole(&call.good()))]);
    let server = Server::start(move |heard| match (heard.verb.as_str(), heard.header("last-event-id")) {
        ("GET", None) => {
            let event = format!("id: a\nretry: 100\ndata: {changed}\n\n");
            vec![Step::send(STREAM_HEAD), Step::send(event), Step::Close]
        }
        ("GET", Some(_)) => {
            vec![Step::send(STREAM_HEAD), Step::send(format!("data: {changed}\n\n")), Step::Hold]
        }
        _ => sound(heard),
    })
    .await;
    let keeper = Arc::<Keeper>::default();
    let bridge = connect_with(&keeper, Carrier::Json, Era::Legacy, &server).await;
    until("both are heard", || keeper.0.lock().expect("sound").len() == 2).await;
    let heard = server.heard();
    let again = heard.iter().filter_map(|heard| heard.header("last-event-id")).collect::<Vec<_>>();
    assert_eq!(again, ["a"]);
    bridge.close().await;
    until("the stream is closed with the bridge", || server.left() == 1).await;
}

/// BR-5, PR-1: a server that closes connections between calls, or leaves rubbish on them, costs no
/// attempt: the next call takes another connection.
#[tokio::test]
async fn a_connection_that_died_between_calls_costs_no_attempt() {
    let told = |(name, then): (&'static str, Vec<Step>)| async move {
        let carrier = Carrier::Json;
        let script = move |call: &Call| {
            std::iter::once(Step::Send(carrier.whole(&call.good()))).chain(then.clone()).collect()
        };
        let server = carrier.serve(script).await;
        let before = Held::now();
        let bridge = connect(carrier.opener(&server), Era::Modern, LONG).await.expect(name);
        for calls in 1..=5 {
            bridge.client().call("t", b"{}", None, LONG).await.expect(name);
            // Noticing takes the time it takes; a call that is faster would be a race that nobody wins.
            before.comes_back(name).await;
            assert_eq!(server.opened(), calls, "{name}: one connection for each call");
        }
        bridge.close().await;
    };
    told(("it closes", vec![Step::Close])).await;
    told(("it resets", vec![Step::Reset])).await;
    told(("it goes on talking", vec![Step::send("\0\0\0"), Step::Hold])).await;
}

/// BR-3, PR-1: a message that wants no answer is not waited for: whatever its success carries, and for
/// however long.
#[tokio::test]
async fn a_notification_is_not_waited_for() {
    for carrier in [Carrier::Json, Carrier::OldEvents] {
        let sound = carrier.script(move |call| vec![Step::Send(carrier.whole(&call.good()))]);
        let server = Server::start(move |heard| match heard.asks().as_str() {
            "notifications/initialized" => vec![Step::send(STREAM_HEAD), Step::send(": \n\n"), Step::Hold],
            _ => sound(heard),
        })
        .await;
        let bridge = connect(carrier.opener(&server), Era::Legacy, LONG).await.expect("it connects");
        call(&bridge, LONG).await.expect("it answers");
        until("that stream is left", || server.left() >= 1).await;
        bridge.close().await;
    }
}

/// A person who never decides.
struct Undecided;

impl Handler for Undecided {
    fn asked(&self, _: &str, _: Option<Bytes>) -> Pending<'_, Result<Bytes, Error>> {
        Box::pin(std::future::pending())
    }
}

/// BR-3: a call that waits for somebody's input ends by its deadline, too.
#[tokio::test]
async fn input_that_never_comes_costs_a_deadline() {
    let asks = r#"{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create"}}}"#;
    let server =
        Carrier::Json.serve(|call| vec![Step::Send(Carrier::Json.whole(&answer(call.id, asks)))]).await;
    let options = ConnectOptions {
        transport: Some(Carrier::Json.opener(&server)),
        era: Era::Modern,
        handler: Arc::new(Undecided),
        logger: Logger::silent(),
        ..ConnectOptions::default()
    };
    let bridge = Bridge::connect("scripted", options).await.expect("it connects");
    let waiting = tokio::time::timeout(LONG, bridge.client().call("t", b"{}", None, SHORT));
    let outcome = waiting.await.expect("it ends by its deadline");
    assert_eq!(outcome.expect_err("nobody decides"), Cause::TimedOut(SHORT));
    bridge.close().await;
}

/// PR-1: a list that goes on and on is given up before it fills the memory.
#[tokio::test]
async fn a_list_without_end_is_given_up() {
    let sound = Carrier::Json.script(|_| Vec::new());
    let server = Server::start(move |heard| {
        let Envelope { id, method } = heard.envelope();
        if method.as_deref() != Some("tools/list") {
            return sound(heard);
        }
        let id = id.as_u64().expect("a request");
        let (schema, description) = (r#"{"type":"object"}"#, "x".repeat(3 << 20));
        let tool = format!(r#"{{"name":"t{id}","description":"{description}","inputSchema":{schema}}}"#);
        let page = format!(r#"{{"tools":[{tool}],"nextCursor":"{id}"}}"#);
        vec![Step::Send(Carrier::Json.whole(&answer(id, &page)))]
    })
    .await;
    let endpoint = Endpoint::new(&server.url()).expect("an address");
    let bridge = connect(Box::new(Http(endpoint)), Era::Modern, LONG).await.expect("it connects");
    let error = bridge.tools().await.expect_err("nobody reads that much");
    assert!(error.to_string().contains("bytes"), "{error}");
    assert!(server.count("tools/list") <= 32, "{} pages were taken", server.count("tools/list"));
    bridge.close().await;
}

/// PR-1: a connection that died with the runtime it lived in costs the next runtime nothing.
#[test]
fn a_connection_that_died_with_its_runtime_costs_nothing() {
    let runtime = || tokio::runtime::Runtime::new().expect("a runtime");
    let servers = runtime();
    let server =
        servers.block_on(Carrier::Json.serve(|call| vec![Step::Send(Carrier::Json.whole(&call.good()))]));
    for _ in 0..3 {
        runtime().block_on(async {
            let bridge =
                connect(Carrier::Json.opener(&server), Era::Modern, LONG).await.expect("it connects");
            bridge.client().call("t", b"{}", None, LONG).await.expect("it answers at once");
        });
    }
}
