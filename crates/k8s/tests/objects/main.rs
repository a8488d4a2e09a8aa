//! Tests of reading objects: as typed structs, from bytes, from a watch, and strictly.

mod controllers;
mod digest;
#[cfg(feature = "k8s-openapi")]
mod openapi;
mod slice;
mod strict;
mod vectors;
