//! The Merkle tree over a log, as RFC 6962 and RFC 9162 define it over SHA-256.
//!
//! Owns: hashing of leaves and nodes, and the frontier of a growing log; `prove` builds proofs from
//! nodes that somebody else keeps, `verify` checks them.
//! Must not know: what a record says, where nodes are kept, who signs a root.

mod prove;
mod verify;

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest as _, Sha256};

pub use self::prove::{Nodes, ProveError, consistency, inclusion, root_at};
pub use self::verify::{ProofError, verify_consistency, verify_inclusion};

/// A SHA-256 hash: of a leaf, of a node, or of a whole log (its root).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hash(pub [u8; 32]);

/// The root of a log without records: SHA-256 of nothing.
pub const EMPTY_ROOT: Hash = Hash([
    0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24, 0x27,
    0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55,
]);

/// The hash of one record's bytes. Its prefix differs from a node's, so that no record can pose as
/// a node, nor a node as a record.
pub fn leaf_hash(record: &[u8]) -> Hash {
    Hash(Sha256::new().chain_update([0x00]).chain_update(record).finalize().into())
}

/// The hash of two neighbouring subtrees.
pub fn node_hash(left: Hash, right: Hash) -> Hash {
    let mut bytes = [0x01; 65];
    bytes[1..33].copy_from_slice(&left.0);
    bytes[33..].copy_from_slice(&right.0);
    Hash(Sha256::digest(bytes).into())
}

/// The root of a perfect subtree, from all hashes of one of its levels.
///
/// # Panics
/// If their number is no power of two: such a subtree is not perfect, and asking is a mistake.
pub fn fold_perfect(hashes: &[Hash]) -> Hash {
    assert!(hashes.len().is_power_of_two(), "a perfect subtree has a power of two of hashes at every level");
    let mut level = hashes.to_vec();
    while level.len() > 1 {
        level = level.chunks_exact(2).map(|pair| node_hash(pair[0], pair[1])).collect();
    }
    level[0]
}

/// All of a log's tree that appending needs: the roots of its perfect subtrees, one per set bit of
/// its size, largest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frontier {
    size: u64,
    peaks: Vec<Hash>,
}

/// A perfect subtree that an appended leaf completed. It will never change again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// 0 is a leaf; a node at height `h` covers `2^h` leaves.
    pub height: u8,
    /// Its place among the nodes of that height: it covers the leaves from `index * 2^height` on.
    pub index: u64,
    /// Its hash.
    pub hash: Hash,
}

impl Frontier {
    /// Adds a leaf, and tells every node it completes: itself first, then upwards.
    pub fn append(&mut self, leaf: Hash) -> Vec<Completed> {
        let mut node = Completed { height: 0, index: self.size, hash: leaf };
        let mut completed = vec![node];
        while node.index & 1 == 1 {
            let left = self.peaks.pop().expect("every set bit of the size has its peak");
            let hash = node_hash(left, node.hash);
            node = Completed { height: node.height + 1, index: node.index >> 1, hash };
            completed.push(node);
        }
        self.peaks.push(node.hash);
        self.size = self.size.checked_add(1).expect("no log reaches 2^64 records");
        completed
    }

    /// How many leaves were appended.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The root of the log as it stands.
    pub fn root(&self) -> Hash {
        bag(&self.peaks)
    }

    /// The peaks, 32 bytes each, largest first. The size is not among them.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.peaks.iter().flat_map(|peak| peak.0).collect()
    }

    /// The frontier of a log of `size`, from what [`Self::to_bytes`] gave.
    pub fn from_bytes(size: u64, bytes: &[u8]) -> Result<Self, FrontierError> {
        let (hashes, rest) = bytes.as_chunks::<32>();
        if !rest.is_empty() || hashes.len() != size.count_ones() as usize {
            return Err(FrontierError { size, found: bytes.len() });
        }
        Ok(Self { size, peaks: hashes.iter().copied().map(Hash).collect() })
    }
}

/// Stored peaks that cannot belong to a log of that size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the frontier of {size} records takes {} bytes, not {found}", .size.count_ones() * 32)]
pub struct FrontierError {
    /// The size that was named.
    pub size: u64,
    /// The bytes that were there.
    pub found: usize,
}

/// The root over perfect subtrees, largest first.
fn bag(peaks: &[Hash]) -> Hash {
    peaks.iter().copied().rev().reduce(|right, left| node_hash(left, right)).unwrap_or(EMPTY_ROOT)
}

impl Hash {
    /// Standard base64 with padding, as it stands in checkpoints and proofs.
    pub fn to_base64(self) -> String {
        BASE64_STANDARD.encode(self.0)
    }

    /// The reverse of [`Self::to_base64`]; any other spelling is refused.
    pub fn from_base64(text: &str) -> Result<Self, HashError> {
        let bytes = BASE64_STANDARD.decode(text).map_err(|_| HashError)?;
        bytes.try_into().map(Self).map_err(|_| HashError)
    }
}

/// Text that is not a SHA-256 hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a SHA-256 hash: 32 bytes are 64 hexadecimal digits, or 44 characters of base64")]
pub struct HashError;

impl fmt::Display for Hash {
    /// 64 lowercase hexadecimal digits.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Every record holds several; a formatter for each byte was a sixth of the cost of a call.
        let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).expect("a nibble is below 16") as u8;
        let mut text = [0; 64];
        for (pair, byte) in text.as_chunks_mut::<2>().0.iter_mut().zip(self.0) {
            *pair = [digit(byte >> 4), digit(byte & 0xf)];
        }
        out.write_str(str::from_utf8(&text).expect("hexadecimal digits are ASCII"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl FromStr for Hash {
    type Err = HashError;

    fn from_str(text: &str) -> Result<Self, HashError> {
        let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return Err(HashError) };
        let digit = |ascii: u8| char::from(ascii).to_digit(16);
        let bytes: Option<Vec<u8>> =
            pairs.iter().map(|&[high, low]| Some((digit(high)? << 4 | digit(low)?) as u8)).collect();
        bytes.ok_or(HashError)?.try_into().map(Self).map_err(|_| HashError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SU-11: the records and roots that every RFC 6962 implementation is tried with.
    #[test]
    fn known_logs_have_their_known_roots() {
        let log: [&[u8]; 8] = [
            b"",
            b"\x00",
            b"\x10",
            b"\x20\x21",
            b"\x30\x31",
            b"\x40\x41\x42\x43",
            b"\x50\x51\x52\x53\x54\x55\x56\x57",
            b"\x60\x61\x62\x63\x64\x65\x66\x67\x68\x69\x6a\x6b\x6c\x6d\x6e\x6f",
        ];
        let roots = [
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
            "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
            "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
            "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
            "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
            "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
            "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
            "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
        ];
        let mut frontier = Frontier::default();
        assert_eq!(frontier.root().to_string(), roots[0]);
        for (record, root) in log.iter().zip(&roots[1..]) {
            frontier.append(leaf_hash(record));
            assert_eq!(frontier.root().to_string(), *root);
        }
        assert_eq!(fold_perfect(&log.map(leaf_hash)), frontier.root());
    }

    #[test]
    fn a_leaf_tells_every_node_it_completes() {
        let mut frontier = Frontier::default();
        let mut nodes = |count: usize| {
            let mut last = Vec::new();
            for _ in 0..count {
                last = frontier.append(EMPTY_ROOT).iter().map(|node| (node.height, node.index)).collect();
            }
            last
        };
        assert_eq!(nodes(1), [(0, 0)]);
        assert_eq!(nodes(1), [(0, 1), (1, 0)]);
        assert_eq!(nodes(1), [(0, 2)]);
        assert_eq!(nodes(1), [(0, 3), (1, 1), (2, 0)]);
        assert_eq!(nodes(4), [(0, 7), (1, 3), (2, 1), (3, 0)]);
    }

    #[test]
    fn a_frontier_survives_storage_and_a_cut_one_is_refused() {
        let mut frontier = Frontier::default();
        for record in 0..11_u8 {
            let bytes = frontier.to_bytes();
            assert_eq!(Frontier::from_bytes(frontier.size(), &bytes).as_ref(), Ok(&frontier));
            assert!(Frontier::from_bytes(frontier.size(), &[&bytes[..], &[0]].concat()).is_err());
            assert!(Frontier::from_bytes(frontier.size(), &[&bytes[..], &[0; 32]].concat()).is_err());
            frontier.append(leaf_hash(&[record]));
        }
        let error = Frontier::from_bytes(11, &frontier.to_bytes()[1..]).unwrap_err();
        assert_eq!(error.to_string(), "the frontier of 11 records takes 96 bytes, not 95");
    }

    #[test]
    fn a_hash_is_read_back_from_both_its_spellings() {
        let hash = leaf_hash(b"record");
        assert_eq!(hash.to_string().parse(), Ok(hash));
        assert_eq!(hash.to_string().to_uppercase().parse(), Ok(hash));
        assert_eq!(Hash::from_base64(&hash.to_base64()), Ok(hash));
        for text in ["", "ab", &"+a".repeat(32), &"é".repeat(32), &"0".repeat(66), &"0".repeat(63)] {
            assert_eq!(text.parse::<Hash>(), Err(HashError), "{text}");
        }
        let base64 = EMPTY_ROOT.to_base64();
        // No padding, a trailing newline, and trailing bits that the 32 bytes do not have.
        for text in [base64.trim_end_matches('='), &format!("{base64}\n"), &base64.replace("FU=", "FV=")] {
            assert_eq!(Hash::from_base64(text), Err(HashError), "{text}");
        }
    }
}
