//! Versions of the cluster, and the drafts that write them.
//!
//! A [`Snapshot`] is frozen: it is consistent and immutable, and its owner may hold it for any time. A draft is the
//! same tree, and copies the parts that it changes. The writer has one draft, and each [`Fork`] has one. Both are read
//! through [`Cluster`], the one root of the node table, pods, names, zones, images, claims and the stores of other
//! objects.

mod account;
mod budgets;
mod changes;
pub(crate) mod chunk;
pub(crate) mod cluster;
pub mod cost;
mod custom;
mod dense;
mod departures;
pub(crate) mod draft;
mod dump;
mod epochs;
pub(crate) mod fork;
pub(crate) mod godel;
mod hash_index;
mod known;
mod lane;
pub(crate) mod node_info;
mod object_store;
mod objects;
mod per_chunk;
pub(crate) mod placed;
pub(crate) mod plan;
mod pod_index;
mod stores;
mod table;
mod tally;
mod tree;
mod victims;
mod zones;

pub(crate) use account::Account;
pub use changes::{ChangeKind, ChangedSince, FutureGeneration, NodeChange};
pub use chunk::{Chunk, Column, LANES, NodeSlot};
pub(crate) use chunk::{balanced, lanes, nth_lane, without_lowest};
pub(crate) use cluster::Lineage;
pub use cluster::ZoneInfo;
pub use cluster::{Cluster, Snapshot};
pub use custom::{CustomStores, PlacedPod, Store, StoreError, StoreFailure};
pub use draft::PartCount;
pub use dump::{AccountDump, Dump, NodeDump};
pub use fork::Fork;
pub use godel::{
    DeletionMark, DeletionMarks, GodelConfig, Movements, NodeLoad, PreemptionMark, PreemptionMarks,
    Reservations, ReservedPlace, SuggestedMovement, Suggestion,
};
pub(crate) use node_info::PodRef;
pub use node_info::{NodeInfo, PodInfo};
pub use object_store::{Keyed, ObjectEvent, ObjectStore};
pub(crate) use per_chunk::{Followed, PerChunk};
pub(crate) use placed::PlacedChunk;
pub(crate) use plan::Plan;
pub use plan::Recheck;
pub use stores::Objects;
pub(crate) use table::next_stamp;
pub(crate) use tally::{Hosts, InLane};
pub(crate) use victims::importance;
pub use victims::{Freed, Victims};

/// Access for the loom models to items that are not public.
#[cfg(loom)]
pub(crate) mod model {
    use super::departures::Departures;
    use super::pod_index::PodLookup;
    use crate::model::Generation;

    /// The writer's side of the pod index.
    pub struct PodIndexWriter {
        latest: PodLookup,
        departures: Departures,
    }

    /// The pod index as a version or a fork sees it.
    pub struct PodIndexVersion(PodLookup);

    impl Default for PodIndexWriter {
        fn default() -> PodIndexWriter {
            let departures = Departures::default();
            PodIndexWriter { latest: PodLookup::new(false), departures }
        }
    }

    impl PodIndexWriter {
        /// Adds a pod with this hash on the node with this slot.
        pub fn insert(&mut self, hash: u32, slot: u32) {
            self.latest.insert(u64::from(hash) << 32, slot, &mut self.departures);
        }

        /// Removes the pod as of version `now`.
        pub fn depart(&mut self, hash: u32, slot: u32, now: u64) {
            let hash = u64::from(hash) << 32;
            self.latest.remove(hash, slot, Generation(now), &mut self.departures);
        }

        /// Removes the entries that no version or fork needs.
        pub fn settle(&mut self) {
            self.latest.settle(&mut self.departures, usize::MAX);
        }

        /// Returns the number of departed pods whose entries remain in the index.
        pub fn waiting(&self) -> usize {
            self.departures.len()
        }

        /// Returns the index of the version `now`, which the writer publishes.
        pub fn version(&mut self, now: u64) -> PodIndexVersion {
            self.latest.turn(&mut self.departures, Generation(now));
            PodIndexVersion(self.latest.share())
        }
    }

    impl PodIndexVersion {
        /// Returns whether the version finds the slot under the hash.
        pub fn finds(&self, hash: u32, slot: u32) -> bool {
            self.0.find(u64::from(hash) << 32, |found| found == slot).is_some()
        }

        /// Returns the index of a fork of this version or fork.
        pub fn fork(&self) -> PodIndexVersion {
            let mut fork = self.0.share();
            fork.fork_off();
            PodIndexVersion(fork)
        }
    }
}
