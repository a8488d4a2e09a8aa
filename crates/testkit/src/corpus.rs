//! Replays the committed fuzz corpus on the stable toolchain.

use std::path::{Path, PathBuf};

/// Runs a fuzz target on each input of its corpus, and an input that fails a second time with `closely`, for the message
/// of the first failing event.
///
/// # Panics
///
/// Panics if an input fails, or if the corpus is missing.
pub fn replay(target: &str, run: fn(&[u8]), closely: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let files = std::fs::read_dir(&folder).expect("the corpus can be read");
    let mut files: Vec<PathBuf> = files.map(|file| file.expect("a file").path()).collect();
    files.sort();
    assert!(files.len() >= 20, "the corpus of {target} is missing");
    let fails = |file: &&PathBuf| {
        let bytes = std::fs::read(file).expect("the input can be read");
        let failed = std::panic::catch_unwind(|| run(&bytes)).is_err();
        if failed {
            drop(std::panic::catch_unwind(|| closely(&bytes)));
        }
        failed
    };
    let failed: Vec<_> = files.iter().filter(fails).collect();
    assert!(failed.is_empty(), "{} inputs fail: {failed:#?}", failed.len());
    println!("{target}: {} inputs", files.len());
}
