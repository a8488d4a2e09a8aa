//! What there is in a cluster, and whether it holds together.

pub(crate) mod audit;
pub(crate) mod dump;
