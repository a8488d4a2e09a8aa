//! Compares quantities with arbitrary-precision arithmetic.
#![no_main]

#[path = "../targets/quantity.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::run(data));
