//! Kube-scheduler's plugins, one file each, with its rules and its words
//! (pkg/scheduler/framework/plugins, 1.36).

mod balanced_allocation;
mod fit;
mod node_affinity;
mod node_name;
mod node_ports;
mod node_unschedulable;
mod taint_toleration;

pub use balanced_allocation::NodeResourcesBalancedAllocation;
pub use fit::NodeResourcesFit;
pub use node_affinity::NodeAffinity;
pub use node_name::NodeName;
pub use node_ports::NodePorts;
pub use node_unschedulable::NodeUnschedulable;
pub use taint_toleration::TaintToleration;
