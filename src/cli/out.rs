//! The door to stdout for every command that is not `serve`.

use std::io::{self, ErrorKind, Write};

use serde::Serialize;

use super::fault::Fault;

/// Prints text as it is.
pub(super) fn text(text: &str) -> Result<(), Fault> {
    bytes(text.as_bytes())
}

/// Prints one line.
pub(super) fn line(line: &str) -> Result<(), Fault> {
    text(&format!("{line}\n"))
}

/// Says one line to people who watch; it is no part of the answer.
pub(super) fn talk(line: &str) -> Result<(), Fault> {
    Ok(writeln!(io::stderr(), "{line}")?)
}

/// Prints one JSON value on one line.
pub(super) fn json(value: &impl Serialize) -> Result<(), Fault> {
    line(&serde_json::to_string(value).expect("what commands print always serialises"))
}

/// Prints bytes. A reader that has seen enough (`| head`) is no failure.
#[expect(clippy::disallowed_methods, reason = "this is the door")]
pub(super) fn bytes(bytes: &[u8]) -> Result<(), Fault> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// A table whose columns are as wide as their widest cell. Control characters are made visible, so
/// that what a client wrote cannot move the cursor.
pub(super) fn table(heads: &[&str], rows: &[Vec<String>]) -> Result<(), Fault> {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| visible(cell)).collect()).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([heads[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let render = |cells: Vec<&str>| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    line(&render(heads.to_vec()))?;
    rows.iter().try_for_each(|row| line(&render(row.iter().map(String::as_str).collect())))
}

/// The text with control characters escaped.
pub(super) fn visible(text: &str) -> String {
    let escape = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escape).collect()
}
