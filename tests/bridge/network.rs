//! Servers on the network that misbehave, each written byte by byte on loopback.

mod asides;
pub(crate) mod frames;
mod leaks;
mod matrix;
pub(crate) mod mcp;
mod proxies;
mod sessions;
mod sockets;
mod statuses;
mod streams;
mod trust;
pub(crate) mod wire;
mod workers;
