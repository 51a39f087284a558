//! The composition root: builds the layers, owns the clock and the order of shutdown.
//!
//! Owns: which parts a running colibri is made of. Nothing below imports it.

mod clock;
mod confine;
mod handlers;
mod run;
mod server;

pub use clock::SystemClock;
pub use confine::{Places, own_places, policy_of};
pub use run::{RunError, calls, ready, serve, store_options};
pub use server::{Builder, STARTUP_TIMEOUT, Server, StartError, stderr_logger};
