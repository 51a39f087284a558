//! Decisions as values: what a call, a record, a mode or a proof *is*.
//!
//! Owns: the types every layer speaks, the pure rules over them, and the ports (small traits) by
//! which a lower layer reaches an effect it may not import.
//! Must not know: clocks, files, sockets, tasks, randomness. Everything here can be tested by
//! calling a function.

pub mod address;
pub mod audit;
pub mod chronicle;
pub mod clock;
pub mod codes;
pub mod contain;
pub mod deadline;
pub mod effort;
pub mod end;
pub mod event;
pub mod face;
pub mod failure;
pub mod filter;
pub mod grant;
pub mod health;
pub mod hidden;
pub mod instructions;
pub mod ledger;
pub mod life;
pub mod log;
pub mod mask;
pub mod merkle;
pub mod mode;
pub mod names;
pub mod nearest;
pub mod note;
pub mod offer;
pub mod operator;
pub mod pin;
pub mod proof;
pub mod provider;
pub mod queue;
pub mod skill;
pub mod task;
pub mod text;
pub mod thought;
pub mod tool;
