//! Recovery from an inconsistent state: all derived data is derived again.
//!
//! kube-scheduler's cache rebuilds its snapshot when its lists disagree with its nodes (backend/cache/cache.go,
//! `updateNodeInfoSnapshotList`, 1.35.4). This engine rebuilds the writer's whole state from the objects that it holds,
//! so that a defect in one index costs a rebuild rather than a restart.

use std::sync::Arc;

use crate::model::{Change, Diff, Fact, PodState};
use crate::snapshot::draft::Draft;

use super::audit::Difference;
use super::lifecycle::State;

impl State {
    /// Rebuilds all data derived from objects, under the next generation. Objects, assumed pods, their deadlines and
    /// held reservations are preserved. O(n log n).
    ///
    /// Returns the differences that an audit of the previous state cannot find: a pod that is on two nodes stays on one
    /// of them, and a pod that no node can hold is dropped.
    pub(crate) fn rebuild(&mut self) -> Vec<Difference> {
        let mut differences = Vec::new();
        self.generation = self.generation.next();
        let (draft, refused) = Draft::renewed(self.cluster(), self.generation);
        for pod in refused {
            let node = pod.node_name.as_deref().unwrap_or_default();
            differences.push(Difference {
                place: format!("pod {}", pod.uid),
                found: format!("on node {node}"),
                expected: "another node or none".to_owned(),
            });
            if draft.pod(&pod.uid).is_none() && self.followers.is_followed() {
                let change = Change::Pod(Diff { old: Some(Arc::new(pod)), new: None });
                self.followers.note(self.generation, Fact::Changed(change));
            }
        }
        self.draft = draft;
        let assumed = |uid: &_| self.draft.pod(uid).is_some_and(|pod| pod.is_assumed());
        self.deadlines.retain(|uid, _| assumed(uid));
        self.by_deadline = self.deadlines.iter().map(|(uid, at)| (*at, uid.clone())).collect();
        self.unfinished.retain(assumed);
        // Unlike deadlines, members are unbound whichever scheduler assumed them.
        let unbound =
            |uid: &_| self.draft.pod(uid).is_some_and(|pod| pod.state() == PodState::Assumed);
        self.unbound_members.retain(unbound);
        differences
    }

    /// Returns the draft, for tests that damage it.
    #[cfg(test)]
    pub(crate) fn damage(&mut self) -> &mut Draft {
        &mut self.draft
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::freeing;
    use crate::log::Event;
    use crate::model::{Labels, Name, PodAffinity, PodSpec, Service, Timestamp, node, pod};
    use crate::snapshot::draft::damage;
    use crate::snapshot::{Dump, GodelConfig};
    use crate::state::CommitPolicy;

    /// Two nodes in different zones, a ghost node, pods of every counted kind, and other objects.
    fn state() -> State {
        let mut state =
            State::new(Some(Duration::from_secs(30)), CommitPolicy::Unchecked).with_pod_names();
        let image = |name: &'static str, size| node(name).hostname().image(["a:1"], size);
        let gang = |spec: &mut PodSpec| spec.scheduling_group = Some("g".into());
        let service =
            Service { namespace: "default".into(), name: "s".into(), selector: Labels::default() };
        let events = [
            Event::AddNode(image("n1", 7).zone("z1").cpu(4_000).build().into()),
            Event::AddNode(image("n2", 9).zone("z2").cpu(8_000).build().into()),
            Event::AddPod(pod("a").cpu(10).claim("c").host_port(80).on("n1").build().into()),
            Event::AddPod(pod("b").pod_affinity(PodAffinity::default()).on("n2").build().into()),
            Event::AddPod(pod("c").spec(gang).on("gone").build().into()),
            Event::assume(pod("d").cpu(5).on("n2").build()),
            Event::FinishBinding { uid: pod("d").build().uid, now: Timestamp::from_secs(1) },
            Event::PutObject(service.into()),
        ];
        for event in events {
            state.apply(&event).unwrap();
        }
        assert_eq!(state.cluster().audit(), []);
        state
    }

    /// Audits the state and rebuilds it, as the writer does.
    fn audited(state: &mut State) -> Vec<Difference> {
        let mut differences = state.cluster().audit();
        differences.extend(state.rebuild());
        differences
    }

    #[test]
    fn a_rebuild_repairs_each_index_and_reports_the_difference() {
        for (place, damage) in damage::ALL {
            let mut state = state();
            let (before, generation) = (state.cluster().dump(), state.cluster().generation());
            damage(state.damage());
            let differences = audited(&mut state);
            let is_reported = |difference: &Difference| difference.place.starts_with(place);
            assert!(differences.iter().any(is_reported), "{place}: {differences:?}");
            assert_eq!(state.cluster().audit(), [], "{place}");
            assert_eq!(state.cluster().dump(), before, "{place}");
            assert_eq!(state.cluster().generation(), generation.next(), "{place}");
        }
    }

    #[test]
    fn a_rebuild_of_a_consistent_state_changes_nothing() {
        let mut state = state();
        let before = state.cluster().dump();
        assert_eq!(audited(&mut state), []);
        assert_eq!(audited(&mut state), []);
        assert_eq!(state.cluster().dump(), before);
        assert_eq!(state.cluster().image("a:1").map(|image| image.size), Some(7));
    }

    #[test]
    fn a_pod_that_a_rebuild_drops_does_not_expire_after_it_returns() {
        let config = GodelConfig {
            unfinished_ttl: Some(Duration::from_secs(10)),
            ..GodelConfig::new("godel")
        };
        let mut state = State::new(None, CommitPolicy::Unchecked).with_godel(config);
        let web = || std::sync::Arc::new(pod("web").on("n1").build());
        state.apply(&Event::AddNode(node("n1").build().into())).unwrap();
        state.apply(&Event::assume(web())).unwrap();
        let assumed = state.cluster().pod(&web().uid).unwrap().pod_ref();
        state.damage().displace(assumed);
        state.rebuild();
        state.apply(&Event::AddPod(web())).unwrap();
        for seconds in [0, 100] {
            let expired = Event::Expire(Timestamp::from_secs(seconds));
            assert_eq!(state.apply(&expired).unwrap().removed, 0);
        }
        assert_eq!(state.cluster().pod_count(), 1);
    }

    #[test]
    fn the_count_of_allocations_never_decreases_and_includes_the_rebuild() {
        let mut state = state();
        for _ in 0..2 {
            let (before, here) = (state.cluster().made, freeing::made());
            state.rebuild();
            // The audit allocates too, and frees its memory again.
            let allocated = freeing::made().wrapping_sub(here);
            let counted = state.cluster().made.saturating_sub(before);
            assert!(
                counted > 0 && counted <= allocated,
                "{counted} of {allocated}, {before} before"
            );
        }
    }

    #[test]
    fn allocations_of_moving_the_horizon_are_counted() {
        const PODS: usize = if cfg!(miri) { 200 } else { 5_000 };
        let mut state = state();
        let mut counted = 0;
        for n in 0..PODS {
            state.apply(&Event::AddPod(pod(format!("p{n}")).on("n1").build().into())).unwrap();
        }
        for n in 0..PODS {
            let uid = pod(format!("p{n}")).build().uid;
            state.apply(&Event::RemovePod { uid, node: None }).unwrap();
        }
        let horizon = state.cluster().generation();
        for round in 0..4 {
            // The version shares the index, so that shrinking it copies.
            let _version = state.freeze();
            let (before, here) = (state.cluster().made, freeing::made());
            match round {
                0 => state.set_horizon(horizon),
                _ => drop(state.settle(horizon, PODS / 3)),
            }
            let made = freeing::made().wrapping_sub(here);
            assert_eq!(state.cluster().made - before, made, "round {round}");
            counted += made;
        }
        assert!(counted > 0 || cfg!(miri), "nothing was allocated");
    }

    #[test]
    fn settling_drops_at_most_the_given_number_of_index_entries() {
        let mut state = state();
        for n in 0..500 {
            state.apply(&Event::AddPod(pod(format!("p{n}")).on("n1").build().into())).unwrap();
        }
        for n in 0..500 {
            let uid = pod(format!("p{n}")).build().uid;
            state.apply(&Event::RemovePod { uid, node: None }).unwrap();
        }
        let horizon = state.cluster().generation();
        drop(state.freeze());
        let mut settled = Vec::new();
        while settled.last() != Some(&0) {
            settled.push(state.settle(horizon, 150));
        }
        // Each of the 500 pods has an entry for its uid and one for its name.
        assert_eq!(settled, [150, 150, 150, 150, 150, 150, 100, 0]);
    }

    #[test]
    fn a_departed_pod_is_indexed_until_the_last_version_that_has_it_is_dropped() {
        let mut state = state();
        let new = pod("p").on("n1").build();
        state.apply(&Event::AddPod(new.clone().into())).unwrap();
        let with = state.freeze();
        state.apply(&Event::RemovePod { uid: new.uid.clone(), node: None }).unwrap();
        let without = state.freeze();
        let horizon = state.cluster().generation();
        assert_eq!(state.settle(horizon, usize::MAX), 0);
        assert!(with.pod(&new.uid).is_some());
        drop(with);
        // Its uid and its name.
        assert_eq!(state.settle(horizon, usize::MAX), 2);
        assert!(without.pod(&new.uid).is_none());
    }

    #[test]
    fn an_index_of_objects_is_rebuilt() {
        let mut state = state();
        damage::lose_index_of_services(state.damage());
        assert!(state.cluster().objects().services.get("default", "s").is_none());
        let differences = audited(&mut state);
        assert_eq!(differences.len(), 1, "{differences:?}");
        assert!(state.cluster().objects().services.get("default", "s").is_some());
        assert_eq!(state.cluster().audit(), []);
    }

    #[test]
    fn a_pod_on_two_nodes_stays_on_one() {
        let mut state = state();
        let whole: Dump = state.cluster().dump();
        let n2: Name = "n2".into();
        state.damage().place(&pod("a").on("n2").build(), &n2, None, false);
        assert_ne!(state.cluster().dump(), whole);
        let differences = audited(&mut state);
        let is_reported =
            |difference: &Difference| difference.place == format!("pod {}", pod("a").build().uid);
        assert!(differences.iter().any(is_reported), "{differences:?}");
        assert_eq!(state.cluster().audit(), []);
        assert_eq!(state.cluster().pod_count(), 4);
    }

    #[test]
    fn deadlines_outlive_a_rebuild() {
        let mut state = state();
        state.rebuild();
        let expired = |state: &mut State, now| {
            state.apply(&Event::Expire(Timestamp::from_secs(now))).unwrap().removed
        };
        assert_eq!(expired(&mut state, 31), 0);
        assert_eq!(expired(&mut state, 32), 1);
        assert_eq!(state.cluster().audit(), []);
    }
}
