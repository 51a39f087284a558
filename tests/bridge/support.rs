//! What stories of failure share: what is expected of one, and what must not be left behind by any.

use std::time::Duration;

use colibri::domain::log::Logger;
use colibri::fleet::bridge::{Bridge, BridgeError, CallOptions, ConnectOptions, Executed};
use colibri::fleet::era::Era;
use colibri::fleet::error::Cause;
use colibri::fleet::link::stdio::Children;
use colibri::fleet::link::worker::Worker;
use colibri::fleet::link::{Carrier, Opener};
use colibri::fleet::web::Endpoint;
use colibri::sandbox::policy::Files;
use colibri::sandbox::{Policy, use_helper};
use futures_util::stream::{StreamExt, iter};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// The deadline of each attempt where nothing is going to come.
pub(crate) const SHORT: Duration = Duration::from_millis(700);

/// The deadline where something is going to come, on however slow a machine; also what a condition is
/// given to become true.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// Which variant of [`Cause`] a failure must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Answered(i32),
    TimedOut,
    Unreachable,
    Network,
    Http(u16),
    SessionLost,
    Gone,
    Protocol,
    Version,
    Unauthorized,
}

impl Kind {
    fn of(cause: &Cause) -> Option<Self> {
        Some(match cause {
            Cause::Answered { code, .. } => Self::Answered(*code),
            Cause::TimedOut(_) => Self::TimedOut,
            Cause::Unreachable(_) => Self::Unreachable,
            Cause::Network(_) => Self::Network,
            Cause::Http { status, .. } => Self::Http(*status),
            Cause::SessionLost => Self::SessionLost,
            Cause::Gone(_) => Self::Gone,
            Cause::Protocol(_) => Self::Protocol,
            Cause::Version { .. } => Self::Version,
            Cause::Unauthorized(_) => Self::Unauthorized,
            _ => return None,
        })
    }
}

/// What a failed call must say: of at most two attempts, how many were made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told(pub(crate) Kind, pub(crate) u32, pub(crate) bool, pub(crate) Executed);

impl Told {
    /// Tried twice, worth trying later, and perhaps it was done.
    pub(crate) fn transient(kind: Kind) -> Self {
        Self(kind, 2, true, Executed::Unknown)
    }

    /// Nothing will change by itself.
    pub(crate) fn last(kind: Kind, executed: Executed) -> Self {
        Self(kind, 1, false, executed)
    }

    /// The connection is gone for good.
    pub(crate) fn lost() -> Self {
        Self(Kind::Gone, 1, true, Executed::Unknown)
    }

    #[track_caller]
    pub(crate) fn check(self, name: &str, deadline: Duration, error: &BridgeError) {
        let Self(kind, attempts, retryable, executed) = self;
        assert_eq!(Kind::of(&error.source), Some(kind), "{name}: {error:?}");
        assert_eq!(
            (error.attempts, error.retryable, error.executed),
            (attempts, retryable, executed),
            "{name}: {error:?}"
        );
        if let Cause::TimedOut(after) = error.source {
            assert_eq!(after, deadline, "{name}: the deadline that the caller knows");
        }
    }
}

/// Connects through a given link.
pub(crate) async fn connect(
    opener: Box<dyn Opener>,
    era: Era,
    deadline: Duration,
) -> Result<Bridge, BridgeError> {
    let options = ConnectOptions {
        timeout: Some(deadline),
        transport: Some(opener),
        era,
        logger: Logger::silent(),
        ..ConnectOptions::default()
    };
    Bridge::connect("scripted", options).await
}

/// Goes to a server from a worker process, confined as one is by default.
pub(crate) fn worker(endpoint: Endpoint, carrier: Carrier) -> Box<dyn Opener> {
    let files = Files { allow_read: vec!["/proc/self/exe".into()], ..Files::default() };
    worker_under(Policy { files, ..Policy::default() }, endpoint, carrier)
}

/// The same, confined so.
pub(crate) fn worker_under(policy: Policy, endpoint: Endpoint, carrier: Carrier) -> Box<dyn Opener> {
    use_helper(env!("CARGO_BIN_EXE_colibri").into());
    let (name, environment, children) = ("story".to_owned(), Vec::new(), Children::default());
    Box::new(Worker { name, endpoint, carrier, environment, policy, children })
}

/// A call of at most two attempts. It ends when it says it does: the deadlines, the second that lies
/// between two attempts, and what a loaded machine may add.
pub(crate) async fn call(bridge: &Bridge, deadline: Duration) -> Result<bytes::Bytes, BridgeError> {
    let options = CallOptions { timeout: Some(deadline), max_attempts: 2, notices: None };
    let arguments = json!({});
    let call = timeout(deadline * 2 + LONG, bridge.call_tool("t", &arguments, options));
    call.await.expect("a call ends by its deadline")
}

/// Tells stories at the same time, each to its end: one that fails does not silence the others.
pub(crate) fn tell_all<S: Future<Output = ()> + Send + 'static>(
    stories: impl IntoIterator<Item = S>,
) -> impl Future<Output = ()> {
    let mut telling: JoinSet<()> = stories.into_iter().collect();
    async move {
        let mut failed = 0;
        while let Some(told) = telling.join_next().await {
            failed += usize::from(told.is_err());
        }
        assert_eq!(failed, 0, "stories failed; each said why above");
    }
}

/// The same, so many at the same time: for stories that each start processes.
pub(crate) async fn tell_in_turns<S: Future<Output = ()> + Send + 'static>(
    at_once: usize,
    stories: impl IntoIterator<Item = S>,
) {
    let told = iter(stories).map(tokio::spawn).buffer_unordered(at_once);
    let failed = told.filter(|told| std::future::ready(told.is_err())).count().await;
    assert_eq!(failed, 0, "stories failed; each said why above");
}

/// Waits until something is so.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let mut ticks = interval(Duration::from_millis(5));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let waiting = async {
        while !is_so() {
            ticks.tick().await;
        }
    };
    assert!(timeout(LONG, waiting).await.is_ok(), "it never was so: {what}");
}

/// Each of the two clients of HTTP keeps one task for the connections that it may use again.
const POOL_TASKS: usize = 2;

/// What a process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    descriptors: usize,
    tasks: usize,
    children: usize,
}

impl Held {
    /// What this process holds now.
    pub(crate) fn now() -> Self {
        // Reading the folder takes a descriptor itself, each time.
        let descriptors = std::fs::read_dir("/proc/self/fd").expect("Linux").count();
        let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        Self { descriptors, tasks, children: children() }
    }

    /// This, and as many connections of a scripted server, each with its task.
    pub(crate) fn and_connections(self, count: usize) -> Self {
        Self { descriptors: self.descriptors + count, tasks: self.tasks + count, ..self }
    }

    /// Waits until no more is held than this. What is on its way out may take its time.
    pub(crate) async fn comes_back(self, name: &str) {
        let mut now = Self::now();
        let mut is_back = || {
            now = Self::now();
            let fewer_tasks = now.tasks <= self.tasks + POOL_TASKS;
            now.descriptors <= self.descriptors && fewer_tasks && now.children <= self.children
        };
        let mut ticks = interval(Duration::from_millis(5));
        let waiting = async {
            while !is_back() {
                ticks.tick().await;
            }
        };
        let came = timeout(LONG, waiting).await.is_ok();
        assert!(came, "{name} leaves something behind: {self:?} became {now:?}");
    }
}

/// Processes whose parent is this one, zombies too.
fn children() -> usize {
    let own = format!("PPid:\t{}\n", std::process::id());
    let processes = std::fs::read_dir("/proc").expect("Linux").flatten();
    let status = processes.filter_map(|process| std::fs::read_to_string(process.path().join("status")).ok());
    status.filter(|status| status.contains(&own)).count()
}

/// The most memory this process ever had resident, in bytes.
pub(crate) fn memory_peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("Linux says");
    let kilobytes = line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok());
    kilobytes.expect("a number") << 10
}
