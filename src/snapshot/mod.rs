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
mod lane;
mod leases;
mod node_info;
mod objects;
mod per_chunk;
mod pod_index;
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
pub(crate) use cluster::Lineage;
pub use cluster::{Cluster, ImageState, Snapshot, ZoneInfo};
pub use draft::PartCount;
pub use dump::{AccountDump, Dump, NodeDump};
pub use fork::Fork;
pub use godel::{
    DeletionMark, DeletionMarks, GodelConfig, Movements, NodeLoad, NumaAllocation, NumaResource,
    NumaStatus, NumaTopology, PreemptionMark, PreemptionMarks, Reservations, ReservedPlace,
    SuggestedMovement, Suggestion,
};
pub(crate) use node_info::PodRef;
pub use node_info::{NodeInfo, PodInfo};
pub(crate) use per_chunk::PerChunk;
pub use stores::{Keyed, ObjectEvent, ObjectStore, Objects, Store};
pub(crate) use tally::Hosts;
pub(crate) use victims::importance;
pub use victims::{Freed, Victims};

/// What the models reach of this module beyond its public face.
#[cfg(loom)]
pub(crate) mod model {
    use std::sync::Arc;

    use super::departures::Departures;
    use super::leases::Leases;
    use super::pod_index::Uids;
    use crate::model::Generation;

    /// The writer's end of the index of pods.
    pub struct PodIndexWriter {
        latest: Uids,
        departures: Departures,
        leases: Arc<Leases>,
    }

    /// The index as a version or a fork has it.
    pub struct PodIndexVersion(Uids, Arc<Leases>);

    impl Default for PodIndexWriter {
        fn default() -> PodIndexWriter {
            let departures = Departures::default();
            PodIndexWriter { latest: Uids::new(), departures, leases: Arc::default() }
        }
    }

    impl PodIndexWriter {
        /// A pod with this hash comes to this slot.
        pub fn insert(&mut self, hash: u32, slot: u32) {
            self.latest.insert(u64::from(hash) << 32, slot, &mut self.departures);
        }

        /// The pod goes with version `now`.
        pub fn depart(&mut self, hash: u32, slot: u32, now: u64) {
            let hash = u64::from(hash) << 32;
            self.latest.remove(hash, slot, Generation(now), &mut self.departures);
        }

        /// Nobody holds a version before this one.
        pub fn settle(&mut self, held: u64) {
            let held = Generation(held);
            self.latest.settle(&mut self.departures, &self.leases, held, usize::MAX);
        }

        /// The same, of the writer that published version `now`.
        pub fn set_horizon(&mut self, held: u64, now: u64) {
            let (held, now) = (Generation(held), Generation(now));
            let most = self.departures.at_once();
            self.latest.set_horizon(&mut self.departures, &self.leases, held, now, most);
        }

        /// How many pods went and are still to be found.
        pub fn waiting(&self) -> usize {
            self.departures.len()
        }

        /// What a version that is published now has.
        pub fn version(&self) -> PodIndexVersion {
            PodIndexVersion(self.latest.share(), self.leases.clone())
        }
    }

    impl PodIndexVersion {
        /// Whether the version is told of this slot.
        pub fn finds(&self, hash: u32, slot: u32) -> bool {
            self.0.find(u64::from(hash) << 32, |found| found == slot).is_some()
        }

        /// A fork of this version or fork.
        pub fn fork(&self) -> PodIndexVersion {
            let mut fork = self.0.share();
            fork.fork_off(&self.1);
            PodIndexVersion(fork, self.1.clone())
        }
    }
}
