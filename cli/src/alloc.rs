//! The program's allocator: mimalloc, with a count of live bytes.
//!
//! Each thread has its own counter, so that threads share no cache line. Memory that one
//! thread allocates and another frees changes both counters; a figure is exact if one
//! thread does both.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;

use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Counting;

thread_local! {
    static LIVE: Cell<i64> = const { Cell::new(0) };
}

fn count(bytes: i64) {
    // The counter of a terminating thread may already be destroyed.
    let _ = LIVE.try_with(|live| live.set(live.get() + bytes));
}

/// Bytes allocated by this thread, minus bytes freed by it.
pub(crate) fn live_bytes() -> i64 {
    LIVE.with(Cell::get)
}

// SAFETY: every call is forwarded unchanged to mimalloc, which has the same contract;
// counting does not touch the allocated memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { MiMalloc.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { MiMalloc.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as i64 - layout.size() as i64);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { MiMalloc.realloc(pointer, layout, size) }
    }
}
