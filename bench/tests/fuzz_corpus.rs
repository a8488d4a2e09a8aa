//! Replays the committed fuzz corpus of the parsers on stable.
// Mounted sources are public for other crates.
#![allow(unreachable_pub)]

#[path = "../../cli/src/files/mod.rs"]
mod files;
#[path = "../../fuzz/targets/input.rs"]
mod input;
#[path = "../src/vectors/mod.rs"]
mod vectors;

use files::Wrong;

#[test]
fn input_corpus_finds_nothing() {
    portolan_testkit::corpus::replay("input", input::run_closely, input::run_closely);
}
