//! What leaves a real ledger is verified in another place, with nothing but the file and the key.

use std::path::Path;
use std::process::Output;

use serde_json::Value;
use tempfile::TempDir;

use super::ledger::{Copy, Ledger, colibri, is_full, place};

/// What an auditor has: a folder with the files that were handed over, and the key.
pub(super) struct Auditor {
    folder: TempDir,
}

impl Auditor {
    /// Hands over proofs of some records, the bundle, the newest checkpoint and the public key.
    pub(super) fn of(copy: &Copy, indices: &[u64]) -> Self {
        let auditor = Self { folder: tempfile::tempdir().unwrap() };
        for index in indices {
            let file = auditor.path(&format!("{index}.tlog-proof"));
            did(&copy.colibri(&["audit", "prove", "--index", &index.to_string(), "-o", &file]));
        }
        did(&copy.colibri(&["audit", "export", "-o", &auditor.path("ledger.bundle")]));
        let bundle = std::fs::read_to_string(auditor.path("ledger.bundle")).unwrap();
        let note = bundle.split_once("\n\n").unwrap().1;
        std::fs::write(auditor.path("checkpoint"), note).unwrap();
        let key = copy.colibri(&["audit", "key", "show"]);
        did(&key);
        std::fs::write(auditor.path("key"), key.stdout).unwrap();
        auditor
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    pub(super) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    fn verify(&self, name: &str) -> Output {
        colibri(self.folder(), &["--json", "verify", name, "--key", "key"])
    }

    /// Puts other bytes in the place of a file and expects a refusal.
    #[track_caller]
    fn refuses(&self, name: &str, bytes: &[u8], why: &str) {
        std::fs::write(self.path("changed"), bytes).unwrap();
        let output = self.verify("changed");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(6), "{name}, {why}: {said}");
        assert!(output.stdout.is_empty(), "{name}, {why}");
    }
}

#[track_caller]
fn did(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// SU-11: every kind of file, of logs of several sizes, needs only itself and the public key.
#[test]
fn proofs_bundle_and_checkpoint_are_verified_elsewhere() {
    let check = |ledger: &Ledger, indices: &[u64]| {
        let copy = ledger.copy();
        let auditor = Auditor::of(&copy, indices);
        drop(copy);
        for index in indices {
            let name = format!("{index}.tlog-proof");
            let output = auditor.verify(&name);
            did(&output);
            let verdict: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!((&verdict["what"], &verdict["index"]), (&"proof".into(), &(*index).into()));
            assert_eq!(verdict["size"], ledger.size);
            let record: Value = serde_json::from_str(verdict["record"].as_str().unwrap()).unwrap();
            assert_eq!(record["index"], *index);
        }
        for (name, what) in [("ledger.bundle", "bundle"), ("checkpoint", "checkpoint")] {
            let output = auditor.verify(name);
            did(&output);
            let verdict: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!((&verdict["what"], &verdict["size"]), (&what.into(), &ledger.size.into()));
        }
    };
    let ledger = Ledger::get();
    check(ledger, &[0, 1, 2, 127, 255, 256, 300, 511, 512, ledger.size - 2, ledger.size - 1]);
    check(&Ledger::build(0), &[0, 1]);
    let small = Ledger::build(8);
    check(&small, &(0..small.size).collect::<Vec<_>>());
}

/// SU-11: a changed byte, wherever it is, a missing and an additional one: exit 6.
#[test]
fn a_changed_file_is_refused() {
    // All positions when asked for; otherwise enough that every line of every file has its turn.
    let check = |auditor: &Auditor, name: &str, samples: usize| {
        let good = auditor.read(name);
        let step = if is_full() && good.len() < 20_000 { 1 } else { good.len().div_ceil(samples) };
        for at in (0..good.len()).step_by(step) {
            // The first stays text; the second does not.
            for mask in if at % 2 == 0 { [0x01, 0x80] } else { [0x04, 0xff] } {
                let mut bytes = good.clone();
                bytes[at] ^= mask;
                auditor.refuses(name, &bytes, &format!("byte {at} changed by {mask:#04x}"));
            }
        }
        let (half, rest) = good.split_at(good.len() / 2);
        for (why, bytes) in [
            ("empty", Vec::new()),
            ("cut", half.to_vec()),
            ("without its last byte", good[..good.len() - 1].to_vec()),
            ("with one more", [&good, b"\n".as_slice()].concat()),
            ("with one inserted", [half, b"A", rest].concat()),
            ("twice", [good.clone(), good.clone()].concat()),
        ] {
            auditor.refuses(name, &bytes, why);
        }
    };
    let small = Auditor::of(&Ledger::build(8).copy(), &[5]);
    check(&small, "5.tlog-proof", 40);
    check(&small, "ledger.bundle", 40);
    check(&small, "checkpoint", 20);
    let large = Auditor::of(&Ledger::get().copy(), &[300]);
    check(&large, "300.tlog-proof", 40);
    check(&large, "ledger.bundle", 40);
}

/// SU-11: a proof is believed for the key it was made with and for no other, and a bundle of one
/// log is none of another.
#[test]
fn a_foreign_key_is_refused() {
    let (ours, theirs) = (Ledger::build(2).copy(), Ledger::build(2).copy());
    let (ours, theirs) = (Auditor::of(&ours, &[1]), Auditor::of(&theirs, &[1]));
    for name in ["1.tlog-proof", "ledger.bundle", "checkpoint"] {
        let output = colibri(ours.folder(), &["verify", name, "--key", &theirs.path("key")]);
        assert_eq!(output.status.code(), Some(6), "{name}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("no such key was given"), "{name}: {said}");
    }
}

/// SU-11: a rotated key does not take the past with it: what the old one signed stays provable with
/// the list of keys.
#[test]
fn a_note_of_the_key_before_the_rotation_needs_that_key() {
    let copy = Ledger::get().copy();
    let notes = std::fs::read_to_string(copy.paths().checkpoints).unwrap();
    let first: Vec<&str> = notes.lines().skip(1).take(5).collect();
    std::fs::write(copy.folder().join("first"), first.join("\n") + "\n").unwrap();
    let keys = copy.paths().public_keys;
    let newest = std::fs::read_to_string(&keys).unwrap().lines().last().unwrap().to_owned();
    let verify = |key: &str| colibri(copy.folder(), &["verify", "first", "--key", key]).status.code();
    assert_eq!(verify(keys.to_str().unwrap()), Some(0));
    assert_eq!(verify(&newest), Some(6));
}

/// SU-11: what is not signed yet cannot be proved, and is told so.
#[test]
fn an_unsigned_record_is_told_apart() {
    let ledger = Ledger::get();
    let copy = ledger.copy();
    // As after a crash: the newest records are there, the newest signature is not.
    copy.sql(&format!("DELETE FROM checkpoint WHERE size = {}", ledger.size));
    copy.change_notes(|notes| {
        let lines: Vec<_> = notes.lines().collect();
        lines[..lines.len() - 6].join("\n") + "\n"
    });
    let signed = ledger.signed[ledger.signed.len() - 2];
    let prove = |index: u64| copy.colibri(&["audit", "prove", "--index", &index.to_string(), "-o", "-"]);
    let unsigned = prove(ledger.size - 1);
    assert_eq!(unsigned.status.code(), Some(2));
    let said = String::from_utf8(unsigned.stderr).unwrap();
    let expected = format!("record {} is not signed yet (signed: {signed})", ledger.size - 1);
    assert!(said.contains(&expected), "{said}");
    did(&prove(signed - 1));
    let missing = prove(ledger.size);
    assert!(String::from_utf8(missing.stderr).unwrap().contains("there is no record"));
}

/// SU-11: the checkpoint file has a signature before the database does; a crash between the two
/// keeps nothing from being proved.
#[test]
fn a_checkpoint_that_only_the_file_has_is_used() {
    let ledger = Ledger::get();
    let copy = ledger.copy();
    copy.sql("DELETE FROM checkpoint");
    let index = (ledger.size - 1).to_string();
    did(&copy.colibri(&["audit", "prove", "--index", &index, "-o", "-"]));
    assert!(copy.verdict().unwrap().valid);
}

/// SU-11: a ledger that was tampered with hands out nothing that would be refused later.
#[test]
fn a_broken_ledger_hands_out_no_proof() {
    let copy = Ledger::get().copy();
    let sql =
        format!("UPDATE record SET bytes = replace(bytes, 'tool_', 'fool_') WHERE place = {}", place(5));
    copy.sql(&sql);
    for arguments in [["audit", "prove", "--index", "5"].as_slice(), &["audit", "export"]] {
        let output = copy.colibri(arguments);
        assert_eq!(output.status.code(), Some(6), "{arguments:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("run `colibri audit verify`"), "{said}");
    }
    did(&copy.colibri(&["audit", "prove", "--index", "6", "-o", "-"]));
}
