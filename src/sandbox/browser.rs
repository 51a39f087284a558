//! The person's own browser: the one program that is started for a person and left to itself.

use std::process::{Command, Stdio};

/// Asks the desktop to open an address. Only what begins with `http` is handed over, as one argument and
/// without a shell, so that an address can be neither an option nor a command. Tells whether a
/// program took it.
#[expect(clippy::disallowed_methods, reason = "this is a door: a browser outlives us, in nobody's group")]
pub fn open(address: &str) -> bool {
    if !(address.starts_with("https://") || address.starts_with("http://")) {
        return false;
    }
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut command = Command::new(program);
    command.arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_address_of_the_web_is_not_handed_over() {
        for other in ["", "--help", "file:///etc/passwd", "javascript:alert(1)", " https://example.com"] {
            assert!(!open(other), "{other}");
        }
    }
}
