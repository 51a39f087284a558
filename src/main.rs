//! The program: arguments in, exit code out.

use std::process::ExitCode;

fn main() -> ExitCode {
    // First of all: this may be the sandbox's helper, which must have one thread and touch nothing else.
    let helper = colibri::sandbox::enter();
    // Or it may be the worker that goes to a server on the network.
    helper.or_else(colibri::fleet::link::worker::enter).unwrap_or_else(colibri::cli::main)
}
