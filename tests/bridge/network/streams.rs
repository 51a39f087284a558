//! Streams of events: broken, taken up again, and what comes on them besides the answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use colibri::fleet::bridge::Executed;
use colibri::fleet::era::Era;

use crate::bridge::support::{Kind, LONG, SHORT, Told, call, connect, tell_all, until};

use super::frames::TEXT;
use super::mcp::{Call, Carrier, EVENTS_HEAD, LAST_CHUNK, STREAM_HEAD, answer, chunk, response};
use super::wire::{Heard, Server, Step};

/// Events and the end of their stream, as it should be.
fn events(events: &str) -> Step {
    Step::send(format!("{EVENTS_HEAD}{}{LAST_CHUNK}", chunk(events)))
}

/// A server that answers a call with `first`, and whoever takes the stream up again with `again`,
/// which is given the id of the call.
async fn broken(
    first: Vec<Step>,
    again: impl Fn(&Heard, u64) -> Vec<Step> + Send + Sync + 'static,
) -> Server {
    let last = Arc::new(AtomicU64::new(0));
    let asked = Arc::clone(&last);
    let sound = Carrier::Events.script(move |call: &Call| {
        asked.store(call.id, Ordering::SeqCst);
        first.clone()
    });
    Server::start(move |heard| match (heard.verb.as_str(), heard.header("last-event-id")) {
        ("GET", Some(_)) => again(heard, last.load(Ordering::SeqCst)),
        _ => sound(heard),
    })
    .await
}

/// The ids that streams were taken up with.
fn taken_up(server: &Server) -> Vec<String> {
    server.heard().iter().filter_map(|heard| heard.header("last-event-id").map(str::to_owned)).collect()
}

/// PR-1: a stream that ends or breaks before the answer is taken up where it stood, and the call is
/// made once.
#[tokio::test]
async fn a_broken_stream_is_taken_up_where_it_stood() {
    let place = "id: 7\nretry: 300\ndata:\n\n";
    let half = "data: {\"jsonrpc\":";
    let rows: [(&str, Vec<Step>); 3] = [
        ("it ends", vec![events(place)]),
        ("it breaks", vec![Step::send(format!("{EVENTS_HEAD}{}", chunk(place))), Step::Reset]),
        (
            "it breaks in the middle of an event",
            vec![Step::send(format!("{EVENTS_HEAD}{}{}", chunk(place), chunk(half))), Step::Close],
        ),
    ];
    let told = |(name, first): (&'static str, Vec<Step>)| async move {
        let good = |_: &Heard, id| vec![events(&format!("id: 8\ndata: {}\n\n", answer(id, "{}")))];
        let server = broken(first, good).await;
        let bridge = connect(Carrier::Events.opener(&server), Era::Legacy, LONG).await.expect(name);
        call(&bridge, LONG).await.expect(name);
        assert_eq!((taken_up(&server), server.count("tools/call")), (vec!["7".to_owned()], 1), "{name}");
        let heard = server.heard();
        let sent = heard.iter().find(|heard| heard.asks() == "tools/call").expect("the call");
        let again = heard.iter().find(|heard| heard.header("last-event-id").is_some()).expect("again");
        assert!(again.at - sent.at >= Duration::from_millis(300), "{name}: not before the server said");
        bridge.close().await;
    };
    tell_all(rows.map(told)).await;
}

/// BR-5, BR-7: a stream that cannot be taken up again leaves open whether the call was executed,
/// whatever stood in the way.
#[tokio::test]
async fn a_stream_that_is_not_taken_up_leaves_the_call_open() {
    let place = "id: 7\nretry: 100\ndata:\n\n";
    let status = |status: &str| vec![Step::Send(response(status, ""))];
    let rows: [(&'static str, Vec<Step>); 8] = [
        ("401", status("401 Unauthorized")),
        ("404", status("404 Not Found")),
        ("405", status("405 Method Not Allowed")),
        ("429", status("429 Too Many Requests")),
        ("500", status("500 Internal Server Error")),
        ("302", status("302 Found\nlocation: http://example.invalid/")),
        ("closed", vec![Step::Close]),
        ("reset", vec![Step::Reset]),
    ];
    let told = |(name, again): (&'static str, Vec<Step>)| async move {
        let server = broken(vec![events(place)], move |_, _| again.clone()).await;
        let bridge = connect(Carrier::Events.opener(&server), Era::Legacy, LONG).await.expect(name);
        let error = call(&bridge, LONG).await.expect_err(name);
        Told::transient(Kind::Network).check(name, LONG, &error);
        bridge.close().await;
    };
    tell_all(rows.map(told)).await;
}

/// BR-5: nothing is taken up where there is no place to take it up from, nor in the newer family.
#[tokio::test]
async fn a_stream_without_a_place_is_not_taken_up() {
    let rows = [
        ("no id", Era::Legacy, "data:\n\n"),
        ("an id that was taken back", Era::Legacy, "id: 7\ndata:\n\nid:\ndata:\n\n"),
        ("an id that no header holds", Era::Legacy, "id: a\u{1}b\ndata:\n\n"),
        ("the newer family", Era::Modern, "id: 7\ndata:\n\n"),
    ];
    let told = |(name, era, said): (&'static str, Era, &'static str)| async move {
        let server = broken(vec![events(said)], |_, id| vec![events(&answer(id, "{}"))]).await;
        let bridge = connect(Carrier::Events.opener(&server), era, LONG).await.expect(name);
        let error = call(&bridge, LONG).await.expect_err(name);
        Told::transient(Kind::Network).check(name, LONG, &error);
        assert_eq!((taken_up(&server), server.count("tools/call")), (Vec::<String>::new(), 2), "{name}");
        bridge.close().await;
    };
    tell_all(rows.map(told)).await;
}

/// BR-3: a stream that ends again and again is taken up until the deadline, never in a rush.
#[tokio::test]
async fn a_stream_that_never_answers_is_taken_up_until_the_deadline() {
    let place = "id: 7\nretry: 0\ndata:\n\n";
    let server = broken(vec![events(place)], move |_, _| vec![events(place)]).await;
    let bridge = connect(Carrier::Events.opener(&server), Era::Legacy, LONG).await.expect("it connects");
    let error = call(&bridge, SHORT).await.expect_err("it never answers");
    Told::transient(Kind::TimedOut).check("again and again", SHORT, &error);
    let taken_up = taken_up(&server).len() as u128;
    assert!(taken_up <= 2 * SHORT.as_millis() / 100, "{taken_up} times is a rush");
    bridge.close().await;
}

/// BR-8, PR-1: an answer that comes too late changes nothing, and the next call works.
#[tokio::test]
async fn a_late_answer_changes_nothing() {
    let told = |(carrier, era): (Carrier, Era)| async move {
        let name = format!("late over {carrier:?}, {era:?}");
        let script = move |call: &Call| match (call.nth, carrier.is_shared()) {
            (0, true) => Vec::new(),
            (0, false) => vec![Step::Hold],
            (_, true) => {
                let late = answer(call.id - 1, r#"{"late":true}"#);
                vec![Step::Send(carrier.whole(&late)), Step::Send(carrier.whole(&call.good()))]
            }
            (_, false) => vec![Step::Send(carrier.whole(&call.good()))],
        };
        let server = carrier.serve(script).await;
        let bridge = connect(carrier.opener(&server), era, LONG).await.expect(&name);
        let late = bridge.client().call("t", b"{}", None, SHORT).await.expect_err(&name);
        assert_eq!(late, colibri::fleet::error::Cause::TimedOut(SHORT), "{name}");
        let result = call(&bridge, LONG).await.expect(&name);
        assert_eq!(&result[..], br#"{"content":[]}"#, "{name}");
        assert_eq!(bridge.client().connection().in_flight(), 0, "{name}");
        bridge.close().await;
    };
    tell_all(super::mcp::WAYS.map(told)).await;
}

/// BR-8: a call that is given up, by its deadline or by its caller, is taken back as its protocol
/// says: by closing its stream, or by a message, never by both.
#[tokio::test]
async fn a_call_that_is_given_up_is_taken_back() {
    let told = |(carrier, era, by_caller): (Carrier, Era, bool)| async move {
        let name = format!("given up over {carrier:?}, {era:?}, by its caller: {by_caller}");
        let script = move |call: &Call| match (call.nth, carrier.is_shared()) {
            (0, true) => Vec::new(),
            (0, false) => vec![Step::Hold],
            _ => vec![Step::Send(carrier.whole(&call.good()))],
        };
        let server = carrier.serve(script).await;
        let bridge = connect(carrier.opener(&server), era, LONG).await.expect(&name);
        let deadline = if by_caller { LONG } else { SHORT };
        tokio::select! {
            outcome = bridge.client().call("t", b"{}", None, deadline) => drop(outcome.expect_err(&name)),
            () = until("the call is there", || calls(&server) == 1), if by_caller => {}
        }
        if !carrier.is_shared() {
            until("its stream is closed", || server.left() == 1).await;
        }
        let is_told = carrier == Carrier::Socket || era == Era::Legacy;
        until("it is taken back", || !is_told || cancelled(&server).len() == 1).await;
        call(&bridge, LONG).await.expect(&name);
        bridge.close().await;
        // By now a message would have come: what was sent after it has been answered.
        let expected = if is_told { vec![server_call_id(&server)] } else { Vec::new() };
        assert_eq!(cancelled(&server), expected, "{name}");
    };
    let ways = super::mcp::WAYS;
    tell_all(
        ways.into_iter().flat_map(|(carrier, era)| [told((carrier, era, false)), told((carrier, era, true))]),
    )
    .await;
}

/// Every message that came, however.
fn messages(server: &Server) -> Vec<serde_json::Value> {
    let frames = server.frames();
    let in_frames = frames.iter().filter(|frame| frame.opcode == TEXT);
    let in_frames = in_frames.map(|frame| serde_json::from_slice(&frame.payload).expect("we send JSON"));
    server.heard().iter().map(Heard::message).chain(in_frames).collect()
}

fn calls(server: &Server) -> usize {
    messages(server).iter().filter(|message| message["method"] == "tools/call").count()
}

fn server_call_id(server: &Server) -> u64 {
    let messages = messages(server);
    let first = messages.iter().find(|message| message["method"] == "tools/call").expect("a call");
    first["id"].as_u64().expect("an id")
}

/// What was taken back by a message.
fn cancelled(server: &Server) -> Vec<u64> {
    let messages = messages(server);
    let cancelled = messages.iter().filter(|message| message["method"] == "notifications/cancelled");
    cancelled.map(|message| message["params"]["requestId"].as_u64().expect("our id")).collect()
}

/// PR-1: the older stream says where messages go; another host is not gone to, nor heard of.
#[tokio::test]
async fn an_older_stream_that_sends_us_elsewhere_is_refused() {
    let other = Server::start(|_| vec![Step::Send(response("202 Accepted", ""))]).await;
    let elsewhere = other.address;
    let told = |(first, expected): (String, Told)| async move {
        let name = first.escape_debug().to_string();
        let server = Server::start(move |heard| match heard.verb.as_str() {
            "GET" if first.is_empty() => vec![Step::send(STREAM_HEAD), Step::Close],
            "GET" => vec![Step::send(STREAM_HEAD), Step::send(&first), Step::Hold],
            _ => vec![Step::Send(response("202 Accepted", ""))],
        })
        .await;
        let deadline = if expected.0 == Kind::TimedOut { SHORT } else { LONG };
        let Err(error) = connect(Carrier::OldEvents.opener(&server), Era::Legacy, deadline).await else {
            panic!("{name}")
        };
        expected.check(&name, deadline, &error);
        assert_eq!(server.count("POST") + server.count("initialize"), 0, "{name}");
        error.to_string()
    };
    let refused = Told::last(Kind::Protocol, Executed::No);
    for endpoint in
        [format!("http://{elsewhere}/mcp?key=x"), format!("//{elsewhere}/"), "https:/mcp".to_owned()]
    {
        let said = told((format!("event: endpoint\ndata: {endpoint}\n\n"), refused)).await;
        assert!(said.contains("sends us to another host"), "{said}");
        assert!(!said.contains("key=x"), "{said}");
    }
    told(("event: endpoint\ndata: http://[\n\n".to_owned(), refused)).await;
    told(("data: {}\n\n".to_owned(), refused)).await;
    told((format!("event: endpoint\ndata: {}", "x".repeat(1 << 20)), refused)).await;
    told((": nothing yet\n\n".to_owned(), Told(Kind::TimedOut, 1, true, Executed::No))).await;
    told((String::new(), Told(Kind::Gone, 1, true, Executed::No))).await;
    assert_eq!(other.opened(), 0, "the other host never heard of us");
}
