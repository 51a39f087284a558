//! Bytes stay bytes: what a server sent is what its caller gets, and what a caller gave is what the
//! server gets, whatever JSON can say, over every link.
//!
//! The seed is printed, and taken back as `COLIBRI_SEED`; with `COLIBRI_CHECK=full` there are ten times
//! as many messages.

mod json;

use std::ffi::OsString;
use std::io::Write;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use colibri::domain::audit::Pending;
use colibri::fleet::bridge::{Bridge, CallOptions, Cause, Request};
use colibri::fleet::era::Era;
use colibri::fleet::inbox::Inbox;
use colibri::fleet::link::memory::pair;
use colibri::fleet::link::stdio::{Children, Stdio};
use colibri::fleet::link::{Link, Opener};
use colibri::sandbox::{Policy, Spec};
use futures_util::{StreamExt, stream};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use serde::Deserialize;
use serde_json::value::RawValue;

use json::{in_one_line, message};

use super::network::frames::{TEXT, frame};
use super::network::mcp::{Call, Carrier, EVENTS_HEAD, LAST_CHUNK, WAYS, answer};
use super::network::wire::Step;
use super::support::{LONG, connect, tell_all};

/// Calls at the same time.
const AT_ONCE: usize = 16;

/// One call: what the server answers, what it is given, and where the answer is cut in two on its way.
#[derive(Clone, Debug)]
struct Case {
    result: String,
    arguments: String,
    cut: usize,
}

fn case() -> impl Strategy<Value = Case> {
    (message(), message(), any::<usize>()).prop_map(|(result, arguments, cut)| Case {
        result,
        arguments,
        cut,
    })
}

/// Two hundred of them.
fn cases() -> Vec<Case> {
    let variable = |name| std::env::var(name).ok();
    let seed = variable("COLIBRI_SEED").map_or_else(std::process::id, |seed| seed.parse().expect("a number"));
    let count = if variable("COLIBRI_CHECK").as_deref() == Some("full") { 2_000 } else { 200 };
    let _ = writeln!(std::io::stderr(), "COLIBRI_SEED={seed} ({count} messages)");
    let mut bytes = [0; 32];
    bytes[..4].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(ProptestConfig::default(), rng);
    let mut next = || case().new_tree(&mut runner).expect("nothing is filtered out").current();
    (0..count).map(|_| next()).collect()
}

/// The parts of a call that its caller gave, as they arrived.
#[derive(Deserialize)]
struct Arrived<'a> {
    id: u64,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Params<'a> {
    name: String,
    #[serde(borrow)]
    arguments: &'a RawValue,
}

/// Which case a call belongs to, and its arguments.
fn arrived(raw: &[u8]) -> (usize, String) {
    let arrived: Arrived<'_> = serde_json::from_slice(raw).expect("a message");
    let params: Params<'_> = serde_json::from_str(arrived.params.expect("params").get()).expect("a call");
    (params.name.parse().expect("we name tools by number"), params.arguments.get().to_owned())
}

/// Makes every call, many at once; what comes back must be what the server was to send.
async fn call_all(bridge: &Bridge, cases: &[Case], name: &str) {
    let call = async |(index, case): (usize, &Case)| {
        let tool = index.to_string();
        let result = bridge.client().call(&tool, case.arguments.as_bytes(), None, LONG).await;
        let result = result.unwrap_or_else(|cause| panic!("{name}, {index}: {cause}: {}", case.result));
        assert_eq!(String::from_utf8_lossy(&result), case.result, "{name}, {index}");
    };
    stream::iter(cases.iter().enumerate().map(call)).buffer_unordered(AT_ONCE).collect::<Vec<_>>().await;
}

/// Two pieces of a body.
fn chunks(body: &[u8], cut: usize) -> Vec<u8> {
    let (first, second) = body.split_at(cut % body.len().max(1));
    let pieces = [first, second].into_iter().filter(|piece| !piece.is_empty());
    let pieces = pieces
        .flat_map(|piece| [format!("{:x}\r\n", piece.len()).into_bytes(), piece.to_vec(), b"\r\n".to_vec()]);
    pieces.chain([LAST_CHUNK.into()]).flatten().collect()
}

/// An answer, in the carrier's own bytes, cut in two where the carrier can.
fn cut_in_two(carrier: Carrier, message: &str, cut: usize) -> Vec<u8> {
    let event = format!("event: message\ndata: {}\n\n", message.replace('\n', "\ndata: "));
    match carrier {
        Carrier::Json => {
            let head =
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
            [head.as_bytes(), &chunks(message.as_bytes(), cut)].concat()
        }
        Carrier::Events => [EVENTS_HEAD.as_bytes(), &chunks(event.as_bytes(), cut)].concat(),
        Carrier::OldEvents => event.into_bytes(),
        Carrier::Socket => {
            let (first, second) = message.as_bytes().split_at(cut % message.len());
            let mut begun = frame(TEXT, first);
            begun[0] &= 0x7f;
            [begun, frame(0, second)].concat()
        }
    }
}

/// PR-1, BR-4: over the network, in every transport and family, both ways.
#[tokio::test]
async fn bytes_stay_bytes_over_the_network() {
    let cases = cases();
    let told = |(carrier, era): (Carrier, Era)| {
        let mut cases = cases.clone();
        async move {
            let name = format!("{carrier:?}, {era:?}");
            if matches!(carrier, Carrier::Events | Carrier::OldEvents) {
                // The one thing that a line of events cannot carry.
                for case in &mut cases {
                    case.result = case.result.replace('\r', " ");
                }
            }
            let seen = Arc::new(Mutex::new(vec![String::new(); cases.len()]));
            let (prepared, seeing) = (cases.clone(), Arc::clone(&seen));
            let script = move |call: &Call| {
                let (index, arguments) = arrived(&call.raw);
                seeing.lock().expect("sound")[index] = arguments;
                let message = answer(call.id, &prepared[index].result);
                vec![Step::Send(cut_in_two(carrier, &message, prepared[index].cut))]
            };
            let server = carrier.serve(script).await;
            let bridge = connect(carrier.opener(&server), era, LONG).await.expect(&name);
            call_all(&bridge, &cases, &name).await;
            bridge.close().await;
            for (index, (case, seen)) in cases.iter().zip(seen.lock().expect("sound").iter()).enumerate() {
                assert_eq!(*seen, case.arguments, "{name}: the arguments of {index}");
            }
        }
    };
    tell_all(WAYS.map(told)).await;
}

/// PR-1, BR-4: over stdio, to a real child; a line end between two values, which would end the message,
/// is a blank, and nothing else changes.
#[tokio::test]
async fn bytes_stay_bytes_over_stdio() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut cases = cases();
    for case in &mut cases {
        case.result = in_one_line(&case.result);
    }
    // The answer to the message of each id stands in the line of that number.
    let introduction = answer(1, r#"{"protocolVersion":"2025-11-25","capabilities":{}}"#);
    let answers = cases.iter().zip(2..).map(|(case, id)| answer(id, &case.result));
    let answers: Vec<String> = std::iter::once(introduction).chain(answers).collect();
    std::fs::write(folder.path().join("answers"), answers.join("\n") + "\n").expect("it is written");
    let script = r#"tee received | while read -r line; do
        case "$line" in *'"method":"notifications/'*) continue;; esac
        number=$((number + 1)); LC_ALL=C sed -n "${number}p" answers
    done"#;
    let environment = vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())];
    let arguments = vec!["-c".into(), OsString::from(script)];
    let directory = Some(folder.path().to_owned());
    let spec = Spec { program: "sh".into(), arguments, environment, directory };
    let opener = Box::new(Stdio {
        spec,
        policy: Policy::off(),
        frame_bytes_max: 4 << 20,
        children: Children::default(),
    });
    let bridge = connect(opener, Era::Legacy, LONG).await.expect("it connects");
    for (index, case) in cases.iter().enumerate() {
        let result = bridge.client().call(&index.to_string(), case.arguments.as_bytes(), None, LONG).await;
        let result = result.unwrap_or_else(|cause| panic!("{index}: {cause}: {}", case.result));
        assert_eq!(String::from_utf8_lossy(&result), case.result, "{index}");
    }
    bridge.close().await;
    let received = std::fs::read(folder.path().join("received")).expect("the child keeps all");
    let calls = received
        .split(|byte| *byte == b'\n')
        .filter(|line| line.windows(10).any(|word| word == b"tools/call"));
    let calls: Vec<(usize, String)> = calls.map(arrived).collect();
    assert_eq!(calls.len(), cases.len(), "no message was torn");
    for (index, arguments) in calls {
        assert_eq!(arguments, in_one_line(&cases[index].arguments), "the arguments of {index}");
    }
}

/// A server in memory that answers everything but the introduction with this, and keeps what it got.
#[derive(Clone)]
struct Prepared {
    result: String,
    seen: Arc<Mutex<Vec<Bytes>>>,
}

impl Opener for Prepared {
    fn open(&self, inbox: Inbox) -> Pending<'_, Result<Arc<dyn Link>, Cause>> {
        let (link, mut peer) = pair(inbox);
        let Self { result, seen } = self.clone();
        tokio::spawn(async move {
            while let Some(frame) = peer.received.recv().await {
                let Ok(Arrived { id, .. }) = serde_json::from_slice(&frame) else { continue };
                let result = match id {
                    1 => r#"{"supportedVersions":["2026-07-28"],"x":1e400,"y":"\ud800"}"#,
                    _ => result.as_str(),
                };
                seen.lock().expect("sound").push(frame);
                let _ = peer.send.send(answer(id, result).into()).await;
            }
        });
        Box::pin(std::future::ready(Ok(link)))
    }

    fn transport(&self) -> &'static str {
        "memory"
    }
}

/// What a message's params say before `_meta`, which is ours.
fn given(frame: &[u8]) -> String {
    let arrived: Arrived<'_> = serde_json::from_slice(frame).expect("a message");
    let params = arrived.params.expect("params").get();
    let ours = params.rfind(r#""_meta":{"io.modelcontextprotocol/"#).expect("the modern family has it");
    format!("{}}}", params[..ours].trim_end_matches(','))
}

async fn through_memory(case: &Case) {
    let prepared = Prepared { result: case.result.clone(), seen: Arc::default() };
    let bridge = connect(Box::new(prepared.clone()), Era::Modern, LONG).await.expect("it connects");
    let session = bridge.client();
    let called = session.call("t", case.arguments.as_bytes(), None, LONG).await.expect("it answers");
    let params = Some(case.arguments.as_bytes());
    let request = Request { params, ..Request::default() };
    let asked = session.request("x/unknown", request, LONG).await.expect("it answers");
    let bridged = bridge.call_tool("t", &serde_json::json!({}), CallOptions::default()).await.expect("so");
    for result in [called, asked, bridged] {
        assert_eq!(String::from_utf8_lossy(&result), case.result);
    }
    let seen = prepared.seen.lock().expect("sound").clone();
    assert_eq!(given(&seen[1]), format!(r#"{{"name":"t","arguments":{}}}"#, case.arguments));
    let inner = case.arguments[1..case.arguments.len() - 1].trim_ascii();
    assert_eq!(given(&seen[2]), format!("{{{inner}}}"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// BR-4: every way to ask gives the result as the bytes that the server sent, and gives the server the
    /// bytes that the caller gave; here a message that is changed is cut down to the smallest.
    #[test]
    fn bytes_stay_bytes(case in case()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(through_memory(&case));
    }
}

/// What is deeper than a message can be is no message, over every link; what is as deep is one.
#[tokio::test]
async fn a_message_is_as_deep_as_it_can_be() {
    let nested = |depth: usize| format!(r#"{{"x":{}{}}}"#, "[".repeat(depth - 1), "]".repeat(depth - 1));
    let deepest = Case { result: nested(json::DEPTH_MAX), arguments: nested(json::DEPTH_MAX), cut: 0 };
    through_memory(&deepest).await;
    let carrier = Carrier::Json;
    let too_deep = nested(json::DEPTH_MAX + 1);
    let server =
        carrier.serve(move |call| vec![Step::Send(carrier.whole(&answer(call.id, &too_deep)))]).await;
    let bridge = connect(carrier.opener(&server), Era::Modern, LONG).await.expect("it connects");
    let cause = bridge.client().call("t", b"{}", None, LONG).await.expect_err("it is no message");
    assert!(matches!(cause, Cause::Protocol(_)), "{cause:?}");
    bridge.close().await;
}
