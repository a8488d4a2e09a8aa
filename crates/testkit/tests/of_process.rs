//! The count of all threads, which one test alone may read.

use std::alloc::System;
use std::hint::black_box;
use std::thread;

use portolan_testkit::alloc::{Counting, OfProcess};

#[global_allocator]
static ALLOCATOR: Counting<System, OfProcess> = Counting::of_process();

#[test]
fn what_one_thread_allocates_and_another_frees_is_counted_once() {
    const BLOCK: i64 = 1 << 24;
    // What the test harness and a thread need is far below a block.
    const NOISE: i64 = 1 << 20;
    let before = ALLOCATOR.live();
    let block = thread::spawn(|| black_box(vec![1_u8; BLOCK as usize])).join();
    let grown = ALLOCATOR.live() - before;
    assert!((grown - BLOCK).abs() < NOISE, "{grown} bytes");
    drop(block);
    let left = ALLOCATOR.live() - before;
    assert!(left.abs() < NOISE, "{left} bytes");
}
