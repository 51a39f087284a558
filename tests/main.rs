//! The stories colibri must tell, by topic, in one binary so that the crate is linked once.

#![expect(clippy::disallowed_methods, reason = "stories start real processes")]

mod config;
mod docs;
mod interop;
mod proofs;
mod skills;
mod tidy;
