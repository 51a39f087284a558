//! The stories: one integration binary, one module per topic.

mod interop;
mod proofs;
mod tidy;
