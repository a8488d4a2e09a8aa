//! Replays the committed fuzz corpus of the parsers on stable.
// Mounted sources are public for other crates.
#![allow(unreachable_pub)]

use std::path::{Path, PathBuf};

#[path = "../../cli/src/files/mod.rs"]
mod files;
#[path = "../../fuzz/targets/input.rs"]
mod input;
#[path = "../src/vectors/mod.rs"]
mod vectors;

use files::Wrong;

#[test]
fn input_corpus_finds_nothing() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/input");
    let mut files: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 20, "the corpus of input is missing");
    let fails = |file: &&PathBuf| {
        let bytes = std::fs::read(file).unwrap();
        std::panic::catch_unwind(|| input::run_closely(&bytes)).is_err()
    };
    let failed: Vec<_> = files.iter().filter(fails).collect();
    assert!(failed.is_empty(), "{} inputs fail: {failed:#?}", failed.len());
    println!("input: {} inputs", files.len());
}
