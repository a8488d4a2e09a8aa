//! What the tests, benches and examples of this repository share.
//!
//! - [`alloc`]: a global allocator that counts.
//! - [`measure`]: measurements that take turns, and their quantiles.
//! - [`random`]: a seeded random source.
//!
//! It depends on the standard library alone, so that every crate of the workspace can have it as a dev-dependency, and
//! it is not published.

pub mod alloc;
pub mod measure;
pub mod random;
