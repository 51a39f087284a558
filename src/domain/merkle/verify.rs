//! Checking proofs, by the algorithms of RFC 9162 and not by rebuilding them: what the verifier
//! accepts does not depend on how the prover thinks.

use super::{EMPTY_ROOT, Hash, node_hash};

/// Why a proof does not prove.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// It speaks of a record that the log does not have.
    #[error("record {index} is not in a log of {size} records")]
    NoSuchRecord {
        /// The record it speaks of.
        index: u64,
        /// The size of the log.
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
    /// It has fewer hashes than the way to the root has steps.
    #[error("the proof ends before the root: {found} hashes are too few")]
    TooShort {
        /// How many hashes it has.
        found: usize,
    },
    /// It has more hashes than the way to the root has steps.
    #[error("the proof goes on beyond the root: {found} hashes are too many")]
    TooLong {
        /// How many hashes it has.
        found: usize,
    },
    /// It leads to another root: the record, the proof or the log was changed.
    #[error("the proof leads to root {computed}, but the log of {size} records has {claimed}")]
    WrongRoot {
        /// The size of the log whose root was missed.
        size: u64,
        /// Where the proof leads.
        computed: Hash,
        /// What the log is said to have.
        claimed: Hash,
    },
}

/// Checks that `leaf` is record `index` of the log of `size` with `root` (RFC 9162, 2.1.3.2).
///
/// The hashes alone do not bind the size: take it and the root together, from one checkpoint.
pub fn verify_inclusion(
    leaf: Hash,
    index: u64,
    size: u64,
    proof: &[Hash],
    root: Hash,
) -> Result<(), ProofError> {
    if index >= size {
        return Err(ProofError::NoSuchRecord { index, size });
    }
    let mut walk = Walk { node: index, last: size - 1, steps: proof.len() };
    let mut computed = leaf;
    for sibling in proof {
        computed = match walk.step()? {
            Side::Left => node_hash(*sibling, computed),
            Side::Right => node_hash(computed, *sibling),
        };
    }
    walk.arrived()?;
    same_root(size, computed, root)
}

/// Checks that the log of `new_size` with `new_root` begins with the log of `old_size` with
/// `old_root` (RFC 9162, 2.1.4.2). The empty log is the beginning of every log.
pub fn verify_consistency(
    old_size: u64,
    old_root: Hash,
    new_size: u64,
    new_root: Hash,
    proof: &[Hash],
) -> Result<(), ProofError> {
    if old_size > new_size {
        return Err(ProofError::Reversed { old: old_size, new: new_size });
    }
    if old_size == 0 || old_size == new_size {
        if !proof.is_empty() {
            return Err(ProofError::TooLong { found: proof.len() });
        }
        let only_root = if old_size == 0 { EMPTY_ROOT } else { new_root };
        same_root(old_size, only_root, old_root)?;
        return if new_size == 0 { same_root(0, EMPTY_ROOT, new_root) } else { Ok(()) };
    }
    // A perfect old log is a node of the new one; the proof leaves out what the verifier knows.
    let (first, rest) = match proof {
        rest if old_size.is_power_of_two() => (&old_root, rest),
        [first, rest @ ..] => (first, rest),
        [] => return Err(ProofError::TooShort { found: 0 }),
    };
    let completed = old_size.trailing_zeros();
    let mut walk =
        Walk { node: (old_size - 1) >> completed, last: (new_size - 1) >> completed, steps: proof.len() };
    let (mut old, mut new) = (*first, *first);
    for sibling in rest {
        match walk.step()? {
            Side::Left => {
                old = node_hash(*sibling, old);
                new = node_hash(*sibling, new);
            }
            Side::Right => new = node_hash(new, *sibling),
        }
    }
    walk.arrived()?;
    same_root(old_size, old, old_root)?;
    same_root(new_size, new, new_root)
}

/// The way from a node up to the root, one sibling at a time.
struct Walk {
    /// The node's index at the height it has reached.
    node: u64,
    /// The index of the last node at that height; 0 is the root.
    last: u64,
    /// How many hashes the proof has, for its errors.
    steps: usize,
}

/// On which side of the node its sibling is.
enum Side {
    Left,
    Right,
}

impl Walk {
    fn step(&mut self) -> Result<Side, ProofError> {
        if self.last == 0 {
            return Err(ProofError::TooLong { found: self.steps });
        }
        let side = if self.node & 1 == 1 || self.node == self.last { Side::Left } else { Side::Right };
        if matches!(side, Side::Left) {
            // The last node of a level may have no sibling there: it rises until it has one.
            let levels = self.node.trailing_zeros();
            self.node >>= levels;
            self.last >>= levels;
        }
        self.node >>= 1;
        self.last >>= 1;
        Ok(side)
    }

    fn arrived(&self) -> Result<(), ProofError> {
        if self.last == 0 { Ok(()) } else { Err(ProofError::TooShort { found: self.steps }) }
    }
}

fn same_root(size: u64, computed: Hash, claimed: Hash) -> Result<(), ProofError> {
    if computed == claimed { Ok(()) } else { Err(ProofError::WrongRoot { size, computed, claimed }) }
}
