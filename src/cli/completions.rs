//! `colibri completions`: a script for a shell.

use clap_complete::Shell;

use super::fault::Fault;
use super::out;

pub(super) const EXAMPLES: &str = "\
Examples:
  colibri completions bash > ~/.local/share/bash-completion/completions/colibri
  colibri completions zsh  > ~/.zfunc/_colibri
  colibri completions fish > ~/.config/fish/completions/colibri.fish";

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Which shell
    shell: Shell,
}

pub(super) fn run(arguments: &Arguments, command: &mut clap::Command) -> Result<(), Fault> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, command, "colibri", &mut script);
    out::bytes(&script)
}
