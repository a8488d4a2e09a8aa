//! The program's allocator: mimalloc, counting the bytes that are live.
//!
//! Each thread counts its own, without a shared line: what a thread allocates
//! and another frees is counted on both, so a figure is exact where one thread
//! does both.

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
    // A thread that is ending has no counter any more.
    let _ = LIVE.try_with(|live| live.set(live.get() + bytes));
}

/// Bytes that this thread allocated less those that it freed.
pub(crate) fn live_bytes() -> i64 {
    LIVE.with(Cell::get)
}

/// Up to this alignment mimalloc's plain call does, which takes a shorter way
/// than the aligned one (the only one that the `mimalloc` crate calls).
const PLAIN: usize = 8;

// SAFETY: every call is passed on to mimalloc as it came, whose contract is the
// same; blocks of its plain calls are aligned to 8 at least; counting touches
// no memory that is handed out.
unsafe impl GlobalAlloc for Counting {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        if layout.align() <= PLAIN {
            // SAFETY: any size may be asked for.
            return unsafe { libmimalloc_sys::mi_malloc(layout.size()) }.cast();
        }
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { MiMalloc.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        if layout.align() <= PLAIN {
            // SAFETY: any size may be asked for.
            return unsafe { libmimalloc_sys::mi_zalloc(layout.size()) }.cast();
        }
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { MiMalloc.dealloc(pointer, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as i64 - layout.size() as i64);
        if layout.align() <= PLAIN {
            // SAFETY: the block is mimalloc's, whichever call it came from.
            return unsafe { libmimalloc_sys::mi_realloc(pointer.cast(), size) }.cast();
        }
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { MiMalloc.realloc(pointer, layout, size) }
    }
}
