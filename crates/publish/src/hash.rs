//! Hashes: a keyed one for lookups, a stable one for decisions.
//!
//! Uids, names, labels, images and templates come from outside, and their author may choose values that collide. So
//! [`hash_of`] is keyed with two secrets that each process draws from the system's entropy. Foldhash has no collisions
//! that hold for all keys, since the author of a value knows no operand of its multiplications. Foldhash does not claim
//! to resist an attacker who observes the hash of each input. No attacker can observe that here, because nothing that
//! leaves the process depends on a hash. SipHash would resist such an attacker too, at several times the cost for a
//! uid.
//!
//! Use [`hash_of`] only for indexes: a decision, message or file that depended on it would differ between processes.
//! Break ties with [`stable_hash_of`].

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::OnceLock;

use foldhash::SharedSeed;
use foldhash::quality::{FixedState, FoldHasher};

/// This process's key.
struct Key {
    own: u64,
    shared: SharedSeed,
}

static KEY: OnceLock<Key> = OnceLock::new();

fn key() -> &'static Key {
    KEY.get_or_init(|| {
        // SipHash with keys from the system is the entropy source that std offers on every platform.
        let secret = RandomState::new();
        Key { own: secret.hash_one(0), shared: SharedSeed::from_u64(secret.hash_one(1)) }
    })
}

/// Hashes untrusted data, for maps whose iteration order is never observed.
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

/// Hashes untrusted data. The function is the same throughout a process and differs between processes.
#[inline]
pub fn hash_of<T: Hash + ?Sized>(value: &T) -> u64 {
    Keyed.hash_one(value)
}

/// A hash that is the same in every process of one build. For choices that a replay must repeat, never for an index.
#[inline]
pub fn stable_hash_of<T: Hash + ?Sized>(value: &T) -> u64 {
    FixedState::with_seed(0x706f_7274_6f6c_616e).hash_one(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_per_process_and_not_the_stable_one() {
        let here = hash_of("web-0");
        let there = std::thread::spawn(|| hash_of("web-0")).join().expect("it ends");
        assert_eq!(here, there);
        // Fails in one process out of 2^64.
        assert_ne!(here, stable_hash_of("web-0"));
    }
}
