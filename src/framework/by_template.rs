//! A cache of one value per pod template, kept from one cycle to the next.
//!
//! Pods come in groups: the replicas of a Deployment share a template. The cache holds a bounded number of templates
//! and replaces them by second chance (the clock algorithm): a template is replaced when the hand reaches it and it has
//! not been used since the hand's last visit.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::FixedState;

use crate::model::Template;

/// A value for each of the recently used templates.
pub(crate) struct ByTemplate<T> {
    /// The index of each template's slot.
    indices: HashMap<Arc<Template>, usize, FixedState>,
    slots: Vec<Slot<T>>,
    /// The slot that the hand reaches next.
    hand: usize,
}

struct Slot<T> {
    template: Arc<Template>,
    value: T,
    /// Whether the template was used since the hand's last visit.
    is_used: bool,
}

impl<T: Default> ByTemplate<T> {
    /// Returns the template's value, and whether it is new. A new value is the default, or, if `most` templates are
    /// cached already, the old value of the template that it replaces, so that its memory can be reused. Amortized
    /// O(1).
    pub(crate) fn get(&mut self, template: &Arc<Template>, most: usize) -> (&mut T, bool) {
        let known = self.indices.get(template).copied();
        let index = known.unwrap_or_else(|| self.add(template, most.max(1)));
        let slot = &mut self.slots[index];
        slot.is_used = known.is_some();
        (&mut slot.value, known.is_none())
    }

    /// Returns whether the template has a value.
    pub(crate) fn knows(&self, template: &Arc<Template>) -> bool {
        self.indices.contains_key(template)
    }

    /// Assigns a slot to a template that has none.
    fn add(&mut self, template: &Arc<Template>, most: usize) -> usize {
        while self.slots.len() > most
            && let Some(gone) = self.slots.pop()
        {
            self.indices.remove(&gone.template);
        }
        let index = match self.slots.len() < most {
            true => {
                let template = template.clone();
                self.slots.push(Slot { template, value: T::default(), is_used: false });
                self.slots.len() - 1
            }
            false => {
                let index = self.least_used();
                self.indices.remove(&self.slots[index].template);
                self.slots[index].template = template.clone();
                index
            }
        };
        self.indices.insert(template.clone(), index);
        index
    }

    /// Returns the next slot that was not used since the hand's last visit.
    fn least_used(&mut self) -> usize {
        loop {
            let index = self.hand % self.slots.len();
            self.hand = index + 1;
            if !std::mem::take(&mut self.slots[index].is_used) {
                return index;
            }
        }
    }
}

impl<T> Default for ByTemplate<T> {
    fn default() -> ByTemplate<T> {
        ByTemplate { indices: HashMap::default(), slots: Vec::new(), hand: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::pod;

    #[test]
    fn bound_of_zero_caches_one_template() {
        let mut all: ByTemplate<usize> = ByTemplate::default();
        for cpu in [1, 2] {
            let template = pod("p").cpu(cpu).build().template.clone();
            assert!(all.get(&template, 0).1);
            assert!(!all.get(&template, 0).1);
            assert_eq!(all.slots.len(), 1);
        }
    }

    #[test]
    fn used_templates_outlive_unused_ones() {
        let templates: Vec<_> =
            (0..9).map(|cpu| pod("p").cpu(cpu).build().template.clone()).collect();
        let mut all: ByTemplate<usize> = ByTemplate::default();
        for (number, template) in templates.iter().enumerate() {
            let (value, is_new) = all.get(template, 3);
            assert!(is_new);
            *value = number;
            let (first, is_new) = all.get(&templates[0], 3);
            assert_eq!((*first, is_new), (0, false));
        }
        assert_eq!(all.slots.len(), 3);
        let (last, is_new) = all.get(&templates[8], 3);
        assert_eq!((*last, is_new), (8, false));
        assert!(all.get(&templates[4], 3).1);
    }

    #[test]
    fn smaller_bound_takes_effect_at_the_next_new_template() {
        let mut all: ByTemplate<()> = ByTemplate::default();
        let template = |cpu| pod("p").cpu(cpu).build().template.clone();
        for cpu in 0..8 {
            all.get(&template(cpu), 8);
        }
        all.get(&template(8), 2);
        assert_eq!((all.slots.len(), all.indices.len()), (2, 2));
        assert!(!all.get(&template(8), 2).1);
    }
}
