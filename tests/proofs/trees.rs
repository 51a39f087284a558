//! The tree: every root and proof against `ct_merkle` and `tlog_tiles`.

use std::convert::Infallible;
use std::sync::LazyLock;

use colibri::domain::merkle::{
    EMPTY_ROOT, Frontier, Hash, Nodes, ProofError, ProveError, consistency, fold_perfect, inclusion,
    leaf_hash, root_at, verify_consistency, verify_inclusion,
};
use ct_merkle::mem_backed_tree::MemoryBackedTree;
use proptest::prelude::*;
use sha2::Sha256;
use tlog_tiles::tlog;

/// Every size up to here is tried with every index and every earlier size.
const SIZES_MAX: u64 = 300;

/// A log that keeps every node, in the order in which leaves complete them. That is also the order
/// in which `tlog_tiles` keeps them, so that both read the same store.
#[derive(Default)]
struct Log {
    stored: Vec<Hash>,
}

impl Log {
    fn of(size: u64) -> Self {
        let (mut frontier, mut log) = (Frontier::default(), Self::default());
        for index in 0..size {
            let completed = frontier.append(leaf_hash(&record(index)));
            log.stored.extend(completed.iter().map(|node| node.hash));
        }
        log
    }

    fn nodes(&self) -> Lookups<'_> {
        Lookups { log: self, count: 0 }
    }

    /// As `tlog_tiles` computes it.
    fn root(&self, size: u64) -> Hash {
        Hash(tlog::tree_hash(size, self).unwrap().0)
    }
}

fn record(index: u64) -> [u8; 8] {
    index.to_be_bytes()
}

/// A node source that counts what it is asked.
struct Lookups<'a> {
    log: &'a Log,
    count: u32,
}

impl Nodes for Lookups<'_> {
    type Error = Infallible;

    fn node(&mut self, height: u8, index: u64) -> Result<Hash, Infallible> {
        self.count += 1;
        Ok(self.log.stored[usize::try_from(tlog::stored_hash_index(height, index)).unwrap()])
    }
}

impl tlog::HashReader for Log {
    fn read_hashes(&self, indexes: &[u64]) -> Result<Vec<tlog::Hash>, tlog::Error> {
        Ok(indexes.iter().map(|&index| tlog::Hash(self.stored[usize::try_from(index).unwrap()].0)).collect())
    }
}

fn bytes<'a>(hashes: impl IntoIterator<Item = &'a Hash>) -> Vec<u8> {
    hashes.into_iter().flat_map(|hash| hash.0).collect()
}

fn ours(hashes: &[tlog::Hash]) -> Vec<Hash> {
    hashes.iter().map(|hash| Hash(hash.0)).collect()
}

/// SU-11: all roots, inclusion proofs and consistency proofs up to 300 records.
#[test]
fn every_proof_equals_that_of_two_other_implementations() {
    let log = Log::of(SIZES_MAX);
    let roots: Vec<Hash> = (0..=SIZES_MAX).map(|size| log.root(size)).collect();
    let mut other: MemoryBackedTree<Sha256, [u8; 8]> = MemoryBackedTree::new();
    let mut frontier = Frontier::default();
    for (size, &expected) in (0..).zip(&roots) {
        let root = root_at(&mut log.nodes(), size).unwrap();
        assert_eq!(root, expected, "root of {size}");
        assert_eq!(root, frontier.root(), "root of {size}");
        assert_eq!(root.0, other.root().as_bytes().as_slice(), "root of {size}");
        for index in 0..size {
            let proof = inclusion(&mut log.nodes(), index, size).unwrap();
            let place = usize::try_from(index).unwrap();
            assert_eq!(bytes(&proof), other.prove_inclusion(place).as_bytes(), "{index} of {size}");
            assert_eq!(proof, ours(&tlog::prove_record(size, index, &log).unwrap()), "{index} of {size}");
            assert_eq!(verify_inclusion(leaf_hash(&record(index)), index, size, &proof, root), Ok(()));
        }
        for (old, &old_root) in (1..=size).zip(&roots[1..]) {
            let proof = consistency(&mut log.nodes(), old, size).unwrap();
            let added = usize::try_from(size - old).unwrap();
            assert_eq!(proof, ours(&tlog::prove_tree(size, old, &log).unwrap()), "{old} to {size}");
            if added > 0 {
                assert_eq!(bytes(&proof), other.prove_consistency(added).as_bytes(), "{old} to {size}");
            }
            assert_eq!(verify_consistency(old, old_root, size, root, &proof), Ok(()), "{old} to {size}");
        }
        other.push(record(size));
        frontier.append(leaf_hash(&record(size)));
    }
}

/// Large enough for shapes that 300 records do not have, small enough to hash in a second.
static MILLION: LazyLock<Log> = LazyLock::new(|| Log::of(1_000_000));

proptest! {
    /// SU-11: any two sizes and any record of a large log, with the number of lookups bounded.
    #[test]
    fn proofs_of_a_large_log_hold_and_cost_little(new in 1_u64..=1_000_000, old: u64, index: u64) {
        let (log, old, index) = (&*MILLION, old % new + 1, index % new);
        let lookups_max = 2 * (u64::BITS - new.leading_zeros());
        let leaf = leaf_hash(&record(index));

        let mut nodes = log.nodes();
        prop_assert_eq!(root_at(&mut nodes, new), Ok(log.root(new)));
        prop_assert_eq!(nodes.count, new.count_ones());

        let mut nodes = log.nodes();
        let proof = inclusion(&mut nodes, index, new).unwrap();
        prop_assert!(nodes.count <= lookups_max, "{} lookups", nodes.count);
        prop_assert_eq!(&proof, &ours(&tlog::prove_record(new, index, log).unwrap()));
        prop_assert_eq!(verify_inclusion(leaf, index, new, &proof, log.root(new)), Ok(()));
        let root = ct_merkle::RootHash::<Sha256>::new(log.root(new).0.into(), new);
        let theirs = ct_merkle::InclusionProof::from_bytes(bytes(&proof));
        prop_assert!(root.verify_inclusion(&record(index), index, &theirs).is_ok());

        let mut nodes = log.nodes();
        let proof = consistency(&mut nodes, old, new).unwrap();
        prop_assert!(nodes.count <= lookups_max, "{} lookups", nodes.count);
        prop_assert_eq!(&proof, &ours(&tlog::prove_tree(new, old, log).unwrap()));
        prop_assert_eq!(verify_consistency(old, log.root(old), new, log.root(new), &proof), Ok(()));
    }
}

static LOG: LazyLock<Log> = LazyLock::new(|| Log::of(SIZES_MAX));

/// One way to change a list of hashes.
#[derive(Clone, Debug)]
enum Change {
    Flip { place: prop::sample::Index, byte: usize, bit: u8 },
    Drop(prop::sample::Index),
    Add(prop::sample::Index, [u8; 32]),
    Repeat(prop::sample::Index),
    Swap(prop::sample::Index, prop::sample::Index),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (any::<prop::sample::Index>(), 0..32_usize, 0..8_u8).prop_map(|(place, byte, bit)| Change::Flip {
            place,
            byte,
            bit
        }),
        any::<prop::sample::Index>().prop_map(Change::Drop),
        (any::<prop::sample::Index>(), any::<[u8; 32]>()).prop_map(|(place, hash)| Change::Add(place, hash)),
        any::<prop::sample::Index>().prop_map(Change::Repeat),
        (any::<prop::sample::Index>(), any::<prop::sample::Index>()).prop_map(|(a, b)| Change::Swap(a, b)),
    ]
}

impl Change {
    fn of(&self, proof: &[Hash]) -> Vec<Hash> {
        let (mut proof, count) = (proof.to_vec(), proof.len());
        match self {
            Self::Add(place, hash) => proof.insert(place.index(count + 1), Hash(*hash)),
            _ if proof.is_empty() => proof.push(EMPTY_ROOT),
            Self::Flip { place, byte, bit } => place.get_mut(&mut proof).0[*byte] ^= 1 << bit,
            Self::Drop(place) => drop(proof.remove(place.index(count))),
            Self::Repeat(place) => proof.push(*place.get(&proof)),
            Self::Swap(a, b) => proof.swap(a.index(count), b.index(count)),
        }
        proof
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// SU-11: an inclusion proof that was changed, or is told to be about something else.
    #[test]
    fn a_changed_inclusion_proof_is_refused(
        size in 1..=SIZES_MAX, index: u64, change in change(), elsewhere: u64, other_size in 1..=SIZES_MAX,
    ) {
        let (log, index) = (&*LOG, index % size);
        let (leaf, root) = (leaf_hash(&record(index)), log.root(size));
        let proof = inclusion(&mut log.nodes(), index, size).unwrap();

        let changed = change.of(&proof);
        prop_assume!(changed != proof);
        prop_assert!(verify_inclusion(leaf, index, size, &changed, root).is_err());

        for elsewhere in [elsewhere, elsewhere % size, index ^ 1, index + 1] {
            if elsewhere != index {
                prop_assert!(verify_inclusion(leaf, elsewhere, size, &proof, root).is_err());
                prop_assert!(verify_inclusion(leaf_hash(&record(elsewhere)), index, size, &proof, root).is_err());
            }
        }
        if other_size != size {
            prop_assert!(verify_inclusion(leaf, index, other_size, &proof, log.root(other_size)).is_err());
            prop_assert!(verify_inclusion(leaf, index, size, &proof, log.root(other_size)).is_err());
        }
    }

    /// SU-11: a consistency proof that was changed, or is told to be about other sizes or roots.
    #[test]
    fn a_changed_consistency_proof_is_refused(
        new in 1..=SIZES_MAX, old: u64, change in change(), other in 0..=SIZES_MAX,
    ) {
        let (log, old) = (&*LOG, old % new + 1);
        let (old_root, new_root) = (log.root(old), log.root(new));
        let proof = consistency(&mut log.nodes(), old, new).unwrap();

        let changed = change.of(&proof);
        prop_assume!(changed != proof);
        prop_assert!(verify_consistency(old, old_root, new, new_root, &changed).is_err());

        let wrong = log.root(other);
        if other != old && other != new {
            prop_assert!(verify_consistency(old, wrong, new, new_root, &proof).is_err());
            prop_assert!(verify_consistency(old, old_root, new, wrong, &proof).is_err());
            // The empty log is the beginning of every log, with the empty proof.
            if other > 0 || !proof.is_empty() {
                prop_assert!(verify_consistency(other, wrong, new, new_root, &proof).is_err());
            }
            prop_assert!(verify_consistency(old, old_root, other, wrong, &proof).is_err());
        }
        if old != new {
            prop_assert!(verify_consistency(new, new_root, old, old_root, &proof).is_err());
        }
    }
}

/// SU-11: what is wrong with a proof is said, not only that something is.
#[test]
fn a_refusal_says_what_is_wrong() {
    let log = &*LOG;
    let (leaf, root) = (leaf_hash(&record(5)), log.root(7));
    let proof = inclusion(&mut log.nodes(), 5, 7).unwrap();
    let include = |index, size, proof: &[Hash]| verify_inclusion(leaf, index, size, proof, root);
    assert_eq!(include(7, 7, &proof), Err(ProofError::NoSuchRecord { index: 7, size: 7 }));
    assert_eq!(include(0, 0, &proof), Err(ProofError::NoSuchRecord { index: 0, size: 0 }));
    assert_eq!(include(5, 7, &proof[1..]), Err(ProofError::TooShort { found: 2 }));
    assert_eq!(include(5, 7, &[&proof[..], &proof[..1]].concat()), Err(ProofError::TooLong { found: 4 }));
    assert!(matches!(include(4, 7, &proof), Err(ProofError::WrongRoot { size: 7, .. })));

    let extends =
        |old, old_root, new, proof: &[Hash]| verify_consistency(old, old_root, new, log.root(new), proof);
    let proof = consistency(&mut log.nodes(), 3, 7).unwrap();
    assert_eq!(extends(7, root, 3, &proof), Err(ProofError::Reversed { old: 7, new: 3 }));
    assert_eq!(extends(3, log.root(3), 7, &[]), Err(ProofError::TooShort { found: 0 }));
    assert_eq!(extends(4, log.root(4), 7, &[]), Err(ProofError::TooShort { found: 0 }));
    assert_eq!(extends(7, root, 7, &proof), Err(ProofError::TooLong { found: 4 }));
    assert_eq!(extends(0, EMPTY_ROOT, 7, &[]), Ok(()));
    assert_eq!(extends(0, EMPTY_ROOT, 0, &[]), Ok(()));
    assert!(matches!(extends(0, root, 7, &[]), Err(ProofError::WrongRoot { size: 0, .. })));
    assert!(matches!(extends(3, root, 7, &proof), Err(ProofError::WrongRoot { size: 3, .. })));
    assert!(verify_consistency(0, EMPTY_ROOT, 0, root, &[]).is_err());

    let nodes = &mut log.nodes();
    assert_eq!(inclusion(nodes, 7, 7), Err(ProveError::NoSuchRecord { index: 7, size: 7 }));
    assert_eq!(consistency(nodes, 8, 7), Err(ProveError::Reversed { old: 8, new: 7 }));
    assert_eq!(consistency(nodes, 0, 7), Ok(vec![]));
}

/// SU-4: a store that keeps every eighth level only can still answer for the levels between.
#[test]
fn levels_between_the_stored_ones_fold_from_below() {
    let log = &*LOG;
    let leaves: Vec<Hash> = (0..256).map(|index| leaf_hash(&record(index))).collect();
    for height in 0..=8_u8 {
        for (index, chunk) in leaves.chunks(1 << height).enumerate() {
            assert_eq!(Ok(fold_perfect(chunk)), log.nodes().node(height, index as u64));
        }
    }
    assert_eq!(fold_perfect(&leaves), log.root(256));
}
