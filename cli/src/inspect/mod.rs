//! `portolan dump` and `portolan audit`: the content of a cluster, and its consistency.

pub(crate) mod audit;
pub(crate) mod dump;
