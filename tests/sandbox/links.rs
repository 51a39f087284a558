//! What a link to a sandboxed server knows of it: how it ended, and which layers it runs without.

use std::ffi::OsString;
use std::time::Duration;

use colibri::domain::end::End;
use colibri::domain::log::Logger;
use colibri::domain::provider::Limit;
use colibri::fleet::bridge::{Bridge, CallOptions, Cause, ConnectOptions};
use colibri::fleet::era::Era;
use colibri::fleet::link::stdio::{Children, Stdio};
use colibri::sandbox::policy::Limits;
use colibri::sandbox::{Layer, Policy, Spec};
use serde_json::json;

use super::support::{PATIENCE, Villain};

const FRAME_BYTES_MAX: usize = 64 << 10;

/// A server that introduces itself, reads a call, and then does this. `$id` is the call's.
async fn serving(villain: &Villain, text: &str, policy: Policy) -> Bridge {
    let words = r#"
        next() { IFS= read -r line || exit 0; rest=${line#*'"id":'}; id=${rest%%[,\}]*}; }
        answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
        next; answer '{"protocolVersion":"2025-11-25","capabilities":{}}'; next; next
    "#;
    let arguments = vec!["-c".into(), OsString::from(format!("{words}\n{text}"))];
    let spec = Spec { program: "sh".into(), arguments, ..villain.spec(&[]) };
    let opener = Stdio { spec, policy, frame_bytes_max: FRAME_BYTES_MAX, children: Children::default() };
    let options = ConnectOptions {
        timeout: Some(PATIENCE),
        transport: Some(Box::new(opener)),
        logger: Logger::silent(),
        era: Era::Legacy,
        ..ConnectOptions::default()
    };
    Bridge::connect("server", options).await.expect("it introduces itself")
}

async fn call(bridge: &Bridge) -> Result<bytes::Bytes, Cause> {
    bridge.client().call("t", b"{}", None, PATIENCE).await
}

fn limited(limits: Limits) -> Policy {
    Policy { limits, ..Policy::default() }
}

/// T7 of the abuse list: a line that does not end fails the call, and past the output limit the server is
/// ended for it; neither costs memory.
#[tokio::test]
async fn a_line_without_end_ends_the_server() {
    let villain = Villain::new();
    let limits = Limits { output_bytes: Some(1 << 20), ..Limits::default() };
    let flood = format!("exec {} flood 1", villain.program().display());
    for policy in [limited(limits.clone()), Policy { limits, ..Policy::off() }] {
        let bridge = serving(&villain, &flood, policy).await;
        let error = call(&bridge).await.expect_err("it is no answer");
        assert!(matches!(error, Cause::Protocol(_)), "skipped at once: {error}");
        let connection = bridge.client().connection();
        let gone = tokio::time::timeout(PATIENCE, connection.ended()).await.expect("it ends");
        assert!(gone.to_string().contains("it said more than it may"), "{gone}");
        assert_eq!(connection.end(), Some(End::Output));
        assert_eq!(connection.end().and_then(|end| end.limit()), Some(Limit::Output));
        villain.assert_gone();
        bridge.close().await;
    }
}

/// T7 of the abuse list: what stays below the output limit costs its call and nothing else, and lines that
/// end are not added up.
#[tokio::test]
async fn a_long_line_costs_its_call_alone() {
    let villain = Villain::new();
    let long = "head -c 900000 /dev/zero | tr '\\0' x; echo;";
    let text = format!("{long} next; {long} next; answer '{{\"content\":[]}}'; cat >/dev/null");
    let policy = limited(Limits { output_bytes: Some(1 << 20), ..Limits::default() });
    let bridge = serving(&villain, &text, policy).await;
    for _ in 0..2 {
        let error = call(&bridge).await.expect_err("it is no answer");
        assert!(matches!(error, Cause::Protocol(_)), "{error}");
    }
    call(&bridge).await.expect("the link is whole");
    assert_eq!(bridge.client().connection().end(), None);
    bridge.close().await;
}

/// SB-5: a limit that ends a server is known to whoever tells its callers.
#[tokio::test]
async fn the_limit_that_ended_a_server_is_known() {
    let villain = Villain::new();
    let program = villain.program();
    let program = program.display();
    let rows = [
        (format!("exec {program} memory malloc 400"), End::Memory, Some(Limit::Memory)),
        (format!("exec {program} bomb 500"), End::Processes, Some(Limit::Processes)),
        (format!("exec {program} file large 64"), End::FileSize, Some(Limit::FileSize)),
        (format!("exec {program} spin"), End::Cpu, Some(Limit::Cpu)),
        ("exit 3".to_owned(), End::Exited { code: 3 }, None),
    ];
    for (text, end, limit) in rows {
        let policy = limited(Limits {
            memory_bytes: Some(128 << 20),
            processes: Some(64),
            file_bytes: Some(1 << 20),
            cpu: Some(Duration::from_secs(1)),
            ..Limits::default()
        });
        let bridge = serving(&villain, &text, policy).await;
        let error = call(&bridge).await.expect_err("it ends");
        assert!(matches!(error, Cause::Gone(_)), "{text}: {error}");
        let known = bridge.client().connection().end();
        assert_eq!(known, Some(end), "{text}");
        assert_eq!(known.and_then(|end| end.limit()), limit, "{text}");
        bridge.close().await;
    }
}

/// SB-3, T12 of the abuse list: which layers a server runs without is known once it has answered.
#[tokio::test]
async fn what_held_is_known() {
    let villain = Villain::new();
    let missing = [Layer::Namespace, Layer::Privileges];
    let degraded =
        Policy { pretend_missing: missing.into(), allow_degraded: missing.into(), ..Policy::default() };
    for (policy, expected) in [(degraded, &["namespace", "privileges"][..]), (Policy::default(), &[])] {
        let bridge = serving(&villain, "answer '{\"content\":[]}'; cat >/dev/null", policy).await;
        assert_eq!(bridge.client().connection().degraded(), expected);
        let called = bridge.call_tool("t", &json!({}), CallOptions::default()).await;
        called.expect("it answers");
        bridge.close().await;
    }
}
