//! One pass over a whole frame before anything else sees it: UTF-8, strict JSON (RFC 8259), depth,
//! and where the six keys of the envelope are.
//!
//! A raw JSON value checks nothing inside itself, and parsers disagree about duplicate keys and
//! about `Method`. What passes here means the same to everyone who reads it later. Nothing recurses:
//! the open brackets are bits of one integer, so a hostile frame costs no stack.

use std::fmt;
use std::ops::Range;

/// Levels of nesting. Deeper than any real message, and exactly what the bit stack holds.
pub const DEPTH_MAX: u32 = u128::BITS;

/// Messages in one batch. Each may ask for a whole page of a list, so this bounds what one frame can
/// make colibri hold.
pub const BATCH_MEMBERS_MAX: usize = 100;

/// Where a value stands in its frame.
pub type Span = Range<usize>;

/// What a frame is, as JSON.
#[derive(Debug, PartialEq, Eq)]
pub enum Shape {
    /// One object.
    Object(Members),
    /// An array.
    Batch(Batch),
    /// A value that can be no message.
    Other,
}

/// The elements of an array; `None` for one that is not an object.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// At most [`BATCH_MEMBERS_MAX`] of them.
    pub members: Vec<Option<Members>>,
    /// How many there really were.
    pub count: usize,
}

/// The keys of a JSON-RPC envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// The version.
    Jsonrpc,
    /// Joins an answer to its request.
    Id,
    /// What is asked.
    Method,
    /// With what.
    Params,
    /// What came of it.
    Result,
    /// Why nothing came of it.
    Error,
}

impl Key {
    const ALL: [Self; 6] = [Self::Jsonrpc, Self::Id, Self::Method, Self::Params, Self::Result, Self::Error];

    /// As it stands in a frame.
    pub fn name(self) -> &'static str {
        match self {
            Self::Jsonrpc => "jsonrpc",
            Self::Id => "id",
            Self::Method => "method",
            Self::Params => "params",
            Self::Result => "result",
            Self::Error => "error",
        }
    }
}

/// Where the envelope's values are, and what is wrong with its keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    spans: [Option<Span>; Key::ALL.len()],
    /// The first key that makes the envelope ambiguous.
    pub fault: Option<KeyFault>,
}

impl Members {
    /// The span of a key's value. Of a duplicated key the first; the envelope is refused anyway.
    pub fn get(&self, key: Key) -> Option<Span> {
        self.spans[key as usize].clone()
    }
}

/// A key that two readers might read differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyFault {
    /// The same key twice.
    #[error("the key `{}` is there twice", .0.name())]
    Duplicate(Key),
    /// `Method`, `paramſ`: some parsers fold case.
    #[error("a key differs from `{}` only in case: keys are exact", .0.name())]
    Lookalike(Key),
    /// `"m\u0065thod"`: no writer needs it, and a filter might not see it.
    #[error("a key of the envelope is written with an escape: write it plainly")]
    Escaped,
}

/// Why a frame is not JSON that colibri reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotJson {
    /// The byte at which it shows.
    pub at: usize,
    /// What was expected or found there.
    pub what: &'static str,
}

impl fmt::Display for NotJson {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} at byte {}", self.what, self.at)
    }
}

/// Reads a frame.
pub fn scan(frame: &[u8]) -> Result<Shape, NotJson> {
    if let Err(error) = std::str::from_utf8(frame) {
        return Err(NotJson { at: error.valid_up_to(), what: "invalid UTF-8" });
    }
    if frame.starts_with("\u{feff}".as_bytes()) {
        return Err(NotJson { at: 0, what: "a byte order mark" });
    }
    Scanner::new(frame).run()
}

/// The length of the plain text that a string goes on with; nothing if it never ends. Most bytes of a
/// large frame are looked at here, so each of the two passes is one that processors do by the block.
fn plain_text(bytes: &[u8]) -> Option<usize> {
    let end = memchr::memchr2(b'"', b'\\', bytes);
    let text = &bytes[..end.unwrap_or(bytes.len())];
    let lowest = text.iter().fold(u8::MAX, |lowest, byte| lowest.min(*byte));
    if lowest < b' ' { text.iter().position(|byte| *byte < b' ') } else { end }
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    /// How many brackets are open.
    depth: u32,
    /// One bit for each, the innermost lowest: set for an object.
    objects: u128,
    shape: Shape,
    /// The envelope's key whose value is being read, and where that value began.
    member: Option<(Key, usize)>,
}

/// Whether a value is still to come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Value,
    Closing,
}

impl<'a> Scanner<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, depth: 0, objects: 0, shape: Shape::Other, member: None }
    }

    fn run(mut self) -> Result<Shape, NotJson> {
        self.skip_blanks();
        match self.peek() {
            Some(b'{') => self.shape = Shape::Object(Members::default()),
            Some(b'[') => self.shape = Shape::Batch(Batch::default()),
            _ => {}
        }
        let mut next = Next::Value;
        loop {
            next = match next {
                Next::Value => self.open()?,
                Next::Closing if self.depth == 0 => break,
                Next::Closing => self.close()?,
            };
        }
        self.skip_blanks();
        if self.at < self.bytes.len() {
            return Err(self.fail("something follows the JSON value"));
        }
        Ok(self.shape)
    }

    /// Reads a scalar whole, or enters a container.
    fn open(&mut self) -> Result<Next, NotJson> {
        self.skip_blanks();
        self.begin();
        match self.peek() {
            Some(b'{') => {
                self.enter(true)?;
                if self.eat_closing(b'}') {
                    return Ok(Next::Closing);
                }
                self.key()?;
                return Ok(Next::Value);
            }
            Some(b'[') => {
                self.enter(false)?;
                return Ok(if self.eat_closing(b']') { Next::Closing } else { Next::Value });
            }
            Some(b'"') => drop(self.string()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b't') => self.literal(b"true")?,
            Some(b'f') => self.literal(b"false")?,
            Some(b'n') => self.literal(b"null")?,
            _ => return Err(self.fail("a JSON value is missing")),
        }
        Ok(Next::Closing)
    }

    /// A value has ended: closes its container, or goes on to the next value in it.
    fn close(&mut self) -> Result<Next, NotJson> {
        self.end();
        self.skip_blanks();
        match (self.peek(), self.in_object()) {
            (Some(b','), true) => {
                self.at += 1;
                self.key()?;
                Ok(Next::Value)
            }
            (Some(b','), false) => {
                self.at += 1;
                Ok(Next::Value)
            }
            (Some(b'}'), true) | (Some(b']'), false) => {
                self.leave();
                Ok(Next::Closing)
            }
            (_, true) => Err(self.fail("`,` or `}` is missing")),
            (_, false) => Err(self.fail("`,` or `]` is missing")),
        }
    }

    fn enter(&mut self, object: bool) -> Result<(), NotJson> {
        if self.depth == DEPTH_MAX {
            return Err(self.fail("nesting deeper than 128 levels"));
        }
        self.depth += 1;
        self.objects = self.objects << 1 | u128::from(object);
        self.at += 1;
        Ok(())
    }

    fn leave(&mut self) {
        self.depth -= 1;
        self.objects >>= 1;
        self.at += 1;
    }

    fn eat_closing(&mut self, bracket: u8) -> bool {
        self.skip_blanks();
        let closes = self.peek() == Some(bracket);
        if closes {
            self.leave();
        }
        closes
    }

    fn in_object(&self) -> bool {
        self.objects & 1 == 1
    }

    /// A key and its colon.
    fn key(&mut self) -> Result<(), NotJson> {
        self.skip_blanks();
        if self.peek() != Some(b'"') {
            return Err(self.fail("a key is missing"));
        }
        let (name, escaped) = self.string()?;
        if let Some(members) = self.envelope() {
            self.member = members.note(name, escaped).map(|key| (key, self.at));
        }
        self.skip_blanks();
        if self.peek() != Some(b':') {
            return Err(self.fail("`:` is missing"));
        }
        self.at += 1;
        Ok(())
    }

    /// The content of a string and whether it has escapes. Which code points the escapes make is left
    /// to whoever decodes it.
    fn string(&mut self) -> Result<(&'a [u8], bool), NotJson> {
        self.at += 1;
        let start = self.at;
        let mut escaped = false;
        loop {
            let rest = &self.bytes[self.at..];
            let Some(plain) = plain_text(rest) else {
                self.at = self.bytes.len();
                return Err(self.fail("a string has no end"));
            };
            self.at += plain;
            match rest[plain] {
                b'"' => {
                    self.at += 1;
                    return Ok((&self.bytes[start..self.at - 1], escaped));
                }
                b'\\' => {
                    escaped = true;
                    self.escape()?;
                }
                _ => return Err(self.fail("a control character in a string")),
            }
        }
    }

    fn escape(&mut self) -> Result<(), NotJson> {
        let rest = &self.bytes[self.at + 1..];
        match rest {
            [b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..] => self.at += 2,
            [b'u', a, b, c, d, ..] if [a, b, c, d].iter().all(|digit| digit.is_ascii_hexdigit()) => {
                self.at += 6;
            }
            _ => return Err(self.fail("an invalid escape")),
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), NotJson> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), NotJson> {
        let count = self.bytes[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if count == 0 {
            return Err(self.fail("a digit is missing"));
        }
        self.at += count;
        Ok(())
    }

    fn literal(&mut self, word: &[u8]) -> Result<(), NotJson> {
        if !self.bytes[self.at..].starts_with(word) {
            return Err(self.fail("an unknown word"));
        }
        self.at += word.len();
        Ok(())
    }

    fn skip_blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn fail(&self, what: &'static str) -> NotJson {
        NotJson { at: self.at, what }
    }

    /// A value begins here: remember it if it is an envelope's, count it if it is a batch's.
    fn begin(&mut self) {
        let object = self.peek() == Some(b'{');
        match &mut self.shape {
            Shape::Batch(batch) if self.depth == 1 => batch.begin(object),
            _ => {}
        }
        if self.at_envelope_depth() {
            self.member = self.member.map(|(key, _)| (key, self.at));
        }
    }

    /// A value ended here.
    fn end(&mut self) {
        if !self.at_envelope_depth() {
            return;
        }
        let (member, at) = (self.member.take(), self.at);
        if let (Some((key, start)), Some(members)) = (member, self.envelope()) {
            members.spans[key as usize] = Some(start..at);
        }
    }

    fn at_envelope_depth(&self) -> bool {
        match self.shape {
            Shape::Object(_) => self.depth == 1,
            Shape::Batch(_) => self.depth == 2 && self.in_object(),
            Shape::Other => false,
        }
    }

    /// The envelope whose keys are being read, if they are an envelope's.
    fn envelope(&mut self) -> Option<&mut Members> {
        if !self.at_envelope_depth() {
            return None;
        }
        match &mut self.shape {
            Shape::Object(members) => Some(members),
            Shape::Batch(batch) if batch.count <= BATCH_MEMBERS_MAX => batch.members.last_mut()?.as_mut(),
            Shape::Batch(_) | Shape::Other => None,
        }
    }
}

impl Batch {
    fn begin(&mut self, object: bool) {
        self.count += 1;
        if self.count <= BATCH_MEMBERS_MAX {
            self.members.push(object.then(Members::default));
        }
    }
}

impl Members {
    /// Which of the six a key is, if its value is to be remembered.
    fn note(&mut self, name: &[u8], escaped: bool) -> Option<Key> {
        if escaped {
            self.fault.get_or_insert(KeyFault::Escaped);
            return None;
        }
        let exact = Key::ALL.into_iter().find(|key| key.name().as_bytes() == name);
        match exact {
            Some(key) if self.spans[key as usize].is_some() => {
                self.fault.get_or_insert(KeyFault::Duplicate(key));
                None
            }
            Some(key) => Some(key),
            None => {
                if let Some(key) = Key::ALL.into_iter().find(|key| looks_like(name, key.name())) {
                    self.fault.get_or_insert(KeyFault::Lookalike(key));
                }
                None
            }
        }
    }
}

/// Whether a reader that folds case could take `name` for `key`. Going through upper case catches
/// `ſ` and `ı`; dropping the combining dot catches `İ`.
fn looks_like(name: &[u8], key: &str) -> bool {
    // No character that folds to an ASCII letter takes more than four bytes.
    if name.len() > 4 * key.len() {
        return false;
    }
    std::str::from_utf8(name).is_ok_and(|name| {
        let folded = name.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase);
        folded.filter(|c| *c != '\u{307}').eq(key.chars())
    })
}

#[cfg(test)]
mod tests;
