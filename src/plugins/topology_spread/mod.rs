//! Spreads pods over topology domains (podtopologyspread/{filtering,scoring}.go).

mod constraints;
mod counting;
mod filter;
mod score;

use crate::framework::{Cycle, Feasible, Plugin, Point, PreFilter, PreScore, Status};
use crate::model::{Pod, TopologySpreadConstraint, UnsatisfiableAction};
use crate::snapshot::Cluster;

use super::hints::{self, ClusterEvent, Hint, Interest};
use super::ledger::{Ledger, Remembered};
use constraints::{Constraint, Defaults, Selected};
use counting::Matched;
use filter::Skew;
use score::Spread;

/// Rejects nodes on which the pod would violate its hard spread constraints, and prefers nodes by its soft ones.
#[derive(Clone, Debug, Default)]
pub struct PodTopologySpread {
    defaults: Defaults,
    counted: Remembered<Counts>,
    selected: Remembered<Selections, MAX_SELECTIONS>,
}

/// The sums cached for pods of one template, whose size is that of the cluster.
#[derive(Default)]
struct Counts {
    hard: Ledger,
    soft: Ledger,
}

/// Which pods the constraints of one template select.
#[derive(Default)]
struct Selections {
    default: Selected,
    hard: Matched,
    soft: Matched,
}

/// The largest number of templates to cache [`Selections`] for, which are small. Finding them again costs a pass over
/// the labels of all pods.
const MAX_SELECTIONS: usize = 4096;

const NAME: &str = "PodTopologySpread";

impl PodTopologySpread {
    /// Sets the constraints of pods that have none of their own (`defaultingType: List`).
    #[must_use]
    pub fn with_default_constraints(constraints: Vec<TopologySpreadConstraint>) -> Self {
        PodTopologySpread { defaults: Defaults::List(constraints), ..Self::default() }
    }

    /// Returns the pod's constraints with this action.
    fn constraints<'a>(
        &'a self,
        cluster: &Cluster,
        pod: &'a Pod,
        action: UnsatisfiableAction,
    ) -> Result<Vec<Constraint<'a>>, Status> {
        constraints::constraints(&self.defaults, pod, action, || {
            if !constraints::may_be_selected(cluster, &pod.template) {
                return None;
            }
            self.selected.with(&pod.template, |selected| selected.default.follow(cluster, pod))
        })
    }
}

impl Plugin for PodTopologySpread {
    fn name(&self) -> &'static str {
        NAME
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreFilter, Point::Filter, Point::PreScore, Point::Score]
    }

    fn is_by_template(&self, _: &Pod) -> bool {
        true
    }

    fn events(&self) -> &'static [Interest] {
        hints::topology_spread::EVENTS
    }

    fn queueing_hint(
        &self,
        pod: &Pod,
        event: &ClusterEvent<'_>,
        cluster: &Cluster,
    ) -> Result<Hint, Status> {
        let hard = self.constraints(cluster, pod, UnsatisfiableAction::DoNotSchedule)?;
        let counts = hard.iter().map(|constraint| hints::topology_spread::Counts {
            key: constraint.key,
            selector: &constraint.selector,
            honor_taints: constraint.honor_node_taints,
        });
        Ok(hints::topology_spread::hint(pod, event, &counts.collect::<Vec<_>>()))
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        let (cluster, pod) = (cycle.cluster, cycle.pod);
        let constraints = self.constraints(cluster, pod, UnsatisfiableAction::DoNotSchedule)?;
        if constraints.is_empty() {
            return Ok(PreFilter::Skip);
        }
        // A node that lacks any of the keys counts for none of them.
        let wanted = (true, counting::all(&constraints));
        let matched = self.selected.with(&pod.template, |selected| {
            selected.hard.follow(cycle, &constraints);
            selected.hard.clone()
        });
        let keys = self.counted.with(&pod.template, |counted| {
            counting::follow(&mut counted.hard, cycle, (&constraints, &matched), wanted)
        });
        Ok(PreFilter::Filter(Box::new(Skew::new(cycle, constraints, &keys))))
    }

    /// Kube-scheduler's `Score` reads the state of PreScore and fails without it.
    fn score_alone<'a>(
        &'a self,
        _: Cycle<'a>,
        _: &'a Feasible<'a>,
    ) -> Result<PreScore<'a>, Status> {
        let reason = "error reading \"PreScorePodTopologySpread\" from cycleState: not found";
        Err(Status::error(NAME, reason))
    }

    fn pre_score<'a>(
        &'a self,
        cycle: Cycle<'a>,
        feasible: &'a Feasible<'a>,
    ) -> Result<PreScore<'a>, Status> {
        let (cluster, pod) = (cycle.cluster, cycle.pod);
        let constraints = self.constraints(cluster, pod, UnsatisfiableAction::ScheduleAnyway)?;
        if constraints.is_empty() {
            return Ok(PreScore::Skip);
        }
        let own = &pod.template.topology_spread;
        let all_keys = !own.is_empty() || !matches!(self.defaults, Defaults::System);
        // Constraints over single nodes count their pods when a node is scored.
        let wanted = counting::all(&constraints) & !score::of_hosts(&constraints);
        let matched = self.selected.with(&pod.template, |selected| {
            selected.soft.follow(cycle, &constraints);
            selected.soft.clone()
        });
        let keys = self.counted.with(&pod.template, |counted| {
            let constraints = (&constraints[..], &matched);
            counting::follow(&mut counted.soft, cycle, constraints, (all_keys, wanted))
        });
        let constraints = (&constraints[..], matched);
        let spread = Spread::new(cycle, feasible, constraints, &keys, all_keys);
        Ok(PreScore::Score(Box::new(spread)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framework::{Code, CycleState};
    use crate::model::{
        LabelSelector, Labels, ObjectKind, OwnerReference, Service, Workload, node, pod,
    };
    use crate::{Config, Engine};

    fn service(name: &str, app: &str) -> Service {
        let selector = Labels::new([("app", app)]);
        Service { namespace: "default".into(), name: name.into(), selector }
    }

    #[test]
    fn default_constraints_follow_services() {
        let (mut writer, _) = Engine::inline(Config::default());
        let plugin = PodTopologySpread::default();
        let pod = pod("web").label("app", "web").build();
        let soft = |cluster: &Cluster| {
            let found = plugin.constraints(cluster, &pod, UnsatisfiableAction::ScheduleAnyway);
            found.unwrap().into_iter().map(|soft| soft.selector.into_owned()).collect::<Vec<_>>()
        };
        assert!(soft(writer.cluster()).is_empty());
        writer.put_object(service("other", "db")).unwrap();
        assert!(soft(writer.cluster()).is_empty());
        writer.put_object(service("web", "web")).unwrap();
        let selector = LabelSelector::from_labels([("app", "web")]);
        assert_eq!(soft(writer.cluster()), [selector.clone(), selector]);
        let before = writer.cluster().fork();
        writer.put_object(service("web", "db")).unwrap();
        assert!(soft(writer.cluster()).is_empty());
        assert_eq!(soft(&before).len(), 2, "an older version keeps its own services");
    }

    /// helper/spread.go `DefaultSelector` supports three kinds of owners.
    #[test]
    fn daemon_sets_get_no_default_constraints() {
        let plugin = PodTopologySpread::default();
        let soft = |kind: ObjectKind| {
            let (mut writer, _) = Engine::inline(Config::default());
            let labels = Labels::new([("app", "agent")]);
            let selector = LabelSelector::from_labels([("app", "agent")]);
            let (namespace, name) = ("default".into(), "agent".into());
            let owner = Workload { kind, namespace, name, labels, selector };
            writer.put_object(owner).unwrap();
            let reference = OwnerReference {
                api_version: "apps/v1".into(),
                kind: kind.as_str().into(),
                name: "agent".into(),
                uid: "u".into(),
                controller: true,
            };
            let pod = pod("agent-x").label("app", "agent");
            let pod = pod.spec(|spec| spec.owners = [reference].into()).build();
            let action = UnsatisfiableAction::ScheduleAnyway;
            plugin.constraints(writer.cluster(), &pod, action).unwrap().len()
        };
        assert_eq!((soft(ObjectKind::DaemonSet), soft(ObjectKind::ReplicaSet)), (0, 2));
    }

    #[test]
    fn more_than_64_constraints_are_an_error() {
        let (mut writer, _) = Engine::inline(Config::default());
        writer.add_node(node("n").build()).unwrap();
        let constraint = |n| TopologySpreadConstraint {
            max_skew: 1,
            topology_key: format!("key-{n}").into(),
            when_unsatisfiable: UnsatisfiableAction::DoNotSchedule,
            selector: LabelSelector::from_labels([("app", "web")]),
            min_domains: None,
            honor_node_affinity: true,
            honor_node_taints: false,
            match_label_keys: Box::default(),
        };
        let with = |n| pod("web").spec(|s| s.topology_spread = (0..n).map(constraint).collect());
        let (state, plugin) = (CycleState::default(), PodTopologySpread::default());
        for (constraints, is_refused) in [(64, false), (65, true)] {
            let pod = with(constraints).build();
            let asked = plugin.pre_filter(Cycle::new(writer.cluster(), &pod, &state));
            match asked.err() {
                Some(status) => assert!(is_refused && status.code == Code::Error, "{status:?}"),
                None => assert!(!is_refused, "{constraints}"),
            }
        }
    }
}
