//! Reservations, and how Reservation objects and pods change them. Lookups iterate over all reservations.

use portolan::model::{Pod, Reservation, ReservationPhase, Timestamp, Uid};

use super::Naive;

/// The identity of a reservation: the placeholder name, the pod that holds it (`namespace/name`) and the node.
pub(super) type PlaceKey = (String, String, String);

/// A reservation.
#[derive(Clone, Debug)]
pub(super) struct Held {
    /// The placeholder pod, which is counted on the node while the reservation is available.
    pub(super) pod: Pod,
    /// The pod that took the reservation.
    pub(super) matched: Option<Uid>,
    /// A Reservation object confirms the reservation, so it does not expire.
    pub(super) confirmed: bool,
    /// No event has carried a time since the reservation was made.
    pub(super) waits: bool,
    pub(super) deadline: Option<Timestamp>,
}

impl Naive {
    /// Returns the reservation that the pod has taken on its node.
    pub(super) fn taken(&self, pod: &Pod) -> Option<PlaceKey> {
        let node = pod.node_name.as_deref()?;
        let is_taken = |(key, place): &(&PlaceKey, &Held)| {
            key.2 == *node && place.matched.as_ref() == Some(&pod.uid)
        };
        self.places.iter().find(is_taken).map(|(key, _)| key.clone())
    }

    /// Returns whether reservations are enabled.
    pub(super) fn holds_places(&self) -> bool {
        self.godel.as_ref().is_some_and(|config| config.reservations.is_some())
    }

    /// Lets the pod take the reservation that it names.
    pub(super) fn take_place(&mut self, pod: &Pod) {
        if let Some(key) = taken_by(pod) {
            self.match_place(&key, &pod.uid);
        }
    }

    /// Gives an available reservation to a pod. The placeholder pod is removed.
    pub(super) fn match_place(&mut self, key: &PlaceKey, uid: &Uid) {
        let Some(place) = self.places.get_mut(key).filter(|place| place.matched.is_none()) else {
            return;
        };
        place.matched = Some(uid.clone());
        let holder = place.pod.uid.clone();
        self.pods.remove(&holder);
    }

    /// Makes the reservation of a deleted pod, which expires unless a Reservation object confirms it.
    pub(super) fn hold(&mut self, held: &Reservation) {
        let key = key_of(held);
        if self.places.get(&key).is_some_and(|place| place.matched.is_none()) {
            return;
        }
        self.places.remove(&key);
        if !self.pods.contains_key(&held.pod.uid) {
            self.put(&held.pod, false);
            let pod = held.pod.clone();
            let place = Held { pod, matched: None, confirmed: false, waits: true, deadline: None };
            self.places.insert(key, place);
        }
    }

    /// Makes a taken reservation available again. If its placeholder pod cannot be placed, the reservation ends.
    pub(super) fn reopen(&mut self, key: &PlaceKey) {
        let Some(place) = self.places.get_mut(key).filter(|place| place.matched.is_some()) else {
            return;
        };
        if self.pods.contains_key(&place.pod.uid) {
            self.places.remove(key);
            return;
        }
        place.matched = None;
        let pod = place.pod.clone();
        self.put(&pod, false);
    }

    /// Ends a reservation. The placeholder pod is removed if the reservation is available.
    pub(super) fn drop_place(&mut self, key: &PlaceKey) {
        if let Some(place) = self.places.remove(key).filter(|place| place.matched.is_none()) {
            self.pods.remove(&place.pod.uid);
        }
    }

    /// Applies a Reservation object. Returns whether it was accepted.
    pub(super) fn reserve(&mut self, new: &Reservation) -> bool {
        let name = (new.namespace.to_string(), new.name.to_string());
        if !self.holds_places() {
            self.reservations.insert(name, new.clone());
            return true;
        }
        let old = self.reservations.get(&name).cloned();
        let held = old.clone();
        let held = held.filter(|old| old.occupies()).map(|old| key_of(&old));
        let key = key_of(new);
        if new.occupies() && self.pods.contains_key(&new.pod.uid) {
            let holds = |key: &PlaceKey| {
                let place = self.places.get(key);
                place.is_some_and(|p| p.matched.is_none() && p.pod.uid == new.pod.uid)
            };
            if !holds(&key) && !held.as_ref().is_some_and(holds) {
                return false;
            }
        }
        self.reservations.insert(name, new.clone());
        if new.occupies() {
            if let Some(held) = held.filter(|held| *held != key) {
                self.drop_place(&held);
            }
            self.occupy(key, new, old.as_ref());
        } else if let Some(held) = held {
            match (new.phase, &new.owner) {
                _ if new.node().is_some() && held != key => self.drop_place(&held),
                (ReservationPhase::Matched, Some(owner)) if self.pods.contains_key(owner) => {
                    self.match_place(&held, owner);
                }
                (ReservationPhase::Matched, _) => {}
                _ => self.drop_place_of(&held, new),
            }
        }
        true
    }

    /// Ends a reservation if the Reservation object refers to it, and not to that of an earlier pod of the same name.
    pub(super) fn drop_place_of(&mut self, key: &PlaceKey, reservation: &Reservation) {
        let applies = |p: &Held| p.confirmed || p.pod.uid == reservation.pod.uid;
        if self.places.get(key).is_some_and(applies) {
            self.drop_place(key);
        }
    }

    /// Confirms the reservation of a Reservation object, or makes it.
    pub(super) fn occupy(&mut self, key: PlaceKey, new: &Reservation, old: Option<&Reservation>) {
        let Some(place) = self.places.get_mut(&key) else {
            let successor =
                self.pods.values().find(|placed| taken_by(&placed.pod).as_ref() == Some(&key));
            let matched = successor.map(|placed| placed.pod.uid.clone());
            if matched.is_none() {
                self.put(&new.pod, false);
            }
            let pod = new.pod.clone();
            let place = Held { pod, matched, confirmed: true, waits: false, deadline: None };
            self.places.insert(key, place);
            return;
        };
        place.confirmed = true;
        let taker = place.matched.as_ref().and_then(|taker| self.pods.get(taker));
        let is_taken = taker.is_some_and(|taker| taker.pod.node_name.as_deref() == Some(&*key.2));
        let was_over = old.is_some_and(|old| !old.occupies());
        if was_over && !is_taken {
            self.reopen(&key);
        } else if old.is_some_and(|old| old.pod != new.pod) && place.matched.is_none() {
            let before = std::mem::replace(&mut place.pod, new.pod.clone());
            self.pods.remove(&before.uid);
            self.put(&new.pod, false);
        }
    }

    /// Applies the removal of a Reservation object. Returns whether it existed.
    pub(super) fn unreserve(&mut self, namespace: &str, name: &str) -> bool {
        let name = (namespace.to_owned(), name.to_owned());
        let Some(old) = self.reservations.remove(&name) else { return false };
        self.drop_place_of(&key_of(&old), &old);
        true
    }

    /// Starts the clocks of pods and reservations that wait for the first time in the log.
    pub(super) fn tick(&mut self, now: Timestamp) {
        let config = self.godel.as_ref();
        if let Some(ttl) = config.and_then(|config| config.unfinished_ttl) {
            for placed in self.pods.values_mut().filter(|placed| placed.unfinished) {
                placed.unfinished = false;
                placed.deadline = Some(Timestamp(now.0 + ttl.as_nanos() as i64));
            }
        }
        // The shorter of the two times to live applies: that of reservations, or that of assumed pods.
        let ttl = config.and_then(|config| config.reservations).filter(|ttl| !ttl.is_zero());
        let Some(ttl) = ttl.into_iter().chain(self.ttl).min() else { return };
        for place in self.places.values_mut().filter(|place| place.waits) {
            place.waits = false;
            place.deadline = Some(Timestamp(now.0 + ttl.as_nanos() as i64));
        }
    }

    /// Ends the reservations whose time has passed.
    pub(super) fn expire_places(&mut self, now: Timestamp) {
        self.tick(now);
        let due = |place: &Held| !place.confirmed && place.deadline.is_some_and(|at| at < now);
        let due: Vec<PlaceKey> =
            self.places.iter().filter(|(_, p)| due(p)).map(|(key, _)| key.clone()).collect();
        for key in due {
            self.drop_place(&key);
        }
    }
}

fn key_of(held: &Reservation) -> PlaceKey {
    let node = held.node().map(ToString::to_string).unwrap_or_default();
    (held.placeholder().to_owned(), held.pod.key().to_string(), node)
}

/// Returns the reservation that a pod uses on its node, if it exists.
pub(super) fn taken_by(pod: &Pod) -> Option<PlaceKey> {
    let holder = pod.template.godel.as_ref()?.matched_placeholder.as_ref()?;
    let placeholder = pod.template.reservation_placeholder()?;
    if holder.split_once('/').is_none_or(|(namespace, _)| *namespace != **pod.namespace()) {
        return None;
    }
    Some((placeholder.to_owned(), holder.to_string(), pod.node_name.as_ref()?.to_string()))
}
