//! Upstream servers: how colibri reaches them, keeps them running, and calls their tools.
//!
//! Owns: links, connections, the meeting of two protocol families, signing in where a server wants it; the
//! bridge that library users call; one supervisor for each server, the catalog of all their tools, and the
//! way of a call to one of them. Uses: `sandbox` to start a child, `mcp` for what bytes mean, `domain` to decide.
//! Must not know: who is calling, how a call is audited, or that SQL exists.
//!
//! Lowest first: [`link`], [`inbox`], [`connection`], [`session`] (introduced by [`era`]); on them [`bridge`]
//! for one server; for many, [`supervisor`] (what each offers is looked at by `inspect`, and by people in [`review`]), [`ship`] around it (deadlines, [`queues`],
//! and in `crew` which process serves a call), the [`catalog`] that `keeper` puts together, and [`roster`], which holds them all.

pub mod aside;
pub mod bridge;
pub mod bus;
pub mod catalog;
pub mod connection;
pub mod credentials;
mod crew;
pub mod era;
pub mod error;
pub mod inbox;
mod inspect;
mod keeper;
pub mod link;
mod listen;
pub mod listing;
pub mod logbook;
pub mod oauth;
pub mod offer;
mod operate;
pub mod plan;
mod pool;
pub mod queues;
mod remembered;
pub mod report;
pub mod review;
pub mod roster;
mod scribe;
pub mod seek;
pub mod session;
mod sessions;
pub mod ship;
pub mod supervisor;
pub mod tally;
pub mod terms;
pub mod web;
mod words;
