//! Servers on the network that misbehave, each written byte by byte on loopback.

mod frames;
mod matrix;
mod mcp;
mod statuses;
mod wire;
