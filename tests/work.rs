//! What an agent works with all day: tasks, reasons, sessions. Over the real binary and a real pipe
//! wherever that is what is shown.

#![expect(clippy::unwrap_used, reason = "in a story, what must hold and does not is a panic")]

mod cli;
pub(crate) mod client;
mod crash;
mod errors;
mod graph;
mod leases;
mod limits;
mod story;
mod surface;
mod trail;
