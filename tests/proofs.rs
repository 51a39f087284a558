//! Proofs, checkpoints and bundles: equal to what independent implementations make, accepted by
//! them, and refused once anything in them is changed.

#![expect(clippy::unwrap_used, reason = "in a story, what must hold and does not is a panic")]

mod files;
mod notes;
mod trees;
