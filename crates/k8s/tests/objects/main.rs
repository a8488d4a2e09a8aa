//! Tests of reading objects: as typed structs, from bytes, from a watch, and strictly.

mod admission;
mod controllers;
mod created_pods;
mod digest;
mod strict;
