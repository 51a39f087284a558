//! The stories colibri must tell, by topic, in one binary so that the crate is linked once.

mod config;
mod proofs;
mod tamper;
