//! What only a WebSocket can do wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use colibri::domain::audit::Pending;
use colibri::domain::log::Logger;
use colibri::fleet::bridge::{Bridge, Cause, ConnectOptions, Executed, Handler};
use colibri::fleet::era::Era;
use colibri::mcp::error::Error;
use tokio::sync::Notify;

use crate::bridge::support::{Held, Kind, LONG, SHORT, Told, call, connect, tell_all, until};

use super::frames::{CLOSE, Frame, PING, PONG, TEXT, frame, head, switch};
use super::mcp::{Call, Carrier, FRAME_BYTES_MAX, response};
use super::wire::{Heard, Server, Step};

/// BR-3, PR-1: a handshake that is not understood, refused or never answered gives no connection, and
/// leaves none.
#[tokio::test]
async fn a_handshake_that_goes_wrong_is_no_connection() {
    type Handshake = fn(&Heard) -> Vec<Step>;
    let protocol = Told::last(Kind::Protocol, Executed::No);
    let rows: [(&str, Handshake, Told); 7] = [
        (
            "another accept key",
            |heard| vec![Step::send(switch(heard, "").replace("accept: ", "accept: x")), Step::Hold],
            protocol,
        ),
        (
            "no accept key",
            |heard| vec![Step::send(switch(heard, "").replace("accept:", "refuse:")), Step::Hold],
            protocol,
        ),
        (
            "another subprotocol",
            |heard| vec![Step::send(switch(heard, "sec-websocket-protocol: chat\r\n")), Step::Hold],
            protocol,
        ),
        (
            "a page",
            |_| vec![Step::Send(response("200 OK\ncontent-type: text/html", "<html>"))],
            Told::last(Kind::Http(200), Executed::No),
        ),
        ("silence", |_| vec![Step::Hold], Told(Kind::TimedOut, 1, true, Executed::No)),
        ("the end", |_| vec![Step::Close], Told(Kind::Network, 1, true, Executed::No)),
        (
            "the end after the handshake",
            |heard| vec![Step::send(switch(heard, "")), Step::Close],
            Told(Kind::Gone, 1, true, Executed::No),
        ),
    ];
    let before = Held::now();
    let told = |(name, handshake, told): (&'static str, Handshake, Told)| async move {
        let server = Server::start(handshake).await;
        let deadline = if told.0 == Kind::TimedOut { SHORT } else { LONG };
        let Err(error) = connect(Carrier::Socket.opener(&server), Era::Modern, deadline).await else {
            panic!("{name}")
        };
        told.check(name, deadline, &error);
    };
    tell_all(rows.map(told)).await;
    before.comes_back("a handshake that went wrong").await;
}

/// PR-1: the handshake asks for the subprotocol, and a server that names none is taken at its word.
#[tokio::test]
async fn a_server_that_names_no_subprotocol_is_spoken_to() {
    let sound = Carrier::Socket.script(|call| vec![Step::Send(Carrier::Socket.whole(&call.good()))]);
    let server = Server::start(move |heard| {
        let mut steps = sound(heard);
        steps[0] = Step::send(switch(heard, ""));
        steps
    })
    .await;
    let bridge = connect(Carrier::Socket.opener(&server), Era::Modern, LONG).await.expect("it connects");
    call(&bridge, LONG).await.expect("it answers");
    assert_eq!(server.heard()[0].header("sec-websocket-protocol"), Some("mcp"));
    bridge.close().await;
    until("the server is told of the end", || server.frames().iter().any(|frame| frame.opcode == CLOSE))
        .await;
    until("the connection is closed", || server.left() == 1).await;
}

/// BR-5, BR-7: what breaks the rules of the protocol ends the connection, and the attempts with it.
#[tokio::test]
async fn frames_that_break_the_rules_end_the_connection() {
    let half = FRAME_BYTES_MAX / 2 + 1;
    let piece = |opcode: u8, fin: bool| {
        let mut bytes = frame(opcode, &vec![b' '; half]);
        bytes[0] = opcode | if fin { 0x80 } else { 0 };
        bytes
    };
    let protocol = Told::last(Kind::Protocol, Executed::Unknown);
    let rows: Vec<(&'static str, Vec<u8>, Told)> = vec![
        ("a close", frame(CLOSE, b""), Told::lost()),
        ("a close with a reason", frame(CLOSE, b"\x03\xf3bye"), Told::lost()),
        ("text that is none", frame(TEXT, b"\xff\xfe"), Told::lost()),
        ("an opcode that is none", frame(0x0b, b""), Told::lost()),
        ("a reserved bit", vec![0xc1, 0x00], Told::lost()),
        ("a masked frame", vec![0x81, 0x80, 0, 0, 0, 0], Told::lost()),
        ("a continuation of nothing", frame(0, b"x"), Told::lost()),
        ("a long ping", [head(PING, 126), vec![0; 126]].concat(), Told::lost()),
        ("too long, in its head", head(TEXT, u64::MAX), protocol),
        ("too long, by one byte", frame(TEXT, &vec![b' '; FRAME_BYTES_MAX + 1]), protocol),
        ("too long, in pieces", [piece(TEXT, false), piece(0, true)].concat(), protocol),
    ];
    let told = |(name, bytes, told): (&'static str, Vec<u8>, Told)| async move {
        let server = Carrier::Socket.serve(move |_| vec![Step::send(&bytes)]).await;
        let bridge = connect(Carrier::Socket.opener(&server), Era::Modern, LONG).await.expect(name);
        told.check(name, LONG, &call(&bridge, LONG).await.expect_err(name));
        let next = call(&bridge, LONG).await.expect_err("the connection is gone");
        Told(Kind::Gone, 1, true, Executed::Unknown).check(name, LONG, &next);
        bridge.close().await;
    };
    tell_all(rows.into_iter().map(told)).await;
}

/// PR-1: pings are answered with what they carried; pieces are put together; a binary frame is read
/// like a text, as some servers send it.
#[tokio::test]
async fn what_a_server_may_do_besides_is_understood() {
    let script = |call: &Call| {
        let good = call.good();
        let (first, second) = good.split_at(good.len() / 2);
        let mut begun = frame(TEXT, first.as_bytes());
        begun[0] &= 0x7f;
        let rest = frame(0, second.as_bytes());
        match call.nth {
            0 => vec![Step::Send([begun, frame(PING, b"alive?"), frame(PONG, b"so what"), rest].concat())],
            _ => vec![Step::Send(frame(2, good.as_bytes()))],
        }
    };
    let server = Carrier::Socket.serve(script).await;
    let bridge = connect(Carrier::Socket.opener(&server), Era::Modern, LONG).await.expect("it connects");
    call(&bridge, LONG).await.expect("in pieces");
    call(&bridge, LONG).await.expect("in binary");
    let pong = Frame { opcode: PONG, payload: b"alive?".to_vec() };
    until("the ping is answered", || server.frames().contains(&pong)).await;
    bridge.close().await;
}

/// BR-9: a server that asks without end and reads nothing keeps neither the bridge from closing, nor
/// anything of it after that.
#[tokio::test]
async fn a_server_that_asks_and_does_not_read_is_left() {
    let reads_again = Arc::new(Notify::new());
    let reading = Arc::clone(&reads_again);
    // The answer repeats the id, so a few thousand of them fill every buffer on the way.
    let ping = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"ping"}}"#, "p".repeat(8 << 10));
    let ping = frame(TEXT, ping.as_bytes());
    let server = Carrier::Socket.serve(move |call| match call.nth {
        0 => vec![Step::flood(&ping), Step::Wait(Arc::clone(&reading))],
        _ => Vec::new(),
    });
    let server = server.await;
    let before = Held::now();
    let bridge = connect(Carrier::Socket.opener(&server), Era::Legacy, LONG).await.expect("it connects");
    let error = bridge.client().call("t", b"{}", None, SHORT).await.expect_err("it only asks");
    assert_eq!(error, Cause::TimedOut(SHORT));
    until("nothing more fits into its ears", || server.flooded() > 64 << 20).await;
    tokio::time::timeout(LONG, bridge.close()).await.expect("it closes");
    before.and_connections(1).comes_back("a server that only asks").await;
    reads_again.notify_one();
    until("the connection is closed", || server.left() == 1).await;
}

/// BR-9, PR-11: what is still to be answered when a bridge closes is not answered, and not kept. Nor is it when the
/// bridge is only dropped: the question used to stay with whoever was asked, for as long as that took.
#[tokio::test]
async fn an_answer_of_ours_does_not_outlive_the_bridge() {
    for is_closed in [true, false] {
        let undecided = Arc::new(Undecided::default());
        unanswered(Arc::clone(&undecided), is_closed).await;
        assert_eq!(undecided.asked.load(Ordering::Relaxed), 1);
        until("the question is taken back", || undecided.taken_back.load(Ordering::Relaxed) == 1).await;
    }
}

async fn unanswered(undecided: Arc<Undecided>, is_closed: bool) {
    let ask = frame(TEXT, br#"{"jsonrpc":"2.0","id":"e","method":"elicitation/create"}"#);
    let script = move |call: &Call| vec![Step::send(&ask), Step::Send(Carrier::Socket.whole(&call.good()))];
    let server = Carrier::Socket.serve(script).await;
    let before = Held::now();
    let options = ConnectOptions {
        transport: Some(Carrier::Socket.opener(&server)),
        era: Era::Legacy,
        handler: undecided,
        logger: Logger::silent(),
        ..ConnectOptions::default()
    };
    let bridge = Bridge::connect("socket", options).await.expect("it connects");
    call(&bridge, LONG).await.expect("it answers");
    if is_closed {
        bridge.close().await;
    }
    drop(bridge);
    before.comes_back("a question that nobody answered").await;
}

/// A person who never decides.
#[derive(Default)]
struct Undecided {
    asked: AtomicUsize,
    taken_back: AtomicUsize,
}

impl Handler for Undecided {
    fn asked(&self, _: &str, _: Option<Bytes>) -> Pending<'_, Result<Bytes, Error>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let taken_back = CallOnDrop(|| {
            self.taken_back.fetch_add(1, Ordering::Relaxed);
        });
        Box::pin(async move {
            let _taken_back = taken_back;
            std::future::pending().await
        })
    }
}

struct CallOnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for CallOnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
