//! Stories of a server's life: start, stop, and what is refused in between.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use colibri::app::{STARTUP_TIMEOUT, StartError};
use colibri::domain::mode::Mode;
use colibri::serve::{Ended, Limits, Transport};
use colibri::tools::{Context, ToolConfig};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::tools::{self, Gate, Nothing, Said, echo};
use crate::support::library::{Client, PATIENCE, bench};

/// T-19, CO-11: `start` returns when the transport runs; it waits for no message, and says two lines.
#[tokio::test]
async fn the_start_waits_for_no_client() {
    let (builder, mut bench) = bench();
    let mut server = builder.mode(Mode::Readonly).version("9.9.9-test").build();
    server.start().await.unwrap();
    assert!(server.is_connected());
    assert_eq!(
        bench.log.lines(),
        ["[colibri] starting in mode=READONLY version=9.9.9-test", "[colibri] ready"]
    );
    bench.client.initialize().await;
    server.start().await.expect("starting a running server does nothing");
    assert_eq!(bench.log.lines().len(), 2);
}

/// T-20, CO-11: a transport that never comes is given up, to the millisecond.
#[tokio::test(start_paused = true)]
async fn a_transport_that_never_comes_is_a_startup_timeout() {
    for (given, expected) in
        [(None, STARTUP_TIMEOUT), (Some(Duration::from_millis(50)), Duration::from_millis(50))]
    {
        let (builder, bench) = bench();
        let builder = builder.transport_from(std::future::pending());
        let builder = if let Some(timeout) = given { builder.startup_timeout(timeout) } else { builder };
        let mut server = builder.build();
        let begun = Instant::now();
        let error = server.start().await.unwrap_err();
        assert_eq!((error.to_string().as_str(), begun.elapsed()), ("startup timeout exceeded", expected));
        assert!(matches!(error, StartError::Timeout));
        assert!(!server.is_connected());
        assert_eq!(bench.log.lines().len(), 1, "it never says that it is ready");
        assert!(matches!(server.start().await, Err(StartError::Over)));
    }
}

/// CO-11: a transport that cannot be had is told, with its cause.
#[tokio::test]
async fn a_transport_that_fails_fails_the_start() {
    let (builder, _bench) = bench();
    let gone = std::future::ready(Err::<Transport, _>(std::io::Error::other("no such wire")));
    let mut server = builder.transport_from(gone).build();
    let error = server.start().await.unwrap_err();
    assert_eq!(error.to_string(), "cannot connect the transport");
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "no such wire");
}

/// T-23, CO-11: stopping closes the transport; more stopping does nothing more.
#[tokio::test]
async fn the_stop_closes_the_transport() {
    let (builder, mut bench) = bench();
    let mut server = builder.build();
    bench.start(&mut server).await;
    server.stop().await;
    assert_eq!(bench.client.frame().await, None, "the client reads the end");
    assert!(!server.is_connected());
    server.stop().await;
    assert_eq!(server.wait().await, None);
}

/// CO-11: a server lives once; what comes too late is refused in words.
#[tokio::test]
async fn what_comes_too_late_is_refused() {
    let (builder, mut bench) = bench();
    let mut server = builder.build();
    bench.start(&mut server).await;
    let too_late = "tool registered too late: late; register before the server starts";
    assert_eq!(server.register("late", ToolConfig::default(), echo).unwrap_err().to_string(), too_late);
    server.stop().await;
    assert_eq!(server.register("late", ToolConfig::default(), echo).unwrap_err().to_string(), too_late);
    assert_eq!(server.start().await.unwrap_err().to_string(), "the server has ended; build another");
    assert!(matches!(server.into_calls(), Err(StartError::Over)));
}

/// CO-11: a stop before the start needs nothing, and the server still starts and ends at once.
#[tokio::test]
async fn a_stop_before_the_start_is_remembered() {
    let (builder, _bench) = bench();
    let mut server = builder.build();
    server.stop().await;
    server.start().await.unwrap();
    assert_eq!(server.wait().await, Some(Ended::Stopped));
}

/// CO-11: the end of the input is a clean end; so is a stop through the handle.
#[tokio::test]
async fn a_server_ends_when_its_client_does_or_when_it_is_told() {
    let (builder, mut one) = bench();
    let mut server = builder.build();
    one.start(&mut server).await;
    assert_eq!(one.client.end().await, [] as [Value; 0]);
    assert_eq!(server.wait().await, Some(Ended::EndOfInput));

    let (builder, mut one) = bench();
    let mut server = builder.build();
    one.start(&mut server).await;
    server.stopper().cancel();
    assert_eq!(server.wait().await, Some(Ended::Stopped));
}

/// CO-11: calls in flight are let end, then cancelled; each is answered and on record.
#[tokio::test]
async fn a_stop_cancels_calls_in_flight_and_records_their_end() {
    let (builder, mut bench) = bench();
    let mut server = builder.build();
    let _gate = Gate::register(&mut server);
    bench.start(&mut server).await;
    let id = bench.client.begin_call("gate", &json!({}));
    bench.sink.told("enter gate").await;
    let begun = Instant::now();
    server.stop().await;
    assert!(begun.elapsed() < Duration::from_secs(2), "SDKs kill after two seconds");
    assert_eq!(bench.sink.briefs(), ["enter gate", "exit gate cancelled HANDLER_ERROR"]);
    let answer = bench.client.answer(id).await;
    assert_eq!(answer["error"]["message"], "colibri is stopping: the call was cancelled", "{answer}");
}

/// CO-11: a tool that does not come back holds nobody up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stubborn_tool_does_not_hold_up_the_stop() {
    let (builder, mut bench) = bench();
    let mut server = builder.build();
    let release = Arc::new((Mutex::new(false), Condvar::new()));
    let held = Arc::clone(&release);
    let tool = move |_: Nothing, _: Context| {
        let held = Arc::clone(&held);
        async move {
            // Blocks its thread and looks at no cancellation: no well-behaved tool, but they exist.
            let waited = held.1.wait_timeout_while(held.0.lock().unwrap(), PATIENCE, |free| !*free);
            drop(waited.unwrap());
            Ok(Said::default())
        }
    };
    server.register("stubborn", ToolConfig::default(), tool).unwrap();
    bench.start(&mut server).await;
    bench.client.begin_call("stubborn", &json!({}));
    bench.sink.told("enter stubborn").await;
    let begun = Instant::now();
    server.stop().await;
    let elapsed = begun.elapsed();
    *release.0.lock().unwrap() = true;
    release.1.notify_all();
    assert!(elapsed < Duration::from_secs(2), "SDKs kill after two seconds; it took {elapsed:?}");
    assert_eq!(bench.log.lines().last().unwrap(), "[colibri] 1 calls did not end when they were cancelled");
}

/// CO-11: what a client asks after the stop is not begun.
#[tokio::test]
async fn no_request_is_taken_after_the_stop() {
    let (builder, mut bench) = bench();
    let mut server = builder.build();
    tools::register(&mut server);
    bench.start(&mut server).await;
    server.stopper().cancel();
    server.wait().await;
    bench.client.begin_call("echo", &json!({ "text": "late" }));
    assert_eq!(bench.client.frame().await, None);
    assert_eq!(bench.sink.briefs(), [] as [&str; 0]);
}

/// CO-1: the bounds of the connection are the ones that were given.
#[tokio::test]
async fn a_server_keeps_the_limits_it_was_given() {
    let (builder, mut bench) = bench();
    let mut server = builder.limits(Limits { frame_bytes_max: 300, ..Limits::default() }).build();
    tools::register(&mut server);
    bench.start(&mut server).await;
    bench.client.begin_call("echo", &json!({ "text": "x".repeat(300) }));
    let refused = bench.client.frame().await.expect("an answer");
    assert_eq!(refused["error"]["message"], "the frame is longer than 300 bytes");
}

/// CO-11: a connection that breaks is told, and the server is over.
#[tokio::test]
async fn a_client_that_goes_away_ends_the_server() {
    let (builder, bench) = bench();
    let (client, transport) = Client::pair();
    let mut server = builder.transport(transport).build();
    server.start().await.unwrap();
    drop(client);
    assert!(server.wait().await.is_some());
    assert!(!server.is_connected());
    drop(bench);
}
