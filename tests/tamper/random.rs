//! Any single change of any value of any table, or a row more or less: found, whatever it is.

use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use super::ledger::{Copy, Ledger, is_full};

/// SU-4, SU-10: none of many random edits is missed.
#[test]
fn no_random_edit_is_missed() {
    let (edits, seed) = (if is_full() { 10_000 } else { 300 }, seed());
    println!("seed {seed}: set COLIBRI_SEED to it to see the same edits again");
    // One complete subtree is enough, and the less there is, the more often each row has its turn.
    let ledger = Ledger::build(140).with_pins();
    let copy = ledger.copy();
    let mut dice = Dice(seed);
    for number in 0..edits {
        copy.restore(&ledger);
        let edit = random_edit(&copy, &mut dice);
        let about = || format!("edit {number} of seed {seed}: {edit}");
        match copy.verdict() {
            Ok(verdict) => {
                assert!(!verdict.valid && verdict.first_broken_at.is_some(), "missed: {}", about());
            }
            Err(error) => assert!(edit.starts_with("log: removed"), "unreadable: {}: {error}", about()),
        }
        // The binary agrees; now and then is enough, since it asks the library.
        if number % 20 == 0 {
            let code = copy.colibri(&["audit", "verify"]).status.code();
            assert!(matches!(code, Some(6 | 9)), "{}: {code:?}", about());
        }
    }
}

/// Tables, and whether removing a row is a change at all: a body may be erased, and a checkpoint is
/// kept in the file too.
const TABLES: [(&str, bool); 7] = [
    ("record", true),
    ("log", true),
    ("subtree", true),
    ("call", true),
    ("tool_pin", true),
    ("checkpoint", false),
    ("body", false),
];

/// Changes one thing, and tells what.
fn random_edit(copy: &Copy, dice: &mut Dice) -> String {
    let connection = copy.connect();
    loop {
        let (table, may_not_lose) = TABLES[dice.below(TABLES.len())];
        let (columns, row) = random_row(&connection, table, dice);
        let is_this = columns.iter().map(|name| format!("{name} IS ?")).collect::<Vec<_>>().join(" AND ");
        let column = dice.below(columns.len());
        let mut changed = row.clone();
        changed[column] = dice.change(&row[column]);
        let (what, done) = match dice.below(8) {
            0 if may_not_lose => {
                let sql = format!("DELETE FROM {table} WHERE {is_this}");
                ("removed", connection.execute(&sql, params_from_iter(&row)))
            }
            1 => {
                let marks = vec!["?"; columns.len()].join(", ");
                let sql = format!("INSERT INTO {table} VALUES ({marks})");
                ("added", connection.execute(&sql, params_from_iter(&changed)))
            }
            _ => {
                let sql = format!("UPDATE {table} SET {} = ? WHERE {is_this}", columns[column]);
                let values = std::iter::once(&changed[column]).chain(&row);
                ("changed", connection.execute(&sql, params_from_iter(values)))
            }
        };
        // What the schema itself refuses is no edit; the dice are thrown again.
        if let Ok(count) = done {
            assert_eq!(count, 1, "{table}: {what} {row:?}");
            return format!("{table}: {what} {}: {row:?} -> {:?}", columns[column], changed[column]);
        }
    }
}

fn random_row(connection: &Connection, table: &str, dice: &mut Dice) -> (Vec<String>, Vec<Value>) {
    let count: i64 =
        connection.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap();
    let offset = dice.below(usize::try_from(count).unwrap());
    let mut any = connection.prepare(&format!("SELECT * FROM {table} LIMIT 1 OFFSET {offset}")).unwrap();
    let columns: Vec<String> = any.column_names().map(str::to_owned).collect();
    let values = |row: &rusqlite::Row<'_>| (0..columns.len()).map(|column| row.get(column)).collect();
    let row = any.query_row([], values).unwrap();
    (columns, row)
}

/// A small generator that starts again from its seed.
struct Dice(u64);

impl Dice {
    /// Steele, Lea and Flood's SplitMix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// Another value of the same type, always.
    fn change(&mut self, value: &Value) -> Value {
        match value {
            Value::Integer(number) if self.below(2) == 0 => Value::Integer(number ^ 1 << self.below(63)),
            Value::Integer(number) => Value::Integer(number + 1),
            Value::Text(text) => {
                // Only ASCII is changed into ASCII, so that it stays text.
                let at = self.below(text.len());
                let mut bytes = text.clone().into_bytes();
                match bytes[at] {
                    byte if byte.is_ascii() => bytes[at] = (byte + 1 + self.below(126) as u8) % 128,
                    _ => bytes.truncate(text.floor_char_boundary(at)),
                }
                Value::Text(String::from_utf8(bytes).unwrap())
            }
            Value::Blob(bytes) if bytes.is_empty() || self.below(10) == 0 => {
                let mut longer = bytes.clone();
                longer.push(self.next() as u8);
                Value::Blob(longer)
            }
            Value::Blob(bytes) => {
                let mut other = bytes.clone();
                let at = self.below(bytes.len());
                match self.below(10) {
                    0 => other.truncate(at),
                    _ => other[at] ^= 1 << self.below(8),
                }
                Value::Blob(other)
            }
            Value::Null => Value::Integer(self.below(1000).cast_signed() as i64),
            Value::Real(number) => Value::Real(number + 1.0),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the same edits again, for who looks for a missed one")]
fn seed() -> u64 {
    let given = std::env::var("COLIBRI_SEED").ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or_else(|| getrandom::u64().unwrap())
}
