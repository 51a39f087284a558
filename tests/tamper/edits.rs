//! One manipulation a story: who did what to the data folder, where it must be found, and whether
//! `colibri serve` may still start.

use std::ops::RangeInclusive;

use colibri::domain::ledger::{Event, Record};
use colibri::domain::merkle::leaf_hash;
use colibri::store::Reader;
use rusqlite::params;
use serde_json::Value;

use super::forger::forge;
use super::ledger::{Copy, Ledger, Writing, place};

/// Where a manipulation must be found.
pub(super) enum Found {
    /// Exactly there.
    At(u64),
    /// No evidence is more precise: the first broken place named is one of these.
    Within(RangeInclusive<u64>),
    /// There is nothing to verify any more: exit 9 and these words.
    Unreadable(&'static str),
}

/// What `colibri serve` must do.
pub(super) enum Start {
    /// The start checks the end of the log and the newest signature, not all of it.
    May,
    /// It must refuse: exit 9 and these words.
    Refuses(&'static str),
}

use Found::{At, Unreadable, Within};
use Start::{May, Refuses};

/// SU-4, SU-10: tampers with a copy and looks for it with the binary and the library.
#[track_caller]
pub(super) fn check(name: &str, tamper: impl FnOnce(&Copy), found: &Found, start: &Start) {
    let copy = Ledger::get().copy();
    tamper(&copy);
    let verified = copy.colibri(&["--json", "audit", "verify"]);
    let text = String::from_utf8(verified.stdout).unwrap();
    match found {
        Unreadable(words) => {
            assert_eq!(verified.status.code(), Some(9), "{name}: {text}");
            let error = copy.verdict().expect_err(name).to_string();
            assert!(error.contains(words), "{name}: {error}");
            assert!(String::from_utf8(verified.stderr).unwrap().contains(words), "{name}: {error}");
        }
        At(_) | Within(_) => {
            assert_eq!(verified.status.code(), Some(6), "{name}: {text}");
            let verdict: Value = serde_json::from_str(&text).unwrap();
            let first = verdict["first_broken_at"].as_u64().expect(name);
            let expected = match found {
                At(index) => *index..=*index,
                Within(range) => range.clone(),
                Unreadable(_) => unreachable!("matched above"),
            };
            assert!(expected.contains(&first), "{name}: {first} is not in {expected:?}: {text}");
            assert_eq!(verdict["valid"], false, "{name}");
            let library = serde_json::to_value(copy.verdict().unwrap()).unwrap();
            assert_eq!(library, verdict, "{name}");
        }
    }
    if let Refuses(words) = start {
        let served = copy.colibri(&["serve"]);
        let said = String::from_utf8(served.stderr).unwrap();
        assert_eq!(served.status.code(), Some(9), "{name}: {said}");
        assert!(said.contains("[colibri] fatal: ") && said.contains(words), "{name}: {said}");
        assert!(served.stdout.is_empty(), "{name}: nothing but frames on stdout");
    }
}

/// SU-10: the control. What nobody touched is intact, also after colibri has used it again.
#[test]
fn an_untouched_copy_is_intact() {
    let ledger = Ledger::get();
    let copy = ledger.copy();
    let verdict = copy.verdict().unwrap();
    assert_eq!((verdict.valid, verdict.record_count), (true, ledger.size), "{:?}", verdict.broken);
    assert_eq!(verdict.checkpoints, ledger.signed.len() as u64);
    assert!(verdict.bodies > 300, "{}", verdict.bodies);
    let verified = copy.colibri(&["audit", "verify"]);
    assert_eq!(verified.status.code(), Some(0));
    assert!(String::from_utf8(verified.stdout).unwrap().starts_with("intact: "));
    assert_eq!(copy.colibri(&["serve"]).status.code(), Some(0), "it starts, and closes the open call");
    let verdict = copy.verdict().unwrap();
    assert_eq!((verdict.valid, verdict.record_count), (true, ledger.size + 1), "{:?}", verdict.broken);
}

/// SU-10: verification reads while others write, and takes no newborn record for an intruder.
#[test]
fn a_ledger_that_is_being_written_is_intact() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("ledger.db");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let writing = runtime.block_on(Writing::to(&database));
    let paths = writing.store.paths().clone();
    let busy = runtime.spawn(async move {
        for number in 0..300 {
            writing.call(number).await;
            if number % 20 == 0 {
                writing.store.checkpoint().await.unwrap();
            }
        }
        writing.close().await;
    });
    let mut sizes = std::collections::BTreeSet::new();
    while !busy.is_finished() {
        let verdict = Reader::open(&paths).unwrap().verify(&mut |_, _| true).unwrap();
        assert!(verdict.valid, "{:?}", verdict.broken);
        sizes.insert(verdict.record_count);
    }
    runtime.block_on(busy).unwrap();
    assert!(sizes.len() > 2, "it was seen growing: {sizes:?}");
}

/// SU-4: a body may be erased with its salt; that breaks nothing.
#[test]
fn an_erased_body_is_no_error() {
    let copy = Ledger::get().copy();
    let before = copy.verdict().unwrap().bodies;
    copy.sql(&format!("DELETE FROM body WHERE place = {}", place(1)));
    let verdict = copy.verdict().unwrap();
    assert_eq!((verdict.valid, verdict.bodies), (true, before - 1), "{:?}", verdict.broken);
    copy.sql("DELETE FROM body");
    assert_eq!(copy.colibri(&["audit", "verify"]).status.code(), Some(0));
}

/// SU-4: bodies are proved as far as they are kept.
#[test]
fn a_changed_body_is_found() {
    let at = place(201);
    let check = |name: &str, sql: String| check(name, |copy| copy.sql(&sql), &At(201), &May);
    check("edited", format!("UPDATE body SET kept = CAST('{{\"forged\":1}}' AS BLOB) WHERE place = {at}"));
    check("longer", format!("UPDATE body SET kept = CAST(kept || ' ' AS BLOB) WHERE place = {at}"));
    check("emptied", format!("UPDATE body SET kept = x'' WHERE place = {at}"));
    check("another salt", format!("UPDATE body SET salt = zeroblob(16) WHERE place = {at}"));
    check(
        "another record's",
        format!(
            "UPDATE body SET (salt, kept) = (SELECT salt, kept FROM body WHERE place = {}) WHERE place = {at}",
            place(5)
        ),
    );
    let planted = "INSERT INTO body SELECT place - place % 1000 - 1, salt, kept FROM body LIMIT 1";
    let size = Ledger::get().size;
    super::edits::check("beside no log", |copy| copy.sql(planted), &At(size), &May);
    let planted = format!("INSERT INTO body SELECT {}, salt, kept FROM body LIMIT 1", place(0));
    super::edits::check("beside a record that seals none", |copy| copy.sql(&planted), &At(0), &May);
}

/// SU-4: one byte, of every kind, at both ends of the log and between.
#[test]
fn a_flipped_byte_is_found_where_it_is() {
    let size = Ledger::get().size;
    for index in [0, 351, size - 1] {
        for (class, is_in_class, other) in classes() {
            let name = format!("a {class} of record {index}");
            let flip =
                |copy: &Copy| change_record(copy, index, false, |bytes| flip(bytes, is_in_class, other));
            // The start verifies the last 256 records whole.
            let start = match class {
                _ if index < size - 256 => May,
                "quote" => Refuses("cannot read its end"),
                _ => Refuses("was changed"),
            };
            check(&name, flip, &At(index), &start);
        }
    }
}

/// SU-10: people are told the place too.
#[test]
fn a_broken_ledger_is_told_to_people() {
    let copy = Ledger::get().copy();
    change_record(&copy, 256, false, |bytes| flip(bytes, u8::is_ascii_digit, b'7'));
    let output = copy.colibri(&["audit", "verify"]);
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(told.starts_with("BROKEN in ") && told.contains("\n  at 256: its bytes do not have"), "{told}");
    assert_eq!(output.status.code(), Some(6));
}

/// SU-4: an attacker who also corrects the leaf hash is betrayed by the record that follows, or by
/// the next signature.
#[test]
fn a_changed_record_with_its_leaf_corrected_is_found() {
    let ledger = Ledger::get();
    let last = ledger.size - 1;
    let forged = |index: u64| {
        move |copy: &Copy| {
            change_record(copy, index, true, |bytes| {
                let text = str::from_utf8(bytes).unwrap().replacen("\"at\":\"20", "\"at\":\"19", 1);
                *bytes = text.into_bytes();
            });
        }
    };
    for index in [0, 1, 254, 255, 256, 351, last - 1] {
        check(&format!("record {index}"), forged(index), &At(index), &May);
    }
    // Nothing follows the last one; the signature covers it together with those before it.
    let since = ledger.signed_before(last);
    check("the last", forged(last), &Within(since..=last), &Refuses("is not the one its head names"));
    let unchained = |copy: &Copy| {
        change_record(copy, 300, true, |bytes| {
            let mut record: Record = serde_json::from_slice(bytes).unwrap();
            record.prev = leaf_hash(b"another");
            *bytes = record.to_bytes();
        });
    };
    check("a link", unchained, &At(300), &May);
}

/// SU-4: the leaf hashes that proofs are built from.
#[test]
fn a_changed_leaf_is_found() {
    let last = Ledger::get().size - 1;
    for index in [0, 350, last] {
        let set = |leaf: &str| format!("UPDATE record SET leaf = {leaf} WHERE place = {}", place(index));
        for leaf in ["zeroblob(32)", "x''", "substr(leaf, 2)", "leaf || x'00'"] {
            let sql = set(&format!("CAST({leaf} AS BLOB)"));
            check(&sql, |copy| copy.sql(&sql), &At(index), &May);
        }
    }
}

/// SU-4: no record leaves, joins or changes its place unnoticed.
#[test]
fn removed_inserted_and_moved_records_are_found() {
    let ledger = Ledger::get();
    let last = ledger.size - 1;
    for index in [0, 1, 350] {
        let sql = format!("DELETE FROM record WHERE place = {}", place(index));
        check(&sql, |copy| copy.sql(&sql), &At(index), &May);
    }
    let sql = format!("DELETE FROM record WHERE place = {}", place(last));
    check("the last one removed", |copy| copy.sql(&sql), &At(last), &Refuses("it ends otherwise"));
    check("all removed", |copy| copy.sql("DELETE FROM record"), &At(0), &Refuses("it ends otherwise"));
    let copied = |to: i64| format!("INSERT INTO record SELECT {to}, bytes, leaf FROM record LIMIT 1");
    let behind = copied(place(last + 1));
    check("one behind the end", |copy| copy.sql(&behind), &At(last + 1), &Refuses("it ends otherwise"));
    let far = copied(place(1 << 39));
    check("one far behind the end", |copy| copy.sql(&far), &At(last + 1), &Refuses("it ends otherwise"));
    let sql = copied(place(last + 1) << 1);
    check("one of a log that does not exist", |copy| copy.sql(&sql), &At(last + 1), &May);
    let sql = copied(7);
    check("one of no log", |copy| copy.sql(&sql), &At(last + 1), &May);
    check("two swapped", |copy| swap(copy, 300, 301), &At(300), &May);
    check("two swapped far apart", |copy| swap(copy, 3, 650), &At(3), &May);
    check("inserted, the rest moved up", insert_and_shift, &At(300), &May);
    check("one of another log", |copy| replace_by_foreign(copy, 5), &At(5), &May);
}

/// SU-11: an end that was cut off is found against any earlier checkpoint, though the database alone
/// looks perfect.
#[test]
fn a_cut_off_end_is_found() {
    let ledger = Ledger::get();
    for size in [0, 1, 255, 256, 400, ledger.size - 1] {
        let cut = |copy: &Copy| {
            forge(&mut copy.connect(), size, |log| log.truncate(usize::try_from(size).unwrap()));
        };
        let words =
            if size == 0 { "records were signed, and only 0" } else { "records were signed, and only" };
        check(&format!("cut to {size}"), cut, &At(size), &Refuses(words));
    }
    let restored = |copy: &Copy| {
        let _ = std::fs::copy(&ledger.older, copy.paths().database).unwrap();
    };
    let older = rusqlite::Connection::open(&ledger.older).unwrap();
    let size: i64 = older.query_row("SELECT size FROM log", [], |row| row.get(0)).unwrap();
    check("an older copy", restored, &At(size.cast_unsigned()), &Refuses("records were signed, and only"));
}

/// SU-4, SU-11: history rewritten from one record on, everything recomputed. Only the signatures
/// tell, and they tell since which of them.
#[test]
fn a_rewritten_history_is_found() {
    let ledger = Ledger::get();
    for index in [0, 1, 256, 351, 600, ledger.size - 1] {
        let since = ledger.signed_before(index);
        let name = format!("rewritten from {index} on");
        check(
            &name,
            |copy| rewrite(copy, index, since),
            &Within(since..=index),
            &Refuses("are not those that were signed"),
        );
    }
    let dropped = |copy: &Copy| {
        forge(&mut copy.connect(), 0, |log| {
            let call_of = |event: &Event| match event {
                Event::CallEnter(enter) => Some(enter.call),
                Event::CallExit(exit) => Some(exit.call),
                _ => None,
            };
            let gone = call_of(&log[401].record.event);
            log.retain(|forged| call_of(&forged.record.event) != gone);
        });
    };
    let since = ledger.signed_before(401);
    check("a call that never was", dropped, &Within(since..=401), &Refuses("records were signed, and only"));
}

/// SU-11: the control of the forger. Without the signatures that cover the change, its work is
/// perfect: what finds it is the signature and nothing else.
#[test]
fn a_rewritten_history_without_its_signatures_would_pass() {
    let (ledger, index) = (Ledger::get(), 600);
    let copy = ledger.copy();
    let since = ledger.signed_before(index);
    rewrite(&copy, index, since);
    copy.change_notes(|notes| {
        let later = notes.find(&format!("\n{}\n", ledger.signed.iter().find(|size| **size > since).unwrap()));
        let first_line = notes[..later.unwrap()].rfind('\n').unwrap();
        notes[..first_line].to_owned()
    });
    let verdict = copy.verdict().unwrap();
    assert!(verdict.valid, "{:?}", verdict.broken);
}

/// SU-10: the head is believed as little as anything else.
#[test]
fn a_changed_head_is_found() {
    let size = Ledger::get().size;
    let check = |set: &str, found: Found, words: &'static str| {
        check(set, |copy| copy.sql(&format!("UPDATE log SET {set}")), &found, &Refuses(words));
    };
    check("frontier = zeroblob(length(frontier))", At(size), "is not the root of its records");
    check("frontier = x'00'", At(size), "its head is broken");
    check("last_leaf = zeroblob(32)", At(size), "is not the one its head names");
    check("size = size - 1", At(size - 1), "its head is broken");
    check("size = size + 1", At(size), "its head is broken");
    check("size = -1", At(size), "its head is broken");
    check("origin = 'colibri/other'", At(0), "signed was colibri/");
    check("id = 2", At(0), "it ends otherwise");
    let counted = |copy: &Copy| copy.sql("UPDATE log SET calls = calls + 1");
    super::edits::check("calls", counted, &At(size), &May);
    let emptied = |copy: &Copy| copy.sql("DELETE FROM log");
    let words = "the database has no log";
    super::edits::check("no log", emptied, &Unreadable(words), &Refuses(words));
    let begun = "INSERT INTO log VALUES (2, 'colibri/mine', 0, x'', zeroblob(32), 0)";
    super::edits::check("a second log", |copy| copy.sql(begun), &At(0), &Refuses("signed was colibri/"));
}

/// SU-10: the tables that are derived from the records.
#[test]
fn a_changed_tree_or_call_is_found() {
    let ledger = Ledger::get();
    let size = ledger.size;
    let check = |sql: &str, found: Found| check(sql, |copy| copy.sql(sql), &found, &May);
    check("UPDATE subtree SET hash = zeroblob(32) WHERE idx = 0", At(0));
    check("UPDATE subtree SET hash = x'01' WHERE idx = 1", At(256));
    check("DELETE FROM subtree WHERE idx = 1", At(256));
    check("UPDATE subtree SET idx = 9 WHERE idx = 1", At(256));
    check("INSERT INTO subtree SELECT log, level, 2, hash FROM subtree LIMIT 1", At(size));
    check("INSERT INTO subtree SELECT 7, level, 2, hash FROM subtree LIMIT 1", At(size));
    let call = |change: &str| change.replace("WHERE 100", &format!("WHERE number = {}", place(100)));
    // Call 100 was opened by record 201 and closed by record 202.
    check(&call("DELETE FROM call WHERE 100"), At(201));
    check(&call("UPDATE call SET enter = enter + 1 WHERE 100"), At(201));
    check(&call("UPDATE call SET exit = NULL WHERE 100"), At(202));
    check(&call("UPDATE call SET exit = exit + 2 WHERE 100"), At(202));
    check(&call("UPDATE call SET process = 'another' WHERE 100"), At(201));
    check(&call("UPDATE call SET number = number + 5000 WHERE 100"), At(201));
    check("INSERT INTO call SELECT max(number) + 1, max(enter) + 1, NULL, 'another' FROM call", At(size));
    check("UPDATE call SET exit = enter + 1 WHERE exit IS NULL", At(size));
}

/// A kind of byte: its name, how it is known, and what it is replaced by.
type Class = (&'static str, fn(&u8) -> bool, u8);

fn classes() -> [Class; 4] {
    [
        ("digit", u8::is_ascii_digit, b'7'),
        ("letter", u8::is_ascii_lowercase, b'z'),
        ("brace", |byte| b"{}".contains(byte), b'['),
        // Not even UTF-8, which a column of text should be.
        ("quote", |byte| *byte == b'"', 0xff),
    ]
}

/// Replaces the class's byte nearest to the middle.
fn flip(bytes: &mut [u8], is_in_class: fn(&u8) -> bool, other: u8) {
    let middle = bytes.len() / 2;
    let candidates = (0..bytes.len()).filter(|at| is_in_class(&bytes[*at]) && bytes[*at] != other);
    let at = candidates.min_by_key(|at| at.abs_diff(middle)).unwrap();
    bytes[at] = other;
}

fn change_record(copy: &Copy, index: u64, correct_leaf: bool, change: impl FnOnce(&mut Vec<u8>)) {
    let connection = copy.connect();
    let sql = "SELECT bytes FROM record WHERE place = ?";
    let before: String = connection.query_row(sql, [place(index)], |row| row.get(0)).unwrap();
    let mut bytes = before.clone().into_bytes();
    change(&mut bytes);
    assert_ne!(before.as_bytes(), bytes, "record {index} is changed");
    let leaf = correct_leaf.then(|| leaf_hash(&bytes).0);
    let sql = "UPDATE record SET bytes = CAST(?1 AS TEXT), leaf = coalesce(?2, leaf) WHERE place = ?3";
    connection.execute(sql, params![bytes, leaf, place(index)]).unwrap();
}

fn swap(copy: &Copy, one: u64, other: u64) {
    let (one, other) = (place(one), place(other));
    let connection = copy.connect();
    let step = |from: i64, to: i64| {
        connection.execute("UPDATE record SET place = ? WHERE place = ?", [to, from]).unwrap();
    };
    step(one, -1);
    step(other, one);
    step(-1, other);
}

/// A record put between two others; everything behind it moves up by one place, unchanged.
fn insert_and_shift(copy: &Copy) {
    let connection = copy.connect();
    let (from, away) = (place(300), place(1 << 30));
    // By a detour: on the direct way, places would collide.
    connection.execute("UPDATE record SET place = place + ?1 WHERE place >= ?2", [away, from]).unwrap();
    let sql = "UPDATE record SET place = place - ?1 + 1 WHERE place >= ?2";
    connection.execute(sql, [away, from + away]).unwrap();
    let sql = "INSERT INTO record SELECT ?, bytes, leaf FROM record WHERE place = ?";
    connection.execute(sql, [from, place(20)]).unwrap();
    connection.execute("UPDATE log SET size = size + 1", []).unwrap();
}

fn replace_by_foreign(copy: &Copy, index: u64) {
    let other = Ledger::build(8).copy();
    let sql = "SELECT bytes, leaf FROM record WHERE place = ?";
    let found: (String, Vec<u8>) =
        other.connect().query_row(sql, [place(index)], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let row = params![found.0, found.1, place(index)];
    let sql = "UPDATE record SET bytes = ?, leaf = ? WHERE place = ?";
    copy.connect().execute(sql, row).unwrap();
}

/// One word of one record, and then everything that depends on it.
fn rewrite(copy: &Copy, index: u64, signed: u64) {
    forge(&mut copy.connect(), signed, |log| {
        "1999-12-31T23:59:59.999Z".clone_into(&mut log[usize::try_from(index).unwrap()].record.at);
    });
}
