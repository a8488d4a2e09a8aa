//! A seeded source of random numbers for faults and generated names.

/// SplitMix64's output function: neighboring inputs give unrelated outputs.
pub(crate) fn mix(input: u64) -> u64 {
    let mut z = input.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The `n`th number of the stream `seed`, at least 0 and less than 1.
pub(crate) fn unit(seed: u64, n: u64) -> f64 {
    (mix(seed ^ mix(n)) >> 11) as f64 / (1u64 << 53) as f64
}
