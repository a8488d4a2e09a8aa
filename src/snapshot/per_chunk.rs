//! Values that were computed from chunks, kept from one version to the next.
//!
//! Between two scheduling cycles one chunk of many has changed. Within one [`Lineage`], a chunk's number and the
//! generation that last touched it determine its content. So a value that follows from a chunk's content holds until
//! that generation changes, and no answer can depend on whether it was kept. A tally (`src/snapshot/tally.rs`) is the
//! other way to keep a value per chunk: it lies in the chunk itself, so that all readers share it.

use crate::model::Generation;

use super::cluster::{Cluster, Lineage};

/// A value for each of some chunks.
pub(crate) struct PerChunk<T> {
    /// The versions that the chunks are of.
    line: Option<Lineage>,
    /// By the chunk's number, 1 more than the position of its value.
    places: Vec<u32>,
    /// Each with the generation that its chunk was last touched by.
    values: Vec<(Generation, T)>,
}

impl<T> PerChunk<T> {
    /// Forgets all values if they are of another lineage than this version. Returns whether they are of the same one.
    pub(crate) fn follow(&mut self, cluster: &Cluster) -> bool {
        let line = cluster.line();
        let is_same = self.line.as_ref() == Some(&line);
        if !is_same {
            self.clear();
            self.line = Some(line);
        }
        is_same
    }

    /// The value of a chunk as the generation `at` left it. O(1).
    #[inline]
    pub(crate) fn get(&self, chunk: u32, at: Generation) -> Option<&T> {
        let (known, value) = &self.values[self.place(chunk)?];
        (*known == at).then_some(value)
    }

    /// The place for the value of a chunk as the generation `at` left it. It contains the chunk's last value, or that of
    /// `new` if it had none. O(1) amortized.
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

    /// How many chunks have a value, whether or not it still holds.
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// Forgets all values. Their memory is used again.
    pub(crate) fn clear(&mut self) {
        self.places.clear();
        self.values.clear();
    }

    /// The bytes that values of so many chunks take if the chunks' numbers are below `numbers`.
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
        PerChunk { line: None, places: Vec::new(), values: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::node;
    use crate::{Config, Engine};

    #[test]
    fn a_value_holds_for_its_chunk_its_generation_and_its_lineage() {
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
