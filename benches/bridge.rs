//! What a call through the bridge costs beside the same call by a bare hand-written loop: the median
//! of many, in turns, over stdio and HTTP, for three sizes of result; and what an idle connection weighs.
//!
//! `cargo bench --bench bridge`

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a benchmark runs programs and tells the time"
)]

use std::io::{BufRead, Write};
use std::process::Stdio as Pipe;
use std::time::{Duration, Instant};

use colibri::domain::log::Logger;
use colibri::fleet::bridge::{Bridge, ConnectOptions, Era};
use colibri::fleet::link::Opener;
use colibri::fleet::link::http::Http;
use colibri::fleet::link::stdio::{Children, Stdio};
use colibri::fleet::web::Endpoint;
use colibri::sandbox::{Policy, Spec};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// With this argument the benchmark is the server, over stdio.
const SERVE: &str = "--serve";

/// Result sizes in bytes, how many calls of each, and the goal of the ratio.
const SIZES: [(usize, usize, f64); 3] = [(200, 4000, 1.5), (10 << 10, 3000, 1.3), (1 << 20, 300, 1.2)];

/// Connections that are opened to weigh them.
const IDLE: u32 = 200;

fn main() {
    if std::env::args().any(|argument| argument == SERVE) {
        return serve_stdio();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(run());
}

async fn run() {
    let address = serve_http().await;
    println!("median of one call, bare loop and bridge in turns\n");
    println!("| link | result | bare | bridge | ratio | goal |\n|---|---|---|---|---|---|");
    for (size, calls, goal) in SIZES {
        let (mut bare, bridge) = (BareStdio::start(), connect(Box::new(child())).await);
        let times = in_turns(calls, async || bare.call(size).await, async || call(&bridge, size).await).await;
        tell("stdio", size, times, Some(goal));
        bridge.close().await;
    }
    for (size, calls, goal) in SIZES {
        let (bare, bridge) = (BareClient::new(&address), connect(http(&address)).await);
        let times = in_turns(calls, async || bare.call(size).await, async || call(&bridge, size).await).await;
        tell("HTTP, a loop over the client library", size, times, Some(goal));
        bridge.close().await;
    }
    for (size, calls, _) in SIZES {
        let (mut bare, bridge) = (BareHttp::connect(&address).await, connect(http(&address)).await);
        let times = in_turns(calls, async || bare.call(size).await, async || call(&bridge, size).await).await;
        tell("HTTP, a loop over a socket", size, times, None);
        bridge.close().await;
    }
    println!("\nresident memory of one idle connection, {IDLE} opened\n");
    println!("| link | KiB |\n|---|---|");
    println!(
        "| stdio (without the child's own) | {:.1} |",
        weigh(async || connect(Box::new(child())).await).await
    );
    println!("| HTTP | {:.1} |", weigh(async || connect(http(&address)).await).await);
}

fn tell(link: &str, size: usize, (bare, bridge): (Duration, Duration), goal: Option<f64>) {
    let goal = goal.map_or_else(|| "–".to_owned(), |goal| goal.to_string());
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    let ratio = micros(bridge) / micros(bare);
    println!(
        "| {link} | {size} B | {:.1} µs | {:.1} µs | {ratio:.2} | {goal} |",
        micros(bare),
        micros(bridge)
    );
}

/// Batches in turns, so that a busy moment hits both; the medians.
async fn in_turns(
    calls: usize,
    mut bare: impl AsyncFnMut(),
    mut bridge: impl AsyncFnMut(),
) -> (Duration, Duration) {
    let (mut bare_times, mut bridge_times) = (Vec::with_capacity(calls), Vec::with_capacity(calls));
    for round in 0..calls {
        let begun = Instant::now();
        bare().await;
        let middle = Instant::now();
        bridge().await;
        // The first of each warm the way up.
        if round >= calls / 10 {
            bare_times.push(middle - begun);
            bridge_times.push(middle.elapsed());
        }
    }
    bare_times.sort_unstable();
    bridge_times.sort_unstable();
    (bare_times[bare_times.len() / 2], bridge_times[bridge_times.len() / 2])
}

async fn weigh(open: impl AsyncFn() -> Bridge) -> f64 {
    let mut kept = vec![open().await];
    let before = resident_kib();
    for _ in 0..IDLE {
        kept.push(open().await);
    }
    let grown = resident_kib() - before;
    for bridge in kept {
        bridge.close().await;
    }
    grown / f64::from(IDLE)
}

fn resident_kib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it is there");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

// ── The bridge ──────────────────────────────────────────────────────────────────────────────────

fn child() -> Stdio {
    let program = std::env::current_exe().expect("this program").into_os_string();
    let spec = Spec { program, arguments: vec![SERVE.into()], environment: Vec::new(), directory: None };
    Stdio { spec, policy: Policy::off(), frame_bytes_max: 4 << 20, children: Children::default() }
}

fn http(address: &str) -> Box<dyn Opener> {
    Box::new(Http(Endpoint::new(&format!("http://{address}/mcp")).expect("an address")))
}

async fn connect(transport: Box<dyn Opener>) -> Bridge {
    let transport = Some(transport);
    let options =
        ConnectOptions { transport, era: Era::Modern, logger: Logger::silent(), ..ConnectOptions::default() };
    Bridge::connect("the bench's server", options).await.expect("it connects")
}

async fn call(bridge: &Bridge, size: usize) {
    let arguments = format!(r#"{{"size":{size}}}"#);
    let deadline = Duration::from_secs(30);
    let result =
        bridge.client().call("fill", arguments.as_bytes(), None, deadline).await.expect("it answers");
    assert!(result.len() >= size, "the whole result comes");
}

// ── The bare loops: what one would write for one call after the other, without asking what came ──

fn bare_request(size: usize) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"fill","arguments":{{"size":{size}}}}}}}"#
    )
}

struct BareStdio {
    stdin: tokio::process::ChildStdin,
    stdout: BufReader<tokio::process::ChildStdout>,
    line: Vec<u8>,
    _child: tokio::process::Child,
}

impl BareStdio {
    fn start() -> Self {
        let mut child = tokio::process::Command::new(std::env::current_exe().expect("this program"))
            .arg(SERVE)
            .stdin(Pipe::piped())
            .stdout(Pipe::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("it starts");
        let stdin = child.stdin.take().expect("piped");
        let stdout = BufReader::with_capacity(64 << 10, child.stdout.take().expect("piped"));
        Self { stdin, stdout, line: Vec::new(), _child: child }
    }

    async fn call(&mut self, size: usize) {
        let mut request = bare_request(size);
        request.push('\n');
        self.stdin.write_all(request.as_bytes()).await.expect("it reads");
        self.line.clear();
        self.stdout.read_until(b'\n', &mut self.line).await.expect("it answers");
        assert!(self.line.len() >= size, "the whole result comes");
    }
}

/// What a person writes who calls a server over HTTP by hand.
struct BareClient {
    client: reqwest::Client,
    url: String,
}

impl BareClient {
    fn new(address: &str) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self { client: reqwest::Client::new(), url: format!("http://{address}/mcp") }
    }

    async fn call(&self, size: usize) {
        let request = self.client.post(&self.url).header("content-type", "application/json");
        let answer = request.body(bare_request(size)).send().await.expect("it answers");
        let body = answer.bytes().await.expect("it answers whole");
        assert!(body.len() >= size, "the whole result comes");
    }
}

/// Less than anybody would write: no client, one connection, headers by hand.
struct BareHttp {
    stream: TcpStream,
    answer: Vec<u8>,
    address: String,
}

impl BareHttp {
    async fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).await.expect("it listens");
        stream.set_nodelay(true).expect("a socket");
        Self { stream, answer: Vec::new(), address: address.to_owned() }
    }

    async fn call(&mut self, size: usize) {
        let body = bare_request(size);
        let request = format!(
            "POST /mcp HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        self.stream.write_all(request.as_bytes()).await.expect("it reads");
        let length = read_message(&mut self.stream, &mut self.answer).await.expect("it answers");
        assert!(length >= size, "the whole result comes");
    }
}

/// Reads one HTTP message into `buffer`; gives the length of its body.
async fn read_message(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<usize> {
    buffer.clear();
    loop {
        if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&buffer[..end]).to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length?.trim().parse().ok()?;
            buffer.drain(..end + 4);
            buffer.reserve(length.saturating_sub(buffer.len()));
            while buffer.len() < length {
                if stream.read_buf(buffer).await.ok()? == 0 {
                    return None;
                }
            }
            return Some(length);
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}

// ── The server: answers at once, with as many bytes as it was asked for ──────────────────────────

fn serve_stdio() {
    let (input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    for line in input.split(b'\n') {
        let Ok(line) = line else { return };
        if let Some(answer) = answer(&line)
            && output.write_all(&answer).and_then(|()| output.write_all(b"\n")).is_err()
        {
            return;
        }
        let _ = output.flush();
    }
}

async fn serve_http() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.set_nodelay(true);
            tokio::spawn(async move {
                let mut buffer = Vec::new();
                while read_message(&mut stream, &mut buffer).await.is_some() {
                    let body = answer(&buffer).unwrap_or_default();
                    let head = format!(
                        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                        body.len()
                    );
                    let whole = [head.as_bytes(), &body].concat();
                    if stream.write_all(&whole).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

fn answer(request: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(request).ok()?;
    let number = |after: &str| -> Option<usize> {
        let rest = &text[text.find(after)? + after.len()..];
        rest[..rest.find(|letter: char| !letter.is_ascii_digit())?].parse().ok()
    };
    let id = number(r#""id":"#)?;
    let result = if text.contains("server/discover") {
        r#"{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}"#.to_owned()
    } else {
        let filling = "x".repeat(number(r#""size":"#)?);
        format!(r#"{{"resultType":"complete","content":[{{"type":"text","text":"{filling}"}}]}}"#)
    };
    Some(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#).into_bytes())
}
