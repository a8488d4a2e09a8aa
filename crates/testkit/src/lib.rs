//! Test support that the tests, benches and examples of this repository share.
//!
//! - [`alloc`]: a counting global allocator.
//! - [`measure`]: alternating measurements, and quantiles.
//! - [`random`]: a seeded source of random numbers.
//!
//! The crate depends only on the standard library, so that every crate of the workspace can use it as a dev-dependency.
//! It is not published.

pub mod alloc;
pub mod measure;
pub mod random;
