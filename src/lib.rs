//! colibri: the MCP runtime between AI agents and their tools.
//!
//! Clients speak MCP to it; every call takes one path — turn, validate, audit enter, dispatch,
//! audit exit — and leaves a record that anyone can verify offline.
//!
//! The modules below are the layers, lowest first; `tests/tidy.rs` holds them to the table in
//! `ARCHITECTURE.md`.

pub mod domain;

pub mod config;
pub mod mcp;
pub mod sandbox;
pub mod store;

pub mod fleet;
pub mod tools;

pub mod call;

pub mod serve;

pub mod app;

pub mod cli;

pub use app::bridge;
pub use app::{Server, StartError};
pub use domain::audit::{AuditError, AuditSink, Enter, Exit, NoAudit, Pending};
pub use domain::failure::Refusal;
pub use domain::mode::Mode;
pub use serve::Transport;
pub use tools::{Context, RegisterError, ToolConfig, ToolError};
