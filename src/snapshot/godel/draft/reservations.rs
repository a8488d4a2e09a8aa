//! Reservations: how pods and Reservation objects change reservations (scheduler/cache/commonstores/reservation_store).

use crate::model::{EventError, Generation, Pod, PodState, Reservation, ReservationPhase, Uid};

use crate::snapshot::chunk::NodeSlot;
use crate::snapshot::draft::{Draft, check_amounts};
use crate::snapshot::godel::{Leaving, PlaceId, Reservations, ReservedPlace};
use crate::snapshot::node_info::{PodInfo, PodRef};

/// A change to a placeholder pod that an event on another object caused.
pub(crate) enum Effect {
    /// The placeholder pod was placed on its node.
    Held {
        /// The pod.
        pod: Pod,
        /// The number of the reservation, if it starts to wait for its expiry now.
        waits: Option<u32>,
    },
    /// The placeholder pod was removed.
    Freed(Pod),
}

/// The consequence for reservations when a pod is removed.
enum Consequence {
    /// The pod's own resources are reserved from now on.
    Hold(Box<Pod>),
    /// The reservation with this number, which the pod had taken, becomes available again.
    Release(u32),
}

/// A transition of a reservation; [`next`] is the transition table.
enum Transition<'a> {
    /// A pod takes the reservation.
    Take(&'a Uid),
    /// The pod that took the reservation has left it.
    Release,
    /// A Reservation object confirms the reservation.
    Confirm,
    /// A Reservation object names another placeholder pod.
    Renew(&'a Pod),
    /// The time of an unconfirmed reservation has passed.
    Expire,
    /// The reason for the reservation no longer exists.
    End,
}

/// The state of a reservation after a transition.
enum Next {
    Unchanged,
    Changed(Box<ReservedPlace>),
    Gone,
}

/// The state machine of reservations. A reservation is either available, with its placeholder pod on the node, or taken
/// by a pod. Independently, it is either confirmed by a Reservation object or limited in time.
fn next(place: &ReservedPlace, transition: &Transition<'_>) -> Next {
    match (transition, place.is_available(), place.confirmed) {
        (Transition::Take(uid), true, _) => Next::Changed(Box::new(ReservedPlace {
            matched: Some(Uid::clone(uid)),
            ..place.clone()
        })),
        (Transition::Release, false, _) => {
            Next::Changed(Box::new(ReservedPlace { matched: None, ..place.clone() }))
        }
        (Transition::Confirm, _, false) => {
            Next::Changed(Box::new(ReservedPlace { confirmed: true, ..place.clone() }))
        }
        (Transition::Renew(pod), true, _) => {
            Next::Changed(Box::new(ReservedPlace { pod: Pod::clone(pod), ..place.clone() }))
        }
        (Transition::Expire, _, false) | (Transition::End, ..) => Next::Gone,
        (Transition::Take(_) | Transition::Renew(_), false, _)
        | (Transition::Release, true, _)
        | (Transition::Confirm | Transition::Expire, _, true) => Next::Unchanged,
    }
}

/// The result of checking a Reservation object that can be put.
#[derive(Default)]
pub(in crate::snapshot) struct Checked {
    /// The number of its reservation, if that exists.
    number: Option<u32>,
    /// The slot of its node, if it was looked up and exists.
    slot: Option<NodeSlot>,
    /// Whether its placeholder pod differs from that of the previous object.
    is_renewed: bool,
}

impl Draft {
    /// Removes a pod, and applies the consequence for reservations, which depends on the reason.
    /// O(log n + pods of the node).
    pub(crate) fn leave(&mut self, pod_ref: PodRef, leaving: Leaving) {
        let consequence = self.consequence(pod_ref, leaving);
        self.displace(pod_ref);
        match consequence {
            Some(Consequence::Hold(pod)) => self.hold(&pod),
            Some(Consequence::Release(number)) => self.release_place(number),
            None => {}
        }
    }

    /// Returns the changes to placeholder pods since the last call.
    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Returns whether the pod is on its node as a placeholder. Such a pod is removed only with its reservation.
    pub(crate) fn holds(&self, pod: &PodInfo<'_>) -> bool {
        self.place_held_by(pod).is_some()
    }

    /// Ends the reservation that a pod holds. Returns whether it held one.
    pub(crate) fn give_up(&mut self, pod_ref: PodRef) -> bool {
        let number = self.pod_at(pod_ref).and_then(|pod| self.place_held_by(&pod));
        number.is_some_and(|number| self.transit(number, &Transition::End))
    }

    /// Returns the placeholder pod of the reservation that `pod` is to take on `node`.
    pub(crate) fn place_for(&self, pod: &Pod, node: &str) -> Option<PodRef> {
        let place = self.places()?.at(self.matching(pod, node)?)?;
        if !place.is_available() {
            return None;
        }
        self.pod(&place.pod.uid).map(|pod| pod.pod_ref())
    }

    /// Returns whether the pod was decided on for a reservation that it cannot take on `node`.
    pub(crate) fn lacks_place(&self, pod: &Pod, node: &str) -> bool {
        let godel = pod.template.godel.as_ref();
        let names_placeholder = godel.is_some_and(|godel| godel.matched_placeholder.is_some());
        names_placeholder && self.places().is_some() && self.place_for(pod, node).is_none()
    }

    /// Returns whether deleting a pod would create a reservation or release one.
    pub(crate) fn is_succeeded(&self, pod_ref: PodRef) -> bool {
        self.consequence(pod_ref, Leaving::Deleted).is_some()
    }

    /// Returns the number of the reservation that a pod gives up when `by`, another object of the same pod, replaces
    /// it: because `by` is on another node or takes another reservation. An object that names no reservation changes
    /// nothing.
    pub(crate) fn given_up(&self, pod_ref: PodRef, by: &Pod) -> Option<u32> {
        let (places, known) = (self.places()?, self.pod_at(pod_ref)?);
        let taken = places.taken_by(&by.uid, known.node().name())?;
        let node = by.node_name.as_deref().unwrap_or_default();
        let is_other = |number: &u32| {
            *number != taken && places.at(*number).is_some_and(|place| place.is_available())
        };
        let is_moved = *node != **known.node().name();
        (is_moved || self.matching(by, node).filter(is_other).is_some()).then_some(taken)
    }

    /// Removes a reservation, unless a Reservation object confirms it. Returns whether a placeholder pod was removed
    /// with it.
    pub(crate) fn expire_place(&mut self, number: u32) -> bool {
        self.transit(number, &Transition::Expire)
    }

    /// Checks that a Reservation object can be put, and returns its reservation and slot.
    pub(in crate::snapshot) fn check_reservation(
        &self,
        old: Option<&Reservation>,
        new: &Reservation,
    ) -> Result<Checked, EventError> {
        // This also applies to an object that holds nothing yet.
        check_amounts(&new.pod)?;
        let mut checked = Checked { is_renewed: true, ..Checked::default() };
        let (Some(places), Some(node)) = (self.places(), new.node()) else { return Ok(checked) };
        if !new.occupies() {
            return Ok(checked);
        }
        if !new.pod.template.is_placeholder() {
            return Err(EventError::NoPlaceholder { uid: new.pod.uid.clone() });
        }
        checked.number = place_id(new).and_then(|id| places.number(id));
        let old = old.filter(|old| old.occupies());
        checked.is_renewed = old.is_none_or(|old| old.pod != new.pod);
        let holder = checked.number.and_then(|number| places.at(number));
        let holder = holder.filter(|place| place.is_available()).map(|place| &place.pod.uid);
        if !checked.is_renewed && holder == Some(&new.pod.uid) {
            // The placeholder pod is already where it should be.
            return Ok(checked);
        }
        if !places.has_room() {
            return Err(EventError::Full);
        }
        let known = self.pod(&new.pod.uid);
        let held = known.and_then(|known| self.place_held_by(&known));
        // The current holder of this reservation, or of the one that this object replaces, gives way.
        let gives_way = held.is_some()
            && (held == checked.number || held == old.and_then(|old| self.place_of(old)));
        if known.is_some() && !gives_way {
            return Err(EventError::AlreadyAdded { uid: new.pod.uid.clone() });
        }
        checked.slot = self.check_place(&new.pod, node, known.map(|known| known.pod_ref()))?;
        Ok(checked)
    }

    /// Applies a Reservation object that was checked and is new or replaces another.
    pub(in crate::snapshot) fn reserve(
        &mut self,
        old: Option<&Reservation>,
        new: &Reservation,
        mut checked: Checked,
    ) {
        if self.places().is_none() {
            return;
        }
        let held = old.filter(|old| old.occupies());
        if new.occupies() {
            let moved = held.filter(|old| place_id(old) != place_id(new));
            if let Some(number) = moved.and_then(|old| self.place_of(old)) {
                self.transit(number, &Transition::End);
                // A ghost is removed with its last pod, so the slot may no longer be valid.
                checked.slot = None;
            }
            match checked.number {
                Some(number) => self.confirm(number, old, new, checked.is_renewed),
                None => self.add_place(new, checked.slot),
            }
        } else if let Some((old, number)) = held.and_then(|old| Some((old, self.place_of(old)?))) {
            if new.node().is_some() && place_id(old) != place_id(new) {
                // No later object would name the other reservation, so nothing else would ever end it.
                self.transit(number, &Transition::End);
            } else {
                self.finish(number, new);
            }
        }
    }

    /// Applies the removal of a Reservation object.
    pub(in crate::snapshot) fn unreserve(&mut self, old: &Reservation) {
        if let Some(number) = self.place_of(old).filter(|number| self.refers_to(old, *number)) {
            self.transit(number, &Transition::End);
        }
    }

    /// Returns whether a Reservation object refers to this reservation. It does not refer to that of a later pod with
    /// the same name, which is still waiting for its own Reservation object.
    fn refers_to(&self, reservation: &Reservation, number: u32) -> bool {
        let place = self.places().and_then(|places| places.at(number));
        place.is_some_and(|place| place.confirmed || place.pod.uid == reservation.pod.uid)
    }

    /// Lets a placed pod take the reservation that it names, if that is on the pod's node.
    pub(in crate::snapshot) fn take_place(&mut self, pod: &Pod, node: &str) {
        let Some(number) = self.matching(pod, node) else { return };
        self.transit(number, &Transition::Take(&pod.uid));
    }

    fn places(&self) -> Option<&Reservations> {
        self.cluster.reservations()
    }

    fn change_places<R>(
        &mut self,
        change: impl FnOnce(&mut Reservations, Generation) -> R,
    ) -> Option<R> {
        let generation = self.cluster.generation;
        let stores = self.stores()?;
        stores.reservations.as_mut().map(|places| change(places, generation))
    }

    /// Returns the number of the reservation that a pod takes on a node, according to its annotations.
    fn matching(&self, pod: &Pod, node: &str) -> Option<u32> {
        let places = self.places()?;
        let holder = pod.template.godel.as_ref()?.matched_placeholder.as_deref()?;
        let placeholder = pod.template.reservation_placeholder()?;
        // Reservations are not available to other namespaces.
        let (namespace, name) = holder.split_once('/').filter(|key| *key.0 == **pod.namespace())?;
        places.number(PlaceId { placeholder, namespace, name, node })
    }

    fn place_of(&self, reservation: &Reservation) -> Option<u32> {
        self.places()?.number(place_id(reservation)?)
    }

    fn place_held_by(&self, pod: &PodInfo<'_>) -> Option<u32> {
        let places = self.places()?;
        let template = pod.template();
        if !template.is_placeholder() {
            return None;
        }
        let number = places.number(PlaceId {
            placeholder: template.reservation_placeholder().unwrap_or_default(),
            namespace: &template.namespace,
            name: pod.name(),
            node: pod.node().name(),
        })?;
        let place = places.at(number)?;
        (place.is_available() && place.pod.uid == pod.uid()).then_some(number)
    }

    fn consequence(&self, pod_ref: PodRef, leaving: Leaving) -> Option<Consequence> {
        let places = self.places()?;
        let pod = self.pod_at(pod_ref).filter(|pod| !pod.template().is_placeholder())?;
        let bound = pod.state() == PodState::Bound;
        match leaving {
            Leaving::Gone => None,
            Leaving::Deleted if bound => {
                let reserves = pod.template().godel.as_ref().is_some_and(|godel| godel.reserves);
                let is_placed = self.is_listed(pod_ref.slot);
                let has_name = pod.template().reservation_placeholder().is_some();
                (reserves && is_placed && has_name)
                    .then(|| Consequence::Hold(Box::new(pod.to_pod())))
            }
            Leaving::Deleted | Leaving::Withdrawn => {
                places.taken_by(&pod.uid(), pod.node().name()).map(Consequence::Release)
            }
        }
    }

    /// Reserves the resources of a deleted pod, until a Reservation object confirms the reservation or it expires.
    fn hold(&mut self, gone: &Pod) {
        let held = Reservation::of(gone);
        if let Some(number) = self.place_of(&held) {
            let place = self.places().and_then(|places| places.at(number));
            if place.is_some_and(|place| place.is_available()) {
                return;
            }
            self.transit(number, &Transition::End);
        }
        let place = ReservedPlace {
            placeholder: held.placeholder().into(),
            pod: held.pod,
            matched: None,
            confirmed: false,
        };
        // The placeholder's name is longer than the pod's. If it is too long, nothing is reserved.
        if self.can_hold(&place.pod) {
            self.insert_place(place, None);
        }
    }

    fn can_hold(&self, pod: &Pod) -> bool {
        let node = pod.node_name.as_deref().unwrap_or_default();
        self.places().is_some_and(Reservations::has_room)
            && self.pod(&pod.uid).is_none()
            && self.check_place(pod, node, None).is_ok()
    }

    /// Adds a reservation. `slot` is the slot of its node, if known.
    fn insert_place(&mut self, place: ReservedPlace, slot: Option<NodeSlot>) {
        let (pod, holds, waits) = (place.pod.clone(), place.is_available(), !place.confirmed);
        let number = self.change_places(|places, now| places.insert(place, now));
        if holds {
            self.occupy(pod, slot, number.filter(|_| waits));
        }
    }

    /// Places the placeholder pod of a reservation on its node.
    fn occupy(&mut self, pod: Pod, slot: Option<NodeSlot>, waits: Option<u32>) {
        let Some(node) = pod.node_name.clone() else { return };
        self.place(&pod, &node, slot, false);
        self.effects.push(Effect::Held { pod, waits });
    }

    fn vacate(&mut self, uid: &Uid) {
        let Some((pod, pod_ref)) = self.pod(uid).map(|pod| (pod.to_pod(), pod.pod_ref())) else {
            return;
        };
        self.displace(pod_ref);
        self.effects.push(Effect::Freed(pod));
    }

    /// Makes the reservation available after the pod that took it has left, if its placeholder pod still fits.
    pub(crate) fn release_place(&mut self, number: u32) {
        self.transit(number, &Transition::Release);
    }

    /// Applies a transition to a reservation, and places or removes its placeholder pod accordingly. Returns whether
    /// the placeholder pod left the node for good.
    fn transit(&mut self, number: u32, transition: &Transition<'_>) -> bool {
        let Some(place) = self.places().and_then(|places| places.at(number)).cloned() else {
            return false;
        };
        let changed = match next(&place, transition) {
            Next::Unchanged => return false,
            Next::Changed(changed) => Some(*changed),
            Next::Gone => None,
        };
        let becomes_available =
            |changed: &ReservedPlace| !place.is_available() && changed.is_available();
        let changed =
            changed.filter(|changed| !becomes_available(changed) || self.can_hold(&changed.pod));
        let holder = changed.as_ref().filter(|changed| changed.is_available());
        // A placeholder pod that is already there stays, unless another pod is to replace it.
        let stays = place.is_available() && !matches!(transition, Transition::Renew(_));
        let holder = holder.filter(|_| !stays).map(|changed| changed.pod.clone());
        let is_held = changed.as_ref().is_some_and(ReservedPlace::is_available);
        if place.is_available() && !(stays && is_held) {
            self.vacate(&place.pod.uid);
        }
        match changed {
            Some(changed) => self.change_places(|places, now| places.replace(number, changed, now)),
            None => self.change_places(|places, now| places.remove(number, now)),
        };
        if let Some(holder) = holder {
            // The remaining time of the reservation is not restarted.
            self.occupy(holder, None, None);
        }
        place.is_available() && !is_held
    }

    /// Applies the first Reservation object of a reservation, which confirms it, or a later one.
    fn confirm(
        &mut self,
        number: u32,
        old: Option<&Reservation>,
        new: &Reservation,
        is_renewed: bool,
    ) {
        let Some(place) = self.places().and_then(|places| places.at(number)).cloned() else {
            return;
        };
        if place.confirmed && place.is_available() && !is_renewed {
            return;
        }
        self.transit(number, &Transition::Confirm);
        let taker = place.matched.as_ref().and_then(|taker| self.pod(taker));
        let is_taken = taker.is_some_and(|taker| **taker.node().name() == *place.node());
        match old {
            // Gödel restores the placeholder pod even if the successor is present.
            Some(old) if !old.occupies() && !is_taken => self.release_place(number),
            // The existing placeholder pod may have fields that the object does not repeat. It is replaced only if the
            // object has changed.
            Some(_) if is_renewed => {
                self.transit(number, &Transition::Renew(&new.pod));
            }
            _ => {}
        }
    }

    /// Adds a reservation that is known only from its Reservation object. Its successor may already be on the node.
    fn add_place(&mut self, new: &Reservation, slot: Option<NodeSlot>) {
        let node = match slot {
            Some(slot) => self.cluster.at_slot(slot),
            None => new.node().and_then(|node| self.cluster.any_node(node)),
        };
        let key = new.pod.key();
        let successors = node.into_iter().flat_map(|node| {
            node.pods().filter(|pod| {
                let template = pod.template();
                let placeholder =
                    template.godel.as_ref().and_then(|g| g.matched_placeholder.as_ref());
                placeholder == Some(&key)
                    && pod.namespace() == new.pod.namespace()
                    && template.reservation_placeholder() == Some(new.placeholder())
            })
        });
        let matched = successors.map(|pod| pod.uid()).min();
        let place = ReservedPlace {
            placeholder: new.placeholder().into(),
            pod: new.pod.clone(),
            matched,
            confirmed: true,
        };
        self.insert_place(place, slot);
    }

    /// Applies a Reservation object that no longer occupies its reservation.
    fn finish(&mut self, number: u32, new: &Reservation) {
        match (new.phase, &new.owner) {
            (ReservationPhase::Matched, Some(owner)) if self.pod(owner).is_some() => {
                self.transit(number, &Transition::Take(owner));
            }
            // The reservation stays until the pod that took it is seen.
            (ReservationPhase::Matched, _) => {}
            _ if self.refers_to(new, number) => {
                self.transit(number, &Transition::End);
            }
            _ => {}
        }
    }
}

/// Returns the identity of a reservation, or `None` if the object has no node yet.
fn place_id(reservation: &Reservation) -> Option<PlaceId<'_>> {
    Some(PlaceId {
        placeholder: reservation.placeholder(),
        namespace: reservation.pod.namespace(),
        name: &reservation.pod.name,
        node: reservation.node()?,
    })
}
