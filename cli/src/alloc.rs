//! The program's allocator: mimalloc, with a count of live bytes.
//!
//! Each thread has its own counter, so that threads share no cache line, and adds it to a
//! counter of the process whenever it has reached 64 KiB.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::ffi::{c_int, c_long};
use std::sync::atomic::{AtomicI64, Ordering};

use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Counting;

thread_local! {
    static LIVE: Cell<i64> = const { Cell::new(0) };
}

#[cfg(test)]
thread_local! {
    static OF_THREAD: Cell<i64> = const { Cell::new(0) };
}

/// Bytes that this thread has allocated, less those that it has freed: tests run beside each other.
#[cfg(test)]
pub(crate) fn bytes_of_thread() -> i64 {
    OF_THREAD.with(Cell::get)
}

/// The counted bytes of all threads, without the bytes in the threads' own counters.
static COUNTED: AtomicI64 = AtomicI64::new(0);

/// The most bytes in a thread's own counter.
const OWN: i64 = 64 << 10;

#[inline]
fn count(bytes: i64) {
    #[cfg(test)]
    let _ = OF_THREAD.try_with(|all| all.set(all.get() + bytes));
    let counted = LIVE.try_with(|live| {
        let own = live.get() + bytes;
        live.set(own);
        if !(-OWN..=OWN).contains(&own) {
            live.set(0);
            add(own);
        }
    });
    // The counter of a terminating thread may already be destroyed.
    if counted.is_err() {
        add(bytes);
    }
}

/// Out of line, so that [`count`] needs no stack.
#[cold]
#[inline(never)]
fn add(bytes: i64) {
    // Relaxed: a sum that orders no other memory.
    COUNTED.fetch_add(bytes, Ordering::Relaxed);
}

/// Bytes allocated and not freed by the process, up to 64 KiB for each other thread.
pub fn live_bytes() -> i64 {
    COUNTED.load(Ordering::Relaxed) + LIVE.with(Cell::get)
}

/// Bytes of the process in memory, or 0 if the system does not report them.
#[cfg(feature = "cluster")]
pub(crate) fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = resident.and_then(|amount| amount.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// The alignment of every block, because the sizes of blocks are multiples of a pointer's size.
const LEAST_ALIGNMENT: usize = size_of::<usize>();

// SAFETY: every call is forwarded to mimalloc, which has the same contract; counting does not
// touch the allocated memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // `MiMalloc` passes every alignment to `mi_malloc_aligned`, for which mimalloc 3 often
        // reserves more than `size`.
        if layout.align() <= LEAST_ALIGNMENT {
            // SAFETY: `mi_malloc` has no preconditions, and aligns each block to at least
            // `LEAST_ALIGNMENT`, which is enough for `layout`.
            return unsafe { libmimalloc_sys::mi_malloc(layout.size()) }.cast();
        }
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

/// The number of `mi_option_purge_delay` in `mimalloc.h`.
const PURGE_DELAY: c_int = 15;

unsafe extern "C" {
    /// `libmimalloc-sys` declares it only with a feature that adds a dependency.
    fn mi_option_set_default(option: c_int, value: c_long);
}

/// Lets freed memory stay with the process, unless the environment variable
/// `MIMALLOC_PURGE_DELAY` is set.
///
/// By default, mimalloc returns freed memory to the kernel after a second. A scheduling cycle that
/// needs it again waits until the kernel has cleared it, which can take longer than many cycles.
/// For the same reason, the feature `no_thp` of the crate keeps mimalloc from requesting huge pages:
/// the kernel clears 2 MiB at once.
///
/// `portolan extender` does not call this: its peak depends on the requests of other programs.
///
/// # Safety
///
/// The process must have no other thread: mimalloc reads its options without synchronization.
pub unsafe fn keep_freed_memory() {
    // SAFETY: the option exists, and the caller ensures that no thread reads it meanwhile.
    unsafe { mi_option_set_default(PURGE_DELAY, -1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn no_huge_pages_are_requested() {
        let block = vec![1_u8; 8 << 20];
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("procfs is mounted");
        let mut flags = maps.lines().filter_map(|line| line.strip_prefix("VmFlags:"));
        assert!(flags.all(|flags| flags.split_whitespace().all(|flag| flag != "hg")), "{maps}");
        drop(block);
    }

    #[test]
    fn blocks_are_aligned_as_requested() {
        for (size, shift) in (1..3000).flat_map(|size| (0..8).map(move |shift| (size, shift))) {
            let layout = Layout::from_size_align(size, 1 << shift).expect("a valid layout");
            // SAFETY: the size is not 0, and the block is freed with its layout.
            unsafe {
                let block = ALLOCATOR.alloc(layout);
                assert!(
                    !block.is_null() && block.addr().is_multiple_of(layout.align()),
                    "{layout:?}"
                );
                ALLOCATOR.dealloc(block, layout);
            }
        }
    }
}
