//! The stories: one integration binary, one module per topic.

mod proofs;
