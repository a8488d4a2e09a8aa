//! Gödel's parts of the scheduling cycle: preferred nodes, partitions of the nodes, and sub-clusters.

mod partition;
pub(super) mod preferred;
pub(super) mod sub_cluster;

pub use partition::Partition;
pub use sub_cluster::SubCluster;
