//! The same failures on every transport: what the caller is told, by when, and what is left behind.

use colibri::fleet::bridge::Executed;
use colibri::fleet::era::Era;

use crate::bridge::support::{Held, Kind, LONG, SHORT, Told, call, connect, tell_all};

use super::frames::{self, TEXT};
use super::mcp::{Call, Carrier, EVENTS_HEAD, LAST_CHUNK, Place, WAYS, answer, chunk};
use super::wire::Step;

/// What a server does with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Silence,
    Half,
    Garbage,
    NoHttp,
    TwoAnswers,
    AnotherId,
    AnotherIdThenTheRight,
    CloseMidAnswer,
    ResetMidAnswer,
    CloseBefore,
    Flood,
    EndlessHead,
    EndlessInterim,
    Drip,
}

use Carrier::{Events, Json, OldEvents, Socket};
use Fault::{
    AnotherId, AnotherIdThenTheRight, CloseBefore, CloseMidAnswer, Drip, EndlessHead, EndlessInterim, Flood,
    Garbage, Half, NoHttp, ResetMidAnswer, Silence, TwoAnswers,
};

impl Fault {
    pub(super) const ALL: [Self; 14] = [
        Silence,
        Half,
        Garbage,
        NoHttp,
        TwoAnswers,
        AnotherId,
        AnotherIdThenTheRight,
        CloseMidAnswer,
        ResetMidAnswer,
        CloseBefore,
        Flood,
        EndlessHead,
        EndlessInterim,
        Drip,
    ];

    /// What the server does with the call.
    fn steps(self, carrier: Carrier, call: &Call) -> Vec<Step> {
        // What spoilt the one link of all calls has spoilt it for the second attempt too.
        if carrier.is_shared() && call.nth > 0 && self != Silence {
            return Vec::new();
        }
        let whole = carrier.whole(&call.good());
        let half = Step::send(&whole[..whole.len() - 12]);
        let another = answer(call.id + 1000, "{}");
        let silence = if carrier.is_shared() { Vec::new() } else { vec![Step::Hold] };
        let then = |steps: Vec<Step>| steps.into_iter().chain(silence.clone()).collect();
        match self {
            Silence => silence,
            Half => then(vec![half]),
            Garbage if carrier == Events => {
                then(vec![Step::send(EVENTS_HEAD), Step::send(chunk("data: <html>\n\n"))])
            }
            Garbage => vec![Step::Send(carrier.whole("<html>"))],
            NoHttp => then(vec![Step::send("\0SSH-2.0-OpenSSH_9.7\r\n\r\n")]),
            TwoAnswers => match carrier {
                Json => vec![Step::Send(carrier.whole(&format!("[{0},{0}]", call.good())))],
                Events => {
                    let twice = format!("data: {0}\n\ndata: {0}\n\n", call.good());
                    vec![Step::send(format!("{EVENTS_HEAD}{}{LAST_CHUNK}", chunk(&twice)))]
                }
                OldEvents | Socket => vec![Step::send(&whole), Step::Send(whole)],
            },
            AnotherId => vec![Step::Send(carrier.whole(&another))],
            AnotherIdThenTheRight => match carrier {
                Json => vec![Step::Send(carrier.whole(&format!("[{another},{}]", call.good())))],
                Events => {
                    let both = format!("data: {another}\n\ndata: {}\n\n", call.good());
                    vec![Step::send(format!("{EVENTS_HEAD}{}{LAST_CHUNK}", chunk(&both)))]
                }
                OldEvents | Socket => vec![Step::Send(carrier.whole(&another)), Step::Send(whole)],
            },
            CloseMidAnswer => vec![half, Step::Close],
            ResetMidAnswer => vec![half, Step::Reset],
            CloseBefore => vec![Step::Close],
            Flood => match carrier {
                Json => vec![
                    Step::send("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n[\""),
                    Step::flood("x"),
                ],
                Events => vec![
                    Step::send("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: "),
                    Step::flood("x"),
                ],
                OldEvents => vec![Step::send("data: "), Step::flood("x")],
                Socket => vec![Step::send(frames::head(TEXT, 1 << 40)), Step::flood("x")],
            },
            EndlessHead => vec![Step::send("HTTP/1.1 200 OK\r\nx: "), Step::flood(b"y")],
            EndlessInterim => vec![Step::flood(b"HTTP/1.1 103 Early Hints\r\nx: y\r\n\r\n")],
            Drip => then(vec![Step::Drip(whole)]),
        }
    }

    /// What the caller must be told; nothing where the call must succeed; `None` where there is no
    /// such failure.
    fn told(self, carrier: Carrier) -> Option<Result<(), Told>> {
        let protocol = Told::last(Kind::Protocol, Executed::Unknown);
        let (late, network) = (Told::transient(Kind::TimedOut), Told::transient(Kind::Network));
        Some(match (self, carrier) {
            (NoHttp | EndlessHead | EndlessInterim, OldEvents | Socket) => return None,
            (Silence | Half | Drip | EndlessInterim, _)
            | (Garbage | AnotherId, OldEvents | Socket)
            | (Garbage, Events) => Err(late),
            (TwoAnswers | AnotherIdThenTheRight, _) => Ok(()),
            (Garbage | AnotherId, Json) | (Flood | NoHttp | EndlessHead, _) => Err(protocol),
            (CloseMidAnswer | ResetMidAnswer | CloseBefore, OldEvents | Socket) => Err(Told::lost()),
            (CloseMidAnswer | ResetMidAnswer | CloseBefore, _) | (AnotherId, Events) => Err(network),
        })
    }
}

/// What any flood may have written before it met a closed door: what the two sockets hold, the limit,
/// and a megabyte to spare.
const FLOOD_TAKEN_MAX: u64 = 16 << 20;

pub(super) async fn tell(place: Place, fault: Fault, carrier: Carrier, era: Era) {
    let Some(expected) = fault.told(carrier) else { return };
    let name = format!("{fault:?} over {carrier:?}, {era:?}, from {place:?}");
    let server = carrier.serve(move |call| fault.steps(carrier, call)).await;
    let bridge = connect(carrier.opener_from(place, &server), era, LONG).await.expect(&name);
    match expected {
        Ok(()) => {
            call(&bridge, LONG).await.expect(&name);
        }
        Err(told) => {
            let deadline = if told.0 == Kind::TimedOut { SHORT } else { LONG };
            told.check(&name, deadline, &call(&bridge, deadline).await.expect_err(&name));
        }
    }
    assert_eq!(bridge.client().connection().in_flight(), 0, "{name}");
    // What is between messages is skipped for as long as it comes; what is an answer is not.
    if fault != EndlessInterim && carrier != OldEvents {
        assert!(server.flooded() < FLOOD_TAKEN_MAX, "{name}: {} bytes were taken", server.flooded());
    }
    bridge.close().await;
}

/// BR-3, BR-5, BR-7, PR-1: whatever goes wrong on whichever transport, the caller is told what it was, in
/// how many attempts, whether to try later and whether it may have been done, by its deadline; and
/// nothing of it stays.
#[tokio::test]
async fn every_fault_is_told_on_every_transport() {
    let before = Held::now();
    let stories = Fault::ALL
        .iter()
        .flat_map(|fault| WAYS.map(|(carrier, era)| tell(Place::Here, *fault, carrier, era)));
    tell_all(stories).await;
    before.comes_back("every fault").await;
}
