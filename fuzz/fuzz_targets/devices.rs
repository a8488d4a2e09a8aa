//! Allocates devices for claims, and checks the allocations.
#![no_main]

#[path = "../targets/devices.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::run(data));
