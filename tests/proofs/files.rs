//! The two files an auditor is handed: `.tlog-proof` and the bundle.

use std::convert::Infallible;

use colibri::domain::ledger::RECORD_BYTES_MAX;
use colibri::domain::merkle::{Hash, Nodes, ProofError, fold_perfect, inclusion, leaf_hash, root_at};
use colibri::domain::note::{NoteError, SigningKey, VerifyingKey};
use colibri::domain::proof::bundle::{
    BundleError, BundleHeader, BundleVerdict, BundleVerifier, LINE_BYTES_MAX, Part,
};
use colibri::domain::proof::{HASHES_MAX, InclusionProof, MalformedProof, VerifyError};

use super::notes::{changes, checkpoint, key};

const LOG: &str = "example.com/log";

/// A log of a few records that recomputes every node.
struct Records(Vec<String>);

impl Records {
    fn of(size: usize) -> Self {
        Self((0..size).map(|index| format!(r#"{{"index":{index},"kind":"enter"}}"#)).collect())
    }

    fn signed(&mut self, key: &SigningKey) -> String {
        let size = self.0.len() as u64;
        let root = root_at(self, size).unwrap();
        checkpoint(size, root).sign(key).unwrap().into_string()
    }

    fn proof(&mut self, index: u64, key: &SigningKey) -> InclusionProof {
        let hashes = inclusion(self, index, self.0.len() as u64).unwrap();
        let extra = Some(self.0[usize::try_from(index).unwrap()].clone().into_bytes());
        InclusionProof { extra, index, hashes, checkpoint: self.signed(key) }
    }

    fn bundle(&mut self, key: &SigningKey) -> String {
        let header = BundleHeader { origin: LOG.to_owned(), records: self.0.len() as u64 };
        let records: String = self.0.iter().flat_map(|record| [record, "\n"]).collect();
        format!("{header}{records}\n{}", self.signed(key))
    }
}

impl Nodes for Records {
    type Error = Infallible;

    fn node(&mut self, height: u8, index: u64) -> Result<Hash, Infallible> {
        let (from, count) = (usize::try_from(index << height).unwrap(), 1 << height);
        let leaves: Vec<_> =
            self.0[from..from + count].iter().map(|record| leaf_hash(record.as_bytes())).collect();
        Ok(fold_perfect(&leaves))
    }
}

/// SU-11: a proof file says all that is needed to check one record, and reads back as it was written.
#[test]
fn a_proof_file_proves_its_record() {
    let (key, keys) = (key(LOG, 1), [key(LOG, 1).verifying_key()]);
    for size in [1, 2, 3, 7, 8, 21] {
        let mut log = Records::of(size);
        for index in 0..size as u64 {
            let text = log.proof(index, &key).to_string();
            let proof: InclusionProof = text.parse().unwrap();
            assert_eq!(proof.to_string(), text);
            let record = proof.extra.clone().unwrap();
            assert_eq!(proof.verify(&record, &keys).unwrap().size, size as u64);
            let bare = InclusionProof { extra: None, ..proof };
            assert_eq!(bare.to_string().parse(), Ok(bare));
        }
    }
}

/// SU-11: no proof of another record, of another log, or by another key.
#[test]
fn a_proof_file_proves_nothing_else() {
    let (log_key, keys) = (key(LOG, 1), [key(LOG, 1).verifying_key()]);
    let mut log = Records::of(21);
    let proof = log.proof(5, &log_key);
    let record = log.0[5].clone().into_bytes();
    let refused = |proof: &InclusionProof, record: &[u8], keys: &[VerifyingKey]| {
        proof.verify(record, keys).expect_err("it proves nothing")
    };

    let wrong_root = |error| matches!(error, VerifyError::Proof(ProofError::WrongRoot { size: 21, .. }));
    assert!(wrong_root(refused(&proof, &log.0[6].clone().into_bytes(), &keys)));
    assert!(wrong_root(refused(&proof, &[&record[..], b" "].concat(), &keys)));
    assert!(wrong_root(refused(&InclusionProof { index: 6, ..proof.clone() }, &record, &keys)));
    assert!(wrong_root(refused(&InclusionProof { index: 4, ..proof.clone() }, &record, &keys)));
    let beyond = refused(&InclusionProof { index: 21, ..proof.clone() }, &record, &keys);
    assert_eq!(beyond, VerifyError::Proof(ProofError::NoSuchRecord { index: 21, size: 21 }));

    let other_key = refused(&proof, &record, &[key(LOG, 2).verifying_key()]);
    assert!(matches!(other_key, VerifyError::Checkpoint(NoteError::UnknownKey { .. })), "{other_key}");
    let forged = InclusionProof { checkpoint: proof.checkpoint.replace("\n21\n", "\n22\n"), ..proof.clone() };
    let forged = refused(&forged, &record, &keys);
    assert!(matches!(forged, VerifyError::Checkpoint(NoteError::BadSignature { .. })), "{forged}");
    // The record's own node is no record.
    let children = InclusionProof { index: 2, hashes: proof.hashes[1..].to_vec(), ..proof.clone() };
    let pair = [leaf_hash(log.0[4].as_bytes()).0, leaf_hash(&record).0].concat();
    refused(&children, &pair, &keys);
}

/// SU-4, SU-11: no byte of either file can be changed.
#[test]
fn every_byte_of_a_file_matters() {
    let (key, keys) = (key(LOG, 1), [key(LOG, 1).verifying_key()]);
    for changed in changes(&Records::of(5).proof(2, &key).to_string()) {
        let verdict = changed.parse().map(|proof: InclusionProof| {
            let record = proof.extra.as_deref().unwrap_or_default();
            proof.verify(record, &keys).is_ok()
        });
        assert_ne!(verdict, Ok(true), "{changed}");
    }
    for changed in changes(&Records::of(5).bundle(&key)) {
        assert!(verify(&changed, &keys).is_err(), "{changed}");
    }
}

/// SU-11: a proof file has one spelling, and limits.
#[test]
fn malformed_proof_files_are_refused() {
    let mut log = Records::of(21);
    let good = log.proof(5, &key(LOG, 1)).to_string();
    let hash = leaf_hash(b"").to_base64();
    let extra = good.lines().nth(1).unwrap();
    let large = |bytes: usize| format!("extra {}", "AAAA".repeat(bytes.div_ceil(3)));
    let hashes =
        |count: usize| good.replace("index 5\n", &format!("index 5\n{}", format!("{hash}\n").repeat(count)));
    let rows = [
        (String::new(), 1, "too early"),
        (good.replace("@v1", "@v2"), 1, "first line"),
        (format!("\n{good}"), 1, "first line"),
        (good.replace('\n', "\r\n"), 1, "first line"),
        (good.replace(extra, "extra"), 2, "index"),
        (good.replace(extra, "extra !"), 2, "base64"),
        (good.replace(extra, &format!("{extra}=")), 2, "base64"),
        (good.replace(extra, &format!("{extra}\n{extra}")), 3, "index"),
        (good.replace(extra, &large(RECORD_BYTES_MAX + 3)), 2, "longer than a record"),
        (good.replace("index 5", "index 05"), 3, "index"),
        (good.replace("index 5", "index -1"), 3, "index"),
        (good.replace("index 5\n", ""), 3, "index"),
        (good.replace("index 5\n", "index 5\nAAAA\n"), 4, "SHA-256"),
        (good.replace("index 5\n", &format!("index 5\n{hash} \n")), 4, "SHA-256"),
        (hashes(HASHES_MAX), 68, "too many hashes"),
        (good.split("\n\n").next().unwrap().to_owned(), 8, "too early"),
        (format!("{good}{}", "a".repeat(512 << 10)), 1, "too long"),
    ];
    for (text, line, what) in rows {
        let error: MalformedProof = text.parse::<InclusionProof>().expect_err(what);
        assert_eq!(error.line, line, "{error}, not `{what}`");
        assert!(error.what.contains(what), "{error}, not `{what}`");
    }
    assert!(good.replace(extra, &large(RECORD_BYTES_MAX - 2)).parse::<InclusionProof>().is_ok());
}

fn verify(bundle: &str, keys: &[VerifyingKey]) -> Result<BundleVerdict, BundleError> {
    let mut verifier = BundleVerifier::default();
    for line in bundle.split_inclusive('\n') {
        verifier.push(line.as_bytes())?;
    }
    verifier.finish(keys)
}

/// SU-11: a bundle and a public key are all an auditor needs for the whole log.
#[test]
fn a_bundle_proves_the_whole_log() {
    let (key, keys) = (key(LOG, 1), [key(LOG, 1).verifying_key()]);
    for size in [0, 1, 2, 3, 64, 100] {
        let mut log = Records::of(size);
        let verdict = verify(&log.bundle(&key), &keys).unwrap();
        assert_eq!(verdict.checkpoint.size, size as u64);
        assert_eq!(verdict.checkpoint.root, root_at(&mut log, size as u64).unwrap());
    }
    let mut log = Records::of(2);
    let mut verifier = BundleVerifier::default();
    let parts: Vec<Part> =
        log.bundle(&key).split_inclusive('\n').map(|line| verifier.push(line.as_bytes()).unwrap()).collect();
    let record =
        |index: u64| Part::Record { index, leaf: leaf_hash(Records::of(2).0[index as usize].as_bytes()) };
    assert_eq!(parts[..3], [Part::Header; 3]);
    assert_eq!(parts[3..5], [record(0), record(1)]);
    assert_eq!(parts[5..], [Part::Checkpoint; 6]);
}

/// SU-4, SU-11: each way to tamper with a bundle, and what is said about it.
#[test]
fn a_tampered_bundle_is_refused() {
    let (log_key, keys) = (key(LOG, 1), [key(LOG, 1).verifying_key()]);
    let good = Records::of(9).bundle(&log_key);
    let lines: Vec<&str> = good.split_inclusive('\n').collect();
    let shorter = Records::of(8).bundle(&log_key);
    let note = good.split_once("\n\n").unwrap().1;
    let shorter_note = shorter.split_once("\n\n").unwrap().1;
    let swapped = [&lines[..5], &[lines[6], lines[5]], &lines[7..]].concat().concat();
    let without = |place: usize| [&lines[..place], &lines[place + 1..]].concat().concat();
    let one_more = [&lines[..5], &lines[4..]].concat().concat();
    let long = good.replacen(lines[3], &format!("{}\n", "x".repeat(LINE_BYTES_MAX)), 1);

    let rows = [
        (good.replacen("\"index\":4", "\"index\":5", 1), "the records add up to root"),
        (swapped, "the records add up to root"),
        (good.replacen("}\n", "}\r\n", 1), "the records add up to root"),
        (without(5), "the bundle announces 9 records and has 8"),
        (without(5).replace("records 9", "records 8"), "the bundle has 8 records, its checkpoint covers 9"),
        (one_more.clone(), "the bundle announces 9 records, but line 13 is one more"),
        (one_more.replace("records 9", "records 10"), "the bundle has 10 records, its checkpoint covers 9"),
        (good.replace(note, shorter_note), "the bundle has 9 records, its checkpoint covers 8"),
        (
            good.replacen("origin example.com", "origin example.org", 1),
            "the bundle is of the log `example.org/log`",
        ),
        (good.replace("\n9\n", "\n10\n"), "the checkpoint's signature by example.com/log+"),
        (lines[..8].concat(), "the bundle ends after 8 lines, before its checkpoint"),
        (lines[..12].concat(), "the bundle ends after 12 lines, before its checkpoint"),
        (lines[..13].concat(), "not a signed checkpoint"),
        (lines[..16].concat(), "not a signed checkpoint"),
        (good[..good.len() - 1].to_owned(), "line 18: it has no end: the file was cut"),
        (format!("{good}{}", lines[4]), "not a signed checkpoint"),
        (String::new(), "the bundle ends after 0 lines"),
        (good.replace("@v1", "@v2"), "line 1: it is not `colibri/ledger-bundle@v1`"),
        (without(1), "line 2: it is not `origin NAME`"),
        (without(2), "line 3: it is not `records N`"),
        (good.replace("records 9", "records 09"), "line 3: it is not `records N`"),
        (long, "line 4: it is too long"),
        (format!("{}{}", lines[..13].concat(), "a\n".repeat(256 << 10)), "the checkpoint is too long"),
    ];
    for (bundle, what) in rows {
        let error = verify(&bundle, &keys).expect_err(what).to_string();
        assert!(error.contains(what), "`{error}`, not `{what}`");
    }
    let stranger = verify(&good, &[key(LOG, 2).verifying_key()]);
    assert!(matches!(stranger, Err(BundleError::Checkpoint(NoteError::UnknownKey { .. }))));
}

/// SU-11: a caller that overlooks a refusal cannot go on to a good verdict.
#[test]
fn a_refused_line_cannot_be_made_good() {
    let (key, keys) = (key(LOG, 1), [key(LOG, 1).verifying_key()]);
    let good = Records::of(3).bundle(&key);
    for bad in [&b"no end"[..], b"two\nlines\n", b"\n", &vec![b'x'; LINE_BYTES_MAX + 1]] {
        let mut verifier = BundleVerifier::default();
        for (number, line) in good.split_inclusive('\n').enumerate() {
            if number == 4 {
                assert!(verifier.push(bad).is_err());
            }
            assert_eq!(verifier.push(line.as_bytes()).is_ok(), number < 4);
        }
        assert!(verifier.finish(&keys).is_err());
    }
    let mut verifier = BundleVerifier::default();
    assert!(verifier.push(b"\xff\n").is_err());
    let mut verifier = BundleVerifier::default();
    verifier.push(b"colibri/ledger-bundle@v1\n").unwrap();
    let error = verifier.push(b"origin \xff\n").unwrap_err().to_string();
    assert_eq!(error, "not a ledger bundle: line 2: it is not UTF-8");
}
