//! Stories of the turn: one call of a tool at a time, in the order they came, and nobody waits for
//! somebody who has left.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use colibri::tools::{Context, ToolConfig};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Barrier;

use super::tools::{self, Gate, Nothing, Said};
use crate::support::library::bench;

#[derive(Deserialize, JsonSchema)]
struct Number {
    number: u32,
}

/// CO-4: a hundred calls sent at once run one at a time, in the order they were sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn calls_of_one_tool_run_one_at_a_time_in_order_of_arrival() {
    let (builder, mut bench) = bench();
    let mut server = builder.build();
    let (order, busy) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
    let noted = Arc::clone(&order);
    let tool = move |Number { number }: Number, _: Context| {
        let (order, busy) = (Arc::clone(&noted), Arc::clone(&busy));
        async move {
            assert!(!busy.swap(true, Ordering::SeqCst), "two at once");
            order.lock().unwrap().push(number);
            // Gives the scheduler every chance to mix them up.
            for _ in 0..number % 7 {
                tokio::task::yield_now().await;
            }
            busy.store(false, Ordering::SeqCst);
            Ok(Said { text: number.to_string() })
        }
    };
    server.register("count", ToolConfig::default(), tool).unwrap();
    bench.start(&mut server).await;

    let ids: Vec<u64> = (0..100).map(|n| bench.client.begin_call("count", &json!({ "number": n }))).collect();
    for (number, id) in ids.into_iter().enumerate() {
        let answer = bench.client.answer(id).await;
        assert_eq!(answer["result"]["structuredContent"]["data"]["text"], number.to_string(), "{answer}");
    }
    assert_eq!(*order.lock().unwrap(), (0..100).collect::<Vec<u32>>());
    let entered: Vec<Value> =
        bench.sink.enters().iter().map(|enter| serde_json::from_slice(&enter.arguments).unwrap()).collect();
    assert_eq!(entered, (0..100).map(|n| json!({ "number": n })).collect::<Vec<_>>());
    let pairs = bench.sink.briefs();
    assert!(pairs.chunks(2).all(|pair| pair == ["enter count", "exit count ok"]), "{pairs:?}");
}

/// CO-4: different tools run concurrently; these two finish only if both are inside at once.
#[tokio::test]
async fn different_tools_run_concurrently() {
    let (builder, mut bench) = bench();
    let mut server = builder.build();
    let meeting = Arc::new(Barrier::new(2));
    for name in ["left", "right"] {
        let meeting = Arc::clone(&meeting);
        let tool = move |_: Nothing, _: Context| {
            let meeting = Arc::clone(&meeting);
            async move {
                meeting.wait().await;
                Ok(Said::default())
            }
        };
        server.register(name, ToolConfig::default(), tool).unwrap();
    }
    bench.start(&mut server).await;
    let ids = ["left", "right"].map(|tool| bench.client.begin_call(tool, &json!({})));
    for id in ids {
        assert_eq!(bench.client.answer(id).await["result"]["isError"], false);
    }
}

/// CO-4: a cancelled waiter leaves at once, while it is still somebody else's turn; the one behind it
/// moves up.
#[tokio::test]
async fn a_cancelled_waiter_leaves_the_line_at_once() {
    let (builder, mut bench) = bench();
    let mut server = builder.build();
    let gate = Gate::register(&mut server);
    bench.start(&mut server).await;
    let [first, second, third] = [0; 3].map(|_| bench.client.begin_call("gate", &json!({})));
    bench.sink.told("enter gate").await;

    bench.client.cancel(second);
    bench.sink.told("rejected gate cancelled HANDLER_ERROR").await;
    assert_eq!(bench.sink.briefs().len(), 2, "the first is still inside, the third still waits");
    gate.permits.add_permits(2);
    for id in [first, third] {
        assert_eq!(bench.client.answer(id).await["result"]["isError"], false);
    }
    assert_eq!(bench.client.end().await, [] as [Value; 0], "nobody waits for the second's answer");
    assert_eq!(bench.sink.briefs()[2..], ["exit gate ok", "enter gate", "exit gate ok"]);
}

/// CO-4, CO-8: a running call that is cancelled ends, is on record as cancelled, and is not answered;
/// its turn is free.
#[tokio::test]
async fn a_cancelled_call_ends_on_record_and_unanswered() {
    let (builder, mut bench) = bench();
    let mut server = builder.build();
    let gate = Gate::register(&mut server);
    bench.start(&mut server).await;
    let cancelled = bench.client.begin_call("gate", &json!({}));
    bench.sink.told("enter gate").await;
    bench.client.cancel(cancelled);
    bench.sink.told("exit gate cancelled HANDLER_ERROR").await;
    assert_eq!(gate.permits.available_permits(), 0);

    gate.permits.add_permits(1);
    let next = bench.client.begin_call("gate", &json!({}));
    assert_eq!(bench.client.answer(next).await["result"]["isError"], false);
    assert_eq!(bench.client.end().await, [] as [Value; 0]);
}

/// CO-4, CO-7: a panic gives the turn back, every time.
#[tokio::test]
async fn a_panic_gives_the_turn_back() {
    let (builder, mut bench) = bench();
    let mut server = builder.build();
    tools::register(&mut server);
    bench.start(&mut server).await;
    let hows = ["panic_at_once", "panic_later", "panic_at_once", "behave"];
    let ids = hows.map(|how| bench.client.begin_call("misbehave", &json!({ "how": how })));
    let mut errors = Vec::new();
    for id in ids {
        errors.push(bench.client.answer(id).await["result"]["isError"].as_bool().unwrap());
    }
    assert_eq!(errors, [true, true, true, false]);
}

/// CO-4, CO-7: a call that is cancelled is dropped where it stands; if that panics, it is the call
/// that has failed, and not colibri.
#[tokio::test]
async fn a_panic_on_the_way_out_fails_the_call_alone() {
    struct Trap;
    impl Drop for Trap {
        fn drop(&mut self) {
            assert!(std::thread::panicking(), "dropped in the middle");
        }
    }
    let (builder, mut bench) = bench();
    let mut server = builder.build();
    let tool = |_: Nothing, _: Context| async {
        let _trap = Trap;
        std::future::pending::<()>().await;
        Ok(Said::default())
    };
    server.register("trap", ToolConfig::default(), tool).unwrap();
    bench.start(&mut server).await;
    let id = bench.client.begin_call("trap", &json!({}));
    bench.sink.told("enter trap").await;
    bench.client.cancel(id);
    bench.sink.told("exit trap error HANDLER_ERROR").await;
    let exit = bench.sink.exits().remove(0);
    assert_eq!(exit.error.unwrap().message, "the tool panicked: dropped in the middle");
}
