//! A seeded source of random numbers: xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift
//! generators, scrambled", 2016).
//!
//! The sequence of a seed never changes: `--seed` names the same workload in every version, so that decision hashes of
//! two versions can be compared.

use portolan::model::Uid;

/// A sequence of random numbers determined by its seed.
pub struct Random(u64);

impl Random {
    /// Creates the sequence of a seed.
    pub fn new(seed: u64) -> Random {
        // Small seeds must not give similar sequences, and the state 0 would repeat forever.
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns the next number.
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns the next number modulo `n`, which must not be 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// Returns a random uid, from the next two numbers.
    pub fn uid(&mut self) -> Uid {
        let mut uid = [0; 16];
        uid[..8].copy_from_slice(&self.next().to_le_bytes());
        uid[8..].copy_from_slice(&self.next().to_le_bytes());
        Uid::from_bytes(uid)
    }
}
