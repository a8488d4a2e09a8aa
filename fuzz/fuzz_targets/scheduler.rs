//! Schedules random pods on random clusters and checks that all ways of evaluating them agree.
#![no_main]

#[path = "../targets/checks.rs"]
mod checks;
#[path = "../targets/draw/mod.rs"]
mod draw;
#[path = "../targets/sample.rs"]
mod sample;
#[path = "../targets/scheduler.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::run(data));
