//! Dynamic resource allocation (DRA): devices, resource claims, and kube-scheduler's plugin DynamicResources.
//!
//! The crate is a user of portolan's public interfaces. [`Devices`] is a custom store, so every version, fork and
//! commit check sees the claims and devices as they are in that version. [`DynamicResources`] is a plugin.
//!
//! | module | contents |
//! |---|---|
//! | [`model`] | device classes, resource slices and resource claims of `resource.k8s.io/v1` |
//! | [`store`] | the store: classes, slices by pool, claims, and the devices that are allocated |
//! | [`cel`] | compiles and evaluates the CEL expressions by which device classes and claims select devices |
//! | [`allocator`] | the search for devices: pools of a node, constraints, counters, capacity, taints |
//! | [`plugin`] | the extension points of DynamicResources, and the trait by which it acts on a cluster |
//!
//! The rules are those of kube-scheduler 1.36.3 with its default feature gates.

pub mod allocator;
pub mod cel;
pub mod model;
pub mod plugin;
pub mod store;

pub use plugin::DynamicResources;
pub use store::Devices;
