//! A cache of values that are computed from chunks, valid across versions.
//!
//! Between two scheduling cycles, few of the chunks change. Within one [`Lineage`], a chunk's number and the generation
//! that last changed it determine its contents. A value that depends only on the contents therefore stays valid until
//! that generation changes, and caching it cannot affect any result. A tally (`src/snapshot/tally.rs`) also caches a
//! value per chunk, but stores it in the chunk itself, so that all readers share it.
//!
//! A [`Plan`](super::Plan) belongs to the writer's lineage, but its generations are its own until the writer adopts it.
//! When another version is followed, the values of a plan that was not adopted are dropped, except for chunks that the
//! writer took over: these have another generation now.

use std::sync::Arc;

use crate::model::Generation;

use super::cluster::{Cluster, Lineage};
use super::plan::PlanId;

/// A cache entry for each of some chunks.
pub(crate) struct PerChunk<T> {
    /// The lineage of the versions that contain the chunks.
    lineage: Option<Lineage>,
    /// The plan that the last version belonged to.
    plan: Option<Arc<PlanId>>,
    /// No value computed outside `plan` has a greater generation.
    newest: Generation,
    /// The chunks whose values were computed from `plan`; may contain duplicates.
    planned: Vec<u32>,
    /// The position of each chunk's value plus 1, or 0 if there is none, by chunk number.
    places: Vec<u32>,
    /// The values, each with the generation that last changed its chunk. Those after the first `used` belong to no chunk
    /// and are kept for reuse.
    values: Vec<(Generation, T)>,
    used: usize,
}

/// The values that a cache keeps when it follows another version.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Followed {
    /// All values.
    All,
    /// All values except those of the listed chunks, which are outdated. Generations after this one denote other states
    /// than before: a plan was entered or left.
    Until(Generation, Vec<u32>),
    /// None.
    Nothing,
}

/// The generation of a value that is outdated. No log reaches it.
const OUTDATED: Generation = Generation(u64::MAX);

impl<T> PerChunk<T> {
    /// Prepares the cache for this version, and drops the values that do not hold in its lineage or plan.
    pub(crate) fn follow(&mut self, cluster: &Cluster) -> Followed {
        if self.lineage != Some(cluster.lineage()) {
            self.clear();
            self.lineage = Some(cluster.lineage());
            self.plan.clone_from(&cluster.plan);
            return Followed::Nothing;
        }
        let is_same = match (&self.plan, &cluster.plan) {
            (None, None) => true,
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            _ => false,
        };
        if is_same {
            return Followed::All;
        }
        let left = self.plan.take();
        self.plan.clone_from(&cluster.plan);
        let mut outdated = Vec::new();
        let mut since = left.and_then(|left| self.leave(&left, &mut outdated));
        if let Some(entered) = self.plan.as_ref().map(|plan| plan.since) {
            since = since.into_iter().chain([entered]).min();
            if entered < self.newest {
                // Another thread has followed newer versions.
                self.newest = entered;
                let chunks: Vec<u32> = self.chunks().collect();
                outdated.extend(
                    chunks
                        .into_iter()
                        .filter(|chunk| self.renumber_or_outdate(*chunk, entered, None)),
                );
            }
        }
        since.map_or(Followed::All, |since| Followed::Until(since, outdated))
    }

    /// Ends following a plan: renumbers its values or marks them as outdated. Returns the generation at which the plan
    /// started, unless all values of the plan are the writer's.
    fn leave(&mut self, plan: &PlanId, outdated: &mut Vec<u32>) -> Option<Generation> {
        let mut planned = std::mem::take(&mut self.planned);
        planned.sort_unstable();
        planned.dedup();
        if !plan.is_adopted() {
            outdated.extend(
                planned
                    .iter()
                    .filter(|chunk| self.renumber_or_outdate(**chunk, plan.since, Some(plan))),
            );
        }
        for chunk in planned {
            let at = self.place(chunk).map(|place| self.values[place].0);
            self.newest = self.newest.max(at.filter(|at| *at != OUTDATED).unwrap_or_default());
        }
        (!plan.is_adopted()).then_some(plan.since)
    }

    /// If the value of a chunk is newer than `since`, gives it the writer's generation that the plan maps it to, or
    /// marks it as outdated if there is none. Returns whether it marked the value.
    fn renumber_or_outdate(
        &mut self,
        chunk: u32,
        since: Generation,
        plan: Option<&PlanId>,
    ) -> bool {
        let Some(place) = self.place(chunk) else { return false };
        let at = &mut self.values[place].0;
        if *at <= since || *at == OUTDATED {
            return false;
        }
        let now = plan.and_then(|plan| plan.renumbered(chunk, *at));
        *at = now.unwrap_or(OUTDATED);
        now.is_none()
    }

    /// Returns an upper bound of the generations of the values, without those that were computed from the plan.
    pub(crate) fn newest(&self) -> Generation {
        self.newest
    }

    /// Returns the chunks that have a value.
    fn chunks(&self) -> impl Iterator<Item = u32> {
        let with = self.places.iter().enumerate().filter(|(_, place)| **place > 0);
        with.map(|(chunk, _)| chunk as u32)
    }

    /// Returns the value of a chunk that was last changed by the generation `at`, if it is cached. O(1).
    #[inline]
    pub(crate) fn get(&self, chunk: u32, at: Generation) -> Option<&T> {
        let (known, value) = &self.values[self.place(chunk)?];
        (*known == at).then_some(value)
    }

    /// Returns the value of an earlier state of the chunk than that of generation `at`, with the generation that last
    /// changed the chunk in that state. O(1).
    #[inline]
    pub(crate) fn earlier(&self, chunk: u32, at: Generation) -> Option<(Generation, &T)> {
        let (known, value) = &self.values[self.place(chunk)?];
        // An outdated value has the greatest generation.
        (*known < at).then_some((*known, value))
    }

    /// Like [`PerChunk::get`], for the caller to update.
    #[inline]
    pub(crate) fn get_mut(&mut self, chunk: u32, at: Generation) -> Option<&mut T> {
        let place = self.place(chunk)?;
        let (known, value) = &mut self.values[place];
        (*known == at).then_some(value)
    }

    /// Like [`PerChunk::get_mut`], for each of these chunks, none of which is named twice.
    pub(crate) fn get_each_mut(
        &mut self,
        wanted: impl Iterator<Item = (u32, Generation)>,
    ) -> Vec<Option<&mut T>> {
        let places: Vec<(Option<usize>, Generation)> =
            wanted.map(|(chunk, at)| (self.place(chunk), at)).collect();
        let mut values: Vec<_> = self.values[..self.used].iter_mut().map(Some).collect();
        let found = places.into_iter().map(|(place, at)| {
            let (known, value) = values[place?].take()?;
            (*known == at).then_some(value)
        });
        found.collect()
    }

    /// Returns the cache entry of a chunk that was last changed by the generation `at`, for the caller to update. It
    /// holds the chunk's previous value; otherwise a [forgotten](PerChunk::forget) value of any chunk, which the caller
    /// must overwrite, or that of `new`. O(1) amortized.
    #[inline]
    pub(crate) fn renew(&mut self, chunk: u32, at: Generation, new: impl FnOnce() -> T) -> &mut T {
        let place = self.place(chunk).unwrap_or_else(|| {
            let number = chunk as usize;
            if self.places.len() <= number {
                self.places.resize(number + 1, 0);
            }
            if self.used == self.values.len() {
                self.values.push((at, new()));
            }
            self.used += 1;
            self.places[number] = self.used as u32;
            self.used - 1
        });
        match self.plan {
            Some(_) => self.planned.push(chunk),
            None => self.newest = self.newest.max(at),
        }
        let (known, value) = &mut self.values[place];
        *known = at;
        value
    }

    /// Returns the number of cached values, including outdated ones.
    pub(crate) fn len(&self) -> usize {
        self.used
    }

    /// Drops all values, but keeps the memory for reuse.
    pub(crate) fn clear(&mut self) {
        self.forget();
        self.values.clear();
    }

    /// Empties the cache, but keeps the values for [`PerChunk::renew`] to reuse.
    pub(crate) fn forget(&mut self) {
        self.places.clear();
        self.planned.clear();
        self.used = 0;
        self.newest = Generation::ZERO;
    }

    /// Returns the size in bytes of the cache for `chunks` values if all chunk numbers are below `numbers`.
    pub(crate) fn bytes(chunks: usize, numbers: usize) -> usize {
        chunks * size_of::<(Generation, T)>() + numbers * size_of::<u32>()
    }

    fn place(&self, chunk: u32) -> Option<usize> {
        let place = *self.places.get(chunk as usize)?;
        (place as usize).checked_sub(1)
    }
}

impl<T> Default for PerChunk<T> {
    fn default() -> PerChunk<T> {
        PerChunk {
            lineage: None,
            plan: None,
            newest: Generation::ZERO,
            planned: Vec::new(),
            places: Vec::new(),
            values: Vec::new(),
            used: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Plan;
    use super::*;
    use crate::cache::{Config, Engine};
    use crate::model::node;

    #[test]
    fn a_value_is_valid_for_one_chunk_generation_and_lineage() {
        let (mut writer, _) = Engine::inline(Config::default());
        writer.add_node(node("a").build()).unwrap();
        let mut values = PerChunk::default();
        assert_eq!(values.follow(writer.cluster()), Followed::Nothing);
        *values.renew(3, Generation(7), || "") = "third";
        assert_eq!(values.get(3, Generation(7)), Some(&"third"));
        assert_eq!((values.get(3, Generation(8)), values.get(2, Generation(7))), (None, None));
        let earlier = |at| values.earlier(3, Generation(at));
        assert_eq!([earlier(7), earlier(6)], [None; 2]);
        assert_eq!(earlier(8), Some((Generation(7), &"third")));
        assert_eq!(*values.renew(3, Generation(8), || "new"), "third");
        assert_eq!((values.follow(writer.cluster()), values.len()), (Followed::All, 1));
        assert_eq!(values.follow(&writer.cluster().fork()), Followed::Nothing);
        assert_eq!(values.get(3, Generation(8)), None);
    }

    /// Returns a plan at the current version, and the generation of its next placement.
    fn plan(writer: &crate::cache::Writer) -> (Plan, Generation) {
        let plan = Plan::new(writer.cluster()).unwrap();
        let next = plan.generation().next();
        (plan, next)
    }

    #[test]
    fn values_of_a_plan_that_is_not_adopted_are_dropped() {
        let (mut writer, _) = Engine::inline(Config::default());
        writer.add_node(node("a").build()).unwrap();
        let now = writer.cluster().generation();
        let mut values = PerChunk::default();
        values.follow(writer.cluster());
        values.renew(1, now, || "before");
        values.renew(2, now, || "before");
        let (first, next) = plan(&writer);
        assert_eq!(values.follow(&first), Followed::Until(now, vec![]));
        *values.renew(2, next, || "") = "planned";
        values.renew(3, now, || "unchanged by the plan");
        assert_eq!(values.get(2, next), Some(&"planned"));
        let (second, _) = plan(&writer);
        assert_eq!(values.follow(&second), Followed::Until(now, vec![2]));
        assert_eq!((values.get(1, now), values.get(2, next)), (Some(&"before"), None));
        assert!(values.get(3, now).is_some());
        assert_eq!(values.follow(writer.cluster()), Followed::Until(now, vec![]));
        assert_eq!(values.follow(writer.cluster()), Followed::All);
    }

    #[test]
    fn a_plan_from_an_older_version_sees_no_newer_values() {
        let (mut writer, _) = Engine::inline(Config::default());
        writer.add_node(node("a").build()).unwrap();
        let (old, next) = plan(&writer);
        writer.add_node(node("b").build()).unwrap();
        let mut values = PerChunk::default();
        values.follow(writer.cluster());
        values.renew(1, next, || "the writer's");
        assert_eq!(values.follow(&old), Followed::Until(old.generation(), vec![1]));
        assert_eq!((values.get(1, next), values.earlier(1, next.next())), (None, None));
    }

    #[test]
    fn each_value_of_this_generation_is_found() {
        let mut values: PerChunk<char> = PerChunk::default();
        values.renew(3, Generation(7), || 'a');
        values.renew(5, Generation(7), || 'b');
        let wanted = [(3, 8), (2, 7), (9, 7), (5, 7)].map(|(n, at)| (n, Generation(at)));
        let found = values.get_each_mut(wanted.into_iter());
        assert_eq!(found, [None, None, None, Some(&mut 'b')]);
        values.forget();
        assert_eq!((values.get(3, Generation(7)), values.len()), (None, 0));
        assert_eq!(*values.renew(5, Generation(8), || 'c'), 'a', "the memory is reused");
        let wanted = [(3, 7), (5, 8)].map(|(n, at)| (n, Generation(at)));
        assert_eq!(values.get_each_mut(wanted.into_iter()), [None, Some(&mut 'a')]);
    }
}
