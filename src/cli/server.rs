//! `colibri server`: the servers of the configuration.

mod add;
mod remove;

use clap::ValueEnum;

use crate::config::Scope;

use super::Session;
use super::fault::Fault;

pub(super) const EXAMPLES: &str = "\
Examples:
  colibri server add time -- uvx mcp-server-time
  colibri server add files --env ROOT=/data -- npx -y @modelcontextprotocol/server-filesystem /data
  colibri server add github https://api.githubcopilot.com/mcp/ --header 'Authorization: Bearer ${GITHUB_TOKEN}'
  colibri server add --scope project docs -- ./docs-server     in ./colibri.json
  colibri server remove time

Comments and layout of the file stay as they are. A secret is best written as '${VAR}': the variable is filled in when the
server is started, and the file does not hold it.";

#[derive(clap::Subcommand)]
pub(super) enum Command {
    /// Add a server to a configuration file
    Add(add::Arguments),
    /// Take a server out of a configuration file
    #[command(visible_alias = "rm")]
    Remove(remove::Arguments),
}

pub(super) fn run(session: &Session, command: &Command) -> Result<(), Fault> {
    match command {
        Command::Add(arguments) => add::run(session, arguments),
        Command::Remove(arguments) => remove::run(session, arguments),
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
