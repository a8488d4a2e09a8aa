//! Cluster objects as the engine keeps them.
