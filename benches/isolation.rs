//! What colibri costs a call, and what isolation does: the same small server called directly and through a fleet,
//! shared and with a process for each call, in turns; warm, from an empty pool, and in a crowd. And a server on the
//! network, from colibri itself and from a worker for each call.
//!
//! `cargo bench --bench isolation`

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a benchmark runs programs and tells the time"
)]

#[path = "support/member.rs"]
mod member;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::header::CONTENT_TYPE;
use bytes::Bytes;
use colibri::app::SystemClock;
use colibri::domain::audit::CallId;
use colibri::domain::clock::Clock;
use colibri::domain::face::SessionId;
use colibri::fleet::link::stdio::{Children, Stdio};
use colibri::fleet::link::worker::Worker;
use colibri::fleet::link::{Carrier, Opener};
use colibri::fleet::roster::{Calling, Fleet, Lending, Lives, Member, Plan, PoolBounds, What};
use colibri::fleet::web::Endpoint;
use colibri::sandbox::{Policy, Spec, use_helper};
use futures_util::stream::{StreamExt, iter};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use member::{common, member, settings};

/// Calls of each kind, in turns.
const ROUNDS: u32 = 300;

/// Between two calls that find the pool full again.
const PAUSE: Duration = Duration::from_millis(100);

/// What a call through colibri may take beside a direct one, at p95.
const OVERHEAD_MS_MAX: f64 = 10.0;

/// Calls at the same time, in a crowd.
const AT_ONCE: usize = 8;

fn main() {
    use_helper(env!("CARGO_BIN_EXE_colibri").into());
    let folder = tempfile::tempdir().expect("a folder");
    let program = compiled(folder.path());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    println!("{}", runtime.expect("a runtime").block_on(measure(&program, ROUNDS)));
}

/// Calls in turns and then in a crowd, and what they took, in words.
pub(crate) async fn measure(program: &Path, rounds: u32) -> String {
    let url = serve().await;
    let (child, here, worker) =
        (Reach::Child(program.to_owned()), Reach::Here(url.clone()), Reach::Worker(url));
    let members = vec![
        lent("shared", &child, None),
        lent("warm", &child, Some(4)),
        lent("cold", &child, Some(0)),
        lent("network", &here, None),
        lent("worker", &worker, Some(4)),
    ];
    let stage = Stage::start(members);
    stage.listed(4 * 3 + 2).await;
    let mut direct = Direct::start(program).await;
    let names = ["shared", "warm", "cold", "network", "worker"];
    let mut times: [Vec<Duration>; 6] = Default::default();
    for _ in 0..rounds {
        times[0].push(direct.call().await);
        for (place, name) in names.into_iter().enumerate() {
            times[place + 1].push(stage.call(name).await);
        }
        tokio::time::sleep(PAUSE).await;
    }
    for times in &mut times {
        times.sort();
    }
    let (programs, network) = times.split_at(4);
    let mut said = format!(
        "one call, {rounds} rounds in turns; the pool has time to fill between two\n\n{}\n{}",
        table(programs),
        table_of_network(network)
    );
    let begun = Instant::now();
    let stage_ref = &stage;
    let calls = iter(0..rounds).map(|_| async move { stage_ref.call("warm").await });
    let mut crowded: Vec<Duration> = calls.buffer_unordered(AT_ONCE).collect().await;
    crowded.sort();
    let per_second = f64::from(rounds) / begun.elapsed().as_secs_f64();
    let (median, late) = (at(&crowded, 50), at(&crowded, 95));
    let _ = writeln!(
        said,
        "\n{AT_ONCE} callers without a pause: {per_second:.0} calls a second, each in a new process;\n\
         median {median:.2} ms, p95 {late:.2} ms\n\n\
         Differences count; absolute times are the machine's as much as colibri's."
    );
    stage.fleet.close().await;
    said
}

/// Each way beside a direct call, which is the tool's own time, and beside a shared server.
fn table(times: &[Vec<Duration>]) -> String {
    let mut said =
        "| how | median | p95 | p99 | added to a direct call at p95 | added to shared at p95 | ratio of \
                    medians to shared |\n|---|---|---|---|---|---|---|\n"
            .to_owned();
    let (direct, shared, median_of_shared) = (at(&times[0], 95), at(&times[1], 95), at(&times[1], 50));
    for (name, times) in ["direct", "shared", "call, warm pool", "call, empty pool"].iter().zip(times) {
        let (median, late) = (at(times, 50), at(times, 95));
        let _ = writeln!(
            said,
            "| {name} | {median:.2} ms | {late:.2} ms | {:.2} ms | {:.2} ms | {:.2} ms | {:.1} |",
            at(times, 99),
            late - direct,
            late - shared,
            median / median_of_shared
        );
    }
    let overhead = shared - direct;
    let verdict = if overhead < OVERHEAD_MS_MAX { "held" } else { "missed" };
    let _ = writeln!(
        said,
        "\noverhead of a call at p95, without the tool's own time: {overhead:.2} ms; the goal is under \
         {OVERHEAD_MS_MAX} ms: {verdict}"
    );
    said
}

/// The same server without colibri: a line there, a line back.
struct Direct {
    stdin: tokio::process::ChildStdin,
    lines: tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
    _child: tokio::process::Child,
}

impl Direct {
    async fn start(program: &Path) -> Self {
        let pipe = std::process::Stdio::piped;
        let mut command = tokio::process::Command::new(program);
        let mut child = command.stdin(pipe()).stdout(pipe()).kill_on_drop(true).spawn().expect("it starts");
        let stdin = child.stdin.take().expect("piped");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut direct = Self { stdin, lines, _child: child };
        direct.ask(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#).await;
        direct
    }

    async fn call(&mut self) -> Duration {
        let begun = Instant::now();
        let call = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"who","arguments":{}}}"#;
        let answer = self.ask(call).await;
        assert!(answer.contains("content"), "{answer}");
        begun.elapsed()
    }

    async fn ask(&mut self, line: &str) -> String {
        self.stdin.write_all(format!("{line}\n").as_bytes()).await.expect("it reads");
        self.lines.next_line().await.expect("it answers").expect("it is there")
    }
}

/// A server on the network, from colibri itself and from a worker.
fn table_of_network(times: &[Vec<Duration>]) -> String {
    let mut said =
        "| how | median | p95 | p99 | added at p95 | ratio of medians |\n|---|---|---|---|---|---|\n"
            .to_owned();
    let base = [at(&times[0], 50), at(&times[0], 95)];
    for (name, times) in ["network, shared", "network, call, warm pool"].iter().zip(times) {
        let (median, late) = (at(times, 50), at(times, 95));
        let _ = writeln!(
            said,
            "| {name} | {median:.2} ms | {late:.2} ms | {:.2} ms | {:.2} ms | {:.1} |",
            at(times, 99),
            late - base[1],
            median / base[0]
        );
    }
    said
}

fn at(times: &[Duration], share: usize) -> f64 {
    times[times.len() * share / 100].as_secs_f64() * 1000.0
}

struct Stage {
    fleet: Fleet,
    clock: Arc<dyn Clock>,
}

impl Stage {
    fn start(members: Vec<Member>) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
        Self { fleet: Fleet::start(Plan { members, ..Plan::default() }, common(&clock)), clock }
    }

    async fn listed(&self, count: usize) {
        let mut catalog = self.fleet.catalog();
        catalog.wait_for(|catalog| catalog.tools().len() == count).await.expect("the fleet is there");
        tokio::time::sleep(PAUSE).await;
    }

    async fn call(&self, server: &str) -> Duration {
        let name = format!("{server}__who");
        let tool = self.fleet.catalog().borrow().get(&name).cloned().expect("it is listed");
        let begun = Instant::now();
        let calling = Calling {
            id: CallId(Uuid::nil()),
            arrived: self.clock.now(),
            session: SessionId::default(),
            what: What::Tool { tool: &tool, arguments: b"{}" },
            notices: None,
            cancel: CancellationToken::new(),
            rounds: None,
        };
        self.fleet.call(calling).await.expect("it answers");
        begun.elapsed()
    }
}

/// A server with a pool of that size, or shared.
fn lent(name: &'static str, reach: &Reach, pool: Option<usize>) -> Member {
    let lives = match pool {
        None => Lives::Used,
        Some(size) => {
            let bounds = PoolBounds { size, max_age: Duration::from_mins(5), max_uses: 1 };
            let reach = reach.clone();
            let recipe = Arc::new(move || settings(name, reach.opener()));
            Lives::Call(Lending { bounds, recipe, apart: Vec::new() })
        }
    };
    member(settings(name, reach.opener()), lives)
}

/// How a server is reached.
#[derive(Clone)]
enum Reach {
    /// It is this program.
    Child(PathBuf),
    /// It is there, and this process goes to it.
    Here(String),
    /// It is there, and a worker goes to it.
    Worker(String),
}

impl Reach {
    fn opener(&self) -> Box<dyn Opener> {
        let children = Children::default();
        let endpoint = |url: &str| Endpoint::new(url).expect("an address");
        match self {
            Self::Child(program) => {
                let spec = Spec {
                    program: program.into(),
                    arguments: Vec::new(),
                    environment: vec![("PATH".into(), "/usr/bin:/bin".into())],
                    directory: None,
                };
                let policy = Policy::default();
                Box::new(Stdio { spec, policy, frame_bytes_max: 4 << 20, children })
            }
            Self::Here(url) => Carrier::Http.opener(endpoint(url)),
            Self::Worker(url) => {
                let mut policy = Policy::default();
                policy.files.allow_read.push("/proc/self/exe".into());
                let (name, environment) = ("bench".to_owned(), Vec::new());
                let (endpoint, carrier) = (endpoint(url), Carrier::Http);
                Box::new(Worker { name, endpoint, carrier, environment, policy, children })
            }
        }
    }
}

/// A server on the network that answers at once; gives its address.
async fn serve() -> String {
    let answer = async |body: Bytes| {
        let request: Value = serde_json::from_slice(&body).expect("a request");
        let result = match request["method"].as_str().unwrap_or_default() {
            "server/discover" => {
                json!({ "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} } })
            }
            "tools/list" => json!({ "tools": [{ "name": "who", "inputSchema": { "type": "object" } }] }),
            _ => json!({ "content": [] }),
        };
        let answer = json!({ "jsonrpc": "2.0", "id": request["id"], "result": result });
        ([(CONTENT_TYPE, "application/json")], answer.to_string())
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback has a port");
    let address = listener.local_addr().expect("it is bound");
    let routes = axum::Router::new().route("/mcp", axum::routing::post(answer));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    format!("http://{address}/mcp")
}

/// The small server of the stories, which lives for a minute at most: its alarm is left out here.
pub(crate) fn compiled(folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/isolated/server.c");
    let target = folder.join("server");
    let mut compiler = std::process::Command::new("cc");
    let done = compiler.args(["-O1", "-DLIFETIME_SECONDS=0", "-o"]).arg(&target).arg(&source).status();
    assert!(done.is_ok_and(|status| status.success()), "needs a C compiler: apt-get install gcc libc6-dev");
    target
}
