//! The door to stdout for every command that is not `serve`.

use std::io::{self, ErrorKind, Write as _};

use serde::Serialize;

pub(super) use crate::domain::log::{visible, visible_json};

use super::fault::Fault;

/// Prints text as it is.
pub(super) fn text(text: &str) -> Result<(), Fault> {
    bytes(text.as_bytes())
}

/// Prints one line.
pub(super) fn line(line: &str) -> Result<(), Fault> {
    text(&format!("{line}\n"))
}

/// Prints lines with what others wrote in them made visible.
pub(super) fn lines(lines: &str) -> Result<(), Fault> {
    lines.lines().try_for_each(|text| line(&visible(text)))
}

/// Says one line to people who watch; it is no part of the answer.
pub(super) fn talk(line: &str) -> Result<(), Fault> {
    Ok(writeln!(io::stderr(), "{line}")?)
}

/// Prints one JSON value on one line. What would steer a terminal in it is escaped.
pub(super) fn json(value: &impl Serialize) -> Result<(), Fault> {
    json_if_read(value).map(drop)
}

/// The same, to a reader that may leave. Tells whether it is still there.
pub(super) fn json_if_read(value: &impl Serialize) -> Result<bool, Fault> {
    let json = serde_json::to_string(value).expect("what commands print always serialises");
    line_if_read(&one_line(&json))
}

/// JSON that others wrote, safe for a terminal, on one line. A line break is never part of a text in it.
pub(super) fn one_line(json: &str) -> String {
    visible_json(json).replace('\n', " ")
}

/// Prints bytes. A reader that has seen enough (`| head`) is no failure.
pub(super) fn bytes(bytes: &[u8]) -> Result<(), Fault> {
    write(bytes).map(drop)
}

#[expect(clippy::disallowed_methods, reason = "this is the door")]
fn write(bytes: &[u8]) -> Result<bool, Fault> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Prints a JSON value for people, with line breaks.
pub(super) fn pretty(value: &impl Serialize) -> Result<(), Fault> {
    let plain = serde_json::to_string_pretty(value).expect("what commands print always serialises");
    line(&visible_json(&plain))
}

/// Prints one line to a reader that may leave. Tells whether it is still there.
pub(super) fn line_if_read(line: &str) -> Result<bool, Fault> {
    write(format!("{line}\n").as_bytes())
}

/// A table whose columns are as wide as their widest cell. Control characters are made visible, so
/// that what a client wrote cannot move the cursor.
pub(super) fn table(heads: &[&str], rows: &[Vec<String>]) -> Result<(), Fault> {
    table_with(heads, rows, |_, _| None)
}

/// The same, with some cells in a colour where a person looks at it: `colour` gets the column and the cell.
pub(super) fn table_with(
    heads: &[&str],
    rows: &[Vec<String>],
    colour: impl Fn(usize, &str) -> Option<Colour>,
) -> Result<(), Fault> {
    let watched = is_watched();
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| visible(cell)).collect()).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([heads[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let render = |cells: Vec<&str>, is_head: bool| {
        let padded = cells.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            match colour(column, cell).filter(|_| watched && !is_head) {
                Some(colour) => {
                    let blanks = width.saturating_sub(cell.chars().count());
                    format!("\x1b[{}m{cell}\x1b[0m{}", colour as u8, " ".repeat(blanks))
                }
                None => format!("{cell:<width$}"),
            }
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    line(&render(heads.to_vec(), true))?;
    rows.iter().try_for_each(|row| line(&render(row.iter().map(String::as_str).collect(), false)))
}

/// The colours that mean something.
#[derive(Clone, Copy)]
pub(super) enum Colour {
    Red = 31,
    Green = 32,
    Yellow = 33,
}

/// Whether a person looks at stdout, and wants colours.
#[expect(clippy::disallowed_methods, reason = "this is the door")]
fn is_watched() -> bool {
    use std::io::IsTerminal as _;
    io::stdout().is_terminal() && crate::config::variable("NO_COLOR").is_none_or(|set| set.is_empty())
}

/// The head of a text that somebody else chose the length of.
pub(super) fn head(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
