//! A list of pods whose versions share memory: it consists of blocks, and a new list takes over the blocks that are equal
//! to those of the list before it.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use portolan::model::{Pod, Uid};

/// A block ends after a pod whose hash is a multiple of this number, so that a pod that comes or goes changes one block.
const BLOCK: u64 = 16;

/// The largest number of pods in a block.
const MOST: usize = 64;

/// Pods in an order. A clone costs one reference count.
#[derive(Clone, Default)]
pub(crate) struct PodList {
    blocks: Arc<[Arc<[Pod]>]>,
    len: usize,
}

impl PodList {
    /// The list of these pods, which shares equal blocks with another list. O(pods).
    pub(crate) fn of(pods: Vec<Pod>, before: &PodList) -> PodList {
        let first = |block: &Arc<[Pod]>| block.first().map(|pod| pod.uid.clone());
        let known: HashMap<Uid, &Arc<[Pod]>> =
            before.blocks.iter().filter_map(|block| Some((first(block)?, block))).collect();
        let len = pods.len();
        let (mut blocks, mut block) = (Vec::new(), Vec::new());
        let mut end = |block: Vec<Pod>| {
            let same = block.first().and_then(|pod| known.get(&pod.uid));
            let same = same.filter(|known| known[..] == block[..]);
            blocks.push(same.map_or_else(|| block.into(), |known| Arc::clone(known)));
        };
        let hasher = BuildHasherDefault::<DefaultHasher>::default();
        for pod in pods {
            let ends = hasher.hash_one(&pod.uid).is_multiple_of(BLOCK);
            block.push(pod);
            if ends || block.len() == MOST {
                end(std::mem::take(&mut block));
            }
        }
        if !block.is_empty() {
            end(block);
        }
        let is_same = blocks.len() == before.blocks.len()
            && blocks.iter().zip(&*before.blocks).all(|(one, other)| Arc::ptr_eq(one, other));
        let blocks = if is_same { before.blocks.clone() } else { blocks.into() };
        PodList { blocks, len }
    }

    /// Whether both are the same list in memory.
    #[cfg(any(test, feature = "cluster"))]
    pub(crate) fn is_same(&self, other: &PodList) -> bool {
        Arc::ptr_eq(&self.blocks, &other.blocks) || (self.is_empty() && other.is_empty())
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[cfg(any(test, feature = "cluster"))]
    fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Pod> + Clone {
        self.blocks.iter().flat_map(|block| block.iter())
    }

    pub(crate) fn to_vec(&self) -> Vec<Pod> {
        self.iter().cloned().collect()
    }

    /// The pods of this list in blocks that the other list does not have. O(blocks + such pods).
    #[cfg(any(test, feature = "cluster"))]
    pub(crate) fn without_shared<'l>(&'l self, other: &PodList) -> impl Iterator<Item = &'l Pod> {
        let known: std::collections::HashSet<*const Pod> =
            other.blocks.iter().map(|block| block.as_ptr()).collect();
        let own = self.blocks.iter().filter(move |block| !known.contains(&block.as_ptr()));
        own.flat_map(|block| block.iter())
    }
}

#[cfg(test)]
mod tests {
    use portolan::model::pod;

    use super::*;

    fn pods(numbers: impl Iterator<Item = usize>) -> Vec<Pod> {
        numbers.map(|n| pod(format!("p{n}")).build()).collect()
    }

    #[test]
    fn equal_lists_are_one() {
        let first = PodList::of(pods(0..1000), &PodList::default());
        let again = PodList::of(pods(0..1000), &first);
        assert!(again.is_same(&first));
        assert_eq!((again.len(), again.iter().count()), (1000, 1000));
    }

    #[test]
    fn a_pod_that_comes_or_goes_changes_few_blocks() {
        let first = PodList::of(pods(0..1000), &PodList::default());
        for numbers in
            [(1..1000).collect(), (0..1001).collect(), [5000].into_iter().chain(0..1000).collect()]
        {
            let numbers: Vec<usize> = numbers;
            let next = PodList::of(pods(numbers.iter().copied()), &first);
            assert_eq!(next.to_vec(), pods(numbers.into_iter()));
            let new = next.without_shared(&first).count();
            assert!(new <= 2 * MOST, "{new} pods are not shared");
        }
    }
}
