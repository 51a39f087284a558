//! The composition root: builds the layers, owns the clock and the order of shutdown.
//!
//! Owns: which parts a running colibri is made of. Nothing below imports it.

pub mod bridge;
mod clock;
mod confine;
mod covers;
mod fleet;
mod handlers;
mod lives;
mod oauth;
pub mod operator;
mod reach;
mod reload;
mod run;
mod server;
mod watch;
mod worker;

pub use clock::SystemClock;
pub use confine::{Own, own_places, policy_for};
pub use oauth::oauth;
pub use reach::{Families, families, opener};
pub use reload::Load;
pub use run::{RunError, calls, calls_of, ready, serve, store_options};
pub use server::{Berth, Builder, STARTUP_TIMEOUT, Server, StartError, stderr_logger};
pub use watch::{WATCH_INTERVAL, watch};
