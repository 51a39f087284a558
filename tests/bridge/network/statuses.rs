//! A status instead of an answer: what it means, whether it is worth another attempt, and when.

use std::time::Duration;

use colibri::fleet::bridge::Executed;
use colibri::fleet::era::Era;

use crate::bridge::support::{Kind, LONG, Told, call, connect, tell_all};

use super::mcp::{Carrier, Place, response};
use super::wire::{Server, Step};

/// What a status means, on whichever transport that has statuses.
pub(super) const STATUSES: [(&str, Told); 16] = [
    ("400 Bad Request", Told(Kind::Http(400), 1, false, Executed::Unknown)),
    ("401 Unauthorized", Told(Kind::Unauthorized, 1, false, Executed::No)),
    ("401 Unauthorized\nwww-authenticate: Bearer", Told(Kind::Unauthorized, 1, false, Executed::No)),
    ("403 Forbidden", Told(Kind::Http(403), 1, false, Executed::Unknown)),
    ("403 Forbidden\nwww-authenticate: Bearer", Told(Kind::Unauthorized, 1, false, Executed::No)),
    ("404 Not Found", Told(Kind::Http(404), 1, false, Executed::No)),
    ("405 Method Not Allowed", Told(Kind::Http(405), 1, false, Executed::No)),
    ("413 Content Too Large", Told(Kind::Http(413), 1, false, Executed::No)),
    ("415 Unsupported Media Type", Told(Kind::Http(415), 1, false, Executed::No)),
    ("429 Too Many Requests", Told(Kind::Http(429), 2, true, Executed::No)),
    ("500 Internal Server Error", Told(Kind::Http(500), 1, false, Executed::Unknown)),
    ("501 Not Implemented", Told(Kind::Http(501), 1, false, Executed::Unknown)),
    ("502 Bad Gateway", Told(Kind::Http(502), 2, true, Executed::Unknown)),
    ("503 Service Unavailable", Told(Kind::Http(503), 2, true, Executed::Unknown)),
    ("504 Gateway Timeout", Told(Kind::Http(504), 2, true, Executed::Unknown)),
    ("302 Found\nlocation: /elsewhere", Told(Kind::Protocol, 1, false, Executed::Unknown)),
];

/// A server of the older transport whose stream is sound, and which answers each call with a status.
async fn old_events(status: &'static str) -> Server {
    let sound = Carrier::OldEvents.script(|_| Vec::new());
    Server::start(move |heard| match heard.asks().as_str() {
        "tools/call" => vec![Step::Send(response(status, "no"))],
        _ => sound(heard),
    })
    .await
}

/// BR-5, BR-7: each status is told as what it means, and only what may pass is tried again.
#[tokio::test]
async fn a_status_is_told_as_what_it_means() {
    let told = |(status, told)| {
        [(Carrier::Json, Era::Modern), (Carrier::Json, Era::Legacy), (Carrier::OldEvents, Era::Legacy)]
            .map(|(carrier, era)| to_a_call(Place::Here, status, told, carrier, era))
    };
    tell_all(STATUSES.into_iter().flat_map(told)).await;
}

/// A status as the answer to a call.
pub(super) async fn to_a_call(place: Place, status: &'static str, told: Told, carrier: Carrier, era: Era) {
    let server = match carrier {
        Carrier::OldEvents => old_events(status).await,
        _ => carrier.serve(move |_| vec![Step::Send(response(status, "no"))]).await,
    };
    let bridge = connect(carrier.opener_from(place, &server), era, LONG).await.expect(status);
    let name = format!("{status} over {carrier:?}, {era:?}, from {place:?}");
    told.check(&name, LONG, &call(&bridge, LONG).await.expect_err(&name));
    assert_eq!(server.count("tools/call"), told.1 as usize, "{name}: sent once per attempt");
    bridge.close().await;
}

/// BR-3, BR-7: the same while connecting, which is never tried again; nothing was asked, so nothing
/// was done.
#[tokio::test]
async fn a_status_while_connecting_is_told_after_one_attempt() {
    let told = |(status, told)| {
        let ways = [
            (Carrier::Json, Era::Modern),
            (Carrier::Json, Era::Legacy),
            (Carrier::Json, Era::Auto),
            (Carrier::OldEvents, Era::Legacy),
            (Carrier::Socket, Era::Modern),
        ];
        ways.map(|(carrier, era)| while_connecting(Place::Here, status, told, carrier, era))
    };
    tell_all(STATUSES.into_iter().flat_map(told)).await;
}

/// A status as the answer to the first message.
pub(super) async fn while_connecting(
    place: Place,
    status: &'static str,
    told: Told,
    carrier: Carrier,
    era: Era,
) {
    let server = Server::start(move |_| vec![Step::Send(response(status, "no"))]).await;
    let name = format!("{status} to the first message over {carrier:?}, {era:?}, from {place:?}");
    let opener = carrier.opener_from(place, &server);
    let Err(error) = connect(opener, era, LONG).await else { panic!("{name}") };
    let Told(kind, _, retryable, _) = told;
    Told(kind, 1, retryable, Executed::No).check(&name, LONG, &error);
}

/// BR-5: a JSON-RPC error counts for more than the status it came with.
#[tokio::test]
async fn an_error_behind_a_status_is_the_error() {
    let rows = [
        ("400 Bad Request", -32_602, 1, false),
        ("404 Not Found", -32_601, 1, false),
        ("500 Internal Server Error", -32_603, 2, true),
    ];
    let told = |(status, code, attempts, retryable): (&'static str, i32, u32, bool)| async move {
        let head = format!("{status}\ncontent-type: application/json; charset=utf-8");
        let error = format!(r#""error":{{"code":{code},"message":"\ud800 is no text","data":1e400}}"#);
        let answer = move |id: u64| format!(r#"{{"jsonrpc":"2.0","id":{id},{error}}}"#);
        let script = move |call: &super::mcp::Call| vec![Step::Send(response(&head, &answer(call.id)))];
        let server = Carrier::Json.serve(script).await;
        let bridge = connect(Carrier::Json.opener(&server), Era::Modern, LONG).await.expect(status);
        let error = call(&bridge, LONG).await.expect_err(status);
        Told(Kind::Answered(code), attempts, retryable, Executed::Unknown).check(status, LONG, &error);
        assert!(error.to_string().contains("is no text"), "{error}");
        bridge.close().await;
    };
    tell_all(rows.map(told)).await;
}

/// BR-6: what the server asks for is waited for, if the caller's deadline allows; never less than our
/// own delay. Only "not before" is measured.
#[tokio::test]
async fn a_server_that_asks_to_be_left_alone_is_left_alone() {
    let rows = [
        ("429 Too Many Requests\nretry-after: 2", 2000),
        ("503 Service Unavailable\nretry-after: 2", 2000),
        (
            "429 Too Many Requests\ndate: Tue, 28 Feb 2023 23:59:59 GMT\nretry-after: Wed, 01 Mar 2023 00:00:01 GMT",
            2000,
        ),
        ("429 Too Many Requests\nretry-after: 0", 1000),
        ("429 Too Many Requests\nretry-after: soon", 1000),
        // Longer than the deadline: it cannot be met, and nobody sleeps for it.
        ("429 Too Many Requests\nretry-after: 3600", 1000),
        ("429 Too Many Requests\nretry-after: 99999999999999999999", 1000),
    ];
    let told = |(status, millis): (&'static str, u64)| async move {
        let carrier = Carrier::Json;
        let script = move |call: &super::mcp::Call| match call.nth {
            0 => vec![Step::Send(response(status, ""))],
            _ => vec![Step::Send(carrier.whole(&call.good()))],
        };
        let server = carrier.serve(script).await;
        let bridge = connect(carrier.opener(&server), Era::Modern, LONG).await.expect(status);
        call(&bridge, LONG).await.expect("the second attempt succeeds");
        let calls: Vec<_> = server.heard().into_iter().filter(|heard| heard.asks() == "tools/call").collect();
        let [first, second] = &calls[..] else { panic!("{status}: two attempts, not {}", calls.len()) };
        let waited = second.at - first.at;
        assert!(waited >= Duration::from_millis(millis), "{status}: asked again after {waited:?}");
        bridge.close().await;
    };
    tell_all(rows.map(told)).await;
}

/// BR-3: a server that refuses by its limit is not asked a second question at once.
#[tokio::test]
async fn a_limit_is_no_reason_to_ask_in_another_way() {
    let server = Server::start(|_| vec![Step::Send(response("429 Too Many Requests", ""))]).await;
    let Err(error) = connect(Carrier::Json.opener(&server), Era::Auto, LONG).await else { panic!("a limit") };
    Told(Kind::Http(429), 1, true, Executed::No).check("429", LONG, &error);
    assert_eq!(server.asked(), ["server/discover"]);
}

/// BR-3: when neither the transport nor the one before it is there, the first one's words are told.
#[tokio::test]
async fn what_a_server_said_first_is_what_it_meant() {
    let server = Server::start(|heard| match heard.verb.as_str() {
        "POST" => vec![Step::Send(response("400 Bad Request", "a header is missing"))],
        _ => vec![Step::Send(response("405 Method Not Allowed", "GET is not for you"))],
    })
    .await;
    let Err(error) = connect(Carrier::Json.opener(&server), Era::Auto, LONG).await else {
        panic!("no server")
    };
    assert_eq!(error.to_string(), "the server answered HTTP 400: a header is missing");
    assert_eq!(server.asked(), ["server/discover", "initialize", "GET"]);
}
