//! Publication.
