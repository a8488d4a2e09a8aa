//! Runs the measurements and checks what they print.

#[path = "../../../cli/tests/program/common/mod.rs"]
mod common;
mod conformance;
mod errors;
mod sched;
mod serving;
