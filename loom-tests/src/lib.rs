//! Loom models of the shipping source: see `tests/`.
