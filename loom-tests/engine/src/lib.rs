//! Models of the engine are in `tests`; what they have in common is in `loom_tests`.
