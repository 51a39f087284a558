//! A network of some hosts: what is named is reached through colibri's proxy, and nothing else is.

use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use colibri::domain::end::End;
use colibri::sandbox::policy::{Hosts, Network};
use colibri::sandbox::{CONNECTIONS_MAX, Child, Layer, Policy, Spec, start_under};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::support::{PATIENCE, Villain};

/// What every script begins with: the proxy as the environment names it, and a way to ask it.
const CLIENT: &str = r#"
import os, socket, sys
host, port = os.environ["HTTPS_PROXY"].removeprefix("http://").split(":")
def ask(text):
    link = socket.create_connection((host, int(port)), 30)
    link.sendall(text)
    return link
def hear(link):
    data = b""
    while True:
        more = link.recv(65536)
        if not more: return data.decode()
        data += more
        if data.startswith(b"HTTP/1.1 200 Connection"): return data.decode()
def connect(target):
    link = ask(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    said = hear(link)
    return link, said.split(" ")[1] if said else "nothing", said
def failure(attempt):
    try: attempt()
    except OSError as error: return type(error).__name__
    return "worked"
"#;

/// Hosts that echo what they hear, and tell when a connection to them has ended.
struct Echo {
    place: SocketAddr,
    ended: mpsc::Receiver<()>,
}

async fn echo() -> Echo {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let place = listener.local_addr().unwrap();
    let (tell, ended) = mpsc::channel(1000);
    tokio::spawn(async move {
        while let Ok((mut one, _)) = listener.accept().await {
            let tell = tell.clone();
            tokio::spawn(async move {
                let (mut from, mut to) = one.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
                let _ = tell.send(()).await;
            });
        }
    });
    Echo { place, ended }
}

fn only(hosts: &[&str], policy: Policy) -> Policy {
    Policy { network: Some(Network::Hosts(Hosts::allowing(hosts).unwrap())), ..policy }
}

fn python(villain: &Villain, script: &str) -> Spec {
    let arguments = vec!["-c".into(), format!("{CLIENT}{script}").into()];
    Spec { program: "/usr/bin/python3".into(), arguments, ..villain.spec(&[]) }
}

/// Runs a script to its end, and tells what it said.
async fn said(mut child: Child) -> String {
    let mut said = String::new();
    let read = child.stdout.read_to_string(&mut said);
    tokio::time::timeout(PATIENCE, read).await.expect("in time").unwrap();
    let end = child.life.how_it_ended().await;
    assert_eq!(end, End::Exited { code: 0 }, "{said}{}", child.life.last_words());
    said
}

/// SB-3, T9 of the abuse list: a host that is named is reached, under both levels; another port, another
/// address and a name that means this machine are refused in words that say what to do; and there is no way
/// around the proxy.
#[tokio::test]
async fn what_is_named_is_reached_and_nothing_else() {
    let villain = Villain::new();
    let (named, other) = (echo().await.place, echo().await.place);
    let docker = villain.folder.join("docker.sock");
    let _listener = UnixListener::bind(&docker).unwrap();
    let script = format!(
        r#"
link, status, _ = connect("{named}")
link.sendall(b"hello")
print("named", status, link.recv(5).decode())
_, status, why = connect("{other}")
print("port", status, 'add "{other}" to it' in why)
print("address", connect("127.0.0.2:{port}")[1])
_, status, why = connect("localhost:{port}")
print("name", status, "name the address itself" in why)
print("unknown", connect("example.com:443")[1])
print("direct", failure(lambda: socket.create_connection(("127.0.0.1", {port}), 5)))
print("outside", failure(lambda: socket.create_connection(("93.184.216.34", 443), 5)))
def ask_dns():
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.sendto(b"x", ("9.9.9.9", 53))
print("dns", failure(ask_dns))
print("resolve", failure(lambda: socket.getaddrinfo("example.com", 443)))
def unix(): socket.socket(socket.AF_UNIX).connect("{docker}")
print("unix", failure(unix))
print("abstract", failure(lambda: socket.socket(socket.AF_UNIX).bind("\0colibri")))
print("netlink", failure(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)))
print("others", sorted(name for name in os.environ if name.lower().endswith("_proxy")))
"#,
        port = named.port(),
        docker = docker.display(),
    );
    let expected = "named 200 hello\nport 403 True\naddress 403\nname 403 True\nunknown 403\n\
                    direct ConnectionRefusedError\noutside OSError\ndns OSError\nresolve gaierror\n\
                    unix PermissionError\nabstract PermissionError\nnetlink PermissionError\n\
                    others ['ALL_PROXY', 'HTTPS_PROXY', 'HTTP_PROXY', 'NODE_USE_ENV_PROXY', 'NO_PROXY', \
                    'all_proxy', 'http_proxy', 'https_proxy', 'no_proxy']\n";
    let hosts = [named.to_string(), format!("localhost:{}", named.port())];
    for policy in [Policy::default(), Policy::strict()] {
        let policy = only(&[&hosts[0], &hosts[1]], policy);
        let child = start_under(&python(&villain, &script), &policy).unwrap();
        assert_eq!(said(child).await, expected, "{:?}", policy.level);
    }
}

/// SB-3: `strict` has no network unless it is written: the whole of it can be, and was once an empty one all the same.
/// Sockets of this machine are no part of it: behind them are services that act for whoever asks.
#[tokio::test]
async fn the_whole_network_can_be_written_under_strict() {
    let (villain, echo) = (Villain::new(), echo().await);
    let script = format!(
        "import socket\ntry: print(socket.create_connection(('127.0.0.1', {}), 30).getpeername()[0])\n\
         except OSError as error: print(type(error).__name__)\n\
         try: print(socket.socket(socket.AF_UNIX))\nexcept OSError as error: print(type(error).__name__)",
        echo.place.port()
    );
    let arguments = vec!["-c".into(), script.into()];
    let spec = Spec { program: "/usr/bin/python3".into(), arguments, ..villain.spec(&[]) };
    for (network, expected) in [
        (None, "PermissionError"),
        (Some(Network::None), "PermissionError"),
        (Some(Network::Full), "127.0.0.1"),
    ] {
        let policy = Policy { network, ..Policy::strict() };
        let child = start_under(&spec, &policy).unwrap();
        let said = said(child).await;
        assert_eq!(said.trim(), format!("{expected}\nPermissionError"), "{:?}", policy.network);
    }
}

/// SB-3: plain HTTP through the proxy, as libraries use it; the host that was judged is the one the server
/// hears of, and what was meant for the proxy stays there.
#[tokio::test]
async fn plain_http_works_through_the_proxy() {
    let villain = Villain::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let place = listener.local_addr().unwrap();
    let heard = tokio::spawn(async move {
        let (mut one, _) = listener.accept().await.unwrap();
        let mut lines = BufReader::new(&mut one).lines();
        let mut heard = Vec::new();
        while let Some(line) = lines.next_line().await.unwrap().filter(|line| !line.is_empty()) {
            heard.push(line);
        }
        one.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok").await.unwrap();
        heard
    });
    let script = format!(
        r#"
import urllib.request
request = urllib.request.Request("http://{place}/path?x=1")
request.add_header("Host", "somebody.else")
request.add_header("Proxy-Authorization", "Basic canary")
print(urllib.request.urlopen(request, timeout=30).read().decode())
"#
    );
    let policy = only(&[&place.to_string()], Policy::default());
    let child = start_under(&python(&villain, &script), &policy).unwrap();
    assert_eq!(said(child).await, "ok\n");
    let heard = heard.await.unwrap();
    assert_eq!(heard[0], "GET /path?x=1 HTTP/1.1");
    assert!(heard.contains(&format!("Host: {place}")), "{heard:?}");
    assert!(!heard.iter().any(|line| line.contains("canary") || line.contains("somebody")), "{heard:?}");
}

/// T16 of the abuse list, for the proxy: a head that is too long, what is no request, and more connections
/// than there is room for are refused; a place that is left is free again.
#[tokio::test]
async fn the_proxy_is_bounded() {
    let villain = Villain::new();
    let named = echo().await.place;
    let script = format!(
        r#"
long = b"CONNECT {named} HTTP/1.1\r\nX: " + b"x" * (16 << 10) + b"\r\n\r\n"
print("long", hear(ask(long)).split(" ")[1])
print("strange", hear(ask(b"\x16\x03\x01 what\r\n\r\n")).split(" ")[1])
links = [connect("{named}") for _ in range({CONNECTIONS_MAX})]
print("room", {{status for _, status, _ in links}})
print("crowded", connect("{named}")[1])
[link.close() for link, _, _ in links]
for again in range(10000):
    link, status, _ = connect("{named}")
    if status == "200": break
link.sendall(b"again")
print("left", status, link.recv(5).decode())
"#
    );
    let policy = only(&[&named.to_string()], Policy::default());
    let child = start_under(&python(&villain, &script), &policy).unwrap();
    assert_eq!(said(child).await, "long 431\nstrange 400\nroom {'200'}\ncrowded 503\nleft 200 again\n");
}

/// A refused host is told to colibri once, however often it is tried.
#[tokio::test]
async fn a_refused_host_is_told_once() {
    let villain = Villain::new();
    let policy = only(&["example.com"], Policy::default());
    let script = "[connect('evil.example:443') for _ in range(3)]\nconnect('other.example:1')";
    let child = start_under(&python(&villain, script), &policy).unwrap();
    let life = child.life.clone();
    said(child).await;
    let mut told = Vec::new();
    while let Some(one) = tokio::time::timeout(PATIENCE, life.next_refused()).await.expect("it ends") {
        told.push(one);
    }
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].contains("`evil.example:443` is not in this server's sandbox.network"), "{told:?}");
}

/// SB-6: with the program go its tunnels, whatever it does about it.
#[tokio::test]
async fn a_tunnel_ends_with_the_program() {
    let villain = Villain::new();
    let mut named = echo().await;
    let script =
        format!("links = [connect('{}') for _ in range(5)]\nprint('ready', flush=True)\n", named.place);
    let script = format!("{script}import time\nwhile True: time.sleep(1)");
    let policy = only(&[&named.place.to_string()], Policy::default());
    let mut child = start_under(&python(&villain, &script), &policy).unwrap();
    let mut line = String::new();
    BufReader::new(&mut child.stdout).read_line(&mut line).await.unwrap();
    assert_eq!(line, "ready\n", "{}", child.life.last_words());
    assert!(named.ended.try_recv().is_err(), "they are open");
    child.life.end().await;
    for _ in 0..5 {
        tokio::time::timeout(PATIENCE, named.ended.recv()).await.expect("it is closed").unwrap();
    }
}

/// SB-3, T12 of the abuse list: where there is no network namespace, hosts cannot be told apart: the program
/// does not run, unless that was allowed, and then nobody pretends that there is a proxy.
#[tokio::test]
async fn without_a_network_of_its_own_hosts_are_refused() {
    let villain = Villain::new();
    let policy =
        Policy { pretend_missing: [Layer::Network].into(), ..only(&["example.com"], Policy::default()) };
    let shell = |text: &str| Spec {
        program: "sh".into(),
        arguments: vec!["-c".into(), text.into()],
        ..villain.spec(&[])
    };
    let child = start_under(&shell("echo it ran"), &policy).unwrap();
    let end = child.life.how_it_ended().await;
    assert!(matches!(&end, End::Policy { layer, .. } if layer == "network"), "{end}");
    let policy = Policy { allow_degraded: [Layer::Network].into(), ..policy };
    let child = start_under(&shell("echo \"proxy: $HTTPS_PROXY\""), &policy).unwrap();
    assert_eq!(child.life.started().await, Some([Layer::Network].into()));
    assert_eq!(said(child).await, "proxy: \n");
}

/// The same from the command line, and for somebody without rights: the refusal is said to people.
#[tokio::test(flavor = "multi_thread")]
async fn hosts_can_be_named_on_the_command_line() {
    let villain = Villain::new();
    let named = echo().await.place;
    let script =
        format!("{CLIENT}print('named', connect('{named}')[1], 'other', connect('other.example:443')[1])");
    let named = named.to_string();
    let mut runs = vec![villain.run(&["--network", &named], &[])];
    if rustix::process::geteuid().is_root() {
        runs.push(super::users::as_nobody(&villain, &["--network", &named], &[]));
    }
    for command in runs {
        let words: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        let mut fresh = std::process::Command::new(command.get_program());
        // The same, with another program behind the line.
        fresh.args(words.iter().take_while(|word| *word != "--")).args([
            "--",
            "/usr/bin/python3",
            "-c",
            &script,
        ]);
        fresh.env("HOME", &villain.folder).current_dir(&villain.folder);
        let done = tokio::task::spawn_blocking(move || fresh.output().unwrap()).await.unwrap();
        let told = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(String::from_utf8_lossy(&done.stdout), "named 200 other 403\n", "{told}");
        assert!(told.contains("`other.example:443` is not in this server's sandbox.network"), "{told}");
    }
    let wrong = villain.run(&["--network", "https://x"], &["leave"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
}

/// SB-6: colibri is killed while tunnels are open; they are closed at once, and nobody is left.
#[tokio::test(flavor = "multi_thread")]
async fn tunnels_die_with_colibri() {
    let villain = Villain::new();
    let mut named = echo().await;
    let script = format!(
        "{CLIENT}link, status, _ = connect('{}')\nprint(status, flush=True)\nimport time\nwhile True: time.sleep(1)",
        named.place
    );
    let mut colibri = tokio::process::Command::new(env!("CARGO_BIN_EXE_colibri"))
        .args(["run", "--network", &named.place.to_string(), "--", "/usr/bin/python3", "-c", &script])
        .env("HOME", &villain.folder)
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(colibri.stdout.as_mut().unwrap()).read_line(&mut line).await.unwrap();
    assert_eq!(line, "200\n");
    colibri.start_kill().unwrap();
    let closed = tokio::time::timeout(Duration::from_secs(10), named.ended.recv()).await;
    closed.expect("the tunnel is closed").unwrap();
    colibri.wait().await.unwrap();
}

/// The doctor says what a list of hosts means, and which list is none.
#[test]
fn the_doctor_tells_of_lists_of_hosts() {
    let villain = Villain::new();
    let config = villain.folder.join("colibri.json");
    let servers = r#"{"mcpServers": {
        "good": {"command": "true", "sandbox": {"network": ["api.example.com", "*.example.org:8443"]}},
        "bad": {"command": "true", "sandbox": {"network": ["https://api.example.com"]}}}}"#;
    std::fs::write(&config, servers).unwrap();
    let mut doctor = std::process::Command::new(env!("CARGO_BIN_EXE_colibri"));
    doctor.arg("--config").arg(&config).arg("doctor").env("HOME", &villain.folder);
    let done = doctor.output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(said.contains("good reaches api.example.com, *.example.org:8443 alone"), "{said}");
    assert!(said.contains("bad will not be started: sandbox.network: `https://api.example.com`"), "{said}");
    assert_eq!(done.status.code(), Some(8));
}
