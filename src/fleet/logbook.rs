//! What was said by a server and about it: the last lines of its stderr, and of colibri's own lines that name it.
//!
//! Owns: those lines, how many are kept, and whoever follows them. Who follows slowly misses some, and is told.
//! Must not know: who reads them, or where else lines go.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use serde::Serialize;
use tokio::sync::broadcast;

use crate::domain::clock::Clock;
use crate::domain::log::{Level, Logger, visible};

/// Lines that are kept of one server.
pub const LINES_MAX: usize = 512;

/// How much of one line is kept.
pub const LINE_BYTES_MAX: usize = 1 << 10;

/// Lines that somebody who follows may be behind.
const BEHIND_MAX: usize = 256;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogLine {
    /// When it came.
    pub at: String,
    /// Who said it.
    pub from: Voice,
    /// What, with its control characters made visible.
    pub text: String,
}

/// Who says a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Voice {
    /// The server, on its stderr.
    Stderr,
    /// colibri, of the server.
    Colibri,
}

/// The book of one server. A cheap handle.
#[derive(Clone)]
pub struct Logbook(Arc<Inner>);

struct Inner {
    /// What colibri's own lines about it begin with.
    prefix: String,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    lines: VecDeque<Arc<LogLine>>,
    /// The beginning of a line whose end has not come.
    begun: Vec<u8>,
    /// There once somebody has followed: most servers are never looked at, and this costs room.
    out: Option<broadcast::Sender<Arc<LogLine>>>,
}

/// What somebody who follows gets.
#[derive(Clone, Debug)]
pub enum Heard {
    /// A line.
    Line(Arc<LogLine>),
    /// It was too slow for so many.
    Missed(u64),
}

/// Somebody who follows.
pub struct Following(broadcast::Receiver<Arc<LogLine>>);

impl Logbook {
    /// An empty book.
    pub fn new(server: &str, clock: Arc<dyn Clock>) -> Self {
        let prefix = format!("[mcp:{server}] ");
        Self(Arc::new(Inner { prefix, clock, state: Mutex::default() }))
    }

    /// A logger that writes here too what a person would want to know; not every probe, which would soon be all there is.
    pub fn beside(&self, logger: Logger) -> Logger {
        let book = self.clone();
        Logger::new(Level::Trace, move |level, line| {
            if level <= Level::Info {
                book.note(line);
            }
            logger.line(level, format_args!("{line}"));
        })
    }

    /// A line of colibri's own.
    fn note(&self, line: &str) {
        let text = line.strip_prefix(&self.0.prefix).unwrap_or(line);
        self.keep(&mut self.state(), Voice::Colibri, text.as_bytes());
    }

    /// A piece of the server's stderr, which may begin and end in the midst of a line.
    pub fn heard(&self, mut piece: &[u8]) {
        let mut state = self.state();
        while let Some(end) = memchr::memchr(b'\n', piece) {
            state.begin(&piece[..end]);
            let line = std::mem::take(&mut state.begun);
            self.keep(&mut state, Voice::Stderr, &line);
            piece = &piece[end + 1..];
        }
        state.begin(piece);
    }

    /// The lines that are kept, the oldest first.
    pub fn lines(&self) -> Vec<Arc<LogLine>> {
        self.state().lines.iter().map(Arc::clone).collect()
    }

    /// The last line of the server itself.
    pub fn last_words(&self) -> Option<String> {
        let state = self.state();
        state.lines.iter().rev().find(|line| line.from == Voice::Stderr).map(|line| line.text.clone())
    }

    /// The lines that are kept, and all that come after them.
    pub fn follow(&self) -> (Vec<Arc<LogLine>>, Following) {
        let mut state = self.state();
        let out = state.out.get_or_insert_with(|| broadcast::Sender::new(BEHIND_MAX)).subscribe();
        (state.lines.iter().map(Arc::clone).collect(), Following(out))
    }

    fn keep(&self, state: &mut State, from: Voice, bytes: &[u8]) {
        let text = shown(bytes);
        if text.is_empty() {
            return;
        }
        let at = self.0.clock.now().wall.to_string();
        let line = Arc::new(LogLine { at, from, text });
        if state.lines.len() == LINES_MAX {
            state.lines.pop_front();
        }
        state.lines.push_back(Arc::clone(&line));
        if let Some(out) = &state.out {
            // Without anybody who follows it goes nowhere, which is fine.
            let _ = out.send(line);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("nothing panics while it holds the book")
    }
}

impl State {
    /// Goes on with a line; what is too long of it is let pass.
    fn begin(&mut self, piece: &[u8]) {
        let room = (LINE_BYTES_MAX + 1).saturating_sub(self.begun.len());
        self.begun.extend_from_slice(&piece[..piece.len().min(room)]);
    }
}

impl Following {
    /// The next line; `None` when there will be no more.
    pub async fn next(&mut self) -> Option<Heard> {
        match self.0.recv().await {
            Ok(line) => Some(Heard::Line(line)),
            Err(broadcast::error::RecvError::Lagged(missed)) => Some(Heard::Missed(missed)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

/// A line as it is kept: visible, without blanks at its end, and cut where it is too long.
fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut text = visible(text.trim_end());
    if text.len() > LINE_BYTES_MAX {
        text.truncate(text.floor_char_boundary(LINE_BYTES_MAX - '…'.len_utf8()));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use crate::domain::clock::{Moment, Timestamp};

    use super::*;

    struct Still;

    impl Clock for Still {
        fn now(&self) -> Moment {
            Moment { wall: Timestamp(0), since_boot: std::time::Duration::ZERO }
        }
    }

    fn book() -> Logbook {
        Logbook::new("git", Arc::new(Still))
    }

    fn texts(book: &Logbook) -> Vec<String> {
        book.lines().iter().map(|line| line.text.clone()).collect()
    }

    /// PR-16: what a server says comes in pieces and is kept in lines; none of them steers a terminal, and none is long.
    #[test]
    fn pieces_become_lines() {
        let book = book();
        for piece in ["on", "e\ntwo\r\n\n", "\u{1b}[31mred\n", "be", "gun"] {
            book.heard(piece.as_bytes());
        }
        assert_eq!(texts(&book), ["one", "two", "\\u{1b}[31mred"]);
        assert_eq!(book.last_words().as_deref(), Some("\\u{1b}[31mred"));
        book.heard(format!("{}\nshort\n", "x".repeat(1 << 20)).as_bytes());
        let lines = texts(&book);
        assert!(lines[3].starts_with("begunx") && lines[3].ends_with('…'));
        assert!(lines[3].len() <= LINE_BYTES_MAX, "{}", lines[3].len());
        assert_eq!(lines[4], "short");
        book.heard(&[0xff, b'\n']);
        assert_eq!(texts(&book)[5], "\u{fffd}");
    }

    /// PR-16: a server that floods is kept in bounds, and colibri's own lines stand among its own.
    #[test]
    fn the_newest_lines_are_kept() {
        let book = book();
        let (told, wrote) = std::sync::mpsc::sync_channel(4);
        let logger = Logger::new(Level::Warn, move |_, line| told.try_send(line.to_owned()).expect("room"));
        let logger = book.beside(logger);
        for number in 0..LINES_MAX {
            book.heard(format!("{number}\n").as_bytes());
        }
        logger.debug(format_args!("[mcp:git] a probe"));
        logger.info(format_args!("[mcp:git] a detail"));
        logger.warn(format_args!("[mcp:git] a warning"));
        let lines = book.lines();
        assert_eq!(lines.len(), LINES_MAX);
        assert_eq!((lines[0].text.as_str(), lines[0].from), ("2", Voice::Stderr));
        assert_eq!(lines[LINES_MAX - 1].text, "a warning");
        let last_but_one = &lines[LINES_MAX - 2];
        assert_eq!((last_but_one.text.as_str(), last_but_one.from), ("a detail", Voice::Colibri));
        // What is too quiet for the other logger is kept here all the same, and goes nowhere else.
        assert_eq!(wrote.try_iter().collect::<Vec<_>>(), ["[mcp:git] a warning"]);
    }

    /// PR-16: who follows gets what was and what comes; who is too slow is told how many it missed.
    #[tokio::test]
    async fn who_follows_slowly_is_told_what_it_missed() {
        let book = book();
        book.heard(b"before\n");
        let (kept, mut following) = book.follow();
        assert_eq!(kept.len(), 1);
        for number in 0..BEHIND_MAX + 7 {
            book.heard(format!("{number}\n").as_bytes());
        }
        assert!(matches!(following.next().await, Some(Heard::Missed(7))));
        assert!(matches!(following.next().await, Some(Heard::Line(line)) if line.text == "7"));
    }
}
