//! The port through which colibri talks to people: lines, at five levels, never on stdout.

use std::fmt::{self, Write as _};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::hidden::is_hidden;

/// How loud a line is.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Something failed and somebody should look.
    Error,
    /// Something is off, and colibri goes on.
    Warn,
    /// What a person would want to know once.
    Info,
    /// Decisions and latencies.
    Debug,
    /// Everything, bodies masked.
    Trace,
}

impl FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "error" => Ok(Self::Error),
            "warn" => Ok(Self::Warn),
            "info" => Ok(Self::Info),
            "debug" => Ok(Self::Debug),
            "trace" => Ok(Self::Trace),
            _ => Err(format!("unknown log level `{text}`: use error, warn, info, debug or trace")),
        }
    }
}

type Write = dyn Fn(Level, &str) + Send + Sync;

/// A cheap handle to wherever lines go.
#[derive(Clone)]
pub struct Logger {
    threshold: Level,
    write: Arc<Write>,
}

impl Logger {
    /// Hands every line at `threshold` or louder to `write`.
    pub fn new(threshold: Level, write: impl Fn(Level, &str) + Send + Sync + 'static) -> Self {
        Self { threshold, write: Arc::new(write) }
    }

    /// A logger that says nothing.
    pub fn silent() -> Self {
        Self::new(Level::Error, |_, _| {})
    }

    /// The same, with every line put into other words first.
    #[must_use]
    pub fn through(&self, change: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        let write = Arc::clone(&self.write);
        Self::new(self.threshold, move |level, line| write(level, &change(line)))
    }

    /// One line. The arguments are only formatted if somebody will read them.
    pub fn line(&self, level: Level, text: fmt::Arguments<'_>) {
        if level <= self.threshold {
            (self.write)(level, &text.to_string());
        }
    }

    /// See [`Level::Error`].
    pub fn error(&self, text: fmt::Arguments<'_>) {
        self.line(Level::Error, text);
    }

    /// See [`Level::Warn`].
    pub fn warn(&self, text: fmt::Arguments<'_>) {
        self.line(Level::Warn, text);
    }

    /// See [`Level::Info`].
    pub fn info(&self, text: fmt::Arguments<'_>) {
        self.line(Level::Info, text);
    }

    /// See [`Level::Debug`].
    pub fn debug(&self, text: fmt::Arguments<'_>) {
        self.line(Level::Debug, text);
    }

    /// See [`Level::Trace`].
    pub fn trace(&self, text: fmt::Arguments<'_>) {
        self.line(Level::Trace, text);
    }

    /// Whether somebody reads lines of that level.
    pub fn shows(&self, level: Level) -> bool {
        level <= self.threshold
    }
}

/// The text on one line: what a client or a file says is shown, never obeyed.
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if steers(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Whether a character moves a cursor, colours a terminal, hides, or turns the direction of writing.
pub fn steers(c: char) -> bool {
    c.is_control() || is_hidden(c)
}

/// JSON with every such character as an escape, which means the same: JSON's own rules leave `U+009B` and its
/// like as they are. Line breaks between the parts of a value stay.
pub fn visible_json(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            // In a text these are escaped already, so they stand between two parts, where an escape may not.
            '\t' | '\r' => shown.push(' '),
            c if c == '\n' || !steers(c) => shown.push(c),
            c => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    // A String takes all.
                    let _ = write!(shown, "\\u{unit:04x}");
                }
            }
        }
    }
    shown
}

impl fmt::Debug for Logger {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Logger({:?})", self.threshold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_cannot_steer_a_terminal() {
        for (text, shown) in [
            ("plain é 語 🐦", "plain é 語 🐦"),
            ("\u{1b}[31mred", "\\u{1b}[31mred"),
            ("\u{9b}31m", "\\u{9b}31m"), // The same, in one character.
            ("a\r\nb\tc\0", "a\\r\\nb\\tc\\u{0}"),
            ("exe.\u{202e}fdp", "exe.\\u{202e}fdp"),
            ("in\u{200b}visible", "in\\u{200b}visible"),
            ("\u{3164}\u{e0100}", "\\u{3164}\\u{e0100}"), // Nothing to see, and a hidden byte.
        ] {
            assert_eq!(visible(text), shown);
        }
    }

    /// SU-4: JSON for a terminal is the same JSON.
    #[test]
    fn json_for_terminals_says_the_same() {
        let said = "a\u{7f}\u{9b}31m\u{202e}\u{200b}\u{e0041}\u{feff} é 語 🐦\t\n";
        for json in [serde_json::json!(said).to_string(), serde_json::json!({ said: [said] }).to_string()] {
            let shown = visible_json(&json);
            assert!(!shown.chars().any(steers), "{shown}");
            assert!(shown.contains("\\udb40\\udc41") && shown.contains('🐦'), "{shown}");
            let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
            assert_eq!(read(&shown), read(&json));
        }
        // Others write JSON with blanks of their own.
        assert_eq!(visible_json("{\t\"a\":\r\n1}"), "{ \"a\": \n1}");
        assert_eq!(visible_json("{\n  \"a\": 1\n}"), "{\n  \"a\": 1\n}");
    }
}
