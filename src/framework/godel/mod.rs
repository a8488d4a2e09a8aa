//! Gödel's parts of the scheduling cycle: preferred nodes, partitions of the nodes, and scheduling workflows.

mod partition;
pub(super) mod preferred;
pub(super) mod workflow;

pub use partition::Partition;
pub use workflow::{SubCluster, SubClusters, SwitchType, Workflow};
