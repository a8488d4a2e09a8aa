//! Schedules random pods on random clusters and checks that all ways of evaluating them agree.
#![no_main]

#[path = "../targets/scheduler.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::run(data));
