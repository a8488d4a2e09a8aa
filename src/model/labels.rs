//! Labels: an immutable set of key-value pairs, sorted by key and stored in one string.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::hash::hash_of;

/// A type that looks up the value of a label by its key.
pub trait LabelLookup {
    /// Returns the value of `key`, or `None` if the label is absent.
    fn get(&self, key: &str) -> Option<&str>;
}

/// An immutable set of labels, sorted by key. A set is one pointer and cheap to clone.
///
/// All keys and values are stored in one string, so a set costs its characters plus 8 bytes per label. If a key occurs
/// several times, the last value wins.
#[derive(Clone)]
pub struct Labels(Option<Arc<Inner>>);

struct Inner {
    text: Box<str>,
    /// The end offsets in `text` of each label's key and value.
    ends: Box<[(u32, u32)]>,
    hash: u64,
}

impl Labels {
    /// The empty set, which allocates nothing.
    pub const EMPTY: Labels = Labels(None);

    /// Creates a set from `labels`. O(n log n).
    pub fn new<K: AsRef<str>, V: AsRef<str>>(labels: impl IntoIterator<Item = (K, V)>) -> Labels {
        let mut pairs: Vec<(K, V)> = labels.into_iter().collect();
        pairs.sort_by(|a, b| a.0.as_ref().cmp(b.0.as_ref()));
        let mut text = String::new();
        let mut ends = Vec::with_capacity(pairs.len());
        for (i, (key, value)) in pairs.iter().enumerate() {
            // The sort is stable, so the last of several equal keys is the last one given.
            if pairs.get(i + 1).is_some_and(|(next, _)| next.as_ref() == key.as_ref()) {
                continue;
            }
            text.push_str(key.as_ref());
            let key_end = text.len() as u32;
            text.push_str(value.as_ref());
            ends.push((key_end, text.len() as u32));
        }
        if ends.is_empty() {
            return Labels::EMPTY;
        }
        let hash = hash_of(&(&*text, &*ends));
        Labels(Some(Arc::new(Inner { text: text.into(), ends: ends.into(), hash })))
    }

    /// Returns the number of labels.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |inner| inner.ends.len())
    }

    /// Returns `true` if the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the value of `key`, or `None` if the label is absent. O(log n).
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        let inner = self.0.as_deref()?;
        let mut low = 0;
        let mut high = inner.ends.len();
        while low < high {
            let middle = low.midpoint(high);
            let (k, v) = inner.pair(middle);
            match k.cmp(key) {
                std::cmp::Ordering::Equal => return Some(v),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }

    /// Returns an iterator over the labels in key order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        (0..self.len()).map(|i| self.0.as_deref().map_or(("", ""), |inner| inner.pair(i)))
    }

    /// Returns the hash of the whole set, which is computed on creation.
    pub(crate) fn hash64(&self) -> u64 {
        self.0.as_ref().map_or(0, |inner| inner.hash)
    }
}

impl Inner {
    fn pair(&self, i: usize) -> (&str, &str) {
        let start = if i == 0 { 0 } else { self.ends[i - 1].1 as usize };
        let (key_end, value_end) = self.ends[i];
        (&self.text[start..key_end as usize], &self.text[key_end as usize..value_end as usize])
    }
}

impl LabelLookup for Labels {
    fn get(&self, key: &str) -> Option<&str> {
        Labels::get(self, key)
    }
}

impl Default for Labels {
    fn default() -> Labels {
        Labels::EMPTY
    }
}

impl PartialEq for Labels {
    fn eq(&self, other: &Labels) -> bool {
        match (&self.0, &other.0) {
            (None, None) => true,
            (Some(a), Some(b)) => {
                Arc::ptr_eq(a, b) || (a.hash == b.hash && a.ends == b.ends && a.text == b.text)
            }
            _ => false,
        }
    }
}

impl Eq for Labels {}

impl Hash for Labels {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash64());
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<K: AsRef<str>, V: AsRef<str>> FromIterator<(K, V)> for Labels {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(labels: I) -> Labels {
        Labels::new(labels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorted_and_last_value_wins() {
        let labels = Labels::new([("b", "1"), ("a", "2"), ("b", "3"), ("c", "")]);
        assert_eq!(labels.iter().collect::<Vec<_>>(), [("a", "2"), ("b", "3"), ("c", "")]);
        assert_eq!(labels.get("b"), Some("3"));
        assert_eq!(labels.get("c"), Some(""));
        assert_eq!(labels.get("d"), None);
    }

    #[test]
    fn labels_that_concatenate_to_the_same_text_differ() {
        assert_ne!(Labels::new([("ab", "c")]), Labels::new([("a", "bc")]));
    }
}
