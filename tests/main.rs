//! The one integration binary: stories by topic, each a module.

mod interop;
mod tidy;
