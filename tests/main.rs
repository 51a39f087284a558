//! The stories: one integration binary, one module per topic.

mod config;
mod interop;
mod proofs;
mod tidy;
