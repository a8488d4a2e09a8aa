//! The `portolan` program.
fn main() {}
