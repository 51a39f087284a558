//! `colibri server`: the servers of a running colibri.

use super::Session;
use super::fault::Fault;
use super::operate::{self, Accepted, Named, Which};

pub(super) const EXAMPLES: &str = "\
Examples:
  colibri server list                   state, process, memory, tools and calls of each
  colibri server show github            one of them, its entry and its tools
  colibri server restart github         a new connection, also for one that had given up
  colibri server disable github         its tools are gone until it is enabled; not kept beyond this run
  colibri server test github            does it answer, and how fast?
  colibri server accept github          take changed definitions of its tools for good

Where several colibris run, --pid says which.";

#[derive(clap::Subcommand)]
pub(super) enum Command {
    /// List the servers
    List(Which),
    /// Show one server, its entry and its tools; secrets are never shown
    Show(Named),
    /// Start a server again
    Restart(Named),
    /// Turn a server off, until it is enabled or colibri ends
    Disable(Named),
    /// Turn a server on again
    Enable(Named),
    /// Try a server now
    Test(Named),
    /// Accept changed definitions of a server's tools
    Accept(Accepted),
}

pub(super) fn run(session: &Session, command: &Command) -> Result<(), Fault> {
    match command {
        Command::List(which) => operate::list(session, which),
        Command::Show(named) => operate::show(session, named),
        Command::Restart(named) => operate::restart(session, named),
        Command::Disable(named) => operate::disable(session, named),
        Command::Enable(named) => operate::enable(session, named),
        Command::Test(named) => operate::test(session, named),
        Command::Accept(accepted) => operate::accept(session, accepted),
    }
}
