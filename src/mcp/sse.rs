//! Server-sent events: what a stream of lines says, in chunks as they come.
//!
//! An event's data is almost always one line, and then it is a slice of the bytes that came, not a copy.

use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::lines::{Line, Lines};

/// What stands before the data of a line: `data: `.
const FIELD_BYTES_MAX: usize = 16;

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// `event:`; `message` if absent.
    pub name: Option<String>,
    /// `id:`, to be told when the stream is taken up again.
    pub id: Option<String>,
    /// `data:`, its lines joined.
    pub data: Bytes,
    /// `retry:`, how long to wait before the stream is taken up again.
    pub retry: Option<Duration>,
}

/// What a chunk completed.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// An event.
    Event(Event),
    /// An event passed the limit and was skipped.
    TooLong,
}

/// An incremental decoder.
#[derive(Debug)]
pub struct Events {
    lines: Lines,
    limit: usize,
    event: Event,
    /// The event's data, once it has a second line.
    joined: BytesMut,
    /// Something of the event has come.
    begun: bool,
    /// The event passed the limit, which has been told; the rest of it says nothing.
    skipping: bool,
    /// The first line of a stream may carry a byte order mark.
    first: bool,
}

impl Events {
    /// Events with at most `limit` bytes of data.
    pub fn new(limit: usize) -> Self {
        let lines = Lines::with_empty(limit + FIELD_BYTES_MAX);
        let (event, joined) = (Event::default(), BytesMut::new());
        Self { lines, limit, event, joined, begun: false, skipping: false, first: true }
    }

    /// Takes the next chunk. The one before must have been read to its end with [`Events::next_event`].
    pub fn feed(&mut self, chunk: Bytes) {
        self.lines.feed(chunk);
    }

    /// The next event that is complete. `None` asks for another chunk. What a stream began and did
    /// not end with an empty line was never said; but that it is too long is told at once.
    pub fn next_event(&mut self) -> Option<Next> {
        while let Some(line) = self.lines.next_line() {
            let fits = match line {
                Line::Frame(line) if line.is_empty() => {
                    let was_skipped = std::mem::take(&mut self.skipping);
                    match self.end() {
                        Some(event) if !was_skipped => return Some(Next::Event(event)),
                        _ => continue,
                    }
                }
                _ if self.skipping => true,
                Line::Frame(line) => self.field(line),
                Line::TooLong => false,
            };
            if !fits {
                self.end();
                self.skipping = true;
                return Some(Next::TooLong);
            }
        }
        None
    }

    /// Takes what there is of the event, if anything: what comes next is another one.
    fn end(&mut self) -> Option<Event> {
        let (mut event, joined) = (std::mem::take(&mut self.event), std::mem::take(&mut self.joined));
        if !joined.is_empty() {
            event.data = joined.freeze();
        }
        std::mem::take(&mut self.begun).then_some(event)
    }

    /// Takes a line; says whether the event still is within its limit.
    fn field(&mut self, mut line: Bytes) -> bool {
        if std::mem::take(&mut self.first) && line.starts_with(b"\xef\xbb\xbf") {
            line = line.slice(3..);
        }
        let colon = memchr::memchr(b':', &line);
        let (name, mut value) = match colon {
            // A comment, to keep the connection alive.
            Some(0) => return true,
            Some(colon) => (line.slice(..colon), line.slice(colon + 1..)),
            None => (line, Bytes::new()),
        };
        if value.first() == Some(&b' ') {
            value = value.slice(1..);
        }
        let text = || String::from_utf8_lossy(&value).into_owned();
        match name.as_ref() {
            b"data" => return self.data(value),
            b"event" => self.event.name = Some(text()),
            // An id with a NUL is none, says the standard.
            b"id" if !value.contains(&0) => self.event.id = Some(text()),
            b"retry" => self.event.retry = text().parse().ok().map(Duration::from_millis),
            _ => return true,
        }
        self.begun = true;
        true
    }

    fn data(&mut self, value: Bytes) -> bool {
        self.begun = true;
        let held = self.joined.len().max(self.event.data.len());
        if held + value.len() > self.limit {
            return false;
        }
        if held == 0 {
            self.event.data = value;
            return true;
        }
        // What came before is copied once, however many lines there are.
        if self.joined.is_empty() {
            self.joined.extend_from_slice(&self.event.data);
        }
        self.joined.extend_from_slice(b"\n");
        self.joined.extend_from_slice(&value);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Events as `name#id~retry=data`, separated by blanks; `!` is one that was too long.
    #[track_caller]
    fn check(chunks: &str, expected: &str) {
        let mut events = Events::new(8);
        let mut seen = Vec::new();
        for chunk in chunks.split('|') {
            events.feed(Bytes::copy_from_slice(chunk.as_bytes()));
            while let Some(next) = events.next_event() {
                seen.push(match next {
                    Next::TooLong => "!".to_owned(),
                    Next::Event(Event { name, id, data, retry }) => format!(
                        "{}{}{}={}",
                        name.unwrap_or_default(),
                        id.map(|id| format!("#{id}")).unwrap_or_default(),
                        retry.map(|retry| format!("~{}", retry.as_millis())).unwrap_or_default(),
                        String::from_utf8_lossy(&data).replace('\n', "/"),
                    ),
                });
            }
        }
        assert_eq!(seen.join(" "), expected, "{chunks:?}");
    }

    #[test]
    fn events_end_with_an_empty_line() {
        check("data: a\n\ndata:b\n\n", "=a =b");
        check("data: a\n", "");
        check("da|ta: |a\r\n|\r\n", "=a");
        check("\u{feff}data: a\n\n", "=a");
        check("event: endpoint\ndata: /x\n\n", "endpoint=/x");
    }

    #[test]
    fn an_event_without_data_can_still_say_where_it_stands() {
        check("id: 7\nretry: 500\ndata:\n\n", "#7~500=");
        check("id: 7\n\n", "#7=");
        check("retry: soon\n\n", "=");
    }

    #[test]
    fn comments_and_unknown_fields_say_nothing() {
        check(": ping\n\n:\n\ndata: a\n\n", "=a");
        check("nothing\nx: y\n\ndata\n\n", "=");
        check("id: a\0b\ndata: a\n\n", "=a");
    }

    #[test]
    fn lines_of_data_are_joined_and_bounded() {
        check("data: a\ndata: b\n\n", "=a/b");
        check("data: 12345678\n\n", "=12345678");
        check("data: 123456789\n\ndata: a\n\n", "! =a");
        check("data: 12345\ndata: 6789\ndata: x\n\ndata: a\n\n", "! =a");
        check(&format!("data: {}\n\ndata: a\n\n", "x".repeat(100)), "! =a");
    }

    /// An event without end is refused when it passes the limit, not when somebody loses patience.
    #[test]
    fn an_event_that_is_too_long_is_told_at_once() {
        check(&format!("data: {}", "x".repeat(100)), "!");
        check("data: 12345\ndata: 6789\n", "!");
        check("data: 123456789\ndata: x\ndata: 123456789\n\ndata: a\n\n", "! =a");
    }

    /// Two million lines of one event once cost an hour: each was joined by copying all before it.
    #[test]
    fn an_event_of_many_lines_costs_no_more_than_its_bytes() {
        let lines = 2 << 20;
        let mut events = Events::new(2 * lines);
        events.feed(Bytes::from("data: x\n".repeat(lines) + "\n"));
        let Some(Next::Event(event)) = events.next_event() else { panic!("it is within the limit") };
        assert_eq!(event.data.len(), 2 * lines - 1);
    }
}
