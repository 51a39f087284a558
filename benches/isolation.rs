//! What colibri costs a call, and what isolation does: the same small server called directly and through a fleet,
//! shared and with a process for each call, in turns; warm, from an empty pool, and in a crowd.
//!
//! `cargo bench --bench isolation`

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a benchmark runs programs and tells the time"
)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use colibri::app::SystemClock;
use colibri::domain::audit::CallId;
use colibri::domain::chronicle::NoChronicle;
use colibri::domain::clock::Clock;
use colibri::domain::face::SessionId;
use colibri::domain::filter::Filter;
use colibri::domain::life::{Policy as Life, Restart};
use colibri::domain::log::Logger;
use colibri::domain::merkle::Hash;
use colibri::domain::names::{NAME_CHARS_DEFAULT, Naming};
use colibri::fleet::bus::Bus;
use colibri::fleet::link::stdio::{Children, Stdio};
use colibri::fleet::roster::{
    Calling, Common, Fleet, Lending, Lives, Member, Plan, PoolBounds, Registry, Start, Terms, What,
};
use colibri::fleet::supervisor::{Probe, Settings};
use colibri::mcp::request::Client;
use colibri::sandbox::{Policy, Spec, use_helper};
use futures_util::stream::{StreamExt, iter};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

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
    let members = vec![
        member("shared", program, None),
        member("warm", program, Some(4)),
        member("cold", program, Some(0)),
    ];
    let stage = Stage::start(members);
    stage.listed(12).await;
    let mut direct = Direct::start(program).await;
    let mut times: [Vec<Duration>; 4] = Default::default();
    for _ in 0..rounds {
        times[0].push(direct.call().await);
        for (place, name) in ["shared", "warm", "cold"].into_iter().enumerate() {
            times[place + 1].push(stage.call(name).await);
        }
        tokio::time::sleep(PAUSE).await;
    }
    let mut said = format!(
        "one call, {rounds} rounds in turns; the pool has time to fill between two\n\n{}",
        table(&mut times)
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
fn table(times: &mut [Vec<Duration>; 4]) -> String {
    let mut said =
        "| how | median | p95 | p99 | added to a direct call at p95 | added to shared at p95 | ratio of \
                    medians to shared |\n|---|---|---|---|---|---|---|\n"
            .to_owned();
    for times in times.iter_mut() {
        times.sort();
    }
    let (direct, shared, median_of_shared) = (at(&times[0], 95), at(&times[1], 95), at(&times[1], 50));
    for (name, times) in ["direct", "shared", "call, warm pool", "call, empty pool"].iter().zip(&*times) {
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
        let common = Common {
            init_concurrency: 8,
            naming: Naming::Prefixed,
            name_chars_max: NAME_CHARS_DEFAULT,
            reserved: Vec::new(),
            clock: Arc::clone(&clock),
            health: watch::Sender::new(Vec::new()),
            bus: Bus::new(Arc::clone(&clock)),
            chronicle: Arc::new(NoChronicle),
            logger: Logger::silent(),
            registry: Registry::default(),
            masks: Arc::default(),
            stopping: CancellationToken::new(),
        };
        Self { fleet: Fleet::start(Plan { members, ..Plan::default() }, common), clock }
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
fn member(name: &'static str, program: &Path, pool: Option<usize>) -> Member {
    let lives = match pool {
        None => Lives::Used,
        Some(size) => {
            let bounds = PoolBounds { size, max_age: Duration::from_mins(5), max_uses: 1 };
            let program = program.to_owned();
            let recipe = Arc::new(move || settings(name, &program));
            Lives::Call(Lending { bounds, recipe, apart: Vec::new() })
        }
    };
    let terms = Terms {
        filter: Filter::default(),
        start: Start::Eager,
        shared: false,
        required: false,
        lives,
        timeout: Duration::from_secs(30),
        max_total_timeout: Duration::from_mins(10),
        acquire_timeout: Duration::from_mins(1),
        queue: "default".into(),
        tools: BTreeMap::new(),
        enforce_output: false,
    };
    Member { identity: Hash([0; 32]), settings: settings(name, program), terms }
}

fn settings(name: &str, program: &Path) -> Settings {
    let spec = Spec {
        program: program.into(),
        arguments: Vec::new(),
        environment: vec![("PATH".into(), "/usr/bin:/bin".into())],
        directory: None,
    };
    let (policy, children) = (Policy::default(), Children::default());
    let client =
        Client { name: "bench".to_owned(), version: "1".to_owned(), capabilities: serde_json::json!({}) };
    Settings {
        name: name.into(),
        slug: name.into(),
        opener: Box::new(Stdio { spec, policy, frame_bytes_max: 4 << 20, children }),
        policy: Life { restart: Restart::preset_default(), probe_interval: None },
        probe: Probe::Ping,
        probe_timeout: Duration::from_secs(3),
        connect_timeout: Duration::from_secs(30),
        idle_close: None,
        client: Arc::new(client),
        memory: None,
        key: None,
        is_unconfined: false,
        pin_enforced: false,
        face: None,
    }
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
