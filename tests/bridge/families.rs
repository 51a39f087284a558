//! Which family a server speaks: found out, remembered, found out again; and what the newer one asks
//! of a caller.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use colibri::domain::audit::Pending;
use colibri::fleet::bridge::{
    Bridge, CallOptions, Cause, ConnectOptions, Era, Handler, Memory, TIMEOUT_VARIABLE,
};
use colibri::mcp::error::Error;
use colibri::mcp::revision::Family;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Do, Script, options, said};

#[derive(Default)]
struct Kept(Mutex<Option<Family>>);

impl Memory for Kept {
    fn recall(&self) -> Pending<'_, Option<Family>> {
        Box::pin(std::future::ready(*self.0.lock().expect("sound")))
    }

    fn remember(&self, family: Family) -> Pending<'_, ()> {
        *self.0.lock().expect("sound") = Some(family);
        Box::pin(std::future::ready(()))
    }
}

async fn connect(script: &Script, memory: &Arc<Kept>) -> Duration {
    let begun = Instant::now();
    let options = ConnectOptions { memory: Some(Arc::clone(memory) as _), ..options(script) };
    Bridge::connect("memory:kept", options).await.expect("it connects");
    begun.elapsed()
}

/// BR-1: what a server spoke is remembered, so that silence on the probe is waited for once.
#[tokio::test(start_paused = true)]
async fn a_silent_server_is_waited_for_once() {
    let memory = Arc::default();
    let silent = Script { discover: Do::Nothing, ..Script::legacy([]) };
    assert_eq!(connect(&silent, &memory).await, Duration::from_secs(10));
    assert_eq!(connect(&silent, &memory).await, Duration::ZERO);
    assert_eq!(silent.methods().iter().filter(|method| *method == "server/discover").count(), 1);
}

/// BR-1: a server that changed its family is asked again, and remembered anew.
#[tokio::test(start_paused = true)]
async fn a_changed_family_is_found_out() {
    let memory = Arc::new(Kept(Mutex::new(Some(Family::Legacy))));
    connect(&Script::modern([]), &memory).await;
    assert_eq!(*memory.0.lock().expect("sound"), Some(Family::Modern));
    connect(&Script::legacy([]), &memory).await;
    assert_eq!(*memory.0.lock().expect("sound"), Some(Family::Legacy));
}

/// BR-3: a remembered family does not make two attempts of one: what cannot be reached is not tried twice.
#[tokio::test(start_paused = true)]
async fn a_dead_server_is_not_asked_twice() {
    let memory = Arc::new(Kept(Mutex::new(Some(Family::Legacy))));
    let silent = Script { initialize: Do::Nothing, discover: Do::Nothing, ..Script::legacy([]) };
    let options = ConnectOptions { memory: Some(memory), ..options(&silent) };
    let Err(error) = Bridge::connect("memory:dead", options).await else { panic!("it says nothing") };
    assert_eq!(error.source, Cause::TimedOut(Duration::from_secs(30)));
    assert_eq!(silent.methods(), ["initialize"]);
}

/// BR-1: an answer that says nothing of versions is not modern, and the version error of a modern
/// server that speaks ours after all is worth one more question.
#[tokio::test(start_paused = true)]
async fn odd_answers_to_the_probe() {
    let anything = Script { discover: Do::Result(json!({})), ..Script::legacy([]) };
    let bridge = super::connect(&anything).await.expect("it connects");
    assert_eq!(bridge.revision().date, "2025-11-25");

    let other = json!({ "code": -32_022, "message": "no", "data": { "supported": ["2031-01-01"] } });
    let newer = Script { discover: Do::RawError(other), ..Script::modern([]) };
    let Err(error) = super::connect(&newer).await else { panic!("there is nothing in common") };
    assert!(matches!(&error.source, Cause::Version { server, .. } if server == "2031-01-01"), "{error}");
    assert!(!newer.methods().contains(&"initialize".to_owned()));

    let older = json!({ "code": -32_022, "message": "no", "data": { "supported": ["2025-06-18"] } });
    let only_older = Script { discover: Do::RawError(older), ..Script::legacy([]) };
    let bridge = super::connect(&only_older).await.expect("it is asked the old way");
    assert_eq!(bridge.revision().family, Family::Legacy);

    let ours = json!({ "code": -32_022, "message": "no", "data": { "supported": ["2026-07-28"] } });
    let stubborn = Script { discover: Do::RawError(ours), ..Script::modern([]) };
    assert!(super::connect(&stubborn).await.is_err());
    assert_eq!(stubborn.methods(), ["server/discover", "server/discover"]);
}

/// BR-3, BR-10: the deadline is the option, else the variable, else 30 s; what is no positive number
/// is refused, by name.
#[tokio::test(start_paused = true)]
async fn the_deadline_comes_from_the_option_or_the_environment() {
    let silent = Script { discover: Do::Nothing, initialize: Do::Nothing, ..Script::legacy([]) };
    let set = |value: &'static str| {
        let environment = move |name: &str| (name == TIMEOUT_VARIABLE).then(|| value.to_owned());
        ConnectOptions { environment: Arc::new(environment), ..options(&silent) }
    };
    let short = ConnectOptions { timeout: Some(Duration::from_millis(70)), ..set("5000") };
    for (options, millis) in [(set("5000"), 5000), (options(&silent), 30_000), (short, 70)] {
        let Err(error) = Bridge::connect("memory:silent", options).await else { panic!("it says nothing") };
        assert_eq!(error.source, Cause::TimedOut(Duration::from_millis(millis)));
    }
    for wrong in ["0", "-1", "1.5", "30s", "", "99999999999999999999999"] {
        let Err(error) = Bridge::connect("memory:silent", set(wrong)).await else { panic!("{wrong}") };
        assert!(matches!(error.source, Cause::Invalid(_)), "{wrong}: {error}");
        assert!(error.to_string().contains(TIMEOUT_VARIABLE) && !error.retryable, "{error}");
    }
}

/// BR-10: the variable is the deadline of calls too.
#[tokio::test(start_paused = true)]
async fn calls_inherit_the_deadline_of_the_connection() {
    let script = Script::legacy([Do::Nothing]);
    let environment = |name: &str| (name == TIMEOUT_VARIABLE).then(|| "1234".to_owned());
    let options = ConnectOptions { environment: Arc::new(environment), ..options(&script) };
    let bridge = Bridge::connect("memory:calls", options).await.expect("it connects");
    let once = CallOptions { max_attempts: 1, ..CallOptions::default() };
    let error = bridge.call_tool("t", &json!({}), once).await.expect_err("nothing answers");
    assert_eq!(error.source, Cause::TimedOut(Duration::from_millis(1234)));
}

/// Says yes to everything.
struct Willing;

impl Handler for Willing {
    fn asked(&self, method: &str, _: Option<Bytes>) -> Pending<'_, Result<Bytes, Error>> {
        assert_eq!(method, "elicitation/create");
        let accepted = json!({ "action": "accept", "content": { "ok": true } });
        Box::pin(std::future::ready(Ok(accepted.to_string().into())))
    }
}

/// BR-4: a call that needs input is asked again with it, the server's state returned byte for byte.
#[tokio::test(start_paused = true)]
async fn a_call_that_needs_input_gets_it() {
    let asks = |state: Option<&str>| {
        let mut asks = json!({
            "resultType": "input_required",
            "inputRequests": { "confirm": { "method": "elicitation/create", "params": { "message": "sure?" } } },
        });
        if let Some(state) = state {
            asks["requestState"] = state.into();
        }
        Do::Result(asks)
    };
    let script = Script::modern([asks(Some(r#"{"a": 1.0}"#)), asks(None), Do::Result(said("done"))]);
    let options = ConnectOptions { handler: Arc::new(Willing), era: Era::Modern, ..options(&script) };
    let bridge = Bridge::connect("memory:input", options).await.expect("it connects");
    let result = bridge.call_tool("t", &json!({ "x": 1 }), CallOptions::default()).await.expect("it ends");
    assert_eq!(serde_json::from_slice::<Value>(&result).expect("JSON"), said("done"));

    let seen = script.seen.lock().expect("sound");
    let calls: Vec<&Value> = seen.iter().filter(|message| message["method"] == "tools/call").collect();
    let given = json!({ "confirm": { "action": "accept", "content": { "ok": true } } });
    assert_eq!(calls[0]["params"].get("inputResponses"), None);
    assert_eq!(calls[1]["params"]["inputResponses"], given);
    assert_eq!(calls[1]["params"]["requestState"], r#"{"a": 1.0}"#);
    assert_eq!(calls[2]["params"].get("requestState"), None);
    assert!(calls.iter().all(|call| call["params"]["arguments"] == json!({ "x": 1 })));
    assert_ne!(calls[0]["id"], calls[1]["id"]);
}

/// BR-7: a call that asks on and on ends, and one that asks for what nobody gives says so.
#[tokio::test(start_paused = true)]
async fn a_call_that_asks_for_ever_ends() {
    let asks = Do::Result(json!({ "resultType": "input_required", "requestState": "again" }));
    let script = Script::modern(vec![asks; 20]);
    let bridge = super::connect(&script).await.expect("it connects");
    let error = bridge.call_tool("t", &json!({}), CallOptions::default()).await.expect_err("it never ends");
    assert!(matches!(error.source, Cause::Protocol(_)), "{error}");
    assert_eq!(script.methods().iter().filter(|method| *method == "tools/call").count(), 10);

    let asks =
        json!({ "resultType": "input_required", "inputRequests": { "k": { "method": "roots/list" } } });
    let script = Script::modern([Do::Result(asks)]);
    let bridge = super::connect(&script).await.expect("it connects");
    let error = bridge.call_tool("t", &json!({}), CallOptions::default()).await.expect_err("nobody answers");
    assert!(error.to_string().contains("roots/list"), "{error}");
}
