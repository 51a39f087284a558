//! The stories colibri must tell, by topic, in one binary so that the crate is linked once.

mod cli;
mod config;
mod hostile;
mod proofs;
