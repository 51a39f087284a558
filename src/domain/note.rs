//! Signed checkpoints: what a log's owner says about it, as C2SP signed notes (c2sp.org/signed-note,
//! c2sp.org/tlog-checkpoint) with Ed25519.
//!
//! Owns: the text forms of keys, checkpoints and signatures, signing, and the decision whether a note
//! is to be believed.
//! Must not know: where keys are kept, how a seed was made, what the log holds.

use std::fmt;
use std::hint::black_box;
use std::str::FromStr;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ed25519_dalek::{Signature, Signer as _};
use sha2::{Digest as _, Sha256};

use super::merkle::Hash;

/// One note. Room for [`SIGNATURES_MAX`] signatures of the largest kind in sight (5 kB).
pub const NOTE_BYTES_MAX: usize = 256 << 10;
/// Per note. The specification asks for 16 at least: the log's own, and its witnesses'.
pub const SIGNATURES_MAX: usize = 32;
/// A key's name, which is the log's origin. Longer than any host name with a path people type.
pub const NAME_BYTES_MAX: usize = 255;

/// The signature type byte of plain Ed25519, before every key in its text form.
const ED25519: u8 = 0x01;
const KEY_BYTES: usize = 33;
const PRIVATE_PREFIX: &str = "PRIVATE+KEY+";
const SIGNATURE_PREFIX: &str = "— ";

/// What a log says of itself: this many records, this root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The log's name, and the name of the key that signs for it.
    pub origin: String,
    /// How many records it has.
    pub size: u64,
    /// The root over them.
    pub root: Hash,
}

/// A checkpoint with its signature: a note, ready to be kept or sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedCheckpoint(String);

impl Checkpoint {
    /// The three lines that are signed.
    pub fn text(&self) -> String {
        format!("{}\n{}\n{}\n", self.origin, self.size, self.root.to_base64())
    }

    /// Signs it. Only the key that bears the log's name can.
    pub fn sign(&self, key: &SigningKey) -> Result<SignedCheckpoint, NoteError> {
        if self.origin != key.name {
            return Err(NoteError::NotTheLog { origin: self.origin.clone(), key: key.name.clone() });
        }
        let text = self.text();
        let verifier = key.verifying_key();
        let mut signature = verifier.id.to_be_bytes().to_vec();
        signature.extend_from_slice(&key.key.sign(text.as_bytes()).to_bytes());
        let signature = BASE64_STANDARD.encode(signature);
        Ok(SignedCheckpoint(format!("{text}\n{SIGNATURE_PREFIX}{} {signature}\n", key.name)))
    }

    /// Reads a note, and believes it only if a known key of the log's own name signed it.
    ///
    /// Signatures of unknown keys are passed over, as witnesses may add theirs; a bad one of a known
    /// key spoils the note.
    pub fn open(note: &str, keys: &[VerifyingKey]) -> Result<Self, NoteError> {
        let Parsed { text, checkpoint, signatures } = parse(note)?;
        let mut known_as = None;
        let mut believed = false;
        for line in &signatures {
            let mut candidates =
                keys.iter().filter(|key| key.name == line.name && key.id == line.id).peekable();
            if candidates.peek().is_none() {
                continue;
            }
            if !candidates.any(|key| key.verifies(text, &line.signature)) {
                return Err(NoteError::BadSignature { key: line.key() });
            }
            known_as = Some(line.name);
            believed |= line.name == checkpoint.origin;
        }
        match known_as {
            _ if believed => Ok(checkpoint),
            Some(key) => Err(NoteError::NotTheLog { origin: checkpoint.origin, key: key.to_owned() }),
            None => Err(NoteError::UnknownKey {
                signers: signatures.iter().map(SignatureLine::key).collect::<Vec<_>>().join(", "),
            }),
        }
    }
}

impl SignedCheckpoint {
    /// The note.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The note, owned.
    pub fn into_string(self) -> String {
        self.0
    }
}

impl fmt::Display for SignedCheckpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Why a note is not believed, or not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoteError {
    /// It is not a signed checkpoint at all, or not spelled in the one way it may be.
    #[error("not a signed checkpoint: {0}")]
    Malformed(&'static str),
    /// Nobody we know signed it. It may be genuine: try the key of the log it names.
    #[error("the checkpoint is signed by {signers}, and no such key was given")]
    UnknownKey {
        /// Who did, as `name+id`.
        signers: String,
    },
    /// The text or the signature was changed after signing.
    #[error("the checkpoint's signature by {key} is wrong: it was changed after signing")]
    BadSignature {
        /// Whose, as `name+id`.
        key: String,
    },
    /// A key speaks for the log that bears its name, and for no other.
    #[error("the checkpoint is of the log `{origin}`, for which the key `{key}` cannot speak")]
    NotTheLog {
        /// The log's name.
        origin: String,
        /// The key's name.
        key: String,
    },
}

struct Parsed<'a> {
    /// What was signed, its last newline included.
    text: &'a str,
    checkpoint: Checkpoint,
    signatures: Vec<SignatureLine<'a>>,
}

struct SignatureLine<'a> {
    name: &'a str,
    id: u32,
    signature: Vec<u8>,
}

impl SignatureLine<'_> {
    fn key(&self) -> String {
        format!("{}+{:08x}", self.name, self.id)
    }
}

fn parse(note: &str) -> Result<Parsed<'_>, NoteError> {
    let malformed = |what| Err(NoteError::Malformed(what));
    if note.len() > NOTE_BYTES_MAX {
        return malformed("it is too long");
    }
    if note.bytes().any(|byte| byte < b' ' && byte != b'\n') {
        return malformed("it contains a control character");
    }
    let Some(blank) = note.rfind("\n\n") else {
        return malformed("no blank line parts the text from the signatures");
    };
    let text = &note[..=blank];
    let Some(lines) = note[blank + 2..].strip_suffix('\n') else {
        return malformed("its last line has no end, or there is no signature");
    };
    if lines.split('\n').count() > SIGNATURES_MAX {
        return malformed("it has too many signatures");
    }
    let signatures = lines.split('\n').map(signature_line).collect::<Option<_>>();
    let Some(signatures) = signatures else {
        return malformed("a signature line is not `— name base64`");
    };
    Ok(Parsed { text, checkpoint: checkpoint(&text[..blank])?, signatures })
}

/// The text without its last newline.
fn checkpoint(text: &str) -> Result<Checkpoint, NoteError> {
    let lines: Vec<&str> = text.splitn(4, '\n').collect();
    let &[origin, size, root] = lines.as_slice() else {
        // Extension lines are legal, but nothing colibri signs has any, and what they would mean is
        // not ours to ignore.
        return Err(NoteError::Malformed("its text is not the three lines origin, size and root"));
    };
    if !is_name(origin) {
        return Err(NoteError::Malformed("its origin is no key name"));
    }
    let size = decimal(size).ok_or(NoteError::Malformed("its size is no plain decimal number"))?;
    let root = Hash::from_base64(root).map_err(|_| NoteError::Malformed("its root is no base64 SHA-256"))?;
    Ok(Checkpoint { origin: origin.to_owned(), size, root })
}

fn signature_line(line: &str) -> Option<SignatureLine<'_>> {
    let (name, base64) = line.strip_prefix(SIGNATURE_PREFIX)?.split_once(' ')?;
    let bytes = BASE64_STANDARD.decode(base64).ok()?;
    let (id, signature) = bytes.split_first_chunk()?;
    let line = SignatureLine { name, id: u32::from_be_bytes(*id), signature: signature.to_vec() };
    (is_name(name) && !signature.is_empty()).then_some(line)
}

/// A number in its one spelling: no sign, no leading zeros.
pub fn decimal(text: &str) -> Option<u64> {
    text.parse().ok().filter(|number: &u64| number.to_string() == text)
}

/// Non-empty, without spaces, pluses or control characters: it must survive in a line and in a key.
fn is_name(name: &str) -> bool {
    let odd = |c: char| c.is_whitespace() || c.is_control() || c == '+';
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.contains(odd)
}

/// The secret half of a log's key. Its seed is wiped from memory when it is dropped.
pub struct SigningKey {
    name: String,
    key: ed25519_dalek::SigningKey,
}

impl SigningKey {
    /// The key that a seed of 32 random bytes gives, for the log called `name`.
    pub fn from_seed(name: &str, mut seed: [u8; 32]) -> Result<Self, KeyError> {
        let key = ed25519_dalek::SigningKey::from_bytes(&seed);
        wipe(&mut seed);
        if is_name(name) { Ok(Self { name: name.to_owned(), key }) } else { Err(KeyError::Name) }
    }

    /// The log it signs for.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The half that may be given away.
    pub fn verifying_key(&self) -> VerifyingKey {
        VerifyingKey::new(&self.name, self.key.verifying_key())
    }

    /// `PRIVATE+KEY+<name>+<id>+<base64>`, for the key file. It *is* the secret: not for logs. There
    /// is no `Display`, so that it takes a decision to get it.
    pub fn to_private_text(&self) -> String {
        let mut bytes = [ED25519; KEY_BYTES];
        bytes[1..].copy_from_slice(self.key.as_bytes());
        let text = format!("{PRIVATE_PREFIX}{}", key_text(&self.name, self.verifying_key().id, &bytes));
        wipe(&mut bytes);
        text
    }
}

impl FromStr for SigningKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let rest = text.strip_prefix(PRIVATE_PREFIX).ok_or(KeyError::Malformed)?;
        let (name, id, mut bytes) = parse_key(rest)?;
        let seed = bytes.last_chunk().expect("33 bytes end in 32");
        let key = Self { name: name.to_owned(), key: ed25519_dalek::SigningKey::from_bytes(seed) };
        wipe(&mut bytes);
        key.verifying_key().check_id(id)?;
        Ok(key)
    }
}

impl fmt::Debug for SigningKey {
    /// Names the key; never shows it.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SigningKey({}+{:08x})", self.name, self.verifying_key().id)
    }
}

/// The public half of a log's key. Its text form, `<name>+<id>+<base64>`, is all an auditor needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyingKey {
    name: String,
    /// Short, to find the key by; it proves nothing.
    id: u32,
    key: ed25519_dalek::VerifyingKey,
}

impl VerifyingKey {
    fn new(name: &str, key: ed25519_dalek::VerifyingKey) -> Self {
        let digest = Sha256::new()
            .chain_update(name)
            .chain_update([b'\n', ED25519])
            .chain_update(key.as_bytes())
            .finalize();
        let id = u32::from_be_bytes(*digest.first_chunk().expect("a SHA-256 has 32 bytes"));
        Self { name: name.to_owned(), id, key }
    }

    /// The log it speaks for.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number by which signatures name it.
    pub fn id(&self) -> u32 {
        self.id
    }

    fn verifies(&self, text: &str, signature: &[u8]) -> bool {
        Signature::from_slice(signature)
            .is_ok_and(|signature| self.key.verify_strict(text.as_bytes(), &signature).is_ok())
    }

    fn check_id(&self, written: &str) -> Result<(), KeyError> {
        let computed = format!("{:08x}", self.id);
        if written == computed { Ok(()) } else { Err(KeyError::Id { computed }) }
    }
}

impl fmt::Display for VerifyingKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = [ED25519; KEY_BYTES];
        bytes[1..].copy_from_slice(self.key.as_bytes());
        out.write_str(&key_text(&self.name, self.id, &bytes))
    }
}

impl FromStr for VerifyingKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        if text.starts_with(PRIVATE_PREFIX) {
            return Err(KeyError::Private);
        }
        let (name, id, bytes) = parse_key(text)?;
        let point = bytes.last_chunk().expect("33 bytes end in 32");
        // A weak key verifies signatures that nobody made.
        let key = ed25519_dalek::VerifyingKey::from_bytes(point)
            .ok()
            .filter(|key| !key.is_weak())
            .ok_or(KeyError::Point)?;
        let key = Self::new(name, key);
        key.check_id(id)?;
        Ok(key)
    }
}

/// Why a text is no key. Never quotes the text, which may be secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// It has not the form of one.
    #[error("not a key: it should be `name+id+base64`, with `PRIVATE+KEY+` before a private one")]
    Malformed,
    /// The name cannot be a log's.
    #[error("not a key name: 1 to {NAME_BYTES_MAX} bytes without spaces, `+` or control characters")]
    Name,
    /// It is for another kind of signature.
    #[error("a key of type {0:#04x}, but only Ed25519 (0x01) is understood")]
    Algorithm(u8),
    /// Its parts do not belong together: name, id or key was changed or mistyped.
    #[error("the key's name, id and body do not belong together: by its body the id is {computed}")]
    Id {
        /// The id that name and body give.
        computed: String,
    },
    /// No Ed25519 public key has these bytes, or one that is not safe to use.
    #[error("not an Ed25519 public key")]
    Point,
    /// A private key where a public one belongs.
    #[error("a private key where the public one is wanted: keep it secret, and give the public one")]
    Private,
}

fn key_text(name: &str, id: u32, bytes: &[u8; KEY_BYTES]) -> String {
    format!("{name}+{id:08x}+{}", BASE64_STANDARD.encode(bytes))
}

/// Name, id and bytes of `name+id+base64`; base64 may itself contain a `+`.
fn parse_key(text: &str) -> Result<(&str, &str, [u8; KEY_BYTES]), KeyError> {
    let (name, rest) = text.split_once('+').ok_or(KeyError::Malformed)?;
    let (id, base64) = rest.split_once('+').ok_or(KeyError::Malformed)?;
    if !is_name(name) {
        return Err(KeyError::Name);
    }
    let mut bytes = [0; KEY_BYTES];
    match BASE64_STANDARD.decode_slice(base64, &mut bytes) {
        Ok(KEY_BYTES) if bytes[0] == ED25519 => Ok((name, id, bytes)),
        Ok(KEY_BYTES) => Err(KeyError::Algorithm(bytes[0])),
        _ => Err(KeyError::Malformed),
    }
}

/// Overwrites a copy of a secret. The black box keeps the compiler from dropping a write that
/// nobody reads.
fn wipe(bytes: &mut [u8]) {
    bytes.fill(0);
    black_box(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signing_key_does_not_show_its_seed() {
        let key = SigningKey::from_seed("example.com/log", [7; 32]).unwrap();
        let shown = format!("{key:?}");
        assert_eq!(shown, format!("SigningKey(example.com/log+{:08x})", key.verifying_key().id()));
    }

    #[test]
    fn numbers_have_one_spelling() {
        let check = |text: &str, number: Option<u64>| assert_eq!(decimal(text), number, "{text}");
        check("0", Some(0));
        check("18446744073709551615", Some(u64::MAX));
        for text in ["", "00", "01", "+1", "-1", " 1", "1 ", "1_0", "0x1", "18446744073709551616", "١"] {
            check(text, None);
        }
    }

    #[test]
    fn names_survive_in_a_line_and_in_a_key() {
        for name in ["colibri", "example.com/log/a1-b2", "prüfer"] {
            assert!(SigningKey::from_seed(name, [1; 32]).is_ok(), "{name}");
        }
        let long = "n".repeat(NAME_BYTES_MAX + 1);
        for name in ["", "a b", "a+b", "a\nb", "a\u{a0}b", "a\u{7f}", long.as_str()] {
            assert_eq!(SigningKey::from_seed(name, [1; 32]).unwrap_err(), KeyError::Name, "{name}");
        }
    }
}
