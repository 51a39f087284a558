//! Building proofs, with as many lookups as the tree is high, twice at most.
//!
//! Owns: which perfect subtrees a proof needs. Must not know: how a node is kept or computed.

use super::{Hash, bag};

/// Where proofs get their hashes from. Each lookup is one perfect subtree that the log has completed.
pub trait Nodes {
    /// Why a node could not be read.
    type Error;

    /// The root of the perfect subtree that covers the leaves from `index * 2^height` on.
    fn node(&mut self, height: u8, index: u64) -> Result<Hash, Self::Error>;
}

/// Why a proof cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProveError<E> {
    /// There is no such record to prove.
    #[error("record {index} is not in a log of {size} records")]
    NoSuchRecord {
        /// The record asked for.
        index: u64,
        /// The size of the log asked about.
        size: u64,
    },
    /// A log does not shrink.
    #[error("a log of {new} records cannot have had {old} before")]
    Reversed {
        /// The size said to be the earlier one.
        old: u64,
        /// The size said to be the later one.
        new: u64,
    },
    /// The nodes could not be read.
    #[error("could not read the tree")]
    Nodes(#[source] E),
}

impl<E> From<E> for ProveError<E> {
    fn from(error: E) -> Self {
        Self::Nodes(error)
    }
}

/// The root that the log had when it held `size` records.
pub fn root_at<N: Nodes>(nodes: &mut N, size: u64) -> Result<Hash, N::Error> {
    range_root(nodes, 0, size)
}

/// The proof that record `index` is in the log of `size`: the sibling of every node on the way from
/// the leaf to the root.
pub fn inclusion<N: Nodes>(nodes: &mut N, index: u64, size: u64) -> Result<Vec<Hash>, ProveError<N::Error>> {
    if index >= size {
        return Err(ProveError::NoSuchRecord { index, size });
    }
    let (mut low, mut high) = (0, size);
    let mut path = Vec::new();
    while high - low > 1 {
        let middle = split(low, high);
        if index < middle {
            path.push(range_root(nodes, middle, high)?);
            high = middle;
        } else {
            path.push(range_root(nodes, low, middle)?);
            low = middle;
        }
    }
    path.reverse();
    Ok(path)
}

/// The proof that the log of `new` records begins with the log of `old`.
pub fn consistency<N: Nodes>(nodes: &mut N, old: u64, new: u64) -> Result<Vec<Hash>, ProveError<N::Error>> {
    if old > new {
        return Err(ProveError::Reversed { old, new });
    }
    if old == 0 || old == new {
        return Ok(Vec::new());
    }
    let (mut low, mut high) = (0, new);
    let mut path = Vec::new();
    while high != old {
        let middle = split(low, high);
        if old <= middle {
            path.push(range_root(nodes, middle, high)?);
            high = middle;
        } else {
            path.push(range_root(nodes, low, middle)?);
            low = middle;
        }
    }
    // From 0 on it is the old log itself, whose root the verifier brings along.
    if low > 0 {
        path.push(range_root(nodes, low, high)?);
    }
    path.reverse();
    Ok(path)
}

/// Where RFC 6962 splits the leaves `low..high`: after the largest power of two smaller than their
/// number.
fn split(low: u64, high: u64) -> u64 {
    low + (1 << (high - low - 1).ilog2())
}

/// The root over the leaves `low..high`, where `low` is a split point: one lookup per set bit.
fn range_root<N: Nodes>(nodes: &mut N, low: u64, high: u64) -> Result<Hash, N::Error> {
    let mut peaks = Vec::new();
    let mut from = low;
    while from < high {
        let height = (high - from).ilog2();
        peaks.push(nodes.node(height as u8, from >> height)?);
        from += 1 << height;
    }
    Ok(bag(&peaks))
}
