//! Servers that ask back while they work on a call: in the older family by requests of their own, in
//! the newer one by a result that wants more. The caller's handler sees the same either way.

use std::sync::Arc;

use bytes::Bytes;
use colibri::Pending;
use colibri::bridge::{Bridge, ConnectOptions, Handler};
use colibri::domain::log::Logger;
use colibri::mcp::error::Error;
use serde_json::{Value, json};

use super::menus::Call;
use super::partners::{self, Home, Partner};
use super::{PATIENCE, UNICODE, call, has_string, http, rmcp_host};

/// Answers whatever a server may ask, each time with the same word.
struct Answers;

impl Handler for Answers {
    fn asked(&self, method: &str, _: Option<Bytes>) -> Pending<'_, Result<Bytes, Error>> {
        let said = json!({ "type": "text", "text": UNICODE });
        let answer = match method {
            "elicitation/create" => Ok(json!({ "action": "accept", "content": { "name": UNICODE } })),
            "sampling/createMessage" => Ok(json!({ "role": "assistant", "model": "none", "content": said })),
            "roots/list" => Ok(json!({ "roots": [{ "uri": "file:///nowhere", "name": UNICODE }] })),
            other => Err(Error::unknown_method(other)),
        };
        Box::pin(std::future::ready(answer.map(|answer: Value| answer.to_string().into())))
    }
}

/// BR-1, PR-1: the reference server asks for input, for a model's words and for roots, over each of its
/// transports: on the stream of the call, and on the one for what nobody asked for.
#[tokio::test]
async fn server_everything_is_answered() {
    let home = Home::new();
    let by_http = partners::node_at_a_port(&home, "server-everything", &["streamableHttp"]).await;
    let by_sse = partners::node_at_a_port(&home, "server-everything", &["sse"]).await;
    for partner in [
        partners::node(&home, "server-everything", &["stdio"]),
        by_http.at(|port| format!("http://127.0.0.1:{port}/mcp")),
        by_sse.by_sse(|port| format!("http://127.0.0.1:{port}/sse")),
    ] {
        let bridge = connect(partner).await;
        check(&bridge, "trigger-elicitation-request", json!({})).await;
        check(&bridge, "trigger-sampling-request", json!({ "prompt": "anything" })).await;
        check(&bridge, "get-roots-list", json!({})).await;
        bridge.close().await;
    }
}

/// BR-1, PR-1: the Rust SDK's way in the newer family. It checks that its state comes back unchanged.
#[tokio::test]
async fn an_rmcp_server_is_answered() {
    let home = Home::new();
    let server = http::Server::start(rmcp_host::Host::new(false)).await;
    for partner in [partners::rmcp(&home, &[]), partners::elsewhere(&server.url())] {
        let bridge = connect(partner).await;
        check(&bridge, "ask", json!({})).await;
        bridge.close().await;
    }
}

async fn connect(partner: Partner) -> Bridge {
    let Partner { url, transport, .. } = partner;
    let (timeout, logger) = (Some(PATIENCE), Logger::silent());
    let mut options = ConnectOptions { timeout, transport, logger, ..ConnectOptions::default() };
    options.handler = Arc::new(Answers);
    options.client.capabilities = json!({ "elicitation": {}, "sampling": {}, "roots": {} });
    Bridge::connect(&url, options).await.unwrap_or_else(|error| panic!("{url}: {error}"))
}

/// What the handler answered is in the result.
async fn check(bridge: &Bridge, tool: &'static str, arguments: Value) {
    // A server offers some tools only once it has learnt what it may ask.
    let offered = async {
        while !bridge.tools().await.expect("it lists").tools.iter().any(|listed| listed.name == tool) {}
    };
    tokio::time::timeout(PATIENCE, offered).await.unwrap_or_else(|_| panic!("{tool} is not offered"));
    let result = call(bridge, &Call { tool, arguments }).await;
    assert_ne!(result["isError"], true, "{}: {tool}: {result}", bridge.url());
    assert!(has_string(&result, &|text| text.contains(UNICODE)), "{}: {tool}: {result}", bridge.url());
}
