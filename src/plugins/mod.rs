//! The plugins of kube-scheduler, one per file, with the same rules and messages (pkg/scheduler/framework/plugins,
//! 1.36).

#[cfg(feature = "k8s")]
mod args;
mod balanced_allocation;
mod default_binder;
mod fit;
pub(crate) mod gang_scheduling;
mod godel;
mod hints;
mod image_locality;
mod in_tree;
mod inter_pod_affinity;
mod ledger;
mod node_affinity;
mod node_declared_features;
mod node_name;
mod node_ports;
mod node_unschedulable;
pub mod preemption;
mod priority_sort;
mod scheduling_gates;
mod scored;
mod taint_toleration;
mod topology;
mod topology_spread;
mod volume_binding;
mod volume_limits;
mod volume_restrictions;
mod volume_zone;
mod volumes;

pub use balanced_allocation::NodeResourcesBalancedAllocation;
pub use default_binder::DefaultBinder;
pub use fit::{NodeResourcesFit, ScoringStrategy};
pub use gang_scheduling::GangScheduling;
pub use godel::{LoadAware, Measured, Percent, PodLauncher};
pub use image_locality::ImageLocality;
pub use in_tree::default_plugins;
pub use inter_pod_affinity::InterPodAffinity;
pub use node_affinity::NodeAffinity;
pub use node_declared_features::NodeDeclaredFeatures;
pub use node_name::NodeName;
pub use node_ports::NodePorts;
pub use node_unschedulable::NodeUnschedulable;
pub use preemption::DefaultPreemption;
pub use priority_sort::PrioritySort;
pub use scheduling_gates::SchedulingGates;
pub use scored::ResourceWeight;
pub use taint_toleration::TaintToleration;
pub use topology_spread::PodTopologySpread;
pub use volume_binding::VolumeBinding;
pub use volume_limits::NodeVolumeLimits;
pub use volume_restrictions::VolumeRestrictions;
pub use volume_zone::VolumeZone;
