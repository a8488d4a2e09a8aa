//! Passes bytes to every parser, including those of the command-line program.
#![no_main]

#[path = "../../cli/src/files/mod.rs"]
mod files;
#[path = "../targets/input.rs"]
mod target;
#[path = "../../bench/src/vectors/mod.rs"]
mod vectors;

use files::Wrong;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::run(data));
