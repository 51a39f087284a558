//! What stays true when things break: the process is killed, the power is cut, the disk is full or
//! lies, several processes share one ledger, or what lies on the disk is not what colibri left there.
//!
//! The stories run the real binary wherever they can. They need root, and the Debian packages
//! `strace`, `e2fsprogs`, `util-linux` and `python3`; one that misses something fails and says what.

#![expect(clippy::unwrap_used, reason = "in a story, what must hold and does not is a panic")]

mod crowd;
mod durability;
mod faults;
mod kill;
mod power;
mod refusals;
mod repair;
mod store;
mod support;
