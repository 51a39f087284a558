//! An attacker's and a confused client's view of the built binary, over its real stdin and stdout.
//!
//! Every frame it ever answers is checked to be one (CO-12), in every story, by [`child::Colibri`].
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "stories about a process start one, and end at the first surprise"
)]

pub(crate) mod child;
mod endings;
mod families;
mod floods;
mod frames;
mod guard;
mod mutations;
