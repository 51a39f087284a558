//! Sessions of the older family: begun, forgotten by the server, begun again, and ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use colibri::fleet::bridge::Executed;
use colibri::fleet::era::Era;
use colibri::fleet::error::Cause;
use futures_util::future::join_all;

use crate::bridge::support::{Held, Kind, LONG, SHORT, Told, call, connect};

use super::mcp::{Carrier, Place, answer, response};
use super::wire::{Heard, Server, Step};

const INITIALIZED: &str = r#"{"protocolVersion":"2025-11-25","capabilities":{}}"#;

/// A server that begins session `s1`, then `s2`, and so on; `rest` says what it does with all else.
async fn sessions(rest: impl Fn(&Heard) -> Vec<Step> + Send + Sync + 'static) -> Server {
    let begun = AtomicUsize::new(0);
    Server::start(move |heard| {
        if heard.asks() != "initialize" {
            return rest(heard);
        }
        let session = begun.fetch_add(1, Ordering::SeqCst) + 1;
        let head = format!("200 OK\ncontent-type: application/json\nmcp-session-id: s{session}");
        let id = heard.message()["id"].as_u64().expect("a request");
        vec![Step::Send(response(&head, &answer(id, INITIALIZED)))]
    })
    .await
}

/// Forgets the first session when it is called in it, and is sound in the second.
fn forgetful(heard: &Heard) -> Vec<Step> {
    let status = |status: &str| vec![Step::Send(response(status, ""))];
    match (heard.asks().as_str(), heard.header("mcp-session-id")) {
        ("GET", _) => status("405 Method Not Allowed"),
        ("tools/call", Some("s1")) => status("404 Not Found"),
        ("tools/call", Some(_)) => {
            let id = heard.message()["id"].as_u64().expect("a request");
            vec![Step::Send(Carrier::Json.whole(&answer(id, "{}")))]
        }
        (_, Some(_)) => status("202 Accepted"),
        (_, None) => status("400 Bad Request"),
    }
}

fn in_session(server: &Server, session: &str, what: &str) -> usize {
    let of = |heard: &&Heard| heard.asks() == what && heard.header("mcp-session-id") == Some(session);
    server.heard().iter().filter(of).count()
}

/// BR-5, PR-1: a server that has forgotten the session gets a new one, and the call is made in it, once.
#[tokio::test]
async fn a_forgotten_session_is_begun_again_and_the_call_made_once() {
    forgotten(Place::Here).await;
}

pub(super) async fn forgotten(place: Place) {
    let server = sessions(forgetful).await;
    let opener = Carrier::Json.opener_from(place, &server);
    let bridge = connect(opener, Era::Legacy, LONG).await.expect("it connects");
    call(&bridge, LONG).await.expect("the new session answers");
    let story = ["initialize", "notifications/initialized", "GET", "tools/call"];
    assert_eq!(server.asked(), [story, story].concat());
    assert_eq!(in_session(&server, "s2", "tools/call"), 1, "it is executed once");
    let initializes = server.heard().into_iter().filter(|heard| heard.asks() == "initialize");
    assert!(initializes.into_iter().all(|heard| heard.header("mcp-session-id").is_none()));
    bridge.close().await;
    assert_eq!((in_session(&server, "s1", "DELETE"), in_session(&server, "s2", "DELETE")), (0, 1));
}

/// BR-5: many callers that are told the same make one new session between them.
#[tokio::test]
async fn many_callers_share_one_new_session() {
    let server = sessions(forgetful).await;
    let bridge = connect(Carrier::Json.opener(&server), Era::Legacy, LONG).await.expect("it connects");
    for outcome in join_all((0..16).map(|_| call(&bridge, LONG))).await {
        outcome.expect("the new session answers");
    }
    assert_eq!(server.count("initialize"), 2);
    assert_eq!(in_session(&server, "s2", "tools/call"), 16, "each is executed once");
    bridge.close().await;
}

/// BR-5, BR-7: a server that forgets every session is not asked for ever; it looked at nothing.
#[tokio::test]
async fn a_server_that_forgets_every_session_is_given_up() {
    let server = sessions(|heard| match heard.asks().as_str() {
        "tools/call" => vec![Step::Send(response("404 Not Found", ""))],
        _ => forgetful(heard),
    })
    .await;
    let bridge = connect(Carrier::Json.opener(&server), Era::Legacy, LONG).await.expect("it connects");
    let error = call(&bridge, LONG).await.expect_err("there is no lasting session");
    Told(Kind::SessionLost, 1, true, Executed::No).check("forgets everything", LONG, &error);
    assert_eq!((server.count("initialize"), server.count("tools/call")), (2, 2));
    bridge.close().await;
}

/// BR-3, BR-8: a new session that gets stuck halfway costs its callers their deadline, and no more.
#[tokio::test]
async fn a_session_that_is_never_begun_again_costs_a_deadline() {
    let is_stuck = Arc::new(AtomicBool::new(true));
    let gets_stuck = Arc::clone(&is_stuck);
    let server = sessions(move |heard| match (heard.asks().as_str(), heard.header("mcp-session-id")) {
        // Every new one: who waits behind the first may have the time to begin another.
        ("notifications/initialized", Some(session))
            if session != "s1" && gets_stuck.load(Ordering::SeqCst) =>
        {
            vec![Step::Hold]
        }
        _ => forgetful(heard),
    })
    .await;
    let bridge = connect(Carrier::Json.opener(&server), Era::Legacy, LONG).await.expect("it connects");
    let once = || bridge.client().call("t", b"{}", None, SHORT);
    for outcome in join_all([once(), once()]).await {
        assert_eq!(outcome.expect_err("the new session is stuck"), Cause::TimedOut(SHORT));
    }
    // On a busy machine the deadline may have passed before a new session was begun: then it is begun now.
    is_stuck.store(false, Ordering::SeqCst);
    call(&bridge, LONG).await.expect("the session is there all the same");
    bridge.close().await;
}

/// BR-9, PR-1: closing ends the session at the server; without a session there is nothing to end.
#[tokio::test]
async fn closing_ends_the_session() {
    let before = Held::now();
    let server = sessions(forgetful).await;
    let bridge = connect(Carrier::Json.opener(&server), Era::Legacy, LONG).await.expect("it connects");
    bridge.close().await;
    bridge.close().await;
    let heard = server.heard();
    let farewell: Vec<_> = heard.iter().filter(|heard| heard.verb == "DELETE").collect();
    assert_eq!(farewell.len(), 1);
    assert_eq!(farewell[0].header("mcp-session-id"), Some("s1"));
    assert_eq!(farewell[0].header("mcp-protocol-version"), Some("2025-11-25"));

    for era in [Era::Legacy, Era::Modern] {
        let server = Carrier::Json.serve(|_| Vec::new()).await;
        let bridge = connect(Carrier::Json.opener(&server), era, LONG).await.expect("it connects");
        bridge.close().await;
        assert_eq!(server.count("DELETE"), 0, "{era:?}: no session, no farewell");
    }
    drop((server, bridge));
    before.comes_back("a session that was ended").await;
}

/// BR-9: a server that does not answer the farewell, or that listens for ever, cannot keep a bridge
/// from closing.
#[tokio::test]
async fn a_server_that_does_not_say_goodbye_is_left() {
    let before = Held::now();
    let server = sessions(|heard| match heard.verb.as_str() {
        "DELETE" => vec![Step::Hold],
        "GET" => vec![Step::send(super::mcp::STREAM_HEAD), Step::Hold],
        _ => forgetful(heard),
    })
    .await;
    let bridge = connect(Carrier::Json.opener(&server), Era::Legacy, LONG).await.expect("it connects");
    tokio::time::timeout(LONG, bridge.close()).await.expect("it closes");
    assert_eq!(server.count("DELETE"), 1);
    drop((server, bridge));
    before.comes_back("a farewell without an answer").await;
}
