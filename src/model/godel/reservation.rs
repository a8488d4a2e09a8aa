//! Reservations of node resources for future pods.

use std::time::Duration;

use crate::model::{Name, Pod, Uid};

/// The phase of a reservation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum ReservationPhase {
    /// The reservation has not been scheduled yet.
    #[default]
    Pending,
    /// The resources are reserved.
    Reserved,
    /// A pod uses the reserved resources.
    Matched,
    /// The reservation has expired.
    TimeOut,
}

/// A reservation of resources on a node for a future pod (`Reservation` of scheduling.godel.kubewharf.io). Most often
/// these are the resources of a deleted pod, reserved for the pod that replaces it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Reservation {
    /// The namespace.
    pub namespace: Name,
    /// The name, which is that of the pod whose resources are reserved.
    pub name: Name,
    /// The placeholder pod ([`Pod::to_placeholder`]). Its node is `spec.nodename`, and its reservation index determines
    /// which pods may use the reservation.
    pub pod: Pod,
    /// The phase.
    pub phase: ReservationPhase,
    /// The pod that currently uses the reservation (`status.currentOwners`).
    pub owner: Option<Uid>,
    /// The time after which the controller expires the reservation (`spec.ttl`).
    pub ttl: Option<Duration>,
}

impl Reservation {
    /// Creates a reservation of the resources of `pod` on its node, as the controller does when a pod that reserves is
    /// deleted.
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

    /// Returns the placeholder key of the pods that may use the reservation. If it is empty, no pod may use the
    /// reservation.
    #[doc(hidden)]
    #[must_use]
    pub fn placeholder(&self) -> &str {
        self.pod.template.reservation_placeholder().unwrap_or_default()
    }

    /// Returns the node of the reservation, or `None` if the reservation has not been scheduled yet.
    #[doc(hidden)]
    #[must_use]
    pub fn node(&self) -> Option<&Name> {
        self.pod.node_name.as_ref().filter(|node| !node.is_empty())
    }

    /// Returns `true` if the placeholder occupies resources of its node (`ShouldOccupyResources`).
    #[doc(hidden)]
    #[must_use]
    pub fn occupies(&self) -> bool {
        let is_over = matches!(self.phase, ReservationPhase::Matched | ReservationPhase::TimeOut);
        self.node().is_some() && !is_over
    }
}
