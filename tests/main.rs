//! The stories colibri must tell, by topic, in one binary so that the crate is linked once.

#![expect(clippy::disallowed_methods, reason = "stories start real processes")]

mod bridge;
mod chaos;
mod chronicle;
mod cli;
mod concurrency;
mod config;
mod crash;
mod docs;
mod fleet;
mod hostile;
mod interop;
mod oauth;
mod operator;
mod proofs;
mod sandbox;
mod server;
mod skills;
mod support;
mod tamper;
mod tidy;
mod work;
