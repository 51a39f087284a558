//! The catalogs that are remembered between two starts.

use bytes::Bytes;
use colibri::domain::chronicle::{CATALOG_BYTES_MAX, CATALOGS_MAX, Chronicle};
use colibri::domain::merkle::{Hash, leaf_hash};
use rusqlite::Connection;

use super::World;

fn server(number: u32) -> Hash {
    leaf_hash(&number.to_be_bytes())
}

/// PR-5: a catalog is there after a restart, by its configuration alone, and leaves no record.
#[tokio::test]
async fn a_catalog_is_recalled_after_a_restart() {
    let world = World::new();
    let open = world.open().await;
    assert_eq!(open.chronicle.recall(server(1)).await, None);
    open.chronicle.keep(server(1), "[1]".into()).await;
    open.chronicle.keep(server(2), "[2]".into()).await;
    open.chronicle.keep(server(1), "[3]".into()).await;
    open.close().await;
    let open = world.open().await;
    assert_eq!(open.chronicle.recall(server(1)).await, Some(Bytes::from("[3]")));
    assert_eq!(open.chronicle.recall(server(2)).await, Some(Bytes::from("[2]")));
    assert_eq!(open.chronicle.recall(server(3)).await, None);
    open.close().await;
    let verdict = world.verdict();
    assert_eq!((verdict.valid, verdict.record_count), (true, 1), "{verdict:?}");
}

/// PR-5: not more than so many are kept; what was used lately stays.
#[tokio::test]
async fn the_least_used_catalogs_go() {
    let world = World::new();
    let open = world.open().await;
    for number in 0..CATALOGS_MAX {
        open.chronicle.keep(server(number), format!("[{number}]").into()).await;
        world.calendar.pass(1);
    }
    assert!(open.chronicle.recall(server(0)).await.is_some(), "all fit, and the first is used again");
    open.chronicle.keep(server(1), "[1]".into()).await; // The same as before is a use too.
    for number in CATALOGS_MAX..CATALOGS_MAX + 10 {
        world.calendar.pass(1);
        open.chronicle.keep(server(number), "[]".into()).await;
    }
    let mut gone = Vec::new();
    for number in 0..CATALOGS_MAX + 10 {
        if open.chronicle.recall(server(number)).await.is_none() {
            gone.push(number);
        }
    }
    assert_eq!(gone, (2..12).collect::<Vec<_>>());
    open.close().await;
    let connection = Connection::open(world.database()).unwrap();
    let count: u32 =
        connection.query_row("SELECT count(*) FROM server_catalog", [], |row| row.get(0)).unwrap();
    assert_eq!(count, CATALOGS_MAX);
}

/// PR-5: a catalog at the bound is kept whole; beyond it there is none, rather than an old one.
#[tokio::test]
async fn a_catalog_too_large_is_not_kept() {
    let world = World::new();
    let open = world.open().await;
    let largest = Bytes::from(vec![b' '; CATALOG_BYTES_MAX]);
    open.chronicle.keep(server(1), largest.clone()).await;
    assert!(open.chronicle.recall(server(1)).await == Some(largest));
    open.chronicle.keep(server(1), vec![b' '; CATALOG_BYTES_MAX + 1].into()).await;
    assert_eq!(open.chronicle.recall(server(1)).await, None);
    open.close().await;
}
