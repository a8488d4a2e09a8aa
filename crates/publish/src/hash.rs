//! Hashes: a keyed one for lookups, a stable one for decisions.
//!
//! Uids, names, labels, images and templates come from outside, and whoever chooses
//! them may choose colliding ones. So [`hash_of`] is keyed with two secrets that each
//! process draws from the system's entropy: foldhash has no collisions that hold for
//! all keys, since no operand of its multiplications is known to the submitter.
//! Foldhash does not claim to resist an attacker who observes the hash of each input;
//! nobody does here, because nothing that leaves the process depends on a hash.
//! SipHash would resist that, too, at several times the cost of a uid.
//!
//! Indexes alone use [`hash_of`]: no decision, message or file depends on it, or two
//! processes would differ. Tie-breaking uses [`stable_hash_of`].

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::OnceLock;

use foldhash::SharedSeed;
use foldhash::quality::{FixedState, FoldHasher};

/// The key of this process.
struct Key {
    own: u64,
    shared: SharedSeed,
}

static KEY: OnceLock<Key> = OnceLock::new();

fn key() -> &'static Key {
    KEY.get_or_init(|| {
        // SipHash under keys from the system is the entropy that std offers everywhere.
        let secret = RandomState::new();
        Key { own: secret.hash_one(0), shared: SharedSeed::from_u64(secret.hash_one(1)) }
    })
}

/// Hashes what comes from outside, for maps whose order nobody sees.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keyed;

impl BuildHasher for Keyed {
    type Hasher = FoldHasher<'static>;

    #[inline]
    fn build_hasher(&self) -> FoldHasher<'static> {
        let key = key();
        FoldHasher::with_seed(key.own, &key.shared)
    }
}

/// The hash of what comes from outside: one function in a process, another in each
/// process.
#[inline]
pub fn hash_of<T: Hash + ?Sized>(value: &T) -> u64 {
    Keyed.hash_one(value)
}

/// A hash that is the same in every process of one build: for choices that a replay
/// has to repeat, never for an index.
#[inline]
pub fn stable_hash_of<T: Hash + ?Sized>(value: &T) -> u64 {
    FixedState::with_seed(0x706f_7274_6f6c_616e).hash_one(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_one_in_a_process_and_not_the_stable_one() {
        let here = hash_of("web-0");
        let there = std::thread::spawn(|| hash_of("web-0")).join().expect("it ends");
        assert_eq!(here, there);
        // One in 2^64 processes fails here.
        assert_ne!(here, stable_hash_of("web-0"));
    }
}
