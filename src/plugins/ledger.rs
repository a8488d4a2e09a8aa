//! Incrementally maintained sums: they are kept from one cycle to the next and updated by what has changed since.
//!
//! Typically only one of many chunks changes between two cycles. A ledger therefore stores each chunk's contribution to
//! the sums. When a chunk changes, its old contribution is subtracted and the chunk is counted again, so a cycle costs
//! as much as the change and not as much as the cluster. Everything is counted again if the layout changes, if an
//! object that the counting reads changes, or if the version belongs to another lineage.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::framework::ByTemplate;
use crate::model::{Generation, Template};
use crate::snapshot::{Chunk, Cluster, Followed, Lineage, PerChunk, next_stamp};

use super::topology::{Domain, Keys};

/// The contribution of a chunk: which sum, which domain, and how much.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Part(Vec<(usize, Domain, i64)>);

impl Part {
    pub(super) fn add(&mut self, at: usize, domain: Domain, amount: i64) {
        // The lanes of a chunk are mostly in one domain, or each in its own.
        let mut last = self.0.iter_mut().rev().take(4);
        match last.find(|(sums, known, _)| (*sums, *known) == (at, domain)) {
            Some((_, _, known)) => *known += amount,
            None => self.0.push((at, domain, amount)),
        }
    }
}

/// The sums that one plugin keeps for one question about a cluster.
#[derive(Default)]
pub(super) struct Ledger {
    /// The layout of the versions counted, and the generation of the newest object that was read.
    of: Option<(u64, Generation)>,
    /// The generation of the version that was counted last.
    at: Generation,
    keys: Keys,
    parts: PerChunk<Part>,
    /// The number of entries in all parts.
    entries: usize,
    /// See [`Ledger::version`].
    version: u64,
    spare: Part,
}

impl Ledger {
    /// Updates the sums to this version, and returns them with whether any chunk contributes anything. `reads` is the
    /// generation of the newest object that the counting reads, `start` creates the sums, and `count` adds a chunk's
    /// contribution to a part and may create more sums.
    pub(super) fn follow(
        &mut self,
        cluster: &Cluster,
        reads: Generation,
        start: impl FnOnce(&mut Keys),
        mut count: impl FnMut(&mut Keys, &Chunk, &mut Part),
    ) -> (&Keys, bool) {
        let of = Some((cluster.layout(), reads));
        let followed = self.parts.follow(cluster);
        if let Followed::Until(since, _) = &followed {
            self.at = self.at.min(*since);
        }
        let is_known = followed != Followed::Nothing && self.of == of;
        // Values may be newer than the version counted last if chunks of a plan were taken over. An older version must
        // then be counted anew.
        let newest = self.at.max(self.parts.newest());
        if is_known && newest <= cluster.generation() {
            if let Followed::Until(_, outdated) = followed {
                for id in outdated {
                    // The layout is the same, so the chunk exists.
                    if let Some((at, chunk)) = cluster.listed_chunk(id) {
                        self.update((id, at), chunk, &mut count);
                    }
                }
            }
            // The version counted last may have changed since without another generation: the check of a placement
            // sees the state before the placement, under the placement's generation.
            let before = Generation(self.at.0.saturating_sub(1));
            for (id, at, chunk) in cluster.chunks_newer_than(before) {
                self.update((id, at), chunk, &mut count);
            }
        } else {
            self.parts.clear();
            let parts = std::mem::take(&mut self.parts);
            *self = Ledger { of, parts, version: next_stamp(), ..Ledger::default() };
            start(&mut self.keys);
            for (id, at, chunk) in cluster.chunk_list() {
                self.update((id, at), chunk, &mut count);
            }
        }
        self.at = cluster.generation();
        (&self.keys, self.entries > 0)
    }

    /// Identifies which domains have a positive sum, and whether any domain of a key has. A domain of a single node
    /// does not count: its sum changes together with the node. Whenever the version changes, it becomes greater than
    /// all versions of all ledgers; it is 0 before anything is counted.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    fn update(
        &mut self,
        (id, at): (u32, Generation),
        chunk: &Chunk,
        count: &mut impl FnMut(&mut Keys, &Chunk, &mut Part),
    ) {
        if self.parts.get(id, at).is_some() {
            return;
        }
        let mut new = std::mem::take(&mut self.spare);
        count(&mut self.keys, chunk, &mut new);
        let part = self.parts.renew(id, at, Part::default);
        if *part != new {
            self.entries = self.entries + new.0.len() - part.0.len();
            // Adds first, so that a sum that stays positive is never 0 in between.
            let added = new.0.iter().map(|(sum, domain, amount)| (*sum, *domain, *amount));
            let removed = part.0.iter().map(|(sum, domain, amount)| (*sum, *domain, -amount));
            let mut has_crossed = false;
            for (sum, domain, amount) in added.chain(removed) {
                has_crossed |= self.keys.0[sum].count(domain, amount);
            }
            if has_crossed {
                self.version = next_stamp();
            }
            std::mem::swap(part, &mut new);
        }
        new.0.clear();
        self.spare = new;
    }
}

/// The largest number of chunks whose templates or label sets are asked one by one. If more chunks are counted, a pass
/// over all templates or label sets is worth its cost, and serves later cycles until some of them come or go.
pub(super) const FEW: usize = 4;

/// Which templates or label sets of a version count.
#[derive(Default)]
pub(super) struct Selection<T> {
    /// The lineage, the stamp of the templates or label sets, and the generation of the objects for which `all` holds.
    of: Option<(Lineage, u64, Generation)>,
    pub(super) all: T,
}

impl<T> Selection<T> {
    pub(super) fn new(cluster: &Cluster, stamp: u64, reads: Generation, all: T) -> Selection<T> {
        Selection { of: Some((cluster.lineage(), stamp, reads)), all }
    }

    pub(super) fn is_current(&self, cluster: &Cluster, stamp: u64, reads: Generation) -> bool {
        self.of == Some((cluster.lineage(), stamp, reads))
    }
}

/// The number of templates to cache ledgers for, in each slot: they take memory for each chunk of the cluster.
pub(super) const MAX_TEMPLATES: usize = 64;

/// The number of slots for the values of different threads.
const SLOTS: usize = 8;

/// A value of each thread, up to the number of [`SLOTS`].
///
/// Schedulers on several threads may share a plugin. With the same values they would wait for each other, and their
/// plans start at different versions, so each would repeat counts that another made for its plan. A thread therefore
/// uses the slot of its number, modulo [`SLOTS`]; two threads may share one, and then wait for each other.
pub(super) struct PerThread<T>([Mutex<T>; SLOTS]);

/// Returns the number of this thread among those that have called this function.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        // Relaxed: only the numbers must differ.
        static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}

impl<T: Default> PerThread<T> {
    /// Calls `work` with the thread's value. Holds the lock of the thread's slot meanwhile.
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let own = &self.0[thread_number() % SLOTS];
        let mut value = own.lock().unwrap_or_else(|poisoned| {
            // A panic may have left the value half updated.
            own.clear_poison();
            let mut value = poisoned.into_inner();
            *value = T::default();
            value
        });
        work(&mut value)
    }
}

impl<T: Default> PerThread<ByTemplate<T>> {
    /// Calls `work` with the value that the thread caches for this template from one cycle to the next, among those of
    /// at most `most` templates. Decisions must not depend on whether a value is cached.
    pub(super) fn with_template<R>(
        &self,
        template: &Arc<Template>,
        most: usize,
        work: impl FnOnce(&mut T) -> R,
    ) -> R {
        self.with(|all| {
            let (one, is_new) = all.get(template, most);
            if is_new {
                *one = T::default();
            }
            work(one)
        })
    }
}

impl<T: Default> Default for PerThread<T> {
    fn default() -> PerThread<T> {
        PerThread(Default::default())
    }
}

/// A cloned plugin starts without values.
impl<T: Default> Clone for PerThread<T> {
    fn clone(&self) -> PerThread<T> {
        PerThread::default()
    }
}

impl<T> fmt::Debug for PerThread<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PerThread")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{Config, Engine, Writer};
    use crate::log::{Event, Prepared};
    use crate::model::{Pod, node, pod};
    use crate::snapshot::{NodeSlot, Plan, lanes};

    /// A writer with a node in each of two zones, and therefore chunks.
    fn writer() -> Writer {
        let (mut writer, _) = Engine::inline(Config::default());
        for name in ["a", "b"] {
            let node = node(name).zone(name).cpu(1_000).memory(1 << 30).build();
            writer.add_node(node).unwrap();
        }
        writer
    }

    /// Counts the pods of a version by zone, and returns their number.
    fn count(ledger: &mut Ledger, cluster: &Cluster) -> i64 {
        let start = |keys: &mut Keys| {
            keys.at(cluster, &"topology.kubernetes.io/zone".into());
        };
        let (keys, _) = ledger.follow(cluster, Generation(0), start, |keys, chunk, part| {
            for lane in lanes(chunk.live()) {
                let domain = keys.0[0].topology.domain_in(chunk, lane).unwrap();
                part.add(0, domain, i64::from(chunk.pods()[lane]));
            }
        });
        keys.0[0].total()
    }

    fn planned(writer: &Writer, nodes: &[&str]) -> (Plan, Vec<Arc<Pod>>) {
        let mut plan = Plan::new(writer.cluster()).unwrap();
        let pods = nodes.iter().map(|name| pod(format!("on-{name}")).on(*name).build());
        let pods: Vec<Arc<Pod>> = pods.map(Arc::new).collect();
        pods.iter().for_each(|pod| plan.assume(pod, NodeSlot::default()).unwrap());
        (plan, pods)
    }

    #[test]
    fn a_plan_is_counted_from_its_start_although_newer_versions_were_counted() {
        let mut writer = writer();
        let mut ledger = Ledger::default();
        let (plan, _) = planned(&writer, &["a", "b"]);
        // Events that change no chunk.
        for name in ["x", "y"] {
            writer.apply(&Event::put_pending(pod(name).build())).unwrap();
        }
        assert_eq!(count(&mut ledger, writer.cluster()), 0);
        assert_eq!(count(&mut ledger, &plan), 2);
        assert_eq!(count(&mut ledger, writer.cluster()), 0);
    }

    #[test]
    fn an_older_version_has_no_pods_of_chunks_that_were_taken_over_later() {
        let (mut writer, mut ledger) = (writer(), Ledger::default());
        let since = writer.cluster().generation();
        assert_eq!(count(&mut ledger, writer.cluster()), 0);
        let (plan, pods) = planned(&writer, &["a"]);
        assert_eq!(count(&mut ledger, &plan), 1);
        writer.add_pod(pod("other").on("b").build()).unwrap();
        writer.publish();
        let older = writer.reader().snapshot();
        let prepared = Prepared::new(plan);
        let event = Event::AssumeEach { pods: pods.into(), decided_on: Some(since), prepared };
        assert_eq!(writer.apply(&event).unwrap().added, 1);
        assert_eq!(count(&mut ledger, &older), 1);
        assert_eq!(count(&mut ledger, writer.cluster()), 2);
    }

    #[test]
    fn threads_have_values_of_their_own() {
        let values = PerThread::<ByTemplate<usize>>::default();
        let template = pod("p").build().template.clone();
        let add = || {
            values.with_template(&template, 1, |value| {
                *value += 1;
                *value
            })
        };
        assert_eq!(add(), 1);
        // Some threads share a slot with this one, but not all.
        let firsts = (0..4 * SLOTS).filter(|_| {
            std::thread::scope(|scope| scope.spawn(|| (add(), add())).join().unwrap() == (1, 2))
        });
        assert!(firsts.count() > 0);
        assert!(add() > 1);
    }

    #[test]
    fn a_panic_discards_the_values_of_its_thread_once() {
        let values = PerThread::<ByTemplate<usize>>::default();
        let template = pod("p").build().template.clone();
        let add = |by: usize| {
            values.with_template(&template, 1, |value| {
                *value += by;
                *value
            })
        };
        assert_eq!(add(1), 1);
        let panic = || {
            values.with_template(&template, 1, |value| {
                *value += 100;
                panic!("halfway")
            })
        };
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panic)).is_err());
        assert_eq!([add(1), add(1)], [1, 2]);
    }
}
