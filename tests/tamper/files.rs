//! What lies around the log: its checkpoints, the schema, and the files beside the database.

use super::edits::Found::{At, Unreadable, Within};
use super::edits::Start::{May, Refuses};
use super::edits::{Found, check};
use super::ledger::{Copy, Ledger};

/// SU-11: checkpoints in the database and outside it watch each other.
#[test]
fn a_changed_checkpoint_is_found() {
    let ledger = Ledger::get();
    let (first, second) = (ledger.signed[0], ledger.signed[1]);
    let newest = ledger.size;
    let at = |sql: &str| sql.replace("SECOND", &second.to_string());
    let database = |sql: &str, found: Found| check(sql, |copy| copy.sql(&at(sql)), &found, &May);
    database("UPDATE checkpoint SET note = replace(note, char(10), ' ') WHERE size = SECOND", At(second));
    database("UPDATE checkpoint SET size = SECOND + 1 WHERE size = SECOND", At(second + 1));
    database(
        "UPDATE checkpoint SET note = (SELECT note FROM checkpoint ORDER BY size LIMIT 1) WHERE size = SECOND",
        At(second),
    );
    database("INSERT INTO checkpoint SELECT 2, size, note FROM checkpoint LIMIT 1", At(newest));
    let line = |number: usize| move |notes: &str| notes.lines().nth(number).unwrap().to_owned();
    // An empty line comes before each note; a note has five: origin, size, root, nothing, signature.
    for (name, number) in [("origin", 7), ("size", 8), ("root", 9), ("signature", 11)] {
        let edit = |notes: String| {
            let old = line(number)(&notes);
            let middle = old.len() / 2;
            let other = if old.as_bytes()[middle] == b'A' { 'B' } else { 'A' };
            let mut lines: Vec<_> = notes.lines().map(str::to_owned).collect();
            lines[number].replace_range(middle..=middle, &other.to_string());
            lines.join("\n") + "\n"
        };
        let expected = Within(first..=second);
        check(&format!("{name} edited"), |copy| copy.change_notes(edit), &expected, &May);
        let remove = |notes: String| {
            let mut lines: Vec<_> = notes.lines().collect();
            lines.remove(number);
            lines.join("\n") + "\n"
        };
        check(&format!("{name} removed"), |copy| copy.change_notes(remove), &expected, &May);
    }
    let remove = |notes: String| {
        let lines: Vec<_> = notes.lines().collect();
        [&lines[..6], &lines[12..]].concat().join("\n") + "\n"
    };
    check("a note removed", |copy| copy.change_notes(remove), &At(second), &May);
    let lost = Refuses("is lost");
    let empty = |copy: &Copy| copy.change_notes(|_| String::new());
    check("the file emptied", empty, &At(0), &lost);
    let delete = |copy: &Copy| std::fs::remove_file(copy.paths().checkpoints).unwrap();
    check("the file deleted", delete, &At(0), &lost);
}

/// SU-10, SU-11: what the database is made of, and the files beside it.
#[test]
fn a_changed_schema_a_lost_database_and_lost_keys_are_found() {
    let batch = |sql: &'static str| move |copy: &Copy| copy.connect().execute_batch(sql).unwrap();
    let lie = "DROP VIEW actions; CREATE VIEW actions AS SELECT 0 AS sequence_no";
    check("a view that lies", batch(lie), &At(0), &May);
    let spy = "CREATE TRIGGER spy AFTER INSERT ON record BEGIN DELETE FROM body; END";
    check("a trigger", batch(spy), &At(0), &May);
    check("an index dropped", batch("DROP INDEX call_open"), &At(0), &May);
    check("a schema of the future", batch("PRAGMA user_version = 99"), &Unreadable("99"), &Refuses("99"));
    let gone = |copy: &Copy| std::fs::remove_file(copy.paths().database).unwrap();
    check("no database", gone, &Unreadable("the database is gone"), &Refuses("the database is gone"));
    let garbage = |copy: &Copy| std::fs::write(copy.paths().database, vec![b'x'; 8192]).unwrap();
    check("no database at all", garbage, &Unreadable("is damaged"), &Refuses("is damaged"));
    let keyless = |copy: &Copy| std::fs::remove_file(copy.paths().public_keys).unwrap();
    let first = Ledger::get().signed[0];
    check("no public keys", keyless, &Within(0..=first), &Refuses("no such key was given"));
}
