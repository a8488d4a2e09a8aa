//! Replays the committed fuzz corpus on stable.

use std::path::Path;

#[path = "../fuzz/targets/state.rs"]
mod state;

fn replay(target: &str, run: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut files: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 20, "the corpus of {target} is missing");
    for file in &files {
        run(&std::fs::read(file).unwrap());
    }
    println!("{target}: {} inputs", files.len());
}

#[test]
fn state_corpus_finds_nothing() {
    replay("state", state::run);
}
