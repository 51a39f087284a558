//! Upstream servers: how colibri reaches them.
//!
//! Owns: links, connections, the meeting of two protocol families, and the bridge that library users
//! call. Uses: `sandbox` to start a child, `mcp` for what bytes mean.
//! Must not know: who is calling, how a call is audited, or that SQL exists.

pub mod bridge;
pub mod catalog;
pub mod connection;
pub mod credentials;
pub mod era;
pub mod error;
pub mod inbox;
pub mod link;
pub mod listing;
pub mod oauth;
pub mod roster;
pub mod session;
pub mod supervisor;
pub mod web;
