//! Random schedules: gangs are never placed partially, and no pod is lost.

use super::*;

/// The pods of a group in a random schedule.
#[derive(Default)]
struct Group {
    pods: BTreeSet<Uid>,
    next: usize,
}

/// A random schedule of arrivals, attempts, failing binds, deletions and expiries.
struct Story {
    bench: Bench,
    loops: [SchedulingLoop; 2],
    groups: BTreeMap<String, Group>,
    flight: Vec<Placement>,
    /// Pods that are bound but never confirmed, so that they expire.
    silent: Vec<Pod>,
    nodes: usize,
}

const MIN: usize = 3;

impl Story {
    fn new(seed: u64) -> Story {
        let bench = Bench::new();
        let loops = [bench.scheduling(seed), bench.scheduling(seed ^ 1)];
        bench.node("n0", 1_000);
        let mut groups = BTreeMap::new();
        for name in ["a", "b", "c"] {
            let schedule_timeout = (name == "b").then(|| Duration::from_secs(20));
            bench
                .group(PodGroup { schedule_timeout, ..PodGroup::new("default", name, MIN as u32) });
            groups.insert(name.to_owned(), Group::default());
        }
        Story { bench, loops, groups, flight: Vec::new(), silent: Vec::new(), nodes: 1 }
    }

    fn arrive(&mut self, with: usize) {
        let name = ["a", "b", "c"][with % 3];
        let Some(known) = self.groups.get_mut(name) else { return };
        known.next += 1;
        let size = [100, 300, 500][with / 3 % 3];
        known.pods.insert(self.bench.pending(member(name, known.next, size)));
    }

    /// Checks that every attempt places at least the pods that its group lacks, or none.
    fn attempt(&mut self, with: usize) -> Result<(), TestCaseError> {
        let before: BTreeMap<String, usize> =
            self.groups.keys().map(|name| (name.clone(), self.bench.placed(name))).collect();
        let Some(attempt) = self.bench.attempt(&mut self.loops[with % 2]) else { return Ok(()) };
        let (placed, _) = attempt.into_parts();
        if let Some((_, name)) = placed.first().and_then(|first| first.pod.group()) {
            let after = before[&**name] + placed.len();
            prop_assert!(after >= MIN, "{after} of group {name} are placed");
            prop_assert_eq!(self.bench.placed(name), after);
        }
        for (name, before) in &before {
            let after = self.bench.placed(name);
            prop_assert!(after == *before || after >= MIN, "group {}: {} of {}", name, after, MIN);
        }
        self.flight.extend(placed);
        Ok(())
    }

    fn bind(&mut self, with: usize, fails: bool) {
        if self.flight.is_empty() {
            return;
        }
        let placement = self.flight.remove(with % self.flight.len());
        self.bench.fails.store(fails, Ordering::Relaxed);
        let _ = self.loops[with % 2].bind(&placement, self.bench.clock());
        self.bench.fails.store(false, Ordering::Relaxed);
    }

    fn bind_silently(&mut self, with: usize) {
        let Some(placement) = self.flight.pop() else { return };
        self.bench.silent.store(true, Ordering::Relaxed);
        let bound = self.loops[with % 2].bind(&placement, self.bench.clock());
        self.bench.silent.store(false, Ordering::Relaxed);
        if bound.is_ok() {
            self.silent.push(Pod { node_name: None, ..Pod::clone(&placement.pod) });
        }
    }

    /// Returns expired pods to the queue as the API server knows them.
    fn expire(&mut self) {
        assert!(self.bench.submit(Event::Expire(self.bench.clock()())));
        let snapshot = self.bench.snapshot();
        let is_gone = |pod: &Pod| snapshot.pod(&pod.uid).is_none();
        let (gone, kept) = self.silent.drain(..).partition(is_gone);
        self.silent = kept;
        let gone: Vec<Pod> = gone;
        for pod in gone {
            assert!(self.bench.submit(Event::PutPending(Arc::new(pod))));
        }
    }

    /// Deletes a pod wherever it is, unless it is about to be bound.
    fn delete(&mut self, with: usize) {
        let all: Vec<Uid> = self.groups.values().flat_map(|known| known.pods.clone()).collect();
        let Some(uid) = all.get(with % all.len().max(1)) else { return };
        let is_silent = self.silent.iter().any(|pod| pod.uid == *uid);
        if is_silent || self.flight.iter().any(|placement| placement.pod.uid == *uid) {
            return;
        }
        if !self.bench.remove(uid) {
            self.bench.submit(Event::RemovePending(uid.clone()));
        }
        for known in self.groups.values_mut() {
            known.pods.remove(uid);
        }
    }

    fn step(&mut self, step: u8, with: usize) -> Result<(), TestCaseError> {
        match step {
            0..4 => self.arrive(with),
            4..7 => self.attempt(with)?,
            7 | 8 => self.bind(with, step == 8),
            9 => {
                self.bench.node(&format!("n{}", self.nodes), 1_000);
                self.nodes += 1;
            }
            10 => self.delete(with),
            11 => self.expire(),
            12 => self.bind_silently(with),
            _ => self.bench.passes(with as i64),
        }
        self.bench.queue.tend(self.bench.clock());
        self.check()
    }

    /// Checks that every pod is either bound, in flight or in the queue, and that no node is overcommitted.
    fn check(&self) -> Result<(), TestCaseError> {
        let snapshot = self.bench.snapshot();
        for node in snapshot.nodes() {
            prop_assert!(node.requested().cpu <= node.allocatable().cpu, "{}", node.name());
        }
        for uid in self.groups.values().flat_map(|known| &known.pods) {
            let flying = self.flight.iter().any(|placement| placement.pod.uid == *uid);
            let is_silent = self.silent.iter().any(|pod| pod.uid == *uid);
            let bound = snapshot.pod(uid).is_some_and(|pod| is_silent || !pod.is_assumed());
            let place = self.bench.place(uid);
            let waits =
                place.is_some_and(|place| !matches!(place, Place::InFlight | Place::Binding));
            let places = u8::from(flying) + u8::from(bound) + u8::from(waits);
            prop_assert!(places == 1, "{uid}: {flying} {bound} {place:?}");
        }
        for (name, known) in &self.groups {
            let status = self.bench.status(name);
            let waits = known.pods.iter().filter_map(|uid| self.bench.place(uid));
            let waits =
                waits.filter(|place| !matches!(place, Place::InFlight | Place::Binding)).count();
            prop_assert_eq!(status.waiting, waits);
            prop_assert_eq!(status.placed, snapshot.placed_members("default", name));
            // A complete group has no gated pods, whatever completed it.
            let is_free = status.held_until.is_none() && status.in_flight == 0;
            if is_free && known.pods.len() >= MIN {
                let kept =
                    known.pods.iter().find(|uid| self.bench.place(uid) == Some(Place::Gated));
                prop_assert!(kept.is_none(), "{kept:?} is gated");
            }
        }
        Ok(())
    }

    /// With enough resources and without failures, every complete group is placed completely.
    fn end(&mut self) -> Result<(), TestCaseError> {
        self.bench.node("huge", 1_000_000);
        while !self.flight.is_empty() {
            self.bind(0, false);
        }
        for _ in 0..4 {
            self.bench.passes(400);
            self.expire();
            self.bench.settle(&mut self.loops[0]);
        }
        for (name, known) in &self.groups {
            let placed = self.bench.placed(name);
            let enough = placed == known.pods.len();
            let too_few = known.pods.len() < MIN;
            prop_assert!(enough || too_few, "{} of {} of group {name}", placed, known.pods.len());
        }
        self.check()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn no_gang_is_placed_partially_and_no_pod_is_lost(
        steps in prop::collection::vec((0..14_u8, 0..18_usize), 1..150),
        seed in any::<u64>(),
    ) {
        let mut story = Story::new(seed);
        for (step, with) in steps {
            story.step(step, with)?;
        }
        story.end()?;
    }
}
