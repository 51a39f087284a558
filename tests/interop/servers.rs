//! colibri's bridge against servers that others wrote: one story, told to each of them.
//!
//! What a server can be made to show, and by which of its tools, is its [`Menu`]; what must be seen is
//! written once, in [`meet`].

mod asked;
mod behind;
mod http;
mod menus;
mod partners;
mod rmcp_host;

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use colibri::bridge::{Bridge, CallOptions, Cause, ConnectOptions, Era, Notice};
use colibri::domain::log::Logger;
use colibri::fleet::link::Carrier;
use colibri::fleet::web::Endpoint;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::bridge::support::worker;
use menus::{Call, Menu};
use partners::{Home, Partner};

const LEGACY: &str = "2025-11-25";
const MODERN: &str = "2026-07-28";

/// In every text that must survive the way there and back.
const UNICODE: &str = "Zürich 東京 🐦 שלום e\u{301}";

/// What a big result has at least.
const BIG_BYTES: usize = 1 << 20;

/// For whatever a loaded machine may take; nothing is measured by it.
const PATIENCE: Duration = Duration::from_secs(30);

/// A deadline that is meant to pass.
const SHORT: Duration = Duration::from_millis(700);

/// BR-1, BR-4, BR-8, BR-9, PR-1: the reference server that has everything.
#[tokio::test]
async fn server_everything_over_stdio() {
    let home = Home::new();
    let partner = partners::node(&home, "server-everything", &["stdio"]);
    meet(&home, partner, Era::Auto, LEGACY, menus::everything()).await;
}

/// BR-1, BR-4, BR-9, PR-1: files with odd names, of 1 MB, and of bytes that are no text.
#[tokio::test]
async fn server_filesystem_over_stdio() {
    let home = Home::new();
    let menu = menus::filesystem(home.path());
    let partner = partners::node(&home, "server-filesystem", &[menu.folder()]);
    meet(&home, partner, Era::Auto, LEGACY, menu).await;
}

/// BR-1, BR-4, BR-9, PR-1.
#[tokio::test]
async fn server_memory_over_stdio() {
    let home = Home::new();
    let partner = partners::node(&home, "server-memory", &[]);
    meet(&home, partner, Era::Auto, LEGACY, menus::memory()).await;
}

/// BR-1, BR-4, BR-9, PR-1: the Python SDK's current line. It locks its family by the first request, so
/// that a probe decides, and `initialize` without one works too.
#[tokio::test]
async fn server_time_over_stdio() {
    for (era, revision) in [(Era::Auto, MODERN), (Era::Modern, MODERN), (Era::Legacy, LEGACY)] {
        let home = Home::new();
        let partner = partners::python(&home, "mcp-server-time", &["--local-timezone", "UTC"]);
        meet(&home, partner, era, revision, menus::time()).await;
    }
}

/// BR-1, BR-4, BR-9, PR-1: the same SDK, with results of 1 MB.
#[tokio::test]
async fn server_git_over_stdio() {
    let home = Home::new();
    let menu = menus::git(home.path());
    let partner = partners::python(&home, "mcp-server-git", &["--repository", menu.folder()]);
    meet(&home, partner, Era::Auto, MODERN, menu).await;
}

/// BR-1, BR-4, BR-8, BR-9, PR-1: the Rust SDK, by probing and by `initialize`.
#[tokio::test]
async fn an_rmcp_server_of_both_families_over_stdio() {
    for (era, revision) in [(Era::Auto, MODERN), (Era::Legacy, LEGACY)] {
        let home = Home::new();
        meet(&home, partners::rmcp(&home, &[]), era, revision, menus::ours()).await;
    }
}

/// BR-1: the Rust SDK's answer to the probe, if it knows only the older family: its versions, with the
/// code that otherwise only a modern server has.
#[tokio::test]
async fn an_rmcp_server_of_the_older_family_over_stdio() {
    let home = Home::new();
    meet(&home, partners::rmcp(&home, &["legacy"]), Era::Auto, LEGACY, menus::ours()).await;
}

/// BR-1, BR-4, BR-8, BR-9, PR-1: sessions, answers as events, and a stream of what was not asked for.
#[tokio::test]
async fn server_everything_over_http() {
    let home = Home::new();
    let running = partners::node_at_a_port(&home, "server-everything", &["streamableHttp"]).await;
    let partner = running.at(|port| format!("http://127.0.0.1:{port}/mcp"));
    meet(&home, partner, Era::Auto, LEGACY, menus::everything()).await;
}

/// BR-1, BR-4, BR-8, BR-9, PR-1: the older HTTP with server-sent events, asked for by its name, and
/// found behind an address that does not say so.
#[tokio::test]
async fn server_everything_over_sse() {
    let home = Home::new();
    let running = partners::node_at_a_port(&home, "server-everything", &["sse"]).await;
    let named = running.by_sse(|port| format!("http://127.0.0.1:{port}/sse"));
    meet(&home, named, Era::Auto, LEGACY, menus::everything()).await;
    let found = running.at(|port| format!("http://127.0.0.1:{port}/sse"));
    meet(&home, found, Era::Auto, LEGACY, menus::everything()).await;
}

/// BR-1, BR-4, BR-8, BR-9, PR-1: the Rust SDK, by probing and by `initialize`, and where it knows only
/// the older family. No session is left behind.
#[tokio::test]
async fn an_rmcp_server_over_http() {
    for (legacy_only, era, revision) in
        [(false, Era::Auto, MODERN), (false, Era::Legacy, LEGACY), (true, Era::Auto, LEGACY)]
    {
        let server = http::Server::start(rmcp_host::Host::new(legacy_only)).await;
        let partner = partners::elsewhere(&server.url());
        meet(&Home::new(), partner, era, revision, menus::ours()).await;
        assert_eq!(server.sessions().await, 0, "closing left a session");
    }
}

/// SB-4: the same from a worker process. Its session too is ended with it.
#[tokio::test]
async fn an_rmcp_server_from_a_worker() {
    for (legacy_only, era, revision) in [(false, Era::Auto, MODERN), (true, Era::Auto, LEGACY)] {
        let server = http::Server::start(rmcp_host::Host::new(legacy_only)).await;
        let endpoint = Endpoint::new(&server.url()).expect("an address");
        let transport = Some(worker(endpoint, Carrier::Http));
        let partner = Partner { transport, ..partners::elsewhere(&server.url()) };
        meet(&Home::new(), partner, era, revision, menus::ours()).await;
        assert_eq!(server.sessions().await, 0, "closing left a session");
    }
}

/// BR-1, BR-4, BR-8, BR-9, PR-1: the Python SDK's current line.
#[tokio::test]
async fn a_python_server_over_http() {
    let home = Home::new();
    let running = partners::python_at_a_port(&home, "mcp2", "http").await;
    for (era, revision) in [(Era::Auto, MODERN), (Era::Legacy, LEGACY)] {
        let partner = running.at(|port| format!("http://127.0.0.1:{port}/mcp"));
        meet(&home, partner, era, revision, menus::ours()).await;
    }
}

/// BR-1, BR-4, BR-8, BR-9, PR-1: the Python SDK's 1.x line, which alone has WebSocket.
#[tokio::test]
async fn a_python_server_over_websocket() {
    let home = Home::new();
    let running = partners::python_at_a_port(&home, "mcp1", "websocket").await;
    let partner = running.at(|port| format!("ws://127.0.0.1:{port}/ws"));
    meet(&home, partner, Era::Auto, LEGACY, menus::ours()).await;
}

/// The story: connect, list, call in every way the menu has, close, and nothing is left.
async fn meet(home: &Home, partner: Partner, era: Era, revision: &str, menu: Menu) {
    let Partner { url, transport, is_elsewhere } = partner;
    let (timeout, logger) = (Some(PATIENCE), Logger::silent());
    let options = ConnectOptions { timeout, transport, era, logger, ..ConnectOptions::default() };
    let bridge = Bridge::connect(&url, options).await.unwrap_or_else(|error| panic!("{url}: {error}"));
    assert_eq!(bridge.revision().date, revision, "{url}");

    list(&bridge, &menu).await;
    shows(&bridge, &menu).await;
    if let Some((call, steps)) = &menu.progress {
        progress(&bridge, call, *steps).await;
    }
    if let Some(slow) = &menu.slow {
        cancel(&bridge, slow, menu.taken_back.as_ref()).await;
    }

    assert!(is_elsewhere || !home.processes().is_empty(), "its process can be told from others");
    bridge.close().await;
    let error = bridge.call_tool("any", &Value::Null, CallOptions::default()).await.expect_err("closed");
    assert_eq!(error.source, Cause::Closed);
    if !is_elsewhere {
        assert_eq!(home.processes(), [] as [u32; 0], "closing left a process");
    }
}

async fn list(bridge: &Bridge, menu: &Menu) {
    let listed = bridge.tools().await.expect("it lists");
    assert_eq!(listed.left_out, [] as [String; 0]);
    for tool in menu.tools() {
        assert!(listed.tools.iter().any(|listed| listed.name == tool), "{tool} is not in {listed:?}");
    }
}

async fn shows(bridge: &Bridge, menu: &Menu) {
    let plain = call(bridge, &menu.plain).await;
    assert_ne!(plain["isError"], true, "{plain}");
    assert!(has_string(&plain, &|text| text.contains(menu.expected)), "{plain}");

    let failed = call(bridge, &menu.error).await;
    assert_eq!(failed["isError"], true, "{failed}");

    let unicode = call(bridge, &menu.unicode).await;
    assert!(has_string(&unicode, &|text| text.contains(UNICODE)), "{unicode}");

    if let Some(big) = &menu.big {
        let big = call(bridge, big).await;
        assert_ne!(big["isError"], true);
        assert!(has_string(&big, &|text| text.len() >= BIG_BYTES), "no string of 1 MB");
    }
    if let Some((binary, bytes)) = &menu.binary {
        let result = call(bridge, binary).await;
        let is_it = |text: &str| BASE64.decode(text).is_ok_and(|decoded| decoded.starts_with(bytes));
        assert!(has_string(&result, &is_it), "{result}");
    }
}

/// Progress comes while the call runs, in order, up to the last step, and then the result.
async fn progress(bridge: &Bridge, call: &Call, steps: u32) {
    let (notices, mut told) = mpsc::channel(64);
    let options = CallOptions { max_attempts: 1, notices: Some(notices), ..CallOptions::default() };
    let result = bridge.call_tool(call.tool, &call.arguments, options).await.expect("it answers");
    assert_ne!(parse(&result)["isError"], true);
    let mut seen = Vec::new();
    while let Ok(Notice { method, params }) = told.try_recv() {
        assert_eq!(method, "notifications/progress");
        seen.push(parse(&params.expect("what progress"))["progress"].as_f64().expect("a number"));
    }
    assert_eq!(seen, (1..=steps).map(f64::from).collect::<Vec<_>>());
}

/// A deadline ends the call here and, where the server can be asked, there; the connection stays good.
async fn cancel(bridge: &Bridge, slow: &Call, taken_back: Option<&Call>) {
    let before = count(bridge, taken_back).await;
    let options = CallOptions { timeout: Some(SHORT), max_attempts: 1, notices: None };
    let error = bridge.call_tool(slow.tool, &slow.arguments, options).await.expect_err("it takes longer");
    assert!(matches!(error.source, Cause::TimedOut(_)), "{error}");
    assert_eq!(bridge.client().connection().in_flight(), 0);
    let heard = async { while taken_back.is_some() && count(bridge, taken_back).await == before {} };
    tokio::time::timeout(PATIENCE, heard).await.expect("the server is told that the call was taken back");
}

/// How many calls were taken back, in the server's own words; nothing if it cannot be asked.
async fn count(bridge: &Bridge, asked: Option<&Call>) -> Option<u64> {
    let result = call(bridge, asked?).await;
    let text = result["content"][0]["text"].as_str().expect("it answers in words");
    Some(text.parse().expect("a number"))
}

async fn call(bridge: &Bridge, call: &Call) -> Value {
    let options = CallOptions { max_attempts: 1, ..CallOptions::default() };
    let result = bridge.call_tool(call.tool, &call.arguments, options).await;
    parse(&result.unwrap_or_else(|error| panic!("{}: {error}", call.tool)))
}

fn parse(raw: &Bytes) -> Value {
    serde_json::from_slice(raw).expect("a result is JSON")
}

/// Whether some string in it, at any depth, is as asked.
fn has_string(value: &Value, is_it: &dyn Fn(&str) -> bool) -> bool {
    match value {
        Value::String(text) => is_it(text),
        Value::Array(items) => items.iter().any(|item| has_string(item, is_it)),
        Value::Object(members) => members.values().any(|member| has_string(member, is_it)),
        _ => false,
    }
}
