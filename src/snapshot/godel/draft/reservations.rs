//! Reservations: what pods and Reservations do to the places that are held
//! (scheduler/cache/commonstores/reservation_store).

use crate::model::{EventError, Generation, Pod, PodState, Reservation, ReservationPhase, Uid};

use crate::snapshot::chunk::NodeSlot;
use crate::snapshot::draft::{Draft, check_amounts};
use crate::snapshot::godel::{Leaving, PlaceId, Reservations, ReservedPlace};
use crate::snapshot::node_info::{PodInfo, PodRef};

/// What became of a pod that holds a place, in the course of an event on something
/// else.
pub(crate) enum Effect {
    /// It came to its node.
    Held {
        /// The pod.
        pod: Pod,
        /// The number of its place where that is held for a time only, from now on.
        waits: Option<u32>,
    },
    /// It went.
    Freed(Pod),
}

/// What a pod that leaves means for a place.
enum Succession {
    /// Its own is held from now on.
    Hold(Box<Pod>),
    /// The one that it had taken, by number, is held again.
    Release(u32),
}

/// What can happen to a place; [`next`] is the table.
enum Transition<'a> {
    /// A pod takes the place.
    Take(&'a Uid),
    /// The pod that took the place has left it.
    Release,
    /// A Reservation says that the place is held.
    Confirm,
    /// A Reservation names another pod as the placeholder.
    Renew(&'a Pod),
    /// The time of a place that no Reservation confirmed has passed.
    Expire,
    /// The reason for holding the place is gone.
    End,
}

/// A place after a transition.
enum Next {
    Unchanged,
    Changed(ReservedPlace),
    Gone,
}

/// The state machine of places. A place is available, with its placeholder on the node, or taken by a pod; and it is
/// confirmed by a Reservation, or held for a limited time.
fn next(place: &ReservedPlace, transition: &Transition<'_>) -> Next {
    match (transition, place.is_available(), place.confirmed) {
        (Transition::Take(uid), true, _) => {
            Next::Changed(ReservedPlace { matched: Some(Uid::clone(uid)), ..place.clone() })
        }
        (Transition::Release, false, _) => {
            Next::Changed(ReservedPlace { matched: None, ..place.clone() })
        }
        (Transition::Confirm, _, false) => {
            Next::Changed(ReservedPlace { confirmed: true, ..place.clone() })
        }
        (Transition::Renew(pod), true, _) => {
            Next::Changed(ReservedPlace { pod: Pod::clone(pod), ..place.clone() })
        }
        (Transition::Expire, _, false) | (Transition::End, ..) => Next::Gone,
        (Transition::Take(_) | Transition::Renew(_), false, _)
        | (Transition::Release, true, _)
        | (Transition::Confirm | Transition::Expire, _, true) => Next::Unchanged,
    }
}

/// What was found of the place of a Reservation that can be put.
#[derive(Default)]
pub(in crate::snapshot) struct Checked {
    /// The place, if it is known.
    number: Option<u32>,
    /// The slot of its node, if that was looked up and is known.
    slot: Option<NodeSlot>,
    /// Whether its pod is not the one that the last Reservation had.
    is_renewed: bool,
}

impl Draft {
    /// Takes a pod away, and does to places what follows from why. O(log n + pods of
    /// the node).
    pub(crate) fn leave(&mut self, spot: PodRef, leaving: Leaving) {
        let succession = self.succession(spot, leaving);
        self.displace(spot);
        match succession {
            Some(Succession::Hold(pod)) => self.hold(&pod),
            Some(Succession::Release(number)) => self.release_place(number),
            None => {}
        }
    }

    /// What happened to pods that hold places since the last call.
    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Whether the pod is on its node to hold a place; it goes with its place alone.
    pub(crate) fn holds(&self, pod: &PodInfo<'_>) -> bool {
        self.place_held_by(pod).is_some()
    }

    /// Gives up the place that a pod holds, and says whether it held one.
    pub(crate) fn give_up(&mut self, spot: PodRef) -> bool {
        let number = self.pod_at(spot).and_then(|pod| self.place_held_by(&pod));
        number.is_some_and(|number| self.transit(number, &Transition::End))
    }

    /// The pod that holds the place which `pod` is to take on `node`.
    pub(crate) fn place_for(&self, pod: &Pod, node: &str) -> Option<PodRef> {
        let place = self.places()?.at(self.matching(pod, node)?)?;
        if !place.is_available() {
            return None;
        }
        self.pod(&place.pod.uid).map(|pod| pod.spot())
    }

    /// Whether the pod was decided on for a place that it cannot have on `node`.
    pub(crate) fn lacks_place(&self, pod: &Pod, node: &str) -> bool {
        let godel = pod.template.godel.as_ref();
        let names = godel.is_some_and(|godel| godel.matched_placeholder.is_some());
        names && self.places().is_some() && self.place_for(pod, node).is_none()
    }

    /// Whether something comes in the place of a pod that is deleted.
    pub(crate) fn is_succeeded(&self, spot: PodRef) -> bool {
        self.succession(spot, Leaving::Deleted).is_some()
    }

    /// The place, by number, that a pod gives up when `by`, another object of it, takes
    /// its place: it is elsewhere, or took another one. An object that says nothing of
    /// places changes nothing.
    pub(crate) fn given_up(&self, spot: PodRef, by: &Pod) -> Option<u32> {
        let (places, known) = (self.places()?, self.pod_at(spot)?);
        let taken = places.taken_by(&by.uid, known.node().name())?;
        let node = by.node_name.as_deref().unwrap_or_default();
        let is_other = |number: &u32| {
            *number != taken && places.at(*number).is_some_and(|place| place.is_available())
        };
        let moves = *node != **known.node().name();
        (moves || self.matching(by, node).filter(is_other).is_some()).then_some(taken)
    }

    /// Drops a place, unless a Reservation says that it is held; and says whether a pod
    /// went with it.
    pub(crate) fn expire_place(&mut self, number: u32) -> bool {
        self.transit(number, &Transition::Expire)
    }

    /// Whether a Reservation can be put, and what was found of its place.
    pub(in crate::snapshot) fn check_reservation(
        &self,
        old: Option<&Reservation>,
        new: &Reservation,
    ) -> Result<Checked, EventError> {
        // Also of one that holds nothing yet.
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
            // It is where it is to be.
            return Ok(checked);
        }
        if !places.has_room() {
            return Err(EventError::Full);
        }
        let known = self.pod(&new.pod.uid);
        let held = known.and_then(|known| self.place_held_by(&known));
        // What holds this very place, or the one that it is to hold instead, gives way.
        let gives_way = held.is_some()
            && (held == checked.number || held == old.and_then(|old| self.place_of(old)));
        if known.is_some() && !gives_way {
            return Err(EventError::AlreadyAdded { uid: new.pod.uid.clone() });
        }
        checked.slot = self.check_place(&new.pod, node, known.map(|known| known.spot()))?;
        Ok(checked)
    }

    /// A Reservation that was checked is new, or takes the place of another.
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
                // A ghost goes with its last pod.
                checked.slot = None;
            }
            match checked.number {
                Some(number) => self.confirm(number, old, new, checked.is_renewed),
                None => self.add_place(new, checked.slot),
            }
        } else if let Some((old, number)) = held.and_then(|old| Some((old, self.place_of(old)?))) {
            if new.node().is_some() && place_id(old) != place_id(new) {
                // Nothing would ever end it that names the other place.
                self.transit(number, &Transition::End);
            } else {
                self.conclude(number, new);
            }
        }
    }

    /// A Reservation is gone.
    pub(in crate::snapshot) fn unreserve(&mut self, old: &Reservation) {
        if let Some(number) = self.place_of(old).filter(|number| self.is_about(old, *number)) {
            self.transit(number, &Transition::End);
        }
    }

    /// Whether a Reservation means this place, and not one of a pod that had the name of
    /// its own since, which waits for a Reservation of the same name.
    fn is_about(&self, reservation: &Reservation, number: u32) -> bool {
        let place = self.places().and_then(|places| places.at(number));
        place.is_some_and(|place| place.confirmed || place.pod.uid == reservation.pod.uid)
    }

    /// A pod has come to a node: it takes the place that it names, if that is held
    /// there.
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

    /// The place that a pod takes on a node, by its annotations.
    fn matching(&self, pod: &Pod, node: &str) -> Option<u32> {
        let places = self.places()?;
        let holder = pod.template.godel.as_ref()?.matched_placeholder.as_deref()?;
        let placeholder = pod.template.reservation_placeholder()?;
        // Places are not given to other namespaces.
        let (namespace, name) = holder.split_once('/').filter(|of| *of.0 == **pod.namespace())?;
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

    fn succession(&self, spot: PodRef, leaving: Leaving) -> Option<Succession> {
        let places = self.places()?;
        let pod = self.pod_at(spot).filter(|pod| !pod.template().is_placeholder())?;
        let bound = pod.state() == PodState::Bound;
        match leaving {
            Leaving::Gone => None,
            Leaving::Deleted if bound => {
                let reserves = pod.template().godel.as_ref().is_some_and(|godel| godel.reserves);
                let is_placed = self.is_listed(spot.slot);
                let named = pod.template().reservation_placeholder().is_some();
                (reserves && is_placed && named).then(|| Succession::Hold(Box::new(pod.to_pod())))
            }
            Leaving::Deleted | Leaving::Withdrawn => {
                places.taken_by(&pod.uid(), pod.node().name()).map(Succession::Release)
            }
        }
    }

    /// Holds the place of a pod that is gone, until a Reservation says so or its time
    /// has passed.
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
        // A name that becomes too long by what is added to it holds no place.
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

    /// Adds a place, on the node in this slot if it is known.
    fn insert_place(&mut self, place: ReservedPlace, slot: Option<NodeSlot>) {
        let (pod, holds, waits) = (place.pod.clone(), place.is_available(), !place.confirmed);
        let number = self.change_places(|places, now| places.insert(place, now));
        if holds {
            self.occupy(pod, slot, number.filter(|_| waits));
        }
    }

    /// Puts a pod that holds a place on its node.
    fn occupy(&mut self, pod: Pod, slot: Option<NodeSlot>, waits: Option<u32>) {
        let Some(node) = pod.node_name.clone() else { return };
        self.place(&pod, &node, slot, false);
        self.effects.push(Effect::Held { pod, waits });
    }

    fn vacate(&mut self, uid: &Uid) {
        let Some((pod, spot)) = self.pod(uid).map(|pod| (pod.to_pod(), pod.spot())) else { return };
        self.displace(spot);
        self.effects.push(Effect::Freed(pod));
    }

    /// The pod that took a place has left it: the place is held again, if its placeholder still fits.
    pub(crate) fn release_place(&mut self, number: u32) {
        self.transit(number, &Transition::Release);
    }

    /// Changes a place, and with it the placeholder on the node. Returns whether a placeholder left the node for good.
    fn transit(&mut self, number: u32, transition: &Transition<'_>) -> bool {
        let Some(place) = self.places().and_then(|places| places.at(number)).cloned() else {
            return false;
        };
        let changed = match next(&place, transition) {
            Next::Unchanged => return false,
            Next::Changed(changed) => Some(changed),
            Next::Gone => None,
        };
        let comes = |changed: &ReservedPlace| !place.is_available() && changed.is_available();
        let changed = changed.filter(|changed| !comes(changed) || self.can_hold(&changed.pod));
        let holder = changed.as_ref().filter(|changed| changed.is_available());
        // One that is there already stays, unless another pod is to hold the place.
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
            // What time the place has left goes on.
            self.occupy(holder, None, None);
        }
        place.is_available() && !is_held
    }

    /// The first Reservation of a place, which confirms it, or a later one.
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
            // Gödel puts the place's pod back although its successor is there.
            Some(old) if !old.occupies() && !is_taken => self.release_place(number),
            // What holds it may say more than a Reservation does, and stays as it is until
            // that says something else.
            Some(_) if is_renewed => {
                self.transit(number, &Transition::Renew(&new.pod));
            }
            _ => {}
        }
    }

    /// A place that a Reservation says is held and nothing else said before: its
    /// successor may be there already.
    fn add_place(&mut self, new: &Reservation, slot: Option<NodeSlot>) {
        let node = match slot {
            Some(slot) => self.cluster.at_slot(slot),
            None => new.node().and_then(|node| self.cluster.any_node(node)),
        };
        let key = new.pod.key();
        let successors = node.into_iter().flat_map(|node| {
            node.pods().filter(|pod| {
                let template = pod.template();
                let named = template.godel.as_ref().and_then(|g| g.matched_placeholder.as_ref());
                named == Some(&key)
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

    /// A Reservation says that its place is held no more.
    fn conclude(&mut self, number: u32, new: &Reservation) {
        match (new.phase, &new.owner) {
            (ReservationPhase::Matched, Some(owner)) if self.pod(owner).is_some() => {
                self.transit(number, &Transition::Take(owner));
            }
            // Until the pod that has it is seen it is held.
            (ReservationPhase::Matched, _) => {}
            _ if self.is_about(new, number) => {
                self.transit(number, &Transition::End);
            }
            _ => {}
        }
    }
}

/// What the place of a Reservation is known by; none before it has a node.
fn place_id(reservation: &Reservation) -> Option<PlaceId<'_>> {
    Some(PlaceId {
        placeholder: reservation.placeholder(),
        namespace: reservation.pod.namespace(),
        name: &reservation.pod.name,
        node: reservation.node()?,
    })
}
