//! `colibri serve`: the main job.

use std::io::{IsTerminal, Write};
use std::sync::Arc;

use crate::app;
use crate::config::{Config, from_process};

use super::Session;
use super::fault::Fault;

pub(super) const EXAMPLES: &str = "\
Examples:
  colibri serve                                   started by an MCP client
  COLIBRI_MODE=READONLY colibri serve             no tool that changes anything
  claude mcp add colibri -- colibri serve         tell a client about it

It ends cleanly when stdin ends, or on SIGTERM or SIGINT.";

pub(super) fn run(session: &Session) -> Result<(), Fault> {
    let (loaded, logger) = session.load()?;
    if std::io::stdin().is_terminal() {
        greet(&loaded.config);
    }
    let flags = session.flags.clone();
    let load: app::Load = Arc::new(move || from_process(&flags));
    let served = block_on(app::serve(&loaded, load, &logger))?;
    served.map_err(|error| {
        let fault = Fault::from(error);
        logger.error(format_args!("[colibri] fatal: {fault}"));
        fault.silenced()
    })
}

/// Waits for a command's work on a runtime of its own. Reading that was given up (a whole ledger, a
/// hung mount) is left behind, or the end of the process would wait for it.
pub(super) fn block_on<T>(work: impl Future<Output = T>) -> Result<T, Fault> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let done = runtime.block_on(work);
    runtime.shutdown_background();
    Ok(done)
}

/// For a person who typed this to see what happens.
fn greet(config: &Config) {
    let database = config.database.display();
    let _ = writeln!(
        std::io::stderr(),
        "colibri serves MCP here, on stdin and stdout, for a client to speak to. You are at a terminal, so:\n\
         \n  data      {database}\n  mode      {mode}\n  servers   {servers} configured\n\
         \n  try       {{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}}   and Enter\n  \
           or        colibri call server_health   in another terminal\n  leave     Ctrl-D\n",
        mode = config.mode,
        servers = config.servers.len(),
    );
}
