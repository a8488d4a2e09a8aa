//! A cache of values that are computed from chunks, valid across versions.
//!
//! Between two scheduling cycles, few of the chunks change. Within one [`Lineage`], a chunk's number and the generation
//! that last changed it determine its contents. A value that depends only on the contents therefore stays valid until
//! that generation changes, and caching it cannot affect any result. A tally (`src/snapshot/tally.rs`) also caches a
//! value per chunk, but stores it in the chunk itself, so that all readers share it.

use crate::model::Generation;

use super::cluster::{Cluster, Lineage};

/// A cache entry for each of some chunks.
pub(crate) struct PerChunk<T> {
    /// The lineage of the versions that contain the chunks.
    lineage: Option<Lineage>,
    /// The position of each chunk's value plus 1, or 0 if there is none, by chunk number.
    places: Vec<u32>,
    /// The values, each with the generation that last changed its chunk.
    values: Vec<(Generation, T)>,
}

impl<T> PerChunk<T> {
    /// Switches to the lineage of this version, and drops all values if it is a different one. Returns `true` if the
    /// lineage is the same.
    pub(crate) fn follow(&mut self, cluster: &Cluster) -> bool {
        let lineage = cluster.lineage();
        let is_same = self.lineage.as_ref() == Some(&lineage);
        if !is_same {
            self.clear();
            self.lineage = Some(lineage);
        }
        is_same
    }

    /// Returns the value of a chunk that was last changed by the generation `at`, if it is cached. O(1).
    #[inline]
    pub(crate) fn get(&self, chunk: u32, at: Generation) -> Option<&T> {
        let (known, value) = &self.values[self.place(chunk)?];
        (*known == at).then_some(value)
    }

    /// Returns the cache entry of a chunk that was last changed by the generation `at`, for the caller to update. It
    /// contains the chunk's previous value, or the value of `new` if there is none. O(1) amortized.
    #[inline]
    pub(crate) fn renew(&mut self, chunk: u32, at: Generation, new: impl FnOnce() -> T) -> &mut T {
        let place = self.place(chunk).unwrap_or_else(|| {
            let number = chunk as usize;
            if self.places.len() <= number {
                self.places.resize(number + 1, 0);
            }
            self.values.push((at, new()));
            self.places[number] = self.values.len() as u32;
            self.values.len() - 1
        });
        let (known, value) = &mut self.values[place];
        *known = at;
        value
    }

    /// Returns the number of cached values, including outdated ones.
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// Drops all values, but keeps the memory for reuse.
    pub(crate) fn clear(&mut self) {
        self.places.clear();
        self.values.clear();
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
        PerChunk { lineage: None, places: Vec::new(), values: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::node;
    use crate::{Config, Engine};

    #[test]
    fn a_value_is_valid_for_one_chunk_generation_and_lineage() {
        let (mut writer, _) = Engine::inline(Config::default());
        writer.add_node(node("a").build()).unwrap();
        let mut values = PerChunk::default();
        assert!(!values.follow(writer.cluster()));
        *values.renew(3, Generation(7), || "") = "third";
        assert_eq!(values.get(3, Generation(7)), Some(&"third"));
        assert_eq!((values.get(3, Generation(8)), values.get(2, Generation(7))), (None, None));
        assert_eq!(*values.renew(3, Generation(8), || "new"), "third");
        assert!(values.follow(writer.cluster()) && values.len() == 1);
        assert!(!values.follow(&writer.cluster().fork()));
        assert_eq!(values.get(3, Generation(8)), None);
    }
}
