//! Tests of whole processes against an API server in memory.
//!
//! They share one binary, so that the waits of some overlap with the work of others.

mod claims;
mod election;
mod extender;
mod faults;
mod mirror;
mod process;
mod schedules;
mod serve;
mod shadow;
mod shards;
mod support;
