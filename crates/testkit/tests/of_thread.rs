//! Counts of one thread, on a global allocator.

use std::hint::black_box;
use std::thread;

use portolan_testkit::alloc::{Counting, Counts};

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

/// What `work` changes in the counts of this thread.
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
fn a_block_is_counted_when_it_comes_and_when_it_goes() {
    let (block, coming) = counted(|| vec![1_u8; 100]);
    let expected =
        Counts { allocations: 1, frees: 0, allocated: 100, grown: 100, live: 100, peak: 100 };
    assert_eq!(coming, expected);
    let ((), going) = counted(|| drop(block));
    assert_eq!(going, Counts { frees: 1, live: -100, ..Counts::default() });
}

#[test]
fn zeroed_memory_counts() {
    let (_block, counts) = counted(|| vec![0_u8; 100]);
    assert_eq!((counts.allocations, counts.allocated), (1, 100));
}

#[test]
fn a_reallocation_allocates_its_new_size_and_grows_by_the_difference() {
    let mut block: Vec<u8> = Vec::with_capacity(100);
    let ((), longer) = counted(|| block.reserve_exact(160));
    let expected =
        Counts { allocations: 1, frees: 1, allocated: 160, grown: 60, live: 60, peak: 60 };
    assert_eq!(longer, expected);
    block.resize(40, 1);
    let ((), shorter) = counted(|| block.shrink_to_fit());
    let expected =
        Counts { allocations: 1, frees: 1, allocated: 40, grown: 0, live: -120, peak: 0 };
    assert_eq!(shorter, expected);
}

#[test]
fn the_peak_outlives_the_block_until_it_is_taken() {
    let ((), counts) = counted(|| drop(black_box(vec![1_u8; 100])));
    assert_eq!((counts.live, counts.peak), (0, 100));
    let ((), counts) = counted(|| ());
    assert_eq!(counts, Counts::default());
}

#[test]
fn another_thread_counts_by_itself() {
    let (give, take) = std::sync::mpsc::sync_channel::<Vec<u8>>(1);
    let other = thread::spawn(move || {
        let before = ALLOCATOR.counts();
        give.send(vec![1_u8; 1_000_000]).expect("the test takes it");
        ALLOCATOR.counts().live - before.live
    });
    let block = take.recv().expect("the thread gives it");
    assert!(other.join().expect("the thread ends") >= 1_000_000);
    let ((), counts) = counted(|| drop(block));
    assert_eq!(counts.live, -1_000_000);
}
