//! `colibri version`: what this is.

use serde_json::json;

use crate::mcp::revision::REVISIONS;
use crate::store::SCHEMA_VERSION;

use super::fault::Fault;
use super::out;

pub(super) const EXAMPLES: &str = "\
Examples:
  colibri version          and the protocol revisions it speaks
  colibri version --json   for machines";

pub(super) fn run(json: bool) -> Result<(), Fault> {
    let version = env!("CARGO_PKG_VERSION");
    let revisions: Vec<&str> = REVISIONS.iter().map(|revision| revision.date).collect();
    if json {
        return out::json(&json!({ "version": version, "protocols": revisions, "schema": SCHEMA_VERSION }));
    }
    out::line(&format!(
        "colibri {version}\nprotocols: {}\nledger schema: {SCHEMA_VERSION}",
        revisions.join(", ")
    ))
}
