//! Pins: first come, first believed, on record, and found when somebody else changes them.

use std::collections::BTreeMap;

use colibri::domain::chronicle::{Chronicle, Fact};
use colibri::domain::ledger::identify;
use colibri::domain::merkle::Hash;
use colibri::domain::pin::{PinnedBy, SEEN_MAX};
use colibri::store::{Paths, Reader, StoreError, accept_loss};
use tokio::runtime::Handle;
use tokio::task::{JoinSet, block_in_place};
use tokio::time::Instant;

use super::{World, episode, tools};
use PinnedBy::{Accepted, FirstSight};

/// SU-4: what is pinned stays so through restarts; seeing it again changes and records nothing, a
/// person's word does, and each server has its own.
#[tokio::test]
async fn the_first_sight_is_believed_until_a_person_accepts_another() {
    let world = World::new();
    let open = world.open().await;
    let (one, two) = (tools(3, "one"), tools(4, "two"));
    assert_eq!(open.chronicle.pins("github").await.unwrap(), BTreeMap::new());
    open.chronicle.pin(episode(), "github", one.clone(), FirstSight).await.unwrap();
    open.chronicle.pin(episode(), "github", one.clone(), FirstSight).await.unwrap();
    open.chronicle.pin(episode(), "github", one.clone(), Accepted).await.unwrap();
    open.chronicle.pin(episode(), "github", Vec::new(), Accepted).await.unwrap();
    assert_eq!(world.records("tool.pinned").len(), 1);
    // Another definition is not believed for being seen; the tool that is new is.
    open.chronicle.pin(episode(), "github", two.clone(), FirstSight).await.unwrap();
    open.chronicle.pin(episode(), "gitlab", two.clone(), FirstSight).await.unwrap();
    open.close().await;

    let open = world.open().await;
    let expected: BTreeMap<String, Hash> = one.iter().chain(&two[3..]).cloned().collect();
    assert_eq!(open.chronicle.pins("github").await.unwrap(), expected);
    assert_eq!(open.chronicle.pins("gitlab").await.unwrap(), two.iter().cloned().collect());
    open.chronicle.pin(episode(), "github", two[..2].to_vec(), Accepted).await.unwrap();
    let expected: BTreeMap<String, Hash> =
        two[..2].iter().chain(&one[2..]).chain(&two[3..]).cloned().collect();
    assert_eq!(open.chronicle.pins("github").await.unwrap(), expected);
    open.close().await;

    let told: Vec<(String, usize)> = world
        .records("tool.pinned")
        .iter()
        .map(|(_, facts)| {
            let (server, by) = (facts["server"].as_str().unwrap(), facts["by"].as_str().unwrap());
            (format!("{server} {by}"), facts["tools"].as_array().unwrap().len())
        })
        .collect();
    let told: Vec<(&str, usize)> = told.iter().map(|(what, count)| (&**what, *count)).collect();
    assert_eq!(
        told,
        [
            ("github first_sight", 3),
            ("github first_sight", 1),
            ("gitlab first_sight", 4),
            ("github accepted", 2)
        ]
    );
    let verdict = world.verdict();
    assert!(verdict.valid, "{verdict:?}");
}

/// SU-4: names that a record cannot hold, or that are made to confuse, are pinned each for itself.
#[tokio::test]
async fn odd_names_are_pinned_apart() {
    let world = World::new();
    let open = world.open().await;
    let long = "x".repeat(100_000);
    let names = ["", "\0", "\0\0", "a\0b", "é", "e\u{301}", "'; --", &long, &identify(&long), &long[1..]];
    let pins: Vec<_> = names
        .iter()
        .zip(tools(names.len(), ""))
        .map(|(name, (_, digest))| ((*name).to_owned(), digest))
        .collect();
    open.chronicle.pin(episode(), &long, pins.clone(), FirstSight).await.unwrap();
    let found = open.chronicle.pins(&long).await.unwrap();
    let expected: BTreeMap<_, _> =
        pins.iter().map(|(name, digest)| (identify(name).into_owned(), *digest)).collect();
    assert_eq!((found.len(), found), (names.len(), expected));
    assert!(open.chronicle.pins(&long[1..]).await.unwrap().is_empty(), "another server");
    // Twice in one list: the first of them is the first sight.
    let twice = vec![("t".to_owned(), Hash([1; 32])), ("t".to_owned(), Hash([2; 32]))];
    open.chronicle.pin(episode(), "twice", twice, FirstSight).await.unwrap();
    assert_eq!(open.chronicle.pins("twice").await.unwrap()["t"], Hash([1; 32]));
    open.close().await;
    let verdict = world.verdict();
    assert!(verdict.valid, "{verdict:?}");
}

/// SU-4: a server with as many tools as it may have is pinned whole in one go, in few records, and
/// nobody waits long for it.
#[tokio::test]
async fn twenty_thousand_tools_are_pinned_in_one_go() {
    let world = World::new();
    let open = world.open().await;
    let many = tools(20_000, "one");
    let begun = Instant::now();
    open.chronicle.pin(episode(), "huge", many.clone(), FirstSight).await.unwrap();
    let took = begun.elapsed();
    println!("pinned in {took:?}");
    assert!(took.as_secs() < 5, "{took:?}");
    assert_eq!(open.chronicle.pins("huge").await.unwrap(), many.into_iter().collect());
    open.close().await;
    let records = world.records("tool.pinned");
    assert!((20..64).contains(&records.len()), "{}", records.len());
    let begun = Instant::now();
    let verdict = world.verdict();
    println!("verified in {:?}", begun.elapsed());
    assert!(verdict.valid, "{:?}", verdict.broken);
}

/// SU-4: a server that comes up with ever new names does not fill the database: no more are pinned for being seen
/// than the bound, a person's word still counts, and what is pinned stays.
#[tokio::test]
async fn ever_new_names_do_not_fill_the_database() {
    let world = World::new();
    let open = world.open().await;
    let named = |from: usize, count: usize| -> Vec<(String, Hash)> {
        (from..from + count).map(|number| (format!("t{number}"), Hash([1; 32]))).collect()
    };
    open.chronicle.pin(episode(), "busy", named(0, SEEN_MAX - 1), FirstSight).await.unwrap();
    open.chronicle.pin(episode(), "busy", named(SEEN_MAX - 1, 100), FirstSight).await.unwrap();
    assert_eq!(open.chronicle.pins("busy").await.unwrap().len(), SEEN_MAX);
    let records = world.records("tool.pinned").len();
    open.chronicle.pin(episode(), "busy", named(2 * SEEN_MAX, 100), FirstSight).await.unwrap();
    assert_eq!(world.records("tool.pinned").len(), records, "what changes nothing leaves no record");
    open.chronicle.pin(episode(), "busy", named(2 * SEEN_MAX, 3), Accepted).await.unwrap();
    open.chronicle.pin(episode(), "calm", named(0, 3), FirstSight).await.unwrap();
    let pins = open.chronicle.pins("busy").await.unwrap();
    assert_eq!((pins.len(), pins.contains_key("t0")), (SEEN_MAX + 3, true));
    assert_eq!(open.chronicle.pins("calm").await.unwrap().len(), 3, "each server has its own bound");
    open.close().await;
    assert!(world.verdict().valid, "{:?}", world.verdict());
}

/// SU-4: several colibris on one ledger see a tool for the first time at once: one of them wins, all
/// agree who, and there is one record of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_several_first_sights_wins() {
    let world = World::new();
    let (one, other) = (world.open().await, world.open().await);
    for round in 0..20 {
        let server = format!("server-{round}");
        let mut race = JoinSet::new();
        for (open, version) in [(&one, "one"), (&other, "other"), (&one, "third")] {
            let (chronicle, server) = (open.chronicle.clone(), server.clone());
            race.spawn(
                async move { chronicle.pin(episode(), &server, tools(20, version), FirstSight).await },
            );
        }
        for pinned in race.join_all().await {
            pinned.unwrap();
        }
        let pins = one.chronicle.pins(&server).await.unwrap();
        assert_eq!(pins, other.chronicle.pins(&server).await.unwrap());
        let versions = ["one", "other", "third"].map(|version| tools(20, version).into_iter().collect());
        assert!(versions.contains(&pins), "all of them are one's");
    }
    one.close().await;
    other.close().await;
    assert_eq!(world.records("tool.pinned").len(), 20);
    let verdict = world.verdict();
    assert!(verdict.valid, "{verdict:?}");
}

/// Records 1 to 4: two tools of `github`, one of them accepted anew, and two of `gitlab`.
async fn pinned() -> World {
    let world = World::new();
    let open = world.open().await;
    open.chronicle.pin(episode(), "github", tools(2, "one"), FirstSight).await.unwrap();
    open.chronicle.pin(episode(), "gitlab", tools(2, "one"), FirstSight).await.unwrap();
    open.chronicle.pin(episode(), "github", tools(1, "two"), Accepted).await.unwrap();
    let fact = Fact::ServerState { server: "github".to_owned(), from: "ready", to: "closed", reason: None };
    open.chronicle.put(episode(), fact).await.unwrap();
    open.close().await;
    world
}

/// SU-4, SU-10: a table of pins that was edited by hand is found, and the record that it contradicts
/// is named.
#[tokio::test]
async fn a_pin_edited_by_hand_is_found() {
    let ledger = pinned().await;
    let github = "server = 'github' AND tool = 'tool_00000'";
    let place = |index: i64| 1i64 << 40 | index;
    for (sql, found) in [
        (format!("UPDATE tool_pin SET digest = zeroblob(32) WHERE {github}"), 3),
        (format!("UPDATE tool_pin SET digest = x'' WHERE {github}"), 3),
        (format!("DELETE FROM tool_pin WHERE {github}"), 1),
        ("DELETE FROM tool_pin".to_owned(), 1),
        ("DELETE FROM tool_pin WHERE server = 'gitlab'".to_owned(), 2),
        // Back to what was believed before: a true row once, and false now.
        (
            format!(
                "UPDATE tool_pin SET place = {}, digest = (SELECT digest FROM tool_pin WHERE server = 'gitlab') WHERE {github}",
                place(1)
            ),
            3,
        ),
        (format!("UPDATE tool_pin SET place = {} WHERE {github}", place(2)), 2),
        (format!("UPDATE tool_pin SET place = {} WHERE {github}", place(4)), 4),
        (format!("UPDATE tool_pin SET place = {} WHERE {github}", place(77)), 5),
        (format!("UPDATE tool_pin SET place = 2 << 40 WHERE {github}"), 0),
        (format!("UPDATE tool_pin SET place = 3 WHERE {github}"), 1),
        (format!("UPDATE tool_pin SET tool = 'tool_00002' WHERE {github}"), 1),
        (format!("UPDATE tool_pin SET server = 'git' WHERE {github}"), 1),
        (format!("INSERT INTO tool_pin VALUES ('evil', 'tool', zeroblob(32), {})", place(1)), 1),
        (format!("INSERT INTO tool_pin VALUES ('evil', 'tool', zeroblob(32), {})", place(4)), 4),
        ("INSERT INTO tool_pin VALUES ('evil\x1b[2J', 'tool', zeroblob(32), 0)".to_owned(), 0),
        (
            "INSERT INTO tool_pin SELECT 'github', 'tool_00002', digest, place FROM tool_pin LIMIT 1"
                .to_owned(),
            3,
        ),
        // As if it had never been: an older schema has no such table, but this ledger tells of pins.
        ("DROP TABLE tool_pin; DROP TABLE server_catalog; PRAGMA user_version = 4".to_owned(), 1),
        ("PRAGMA user_version = 4".to_owned(), 0),
    ] {
        let world = ledger.copy();
        assert!(world.verdict().valid);
        world.sql(&sql);
        let verdict = world.verdict();
        assert_eq!((verdict.valid, verdict.first_broken_at), (false, Some(found)), "{sql}: {verdict:?}");
        let verified = world.colibri(&["audit", "verify"]);
        let told = String::from_utf8(verified.stdout).unwrap();
        assert_eq!(verified.status.code(), Some(6), "{sql}: {told}");
        assert!(told.contains(&format!("at {found}: ")) && !told.contains('\u{1b}'), "{sql}: {told}");
    }
}

/// SU-10: verification reads while tools are pinned anew, and takes no newborn pin for a forged one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pins_that_change_meanwhile_are_no_error() {
    let world = World::new();
    let open = world.open().await;
    open.chronicle.pin(episode(), "github", tools(50, "first"), FirstSight).await.unwrap();
    // More than verification reads at once.
    let mut crowd = JoinSet::new();
    for _ in 0..2_500 {
        let fact = Fact::ServerState { server: "github".to_owned(), from: "idle", to: "ready", reason: None };
        let chronicle = open.chronicle.clone();
        crowd.spawn(async move { chronicle.put(episode(), fact).await });
    }
    for put in crowd.join_all().await {
        put.unwrap();
    }
    let mut sizes = Vec::new();
    let reader = Reader::open(&Paths::beside(&world.database())).unwrap();
    let verdict = reader.verify(&mut |done, _| {
        sizes.push(done);
        let anew = open.chronicle.pin(episode(), "github", tools(50, &done.to_string()), Accepted);
        block_in_place(|| Handle::current().block_on(anew)).unwrap();
        true
    });
    let verdict = verdict.unwrap();
    assert!(verdict.valid, "{:?}", verdict.broken);
    assert_eq!(sizes, [2_048, 2_503], "pinned anew between two ranges, and while the last is compared");
    open.close().await;
    assert_eq!(world.records("tool.pinned").len(), 3);
}

/// SU-4: a ledger that an older colibri wrote verifies as it is, is brought up by the first start, and
/// remembers from then on.
#[tokio::test]
async fn a_ledger_of_the_schema_before_is_taken_up() {
    let world = World::new();
    world.open().await.close().await;
    world.sql("DROP TABLE tool_pin; DROP TABLE server_catalog; PRAGMA user_version = 4");
    let verdict = world.verdict();
    assert!(verdict.valid, "{verdict:?}");
    let open = world.open().await;
    assert!(open.chronicle.pins("github").await.unwrap().is_empty());
    open.chronicle.pin(episode(), "github", tools(2, "one"), FirstSight).await.unwrap();
    open.chronicle.keep(Hash::ZERO, "[]".into()).await;
    assert!(open.chronicle.recall(Hash::ZERO).await.is_some());
    open.close().await;
    let verdict = world.verdict();
    assert_eq!((verdict.valid, verdict.record_count), (true, 2), "{verdict:?}");
}

/// SU-11: a log that was given up says nothing for the one that came after it: what it pinned is seen
/// for the first time again, on record.
#[tokio::test]
async fn pins_of_a_log_that_was_given_up_count_no_more() {
    let world = pinned().await;
    let key = Paths::beside(&world.database()).key;
    std::fs::remove_file(&key).unwrap();
    let reason = StoreError::Key { path: key, what: "is lost".to_owned() };
    accept_loss(&world.options(), &reason).unwrap();
    let open = world.open().await;
    assert!(open.chronicle.pins("github").await.unwrap().is_empty());
    assert!(world.verdict().valid, "{:?}", world.verdict());
    open.chronicle.pin(episode(), "github", tools(1, "three"), FirstSight).await.unwrap();
    assert_eq!(open.chronicle.pins("github").await.unwrap(), tools(1, "three").into_iter().collect());
    open.close().await;
    assert!(world.verdict().valid, "{:?}", world.verdict());
    // Nor can a row be brought over from it.
    world.sql("UPDATE tool_pin SET place = 1 << 40 | 3 WHERE server = 'github' AND tool = 'tool_00000'");
    assert!(!world.verdict().valid);
}
