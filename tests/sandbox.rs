//! The sandbox, against a program that misbehaves in every way it is told to.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "in a story, what must hold and does not is a panic")]

mod ends;
mod groups;
mod layers;
mod limits;
mod links;
mod network;
mod orphans;
mod reach;
mod runtimes;
mod support;
mod users;

pub(crate) use support::compiled;
