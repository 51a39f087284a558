//! What the environment says of the network: proxies, and whom to trust. A child each, because a
//! process has one environment.

use std::io::{Read, Write};
use std::path::Path;
use std::process::Output;

use rustls::{ServerConnection, StreamOwned};
use tokio::process::Command;

use crate::support::measured;

use super::mcp::{Carrier, response};
use super::trust::{CANARY, self_signed, tls_listener};
use super::wire::{Heard, Server, Step};

/// `colibri probe URL` with nothing in its environment but this.
async fn probe(url: &str, environment: &[(&str, &str)]) -> Output {
    let home = tempfile::tempdir().expect("a home");
    Command::new(env!("CARGO_BIN_EXE_colibri"))
        .args(["probe", "--json", url])
        .env_clear()
        .envs(measured())
        .env("HOME", home.path())
        .envs(environment.iter().copied())
        .current_dir(home.path())
        .kill_on_drop(true)
        .output()
        .await
        .expect("colibri is built")
}

fn script(carrier: Carrier) -> impl Fn(&Heard) -> Vec<Step> + Send + Sync + 'static {
    carrier.script(|_| Vec::new())
}

#[track_caller]
fn exits(output: &Output, code: i32) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{said}");
    said
}

/// PR-1: a proxy of the environment carries HTTP and WebSockets, told who we are as its address says.
#[tokio::test]
async fn a_proxy_of_the_environment_is_used() {
    for (carrier, url, host) in [
        (Carrier::Json, "http://example.invalid/mcp", "example.invalid"),
        (Carrier::Events, "http://example.invalid:8080/mcp", "example.invalid:8080"),
        (Carrier::Socket, "ws://example.invalid/mcp", "example.invalid"),
    ] {
        for variable in ["HTTP_PROXY", "http_proxy", "ALL_PROXY"] {
            let proxy = Server::start(script(carrier)).await;
            let address = format!("http://user:{CANARY}@{}", proxy.address);
            let output = probe(url, &[(variable, &address)]).await;
            let said = exits(&output, 0);
            assert!(!said.contains(CANARY), "{said}");
            let heard = proxy.heard();
            assert!(!heard.is_empty(), "{variable}: {url} goes through the proxy");
            for heard in heard {
                assert_eq!(heard.header("host"), Some(host));
                assert!(heard.target.starts_with(&format!("http://{host}")), "{}", heard.target);
                assert!(heard.header("proxy-authorization").is_some_and(|value| value.starts_with("Basic ")));
            }
        }
    }
}

/// PR-1: what the environment excepts goes straight there, and the proxy hears nothing.
#[tokio::test]
async fn a_host_that_is_excepted_goes_around_the_proxy() {
    for (host, except) in [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1", "example.com, 127.0.0.0/8"),
        ("localhost", "localhost"),
        ("localhost", "*"),
    ] {
        let proxy = Server::start(script(Carrier::Json)).await;
        let server = Server::start(script(Carrier::Json)).await;
        let address = format!("http://{}", proxy.address);
        let environment = [("HTTP_PROXY", address.as_str()), ("NO_PROXY", except)];
        exits(&probe(&server.url().replace("127.0.0.1", host), &environment).await, 0);
        assert_eq!(proxy.opened(), 0, "{host} is excepted by {except}");
    }
}

/// BR-3, BR-7: a proxy that refuses, or is not there, is told without its password.
#[tokio::test]
async fn a_proxy_that_refuses_is_told_without_its_secret() {
    let proxy = Server::start(|_| vec![Step::Send(response("403 Forbidden", "no")), Step::Close]).await;
    let address = format!("http://user:{CANARY}@{}", proxy.address);
    let said = exits(&probe("https://example.invalid/mcp", &[("HTTPS_PROXY", &address)]).await, 4);
    assert!(said.contains("example.invalid") && !said.contains(CANARY), "{said}");
    let heard = proxy.heard();
    assert_eq!((heard[0].verb.as_str(), heard[0].target.as_str()), ("CONNECT", "example.invalid:443"));
    drop(proxy);
    let said = exits(&probe("http://example.invalid/mcp", &[("HTTP_PROXY", &address)]).await, 4);
    assert!(said.contains("example.invalid") && !said.contains(CANARY), "{said}");
}

/// A server behind TLS, on a thread of its own; gives its port.
fn behind_tls(folder: &Path) -> u16 {
    let (listener, config) = tls_listener(folder);
    let port = listener.local_addr().expect("it is bound").port();
    std::thread::spawn(move || {
        let script = script(Carrier::Json);
        while let Ok((stream, _)) = listener.accept() {
            let session = ServerConnection::new(config.clone()).expect("a sound configuration");
            let mut wire = StreamOwned::new(session, stream);
            while let Some(heard) = request(&mut wire) {
                for step in script(&heard) {
                    let Step::Send(bytes) = step else { panic!("this server only sends") };
                    let _ = wire.write_all(&bytes);
                }
            }
        }
    });
    port
}

fn request(wire: &mut impl Read) -> Option<Heard> {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        wire.read_exact(&mut byte).ok()?;
        text.push(byte[0]);
    }
    let mut heard = Heard::read(&String::from_utf8(text).ok()?)?;
    let mut body = vec![0; heard.length()];
    wire.read_exact(&mut body).ok()?;
    heard.body = body.into();
    Some(heard)
}

/// PR-1: the system's roots decide whom to trust: a certificate that is among them is enough, under its
/// own name; one that is not is refused, and its server asked nothing.
#[tokio::test]
async fn the_systems_roots_decide_whom_to_trust() {
    let folder = tempfile::tempdir().expect("a folder");
    self_signed(folder.path());
    let port = behind_tls(folder.path());
    let roots = folder.path().join("certificate.pem");
    let trusted = [("SSL_CERT_FILE", roots.to_str().expect("a plain path"))];
    let output = probe(&format!("https://localhost:{port}/mcp"), &trusted).await;
    exits(&output, 0);
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(found["revision"], "2026-07-28");
    let said = exits(&probe(&format!("https://localhost:{port}/mcp"), &[]).await, 4);
    assert!(said.contains("certificate"), "{said}");
    let said = exits(&probe(&format!("https://127.0.0.2:{port}/mcp"), &trusted).await, 4);
    assert!(said.contains("127.0.0.2"), "{said}");
}
