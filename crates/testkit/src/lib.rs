//! Shared by the tests, benches and examples of this repository.
//!
//! - [`alloc`]: a global allocator that counts.
//! - [`measure`]: alternating measurements, and quantiles.
//! - [`random`]: a seeded random source.
//!
//! It depends on the standard library alone, so that every crate of the workspace can use it as a dev-dependency. It is
//! not published.

pub mod alloc;
pub mod measure;
pub mod random;
