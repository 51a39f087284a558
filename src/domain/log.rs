//! The port through which colibri talks to people: lines, at five levels, never on stdout.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

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
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{feff}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}')
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
        ] {
            assert_eq!(visible(text), shown);
        }
    }
}
