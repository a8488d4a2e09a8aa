//! A seeded source of random numbers: SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number
//! Generators", 2014).
//!
//! The sequence of a seed never changes, so a seed that reveals a failure always reproduces it.

/// A sequence of random numbers determined by its seed.
///
/// [`below`](Random::below) takes a remainder, whose bias is at most `n` in 2⁶⁴.
///
/// ```
/// use portolan_testkit::random::Random;
///
/// let (mut one, mut other) = (Random::new(7), Random::new(7));
/// assert_eq!(one.below(1_000), other.below(1_000));
/// ```
#[derive(Clone, Debug)]
pub struct Random(u64);

/// The distance between consecutive states: 2⁶⁴ divided by the golden ratio.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// Creates the sequence of `seed`.
    pub const fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns the next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns the `n`-th number of the sequence of `seed`, counted from 1. O(1).
    pub fn nth(seed: u64, n: u64) -> u64 {
        Random(seed.wrapping_add(n.wrapping_sub(1).wrapping_mul(STEP))).next_u64()
    }

    /// Returns the next number modulo `n`.
    ///
    /// # Panics
    ///
    /// Panics if `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next_u64() % n
    }

    /// Returns an index into a slice of this length.
    ///
    /// # Panics
    ///
    /// Panics if `length` is 0.
    pub fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// Returns `true` once in `n` calls on average.
    ///
    /// # Panics
    ///
    /// Panics if `n` is 0.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_the_reference_implementation() {
        // The first outputs of Vigna's splitmix64.c for the seed 1234567.
        let mut random = Random::new(1_234_567);
        for expected in [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ] {
            assert_eq!(random.next_u64(), expected);
        }
    }

    #[test]
    fn nth_equals_the_nth_call_of_next() {
        let mut random = Random::new(u64::MAX - 3);
        for n in 1..50 {
            assert_eq!(Random::nth(u64::MAX - 3, n), random.next_u64());
        }
    }

    #[test]
    fn each_draw_consumes_one_number() {
        let (mut random, mut plain) = (Random::new(3), Random::new(3));
        for n in 1..100 {
            assert_eq!(random.below(n), plain.next_u64() % n);
            assert_eq!(random.index(n as usize), (plain.next_u64() % n) as usize);
            assert_eq!(random.one_in(n), plain.next_u64().is_multiple_of(n));
        }
    }
}
