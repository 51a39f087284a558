//! Servers on the network that misbehave, each written byte by byte on loopback.

mod asides;
mod frames;
mod leaks;
mod matrix;
mod mcp;
mod proxies;
mod sessions;
mod sockets;
mod statuses;
mod streams;
mod trust;
mod wire;
