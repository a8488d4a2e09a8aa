//! Dynamic resource allocation (DRA) for portolan.
//!
//! [`cel`] compiles and evaluates the CEL expressions by which device classes and claims select devices.

pub mod cel;
