//! `colibri server`: the servers of the configuration, and those of a running colibri.

mod add;
mod remove;

use clap::ValueEnum;

use crate::config::Scope;

use super::Session;
use super::fault::Fault;
use super::operate::{self, Accepted, Named, Which};

pub(super) const EXAMPLES: &str = "\
Examples:
  colibri server add time -- uvx mcp-server-time
  colibri server add files --env ROOT=/data -- npx -y @modelcontextprotocol/server-filesystem /data
  colibri server add github https://api.githubcopilot.com/mcp/ --header 'Authorization: Bearer ${GITHUB_TOKEN}'
  colibri server add --scope project docs -- ./docs-server     in ./colibri.json
  colibri server remove time
  colibri server list                   state, process, memory, tools and calls of each
  colibri server show github            one of them, its entry and its tools
  colibri server restart github         a new connection, also for one that had given up
  colibri server disable github         its tools are gone until it is enabled; not kept beyond this run
  colibri server test github            does it answer, and how fast?
  colibri server accept github          look at what changed of its tools, and take it for good

Comments and layout of the file stay as they are. A secret is best written as '${VAR}': the variable is filled in when the
server is started, and the file does not hold it. Where several colibris run, --pid says which.";

#[derive(clap::Subcommand)]
pub(super) enum Command {
    /// Add a server to a configuration file
    Add(add::Arguments),
    /// Take a server out of a configuration file
    #[command(visible_alias = "rm")]
    Remove(remove::Arguments),
    /// List the servers of a running colibri
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
        Command::Add(arguments) => add::run(session, arguments),
        Command::Remove(arguments) => remove::run(session, arguments),
        Command::List(which) => operate::list(session, which),
        Command::Show(named) => operate::show(session, named),
        Command::Restart(named) => operate::restart(session, named),
        Command::Disable(named) => operate::disable(session, named),
        Command::Enable(named) => operate::enable(session, named),
        Command::Test(named) => operate::test(session, named),
        Command::Accept(accepted) => operate::accept(session, accepted),
    }
}

/// Whose file, as it is typed.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ScopeWord {
    /// The user's file
    User,
    /// ./colibri.json
    Project,
}

impl ScopeWord {
    const ALL: [Self; 2] = [Self::Project, Self::User];

    fn scope(self) -> Scope {
        match self {
            Self::User => Scope::User,
            Self::Project => Scope::Project,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Project => "project",
        }
    }
}
