//! What only a person may do: giving up a log that cannot be used, and replacing the key.

use std::fs;

use serde_json::Value;

use super::support::{Place, Ran};

/// A ledger with a few signed calls, closed cleanly.
fn used() -> Place {
    let place = Place::new();
    for _ in 0..3 {
        assert_eq!(place.run(&["call", "server_ping"]).code, Some(0));
    }
    place
}

/// The first record of the newest log.
fn first_record(place: &Place) -> Value {
    let shown = place.run(&["--json", "audit", "show", "--index", "0"]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    serde_json::from_str::<Value>(&shown.stdout).unwrap()["records"][0]["record"].take()
}

/// SU-11: giving up a log needs a loss and a yes; the new log names the old one and why it was given
/// up, and serves.
#[test]
fn a_loss_is_accepted_only_on_request_and_the_new_log_names_the_old() {
    check("an older copy was restored", "9 records were signed, and only 7 are there", |place| {
        fs::copy(&place.database, place.folder.join("older")).unwrap();
        assert_eq!(place.run(&["call", "server_ping"]).code, Some(0));
        fs::copy(place.folder.join("older"), &place.database).unwrap();
    });
    check("the private key is lost", "is lost", |place| fs::remove_file(place.paths().key).unwrap());
    check("the private key is garbage", "is not a key", |place| fs::write(place.paths().key, "x").unwrap());
    check("the list of public keys is garbage", "bad key on line 1", |place| {
        fs::write(place.paths().public_keys, "x\n").unwrap();
    });
    check("the list of public keys is lost", "no such key", |place| {
        fs::remove_file(place.paths().public_keys).unwrap();
    });
    check("the checkpoint file is lost", "is lost", |place| {
        fs::remove_file(place.paths().checkpoints).unwrap();
    });
    check("the database is garbage", "not a database", |place| {
        fs::write(&place.database, b"this was a database once, and now it is only a text").unwrap();
    });
    check("a page in the middle is garbage", "malformed", |place| {
        let mut bytes = fs::read(&place.database).unwrap();
        // Every page but the first, so that whatever is read is hit.
        bytes[4096..].fill(0x5A);
        fs::write(&place.database, bytes).unwrap();
    });
    check("the database is cut short", "", |place| {
        let file = fs::OpenOptions::new().write(true).open(&place.database).unwrap();
        file.set_len(4096 * 2 + 77).unwrap();
    });
    check("the database is gone", "the database is gone", |place| fs::remove_file(&place.database).unwrap());
    check("the database is emptied", "the database is gone", |place| {
        fs::write(&place.database, b"").unwrap();
    });
}

#[track_caller]
fn check(story: &str, refusal: &str, damage: impl FnOnce(&Place)) {
    let place = used();
    let origin = first_record(&place)["log"].as_str().unwrap().to_owned();
    damage(&place);
    let refused = place.run(&["call", "server_ping"]);
    assert_eq!(refused.code, Some(9), "{story}: {refused:?}");
    assert!(refused.stderr.contains(refusal), "{story}: {refused:?}");
    assert!(refused.stderr.contains("audit accept-loss"), "{story}: it says what to do: {refused:?}");

    let asked = place.run(&["audit", "accept-loss"]);
    assert_eq!(asked.code, Some(9), "{story}, without --yes: {asked:?}");
    assert_eq!(place.run(&["call", "server_ping"]).code, Some(9), "{story}: nothing has changed yet");

    let accepted = place.run(&["audit", "accept-loss", "--yes"]);
    assert_eq!(accepted.code, Some(0), "{story}: {accepted:?}");
    let opened = first_record(&place);
    assert_eq!(opened["event"], "log.opened", "{story}");
    assert_ne!(opened["log"], origin, "{story}: another log");
    assert_eq!(opened["facts"]["predecessor"]["origin"], origin, "{story}: {opened}");
    let reason = opened["facts"]["predecessor"]["reason"].as_str().unwrap();
    assert!(reason.contains(refusal), "{story}: {reason}");

    let mut client = place.serve("after the loss");
    assert!(client.call("server_ping").is_ok(), "{story}");
    let health = client.call("server_health").envelope;
    assert_eq!(health["data"]["status"], "ok", "{story}: {health}");
    assert!(client.end().0.success(), "{story}");
    place.verify();
    let sound = place.run(&["audit", "accept-loss", "--yes"]);
    assert_eq!(sound.code, Some(2), "{story}: there is nothing more to accept: {sound:?}");
}

/// SU-11: nobody can give up a log that is sound, nor one that only waits for room or a newer colibri.
#[test]
fn without_a_loss_there_is_nothing_to_accept() {
    let place = used();
    let refused = place.run(&["audit", "accept-loss", "--yes"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("sound"), "{refused:?}");
    let connection = rusqlite::Connection::open(&place.database).unwrap();
    connection.pragma_update(None, "user_version", 99).unwrap();
    drop(connection);
    let refused = place.run(&["audit", "accept-loss", "--yes"]);
    assert_eq!(refused.code, Some(9), "{refused:?}");
    assert!(refused.stderr.contains("schema version 99"), "{refused:?}");
}

/// SU-11: the key is replaced under a server that runs: both go on, proofs from before verify with the
/// old key and those from after with the new one.
#[test]
fn the_key_is_replaced_while_another_process_serves() {
    let place = used();
    let key = |place: &Place| place.run(&["audit", "key", "show"]).stdout.trim().to_owned();
    let prove = |index: &str, file: &str| {
        let ran = place.run(&["audit", "prove", "--index", index, "-o", file]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
    };
    let verify = |file: &str, key: &str| place.run(&["verify", file, "--key", key]).code;
    let old = key(&place);
    prove("1", "old.proof");
    let mut client = place.serve("serving");
    assert!(client.call("server_ping").is_ok());

    let Ran { code, stdout, stderr } = place.run(&["--json", "audit", "key", "rotate"]);
    assert_eq!(code, Some(0), "{stderr}");
    let rotated: Value = serde_json::from_str(&stdout).unwrap();
    let new = key(&place);
    assert_eq!((&rotated["old"], &rotated["new"]), (&Value::from(old.clone()), &Value::from(new.clone())));

    assert!(client.call("server_ping").is_ok(), "the server goes on");
    let health = client.call("server_health").envelope;
    assert_eq!(health["data"]["status"], "ok", "{health}");
    assert!(client.end().0.success());
    prove("1", "new.proof");
    assert_eq!((verify("old.proof", &old), verify("old.proof", &new)), (Some(0), Some(6)));
    assert_eq!((verify("new.proof", &new), verify("new.proof", &old)), (Some(0), Some(6)));
    place.verify();
}

/// SU-11: a rotation that fails, here for want of the key, leaves the write lock free: others go on.
#[test]
fn a_failed_rotation_holds_nobody_up() {
    let place = used();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (rotating, closing) = super::store::open(&place);
        let (other, other_closing) = super::store::open(&place);
        rotating.ready().await.unwrap();
        other.ready().await.unwrap();
        let key = place.paths().key;
        fs::rename(&key, key.with_extension("away")).unwrap();
        let failed = rotating.rotate_key().await.unwrap_err();
        assert!(failed.to_string().contains("is lost"), "{failed}");
        fs::rename(key.with_extension("away"), &key).unwrap();
        super::store::call(&other, "other").await.unwrap();
        closing.close().await;
        other_closing.close().await;
    });
    place.verify();
}
