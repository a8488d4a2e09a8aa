//! The per-thread counts of a global allocator.

use std::hint::black_box;
use std::thread;

use portolan_testkit::alloc::{Counting, Counts};

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

/// Returns the result of `work` and its effect on the counts of this thread.
fn counted<T>(work: impl FnOnce() -> T) -> (T, Counts) {
    let before = ALLOCATOR.counts().live;
    ALLOCATOR.take();
    let result = black_box(work());
    let mut counts = ALLOCATOR.take();
    counts.live -= before;
    counts.peak -= before;
    (result, counts)
}

#[test]
fn allocation_and_deallocation_are_counted() {
    let (block, allocated) = counted(|| vec![1_u8; 100]);
    let expected =
        Counts { allocations: 1, frees: 0, allocated: 100, grown: 100, live: 100, peak: 100 };
    assert_eq!(allocated, expected);
    let ((), freed) = counted(|| drop(block));
    assert_eq!(freed, Counts { frees: 1, live: -100, ..Counts::default() });
}

#[test]
fn zeroed_memory_is_counted() {
    let (_block, counts) = counted(|| vec![0_u8; 100]);
    assert_eq!((counts.allocations, counts.allocated), (1, 100));
}

#[test]
fn reallocation_allocates_the_new_size_and_grows_by_the_difference() {
    let mut block: Vec<u8> = Vec::with_capacity(100);
    let ((), grown) = counted(|| block.reserve_exact(160));
    let expected =
        Counts { allocations: 1, frees: 1, allocated: 160, grown: 60, live: 60, peak: 60 };
    assert_eq!(grown, expected);
    block.resize(40, 1);
    let ((), shrunk) = counted(|| block.shrink_to_fit());
    let expected =
        Counts { allocations: 1, frees: 1, allocated: 40, grown: 0, live: -120, peak: 0 };
    assert_eq!(shrunk, expected);
}

#[test]
fn peak_outlives_the_block_until_taken() {
    let ((), counts) = counted(|| drop(black_box(vec![1_u8; 100])));
    assert_eq!((counts.live, counts.peak), (0, 100));
    let ((), counts) = counted(|| ());
    assert_eq!(counts, Counts::default());
}

#[test]
fn threads_are_counted_separately() {
    let (give, take) = std::sync::mpsc::sync_channel::<Vec<u8>>(1);
    let other = thread::spawn(move || {
        let before = ALLOCATOR.counts();
        give.send(vec![1_u8; 1_000_000]).expect("the receiver is alive");
        ALLOCATOR.counts().live - before.live
    });
    let block = take.recv().expect("the thread sends a block");
    assert!(other.join().expect("the thread does not panic") >= 1_000_000);
    let ((), counts) = counted(|| drop(block));
    assert_eq!(counts.live, -1_000_000);
}
