//! Stories of panics and signals. Both belong to the process, so each story runs in one of its own: this
//! very test binary, asked for the one story, in which it finds that it is the child.

use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use colibri::app::{Server, stderr_logger};
use colibri::domain::log::Level;
use colibri::domain::mode::Mode;
use colibri::serve::{Ended, Transport};
use rustix::process::{Signal, getpid, kill_process};
use serde_json::json;

use super::tools;
use crate::support::library::bench;

/// Tells the child that it is the child.
const CHILD: &str = "COLIBRI_TEST_CHILD";

/// The output of this story's child; `None` in the child, which goes on to play its part.
fn in_a_process_of_its_own(story: &str) -> Option<Output> {
    if std::env::var_os(CHILD).is_some() {
        return None;
    }
    let module = module_path!().split_once("::").expect("a module of the test binary").1;
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--nocapture", "--exact", &format!("{module}::{story}")]).env(CHILD, "1");
    Some(child.output().unwrap())
}

/// T-5, T-21, T-22, CO-1, CO-11: building installs no handler; starting does, once.
#[tokio::test]
async fn the_start_installs_handlers_once_and_building_none() {
    if let Some(output) = in_a_process_of_its_own("the_start_installs_handlers_once_and_building_none") {
        let (stdout, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && stdout.contains("1 passed"), "{stdout}{stderr}");
        return;
    }
    let panics = Arc::new(AtomicU32::new(0));
    let watch_panics = || {
        let seen = Arc::clone(&panics);
        std::panic::set_hook(Box::new(move |_| {
            seen.fetch_add(1, Ordering::SeqCst);
        }));
    };
    let hook_is_ours = || {
        let before = panics.load(Ordering::SeqCst);
        let _ = std::panic::catch_unwind(|| panic!("a trial"));
        panics.load(Ordering::SeqCst) == before + 1
    };

    // T-5: building installs nothing.
    watch_panics();
    let (builder, mut bench) = bench();
    let mut server = builder.install_handlers(true).mode(Mode::Test).build();
    tools::register(&mut server);
    assert!(hook_is_ours());
    assert_eq!(signals_caught(), [false, false]);

    // T-21: starting installs both. The hook is what lets mode TEST show where a tool panicked.
    bench.start(&mut server).await;
    assert_eq!(signals_caught(), [true, true]);
    let envelope = bench.client.envelope("misbehave", &json!({ "how": "panic_later" })).await;
    let backtrace = envelope["error"]["details"]["backtrace"].as_str().expect("a backtrace");
    assert!(backtrace.contains("tests/server/tools.rs"), "{backtrace}");

    // T-22: neither a second start nor a second server installs it again.
    watch_panics();
    server.start().await.unwrap();
    let (builder, mut bench) = crate::support::library::bench();
    let mut another = builder.install_handlers(true).build();
    bench.start(&mut another).await;
    assert!(hook_is_ours());

    // CO-11: one signal ends all that run, cleanly.
    kill_process(getpid(), Signal::TERM).unwrap();
    assert_eq!((server.wait().await, another.wait().await), (Some(Ended::Stopped), Some(Ended::Stopped)));
}

/// T-21, CO-11, CO-12: a panic outside a handler is the end: one line on stderr, exit code 1, and
/// nothing on stdout that is colibri's.
#[tokio::test]
async fn a_panic_outside_a_handler_ends_the_process() {
    if let Some(output) = in_a_process_of_its_own("a_panic_outside_a_handler_ends_the_process") {
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{told}");
        let panics: Vec<&str> = told.lines().filter(|line| line.contains("panic:")).collect();
        let [panic] = panics.as_slice() else { panic!("one line, not {panics:?}") };
        let expected = "[colibri] panic: a broken invariant at tests/server/handlers.rs:";
        assert!(panic.starts_with(expected), "{panic}");
        assert!(!String::from_utf8_lossy(&output.stdout).contains("[colibri]"));
        return;
    }
    let (input, _client) = std::io::pipe().unwrap();
    let transport = Transport::new(input, std::io::sink());
    let mut server = Server::builder().logger(stderr_logger(Level::Info)).transport(transport).build();
    server.start().await.unwrap();
    let _ = std::thread::spawn(|| panic!("a broken invariant")).join();
    unreachable!("the process has ended");
}

/// Whether the process handles SIGTERM and SIGINT itself, as the kernel sees it.
fn signals_caught() -> [bool; 2] {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("Linux tells it");
    let mask = u64::from_str_radix(mask.trim(), 16).unwrap();
    [Signal::TERM, Signal::INT].map(|signal| mask >> (signal.as_raw() - 1) & 1 == 1)
}
