//! What several stories share.

pub(crate) mod library;
