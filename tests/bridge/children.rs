//! Real children over stdio: colibri itself, and programs that misbehave.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use colibri::domain::log::Logger;
use colibri::fleet::bridge::{Bridge, BridgeError, CallOptions, ConnectOptions};
use colibri::fleet::error::Cause;
use colibri::fleet::link::stdio::{Children, Stdio};
use colibri::sandbox::{Policy, Spec};
use serde_json::{Value, json};

fn stdio(program: &str, arguments: &[&str], home: &Path) -> Stdio {
    let path = OsString::from("/usr/local/bin:/usr/bin:/bin");
    let environment = vec![("HOME".into(), home.as_os_str().to_owned()), ("PATH".into(), path)];
    let arguments = arguments.iter().map(OsString::from).collect();
    Stdio {
        spec: Spec { program: program.into(), arguments, environment, directory: None },
        policy: Policy::off(),
        frame_bytes_max: 4 << 20,
        children: Children::default(),
    }
}

fn options(opener: &Stdio, timeout: Duration) -> ConnectOptions {
    ConnectOptions {
        timeout: Some(timeout),
        transport: Some(Box::new(opener.clone())),
        logger: Logger::silent(),
        ..ConnectOptions::default()
    }
}

async fn connect(opener: &Stdio) -> Result<Bridge, BridgeError> {
    Bridge::connect("child", options(opener, Duration::from_secs(10))).await
}

/// A shell script as a server.
async fn connect_to_script(script: &str) -> Result<Bridge, BridgeError> {
    let home = tempfile::tempdir().expect("a home");
    connect(&stdio("sh", &["-c", script], home.path())).await
}

/// BR-1, PR-1: colibri calls colibri, the modern way, and leaves nothing behind.
#[tokio::test]
async fn a_real_child_is_called_and_ended() {
    let home = tempfile::tempdir().expect("a home");
    let bridge =
        connect(&stdio(env!("CARGO_BIN_EXE_colibri"), &["serve"], home.path())).await.expect("it connects");
    assert_eq!(bridge.revision().date, "2026-07-28");
    let listed = bridge.tools().await.expect("it lists");
    assert!(listed.tools.iter().any(|tool| tool.name == "server_ping"), "{listed:?}");
    let result =
        bridge.call_tool("server_ping", &json!({}), CallOptions::default()).await.expect("it answers");
    let result: Value = serde_json::from_slice(&result).expect("JSON");
    assert_eq!(result["structuredContent"]["data"]["mode"], "FULL");
    bridge.close().await;
    let error =
        bridge.call_tool("server_ping", &json!({}), CallOptions::default()).await.expect_err("closed");
    assert_eq!(error.source, Cause::Closed);
}

/// BR-7: a program that is not there, and one that ends at once, are told apart, with last words.
#[tokio::test]
async fn a_child_that_cannot_start_says_why() {
    let home = tempfile::tempdir().expect("a home");
    let Err(error) = connect(&stdio("no-such-program-here", &[], home.path())).await else {
        panic!("it is not there")
    };
    assert!(matches!(error.source, Cause::Start { .. }), "{error}");
    assert!(!error.retryable);

    let Err(error) = connect_to_script("echo no licence >&2; exit 3").await else { panic!("it ended") };
    let message = error.to_string();
    assert!(message.contains("code 3") && message.contains("no licence"), "{message}");
}

/// BR-1: a server that exits on the modern probe is started again and asked the old way.
#[tokio::test]
async fn a_child_that_exits_on_the_probe_is_started_again() {
    let script = r#"read line; case "$line" in
        *initialize*) echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{}}}'; cat >/dev/null;;
        *) exit 1;;
    esac"#;
    let bridge = connect_to_script(script).await.expect("the second start is asked with initialize");
    assert_eq!(bridge.revision().date, "2025-06-18");
    bridge.close().await;
}

/// BR-5: noise on stdout, an answer to nothing and a doubled answer change nothing.
#[tokio::test]
async fn noise_is_passed_over() {
    let script = r#"echo starting up...; read line
        echo '{"jsonrpc":"2.0","id":77,"result":{}}'
        echo '{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}'
        echo '{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}'
        read line; echo '{"jsonrpc":"2.0","id":2,"result":{"protocolVersion":"2025-11-25","capabilities":{}}}'
        read line; read line; printf '{"jsonrpc":"2.0","id":3,"result":{"n":1.50}}\n'; cat >/dev/null"#;
    let bridge = connect_to_script(script).await.expect("it connects in spite of the noise");
    let result = bridge.call_tool("t", &json!({}), CallOptions::default()).await.expect("it answers");
    assert_eq!(&result[..], br#"{"n":1.50}"#, "bytes stay bytes");
    bridge.close().await;
}

/// BR-5: a child that ends in the middle of a call ends the attempts at once.
#[tokio::test]
async fn a_child_that_ends_mid_call_ends_the_attempts() {
    let script = r#"read line; echo '{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}'
        read line; echo '{"jsonrpc":"2.0","id":2,"result":{"protocolVersion":"2025-11-25","capabilities":{}}}'
        read line; read line; echo out of memory >&2; kill -9 $$"#;
    let bridge = connect_to_script(script).await.expect("it connects");
    let error = bridge.call_tool("t", &json!({}), CallOptions::default()).await.expect_err("it died");
    assert_eq!(error.attempts, 1);
    let message = error.to_string();
    assert!(message.contains("signal 9") && message.contains("out of memory"), "{message}");
}

/// BR-9: a child that ignores everything, and its grandchild, are gone when closing returns.
#[tokio::test]
async fn closing_ends_the_whole_group() {
    let script = r#"trap '' TERM; sleep 600 & echo $! >&2
        read line; echo '{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}'
        read line; echo '{"jsonrpc":"2.0","id":2,"result":{"protocolVersion":"2025-11-25","capabilities":{}}}'
        while :; do sleep 600; done"#;
    let bridge = connect_to_script(script).await.expect("it connects");
    let grandchild = bridge.client().connection().last_words().expect("its pid");
    let process = Path::new("/proc").join(grandchild.trim()).join("status");
    assert!(process.exists(), "the grandchild runs");
    bridge.close().await;
    let state = std::fs::read_to_string(&process).unwrap_or_default();
    assert!(state.is_empty() || state.contains("State:\tZ"), "the grandchild is dead: {state}");
}

/// BR-9: a server that asks without end and reads nothing cannot keep a bridge from closing.
#[tokio::test]
async fn a_server_that_only_asks_can_be_closed() {
    let script = r#"read line; echo '{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}'
        read line; echo '{"jsonrpc":"2.0","id":2,"result":{"protocolVersion":"2025-11-25","capabilities":{}}}'
        while :; do echo '{"jsonrpc":"2.0","id":"p","method":"ping"}'; done"#;
    let bridge = connect_to_script(script).await.expect("it connects");
    let call = CallOptions { timeout: Some(Duration::from_millis(500)), max_attempts: 1, notices: None };
    bridge.call_tool("t", &json!({}), call).await.expect_err("nothing is answered");
    tokio::time::timeout(Duration::from_secs(20), bridge.close()).await.expect("it closes");
}

/// BR-3: a server that never answers is ended with all it started, although connecting gave up.
#[tokio::test]
async fn a_deadline_while_connecting_leaves_nobody_behind() {
    let home = tempfile::tempdir().expect("a home");
    let pid = home.path().join("pid");
    let script =
        format!("trap '' TERM; sleep 600 & echo $! > {}; while :; do sleep 600; done", pid.display());
    let silent = stdio("sh", &["-c", &script], home.path());
    let timeout = Duration::from_millis(700);
    let Err(error) = Bridge::connect("silent", options(&silent, timeout)).await else {
        panic!("it says nothing")
    };
    assert_eq!(error.source, Cause::TimedOut(timeout));
    let grandchild = std::fs::read_to_string(&pid).expect("it had started one");
    let state = std::fs::read_to_string(Path::new("/proc").join(grandchild.trim()).join("status"));
    let state = state.unwrap_or_default();
    assert!(state.is_empty() || state.contains("State:\tZ"), "the grandchild is dead: {state}");
}

/// BR-8: a call that is given up in the middle of a long line does not cost the others their pipe: the line is
/// written to its end, and the next call is heard.
#[tokio::test]
async fn a_line_that_was_begun_is_written_to_its_end() {
    let home = tempfile::tempdir().expect("a home");
    let gate = home.path().join("gate");
    let script = format!(
        r#"read line; echo '{{"jsonrpc":"2.0","id":1,"error":{{"code":-32601,"message":"no"}}}}'
        read line; echo '{{"jsonrpc":"2.0","id":2,"result":{{"protocolVersion":"2025-11-25","capabilities":{{}}}}}}'
        read line; while [ ! -e {gate} ]; do sleep 0.02; done
        while read -r line; do
          id=$(printf %s "$line" | head -c 60 | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
          [ -n "$id" ] && echo '{{"jsonrpc":"2.0","id":'$id',"result":{{"content":[]}}}}'
        done"#,
        gate = gate.display()
    );
    let bridge = connect(&stdio("sh", &["-c", &script], home.path())).await.expect("it connects");
    let short = CallOptions { timeout: Some(Duration::from_millis(300)), max_attempts: 1, notices: None };
    let long = json!({ "text": "x".repeat(300_000) });
    bridge.call_tool("t", &long, short).await.expect_err("nobody reads");
    std::fs::write(&gate, "").expect("a gate");
    bridge.call_tool("t", &json!({}), CallOptions::default()).await.expect("the pipe is whole");
    bridge.close().await;
}
