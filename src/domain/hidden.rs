//! What a text hides from the person who reads it, though a model reads it all.
//!
//! Owns: which characters are hidden, of which kind, and how a finding is told.
//! Must not know: what is done about it.

use std::fmt;

use serde::Serialize;

/// More findings than this say nothing more.
pub const FINDINGS_MAX: usize = 16;

/// One run of hidden characters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Of which kind they are.
    pub kind: Kind,
    /// Where the run begins, in characters from 0.
    pub at: usize,
    /// How many there are.
    pub count: usize,
    /// The first of them, as its number in Unicode.
    pub first: u32,
}

/// A kind of hidden character.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// It takes no room, or looks like nothing.
    Invisible,
    /// It turns the direction of writing, so that what is read is not what is written.
    Bidirectional,
    /// It spells text that nothing displays: the tags, and the selectors that carry bytes.
    Tag,
    /// It steers a terminal or a parser.
    Control,
}

/// What a text hides, in order; at most [`FINDINGS_MAX`] runs. Line breaks and tabs hide nothing, nor does
/// what joins the letters of a script or the parts of an emoji.
pub fn hidden(text: &str) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    let mut before = None;
    let mut chars = text.chars().enumerate().peekable();
    while let Some((at, c)) = chars.next() {
        let after = chars.peek().map(|(_, c)| *c);
        let joins = matches!(c, '\u{200c}' | '\u{200d}') && is_joined(before) && is_joined(after);
        if let Some(kind) = kind(c).filter(|_| !joins) {
            let full = findings.len() == FINDINGS_MAX;
            match findings.last_mut() {
                Some(run) if run.kind == kind && run.at + run.count == at => run.count += 1,
                _ if full => break,
                _ => findings.push(Finding { kind, at, count: 1, first: c.into() }),
            }
        }
        before = Some(c);
    }
    findings
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            Kind::Invisible => "invisible",
            Kind::Bidirectional => "direction-turning",
            Kind::Tag => "hidden-text",
            Kind::Control => "control",
        };
        let many = if self.count == 1 { "" } else { "s" };
        write!(out, "{} {what} character{many} at {} (U+{:04X})", self.count, self.at, self.first)
    }
}

/// Whether a character is of a hidden kind, wherever it stands.
pub fn is_hidden(c: char) -> bool {
    kind(c).is_some()
}

fn kind(c: char) -> Option<Kind> {
    match c {
        '\n' | '\r' | '\t' => None,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            Some(Kind::Bidirectional)
        }
        // The plain selectors U+FE00–FE0F choose between two looks of what is before them, as in ✔️.
        '\u{e0000}'..='\u{e0fff}' => Some(Kind::Tag),
        '\u{ad}'
        | '\u{34f}'
        | '\u{115f}'
        | '\u{1160}'
        | '\u{17b4}'
        | '\u{17b5}'
        | '\u{180b}'..='\u{180e}'
        | '\u{200b}'..='\u{200d}'
        | '\u{2028}'
        | '\u{2029}'
        | '\u{2060}'..='\u{2065}'
        | '\u{206a}'..='\u{206f}'
        | '\u{2800}'
        | '\u{3164}'
        | '\u{feff}'
        | '\u{ffa0}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{1d173}'..='\u{1d17a}' => Some(Kind::Invisible),
        c if c.is_control() => Some(Kind::Control),
        _ => None,
    }
}

/// Whether a joiner next to this does its work: between letters of scripts beyond ASCII, or emoji.
fn is_joined(neighbour: Option<char>) -> bool {
    neighbour.is_some_and(|c| !c.is_ascii() && kind(c).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::log::steers;

    fn told(text: &str) -> String {
        hidden(text).iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }

    /// What a description hides is found and named.
    #[test]
    fn what_descriptions_hide() {
        for (text, expected) in [
            ("Reads a file.\n\tPaths are absolute.\r\n", ""),
            ("é 語 🐦 ✔\u{fe0f} 👨\u{200d}👩\u{200d}👧 می\u{200c}خواهم", ""),
            ("re\u{200b}ad", "1 invisible character at 2 (U+200B)"),
            ("re\u{200d}ad", "1 invisible character at 2 (U+200D)"), // It joins nothing here.
            ("🐦\u{200d}", "1 invisible character at 1 (U+200D)"),
            ("🐦\u{200d}\u{200d}🐦", "2 invisible characters at 1 (U+200D)"),
            ("exe.\u{202e}fdp", "1 direction-turning character at 4 (U+202E)"),
            ("a\u{e0001}\u{e0041}\u{e0042}b", "3 hidden-text characters at 1 (U+E0001)"),
            ("😀\u{e0100}\u{e01ef}", "2 hidden-text characters at 1 (U+E0100)"),
            ("\u{1b}[31mred", "1 control character at 0 (U+001B)"),
            ("\u{0}\u{7f}\u{9b}", "3 control characters at 0 (U+0000)"),
            ("\u{feff}a\u{ad}b", "1 invisible character at 0 (U+FEFF); 1 invisible character at 2 (U+00AD)"),
            ("\u{3164}", "1 invisible character at 0 (U+3164)"),
        ] {
            assert_eq!(told(text), expected, "{text:?}");
        }
        assert_eq!(hidden(&"a\u{200b}".repeat(1000)).len(), FINDINGS_MAX);
        assert_eq!(hidden(&"\u{200b}".repeat(1000))[0].count, 1000);
    }

    /// Whatever is shown escaped is found here too, but for what plain text is made of.
    #[test]
    fn nothing_that_steers_is_missed() {
        let missed: Vec<char> =
            ('\0'..=char::MAX).filter(|c| steers(*c) && hidden(&c.to_string()).is_empty()).collect();
        assert_eq!(missed, ['\t', '\n', '\r']);
    }
}
