//! The states of connections: which of them may be closed for newer ones.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::refusals::Reason;

/// The state of a connection. It is protected while an accepted request is answered. At any other time, during a
/// handshake, a head or a review for example, it may be closed for a newer one: an unknown client determines how long
/// these take.
#[derive(Debug)]
pub struct ConnectionState {
    /// Whether a request has arrived.
    has_begun: AtomicBool,
    is_protected: AtomicBool,
    /// The number of connections that are protected.
    protected: Arc<AtomicUsize>,
    /// The maximum number of connections that are protected.
    limit: usize,
}

// Relaxed: no data is shared through these.
impl ConnectionState {
    /// Protects the connection until the request is answered, unless too many are protected. The request is then
    /// answered, too, but the connection may be closed first.
    pub fn protect(&self) {
        let more = |protected| (protected < self.limit).then_some(protected + 1);
        if !self.is_protected()
            && self.protected.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
        {
            self.is_protected.store(true, Ordering::Relaxed);
        }
    }

    /// Marks the arrival of a request, which may protect the connection until the result is dropped.
    pub(super) fn begin(self: &Arc<ConnectionState>) -> InFlight {
        self.has_begun.store(true, Ordering::Relaxed);
        InFlight(self.clone())
    }

    pub(super) fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }

    fn is_protected(&self) -> bool {
        self.is_protected.load(Ordering::Relaxed)
    }

    fn release(&self) {
        if self.is_protected.swap(false, Ordering::Relaxed) {
            self.protected.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for ConnectionState {
    fn drop(&mut self) {
        self.release();
    }
}

/// A request that is not answered yet.
pub(super) struct InFlight(Arc<ConnectionState>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// An accepted connection.
struct Connection {
    task: AbortHandle,
    /// `None` for all clients of a Unix socket.
    network: Option<IpAddr>,
    state: Arc<ConnectionState>,
}

/// The accepted connections, the oldest first, with some that have ended.
pub(super) struct Connections {
    limit: usize,
    /// The maximum number of connections that are protected.
    most_protected: usize,
    protected: Arc<AtomicUsize>,
    open: VecDeque<Connection>,
    /// Dropped at the end of the server.
    ending: watch::Sender<()>,
}

impl Connections {
    /// At most `limit` connections, of which `reserve` are never protected.
    pub(super) fn new(limit: usize, reserve: usize) -> Connections {
        let most_protected = limit.saturating_sub(reserve);
        let ending = watch::Sender::new(());
        Connections {
            limit,
            most_protected,
            protected: Arc::default(),
            open: VecDeque::new(),
            ending,
        }
    }

    /// Makes one more connection possible. If there are too many, one that is not protected is closed: of the network
    /// with the most such connections, the oldest. A client that reconnects as fast as it can therefore displaces its
    /// own connections. If all are protected, the new connection is refused. Returns why a connection is closed or
    /// refused. O(open connections) if there are too many.
    pub(super) fn displace_one(&mut self) -> Option<Reason> {
        if self.open.len() >= self.limit {
            self.open.retain(|connection| !connection.task.is_finished());
        }
        if self.open.len() < self.limit {
            return None;
        }
        let mut counts: HashMap<Option<IpAddr>, usize> = HashMap::new();
        let idle = self.open.iter().filter(|connection| !connection.state.is_protected());
        idle.for_each(|connection| *counts.entry(connection.network).or_default() += 1);
        let most = counts.values().copied().max();
        let oldest = self.open.iter().position(|connection| {
            !connection.state.is_protected() && counts.get(&connection.network).copied() == most
        });
        let Some(oldest) = oldest.and_then(|at| self.open.remove(at)) else {
            return Some(Reason::Full);
        };
        oldest.task.abort();
        Some(Reason::Displaced)
    }

    pub(super) fn state(&self) -> Arc<ConnectionState> {
        Arc::new(ConnectionState {
            has_begun: AtomicBool::new(false),
            is_protected: AtomicBool::new(false),
            protected: self.protected.clone(),
            limit: self.most_protected,
        })
    }

    /// Returns a receiver that fails at the end of the server.
    pub(super) fn ending(&self) -> watch::Receiver<()> {
        self.ending.subscribe()
    }

    pub(super) fn add(
        &mut self,
        task: AbortHandle,
        from: Option<IpAddr>,
        state: Arc<ConnectionState>,
    ) {
        self.open.push_back(Connection { task, network: from.map(network), state });
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
        let idle = self.open.iter().filter(|connection| !connection.state.is_protected());
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
            assert_eq!(connections.displace_one(), None);
            let (state, task) = (connections.state(), tokio::spawn(std::future::pending::<()>()));
            let from = from.parse().expect("an address");
            connections.add(task.abort_handle(), Some(from), state.clone());
            open.push((state, task));
        }
        open[1].0.protect();
        assert_eq!(connections.displace_one(), Some(Reason::Displaced));
        let (_, task) = open.swap_remove(2);
        assert!(task.await.expect_err("aborted").is_cancelled());
        // One of each is left, and the oldest makes way.
        let other = Some([10, 0, 0, 3].into());
        connections.add(open[1].1.abort_handle(), other, connections.state());
        assert_eq!(connections.displace_one(), Some(Reason::Displaced));
        let (_, task) = open.swap_remove(0);
        assert!(task.await.expect_err("aborted").is_cancelled());
    }

    #[test]
    fn the_reserve_is_never_kept_and_an_answer_ends_the_protection() {
        let connections = Connections::new(3, 1);
        let states = [(); 3].map(|()| connections.state());
        let begun = states.each_ref().map(ConnectionState::begin);
        states.iter().for_each(|state| state.protect());
        states[0].protect();
        assert_eq!(states.each_ref().map(|state| state.is_protected()), [true, true, false]);
        let [first, _, _] = begun;
        drop(first);
        states[2].protect();
        assert_eq!(states.each_ref().map(|state| state.is_protected()), [false, true, true]);
        drop(states);
        assert_eq!(connections.protected.load(Ordering::Relaxed), 2, "not answered yet");
    }
}
