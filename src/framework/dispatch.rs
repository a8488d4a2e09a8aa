//! Code that uses particular instructions of the CPU: kernels over a chunk's columns, and [`prefetch`]. Each kernel is
//! compiled for several sets of CPU features, and the variant is chosen at run time.
//!
//! A kernel is plain code over arrays of [`LANES`] elements, written so that compilers vectorize it. Its variants
//! differ only in the instructions they may use, and all give bit-identical results: no kernel lets the compiler
//! reorder or contract floating-point operations.
#![allow(unsafe_code)]
#![expect(
    clippy::needless_range_loop,
    reason = "compilers vectorize one counter over several arrays of the same length"
)]

use crate::model::Generation;
use crate::snapshot::{Chunk, Column, LANES, lanes};

/// Integers from 0 to this bound, and a hundred times them, are exactly representable as doubles.
const EXACT: i64 = 1 << 46;

/// Adding this to a double from 0 to 2^51 puts its integer part into the low bits.
const MAGIC: f64 = (1_u64 << 52) as f64;

/// The instructions that a variant may use.
mod isa {
    /// The baseline of the target.
    pub(super) const PLAIN: u8 = 0;
    /// AVX2 and FMA.
    #[cfg(target_arch = "x86_64")]
    pub(super) const AVX2: u8 = 1;
    /// AVX-512 F, BW, DQ and VL, and FMA.
    #[cfg(target_arch = "x86_64")]
    pub(super) const AVX512: u8 = 2;

    /// Returns whether `floor` and a fused multiply-add are single instructions.
    pub(super) const fn is_modern(isa: u8) -> bool {
        isa != PLAIN || cfg!(target_arch = "aarch64")
    }
}

/// Defines a function that runs its body in the best variant that the CPU supports. The body sees the variant as the
/// constant `ISA`.
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
                // The standard library caches the detection's results: each check costs a load and a test.
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

/// Packs bytes that are 0 or 1 into a mask of one bit per lane.
#[inline(always)]
fn pack<const ISA: u8>(bytes: &[u8; LANES]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{
            _mm256_loadu_si256, _mm256_movemask_epi8, _mm256_slli_epi16, _mm512_loadu_si512,
            _mm512_test_epi8_mask,
        };
        if ISA == isa::AVX512 {
            // SAFETY: this variant only runs if the CPU has AVX-512BW, and 64 bytes are read.
            return unsafe {
                let bytes = _mm512_loadu_si512(bytes.as_ptr().cast());
                _mm512_test_epi8_mask(bytes, bytes)
            };
        }
        if ISA == isa::AVX2 {
            let half = |at: usize| {
                // SAFETY: this variant only runs if the CPU has AVX2, and 32 of the 64 bytes are read, starting at the
                // first byte or at the middle.
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
        // The multiplication moves each byte's bit to its own position in the highest byte.
        let bits = u64::from_le_bytes(word).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        mask |= bits << (at * 8);
    }
    mask
}

/// Converts an integer from 0 to 2^52 - 1 to a double.
#[inline(always)]
fn double(number: i64) -> f64 {
    f64::from_bits(number as u64 | MAGIC.to_bits()) - MAGIC
}

/// Converts an integral double from 0 to 2^51 to an integer.
#[inline(always)]
fn number(whole: f64) -> i64 {
    ((whole + MAGIC).to_bits() & ((1 << 52) - 1)) as i64
}

/// Returns the integer part of a double from 0 to 2^51.
#[inline(always)]
fn floor<const ISA: u8>(value: f64) -> f64 {
    if isa::is_modern(ISA) {
        return value.floor();
    }
    let nearest = (value + MAGIC) - MAGIC;
    nearest - if nearest > value { 1.0 } else { 0.0 }
}

/// Begins to load a value into the core's second-level cache, on x86-64. The last of its cache lines may be left out.
#[inline]
pub(crate) fn prefetch<T>(value: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for at in (0..size_of::<T>()).step_by(64) {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        let line = std::ptr::from_ref(value).cast::<i8>().wrapping_add(at);
        // SAFETY: the instruction is part of SSE, which every x86-64 CPU has. It does not access memory as far as the
        // program can tell, so any address is allowed.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = value;
}

dispatched! {
    /// Returns the lanes in which `request` is at most the free amount. The difference saturates if it does not fit in
    /// 64 bits.
    fn fits(request: i64, allocatable: &Column<i64>, requested: &Column<i64>) -> u64 {
        let mut fits = [0; LANES];
        let mut seen = 0;
        for at in 0..LANES {
            seen |= allocatable[at] | requested[at];
            fits[at] = u8::from(request <= allocatable[at].wrapping_sub(requested[at]));
        }
        if seen < 0 {
            // A number is negative, so a difference may overflow.
            for at in 0..LANES {
                fits[at] = u8::from(request <= allocatable[at].saturating_sub(requested[at]));
            }
        }
        pack::<ISA>(&fits)
    }
}

dispatched! {
    /// Returns the lanes with a free pod slot.
    fn has_place(allowed: &Column<i64>, pods: &Column<u32>) -> u64 {
        let mut has = [0; LANES];
        for at in 0..LANES {
            has[at] = u8::from(i64::from(pods[at]) < allowed[at]);
        }
        pack::<ISA>(&has)
    }
}

dispatched! {
    /// Returns the lanes that were touched after `since`.
    fn newer(touched: &Column<Generation>, since: Generation) -> u64 {
        let mut newer = [0; LANES];
        for at in 0..LANES {
            newer[at] = u8::from(touched[at].0 > since.0);
        }
        pack::<ISA>(&newer)
    }
}

dispatched! {
    /// Returns the lanes whose number equals `number`.
    fn same_number(numbers: &Column<u32>, number: u32) -> u64 {
        let mut same = [0; LANES];
        for at in 0..LANES {
            same[at] = u8::from(numbers[at] == number);
        }
        pack::<ISA>(&same)
    }
}

dispatched! {
    /// Adds a plugin's weighted scores to the totals, and returns whether all scores are from 0 to 100.
    fn add_weighted(totals: &mut [i64], scores: &[i64], weight: i64) -> bool {
        let mut out_of_range = 0;
        for (total, score) in totals.iter_mut().zip(scores) {
            *total = total.wrapping_add(score.wrapping_mul(weight));
            // Negative if the score is negative or above 100.
            out_of_range |= *score | 100_i64.wrapping_sub(*score);
        }
        out_of_range >= 0
    }
}

dispatched! {
    /// Returns the smallest and the largest value: `i64::MAX` and `i64::MIN` if there is none.
    fn extremes(values: &[i64]) -> (i64, i64) {
        values.iter().fold((i64::MAX, i64::MIN), |(min, max), value| {
            (min.min(*value), max.max(*value))
        })
    }
}

dispatched! {
    /// Returns how many values equal `value`.
    fn count(values: &[i64], value: i64) -> usize {
        values.iter().map(|other| usize::from(*other == value)).sum()
    }
}

dispatched! {
    /// Returns how many values at the start equal `value`.
    fn equal_prefix(values: &[i64], value: i64) -> usize {
        let (blocks, _) = values.as_chunks::<8>();
        let is_equal = |block: &&[i64; 8]| {
            block.iter().fold(0, |different, other| different | (other ^ value)) == 0
        };
        let start = 8 * blocks.iter().take_while(is_equal).count();
        start + values[start..].iter().take_while(|other| **other == value).count()
    }
}

dispatched! {
    /// Returns the largest total among the lanes of `mask`, or `i64::MIN` if `mask` is empty.
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
    /// Returns the lanes whose total equals `total`.
    fn equal(totals: &Column<i64>, total: i64) -> u64 {
        let mut equal = [0; LANES];
        for at in 0..LANES {
            equal[at] = u8::from(totals[at] == total);
        }
        pack::<ISA>(&equal)
    }
}

/// One resource of a chunk's guaranteed pods, as filters and scores read it.
#[derive(Clone, Copy)]
pub(crate) struct Usage<'a> {
    pub(crate) allocatable: &'a Column<i64>,
    /// The reciprocal of the allocatable amount. Unspecified if that is 0.
    pub(crate) reciprocal: &'a Column<f64>,
    pub(crate) requested: &'a Column<i64>,
    /// The requested amount, with Kubernetes' default for containers that request none.
    pub(crate) non_zero: &'a Column<i64>,
}

impl<'a> Usage<'a> {
    /// Returns the columns of cpu and memory.
    pub(crate) fn of(chunk: &'a Chunk) -> [Usage<'a>; 2] {
        let (reciprocal_cpu, reciprocal_memory) = chunk.reciprocals();
        let cpu = Usage {
            allocatable: chunk.allocatable_cpu(),
            reciprocal: reciprocal_cpu,
            requested: chunk.requested_cpu(),
            non_zero: chunk.non_zero_cpu(),
        };
        let memory = Usage {
            allocatable: chunk.allocatable_memory(),
            reciprocal: reciprocal_memory,
            requested: chunk.requested_memory(),
            non_zero: chunk.non_zero_memory(),
        };
        [cpu, memory]
    }
}

/// A plugin's score of cpu and memory for one pod: what the pod requests, and the weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) cpu: i64,
    pub(crate) memory: i64,
    pub(crate) weight: i64,
}

/// Returns `part / whole`, rounded as a division rounds it. Both are integers: `part` is below 2^53, and `whole` is
/// from 1 to [`EXACT`]. `reciprocal` is the double nearest to `1 / whole`.
///
/// With a fused multiply-add, no division is needed (after Markstein). The product with the reciprocal is off by at
/// most 1.5 units in the last place. Its remainder is an integral number of these units, fewer than 2^53, and thus
/// exact. The correction by the remainder leaves, before its only rounding, an error of 2 units times 2^-53. A quotient
/// by a number below 2^46 is at least 2^-47 units away from a rounding boundary, so the correction rounds to the double
/// nearest to the quotient.
#[inline(always)]
fn quotient<const ISA: u8>(part: f64, whole: f64, reciprocal: f64) -> f64 {
    if !isa::is_modern(ISA) {
        return part / whole;
    }
    let quotient = part * reciprocal;
    let rest = whole.mul_add(-quotient, part);
    rest.mul_add(reciprocal, quotient)
}

/// A weight up to which totals are exact as doubles.
const MAX_WEIGHT: i64 = 1 << 40;

dispatched! {
    /// Returns the lanes with a free pod slot and enough free cpu and memory, in this order. A request of
    /// `i64::MIN` is always met.
    fn has_room(
        allowed: &Column<i64>,
        pods: &Column<u32>,
        requests: [i64; 2],
        resources: [Usage<'_>; 2],
    ) -> u64 {
        let mut has = [0; LANES];
        let mut seen = 0;
        let [cpu, memory] = resources;
        for at in 0..LANES {
            let is_enough = |request: i64, of: Usage<'_>| {
                u8::from(request <= of.allocatable[at].wrapping_sub(of.requested[at]))
            };
            seen |= cpu.allocatable[at] | cpu.requested[at] | memory.allocatable[at] | memory.requested[at];
            let place = u8::from(i64::from(pods[at]) < allowed[at]);
            has[at] = place & is_enough(requests[0], cpu) & is_enough(requests[1], memory);
        }
        if seen < 0 {
            // A number is negative, so a difference may overflow.
            return has_place(allowed, pods)
                & fits(requests[0], cpu.allocatable, cpu.requested)
                & fits(requests[1], memory.allocatable, memory.requested);
        }
        pack::<ISA>(&has)
    }
}

/// Returns whether there are so few lanes that computing each is faster than computing the whole chunk.
#[inline(always)]
pub(crate) fn are_few(mask: u64) -> bool {
    mask.count_ones() <= 4
}

/// Returns the total of one lane, see [`allocation_scores`]. Combines all numbers that it reads into `seen` by OR: `seen`
/// is from 0 to below [`EXACT`] if and only if each number is.
#[inline(always)]
fn allocation_score<const ISA: u8>(
    [cpu, memory]: [Usage<'_>; 2],
    balance: &Column<u8>,
    (least, balanced): (Asked, Asked),
    at: usize,
    seen: &mut i64,
) -> i64 {
    let mut free = |of: &Usage<'_>, pod: i64| {
        let (whole, used) = (of.allocatable[at], of.non_zero[at].wrapping_add(pod));
        *seen |= whole | used;
        let whole = double(whole);
        let part = whole - double(used);
        // If a quotient is below an integer up to 100, so is the double nearest to it: the two are at least one unit in
        // the last place apart.
        let hundredfold = part.max(0.0) * 100.0;
        let free = floor::<ISA>(quotient::<ISA>(hundredfold, whole, of.reciprocal[at]));
        let counts = whole > 0.0;
        (if counts & (part > 0.0) { free } else { 0.0 }, counts)
    };
    let (free_cpu, free_memory) = (free(&cpu, least.cpu), free(&memory, least.memory));
    let sum = free_cpu.0 + free_memory.0;
    let mean = if free_cpu.1 & free_memory.1 { floor::<ISA>(sum * 0.5) } else { sum };
    let mut share = |of: &Usage<'_>, pod: i64| {
        let (used, whole) = (of.requested[at].wrapping_add(pod), of.allocatable[at]);
        *seen |= used | whole;
        let share = quotient::<ISA>(double(used), double(whole), of.reciprocal[at]);
        // Not `f64::min`: if nothing is allocatable, the share may be NaN, and is ignored below.
        if share > 1.0 { 1.0 } else { share }
    };
    let deviation = ((share(&cpu, balanced.cpu) - share(&memory, balanced.memory)) * 0.5).abs();
    let with = floor::<ISA>((1.0 - deviation) * 100.0);
    let with = if free_cpu.1 & free_memory.1 { with } else { 100.0 };
    // 50 + (50 + with - now) / 2, written so that no term is negative.
    let change = floor::<ISA>((with + (150.0 - f64::from(balance[at]))) * 0.5);
    number(mean * least.weight as f64 + change * balanced.weight as f64)
}

dispatched! {
    /// Sets the totals of the lanes in `unscored` to the weighted sum of two scores of cpu and memory, in the order of
    /// `asked`. If these are not [few](are_few), the other lanes are overwritten, too.
    ///
    /// - LeastAllocated, with both resources weighted equally: the mean of the free shares in percent, each rounded down.
    /// - BalancedAllocation: 75, plus or minus up to 25 as the pod brings the used shares closer together or further
    ///   apart. `balance` is the current balance in percent.
    ///
    /// Returns whether all numbers are small enough for this kernel. Otherwise the totals that it wrote are unspecified.
    fn allocation_scores(
        resources: [Usage<'_>; 2],
        balance: &Column<u8>,
        asked: (Asked, Asked),
        unscored: u64,
        totals: &mut Column<i64>,
    ) -> bool {
        let mut seen = 0;
        if are_few(unscored) {
            for at in lanes(unscored) {
                totals[at] = allocation_score::<ISA>(resources, balance, asked, at, &mut seen);
            }
        } else {
            for at in 0..LANES {
                totals[at] = allocation_score::<ISA>(resources, balance, asked, at, &mut seen);
            }
        }
        // A negative number has its highest bit set, so it fails the check, too.
        (seen as u64) < EXACT as u64
            && (0..=MAX_WEIGHT).contains(&asked.0.weight)
            && (0..=MAX_WEIGHT).contains(&asked.1.weight)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::snapshot::balanced;

    /// Generates realistic amounts: round ones, whose utilizations are exact ratios, and any amount up to the kernel's
    /// limit.
    fn amount() -> impl Strategy<Value = i64> {
        prop_oneof![
            (0..200_i64).prop_map(|n| n * 500),
            (0..64_i64).prop_map(|n| n << 30),
            (0..46_u32).prop_map(|shift| (1 << shift) - 1),
            0..1_i64 << 46,
        ]
    }

    fn weight() -> impl Strategy<Value = i64> {
        prop_oneof![4 => 0..4_i64, 1 => Just(MAX_WEIGHT), 1 => Just(MAX_WEIGHT + 1), 1 => Just((1 << 53) + 1)]
    }

    /// The allocatable, requested and requested non-zero amounts of one resource in one lane.
    type Amounts = (i64, i64, i64);

    fn lanes_of() -> impl Strategy<Value = Vec<(Amounts, Amounts)>> {
        let lane = || (amount(), amount(), amount());
        prop::collection::vec((lane(), lane()), LANES)
    }

    /// The free share of a resource in percent, rounded down.
    fn free(whole: i64, used: i64) -> Option<i64> {
        (whole > 0).then(|| (i128::from((whole - used).max(0)) * 100 / i128::from(whole)) as i64)
    }

    fn least(cpu: (i64, i64), memory: (i64, i64)) -> i64 {
        let shares: Vec<i64> =
            [free(cpu.0, cpu.1), free(memory.0, memory.1)].into_iter().flatten().collect();
        shares.iter().sum::<i64>() / (shares.len() as i64).max(1)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

        #[test]
        fn scores_by_kernel_and_by_node_agree(
            lanes in lanes_of(),
            pods in ((amount(), amount()), (amount(), amount())),
            weights in (weight(), weight()),
            mask in any::<u64>(),
            few in prop::collection::vec(0..LANES, 0..=4),
        ) {
            let column = |of: &dyn Fn(&(Amounts, Amounts)) -> i64| -> Column<i64> { std::array::from_fn(|at| of(&lanes[at])) };
            let columns = [column(&|l| l.0.0), column(&|l| l.0.1), column(&|l| l.0.2), column(&|l| l.1.0), column(&|l| l.1.1), column(&|l| l.1.2)];
            let reciprocals = [0, 3].map(|of| columns[of].map(|n| if n == 0 { 0.0 } else { 1.0 / n as f64 }));
            let usage = |of: usize| Usage {
                allocatable: &columns[3 * of],
                reciprocal: &reciprocals[of],
                requested: &columns[3 * of + 1],
                non_zero: &columns[3 * of + 2],
            };
            let now: Column<u8> = std::array::from_fn(|at| {
                balanced((columns[1][at], columns[0][at]), (columns[4][at], columns[3][at])) as u8
            });
            let asked = |(cpu, memory): (i64, i64), weight| Asked { cpu, memory, weight };
            let both = (asked(pods.0, weights.0), asked(pods.1, weights.1));
            let (mut totals, usage) = ([0; LANES], [usage(0), usage(1)]);
            let is_done = allocation_scores(usage, &now, both, u64::MAX, &mut totals);
            let small = |used: &Column<i64>, pod: i64| used.iter().all(|n| n + pod < 1 << 46);
            let are_small = small(&columns[2], pods.0.0) && small(&columns[5], pods.0.1)
                && small(&columns[1], pods.1.0) && small(&columns[4], pods.1.1);
            let is_exact = are_small && weights.0.max(weights.1) <= MAX_WEIGHT;
            prop_assert_eq!(is_done, is_exact);
            if !is_done {
                return Ok(());
            }
            for at in 0..LANES {
                let least = least(
                    (columns[0][at], columns[2][at] + pods.0.0),
                    (columns[3][at], columns[5][at] + pods.0.1),
                );
                let with = balanced(
                    (columns[1][at] + pods.1.0, columns[0][at]),
                    (columns[4][at] + pods.1.1, columns[3][at]),
                );
                let balanced = 50 + (50 + with - i64::from(now[at])) / 2;
                prop_assert_eq!(totals[at], weights.0 * least + weights.1 * balanced, "{:?}", lanes[at]);
            }
            let in_mask = |at: &usize| mask >> at & 1 == 1;
            let most = (0..LANES).filter(in_mask).map(|at| totals[at]).max().unwrap_or(i64::MIN);
            let have = (0..LANES).filter(in_mask).filter(|at| totals[*at] == most);
            let best = have.fold(0, |all, at| all | 1 << at);
            prop_assert_eq!((largest(&totals, mask), equal(&totals, most) & mask), (most, best));
            // Few lanes are computed alone.
            let mut some = [-1; LANES];
            let unscored = few.iter().fold(0, |all, at| all | 1 << at);
            prop_assert!(allocation_scores(usage, &now, both, unscored, &mut some));
            let alone: Column<i64> = std::array::from_fn(|at| if few.contains(&at) { totals[at] } else { -1 });
            prop_assert_eq!(some, alone);
        }

        #[test]
        fn room_by_kernel_and_by_node_agree(
            lanes in prop::collection::vec(((-3..9_i64, -3..9_i64), (-3..9_i64, -3..9_i64), (0..3_i64, 0..3_u32)), LANES),
            requests in (0..9_i64, 0..9_i64),
            extreme in (0..LANES, prop_oneof![Just(i64::MIN), Just(i64::MAX)]),
        ) {
            let mut columns: [Column<i64>; 4] = [[0; LANES]; 4];
            for (at, (cpu, memory, _)) in lanes.iter().enumerate() {
                [columns[0][at], columns[1][at], columns[2][at], columns[3][at]] = [cpu.0, cpu.1, memory.0, memory.1];
            }
            columns[extreme.0 % 4][extreme.0] = extreme.1;
            let allowed: Column<i64> = std::array::from_fn(|at| lanes[at].2.0);
            let pods: Column<u32> = std::array::from_fn(|at| lanes[at].2.1);
            let unused = ([0.0; LANES], [0; LANES]);
            let usage = |of: usize| Usage {
                allocatable: &columns[2 * of],
                requested: &columns[2 * of + 1],
                reciprocal: &unused.0,
                non_zero: &unused.1,
            };
            let has = has_room(&allowed, &pods, [requests.0, requests.1], [usage(0), usage(1)]);
            let one_by_one = has_place(&allowed, &pods)
                & fits(requests.0, &columns[0], &columns[1])
                & fits(requests.1, &columns[2], &columns[3]);
            prop_assert_eq!(has, one_by_one);
            let nothing = has_room(&allowed, &pods, [i64::MIN; 2], [usage(0), usage(1)]);
            prop_assert_eq!(nothing, has_place(&allowed, &pods));
        }
    }

    dispatched! {
        fn packed(bytes: &[u8; LANES]) -> u64 {
            pack::<ISA>(bytes)
        }
    }

    #[test]
    fn masks_have_one_bit_per_lane() {
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
    fn floors_and_conversions_are_exact() {
        for value in [0.0, 0.5, 1.0, 1.5, 2.5, 99.999_999_999, 1e15, 1e15 + 0.5] {
            assert_eq!(floor::<{ isa::PLAIN }>(value), value.floor());
            #[cfg(target_arch = "x86_64")]
            assert_eq!(floor::<{ isa::AVX2 }>(value), value.floor());
            assert_eq!(number(value.floor()), value.floor() as i64);
            assert_eq!(double(value as i64), value.floor());
        }
    }

    #[test]
    fn values_of_any_number_are_summarized() {
        assert_eq!(extremes(&[]), (i64::MAX, i64::MIN));
        for len in 1..40 {
            let mut values = vec![7; len];
            assert_eq!((extremes(&values), count(&values, 7)), ((7, 7), len));
            assert_eq!(equal_prefix(&values, 7), len);
            for at in 0..len {
                for other in [-3, 9, i64::MIN, i64::MAX] {
                    values[at] = other;
                    assert_eq!(equal_prefix(&values, 7), at);
                    assert_eq!(count(&values, 7), len - 1);
                    if len > 1 {
                        assert_eq!(extremes(&values), (other.min(7), other.max(7)));
                    }
                }
                values[at] = 7;
            }
        }
    }

    #[test]
    fn scores_out_of_range_are_noticed_anywhere() {
        for len in 1..40 {
            let (mut scores, mut totals) = (vec![100; len], vec![5; len]);
            scores[len / 2] = 0;
            assert!(add_weighted(&mut totals, &scores, 3));
            let expected: Vec<i64> = scores.iter().map(|score| 5 + 3 * score).collect();
            assert_eq!(totals, expected);
            for (at, score) in (0..len).zip([-1, 101, i64::MIN, i64::MAX].into_iter().cycle()) {
                let kept = std::mem::replace(&mut scores[at], score);
                assert!(!add_weighted(&mut totals, &scores, 3), "{score} at {at} of {len}");
                scores[at] = kept;
            }
        }
    }

    #[test]
    fn lanes_touched_later_are_found() {
        let touched: Column<Generation> = std::array::from_fn(|at| Generation(at as u64 % 4));
        for since in 0..4 {
            let expected = (0..LANES).filter(|at| *at as u64 % 4 > since);
            let expected = expected.fold(0, |all, at| all | 1 << at);
            assert_eq!(newer(&touched, Generation(since)), expected);
        }
    }

    #[test]
    fn free_amounts_do_not_overflow() {
        let mut allocatable = [10; LANES];
        let mut requested = [5; LANES];
        (allocatable[3], requested[3]) = (i64::MAX, -1);
        (allocatable[4], requested[4]) = (i64::MIN, 1);
        requested[5] = 6;
        assert_eq!(fits(5, &allocatable, &requested), !(1 << 4 | 1 << 5));
    }
}
