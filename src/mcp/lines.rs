//! Where a frame ends: one message per line, in chunks as they come.
//!
//! The limit is checked before anything is kept, so a line without end costs no memory: it is
//! reported once, at once, and skipped to its newline.

use bytes::{Buf, Bytes, BytesMut};

/// One frame. Larger than any request a model writes, small enough to hold many.
pub const FRAME_BYTES_MAX: usize = 4 << 20;

/// What a chunk completed.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// A frame, without its newline.
    Frame(Bytes),
    /// A line passed the limit; the rest of it will be skipped.
    TooLong,
}

/// An incremental decoder.
#[derive(Debug)]
pub struct Lines {
    limit: usize,
    /// What is still to be looked at; sliced, not copied.
    chunk: Bytes,
    /// The beginning of a line that the earlier chunks did not end. Never longer than the limit.
    partial: BytesMut,
    /// The line we are in was too long.
    skipping: bool,
    /// Whether an empty line means something.
    keeps_empty: bool,
}

impl Lines {
    /// Frames of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { limit, chunk: Bytes::new(), partial: BytesMut::new(), skipping: false, keeps_empty: false }
    }

    /// The same, and empty lines too: in an event stream they end an event.
    pub fn with_empty(limit: usize) -> Self {
        Self { keeps_empty: true, ..Self::new(limit) }
    }

    /// Takes the next chunk. The one before must have been read to its end with [`Lines::next_line`].
    pub fn feed(&mut self, chunk: Bytes) {
        assert!(self.chunk.is_empty(), "a chunk is read to its end before the next");
        self.chunk = chunk;
    }

    /// The next line that is complete. `None` asks for another chunk.
    pub fn next_line(&mut self) -> Option<Line> {
        while !self.chunk.is_empty() {
            let newline = memchr::memchr(b'\n', &self.chunk);
            let piece = self.chunk.split_to(newline.unwrap_or(self.chunk.len()));
            if newline.is_some() {
                self.chunk.advance(1);
            }
            if let Some(line) = self.take(piece, newline.is_some()) {
                return Some(line);
            }
        }
        None
    }

    /// The input ended: what was begun is a line too.
    pub fn finish(&mut self) -> Option<Line> {
        self.take(Bytes::new(), true)
    }

    fn take(&mut self, piece: Bytes, ends: bool) -> Option<Line> {
        if self.skipping {
            self.skipping = !ends;
            return None;
        }
        if self.partial.len() + piece.len() > self.limit {
            self.partial = BytesMut::new();
            self.skipping = !ends;
            return Some(Line::TooLong);
        }
        if !ends {
            self.partial.extend_from_slice(&piece);
            return None;
        }
        let mut frame = if self.partial.is_empty() {
            piece
        } else {
            let mut whole = std::mem::take(&mut self.partial);
            whole.extend_from_slice(&piece);
            whole.freeze()
        };
        if frame.ends_with(b"\r") {
            frame.truncate(frame.len() - 1);
        }
        (self.keeps_empty || !frame.is_empty()).then_some(Line::Frame(frame))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMIT: usize = 8;

    /// Feeds the chunks that `|` separates, then ends the input. A frame reads as itself, a line that
    /// was too long as `!`, and `/` stands where a chunk was used up.
    fn read(input: &str) -> String {
        let mut lines = Lines::new(LIMIT);
        let mut seen = Vec::new();
        let mut drain = |lines: &mut Lines| {
            while let Some(line) = lines.next_line() {
                assert!(lines.partial.len() <= LIMIT);
                seen.push(text(&line));
            }
            seen.push("/".to_owned());
        };
        for chunk in input.split('|') {
            lines.feed(Bytes::copy_from_slice(chunk.as_bytes()));
            drain(&mut lines);
        }
        seen.extend(lines.finish().as_ref().map(text));
        seen.join(" ")
    }

    fn text(line: &Line) -> String {
        match line {
            Line::Frame(frame) => String::from_utf8_lossy(frame).into_owned(),
            Line::TooLong => "!".to_owned(),
        }
    }

    /// Bad input on stdio: a line without end is reported once and at once, and the next frame works.
    #[test]
    fn lines_become_frames() {
        let check = |input: &str, expected: &str| assert_eq!(read(input), expected, "{input:?}");
        check("ab\ncd\n", "ab cd /");
        check("a|b\nc|d\n", "/ ab / cd /");
        check("ab\r\n\r\n\n\ncd\r\n", "ab cd /");
        check("ab", "/ ab"); // No newline before the end.
        check("ab\r", "/ ab");
        check("12345678\n", "12345678 /"); // Exactly the limit.
        check("123456789\nok\n", "! ok /");
        check("12345|6789", "/ ! /"); // At once, before its newline.
        check("12345|6789|never|ending|\nok\n", "/ ! / / / ok /");
        check("12345|6789\nok\n", "/ ! ok /");
        check("123456789|\n\nab\n123456789\n", "! / ab ! /");
    }

    proptest! {
        #[test]
        fn where_the_chunks_are_cut_changes_nothing(
            input in prop::collection::vec(prop::sample::select(b"ab\r\n".to_vec()), 0..64),
            cuts in prop::collection::vec(1_usize..9, 0..64),
        ) {
            let whole = decode(std::iter::once(&input[..]));
            let mut rest = &input[..];
            let mut pieces = Vec::new();
            for cut in cuts {
                let (head, tail) = rest.split_at(cut.min(rest.len()));
                pieces.push(head);
                rest = tail;
            }
            pieces.push(rest);
            prop_assert_eq!(decode(pieces.into_iter()), whole);
        }
    }

    fn decode<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> Vec<Line> {
        let mut lines = Lines::new(LIMIT);
        let mut seen = Vec::new();
        for chunk in chunks {
            lines.feed(Bytes::copy_from_slice(chunk));
            seen.extend(std::iter::from_fn(|| lines.next_line()));
        }
        seen.extend(lines.finish());
        seen
    }
}
