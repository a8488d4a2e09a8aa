//! One version of the cluster, and how it becomes the next.
//!
//! A [`Snapshot`] is frozen: consistent, immutable, held as long as its owner
//! likes. A draft is the same tree, copied where it is
//! written; the writer has one, and so has every [`Fork`]. Both are read
//! through [`Cluster`]: node table, pods, names, zones, images, claims and the
//! stores of other objects all hang off that one root.

mod account;
mod budgets;
mod changes;
pub(crate) mod chunk;
mod cluster;
pub mod cost;
mod dense;
mod departures;
pub(crate) mod draft;
mod dump;
mod fork;
pub(crate) mod godel;
mod hash_index;
mod hints;
mod lane;
mod load;
mod node_info;
mod numa;
mod objects;
mod stores;
mod table;
mod tally;
mod tree;
mod victims;
mod zones;

pub use account::Account;
pub use changes::{Change, ChangeKind, ChangedSince};
pub use chunk::{Chunk, Column, LANES, NodeSlot};
pub(crate) use chunk::{balanced, lanes};
pub(crate) use cluster::Line;
pub use cluster::{Cluster, ImageState, Snapshot, ZoneInfo};
pub use draft::PartCount;
pub use dump::{AccountDump, Dump, NodeDump};
pub use fork::Fork;
pub use godel::{
    DeletionMark, DeletionMarks, GodelConfig, Movements, PreemptionMark, PreemptionMarks,
    Reservations, ReservedPlace, SuggestedMovement, Suggestion,
};
pub use load::NodeLoad;
pub(crate) use node_info::Spot;
pub use node_info::{NodeInfo, PodInfo};
pub use numa::{NumaAllocation, NumaResource, NumaStatus, NumaTopology};
pub use stores::{Keyed, ObjectEvent, ObjectStore, Objects, Store};
pub(crate) use tally::Hosts;
pub(crate) use victims::importance;
pub use victims::{Freed, Victims};

/// What the models reach of this module beyond its public face.
#[cfg(loom)]
pub(crate) mod model {
    use super::departures::Departures;
    use super::hints::Hints;
    use crate::model::Generation;

    /// The writer's end of the index of pods.
    #[derive(Default)]
    pub struct HintsWriter {
        latest: Hints,
        departures: Departures,
    }

    /// The index as a version has it.
    pub struct HintsVersion(Hints);

    impl HintsWriter {
        /// A pod with this hash comes to this slot.
        pub fn insert(&mut self, hash: u32, slot: u32) {
            self.latest.insert(u64::from(hash) << 32, slot, &mut self.departures);
        }

        /// The pod goes with version `now`.
        pub fn depart(&mut self, hash: u32, slot: u32, now: u64) {
            let hash = u64::from(hash) << 32;
            self.latest.depart(hash, slot, Generation(now), &mut self.departures);
        }

        /// Nobody holds a version before this one.
        pub fn settle(&mut self, horizon: u64) {
            self.latest.settle(&mut self.departures, Generation(horizon), usize::MAX);
        }

        /// What a version that is published now has.
        pub fn version(&self) -> HintsVersion {
            HintsVersion(self.latest.clone())
        }
    }

    impl HintsVersion {
        /// Whether the version is told of this slot.
        pub fn finds(&self, hash: u32, slot: u32) -> bool {
            self.0.find(u64::from(hash) << 32, |found| found == slot).is_some()
        }
    }
}
