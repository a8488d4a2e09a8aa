//! Kernels over a chunk's columns, each compiled for several sets of CPU
//! features and picked as the program runs.
//!
//! A kernel is plain code over arrays of [`LANES`], written so that compilers
//! turn it into vector instructions; its variants differ in nothing but the
//! instructions they may use. All give the same answers to the last bit: no
//! kernel lets the compiler reorder or contract what is computed in doubles.
#![allow(unsafe_code)]
#![expect(
    clippy::needless_range_loop,
    reason = "one counter over several arrays of one length is what compilers make vectors of"
)]

use crate::snapshot::{Column, LANES};

/// Numbers from 0 up to this are doubles exactly, and so is a hundredfold.
const EXACT: i64 = 1 << 46;

/// Adding this to a double from 0 up to 2^51 leaves its integer in the low bits.
const MAGIC: f64 = (1_u64 << 52) as f64;

/// Which instructions a variant may use.
mod isa {
    /// What every CPU of the target has.
    pub(super) const PLAIN: u8 = 0;
    /// AVX2 and FMA.
    #[cfg(target_arch = "x86_64")]
    pub(super) const AVX2: u8 = 1;
    /// AVX-512 F, BW, DQ and VL, and FMA.
    #[cfg(target_arch = "x86_64")]
    pub(super) const AVX512: u8 = 2;

    /// Whether rounding down is one instruction, and so are a product and a sum
    /// together, rounded once.
    pub(super) const fn is_modern(isa: u8) -> bool {
        isa != PLAIN || cfg!(target_arch = "aarch64")
    }
}

/// Defines a function that runs its body in the best variant that the CPU has; the
/// body knows it as `ISA`.
macro_rules! dispatched {
    ($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $out:ty)? $body:block) => {
        $(#[$doc])*
        #[inline]
        pub(crate) fn $name($($arg: $type),*) $(-> $out)? {
            #[inline(always)]
            fn body<const ISA: u8>($($arg: $type),*) $(-> $out)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma")]
                fn avx512($($arg: $type),*) $(-> $out)? {
                    body::<{ isa::AVX512 }>($($arg),*)
                }
                #[target_feature(enable = "avx2,fma")]
                fn avx2($($arg: $type),*) $(-> $out)? {
                    body::<{ isa::AVX2 }>($($arg),*)
                }
                // The answers of detection are kept by std: a load and a test each.
                if is_x86_feature_detected!("fma") {
                    if is_x86_feature_detected!("avx512bw")
                        && is_x86_feature_detected!("avx512dq")
                        && is_x86_feature_detected!("avx512vl")
                    {
                        // SAFETY: the CPU has the features; avx512bw implies avx512f.
                        return unsafe { avx512($($arg),*) };
                    }
                    if is_x86_feature_detected!("avx2") {
                        // SAFETY: the CPU has the features.
                        return unsafe { avx2($($arg),*) };
                    }
                }
            }
            body::<{ isa::PLAIN }>($($arg),*)
        }
    };
}

/// One bit a lane, of bytes that are 0 or 1.
#[inline(always)]
fn pack<const ISA: u8>(bytes: &[u8; LANES]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{
            _mm256_loadu_si256, _mm256_movemask_epi8, _mm256_slli_epi16, _mm512_loadu_si512,
            _mm512_test_epi8_mask,
        };
        if ISA == isa::AVX512 {
            // SAFETY: the variant runs where the CPU has AVX-512BW; 64 bytes are read.
            return unsafe {
                let bytes = _mm512_loadu_si512(bytes.as_ptr().cast());
                _mm512_test_epi8_mask(bytes, bytes)
            };
        }
        if ISA == isa::AVX2 {
            let half = |at: usize| {
                // SAFETY: the variant runs where the CPU has AVX2; 32 of 64 bytes are
                // read, from the first or from the middle on.
                let mask = unsafe {
                    let bytes = _mm256_loadu_si256(bytes.as_ptr().add(at).cast());
                    _mm256_movemask_epi8(_mm256_slli_epi16::<7>(bytes))
                };
                u64::from(mask.cast_unsigned())
            };
            return half(0) | half(LANES / 2) << (LANES / 2);
        }
    }
    let mut mask = 0;
    for at in 0..LANES / 8 {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at * 8..at * 8 + 8]);
        // Each byte's bit moves to a place of its own in the highest byte.
        let bits = u64::from_le_bytes(word).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        mask |= bits << (at * 8);
    }
    mask
}

/// A number below 2^52, as a double.
#[inline(always)]
fn double(number: i64) -> f64 {
    f64::from_bits(number as u64 | MAGIC.to_bits()) - MAGIC
}

/// A whole double from 0 up to 2^51, as a number.
#[inline(always)]
fn number(whole: f64) -> i64 {
    ((whole + MAGIC).to_bits() & ((1 << 52) - 1)) as i64
}

/// The whole part of a double from 0 up to 2^51.
#[inline(always)]
fn floor<const ISA: u8>(value: f64) -> f64 {
    if isa::is_modern(ISA) {
        return value.floor();
    }
    let nearest = (value + MAGIC) - MAGIC;
    nearest - if nearest > value { 1.0 } else { 0.0 }
}

dispatched! {
    /// The lanes in which `request` is at most what is left; a difference of
    /// more than 64 bits is the largest there is.
    fn fits(request: i64, allocatable: &Column<i64>, requested: &Column<i64>) -> u64 {
        let mut fits = [0; LANES];
        let mut seen = 0;
        for at in 0..LANES {
            seen |= allocatable[at] | requested[at];
            fits[at] = u8::from(request <= allocatable[at].wrapping_sub(requested[at]));
        }
        if seen < 0 {
            // Something is negative, and a difference may not fit in 64 bits.
            for at in 0..LANES {
                fits[at] = u8::from(request <= allocatable[at].saturating_sub(requested[at]));
            }
        }
        pack::<ISA>(&fits)
    }
}

dispatched! {
    /// The lanes with a free pod slot.
    fn has_place(allowed: &Column<i64>, pods: &Column<u32>) -> u64 {
        let mut has = [0; LANES];
        for at in 0..LANES {
            has[at] = u8::from(i64::from(pods[at]) < allowed[at]);
        }
        pack::<ISA>(&has)
    }
}

dispatched! {
    /// The lanes whose number is this one.
    fn same_number(numbers: &Column<u32>, number: u32) -> u64 {
        let mut same = [0; LANES];
        for at in 0..LANES {
            same[at] = u8::from(numbers[at] == number);
        }
        pack::<ISA>(&same)
    }
}

dispatched! {
    /// Adds a plugin's scores to the totals: the lanes whose score is not from 0
    /// to 100.
    fn add_weighted(totals: &mut Column<i64>, scores: &Column<i64>, weight: i64) -> u64 {
        let mut leaves = [0; LANES];
        for at in 0..LANES {
            totals[at] = totals[at].wrapping_add(scores[at].wrapping_mul(weight));
            leaves[at] = u8::from(scores[at] as u64 > 100);
        }
        pack::<ISA>(&leaves)
    }
}

dispatched! {
    /// The largest total of the lanes in `mask`, `i64::MIN` where there is
    /// none.
    fn largest(totals: &Column<i64>, mask: u64) -> i64 {
        let mut largest = i64::MIN;
        for at in 0..LANES {
            let total = if mask >> at & 1 == 1 { totals[at] } else { i64::MIN };
            largest = largest.max(total);
        }
        largest
    }
}

dispatched! {
    /// The lanes with this total.
    fn equal(totals: &Column<i64>, total: i64) -> u64 {
        let mut equal = [0; LANES];
        for at in 0..LANES {
            equal[at] = u8::from(totals[at] == total);
        }
        pack::<ISA>(&equal)
    }
}

/// One resource of a chunk, as the scores see it.
#[derive(Clone, Copy)]
pub(crate) struct Amounts<'a> {
    /// What the pod adds.
    pub(crate) pod: i64,
    /// What is taken.
    pub(crate) requested: &'a Column<i64>,
    /// What there is.
    pub(crate) allocatable: &'a Column<i64>,
    /// One over what there is; anything where that is 0.
    pub(crate) reciprocal: &'a Column<f64>,
}

/// `part / whole`, rounded as division rounds it, for whole numbers below
/// 2^53 and, `whole`, from 1 up to [`EXACT`], with the double nearest to
/// `1 / whole`.
///
/// Where rounding down is one instruction, without dividing. The product with the reciprocal is off by
/// at most one and a half units in its last place; its remainder is a whole
/// number of those units below 2^53 of them, so exact; and the correction by it
/// leaves, before its one rounding, an error of two units times 2^-53. A quotient
/// by a number below 2^46 is no nearer than 2^-47 units to where rounding turns,
/// so what is rounded is the nearest double (after Markstein).
#[inline(always)]
fn quotient<const ISA: u8>(part: f64, whole: f64, reciprocal: f64) -> f64 {
    if !isa::is_modern(ISA) {
        return part / whole;
    }
    let quotient = part * reciprocal;
    let rest = whole.mul_add(-quotient, part);
    rest.mul_add(reciprocal, quotient)
}

dispatched! {
    /// LeastAllocated over cpu and memory, weight 1 each: the mean of the free
    /// shares in percent, each rounded down. `false`, and nothing of use in
    /// `scores`, where a number is too large for this kernel.
    fn least_allocated(cpu: Amounts<'_>, memory: Amounts<'_>, scores: &mut Column<i64>) -> bool {
        let mut seen = 0;
        let mut share = |of: &Amounts<'_>, at: usize| {
            let whole = of.allocatable[at];
            let used = of.requested[at].wrapping_add(of.pod);
            seen |= whole | used;
            let (whole, used) = (double(whole), double(used));
            let part = whole - used;
            // The nearest double to a quotient below a whole number up to 100
            // is below it too: they are a unit in the last place apart.
            let hundredfold = part.max(0.0) * 100.0;
            let free = floor::<ISA>(quotient::<ISA>(hundredfold, whole, of.reciprocal[at]));
            let counts = whole > 0.0;
            (if counts & (part > 0.0) { free } else { 0.0 }, counts)
        };
        for at in 0..LANES {
            let (cpu, memory) = (share(&cpu, at), share(&memory, at));
            let sum = cpu.0 + memory.0;
            let mean = if cpu.1 & memory.1 { floor::<ISA>(sum * 0.5) } else { sum };
            scores[at] = number(mean);
        }
        // A negative number has its highest bit set.
        (seen as u64) < EXACT as u64
    }
}

/// How balanced two used shares are, in percent, rounded down.
#[inline(always)]
fn balance<const ISA: u8>(cpu: f64, memory: f64) -> f64 {
    let deviation = ((cpu - memory) * 0.5).abs();
    floor::<ISA>((1.0 - deviation) * 100.0)
}

dispatched! {
    /// BalancedAllocation over cpu and memory: 50, and up to 25 more or less as
    /// the pod brings the used shares nearer to each other or apart, from how
    /// balanced they are `now`, in percent. `false` as in [`least_allocated`].
    fn balanced_allocation(
        cpu: Amounts<'_>,
        memory: Amounts<'_>,
        now: &Column<u8>,
        scores: &mut Column<i64>,
    ) -> bool {
        let mut seen = 0;
        for at in 0..LANES {
            let mut share = |of: &Amounts<'_>| {
                let (used, whole) = (of.requested[at].wrapping_add(of.pod), of.allocatable[at]);
                seen |= used | whole;
                let share = quotient::<ISA>(double(used), double(whole), of.reciprocal[at]);
                // Not `f64::min`: where nothing is allocatable the share may be
                // no number, and is not looked at.
                if share > 1.0 { 1.0 } else { share }
            };
            let with = balance::<ISA>(share(&cpu), share(&memory));
            let there = (cpu.allocatable[at] != 0) & (memory.allocatable[at] != 0);
            let with = if there { with } else { 100.0 };
            // 50 + (50 + with - now) / 2, and nothing here is negative.
            scores[at] = (number(with) + 150 - i64::from(now[at])) / 2;
        }
        (seen as u64) < EXACT as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    dispatched! {
        fn packed(bytes: &[u8; LANES]) -> u64 {
            pack::<ISA>(bytes)
        }
    }

    #[test]
    fn masks_have_a_bit_a_lane() {
        let mut bytes = [0; LANES];
        for at in [0, 1, 7, 8, 31, 62, 63] {
            bytes[at] = 1;
        }
        let mask = 1 << 63 | 1 << 62 | 1 << 31 | 0b1_1000_0011;
        assert_eq!(pack::<{ isa::PLAIN }>(&bytes), mask);
        assert_eq!(packed(&bytes), mask);
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            assert_eq!(pack::<{ isa::AVX2 }>(&bytes), mask);
        }
    }

    #[test]
    fn whole_parts_are_exact() {
        for value in [0.0, 0.5, 1.0, 1.5, 2.5, 99.999_999_999, 1e15, 1e15 + 0.5] {
            assert_eq!(floor::<{ isa::PLAIN }>(value), value.floor());
            assert_eq!(floor::<{ isa::AVX2 }>(value), value.floor());
            assert_eq!(number(value.floor()), value.floor() as i64);
            assert_eq!(double(value as i64), value.floor());
        }
    }

    #[test]
    fn room_is_counted_without_overflow() {
        let mut allocatable = [10; LANES];
        let mut requested = [5; LANES];
        (allocatable[3], requested[3]) = (i64::MAX, -1);
        (allocatable[4], requested[4]) = (i64::MIN, 1);
        requested[5] = 6;
        assert_eq!(fits(5, &allocatable, &requested), !(1 << 4 | 1 << 5));
    }
}
