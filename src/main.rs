//! The program: arguments in, exit code out.

use std::process::ExitCode;

fn main() -> ExitCode {
    // First of all: this may be the sandbox's helper, which must have one thread and touch nothing else.
    colibri::sandbox::enter().unwrap_or_else(colibri::cli::main)
}
