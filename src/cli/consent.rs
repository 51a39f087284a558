//! A question to the person at the terminal.

use std::io::{BufRead, IsTerminal, Read};

use super::fault::Fault;
use super::out;

/// A yes, and room for a longer one.
const ANSWER_BYTES_MAX: u64 = 64;

/// Whether somebody can be asked.
pub(super) fn can_be_asked() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks; anything but a yes is a no.
pub(super) fn agreed(question: &str) -> Result<bool, Fault> {
    out::talk(&format!("{question} [y/N]"))?;
    let mut answer = String::new();
    std::io::stdin().lock().take(ANSWER_BYTES_MAX).read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
