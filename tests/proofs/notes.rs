//! Keys and signed checkpoints, in both directions with `signed_note`.

use colibri::domain::merkle::{Hash, leaf_hash};
use colibri::domain::note::{
    Checkpoint, KeyError, NOTE_BYTES_MAX, NoteError, SIGNATURES_MAX, SigningKey, VerifyingKey,
};
use signed_note::{Note, StandardSigner, StandardVerifier, VerifierList};

/// A key pair that Go's documentation of signed notes has made known.
const KNOWN_PRIVATE: &str = "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz";
const KNOWN_PUBLIC: &str = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
const LOG: &str = "example.com/log";

pub(super) fn key(name: &str, seed: u8) -> SigningKey {
    SigningKey::from_seed(name, [seed; 32]).unwrap()
}

pub(super) fn checkpoint(size: u64, root: Hash) -> Checkpoint {
    Checkpoint { origin: LOG.to_owned(), size, root }
}

/// The text with one byte changed, every byte in several ways.
pub(super) fn changes(text: &str) -> impl Iterator<Item = String> {
    text.bytes().enumerate().flat_map(move |(place, byte)| {
        [byte ^ 1, byte ^ 2, b'A', b'0', b'\n', b' '].into_iter().filter_map(move |other| {
            let mut changed = text.as_bytes().to_vec();
            changed[place] = other;
            if other == byte { None } else { String::from_utf8(changed).ok() }
        })
    })
}

/// What `signed_note` makes of a checkpoint, with these private keys.
fn their_note(text: &str, keys: &[&SigningKey]) -> String {
    let signers: Vec<_> =
        keys.iter().map(|key| StandardSigner::new(&key.to_private_text()).unwrap()).collect();
    let signers: Vec<_> = signers.iter().map(|signer| signer as &dyn signed_note::Signer).collect();
    let mut note = Note::new(text.as_bytes(), &[]).unwrap();
    note.add_sigs(&signers).unwrap();
    String::from_utf8(note.to_bytes()).unwrap()
}

/// SU-11: notes are the same text whoever makes them, and each side believes the other's.
#[test]
fn notes_are_believed_by_an_independent_implementation_and_theirs_by_ours() {
    for (seed, size) in [(1, 0), (2, 1), (3, 256), (4, u64::MAX)] {
        let key = key(LOG, seed);
        let checkpoint = checkpoint(size, leaf_hash(&[seed]));
        let note = checkpoint.sign(&key).unwrap();

        let verifier = StandardVerifier::new(&key.verifying_key().to_string()).unwrap();
        let theirs = Note::from_bytes(note.as_str().as_bytes()).unwrap();
        let (good, unknown) = theirs.verify(&VerifierList::new(vec![Box::new(verifier)])).unwrap();
        assert_eq!((good.len(), unknown.len()), (1, 0));
        let read = tlog_tiles::checkpoint::Checkpoint::from_bytes(theirs.text()).unwrap();
        assert_eq!((read.origin(), read.size(), read.hash().0), (LOG, size, checkpoint.root.0));

        assert_eq!(their_note(&checkpoint.text(), &[&key]), note.as_str());
        assert_eq!(Checkpoint::open(note.as_str(), &[key.verifying_key()]), Ok(checkpoint));
    }
}

/// SU-11: a key given in its text form is the key that was printed.
#[test]
fn keys_are_read_back_from_their_text() {
    let known: SigningKey = KNOWN_PRIVATE.parse().unwrap();
    assert_eq!(known.to_private_text(), KNOWN_PRIVATE);
    assert_eq!(known.verifying_key().to_string(), KNOWN_PUBLIC);
    assert_eq!((known.name(), known.verifying_key().id()), ("PeterNeumann", 0xc74f_20a3));
    for seed in 0..=255 {
        let key = key(LOG, seed);
        let again: SigningKey = key.to_private_text().parse().unwrap();
        assert_eq!(again.verifying_key(), key.verifying_key());
        assert_eq!(key.verifying_key().to_string().parse(), Ok(key.verifying_key()));
    }
}

/// SU-11: a damaged or wrong key is refused in words, and the words never quote it.
#[test]
fn damaged_keys_are_refused() {
    let public = |text: &str| text.parse::<VerifyingKey>().unwrap_err();
    let private = |text: &str| text.parse::<SigningKey>().unwrap_err();
    let id = KeyError::Id { computed: "c74f20a3".to_owned() };

    assert_eq!(public(""), KeyError::Malformed);
    assert_eq!(public("PeterNeumann+c74f20a3"), KeyError::Malformed);
    assert_eq!(public(&KNOWN_PUBLIC[..KNOWN_PUBLIC.len() - 1]), KeyError::Malformed);
    assert_eq!(public(&format!("{KNOWN_PUBLIC}\n")), KeyError::Malformed);
    assert_eq!(public(&KNOWN_PUBLIC["PeterNeumann".len()..]), KeyError::Name);
    assert_eq!(public(&KNOWN_PUBLIC.replace("Peter", "Peter ")), KeyError::Name);
    assert_eq!(public(&KNOWN_PUBLIC.replace("+AR", "+BB")), KeyError::Algorithm(4));
    assert_eq!(public(&KNOWN_PUBLIC.replace("c74f20a3", "c74f20a4")), id);
    assert_eq!(public(&KNOWN_PUBLIC.replace("c74f20a3", "C74F20A3")), id);
    assert!(matches!(public(&KNOWN_PUBLIC.replace("Peter", "Paul")), KeyError::Id { .. }));
    assert_eq!(public(KNOWN_PRIVATE), KeyError::Private);
    // The neutral point: with it, anything verifies.
    assert_eq!(public("weak+00000000+AQEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"), KeyError::Point);

    assert_eq!(private(KNOWN_PUBLIC), KeyError::Malformed);
    assert_eq!(private(&KNOWN_PRIVATE.replace("c74f20a3", "00000000")), id);
    assert!(matches!(private(&KNOWN_PRIVATE.replace("AYEK", "AYEL")), KeyError::Id { .. }));
    assert!(!private(&KNOWN_PRIVATE.replace("AYEK", "AYEL")).to_string().contains("FALVFGy"));
}

/// SU-11: who must have signed for a checkpoint to be believed.
#[test]
fn a_checkpoint_is_believed_for_its_own_logs_key_only() {
    let (log, other, witness) = (key(LOG, 1), key(LOG, 2), key("witness.example", 3));
    let checkpoint = checkpoint(7, leaf_hash(b""));
    let public = SigningKey::verifying_key;
    let open = |signers: &[&SigningKey], keys: &[VerifyingKey]| {
        Checkpoint::open(&their_note(&checkpoint.text(), signers), keys)
    };
    let name = |key: &SigningKey| format!("{}+{:08x}", key.name(), key.verifying_key().id());
    let unknown = |signers: String| Err(NoteError::UnknownKey { signers });
    let good = Ok(checkpoint.clone());

    assert_eq!(open(&[&log], &[public(&log)]), good);
    assert_eq!(open(&[&log], &[public(&other), public(&log), public(&log)]), good);
    assert_eq!(open(&[&witness, &log], &[public(&log)]), good);
    assert_eq!(open(&[&log, &witness], &[public(&log), public(&witness)]), good);
    assert_eq!(open(&[&log], &[]), unknown(name(&log)));
    assert_eq!(open(&[&log], &[public(&other)]), unknown(name(&log)));
    assert_eq!(
        open(&[&log, &witness], &[public(&other)]),
        unknown(format!("{}, {}", name(&log), name(&witness)))
    );
    let not_the_log = Err(NoteError::NotTheLog { origin: LOG.to_owned(), key: "witness.example".to_owned() });
    assert_eq!(open(&[&log, &witness], &[public(&witness)]), not_the_log);
    assert_eq!(checkpoint.sign(&witness).map(|_| ()), not_the_log.map(|_| ()));
}

/// SU-11: any change after signing is found; with a good signature beside a bad one, too.
#[test]
fn a_changed_note_is_refused() {
    let (log, keys) = (key(LOG, 1), [key(LOG, 1).verifying_key()]);
    let note = checkpoint(42, leaf_hash(b"")).sign(&log).unwrap().into_string();
    for changed in changes(&note) {
        assert!(Checkpoint::open(&changed, &keys).is_err(), "{changed}");
    }
    let bad = NoteError::BadSignature { key: format!("{LOG}+{:08x}", keys[0].id()) };
    assert_eq!(Checkpoint::open(&note.replace("\n42\n", "\n43\n"), &keys), Err(bad.clone()));
    let forged = checkpoint(43, leaf_hash(b"")).sign(&log).unwrap().into_string();
    let line = forged.lines().last().unwrap();
    assert_eq!(Checkpoint::open(&format!("{note}{line}\n"), &keys), Err(bad));
}

/// SU-11: a checkpoint has one spelling. Each row is signed correctly, so that only the form is wrong.
#[test]
fn malformed_notes_are_refused() {
    let (log, keys) = (key(LOG, 1), [key(LOG, 1).verifying_key()]);
    let root = leaf_hash(b"").to_base64();
    let texts = [
        (format!("{LOG}\n1\n{root}\nextension\n"), "three lines"),
        (format!("{LOG}\n1\n{root}\n\n"), "three lines"),
        (format!("{LOG}\n1\n"), "three lines"),
        (format!("\n1\n{root}\n"), "origin"),
        (format!("a b\n1\n{root}\n"), "origin"),
        (format!("{LOG}\n01\n{root}\n"), "size"),
        (format!("{LOG}\n+1\n{root}\n"), "size"),
        (format!("{LOG}\n\n{root}\n"), "size"),
        (format!("{LOG}\n18446744073709551616\n{root}\n"), "size"),
        (format!("{LOG}\n1\n{}\n", root.trim_end_matches('=')), "root"),
        (format!("{LOG}\n1\n{root} \n"), "root"),
        (format!("{LOG}\n1\nAAAA\n"), "root"),
    ];
    for (text, what) in texts {
        check_malformed(&their_note(&text, &[&log]), &keys, what);
    }

    let good = checkpoint(1, leaf_hash(b"")).sign(&log).unwrap().into_string();
    let (text, signature) = good.split_once("\n\n").unwrap();
    let unknown = format!("— stranger {}\n", "AAAA".repeat(18));
    let frames = [
        (String::new(), "blank line"),
        (good.replace("\n\n", "\n"), "blank line"),
        (format!("{text}\n\n"), "no signature"),
        (format!("{text}\n\n\n"), "no signature"),
        (good.trim_end().to_owned(), "no end"),
        (format!("{good}\n"), "signature"),
        (format!("{good}stranger\n"), "signature line"),
        (good.replace('—', "-"), "signature line"),
        (good.replace("— ", "—  "), "signature line"),
        (good.replace(signature, &format!("— {LOG} AAAAAA==\n")), "signature line"),
        (good.replace(signature, &format!("— {LOG} AAAA!AAA\n")), "signature line"),
        (good.replace('\n', "\r\n"), "control character"),
        (format!("{good}{}", unknown.repeat(SIGNATURES_MAX)), "too many signatures"),
        (format!("{good}— stranger {}\n", "A".repeat(NOTE_BYTES_MAX)), "too long"),
    ];
    for (note, what) in frames {
        check_malformed(&note, &keys, what);
    }
    // The most that is admitted, to show that the limit is where it is said to be.
    let crowded = format!("{good}{}", unknown.repeat(SIGNATURES_MAX - 1));
    assert!(Checkpoint::open(&crowded, &keys).is_ok());
}

#[track_caller]
fn check_malformed(note: &str, keys: &[VerifyingKey], what: &str) {
    match Checkpoint::open(note, keys) {
        Err(NoteError::Malformed(said)) => assert!(said.contains(what), "said `{said}`, not `{what}`"),
        other => panic!("expected `{what}`, got {other:?} for\n{note}"),
    }
}
