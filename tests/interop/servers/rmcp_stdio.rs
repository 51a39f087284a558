//! The server on the Rust SDK as a program, over stdio; with `legacy` it knows only the older revisions.
//! Built as an example, so that it stands beside the tests that start it.

mod rmcp_host;

use rmcp::ServiceExt as _;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let legacy_only = std::env::args().nth(1).is_some_and(|argument| argument == "legacy");
    rmcp_host::Host::new(legacy_only).serve(rmcp::transport::stdio()).await?.waiting().await?;
    Ok(())
}
