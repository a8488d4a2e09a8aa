//! The plan of one replica, and simulations of many.

use super::*;

use fastrand::Rng;

const LEASE: Duration = Duration::from_secs(15);

/// Reads Leases in short: the holder, `>` and the replica that asks; `-` and the seconds since when nobody holds it.
fn views(me: &str, text: &str) -> Vec<View> {
    let view = |word: &str| {
        let (holder, wanted_by) = match word.split_once('>') {
            Some((holder, by)) => (holder, Some(by.to_owned())),
            None => (word, None),
        };
        let holder = match holder.strip_prefix('-') {
            Some(seconds) => Holder::Nobody(Duration::from_secs(seconds.parse().unwrap())),
            None if holder == me => Holder::Us,
            None => Holder::Other(holder.to_owned()),
        };
        View { holder, wanted_by, is_ending: false, is_avoided: false, has_failed: false }
    };
    text.split_whitespace().map(view).collect()
}

fn planned(me: &str, text: &str) -> Vec<Action> {
    plan(me, &views(me, text), 0, LEASE)
}

#[test]
fn free_shards_are_taken_up_to_the_share_and_the_others_after_a_lease_duration() {
    use Action::Take;
    assert_eq!(planned("a", "-0 -0 -0"), [Take(0), Take(1), Take(2)]);
    assert_eq!(planned("a", "-0 -0 b b"), [Take(0), Take(1)]);
    assert_eq!(planned("a", "a -0 a b"), []);
    assert_eq!(planned("a", "a -15 a b"), [Take(1)]);
    assert_eq!(planned("b", "a -0 a b"), [Take(1)]);
    assert_eq!(plan("a", &views("a", "-0 -0 b"), 1, LEASE), [Take(1), Take(0)]);
}

#[test]
fn a_shard_that_cannot_be_taken_does_not_keep_a_replica_from_asking_for_others() {
    let mut views = views("b", "-0 a a a");
    assert_eq!(plan("b", &views, 0, LEASE), [Action::Take(0)]);
    views[0].has_failed = true;
    assert_eq!(plan("b", &views, 0, LEASE), [Action::Ask(3)]);
}

#[test]
fn a_shard_that_was_given_up_is_reserved_for_the_replica_that_asked() {
    assert_eq!(planned("a", "a a a -3>b"), []);
    assert_eq!(planned("b", "a a a -3>b"), [Action::Take(3)]);
    assert_eq!(planned("a", "a a a -15>b"), [Action::Take(3)]);
}

#[test]
fn a_replica_asks_the_richest_for_as_many_as_make_both_equal() {
    use Action::Ask;
    assert_eq!(planned("b", "a a a a"), [Ask(3), Ask(2)]);
    assert_eq!(planned("b", "a a b"), []);
    assert_eq!(planned("c", "a b"), []);
    assert_eq!(planned("c", "a a a b b b"), [Ask(5), Ask(2)]);
    // Another replica has asked for half of them.
    assert_eq!(planned("c", "a>b a>b a a"), [Ask(3)]);
}

#[test]
fn a_shard_is_given_up_only_to_a_replica_with_at_least_two_fewer() {
    use Action::{Decline, GiveUp};
    assert_eq!(planned("a", "a>b a b"), [Decline(0)]);
    assert_eq!(planned("a", "a>b a>b a"), [GiveUp(0), Decline(1)]);
    assert_eq!(planned("a", "a>b a>c a a a"), [GiveUp(0), GiveUp(1)]);
    assert_eq!(planned("a", "a>a a"), [Decline(0)]);
    let mut ending = views("a", "a>b a>b a");
    ending[0].is_ending = true;
    assert_eq!(plan("a", &ending, 0, LEASE), [Decline(1)]);
}

#[test]
fn a_replica_gets_the_next_shard_after_it_has_taken_the_one_that_was_given_up() {
    use Action::GiveUp;
    assert_eq!(planned("a", "a>b a>b a>b a a a"), [GiveUp(0)]);
    let mut ending = views("a", "a>b a>b a>b a a a");
    ending[0].is_ending = true;
    assert_eq!(plan("a", &ending, 0, LEASE), []);
    assert_eq!(planned("a", "-3>b a>b a>b a a a"), []);
    assert_eq!(planned("a", "b a>b a>b a a a"), [GiveUp(1)]);
}

#[test]
fn a_shard_that_could_not_be_used_is_left_to_others() {
    let mut avoided = views("a", "-20 -20>a -20");
    (avoided[0].is_avoided, avoided[1].is_avoided) = (true, true);
    assert_eq!(plan("a", &avoided, 0, LEASE), [Action::Take(2)]);
    let mut avoided = views("a", "-20 b b b");
    avoided[0].is_avoided = true;
    assert_eq!(plan("a", &avoided, 0, LEASE), []);
}

/// A Lease on the server.
#[derive(Clone, Default)]
struct Stored {
    holder: Option<usize>,
    wanted_by: Option<usize>,
    /// Changes with each write of the specification.
    renewals: u64,
}

/// A replica, with its last view of each Lease and the time.
#[derive(Clone)]
struct Replica {
    seen: Vec<(u64, u64)>,
    /// When each shard that is being given up is drained.
    ending: BTreeMap<usize, u64>,
    held: BTreeSet<usize>,
}

/// Replicas and a server, with a clock in seconds.
struct Simulation {
    leases: Vec<Stored>,
    /// `None` for a dead replica.
    replicas: Vec<Option<Replica>>,
    now: u64,
    random: Rng,
}

impl Simulation {
    fn start(&mut self) {
        let seen = vec![(u64::MAX, 0); self.leases.len()];
        self.replicas.push(Some(Replica { seen, ending: BTreeMap::new(), held: BTreeSet::new() }));
    }

    fn kill(&mut self, index: usize) {
        self.replicas[index] = None;
    }

    fn name(index: usize) -> String {
        format!("r{index}")
    }

    fn view(&self, index: usize, replica: &Replica, at: usize) -> View {
        let lease = &self.leases[at];
        let age = self.now - replica.seen[at].1;
        let holder = match lease.holder {
            None => Holder::Nobody(Duration::from_secs(age)),
            Some(holder) if holder == index => Holder::Us,
            Some(_) if age > LEASE.as_secs() => Holder::Nobody(Duration::from_secs(age) - LEASE),
            Some(holder) => Holder::Other(Simulation::name(holder)),
        };
        let is_ending = replica.ending.contains_key(&at);
        let wanted_by = lease.wanted_by.map(Simulation::name);
        View { holder, wanted_by, is_ending, is_avoided: false, has_failed: false }
    }

    /// Runs a round of a replica: it renews and releases Leases, reads them, and acts on the results. Actions on a
    /// Lease that has changed meanwhile fail, as a replacement with an old version does, here at random.
    fn round(&mut self, index: usize) {
        let Some(mut replica) = self.replicas[index].clone() else { return };
        for at in 0..self.leases.len() {
            let lease = &mut self.leases[at];
            if replica.held.contains(&at) {
                assert_eq!(lease.holder, Some(index), "shard {at} has another holder");
                lease.renewals += 1;
            }
            if replica.ending.get(&at).is_some_and(|drained| *drained <= self.now) {
                (lease.holder, lease.renewals) = (None, lease.renewals + 1);
                replica.ending.remove(&at);
                replica.held.remove(&at);
            }
            if replica.seen[at].0 != lease.renewals {
                replica.seen[at] = (lease.renewals, self.now);
            }
        }
        let views: Vec<View> =
            (0..self.leases.len()).map(|at| self.view(index, &replica, at)).collect();
        let me = Simulation::name(index);
        for action in plan(&me, &views, index % views.len(), LEASE) {
            let conflicts = self.random.u32(0..8) == 0;
            match action {
                Action::Take(at) if !conflicts => {
                    let lease = &mut self.leases[at];
                    (lease.holder, lease.wanted_by) = (Some(index), None);
                    lease.renewals += 1;
                    replica.seen[at] = (lease.renewals, self.now);
                    replica.held.insert(at);
                }
                Action::Ask(at) if !conflicts => self.leases[at].wanted_by = Some(index),
                Action::Decline(at) if !conflicts => self.leases[at].wanted_by = None,
                Action::GiveUp(at) => {
                    replica.ending.insert(at, self.now + self.random.u64(0..4));
                }
                _ => {}
            }
        }
        self.replicas[index] = Some(replica);
    }

    /// Runs seconds, in each of which every replica has a round in random order.
    fn run(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now += 1;
            let mut order: Vec<usize> = (0..self.replicas.len()).collect();
            self.random.shuffle(&mut order);
            for index in order {
                // A replica may be slow.
                if self.random.u32(0..5) > 0 {
                    self.round(index);
                }
            }
        }
    }

    fn is_settled(&self) -> Result<(), String> {
        let live = self.replicas.iter().flatten();
        let counts: Vec<usize> = live.map(|replica| replica.held.len()).collect();
        let held = self.leases.iter().filter(|lease| {
            let holder = lease.holder.and_then(|holder| self.replicas[holder].as_ref());
            holder.is_some()
        });
        let (held, total) = (held.count(), counts.iter().sum::<usize>());
        let (least, most) = (counts.iter().min(), counts.iter().max());
        let is_even = most.zip(least).is_some_and(|(most, least)| most - least <= 1);
        match held == self.leases.len() && total == held && is_even {
            true => Ok(()),
            false => Err(format!("{held} of {} held, {counts:?}", self.leases.len())),
        }
    }
}

#[test]
fn every_shard_ends_with_one_holder_and_counts_differ_by_at_most_one() {
    for seed in 0..100 {
        let mut random = Rng::with_seed(seed);
        let shards = random.usize(1..=64);
        let leases = vec![Stored::default(); shards];
        let mut simulation = Simulation { leases, replicas: Vec::new(), now: 0, random };
        simulation.start();
        for _ in 0..simulation.random.u32(1..12) {
            let live: Vec<usize> = (0..simulation.replicas.len())
                .filter(|index| simulation.replicas[*index].is_some())
                .collect();
            match simulation.random.u32(0..3) {
                0 if live.len() > 1 => {
                    let index = live[simulation.random.usize(0..live.len())];
                    simulation.kill(index);
                }
                _ if live.len() < 8 => simulation.start(),
                _ => {}
            }
            let seconds = simulation.random.u64(0..60);
            simulation.run(seconds);
        }
        simulation.run(300);
        assert_eq!(simulation.is_settled(), Ok(()), "seed {seed}");
        let before: Vec<_> = simulation.leases.iter().map(|lease| lease.holder).collect();
        simulation.run(60);
        let after: Vec<_> = simulation.leases.iter().map(|lease| lease.holder).collect();
        assert_eq!(before, after, "seed {seed}: a shard moves although nothing has changed");
    }
}
