//! The command line: one file per subcommand.
//!
//! Owns: what people type and read. stdout is data, stderr is talk; `--json` is for machines.
//! Uses: `app` and everything below. Must not know: SQL, frames, or how a call is recorded.

mod audit;
mod auth;
mod call;
mod completions;
mod config;
mod consent;
mod doctor;
mod events;
mod fault;
mod invoke;
mod logs;
mod operate;
mod out;
mod probe;
mod reach;
mod reload;
mod run;
mod serve;
mod server;
mod session;
mod skill;
mod status;
mod task;
mod thought;
mod tools;
mod trust;
mod verify;
mod version;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::app::stderr_logger;
use crate::config::{Flags, Loaded, from_process};
use crate::domain::log::Logger;

use fault::{Exit, Fault};

const ABOUT: &str = "The MCP runtime between AI agents and their tools: one path for every call, \
     one record anyone can verify.";

const EXAMPLES: &str = "\
Examples:
  colibri serve                         serve MCP on stdin and stdout
  colibri call server_ping              call a tool from here, on record like any other call
  colibri task next --agent ada --claim the best task that is free, for ada alone
  colibri audit list                    what was called, by whom, and how it ended
  colibri audit verify                  prove that no record was touched
  colibri status                        what runs, and how its servers are
  colibri doctor                        what works on this machine, and what to do about the rest

Exit codes:
  0 ok · 1 unexpected · 2 usage · 3 authentication needed · 4 unreachable · 5 the tool returned an error
  6 verification failed · 7 configuration invalid · 8 doctor found problems · 9 the ledger is unusable
  75 startup timeout";

#[derive(Parser)]
#[command(name = "colibri", version, about = ABOUT, after_help = EXAMPLES)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Option<Command>,
}

/// Options that every command takes.
#[derive(clap::Args)]
struct Global {
    /// The only configuration file to read
    #[arg(long, global = true, value_name = "FILE", help_heading = "Global options")]
    config: Option<PathBuf>,
    /// FULL, READONLY, TEST or MINIMAL [env: COLIBRI_MODE]
    #[arg(long, global = true, help_heading = "Global options")]
    mode: Option<String>,
    /// error, warn, info, debug or trace [env: COLIBRI_LOG]
    #[arg(long, global = true, value_name = "LEVEL", help_heading = "Global options")]
    log: Option<String>,
    /// Where the ledger lies [env: COLIBRI_DB_PATH]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Global options")]
    database: Option<PathBuf>,
    /// How long connecting and calling a server may take [env: COLIBRI_MCP_TIMEOUT]
    #[arg(long, global = true, value_name = "MS", help_heading = "Global options")]
    mcp_timeout: Option<String>,
    /// How long the start may take [env: COLIBRI_STARTUP_TIMEOUT_MS]
    #[arg(long, global = true, value_name = "MS", help_heading = "Global options")]
    startup_timeout: Option<String>,
    /// Print for machines: one JSON value, or one a line
    #[arg(long, global = true, help_heading = "Global options")]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Serve MCP on stdin and stdout
    #[command(after_help = serve::EXAMPLES)]
    Serve,
    /// Show what runs: every colibri of yours, and how each of its servers is
    #[command(after_help = status::EXAMPLES)]
    Status,
    /// Add and remove servers; look at those of a running colibri, and restart, disable, enable or test one
    #[command(subcommand, after_help = server::EXAMPLES)]
    Server(server::Command),
    /// Show what a server wrote to its stderr, and what colibri said about it
    #[command(after_help = logs::EXAMPLES)]
    Logs(logs::Arguments),
    /// Show what happened, and with --follow what happens
    #[command(after_help = events::EXAMPLES)]
    Events(events::Arguments),
    /// Let a running colibri read its configuration again
    #[command(after_help = reload::EXAMPLES)]
    Reload(reload::Arguments),
    /// List the tools, or show one
    #[command(after_help = tools::EXAMPLES)]
    Tools(tools::Arguments),
    /// Call a tool, on record like any other call
    #[command(after_help = call::EXAMPLES)]
    Call(call::Arguments),
    /// List, show and validate skills
    #[command(subcommand, after_help = skill::EXAMPLES)]
    Skill(skill::Command),
    /// What is to be done: create, list, change and take tasks
    #[command(subcommand, after_help = task::EXAMPLES)]
    Task(task::Command),
    /// Why it was done: put reasons on record, and read them
    #[command(subcommand, after_help = thought::EXAMPLES)]
    Thought(thought::Command),
    /// Reasons that belong together, sealed under one root
    #[command(subcommand, after_help = session::EXAMPLES)]
    Session(session::Command),
    /// Read, verify, prove and export the ledger
    #[command(subcommand, after_help = audit::EXAMPLES)]
    Audit(audit::Command),
    /// Verify a proof, a bundle or a checkpoint offline
    #[command(after_help = verify::EXAMPLES)]
    Verify(verify::Arguments),
    /// Connect to an MCP server, and show what is there or what is wrong
    #[command(after_help = probe::EXAMPLES)]
    Probe(probe::Arguments),
    /// Let files of a working directory start programs, once you have seen which
    #[command(after_help = trust::EXAMPLES)]
    Trust(trust::Arguments),
    /// Sign in to servers that want to know who you are
    #[command(subcommand, after_help = auth::EXAMPLES)]
    Auth(auth::Command),
    /// Run a program in the sandbox, on this terminal's own input and output
    #[command(after_help = run::EXAMPLES)]
    Run(run::Arguments),
    /// Show and check the configuration
    #[command(subcommand, after_help = config::EXAMPLES)]
    Config(config::Command),
    /// Check this machine, the configuration and the ledger
    #[command(after_help = doctor::EXAMPLES)]
    Doctor,
    /// Print a completion script for a shell
    #[command(after_help = completions::EXAMPLES)]
    Completions(completions::Arguments),
    /// Print the version
    #[command(after_help = version::EXAMPLES)]
    Version,
}

/// Everything a command starts with.
struct Session {
    flags: Flags,
    json: bool,
}

impl Session {
    /// The configuration, its warnings told.
    fn load(&self) -> Result<(Loaded, Logger), Fault> {
        let loaded = from_process(&self.flags)?;
        let logger = stderr_logger(loaded.config.log);
        for warning in &loaded.warnings {
            logger.warn(format_args!("[colibri] warning: {}", warning.line()));
        }
        Ok((loaded, logger))
    }
}

/// Parses the arguments, runs the command, and says in one line what went wrong.
pub fn main() -> ExitCode {
    let Cli { global, command } = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    let flags = Flags {
        config: global.config,
        mode: global.mode,
        log: global.log,
        database: global.database,
        mcp_timeout: global.mcp_timeout,
        startup_timeout: global.startup_timeout,
    };
    let session = Session { flags, json: global.json };
    let done = match command {
        None => out::text(ORIENTATION),
        Some(Command::Serve) => serve::run(&session),
        Some(Command::Status) => status::run(&session),
        Some(Command::Server(command)) => server::run(&session, &command),
        Some(Command::Logs(arguments)) => logs::run(&session, &arguments),
        Some(Command::Events(arguments)) => events::run(&session, &arguments),
        Some(Command::Reload(arguments)) => reload::run(&session, &arguments),
        Some(Command::Tools(arguments)) => tools::run(&session, arguments),
        Some(Command::Call(arguments)) => call::run(&session, arguments),
        Some(Command::Skill(command)) => skill::run(&session, command),
        Some(Command::Task(command)) => task::run(&session, command),
        Some(Command::Thought(command)) => thought::run(&session, command),
        Some(Command::Session(command)) => session::run(&session, command),
        Some(Command::Audit(command)) => audit::run(&session, command),
        Some(Command::Verify(arguments)) => verify::run(&session, &arguments),
        Some(Command::Probe(arguments)) => probe::run(&session, &arguments),
        Some(Command::Trust(arguments)) => trust::run(&session, &arguments),
        Some(Command::Auth(command)) => auth::run(&session, &command),
        Some(Command::Run(arguments)) => run::run(&session, &arguments),
        Some(Command::Config(command)) => config::run(&session, &command),
        Some(Command::Doctor) => doctor::run(&session),
        Some(Command::Completions(arguments)) => completions::run(&arguments, &mut Cli::command()),
        Some(Command::Version) => version::run(session.json),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => fault.tell(session.json),
    }
}

/// Help and version are answers; anything else was typed wrongly, and a machine is told so in JSON.
fn refuse(error: &clap::Error) -> ExitCode {
    if error.use_stderr() && std::env::args_os().any(|argument| argument == "--json") {
        let text = error.to_string();
        let message = text.split("\n\n").next().unwrap_or_default();
        return Fault::new(Exit::Usage, message.trim_start_matches("error: ")).tell(true);
    }
    let _ = error.print();
    if error.use_stderr() { ExitCode::from(Exit::Usage as u8) } else { ExitCode::SUCCESS }
}

const ORIENTATION: &str = "\
colibri stands between AI agents and their tools: one path for every call, one record anyone can verify.

  colibri serve              serve MCP on stdin and stdout; this is what a client starts
  colibri tools              what it serves
  colibri call server_ping   call a tool from here
  colibri task list          what is to be done
  colibri audit list         what was called
  colibri audit verify       prove that no record was touched
  colibri status             what runs, and how its servers are
  colibri doctor             is everything well?
  colibri --help             everything else

To use it from an MCP client, give the client this command:  colibri serve
";
