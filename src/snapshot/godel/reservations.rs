//! Reservations: resources on nodes that are held for future pods.
//!
//! A reservation is identified by its placeholder name (which determines the pods that may take it), by the placeholder
//! pod that holds it, and by its node. The placeholder pod is in the node table like any other pod, so that filters
//! account for its requests, and it gives way to the successor that names it.

use std::sync::Arc;

use crate::model::{Generation, Name, Pod, Uid, hash_of};

use super::super::cost;
use super::super::hash_index::HashIndex;
use super::super::table::Table;

/// A reservation, either available or taken by a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservedPlace {
    /// The placeholder name. Only pods with this name, in the namespace of `pod`, may take the reservation.
    pub placeholder: Name,
    /// The placeholder pod. It is on its node until another pod takes the reservation.
    pub pod: Pod,
    /// The pod that took the reservation, if any.
    pub matched: Option<Uid>,
    /// Whether a Reservation object confirms the reservation. An unconfirmed reservation expires.
    pub confirmed: bool,
}

impl ReservedPlace {
    /// Returns the name of the node.
    #[must_use]
    pub fn node(&self) -> &str {
        self.pod.node_name.as_deref().unwrap_or_default()
    }

    /// Returns whether the reservation is available.
    #[must_use]
    pub fn is_available(&self) -> bool {
        self.matched.is_none()
    }

    /// Returns the namespace and the placeholder name of the pods that may take the reservation.
    pub(crate) fn placeholder_key(&self) -> (&str, &str) {
        (self.pod.namespace(), &self.placeholder)
    }

    fn has_id(&self, id: PlaceId<'_>) -> bool {
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

/// The identity of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PlaceId<'a> {
    pub(crate) placeholder: &'a str,
    /// Namespace and name of the placeholder pod.
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) node: &'a str,
}

/// All reservations, available and taken.
#[derive(Clone, Default)]
pub struct Reservations {
    places: Table<Arc<ReservedPlace>>,
    by_id: HashIndex,
    /// The available reservations, by namespace and placeholder name.
    by_placeholder: HashIndex,
    /// The taken reservations, by the pod that took each.
    by_taker: HashIndex,
    /// Numbers are never reused, so a stored number refers to its own reservation or to none.
    next: u32,
    len: usize,
    generation: Generation,
}

impl Reservations {
    /// Number of reference counts that a clone increments.
    pub(crate) const COUNTS: usize = 4;

    /// Returns the reservations that pods of this namespace with this placeholder name can take, oldest first.
    /// O(reservations found × log n).
    pub fn available(
        &self,
        namespace: &str,
        placeholder: &str,
    ) -> impl Iterator<Item = &Arc<ReservedPlace>> {
        let numbers = self.by_placeholder.numbers(hash_of(&(namespace, placeholder)));
        let places = numbers.filter_map(|number| self.places.get(number));
        places.filter(move |place| {
            **place.pod.namespace() == *namespace && *place.placeholder == *placeholder
        })
    }

    /// Returns the reservation that the pod of this namespace and name holds for a placeholder name on a node.
    /// O(log n).
    #[must_use]
    pub(crate) fn get(
        &self,
        placeholder: &str,
        (namespace, name): (&str, &str),
        node: &str,
    ) -> Option<&Arc<ReservedPlace>> {
        self.places.get(self.number(PlaceId { placeholder, namespace, name, node })?)
    }

    /// Returns all reservations, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<ReservedPlace>> {
        self.numbered().map(|(_, place)| place)
    }

    pub(crate) fn numbered(&self) -> impl Iterator<Item = (u32, &Arc<ReservedPlace>)> {
        self.places.iter()
    }

    /// Returns the number of reservations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no reservations.
    #[doc(hidden)]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the generation in which a reservation last changed.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    pub(crate) fn number(&self, id: PlaceId<'_>) -> Option<u32> {
        self.by_id
            .find(hash_of(&id), |number| self.at(number).is_some_and(|place| place.has_id(id)))
    }

    pub(crate) fn at(&self, number: u32) -> Option<&Arc<ReservedPlace>> {
        self.places.get(number)
    }

    /// Returns the number of the reservation that a pod took on a node.
    pub(crate) fn taken_by(&self, taker: &Uid, node: &str) -> Option<u32> {
        let numbers = self.by_taker.numbers(hash_of(taker));
        let places = numbers.filter_map(|number| self.at(number).map(|place| (place, number)));
        let taken = places
            .filter(|(place, _)| place.matched.as_ref() == Some(taker) && place.node() == node);
        // There is more than one only if an earlier pod had the same uid.
        let key = |place: &ReservedPlace| (place.placeholder.clone(), place.pod.key());
        taken.min_by(|(one, _), (other, _)| key(one).cmp(&key(other))).map(|(_, number)| number)
    }

    pub(crate) fn has_room(&self) -> bool {
        self.next < u32::MAX
    }

    /// Adds a reservation whose id is new, and returns its number.
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

    /// Replaces a reservation by another with the same id.
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

    /// Indexes a reservation: by its takers if it is available, otherwise by the pod that took it.
    fn enter(&mut self, number: u32, place: &ReservedPlace) {
        match &place.matched {
            None => self.by_placeholder.insert(hash_of(&place.placeholder_key()), number),
            Some(taker) => self.by_taker.insert(hash_of(taker), number),
        }
    }

    fn leave(&mut self, number: u32, place: &ReservedPlace) {
        match &place.matched {
            None => self.by_placeholder.remove(hash_of(&place.placeholder_key()), number),
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

    /// A reservation that is taken, released and removed leaves nothing behind.
    #[test]
    fn the_indexes_match_the_reservations_and_end_up_empty() {
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
        let available = |n: u32| places.available("default", &format!("of-{n}")).count() as u32;
        assert_eq!((0..3).map(available).sum::<u32>(), PLACES / 2);
        // 7 and 300 are coprime, so this permutes the numbers.
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
