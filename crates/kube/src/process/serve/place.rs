//! The places of connections: which of them may be closed for newer ones.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::task::AbortHandle;

use super::refusals::Reason;

/// The place of a connection. It is kept while an accepted request is answered. At any other time, during a handshake,
/// a head or a review for example, the connection may be closed for a newer one: an unknown client determines how long
/// these take.
pub(in crate::process) struct Place {
    /// Whether a request has arrived.
    has_begun: AtomicBool,
    is_kept: AtomicBool,
    /// The number of places that are kept.
    kept: Arc<AtomicUsize>,
    /// The maximum number of places that are kept.
    limit: usize,
}

// Relaxed: no data is shared through these.
impl Place {
    /// Keeps the place until the request is answered, unless too many are kept. The request is then answered, too, but
    /// the connection may be closed first.
    pub(in crate::process) fn keep(&self) {
        let more = |kept| (kept < self.limit).then_some(kept + 1);
        if !self.is_kept()
            && self.kept.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
        {
            self.is_kept.store(true, Ordering::Relaxed);
        }
    }

    /// Marks the arrival of a request, whose place may be kept until the result is dropped.
    pub(super) fn begin(self: &Arc<Place>) -> Begun {
        self.has_begun.store(true, Ordering::Relaxed);
        Begun(self.clone())
    }

    pub(super) fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }

    fn is_kept(&self) -> bool {
        self.is_kept.load(Ordering::Relaxed)
    }

    fn release(&self) {
        if self.is_kept.swap(false, Ordering::Relaxed) {
            self.kept.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.release();
    }
}

/// A request that is not answered yet.
pub(super) struct Begun(Arc<Place>);

impl Drop for Begun {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// An accepted connection.
struct Connection {
    task: AbortHandle,
    network: IpAddr,
    place: Arc<Place>,
}

/// The accepted connections, the oldest first, with some that have ended.
pub(super) struct Connections {
    limit: usize,
    /// The maximum number of places that are kept.
    keepable: usize,
    kept: Arc<AtomicUsize>,
    open: VecDeque<Connection>,
}

impl Connections {
    /// At most `limit` connections, of which `reserve` are never kept.
    pub(super) fn new(limit: usize, reserve: usize) -> Connections {
        let keepable = limit.saturating_sub(reserve);
        Connections { limit, keepable, kept: Arc::default(), open: VecDeque::new() }
    }

    /// Makes one more connection possible. If there are too many, one whose place is not kept is closed: of the network
    /// with the most such connections, the oldest. A client that reconnects as fast as it can therefore displaces its
    /// own connections. If all places are kept, the new connection is refused. Returns why a connection is closed or
    /// refused. O(open connections) if there are too many.
    pub(super) fn make_way(&mut self) -> Option<Reason> {
        if self.open.len() >= self.limit {
            self.open.retain(|connection| !connection.task.is_finished());
        }
        if self.open.len() < self.limit {
            return None;
        }
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        let idle = self.open.iter().filter(|connection| !connection.place.is_kept());
        idle.for_each(|connection| *counts.entry(connection.network).or_default() += 1);
        let most = counts.values().copied().max();
        let oldest = self.open.iter().position(|connection| {
            !connection.place.is_kept() && counts.get(&connection.network).copied() == most
        });
        let Some(oldest) = oldest.and_then(|at| self.open.remove(at)) else {
            return Some(Reason::Full);
        };
        oldest.task.abort();
        Some(Reason::Displaced)
    }

    pub(super) fn place(&self) -> Arc<Place> {
        Arc::new(Place {
            has_begun: AtomicBool::new(false),
            is_kept: AtomicBool::new(false),
            kept: self.kept.clone(),
            limit: self.keepable,
        })
    }

    pub(super) fn add(&mut self, task: AbortHandle, from: IpAddr, place: Arc<Place>) {
        self.open.push_back(Connection { task, network: network(from), place });
    }
}

/// The addresses that one client may have: one of IPv4, or all of a network of IPv6 with 64 bits.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)))
        }
        address => address,
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        let idle = self.open.iter().filter(|connection| !connection.place.is_kept());
        idle.for_each(|connection| connection.task.abort());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_one_address_or_a_network() {
        let same = |one: &str, other: &str| {
            let [one, other] = [one, other].map(|text| network(text.parse().expect("an address")));
            one == other
        };
        assert!(same("10.0.0.1", "::ffff:10.0.0.1") && same("2001:db8::1", "2001:db8::2:0:0:1"));
        assert!(!same("10.0.0.1", "10.0.0.2") && !same("2001:db8::1", "2001:db8:0:1::1"));
    }

    #[tokio::test]
    async fn the_network_with_the_most_connections_makes_way_for_others() {
        let mut connections = Connections::new(4, 1);
        let mut open = Vec::new();
        for from in ["10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.2"] {
            assert_eq!(connections.make_way(), None);
            let (place, task) = (connections.place(), tokio::spawn(std::future::pending::<()>()));
            let from = from.parse().expect("an address");
            connections.add(task.abort_handle(), from, place.clone());
            open.push((place, task));
        }
        open[1].0.keep();
        assert_eq!(connections.make_way(), Some(Reason::Displaced));
        let (_, task) = open.swap_remove(2);
        assert!(task.await.expect_err("aborted").is_cancelled());
        // One of each is left, and the oldest makes way.
        connections.add(open[1].1.abort_handle(), [10, 0, 0, 3].into(), connections.place());
        assert_eq!(connections.make_way(), Some(Reason::Displaced));
        let (_, task) = open.swap_remove(0);
        assert!(task.await.expect_err("aborted").is_cancelled());
    }

    #[test]
    fn the_reserve_is_never_kept_and_an_answer_frees_its_place() {
        let connections = Connections::new(3, 1);
        let places = [(); 3].map(|()| connections.place());
        let begun = places.each_ref().map(Place::begin);
        places.iter().for_each(|place| place.keep());
        places[0].keep();
        assert_eq!(places.each_ref().map(|place| place.is_kept()), [true, true, false]);
        let [first, _, _] = begun;
        drop(first);
        places[2].keep();
        assert_eq!(places.each_ref().map(|place| place.is_kept()), [false, true, true]);
        drop(places);
        assert_eq!(connections.kept.load(Ordering::Relaxed), 2, "not answered yet");
    }
}
