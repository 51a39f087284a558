//! A fleet in this process, with real children and the real clock: what the binary alone cannot be asked.

use std::path::PathBuf;
use std::time::Duration;

use colibri::domain::face::SessionId;
use colibri::fleet::roster::{Found, Member, Registry};

use crate::fleet::ancestors::{child, eventually, shell};
use crate::fleet::children::processes;
use crate::fleet::support::{fleet, joining};

fn mark(word: &str) -> String {
    format!("{word}-{}", std::process::id())
}

/// Whether it runs.
fn running(mark: &str) -> bool {
    !processes(mark).is_empty()
}

/// PR-6: a server that starts with colibri is closed `idleClose` after the last client has left, with its process.
#[tokio::test]
async fn the_last_client_leaves_and_the_process_rests() {
    let mark = mark("leaving");
    let mut resting: Member = child(&shell(), &mark);
    resting.settings.idle_close = Some(Duration::from_millis(300));
    let fleet = fleet(vec![resting]);
    let clients = [1, 2].map(|number| fleet.fleet.attach(SessionId(number)));
    fleet.listed(2).await;
    let [one, two] = clients;
    drop(one);
    fleet.call("s__echo").await.expect("somebody is there");
    assert!(running(&mark));
    drop(two);
    fleet.state_is("s", "idle").await;
    eventually("its process has ended", || !running(&mark)).await;
    assert_eq!(fleet.names(), ["s__echo", "s__fail"], "what it offers is still known");
    fleet.call("s__echo").await.expect("it is started again");
    fleet.fleet.close().await;
    assert_eq!(processes(&mark), Vec::<PathBuf>::new());
}

/// PR-6: two fleets with one registry have one process for one configuration; it ends with the last of them.
#[tokio::test]
async fn a_registry_joins_two_fleets_in_one_process() {
    let (mark, registry) = (mark("registry"), Registry::default());
    let folder = tempfile::tempdir().expect("a folder");
    let starts = folder.path().join("starts");
    let script = format!("echo x >> {}\n{}", starts.display(), shell());
    let (one, two) =
        (joining(vec![child(&script, &mark)], &registry), joining(vec![child(&script, &mark)], &registry));
    for fleet in [&one, &two] {
        fleet.listed(2).await;
        fleet.call("s__echo").await.expect("it answers");
    }
    one.fleet.close().await;
    two.call("s__echo").await.expect("the other one still has it");
    two.fleet.close().await;
    let started = std::fs::read_to_string(&starts).map_or(0, |text| text.lines().count());
    assert_eq!((started, processes(&mark)), (1, Vec::<PathBuf>::new()));
}

/// PR-7, SB-9: who waits for a process that says nothing is told, when the fleet is closed, that it is being stopped.
#[tokio::test]
async fn who_waits_is_told_of_the_end() {
    let mark = mark("silent");
    let fleet = fleet(vec![child("while :; do sleep 600; done", &mark)]);
    let closing = async {
        eventually("it is being started", || running(&mark)).await;
        fleet.fleet.close().await;
    };
    let (found, ()) = tokio::join!(fleet.fleet.find("s__echo"), closing);
    let Found::Refused(refused) = found else { panic!("it never came to be") };
    assert_eq!(refused.error.code(), "PROVIDER_TERMINATED");
    assert_eq!(processes(&mark), Vec::<PathBuf>::new());
}

/// PR-15, SB-9: what is closed, and closed again, has neither process nor catalog, and a new warm-up works after it, with a
/// new process each time.
#[tokio::test]
async fn a_new_warm_up_works_after_the_end() {
    let mark = mark("again");
    for _ in 0..3 {
        let fleet = fleet(vec![child(&shell(), &mark)]);
        fleet.listed(2).await;
        fleet.call("s__echo").await.expect("it answers");
        fleet.fleet.close().await;
        fleet.fleet.close().await;
        assert_eq!((fleet.names(), processes(&mark)), (Vec::<String>::new(), Vec::<PathBuf>::new()));
    }
}
