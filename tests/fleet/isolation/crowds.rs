//! Real processes, a new one for each call: some crash, some hang, some take memory without end, and none of it
//! reaches the others.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use colibri::domain::provider::ProviderError;
use colibri::fleet::link::stdio::{Children, Stdio};
use colibri::fleet::roster::{Lending, Lives, PoolBounds, ToolSettings};
use colibri::sandbox::policy::Limits;
use colibri::sandbox::{Policy, Spec, use_helper};
use futures_util::stream::{StreamExt, iter};
use serde_json::json;

use super::number;
use crate::fleet::children::processes;
use crate::fleet::support::{fleet, member_by, settings};

/// Calls at the same time.
const AT_ONCE: usize = 8;

/// What a process may take; the leak takes more.
const MEMORY_BYTES: u64 = 32 << 20;

/// Of a call that hangs. A process must be there for it within this, on however busy a machine: else it was not sent.
const HANG_TIMEOUT: Duration = Duration::from_secs(4);

/// The small server, compiled once for all stories.
fn compiled() -> PathBuf {
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/isolated/server.c");
    crate::sandbox::compiled(&source, "isolated")
}

fn opener(mark: &str) -> Stdio {
    let spec = Spec {
        program: compiled().into(),
        arguments: vec![mark.into()],
        environment: vec![("PATH".into(), "/usr/bin:/bin".into())],
        directory: None,
    };
    let limits = Limits { memory_bytes: Some(MEMORY_BYTES), ..Limits::default() };
    let policy = Policy { limits, ..Policy::default() };
    Stdio { spec, policy, frame_bytes_max: 4 << 20, children: Children::default() }
}

/// SB-4, SB-5, SB-6: of many invocations every tenth crashes, every tenth hangs and every tenth takes memory up to
/// its limit; all the others succeed, each in a process of its own, and afterwards no process is left. With
/// `COLIBRI_CHECK=full` a thousand.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_invocations_touch_no_other() {
    use_helper(env!("CARGO_BIN_EXE_colibri").into());
    let rounds = if crate::work::client::is_full_check() { 1000 } else { 200 };
    let mark = format!("crowd-{}", std::process::id());
    let mut member = member_by("s", Box::new(opener(&mark)));
    let words = mark.clone();
    let recipe = Arc::new(move || settings("s", Box::new(opener(&words))));
    let bounds = PoolBounds { size: AT_ONCE, max_age: Duration::from_mins(5), max_uses: 1 };
    member.terms.lives = Lives::Call(Lending { bounds, recipe, apart: Vec::new() });
    let hangs = ToolSettings { timeout: Some(HANG_TIMEOUT), ..ToolSettings::default() };
    member.terms.tools.insert("hang".to_owned(), hangs);
    let fleet = fleet(vec![member]);
    fleet.listed(4).await;
    let begun = Instant::now();
    let fleet = &fleet;
    let calls = iter(0..rounds).map(|round| async move {
        let tool = match round % 10 {
            2 => "crash",
            5 => "hang",
            8 => "leak",
            _ => "who",
        };
        let begun = Instant::now();
        (tool, fleet.call(&format!("s__{tool}")).await, begun.elapsed())
    });
    let outcomes: Vec<_> = calls.buffer_unordered(AT_ONCE).collect().await;
    let (mut seen, mut times) = (BTreeSet::new(), Vec::new());
    for (tool, outcome, time) in outcomes {
        match (tool, outcome) {
            ("who", outcome) => {
                assert!(seen.insert(number(&outcome.expect("it is not touched"))), "no process serves twice");
                times.push(time);
            }
            ("hang", Err(failed)) => {
                assert!(
                    matches!(failed.error, ProviderError::TimedOut { limit, .. } if limit == HANG_TIMEOUT),
                    "{failed:?}"
                );
            }
            (tool, outcome) => {
                let failed = outcome.expect_err(tool);
                assert!(matches!(failed.error, ProviderError::Crashed { .. }), "{tool}: {failed:?}");
            }
        }
    }
    assert_eq!(seen.len(), rounds * 7 / 10);
    times.sort();
    let at = |share: usize| times[times.len() * share / 100];
    println!("{rounds} invocations in {:?}; good ones p50 {:?}, p95 {:?}", begun.elapsed(), at(50), at(95));
    fleet.fleet.close().await;
    assert_eq!(processes(&mark), Vec::<PathBuf>::new());
}

/// SB-4, SB-5, CO-13: the binary itself, with `isolation: "call"` and `"session"` in its configuration: calls are
/// answered by ever new processes or by one, limits of a single tool hold, and nothing is left.
#[test]
fn the_configuration_decides_how_long_a_process_lives() {
    let mark = format!("lives-{}", std::process::id());
    let server = |isolation: &str, more: serde_json::Value| {
        let mut server = json!({ "command": compiled(), "args": [mark.as_str()], "isolation": isolation });
        server.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        server
    };
    let limits = json!({ "pool": { "size": 1 }, "tools": { "leak": { "limits": { "memoryMb": 24 } } } });
    let servers = json!({ "call": server("call", limits), "session": server("session", json!({})) });
    let mut colibri = crate::fleet::children::serving(&servers);
    let mut id = 10;
    let mut ask = |colibri: &mut _, tool: &str| {
        id += 1;
        let call = json!({ "name": tool, "arguments": {} });
        crate::fleet::children::ask(colibri, id, "tools/call", &call)
    };
    let who = |answer: &serde_json::Value| answer["result"]["content"][0]["text"].as_str().map(str::to_owned);
    let [one, other] = [(); 2].map(|()| who(&ask(&mut colibri, "call__who")).expect("it answers"));
    assert_ne!(one, other);
    let [one, other] = [(); 2].map(|()| who(&ask(&mut colibri, "session__who")).expect("it answers"));
    assert_eq!(one, other);
    assert_eq!(who(&ask(&mut colibri, "session__leak")).as_ref(), Some(&one), "nobody has limited this one");
    for tool in ["call__leak", "call__crash", "session__crash"] {
        let crashed = ask(&mut colibri, tool);
        assert_eq!(
            crashed["result"]["structuredContent"]["error"]["code"], "PROVIDER_CRASHED",
            "{tool}: {crashed}"
        );
    }
    assert!(who(&ask(&mut colibri, "call__who")).is_some());
    let again = who(&ask(&mut colibri, "session__who")).expect("it was started again");
    assert_ne!(again, one);
    colibri.finish();
    assert_eq!(processes(&mark), Vec::<PathBuf>::new());
}
