//! Whole schedulers on a real API server.
