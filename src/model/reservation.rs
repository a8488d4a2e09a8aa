//! Places on nodes that are held for pods to come.

use std::time::Duration;

use super::{Name, Pod, Uid};

/// How a reservation stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ReservationPhase {
    /// Not yet scheduled.
    #[default]
    Pending,
    /// The place is held.
    Reserved,
    /// A pod has it.
    Matched,
    /// It was held for too long.
    TimeOut,
}

/// A place on a node that is held for a pod to come (`Reservation` of
/// scheduling.godel.kubewharf.io): most often that of a pod which was deleted, kept
/// for the one that replaces it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Reservation {
    /// Namespace.
    pub namespace: Name,
    /// Name: that of the pod which had the place.
    pub name: Name,
    /// The pod that holds it ([`Pod::to_placeholder`]); its node is `spec.nodename`, its
    /// reservation index says whose pods may have the place.
    pub pod: Pod,
    /// How it stands.
    pub phase: ReservationPhase,
    /// The pod that has the place now (`status.currentOwners`).
    pub owner: Option<Uid>,
    /// How long the controller keeps it (`spec.ttl`).
    pub ttl: Option<Duration>,
}

impl Reservation {
    /// A reservation of the place of `pod`, on its node, as the controller makes one
    /// when such a pod is deleted.
    ///
    /// ```
    /// use portolan::model::{Reservation, pod};
    ///
    /// let gone = pod("web-0").label("name", "web").cpu(500).on("n1").build();
    /// let reservation = Reservation::of(&gone);
    /// assert_eq!((reservation.placeholder(), reservation.occupies()), ("web", true));
    /// assert_eq!(&*reservation.pod.name, "web-0-placeholder");
    /// ```
    #[must_use]
    pub fn of(pod: &Pod) -> Reservation {
        Reservation {
            namespace: pod.namespace().clone(),
            name: pod.name.clone(),
            pod: pod.to_placeholder(),
            phase: ReservationPhase::Reserved,
            owner: None,
            ttl: None,
        }
    }

    /// Whose pods may have the place; empty where it says none, and nobody's may.
    #[must_use]
    pub fn placeholder(&self) -> &str {
        self.pod.template.reservation_placeholder().unwrap_or_default()
    }

    /// The node on which the place is; none before the reservation was scheduled.
    #[must_use]
    pub fn node(&self) -> Option<&Name> {
        self.pod.node_name.as_ref().filter(|node| !node.is_empty())
    }

    /// Whether its pod takes part of its node (`ShouldOccupyResources`).
    #[must_use]
    pub fn occupies(&self) -> bool {
        let over = matches!(self.phase, ReservationPhase::Matched | ReservationPhase::TimeOut);
        self.node().is_some() && !over
    }
}
