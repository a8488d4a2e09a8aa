//! The only file that knows loom.
