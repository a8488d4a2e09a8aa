//! A global allocator that counts allocations.
//!
//! A test installs it and reads its counts:
//!
//! ```
//! use portolan_testkit::alloc::Counting;
//!
//! #[global_allocator]
//! static ALLOCATOR: Counting = Counting::new();
//!
//! let before = ALLOCATOR.counts();
//! let text = vec![0_u8; 1_000];
//! assert_eq!(ALLOCATOR.counts().live - before.live, 1_000);
//! # drop(text);
//! ```
//!
//! The parameter selects the scope. [`OfThread`], the default, counts each thread separately: tests that run in
//! parallel do not disturb each other, and threads share no cache line. [`OfProcess`] counts the live bytes of all
//! threads together, for memory that one thread allocates and another frees. Every call then writes to one shared cache
//! line, and a test that reads the count must be the only test of its binary.
//!
//! Tests that install it need no unsafe code of their own.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering};

/// The system's allocator, which counts each call in the scope `C`.
///
/// A call that fails is counted as if it had succeeded.
#[derive(Debug)]
pub struct Counting<C = OfThread>(C);

/// Counts each thread separately.
///
/// The counts belong to the thread and not to the allocator: a process has one global allocator.
#[derive(Debug)]
pub struct OfThread;

/// Counts all threads of the process together.
#[derive(Debug)]
pub struct OfProcess {
    live: AtomicI64,
}

/// The allocations of one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Allocations and reallocations.
    pub allocations: u64,
    /// Deallocations and reallocations.
    pub frees: u64,
    /// Bytes allocated, where a reallocation counts its whole new size.
    pub allocated: u64,
    /// Bytes allocated, where a reallocation counts only the bytes by which it grows the block.
    pub grown: u64,
    /// Bytes allocated minus bytes freed. Negative on a thread that frees memory of other threads.
    pub live: i64,
    /// The largest [`live`](Counts::live) since the last [`take`](Counting::take), or since the thread started.
    pub peak: i64,
}

thread_local! {
    static COUNTS: Cell<Counts> = const { Cell::new(Counts::NONE) };
}

impl Counts {
    const NONE: Counts =
        Counts { allocations: 0, frees: 0, allocated: 0, grown: 0, live: 0, peak: 0 };
}

/// The scope of a count: [`OfThread`] or [`OfProcess`].
pub trait Counter {
    /// Counts a call that frees a block, allocates a block, or both, given the blocks' sizes. Must not allocate.
    fn count(&self, freed: Option<usize>, allocated: Option<usize>);
}

impl Counter for OfThread {
    #[inline]
    fn count(&self, freed: Option<usize>, allocated: Option<usize>) {
        // The counts of a thread that is exiting may already be destroyed.
        let _ = COUNTS.try_with(|counts| {
            let mut now = counts.get();
            let change = allocated.unwrap_or(0) as i64 - freed.unwrap_or(0) as i64;
            now.allocations += u64::from(allocated.is_some());
            now.frees += u64::from(freed.is_some());
            now.allocated += allocated.unwrap_or(0) as u64;
            now.grown += change.max(0) as u64;
            now.live += change;
            now.peak = now.peak.max(now.live);
            counts.set(now);
        });
    }
}

impl Counter for OfProcess {
    #[inline]
    fn count(&self, freed: Option<usize>, allocated: Option<usize>) {
        let change = allocated.unwrap_or(0) as i64 - freed.unwrap_or(0) as i64;
        self.live.fetch_add(change, Ordering::Relaxed);
    }
}

impl Counting {
    /// Creates an allocator with per-thread counts.
    pub const fn new() -> Counting {
        Counting(OfThread)
    }

    /// Returns the counts of the calling thread.
    pub fn counts(&self) -> Counts {
        COUNTS.get()
    }

    /// Returns the counts of the calling thread since the last call, and resets them: `live` is kept, `peak` becomes
    /// `live`, and all others become 0.
    pub fn take(&self) -> Counts {
        let live = COUNTS.get().live;
        COUNTS.replace(Counts { live, peak: live, ..Counts::NONE })
    }
}

impl Default for Counting {
    fn default() -> Counting {
        Counting::new()
    }
}

impl Counting<OfProcess> {
    /// Creates an allocator with a count of the whole process.
    pub const fn of_process() -> Self {
        Counting(OfProcess { live: AtomicI64::new(0) })
    }

    /// Returns the bytes allocated minus the bytes freed by all threads. Exact while no other thread allocates or
    /// frees.
    pub fn live(&self) -> i64 {
        self.0.live.load(Ordering::Relaxed)
    }
}

// SAFETY: each call is forwarded unchanged to `System`, which upholds the contract of `GlobalAlloc`, and its result is
// returned unchanged. Counting does not access allocated memory, and neither allocates nor unwinds.
unsafe impl<C: Counter> GlobalAlloc for Counting<C> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.0.count(None, Some(layout.size()));
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.0.count(None, Some(layout.size()));
        // SAFETY: the caller upholds the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        self.0.count(Some(layout.size()), None);
        // SAFETY: the caller upholds the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        self.0.count(Some(layout.size()), Some(size));
        // SAFETY: the caller upholds the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
