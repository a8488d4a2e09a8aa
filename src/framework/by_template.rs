//! What is remembered for pods of one template, from one cycle to the next.
//!
//! Pods come in crowds: the replicas of a deployment share a template. A bounded number of templates is remembered, and
//! which of them are follows from their use by second chance, the clock algorithm: a template is replaced when its turn
//! comes and it was not used again since its last turn.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::FixedState;

use crate::model::Template;

/// A value for each of the templates that were used lately.
pub(crate) struct ByTemplate<T> {
    /// Positions among the slots.
    places: HashMap<Arc<Template>, usize, FixedState>,
    slots: Vec<Slot<T>>,
    /// The slot whose turn is next.
    hand: usize,
}

struct Slot<T> {
    template: Arc<Template>,
    value: T,
    /// Whether it was used again since its last turn.
    is_used: bool,
}

impl<T: Default> ByTemplate<T> {
    /// The template's value, and whether it is new: a default value, or, if `most` templates are remembered already,
    /// the value of the template that it replaces, for its memory. Amortized O(1).
    pub(crate) fn get(&mut self, template: &Arc<Template>, most: usize) -> (&mut T, bool) {
        let known = self.places.get(template).copied();
        let place = known.unwrap_or_else(|| self.add(template, most.max(1)));
        let slot = &mut self.slots[place];
        slot.is_used = known.is_some();
        (&mut slot.value, known.is_none())
    }

    /// A slot for a template that has none.
    fn add(&mut self, template: &Arc<Template>, most: usize) -> usize {
        while self.slots.len() > most
            && let Some(gone) = self.slots.pop()
        {
            self.places.remove(&gone.template);
        }
        let place = match self.slots.len() < most {
            true => {
                let template = template.clone();
                self.slots.push(Slot { template, value: T::default(), is_used: false });
                self.slots.len() - 1
            }
            false => {
                let place = self.least_used();
                self.places.remove(&self.slots[place].template);
                self.slots[place].template = template.clone();
                place
            }
        };
        self.places.insert(template.clone(), place);
        place
    }

    /// The next slot that was not used again since its last turn.
    fn least_used(&mut self) -> usize {
        loop {
            let place = self.hand % self.slots.len();
            self.hand = place + 1;
            if !std::mem::take(&mut self.slots[place].is_used) {
                return place;
            }
        }
    }
}

impl<T> Default for ByTemplate<T> {
    fn default() -> ByTemplate<T> {
        ByTemplate { places: HashMap::default(), slots: Vec::new(), hand: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::pod;

    #[test]
    fn a_template_that_is_used_outlives_others() {
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
    fn a_smaller_bound_holds_from_the_next_new_template_on() {
        let mut all: ByTemplate<()> = ByTemplate::default();
        let template = |cpu| pod("p").cpu(cpu).build().template.clone();
        (0..8).for_each(|cpu| drop(all.get(&template(cpu), 8)));
        all.get(&template(8), 2);
        assert_eq!((all.slots.len(), all.places.len()), (2, 2));
        assert!(!all.get(&template(8), 2).1);
    }
}
