//! A server whose record is stderr: every call is told before it runs and after it ended.
//!
//! ```console
//! $ cargo run --example audit_sink
//! ```

use std::error::Error;
use std::io::Write;

use colibri::{AuditError, AuditSink, Enter, Exit, Pending, Server};

struct Stderr;

impl AuditSink for Stderr {
    fn enter<'a>(&'a self, event: &'a Enter) -> Pending<'a, Result<(), AuditError>> {
        let arguments = String::from_utf8_lossy(&event.arguments);
        let line = format!("{} {} {arguments} for {}", event.call, event.tool, event.principal.client);
        // A sink that fails here keeps the call from running.
        Box::pin(async move { tell(&line) })
    }

    fn exit<'a>(&'a self, event: &'a Exit) -> Pending<'a, Result<(), AuditError>> {
        let why = event.error.as_ref().map(|failure| format!(" ({})", failure.code)).unwrap_or_default();
        let line = format!("{} {} ended {}{why}", event.call, event.tool, event.outcome.name());
        Box::pin(async move { tell(&line) })
    }
}

fn tell(line: &str) -> Result<(), AuditError> {
    writeln!(std::io::stderr(), "audit: {line}").map_err(|error| AuditError(error.to_string()))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut server = Server::builder().audit_sink(Stderr).build();
    server.start().await?;
    server.wait().await;
    Ok(())
}
