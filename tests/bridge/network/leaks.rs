//! What is left behind after fifty times, and what a flood costs while it lasts.

use std::time::Duration;

use colibri::fleet::era::Era;

use crate::bridge::support::{Held, LONG, SHORT, call, connect, memory_peak, until};

use super::frames::{TEXT, head};
use super::mcp::{Call, Carrier, STREAM_HEAD, WAYS};
use super::wire::Step;

/// What is not there after ten times is not noticed as growth.
const FIRST: usize = 10;
const TIMES: usize = 50;

/// More than the longest frame several times over, and far less than the flood.
const MEMORY_MAX: u64 = 48 << 20;

/// One connection, one call that comes to nothing in one of several ways, one end in one of two.
async fn once(carrier: Carrier, era: Era, time: usize) {
    let script = move |call: &Call| {
        let whole = carrier.whole(&call.good());
        let half = Step::send(&whole[..whole.len() - 12]);
        match (time % 5, carrier.is_shared()) {
            (0, _) => vec![Step::Send(whole)],
            (1, true) => Vec::new(),
            (1, false) => vec![Step::Hold],
            (2, true) => vec![half],
            (2, false) => vec![half, Step::Hold],
            (3, _) => vec![half, Step::Close],
            _ => vec![half, Step::Reset],
        }
    };
    let server = carrier.serve(script).await;
    let bridge = connect(carrier.opener(&server), era, LONG).await.expect("it connects");
    let patience = Duration::from_millis(20);
    let outcome = bridge.client().call("t", b"{}", None, patience).await;
    assert!(outcome.is_err() || time.is_multiple_of(5), "only one of them answers");
    // Closing is how it should end; being dropped must do, too.
    if time.is_multiple_of(2) {
        bridge.close().await;
    }
}

/// BR-8, BR-9: whatever a call came to, fifty of them leave no more behind than ten: no descriptor, no
/// task, no process.
#[tokio::test]
async fn fifty_failures_leave_nothing_behind() {
    for (carrier, era) in WAYS {
        let name = format!("fifty times over {carrier:?}, {era:?}");
        let before = Held::now();
        for time in 0..FIRST {
            once(carrier, era, time).await;
        }
        before.comes_back(&name).await;
        let before = Held::now();
        for time in FIRST..TIMES {
            once(carrier, era, time).await;
        }
        before.comes_back(&name).await;
    }
}

/// BR-3, BR-9: the same for connections that never come to be.
#[tokio::test]
async fn fifty_connections_that_fail_leave_nothing_behind() {
    let ways: [(Carrier, Vec<Step>); 5] = [
        (Carrier::Json, vec![Step::Hold]),
        (Carrier::OldEvents, vec![Step::send(STREAM_HEAD), Step::Hold]),
        (Carrier::OldEvents, vec![Step::send(STREAM_HEAD), Step::send("data: {}\n\n"), Step::Hold]),
        (Carrier::Socket, vec![Step::Hold]),
        (Carrier::Socket, vec![Step::send("HTTP/1.1 101 Switching Protocols\r\n"), Step::Hold]),
    ];
    for (carrier, steps) in ways {
        let before = Held::now();
        for _ in 0..TIMES {
            let steps = steps.clone();
            let server = super::wire::Server::start(move |_| steps.clone()).await;
            let patience = Duration::from_millis(20);
            assert!(connect(carrier.opener(&server), Era::Legacy, patience).await.is_err());
        }
        before.comes_back(&format!("{carrier:?} that never comes to be")).await;
    }
}

/// BR-8: callers that leave in the middle leave nothing of theirs behind, while the bridge lives on.
#[tokio::test]
async fn fifty_callers_that_leave_take_all_of_theirs_along() {
    for (carrier, era) in WAYS {
        let name = format!("callers that leave {carrier:?}, {era:?}");
        let server =
            carrier.serve(move |_| if carrier.is_shared() { Vec::new() } else { vec![Step::Hold] }).await;
        let bridge = connect(carrier.opener(&server), era, LONG).await.expect(&name);
        let before = Held::now();
        for _ in 0..TIMES {
            let call = bridge.client().call("t", b"{}", None, LONG);
            assert!(tokio::time::timeout(Duration::from_millis(5), call).await.is_err(), "{name}");
        }
        assert_eq!(bridge.client().connection().in_flight(), 0, "{name}");
        // The older family says on another connection that a call is taken back; a few may stay open
        // to be used again.
        before.and_connections(2 * 8).comes_back(&name).await;
        bridge.close().await;
    }
}

/// BR-3: a flood is skipped, or ends the connection; it is never kept.
#[tokio::test]
async fn a_flood_costs_no_memory() {
    let floods: [(Carrier, Vec<Step>); 6] = [
        (
            Carrier::Json,
            vec![Step::send("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n"), Step::flood("x")],
        ),
        (
            Carrier::Json,
            vec![Step::send("HTTP/1.1 500 No\r\ncontent-type: application/json\r\n\r\n"), Step::flood("x")],
        ),
        (Carrier::Json, vec![Step::send("HTTP/1.1 200 OK\r\nx: "), Step::flood("y")]),
        (Carrier::Events, vec![Step::send(STREAM_HEAD), Step::flood("data: x\n")]),
        (Carrier::OldEvents, vec![Step::flood("data: x\n")]),
        (Carrier::Socket, vec![Step::send(head(TEXT, 1 << 40)), Step::flood("x")]),
    ];
    for (carrier, steps) in floods {
        let server = carrier.serve(move |_| steps.clone()).await;
        let bridge = connect(carrier.opener(&server), Era::Legacy, LONG).await.expect("it connects");
        let before = memory_peak();
        assert!(call(&bridge, SHORT).await.is_err(), "{carrier:?}: a flood is no answer");
        if carrier == Carrier::OldEvents {
            until("it goes on and on", || server.flooded() > 64 << 20).await;
        }
        let more = memory_peak() - before;
        assert!(more < MEMORY_MAX, "{carrier:?}: a flood cost {} MiB", more >> 20);
        bridge.close().await;
    }
}
