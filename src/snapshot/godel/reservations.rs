//! Places on nodes that are held for pods to come.
//!
//! A place is known by its placeholder (whose pods may have it), by the pod that
//! holds it, and by its node. That pod is in the node table like any other, so that
//! filters see what it takes, and gives way to the successor that names it.

use std::sync::Arc;

use crate::model::{Generation, Name, Pod, Uid, hash_of};

use super::super::cost;
use super::super::hash_index::HashIndex;
use super::super::table::Table;

/// A place that is held, or that a pod has taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservedPlace {
    /// Whose pods may have it.
    pub placeholder: Name,
    /// The pod that holds it. It is on its node until another takes the place.
    pub pod: Pod,
    /// The pod that took it, if one has.
    pub matched: Option<Uid>,
    /// Whether a Reservation says that it is held; else it is held for a time, until
    /// one does.
    pub confirmed: bool,
}

impl ReservedPlace {
    /// The node.
    #[must_use]
    pub fn node(&self) -> &str {
        self.pod.node_name.as_deref().unwrap_or_default()
    }

    /// Whether it is to be had.
    #[must_use]
    pub fn is_available(&self) -> bool {
        self.matched.is_none()
    }

    fn is(&self, id: PlaceId<'_>) -> bool {
        self.id() == id
    }

    fn id(&self) -> PlaceId<'_> {
        PlaceId {
            placeholder: &self.placeholder,
            namespace: self.pod.namespace(),
            name: &self.pod.name,
            node: self.node(),
        }
    }
}

/// What a place is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PlaceId<'a> {
    pub(crate) placeholder: &'a str,
    /// Namespace and name of the pod that holds it.
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) node: &'a str,
}

/// All places that are held, and those that were taken from their holders.
#[derive(Clone, Default)]
pub struct Reservations {
    places: Table<Arc<ReservedPlace>>,
    by_id: HashIndex,
    /// Those that are to be had.
    by_placeholder: HashIndex,
    /// The others, by the pods that took them.
    by_taker: HashIndex,
    /// Numbers are not given out twice: who kept one finds its place, or none.
    next: u32,
    len: usize,
    generation: Generation,
}

impl Reservations {
    /// Reference counts that a clone bumps.
    pub(crate) const COUNTS: usize = 4;

    /// The places that pods with this placeholder can have, the oldest first. O(places
    /// found × log n).
    pub fn available(&self, placeholder: &str) -> impl Iterator<Item = &Arc<ReservedPlace>> {
        let numbers = self.by_placeholder.numbers(hash_of(placeholder));
        let places = numbers.filter_map(|number| self.places.get(number));
        places.filter(move |place| *place.placeholder == *placeholder)
    }

    /// The place that a pod of this name holds for a placeholder on a node. O(log n).
    #[must_use]
    pub fn get(
        &self,
        placeholder: &str,
        (namespace, name): (&str, &str),
        node: &str,
    ) -> Option<&Arc<ReservedPlace>> {
        self.places.get(self.number(PlaceId { placeholder, namespace, name, node })?)
    }

    /// All of them, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<ReservedPlace>> {
        self.places.iter().map(|(_, place)| place)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// When one last changed.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    pub(crate) fn number(&self, id: PlaceId<'_>) -> Option<u32> {
        self.by_id.find(hash_of(&id), |number| self.at(number).is_some_and(|place| place.is(id)))
    }

    pub(crate) fn at(&self, number: u32) -> Option<&Arc<ReservedPlace>> {
        self.places.get(number)
    }

    /// The place that a pod took on a node.
    pub(crate) fn taken_by(&self, taker: &Uid, node: &str) -> Option<u32> {
        let numbers = self.by_taker.numbers(hash_of(taker));
        let places = numbers.filter_map(|number| self.at(number).map(|place| (place, number)));
        let taken = places
            .filter(|(place, _)| place.matched.as_ref() == Some(taker) && place.node() == node);
        // More than one only where a pod of this uid was there before.
        let key = |place: &ReservedPlace| (place.placeholder.clone(), place.pod.key());
        taken.min_by(|(one, _), (other, _)| key(one).cmp(&key(other))).map(|(_, number)| number)
    }

    pub(crate) fn has_room(&self) -> bool {
        self.next < u32::MAX
    }

    /// Adds a place that there is none of yet: its number.
    pub(crate) fn insert(&mut self, place: ReservedPlace, generation: Generation) -> u32 {
        let number = self.next;
        self.by_id.insert(hash_of(&place.id()), number);
        self.enter(number, &place);
        self.places.set(number, Arc::new(place));
        self.next += 1;
        self.len += 1;
        self.generation = generation;
        number
    }

    /// Puts another in a place, known by the same.
    pub(crate) fn replace(&mut self, number: u32, place: ReservedPlace, generation: Generation) {
        cost::copied::<ReservedPlace>(0);
        let old = self.at(number).filter(|old| old.matched != place.matched).cloned();
        if let Some(old) = old {
            self.leave(number, &old);
            self.enter(number, &place);
        }
        self.places.set(number, Arc::new(place));
        self.generation = generation;
    }

    /// Indexes a place by who may have it, or by who took it.
    fn enter(&mut self, number: u32, place: &ReservedPlace) {
        match &place.matched {
            None => self.by_placeholder.insert(hash_of(&*place.placeholder), number),
            Some(taker) => self.by_taker.insert(hash_of(taker), number),
        }
    }

    fn leave(&mut self, number: u32, place: &ReservedPlace) {
        match &place.matched {
            None => self.by_placeholder.remove(hash_of(&*place.placeholder), number),
            Some(taker) => self.by_taker.remove(hash_of(taker), number),
        }
    }

    pub(crate) fn remove(&mut self, number: u32, generation: Generation) {
        let Some(place) = self.places.get(number).cloned() else { return };
        self.by_id.remove(hash_of(&place.id()), number);
        self.leave(number, &place);
        self.places.remove(number);
        self.len -= 1;
        self.generation = generation;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::pod;

    /// What a place leaves behind when it is taken, held again and gone is nothing.
    #[test]
    fn the_indexes_name_what_is_there_and_are_empty_at_last() {
        const PLACES: u32 = 300;
        let mut places = Reservations::default();
        let place = |n: u32| ReservedPlace {
            placeholder: format!("of-{}", n % 3).into(),
            pod: pod(format!("p{n}")).on(format!("n{}", n % 7)).build(),
            matched: None,
            confirmed: false,
        };
        let taker = |n: u32| Uid::new(&format!("t{n}"));
        for n in 0..PLACES {
            let number = places.insert(place(n), Generation(1));
            let taken = ReservedPlace { matched: Some(taker(n)), ..place(n) };
            places.replace(number, taken, Generation(2));
            assert_eq!(places.taken_by(&taker(n), place(n).node()), Some(number));
            assert_eq!(places.taken_by(&taker(n), "other"), None);
            if n % 2 == 0 {
                places.replace(number, place(n), Generation(3));
                assert_eq!(places.taken_by(&taker(n), place(n).node()), None);
            }
        }
        let available = |n: u32| places.available(&format!("of-{n}")).count() as u32;
        assert_eq!((0..3).map(available).sum::<u32>(), PLACES / 2);
        // A seeded shuffle: 7 and 300 have no common divisor.
        for n in 0..PLACES {
            let gone = place(n * 7 % PLACES);
            let number = places.number(gone.id()).unwrap();
            places.remove(number, Generation(4));
            assert_eq!(places.number(gone.id()), None);
        }
        assert!(places.is_empty() && places.by_id.is_empty());
        assert!(places.by_placeholder.is_empty() && places.by_taker.is_empty());
    }
}
