//! What happens to a ledger that somebody else has touched: every change is found, the first broken
//! place is named, and what leaves the ledger is believed or refused by code that is not colibri's.

#![expect(clippy::unwrap_used, reason = "in a story, what must hold and does not is a panic")]

mod edits;
mod files;
mod forger;
mod ledger;
mod offline;
mod random;
mod strangers;
