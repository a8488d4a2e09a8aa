//! The pod shapes of `sched`, the same as in the measurements of kube-scheduler.

use std::sync::Arc;

use clap::ValueEnum;
use portolan::model::{
    HOSTNAME, LabelSelector, NodeAffinity, NodeSelector, NodeSelectorTerm, Operator, Pod,
    PodAffinity, PodAffinityTerm, PodBuilder, PodGroup, Requirement, Template,
    TopologySpreadConstraint, UnsatisfiableAction, WeightedPodAffinityTerm, pod,
};

use portolan_cli::Random;

const ZONE: &str = "topology.kubernetes.io/zone";
const MI: i64 = 1 << 20;

/// Shape of the measured pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub(crate) enum Shape {
    /// Identical pods with 100m cpu and 500 Mi memory.
    Basic,
    /// Distinct pods with random requests: 50m to 249m cpu, 100 to 999 Mi memory.
    Distinct,
    /// Required node affinity to two of the three zones.
    NodeAffinity,
    /// Required spread over zones with maxSkew 5.
    Spread,
    /// Preferred spread over zones with maxSkew 5.
    PrefSpread,
    /// Required affinity to pods of the same shape, by zone.
    Affinity,
    /// Required anti-affinity to pods of the same shape, by node.
    AntiAffinity,
    /// Preferred affinity to pods of the same shape, by node.
    PrefAffinity,
    /// Basic pods in pod groups of ten that are scheduled as gangs.
    Gang,
    /// Pods with 3 cpu, on nodes filled with pods of lower priority.
    Preemption,
    /// Pods with 3 cpu that fit nowhere: nodes are filled with pods of the same priority.
    #[value(name = "nofit-resources")]
    NoFitResources,
    /// Pods that fit nowhere: each node has a taint that they do not tolerate.
    #[value(name = "nofit-taints")]
    NoFitTaints,
    /// Pods that fit nowhere: their anti-affinity excludes a pod that is on each node.
    #[value(name = "nofit-antiaffinity")]
    NoFitAntiAffinity,
}

/// The number of pods per gang.
pub(super) const GANG: u32 = 10;

impl Shape {
    pub(super) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// The number of pods that surely fit on this number of nodes, each with 4 cpu. Unlimited for pods that fit
    /// nowhere.
    pub(super) fn pods_that_fit(self, nodes: usize) -> usize {
        match self {
            // Pods placed earlier and uneven requests have the rest of the cpu.
            Shape::Basic
            | Shape::Distinct
            | Shape::NodeAffinity
            | Shape::Spread
            | Shape::PrefSpread
            | Shape::PrefAffinity
            | Shape::Gang => nodes.saturating_mul(15),
            // All pods are in the zone of the first one, which may have a third of the nodes.
            Shape::Affinity => (nodes / 3).max(1).saturating_mul(25),
            // One victim on each node.
            Shape::Preemption => nodes,
            // A pod with anti-affinity occupies a node.
            Shape::AntiAffinity => nodes.div_ceil(2),
            // They are attempts.
            Shape::NoFitResources | Shape::NoFitTaints | Shape::NoFitAntiAffinity => usize::MAX,
        }
    }

    /// Returns whether pods of this shape fit on a node.
    pub(super) fn fits(self) -> bool {
        !matches!(self, Shape::NoFitResources | Shape::NoFitTaints | Shape::NoFitAntiAffinity)
    }

    fn build(self, random: &mut Random) -> PodBuilder {
        let basic = pod("measured");
        let colored = || pod("measured").cpu(100).memory(500 * MI).label("color", "x");
        match self {
            Shape::Basic | Shape::Gang | Shape::NoFitTaints => basic.cpu(100).memory(500 * MI),
            Shape::Distinct => {
                let (cpu, memory) = (50 + random.below(200), 100 + random.below(900));
                basic.cpu(cpu as i64).memory(memory as i64 * MI)
            }
            Shape::NodeAffinity => {
                let zones = Requirement::new(ZONE, Operator::In, ["zone-0", "zone-1"]);
                let term = NodeSelectorTerm {
                    match_expressions: Box::new([zones]),
                    ..NodeSelectorTerm::default()
                };
                let required = Some(NodeSelector { terms: Box::new([term]) });
                let affinity = NodeAffinity { required, ..NodeAffinity::default() };
                basic.cpu(100).memory(500 * MI).node_affinity(affinity)
            }
            Shape::Spread => colored().spec(|spec| {
                spec.topology_spread = Box::new([spread(UnsatisfiableAction::DoNotSchedule)]);
            }),
            Shape::PrefSpread => colored().spec(|spec| {
                spec.topology_spread = Box::new([spread(UnsatisfiableAction::ScheduleAnyway)]);
            }),
            Shape::Affinity => {
                let required = Box::new([near(ZONE)]);
                colored().pod_affinity(PodAffinity { required, ..PodAffinity::default() })
            }
            Shape::AntiAffinity | Shape::NoFitAntiAffinity => {
                let required = Box::new([near(HOSTNAME)]);
                colored().pod_anti_affinity(PodAffinity { required, ..PodAffinity::default() })
            }
            Shape::PrefAffinity => {
                let preferred =
                    Box::new([WeightedPodAffinityTerm { weight: 1, term: near(HOSTNAME) }]);
                colored().pod_affinity(PodAffinity { preferred, ..PodAffinity::default() })
            }
            Shape::Preemption => basic.cpu(3000).memory(500 * MI).priority(10),
            Shape::NoFitResources => basic.cpu(3000).memory(500 * MI),
        }
    }
}

fn colored() -> LabelSelector {
    LabelSelector::from_labels([("color", "x")])
}

fn spread(when_unsatisfiable: UnsatisfiableAction) -> TopologySpreadConstraint {
    TopologySpreadConstraint {
        max_skew: 5,
        topology_key: ZONE.into(),
        when_unsatisfiable,
        selector: colored(),
        min_domains: None,
        honor_node_affinity: true,
        honor_node_taints: false,
        match_label_keys: Box::default(),
    }
}

fn near(key: &str) -> PodAffinityTerm {
    PodAffinityTerm {
        topology_key: key.into(),
        selector: colored(),
        namespaces: Box::new(["default".into()]),
        namespace_selector: LabelSelector::Nothing,
    }
}

/// Creates pods; pods of one shape share a template, as they do when read from a
/// cluster.
pub(super) struct Pods {
    random: Random,
    count: u64,
    templates: Vec<(Shape, Arc<Template>)>,
    /// The last group may have fewer than [`GANG`] pods.
    groups: Vec<(PodGroup, Arc<Template>)>,
}

impl Pods {
    pub(super) fn new(seed: u64) -> Pods {
        Pods { random: Random::new(seed), count: 0, templates: Vec::new(), groups: Vec::new() }
    }

    pub(super) fn make(&mut self, shape: Shape) -> Arc<Pod> {
        if shape == Shape::Gang {
            return self.member();
        }
        let known = self.templates.iter().find(|(known, _)| *known == shape);
        let template = match known {
            Some((_, template)) if shape != Shape::Distinct => template.clone(),
            _ => {
                let template = shape.build(&mut self.random).build().template;
                self.templates.push((shape, template.clone()));
                template
            }
        };
        self.with(template)
    }

    /// The groups of the pods created so far; each requires all of its pods.
    pub(super) fn groups(&self) -> impl Iterator<Item = &PodGroup> {
        self.groups.iter().map(|(group, _)| group)
    }

    fn member(&mut self) -> Arc<Pod> {
        let template = match self.groups.last_mut() {
            Some((group, template)) if group.min_members < GANG => {
                group.min_members += 1;
                template.clone()
            }
            _ => {
                let name = format!("gang-{}", self.groups.len());
                let pod = Shape::Gang.build(&mut self.random).group(name.as_str()).build();
                let group = PodGroup::new(pod.namespace().clone(), name, 1);
                self.groups.push((group, pod.template.clone()));
                pod.template
            }
        };
        self.with(template)
    }

    /// A pod that pods with anti-affinity avoid, without affinity of its own.
    pub(super) fn colored(&mut self) -> Arc<Pod> {
        let colored = pod("colored").cpu(100).memory(500 * MI).label("color", "x").build();
        self.with(colored.template)
    }

    /// A pod that fills a node for [`Shape::Preemption`] and [`Shape::NoFitResources`].
    pub(super) fn filling(&mut self) -> Arc<Pod> {
        let filling = pod("filling").cpu(3000).memory(500 * MI).build().template;
        self.with(filling)
    }

    fn with(&mut self, template: Arc<Template>) -> Arc<Pod> {
        self.count += 1;
        Arc::new(Pod {
            uid: self.random.uid(),
            name: format!("measured-{}", self.count).into(),
            template,
            resource_version: 1,
            node_name: None,
            nominated_node_name: None,
            creation_time: None,
            start_time: None,
            deletion_time: None,
            claim_statuses: None,
            finished: false,
        })
    }
}
