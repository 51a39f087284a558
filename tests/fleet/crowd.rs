//! Ten thousand tools on fifty servers; and a fleet of real children in trouble, of which nothing is left.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use colibri::call::{Caller, Calls, Parts, Reply};
use colibri::domain::audit::{NoAudit, OnExitFailure, Principal};
use colibri::domain::face::SessionId;
use colibri::domain::log::Logger;
use colibri::domain::mode::Mode;
use colibri::fleet::catalog::Proxied;
use colibri::fleet::link::stdio::{Children, Stdio};
use colibri::fleet::roster::Found;
use colibri::mcp::answer::Identity;
use colibri::mcp::lists::PAGE_BYTES_MAX;
use colibri::mcp::revision::MODERN;
use colibri::sandbox::{Policy, Spec, use_helper};
use futures_util::stream::{StreamExt, iter};
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::children::processes;
use super::support::{Scripted, Watched, fleet, member, member_by, secs};

const SERVERS: usize = 50;
const EACH: usize = 200;

/// What makes a definition as long as definitions are.
const WORDS: &str = "Finds records that match a query, newest first. The query is words, all of which must occur; \
    a word in quotes must occur exactly; a word after a minus must not occur. At most so many are shown as the limit \
    says, and what is left out is counted. Use it before you write anything, so that nothing is written twice.";

/// Children that misbehave at the same time.
const WILD: usize = 6;

fn own_names(extra: Option<usize>) -> Vec<String> {
    (0..EACH).chain(extra).map(|number| format!("find_{number}")).collect()
}

fn offer(server: &Scripted, extra: Option<usize>) {
    let names = own_names(extra);
    server.offer(&names.iter().map(String::as_str).collect::<Vec<_>>());
    for name in &names {
        server.redefine(name, &format!("{name}: {WORDS}"));
    }
}

fn path(fleet: &Watched) -> Calls {
    let parts = Parts {
        registry: colibri::tools::Registry::default(),
        fleet: Some(fleet.fleet.clone()),
        mode: Mode::Full,
        sink: Arc::new(NoAudit),
        on_exit_failure: OnExitFailure::default(),
        clock: Arc::clone(&fleet.clock),
        logger: Logger::silent(),
        trouble: watch::Sender::new(None),
    };
    Calls::new(parts).expect("there are no tools of its own")
}

/// Every page, as a client asks for them: the names, and the bytes of all pages.
fn listed(calls: &Calls) -> (Vec<String>, usize) {
    let identity =
        Identity { version: "1".to_owned(), instructions: String::new(), skills: false, servers: true };
    let (mut names, mut bytes, mut cursor) = (Vec::new(), 0, None::<String>);
    loop {
        let page = calls.listed().page(cursor.as_deref(), &identity, &MODERN, PAGE_BYTES_MAX);
        let page = page.expect("the cursor is colibri's own");
        assert!(page.len() <= PAGE_BYTES_MAX + 1024, "a page of {} bytes", page.len());
        bytes += page.len();
        let page: Value = serde_json::from_slice(&page).expect("JSON");
        let tools = page["tools"].as_array().expect("a list");
        names.extend(tools.iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()));
        cursor = page["nextCursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            return (names, bytes);
        }
    }
}

/// PR-12, PR-17, SB-1: ten thousand tools are listed whole, found each by its name, and called on every server; when
/// one server changes its list, all entries of the others are the very same.
#[tokio::test(start_paused = true)]
async fn ten_thousand_tools_are_listed_found_and_called() {
    let servers: Vec<Scripted> = (0..SERVERS).map(|_| Scripted::default()).collect();
    for server in &servers {
        offer(server, None);
    }
    let server_name = |number: usize| format!("server{number}");
    let fleet = fleet(
        servers.iter().enumerate().map(|(number, server)| member(&server_name(number), server)).collect(),
    );
    fleet.listed(SERVERS * EACH).await;
    let calls = path(&fleet);
    let (names, bytes) = listed(&calls);
    assert_eq!(names.len(), SERVERS * EACH);
    assert!(names.is_sorted_by(|one, other| one < other), "in order, and none twice");
    assert!(bytes > SERVERS * EACH * 400, "{bytes} bytes of definitions as long as they are");
    for name in &names {
        let Found::Tool(tool) = fleet.fleet.find(name).await else {
            panic!("{name} is listed and not found")
        };
        assert_eq!(*tool.name, **name);
    }
    let principal = Arc::new(Principal { client: "story".to_owned(), user: "story".to_owned() });
    let caller = Caller { principal, revision: "2025-11-25", session: SessionId::default() };
    for (number, server) in servers.iter().enumerate() {
        let name = format!("{}__find_{number}", server_name(number));
        let call = calls.arrival(&name, None, caller.clone(), CancellationToken::new());
        let Reply::Result { body, .. } = calls.run(call).await else { panic!("{name} is not answered") };
        let body: Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(body["content"][0]["text"], format!("find_{number}"), "under its own name");
        assert_eq!(server.called(), 1, "and by its own server");
    }

    let entries = || -> HashMap<Arc<str>, Arc<Proxied>> {
        let catalog = Arc::clone(&fleet.fleet.catalog().borrow());
        catalog.tools().iter().map(|tool| (Arc::clone(&tool.name), Arc::clone(tool))).collect()
    };
    let before = entries();
    offer(&servers[7], Some(EACH));
    servers[7].tell("notifications/tools/list_changed").await;
    fleet.listed(SERVERS * EACH + 1).await;
    let after = entries();
    let kept = before.iter().filter(|(name, entry)| Arc::ptr_eq(entry, &after[*name]));
    let kept: BTreeSet<&Arc<str>> = kept.map(|(_, entry)| &entry.server).collect();
    let others = |entry: &&Arc<Proxied>| *entry.server != *server_name(7);
    assert!(before.values().filter(others).all(|entry| Arc::ptr_eq(entry, &after[&entry.name])));
    assert_eq!(kept.len(), SERVERS - 1, "only the one that changed is made anew");
    let (names, _) = listed(&calls);
    assert!(names.contains(&format!("{}__find_{EACH}", server_name(7))), "and its new tool is listed");
    fleet.fleet.close().await;
    assert!(servers.iter().all(Scripted::is_ended));
}

/// SB-9, PR-15, PR-17: children that crash, hang and flood while they are called, and then a fleet that is closed: of
/// neither a task or a process is left, and no call has waited past its deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_fleet_leaves_no_task_and_no_child() {
    use_helper(env!("CARGO_BIN_EXE_colibri").into());
    let (mark, home) = (format!("tasks-{}", std::process::id()), tempfile::tempdir().expect("a folder"));
    let before = Handle::current().metrics().num_alive_tasks();
    let members = (0..WILD).map(|number| {
        let mut member = member_by(&format!("wild{number}"), Box::new(wild(number, home.path(), &mark)));
        (member.terms.timeout, member.terms.acquire_timeout) = (secs(1), secs(1));
        member.settings.probe_timeout = Duration::from_millis(500);
        member
    });
    let watched = fleet(members.collect());
    let calls = iter(0..100).map(|round| {
        let watched = &watched;
        async move {
            let begun = Instant::now();
            let name = format!("wild{}__work", round % WILD);
            let called = match watched.fleet.find(&name).await {
                Found::Tool(tool) => watched.call_tool(&tool, CancellationToken::new()).await.is_ok(),
                Found::Refused(_) => false,
                Found::Stranger => panic!("{name} is configured"),
            };
            (called, begun.elapsed())
        }
    });
    let ended: Vec<(bool, Duration)> = calls.buffer_unordered(16).collect().await;
    assert!(ended.iter().any(|(well, _)| *well), "some are well");
    let longest = ended.iter().map(|(_, time)| *time).max().expect("there were calls");
    assert!(longest < secs(2) + secs(3), "its deadline, a list to wait for and a busy machine: {longest:?}");
    let during = Handle::current().metrics().num_alive_tasks();
    assert!(during > before + WILD, "each has tasks of its own");
    watched.fleet.close().await;
    drop(watched);
    let until = Instant::now() + secs(20);
    loop {
        let left = Handle::current().metrics().num_alive_tasks();
        if left <= before {
            break;
        }
        assert!(
            Instant::now() < until,
            "{left} tasks are left, {before} were there before, {during} meanwhile"
        );
        tokio::task::yield_now().await;
    }
    assert!(processes(&mark).is_empty(), "{:?}", processes(&mark));
}

/// The server of the chaos, with a home of its own for how often it was started.
fn wild(number: usize, home: &Path, mark: &str) -> Stdio {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/chaos/server.py");
    let name = format!("wild{number}");
    let mut arguments = vec![script.into_os_string()];
    arguments.extend([&name, "tasks", "1", mark].map(Into::into));
    let spec = Spec {
        program: "python3".into(),
        arguments,
        environment: vec![("PATH".into(), "/usr/bin:/bin".into()), ("HOME".into(), home.into())],
        directory: None,
    };
    Stdio { spec, policy: Policy::off(), frame_bytes_max: 4 << 20, children: Children::default() }
}
