//! Replays the committed fuzz corpus on the stable toolchain.

use std::path::{Path, PathBuf};

#[path = "../fuzz/targets/quantity.rs"]
mod quantity;
#[path = "../fuzz/targets/scheduler.rs"]
mod scheduler;
#[path = "../fuzz/targets/state.rs"]
mod state;

fn replay(target: &str, run: fn(&[u8]), closely: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut files: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 20, "the corpus of {target} is missing");
    let fails = |file: &&PathBuf| {
        let bytes = std::fs::read(file).unwrap();
        let failed = std::panic::catch_unwind(|| run(&bytes)).is_err();
        if failed {
            // Run it again for the message of the first failing event.
            drop(std::panic::catch_unwind(|| closely(&bytes)));
        }
        failed
    };
    let failed: Vec<_> = files.iter().filter(fails).collect();
    assert!(failed.is_empty(), "{} inputs fail: {failed:#?}", failed.len());
    println!("{target}: {} inputs", files.len());
}

#[test]
fn state_corpus_finds_nothing() {
    replay("state", state::run, state::run_closely);
}

#[test]
fn scheduler_corpus_finds_nothing() {
    replay("scheduler", scheduler::run_closely, scheduler::run_closely);
}

#[test]
fn quantity_corpus_finds_nothing() {
    replay("quantity", quantity::run, quantity::run);
}
