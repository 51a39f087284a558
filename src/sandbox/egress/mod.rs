//! The way out for a child whose network has nobody in it: a small proxy, in colibri itself.
//!
//! Owns: which hosts a child reaches, and that nothing else is reached on its behalf. The helper opens a
//! listening socket inside the child's network and hands it out; colibri accepts on it from outside. Names
//! are resolved here and their addresses looked at, so that a name cannot lead to this machine or its
//! network. Nothing of it outlives colibri or the child: both ends are closed by the kernel.
//! Must not know: what is said in a tunnel, or whose child it is.

#[cfg(target_os = "linux")]
mod head;
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "elsewhere there is no proxy to ask it"))]
mod hosts;
#[cfg(target_os = "linux")]
pub(super) mod proxy;
#[cfg(target_os = "linux")]
mod tunnel;

pub use hosts::{Host, Hosts};

/// Connections of one child at the same time; one more is told so, and closed.
pub const CONNECTIONS_MAX: usize = 100;
