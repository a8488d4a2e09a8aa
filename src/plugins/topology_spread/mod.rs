//! Spreads pods over topology domains (podtopologyspread/{filtering,scoring}.go).

mod constraints;
mod counting;
mod filter;
mod score;

use crate::framework::{
    ByTemplate, Cycle, Feasible, Plugin, PluginInfo, Point, PreFilter, PreScore, Status,
};
use crate::model::{Pod, TopologySpreadConstraint, UnsatisfiableAction};
use crate::snapshot::Cluster;

use super::hints::{self, ClusterEvent, Hint};
use super::ledger::{Ledger, MAX_TEMPLATES, PerThread, Selection};
use constraints::{Constraint, Defaults, Policy, Selected};
use counting::{AllNodes, Sets, Wanted};
use filter::Skew;
use score::Spread;

/// Rejects nodes on which the pod would violate its hard spread constraints, and prefers nodes by its soft ones.
#[derive(Clone, Debug, Default)]
pub struct PodTopologySpread {
    defaults: Defaults,
    counted: PerThread<ByTemplate<Counts>>,
    selected: PerThread<ByTemplate<Selections>>,
    nodes: PerThread<AllNodes>,
}

/// The sums cached for pods of one template. They take memory for each chunk of the cluster.
#[derive(Default)]
struct Counts {
    hard: Ledger,
    soft: Ledger,
}

/// Which pods the constraints of one template select.
#[derive(Default)]
struct Selections {
    default: Selected,
    hard: Selection<Sets>,
    soft: Selection<Sets>,
}

/// The largest number of templates to cache [`Selections`] for, which are small.
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
            self.selected.with_template(&pod.template, MAX_SELECTIONS, |selected| {
                selected.default.follow(cluster, pod)
            })
        })
    }
}

impl Plugin for PodTopologySpread {
    fn info(&self) -> PluginInfo {
        PluginInfo::new(NAME, &[Point::PreFilter, Point::Filter, Point::PreScore, Point::Score])
            .events(hints::topology_spread::EVENTS)
    }

    fn treats_template_alike(&self, _: &Pod, _: &Cluster) -> bool {
        true
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
        let policies = counting::policies(&constraints, pod);
        let are_all_included = policies.iter().all(Policy::includes_all);
        let wanted = Wanted {
            constraints: &constraints,
            policies,
            // A node that lacks any of the keys counts for none of them.
            all_keys: true,
            pods: counting::all(&constraints),
            nodes: !are_all_included,
        };
        let (pods, mut nodes) =
            self.selected.with_template(&pod.template, MAX_SELECTIONS, |selected| {
                self.counted.with_template(&pod.template, MAX_TEMPLATES, |counted| {
                    counting::follow(&mut counted.hard, &mut selected.hard, cycle, &wanted)
                })
            });
        if are_all_included {
            nodes = self.nodes.with(|all| all.follow(cluster, &constraints).clone());
        }
        Ok(PreFilter::Filter(Box::new(Skew::new(cycle, constraints, &pods, &nodes))))
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
        let of_hosts = score::of_hosts(&constraints);
        let wanted = Wanted {
            constraints: &constraints,
            policies: counting::policies(&constraints, pod),
            all_keys,
            pods: counting::all(&constraints) & !of_hosts,
            nodes: false,
        };
        let (keys, sets) = self.selected.with_template(&pod.template, MAX_SELECTIONS, |selected| {
            let (keys, _) = self.counted.with_template(&pod.template, MAX_TEMPLATES, |counted| {
                counting::follow(&mut counted.soft, &mut selected.soft, cycle, &wanted)
            });
            let chunks = feasible.chunks().map(|(chunk, _)| chunk);
            let sets = match of_hosts {
                0 => Sets::default(),
                _ => counting::sets_within(&mut selected.soft, cycle, &constraints, chunks),
            };
            (keys, sets)
        });
        let constraints = (&constraints[..], sets);
        let spread = Spread::new(cycle, feasible, constraints, &keys, all_keys);
        Ok(PreScore::Score(Box::new(spread)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{Config, Engine};
    use crate::framework::{Code, CycleState, Framework};
    use crate::model::{
        HOSTNAME, LabelSelector, Labels, ObjectKind, OwnerReference, Service, Timestamp, Workload,
        node, pod,
    };

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

    /// The scores of a framework that has cached sums and sets are those of a new one.
    #[test]
    fn scores_follow_services_labels_and_terminating_pods() {
        let (mut writer, _) = Engine::inline(Config::default());
        for n in 0..700 {
            let zone = ["a", "b", "c"][n % 3];
            writer
                .add_node(node(format!("n{n:03}")).zone(zone).hostname().pods(110).build())
                .unwrap();
        }
        let scores = |framework: &Framework, cluster: &Cluster| {
            let pod = pod("new").label("app", "web").label("tier", "x").build();
            let found = framework.evaluate(cluster, &pod);
            let scores = found.nodes.values().map(|verdict| {
                let score = verdict.scores.iter().find(|score| score.plugin == NAME);
                score.map(|score| score.normalized)
            });
            scores.collect::<Vec<_>>()
        };
        let used = Framework::default_profile();
        let mut known = Vec::new();
        let mut check = |cluster: &Cluster, is_changed: bool| {
            let new = scores(&used, cluster);
            assert_eq!(new, scores(&Framework::default_profile(), cluster));
            assert_eq!(new != known, is_changed);
            known = new;
        };
        for n in 0..40 {
            let web = pod(format!("web-{n}")).label("app", "web").label("n", &n.to_string());
            writer.add_pod(web.on(format!("n{:03}", n % 7)).build()).unwrap();
            let db = pod(format!("db-{n}")).label("tier", "x").label("n", &n.to_string());
            writer.add_pod(db.on(format!("n{:03}", 100 + n % 5)).build()).unwrap();
        }
        writer.put_object(service("s", "web")).unwrap();
        check(writer.cluster(), true);
        // No pod changes, only what the default constraints select.
        let selector = Labels::new([("tier", "x")]);
        let other = Service { namespace: "default".into(), name: "s".into(), selector };
        writer.put_object(other).unwrap();
        check(writer.cluster(), true);
        // Pods with labels of their own come and go, and their numbers are reused.
        let before = writer.cluster().fork();
        let gone = pod("db-0").label("tier", "x").label("n", "0").on("n100").build();
        writer.remove_pod(&gone).unwrap();
        check(writer.cluster(), true);
        writer.add_pod(pod("other").label("a", "b").on("n100").build()).unwrap();
        check(writer.cluster(), false);
        check(&before, true);
        check(writer.cluster(), true);
        // A pod that is being deleted counts no longer.
        let db = pod("db-1").label("tier", "x").label("n", "1").on("n101");
        let (old, mut new) = (db.clone().build(), db.build());
        new.deletion_time = Some(Timestamp::from_secs(1));
        writer.update_pod(&old.uid, new).unwrap();
        check(writer.cluster(), true);
    }

    fn hard(key: &str) -> TopologySpreadConstraint {
        TopologySpreadConstraint {
            max_skew: 1,
            topology_key: key.into(),
            when_unsatisfiable: UnsatisfiableAction::DoNotSchedule,
            selector: LabelSelector::from_labels([("app", "web")]),
            min_domains: None,
            honor_node_affinity: true,
            honor_node_taints: false,
            match_label_keys: Box::default(),
        }
    }

    /// The numbers of nodes are shared by templates with the same keys, until the layout changes.
    #[test]
    fn nodes_are_counted_by_keys_layout_and_node_affinity() {
        const ZONE: &str = "topology.kubernetes.io/zone";
        let (mut writer, _) = Engine::inline(Config::default());
        let add = |writer: &mut crate::cache::Writer, name: &str, zone: &str| {
            let pool = if zone == "a" { "other" } else { "x" };
            let made = node(name).zone(zone).hostname().label("pool", pool).pods(110);
            writer.add_node(made.build()).unwrap();
        };
        for zone in ["b", "c", "a"] {
            add(&mut writer, zone, zone);
        }
        for (name, on) in [("one", "b"), ("two", "c")] {
            writer.add_pod(pod(name).label("app", "web").on(on).build()).unwrap();
        }
        let with = |key: &str, pool: Option<&str>| {
            let made = pod("new").label("app", "web").spec(|spec| {
                spec.topology_spread = [hard(key)].into();
                spec.node_selector = Labels::new(pool.map(|pool| ("pool", pool)));
            });
            made.build()
        };
        let pods = [with(ZONE, None), with(HOSTNAME, None), with(ZONE, Some("x"))];
        let used = Framework::default_profile();
        let fits = |cluster: &Cluster| {
            let fits = pods.each_ref().map(|pod| {
                let nodes = used.evaluate(cluster, pod).nodes.into_iter();
                let fits = nodes.filter(|(_, verdict)| verdict.status.is_none());
                fits.map(|(name, _)| name.to_string()).collect::<Vec<_>>().join(" ")
            });
            fits.join(", ")
        };
        // Zone a has no such pods, but the selector excludes it.
        assert_eq!(fits(writer.cluster()), "a, a, b c");
        add(&mut writer, "d", "d");
        assert_eq!(fits(writer.cluster()), "a d, a d, d");
        writer.remove_node("d").unwrap();
        add(&mut writer, "e", "b");
        assert_eq!(fits(writer.cluster()), "a, a e, b c e");
        writer.remove_node("a").unwrap();
        assert_eq!(fits(writer.cluster()), "b c e, e, b c e");
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
        let constraint = |n| hard(&format!("key-{n}"));
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
