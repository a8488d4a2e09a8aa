//! The process-wide count, which must be read by only one test per binary.

use std::hint::black_box;
use std::thread;

use portolan_testkit::alloc::{Counting, OfProcess};

#[global_allocator]
static ALLOCATOR: Counting<OfProcess> = Counting::of_process();

#[test]
fn memory_freed_by_another_thread_is_counted_once() {
    const BLOCK: i64 = 1 << 24;
    // The test harness and a thread allocate far less than a block.
    const NOISE: i64 = 1 << 20;
    let before = ALLOCATOR.live();
    let block = thread::spawn(|| black_box(vec![1_u8; BLOCK as usize])).join();
    let grown = ALLOCATOR.live() - before;
    assert!((grown - BLOCK).abs() < NOISE, "{grown} bytes");
    drop(block);
    let left = ALLOCATOR.live() - before;
    assert!(left.abs() < NOISE, "{left} bytes");
}
