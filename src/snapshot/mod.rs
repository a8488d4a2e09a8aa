//! One version of the cluster, and how it becomes the next.
//!
//! A [`Snapshot`] is frozen: consistent, immutable, held as long as its owner
//! likes. A draft is the same tree, copied where it is
//! written; the writer has one, and so has every [`Fork`]. Both are read
//! through [`Cluster`]: node table, pods, names, zones, images, claims and the
//! stores of other objects all hang off that one root.

mod changes;
pub(crate) mod chunk;
mod cluster;
pub mod cost;
pub(crate) mod draft;
mod dump;
mod fork;
mod hash_index;
mod hints;
mod lane;
mod node_info;
mod stores;
mod table;
mod tree;
mod zones;

pub use changes::{Change, ChangeKind, ChangedSince};
pub use chunk::{Chunk, Column, LANES, NodeSlot};
pub(crate) use chunk::{balanced, lanes};
pub(crate) use cluster::Line;
pub use cluster::{Cluster, ImageState, Snapshot, ZoneInfo};
pub use dump::{Dump, NodeDump};
pub use fork::Fork;
pub(crate) use node_info::Spot;
pub use node_info::{NodeInfo, PodInfo};
pub use stores::{Keyed, ObjectEvent, ObjectStore, Objects, Store};
