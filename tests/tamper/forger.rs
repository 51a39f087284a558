//! The best attacker who has the database but not the key: changes records and then makes every row
//! of every table agree with them, with the same functions that colibri uses.

use std::collections::HashMap;

use colibri::domain::audit::CallId;
use colibri::domain::ledger::{Event, Record};
use colibri::domain::merkle::{Frontier, Hash, leaf_hash};
use rusqlite::{Connection, OptionalExtension, params};

use super::ledger::place;

/// A record with the body that is kept beside it.
pub(super) struct Forged {
    pub(super) record: Record,
    body: Option<(Vec<u8>, Vec<u8>)>,
}

/// Reads the log, lets the attacker change it, and writes a database that agrees with itself. The
/// checkpoints above `signed` are removed from it: nothing in it contradicts the new history.
pub(super) fn forge(connection: &mut Connection, signed: u64, change: impl FnOnce(&mut Vec<Forged>)) {
    let mut log = read(connection);
    change(&mut log);
    let transaction = connection.transaction().unwrap();
    for table in ["record", "body", "call", "subtree"] {
        transaction.execute(&format!("DELETE FROM {table}"), []).unwrap();
    }
    transaction.execute("DELETE FROM checkpoint WHERE size > ?", [signed.cast_signed()]).unwrap();
    write(&transaction, log);
    transaction.commit().unwrap();
}

fn read(connection: &Connection) -> Vec<Forged> {
    let mut records = connection.prepare("SELECT place, bytes FROM record ORDER BY place").unwrap();
    let rows = records.query_map([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?))).unwrap();
    let forged = rows.map(|row| {
        let (place, bytes) = row.unwrap();
        let sql = "SELECT salt, kept FROM body WHERE place = ?";
        let body = connection.query_row(sql, [place], |row| Ok((row.get(0)?, row.get(1)?))).optional();
        Forged { record: serde_json::from_str(&bytes).unwrap(), body: body.unwrap() }
    });
    forged.collect()
}

fn write(connection: &Connection, log: Vec<Forged>) {
    let (mut frontier, mut prev) = (Frontier::default(), Hash::ZERO);
    let mut numbers: HashMap<CallId, u64> = HashMap::new();
    for Forged { mut record, body } in log {
        let index = frontier.size();
        (record.index, record.prev) = (index, prev);
        match &mut record.event {
            Event::CallEnter(enter) => {
                enter.sequence_no = numbers.len() as u64;
                numbers.insert(enter.call, enter.sequence_no);
                let row = params![place(enter.sequence_no), place(index), enter.process];
                connection
                    .execute("INSERT INTO call (number, enter, process) VALUES (?, ?, ?)", row)
                    .unwrap();
            }
            Event::CallExit(exit) => {
                exit.sequence_no = numbers[&exit.call];
                let row = params![place(index), place(exit.sequence_no)];
                connection.execute("UPDATE call SET exit = ? WHERE number = ?", row).unwrap();
            }
            _ => {}
        }
        let bytes = record.to_bytes();
        prev = leaf_hash(&bytes);
        let row = params![place(index), str::from_utf8(&bytes).unwrap(), prev.0];
        connection.execute("INSERT INTO record (place, bytes, leaf) VALUES (?, ?, ?)", row).unwrap();
        if let Some((salt, kept)) = body {
            let row = params![place(index), salt, kept];
            connection.execute("INSERT INTO body (place, salt, kept) VALUES (?, ?, ?)", row).unwrap();
        }
        for node in frontier.append(prev).iter().filter(|node| node.height > 0 && node.height % 8 == 0) {
            let row = params![node.height / 8, node.index.cast_signed(), node.hash.0];
            connection
                .execute("INSERT INTO subtree (log, level, idx, hash) VALUES (1, ?, ?, ?)", row)
                .unwrap();
        }
    }
    let row = params![
        frontier.size().cast_signed(),
        frontier.to_bytes(),
        prev.0,
        (numbers.len() as u64).cast_signed()
    ];
    connection.execute("UPDATE log SET size = ?, frontier = ?, last_leaf = ?, calls = ?", row).unwrap();
}
