//! Whom we reach, whom we do not, and that neither learns or tells a secret.

use std::io::Write;
use std::net::{SocketAddr, TcpListener as BlockingListener};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use colibri::domain::log::Logger;
use colibri::fleet::bridge::{Bridge, BridgeError, ConnectOptions, Executed};
use colibri::fleet::era::Era;
use colibri::fleet::web::Endpoint;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::bridge::keeping;
use crate::bridge::support::{Kind, LONG, SHORT, Told, call, connect, tell_all};

use super::mcp::{Carrier, response};
use super::wire::{Server, Step};

/// A secret that must be in no word of ours.
pub(crate) const CANARY: &str = "c4n4ry-5ecret";

/// A certificate that nobody has signed but itself, and its key, in one folder.
pub(crate) fn self_signed(folder: &Path) {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE", "-days", "2"])
        .args(["-keyout", "key.pem", "-out", "certificate.pem"])
        .current_dir(folder)
        .output()
        .expect("openssl is there");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// Where clients come who are shown that certificate, and how they are.
pub(crate) fn tls_listener(folder: &Path) -> (BlockingListener, Arc<rustls::ServerConfig>) {
    let certificate = CertificateDer::from_pem_file(folder.join("certificate.pem")).expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(folder.join("key.pem")).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider knows them")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("they belong together");
    let listener = BlockingListener::bind("127.0.0.1:0").expect("loopback has a port");
    (listener, Arc::new(config))
}

/// A server that speaks TLS with that certificate to one client; gives its port.
fn tls_server(folder: &Path) -> u16 {
    let (listener, config) = tls_listener(folder);
    let port = listener.local_addr().expect("it is bound").port();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("somebody comes");
        let mut session = rustls::ServerConnection::new(config).expect("a sound configuration");
        while session.is_handshaking() && session.complete_io(&mut stream).is_ok() {}
        let _ = session.writer().write_all(b"HTTP/1.1 200 OK\r\n\r\n");
    });
    port
}

/// A server that knows no TLS, and says so to whatever comes; gives its address, and what came.
async fn plain() -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a port");
    let address = listener.local_addr().expect("it is bound");
    let came = Arc::<Mutex<Vec<u8>>>::default();
    let coming = Arc::clone(&came);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut piece = vec![0; 4 << 10];
            let length = stream.read(&mut piece).await.unwrap_or_default();
            coming.lock().expect("sound").extend_from_slice(&piece[..length]);
            let _ = stream.write_all(&response("400 Bad Request", "")).await;
        }
    });
    (address, came)
}

/// BR-3, BR-5: a server that cannot be trusted, or cannot be reached, was not reached: nothing was sent.
#[tokio::test]
async fn what_is_not_reached_was_not_asked() {
    let folder = tempfile::tempdir().expect("a folder");
    self_signed(folder.path());
    let (plain, came) = plain().await;
    let refused = {
        let nobody = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        nobody.local_addr().expect("it is bound").port()
    };
    let rows = [
        ("a certificate nobody has signed", format!("https://127.0.0.1:{}/", tls_server(folder.path()))),
        ("the same for a WebSocket", format!("wss://127.0.0.1:{}/", tls_server(folder.path()))),
        ("no TLS at all", format!("https://{plain}/mcp")),
        ("no TLS at all, for a WebSocket", format!("wss://{plain}/mcp")),
        ("nobody there", format!("http://127.0.0.1:{refused}/")),
        ("nobody there, for a WebSocket", format!("ws://127.0.0.1:{refused}/")),
        ("no such host", "http://no-such-host.invalid/".to_owned()),
        ("no such host, for a WebSocket", "wss://no-such-host.invalid/".to_owned()),
    ];
    let told = |(name, url): (&'static str, String)| async move {
        let options = ConnectOptions { timeout: Some(LONG), logger: Logger::silent(), ..Default::default() };
        let Err(error) = Bridge::connect(&url, options).await else { panic!("{name}") };
        Told(Kind::Unreachable, 1, true, Executed::No).check(name, LONG, &error);
        let host = url.split('/').nth(2).expect("a host");
        assert!(error.to_string().contains(host), "{name}: {error}");
    };
    tell_all(rows.map(told)).await;
    let came = came.lock().expect("sound");
    assert!(
        !came.is_empty() && memchr::memmem::find(&came, b"mcp").is_none(),
        "nothing is said in the clear"
    );
}

/// BR-3: a host that takes the connection and says nothing of TLS costs a deadline.
#[tokio::test]
async fn a_handshake_of_tls_that_never_ends_costs_a_deadline() {
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("https://{}/", silent.local_addr().expect("it is bound"));
    let options = ConnectOptions { timeout: Some(SHORT), logger: Logger::silent(), ..Default::default() };
    let Err(error) = Bridge::connect(&url, options).await else { panic!("it says nothing") };
    Told(Kind::TimedOut, 1, true, Executed::No).check("silent TLS", SHORT, &error);
}

/// PR-1: a redirect to another host is refused by name, and that host hears nothing at all; on the same
/// host it is followed if it keeps the method.
#[tokio::test]
async fn redirects_never_cross_hosts() {
    let other = Server::start(|_| vec![Step::Send(response("200 OK", ""))]).await;
    let elsewhere = format!("http://{}/mcp?to=there", other.address);
    let statuses =
        ["301 Moved", "302 Found", "303 See Other", "307 Temporary Redirect", "308 Permanent Redirect"];
    let places = [elsewhere.as_str(), &elsewhere[5..], "https://127.0.0.1/", "/elsewhere"];
    for status in statuses {
        for place in places {
            let name = format!("{status} to {place}");
            let kept = status.starts_with("307") || status.starts_with("308");
            let sound = Carrier::Json.script(|call| vec![Step::Send(Carrier::Json.whole(&call.good()))]);
            let redirect = response(&format!("{status}\nlocation: {place}"), "");
            let server = Server::start(move |heard| match heard.target.as_str() {
                "/elsewhere" => sound(heard),
                _ => vec![Step::send(&redirect)],
            })
            .await;
            let endpoint = Endpoint::new(&server.url()).expect("an address");
            let endpoint = endpoint.with_header("authorization", CANARY).expect("a header");
            let connected = connect(Carrier::Json.opener_of(endpoint), Era::Modern, LONG).await;
            if kept && place == "/elsewhere" {
                let bridge = connected.expect(&name);
                call(&bridge, LONG).await.expect(&name);
                let carried = |heard: &super::wire::Heard| heard.header("authorization") == Some(CANARY);
                assert!(server.heard().iter().all(carried), "{name}: on the same host, we are who we are");
                continue;
            }
            let Err(error) = connected else { panic!("{name}") };
            Told::last(Kind::Protocol, Executed::No).check(&name, LONG, &error);
            let said = error.to_string();
            let (from, to) = (server.url(), place.split('?').next().expect("a beginning"));
            assert!(said.contains(&from) && said.contains(to), "{name}: both are named: {said}");
            assert!(!said.contains(CANARY) && !said.contains("to=there"), "{name}: {said}");
        }
    }
    assert_eq!(other.opened(), 0, "the other host never heard of us");
}

/// PR-1: a host that redirects to itself without end is given up.
#[tokio::test]
async fn redirects_in_a_circle_end() {
    let server =
        Server::start(|_| vec![Step::Send(response("307 Temporary Redirect\nlocation: /mcp", ""))]).await;
    let Err(error) = connect(Carrier::Json.opener(&server), Era::Modern, LONG).await else {
        panic!("a circle")
    };
    Told::last(Kind::Protocol, Executed::No).check("a circle", LONG, &error);
    assert!(server.heard().len() <= 10, "{} requests", server.heard().len());
}

/// Connects with a secret in every place that has one; gives everything that was said about it.
async fn words(url: &str, carrier: Carrier) -> Vec<String> {
    let (logger, lines) = keeping();
    let endpoint = Endpoint::new(url).and_then(|endpoint| endpoint.with_header("x-key", CANARY));
    let endpoint =
        endpoint.and_then(|endpoint| endpoint.with_header("authorization", &format!("Bearer {CANARY}")));
    let opened = match endpoint {
        Ok(endpoint) => {
            let transport = Some(carrier.opener_of(endpoint));
            let options = ConnectOptions { timeout: Some(SHORT), transport, logger, ..Default::default() };
            Bridge::connect(url, options).await
        }
        Err(source) => Err(BridgeError { source, attempts: 0, retryable: false, executed: Executed::No }),
    };
    let mut said = Vec::new();
    match opened {
        Ok(bridge) => {
            let error = call(&bridge, SHORT).await.expect_err("every story here fails");
            said.extend([error.to_string(), format!("{error:?}")]);
            bridge.close().await;
        }
        Err(error) => said.extend([error.to_string(), format!("{error:?}")]),
    }
    said.extend(lines.lock().expect("sound").iter().cloned());
    said
}

/// BR-7: no error, however it came about, and no line of the log repeats a secret: of a header, a user,
/// a query; not even if the server says it back.
#[tokio::test]
async fn no_word_of_ours_repeats_a_secret() {
    let secret = |rest: &str| format!("{CANARY}:{CANARY}@{rest}/mcp?key={CANARY}&{CANARY}#{CANARY}");
    let mut urls = vec![
        format!("http://{}", secret("no-such-host.invalid")),
        format!("http://{}", secret("exam ple.com")),
        format!("http://{}", secret("127.0.0.1:99999")),
        format!("ftp://{}", secret("127.0.0.1")),
        secret("127.0.0.1"),
        format!("http://{CANARY}@"),
    ];
    let mut servers = Vec::new();
    let mirror = |status: &'static str| {
        move |heard: &super::wire::Heard| {
            let said = format!("{} {:?}", heard.target, heard.headers);
            vec![Step::Send(response(status, &said))]
        }
    };
    for status in
        ["400 No", "401 No", "403 No", "404 No", "429 No", "500 No", "503 No", "200 OK", "101 No", "302 No"]
    {
        servers.push(Server::start(mirror(status)).await);
    }
    servers.push(Server::start(|_| vec![Step::Close]).await);
    servers.push(Server::start(|_| vec![Step::Hold]).await);
    servers.push(Server::start(|_| vec![Step::send("\0garbage")]).await);
    let location = format!("302 Found\nlocation: http://user:{CANARY}@example.invalid/?key={CANARY}");
    servers.push(Server::start(move |_| vec![Step::Send(response(&location, ""))]).await);
    let sound = Carrier::Json.script(|_| vec![Step::Close]);
    servers.push(Server::start(sound).await);
    urls.extend(servers.iter().map(|server| format!("http://{}", secret(&server.address.to_string()))));
    let told = |(url, carrier): (String, Carrier)| async move {
        for said in words(&url, carrier).await {
            assert!(!said.contains(CANARY), "{carrier:?} at {url}: {said}");
        }
    };
    let carriers = [Carrier::Json, Carrier::OldEvents, Carrier::Socket];
    tell_all(urls.into_iter().flat_map(|url| carriers.map(|carrier| told((url.clone(), carrier))))).await;
}

/// BR-7: a value that no header can carry is refused without being repeated.
#[test]
fn a_header_that_cannot_be_sent_is_not_repeated() {
    let endpoint = Endpoint::new("http://localhost/").expect("an address");
    let error = endpoint.clone().with_header("x-key", &format!("{CANARY}\r\nx: y")).expect_err("two lines");
    assert!(!error.to_string().contains(CANARY), "{error}");
    assert!(!format!("{endpoint:?}").contains(CANARY));
}
