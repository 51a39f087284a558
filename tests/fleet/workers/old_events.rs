//! A server of the transport of 2024-11-05 with many streams at the same time, each with messages of its own. A message
//! to where the streams begin is not known to it, as newer clients find out.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use futures_util::stream::unfold;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// By the number of each stream: where its events go.
type Streams = Arc<Mutex<HashMap<String, mpsc::Sender<String>>>>;

/// Serves at `/sse` until the runtime ends.
pub(super) async fn serve() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a port");
    let address = listener.local_addr().expect("it is bound");
    let routes = Router::new().route("/sse", get(stream)).route("/message", post(message));
    let routes = routes.with_state(Streams::default());
    tokio::spawn(async move { axum::serve(listener, routes).await });
    address
}

async fn stream(State(streams): State<Streams>) -> Response {
    let (events, queue) = mpsc::channel(16);
    let number = {
        let mut streams = streams.lock().expect("sound");
        let number = streams.len().to_string();
        streams.insert(number.clone(), events.clone());
        number
    };
    events.send(format!("event: endpoint\ndata: /message?{number}\n\n")).await.expect("it is open");
    let body = unfold(queue, async |mut queue| {
        let event = queue.recv().await?;
        Some((Ok::<_, std::io::Error>(event), queue))
    });
    ([(CONTENT_TYPE, "text/event-stream")], Body::from_stream(body)).into_response()
}

async fn message(State(streams): State<Streams>, RawQuery(number): RawQuery, body: Bytes) -> Response {
    let request: Value = serde_json::from_slice(&body).expect("we send JSON");
    let result = match request["method"].as_str().unwrap_or_default() {
        "initialize" => json!({ "protocolVersion": "2024-11-05", "capabilities": { "tools": {} } }),
        "tools/list" => json!({ "tools": [{ "name": "t", "inputSchema": { "type": "object" } }] }),
        "tools/call" => json!({ "content": [] }),
        _ => Value::Null,
    };
    let events = streams.lock().expect("sound").get(&number.unwrap_or_default()).cloned();
    if let (Some(events), true) = (events, request["id"].is_u64()) {
        let mut answer = json!({ "jsonrpc": "2.0", "id": request["id"], "result": result });
        if result.is_null() {
            answer = json!({ "jsonrpc": "2.0", "id": request["id"], "error": { "code": -32_601, "message": "no" } });
        }
        // Whoever asked may have left.
        let _ = events.send(format!("data: {answer}\n\n")).await;
    }
    StatusCode::ACCEPTED.into_response()
}
