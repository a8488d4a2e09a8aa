//! The models of the engine are in `tests`; their shared code is in `loom_tests`.
