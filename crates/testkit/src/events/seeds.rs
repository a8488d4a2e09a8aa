//! Decodes pods, nodes and movements from small numbers.

use std::sync::Arc;

use portolan::model::{
    GodelPod, LabelSelector, Launcher, Movement, MovementOwner, MovementTask, Name, Node,
    NominatedNode, Object, OwnerKey, OwnerReference, Pod, PodAffinity, PodAffinityTerm, PodClass,
    PodResourceClaim, PodSpec, Quantity, RecommendedNode, Taint, TaintEffect, Timestamp, Uid,
    Victim, node, pod,
};
#[cfg(feature = "proptest")]
use proptest::prelude::*;

/// A pod.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "proptest", derive(proptest_derive::Arbitrary))]
pub struct PodSeed {
    /// Selects one of 16 uids and names. The first uid is empty.
    pub uid: u8,
    /// Selects one of 72 nodes, or none if it is [`PodSeed::NO_NODE`].
    #[cfg_attr(feature = "proptest", proptest(strategy = "few_nodes()"))]
    pub node: u8,
    /// The amounts; and bits for claims, a host port, GPUs, affinity and [`PodSeed::HUGE`].
    #[cfg_attr(
        feature = "proptest",
        proptest(strategy = "any::<u8>().prop_map(|shape| shape & !PodSeed::HUGE)")
    )]
    pub shape: u8,
    /// The fields that few pods have.
    pub traits: Traits,
    /// The annotations of Gödel's components.
    pub godel: Option<GodelSeed>,
}

/// Fields of a pod that other objects refer to, or that few pods have. The default sets none of them.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "proptest", derive(proptest_derive::Arbitrary))]
pub struct Traits {
    /// Selects the label `app`: 1 is `a`, 2 is `b`.
    #[cfg_attr(feature = "proptest", proptest(strategy = "0..3_u8"))]
    pub app: u8,
    /// Selects one of 3 groups; 0 and numbers above 3 are none.
    #[cfg_attr(feature = "proptest", proptest(strategy = "0..8_u8"))]
    pub group: u8,
    /// The priority.
    #[cfg_attr(feature = "proptest", proptest(strategy = "0..3_u8"))]
    pub priority: u8,
    /// Whether a ReplicaSet owns the pod.
    pub owner: bool,
    /// Whether the pod has a term of required anti-affinity.
    pub anti_affinity: bool,
    /// Whether the pod is charged to the best-effort resources.
    pub best_effort: bool,
    /// Whether two volumes refer to the same claim.
    pub claims_twice: bool,
    /// Whether the pod requests huge pages. The amount may be 0.
    pub huge_pages: bool,
    /// Whether the pod has started.
    pub started: bool,
    /// Whether the pod has a resource claim, so that it cannot be assumed.
    #[cfg_attr(feature = "proptest", proptest(strategy = "prop::bool::weighted(0.06)"))]
    pub resource_claim: bool,
}

/// Gödel's annotations of a pod.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "proptest", derive(proptest_derive::Arbitrary))]
pub struct GodelSeed {
    /// Selects the state modulo 5: 0 is dispatched, 1 is none, and the others are assumed.
    pub state: u8,
    /// The node on which the pod is assumed. Ignored if the pod is dispatched or has a nomination.
    #[cfg_attr(feature = "proptest", proptest(strategy = "prop::option::of(0..16_u8)"))]
    pub assumed_on: Option<u8>,
    /// The node nominated by preemption.
    pub nomination: Option<NominationSeed>,
    /// Selects the movement that the pod follows.
    pub movement: Option<u8>,
    /// The reservation.
    pub place: Option<PlaceSeed>,
    /// Selects an unknown launcher (1) or an unknown class (2), with which an assumed pod is not counted.
    #[cfg_attr(feature = "proptest", proptest(strategy = "0..16_u8"))]
    pub unknown: u8,
}

/// A nomination by preemption.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "proptest", derive(proptest_derive::Arbitrary))]
pub struct NominationSeed {
    /// The nominated node, or `None` for the node that the pod is on.
    #[cfg_attr(feature = "proptest", proptest(strategy = "prop::option::of(0..16_u8)"))]
    pub elsewhere: Option<u8>,
    /// The uids of the victims.
    #[cfg_attr(feature = "proptest", proptest(strategy = "prop::array::uniform2(0..8_u8)"))]
    pub victims: [u8; 2],
}

/// The reservations that a pod leaves and takes.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "proptest", derive(proptest_derive::Arbitrary))]
pub struct PlaceSeed {
    /// Whether the pod leaves a reservation when it is deleted.
    pub reserves: bool,
    /// The pod whose reservation this pod takes.
    pub takes: Option<u8>,
}

/// A movement.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "proptest", derive(proptest_derive::Arbitrary))]
pub struct MovementSeed {
    /// Selects one of 4 names, and the number of evicted pods.
    pub name: u8,
    /// Selects the creator; 0 is none.
    pub creator: u8,
    /// Whether each pod that is already placed is listed twice.
    pub is_repeated: bool,
    /// For each recommended node: the kind of the owner, the node, the number of pods requested there, and the pods
    /// already placed there.
    #[cfg_attr(feature = "proptest", proptest(strategy = "places()"))]
    pub places: Vec<[u8; 4]>,
}

/// A node.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "proptest", derive(proptest_derive::Arbitrary))]
pub struct NodeSeed {
    /// Selects one of 72 names, which is more than a chunk has lanes.
    pub name: u8,
    /// Selects one of 5 zones, or none if it is 200 or more.
    pub zone: u8,
    /// The amounts; and bits for an image and GPUs.
    pub shape: u8,
    /// Whether the node has an image that shares a name with another image.
    pub other_image: bool,
    /// Whether the node is tainted and unschedulable.
    pub is_tainted: bool,
    /// Selects the Gödel scheduler to which the node is assigned.
    pub scheduler: Option<u8>,
}

/// Generates one of the 16 nodes that other objects also name, or, once in 5 times, none.
#[cfg(feature = "proptest")]
fn few_nodes() -> impl Strategy<Value = u8> {
    prop_oneof![4 => 0..16_u8, 1 => Just(PodSeed::NO_NODE)]
}

#[cfg(feature = "proptest")]
fn places() -> impl Strategy<Value = Vec<[u8; 4]>> {
    let place = (any::<u8>(), 0..16_u8, any::<u8>(), any::<u8>());
    let place = place.prop_map(|(owner, node, desired, actual)| [owner, node, desired, actual]);
    prop::collection::vec(place, 0..10)
}

/// Returns one of 16 uids, of which the first is empty.
pub fn uid(n: u8) -> Uid {
    Uid::new(&match n % 16 {
        0 => String::new(),
        n if n % 2 == 0 => format!("u{n}"),
        n => format!("00000000-0000-0000-0000-0000000000{n:02x}"),
    })
}

/// Returns the name of the pod with [`uid`] `n`.
pub(super) fn pod_name(n: u8) -> String {
    format!("p{}", n % 16)
}

pub(super) fn node_name(n: u8) -> Name {
    format!("n{}", n % 72).into()
}

pub(super) fn scheduler_name(n: u8) -> Name {
    format!("s{}", n & 1).into()
}

pub(super) fn movement_name(n: u8) -> Name {
    format!("m{}", n / 64).into()
}

/// Returns one of 3 names of groups, or `None`.
pub(super) fn group_name(n: u8) -> Option<&'static str> {
    match n {
        1 => Some("g"),
        2 => Some("g0"),
        3 => Some("g1"),
        _ => None,
    }
}

impl PodSeed {
    /// The number that selects no node.
    pub const NO_NODE: u8 = u8::MAX;
    /// The bit of `shape` that makes sums approach or exceed the limit of 64 bits. Proptest does not generate it unless
    /// a test sets it, because the naive fold cannot predict which events overflow.
    pub const HUGE: u8 = 16;

    /// Returns the pod.
    pub fn pod(&self) -> Pod {
        let bit = |n: u8| self.shape >> n & 1 == 1;
        let mut builder =
            pod(pod_name(self.uid)).resource_version(self.shape.into()).cpu(i64::from(self.shape));
        if self.node != PodSeed::NO_NODE {
            builder = builder.on(node_name(self.node));
        }
        if bit(0) {
            builder = builder.claim("shared").claim(format!("own-{}", self.uid % 4));
        }
        if self.traits.claims_twice {
            builder = builder.claim("twice").claim("twice");
        }
        if bit(1) {
            builder = builder.host_port(8000 + u16::from(self.uid % 2));
        }
        if bit(2) {
            builder = builder.request("example.com/gpu", Quantity::whole(self.shape.into()));
        }
        if self.traits.huge_pages {
            let amount = i64::from(self.shape & 4);
            builder = builder.request("hugepages-2Mi", Quantity::whole(amount));
        }
        if bit(3) {
            builder = builder.pod_affinity(PodAffinity::default());
        }
        if self.shape & PodSeed::HUGE != 0 {
            builder = builder.memory(i64::MAX / 2);
        }
        if let Some(app) = ["a", "b"].get(usize::from(self.traits.app).wrapping_sub(1)) {
            builder = builder.label("app", app);
        }
        if self.traits.started {
            builder = builder.started(Timestamp::from_secs(i64::from(self.shape & 3)));
        }
        let mut pod = builder.spec(|spec| self.complete(spec)).build();
        pod.uid = uid(self.uid);
        pod
    }

    /// Returns the pod as events carry it.
    pub(super) fn shared(&self) -> Arc<Pod> {
        Arc::new(self.pod())
    }

    /// Sets the fields of the spec that the builder has no method for, or whose builder defaults must be kept if the
    /// seed does not set them.
    fn complete(&self, spec: &mut PodSpec) {
        let traits = &self.traits;
        if traits.priority != 0 {
            spec.priority = i32::from(traits.priority);
        }
        if let Some(group) = group_name(traits.group) {
            spec.scheduling_group = Some(group.into());
        }
        if traits.anti_affinity {
            let term = PodAffinityTerm {
                topology_key: "zone".into(),
                selector: LabelSelector::from_labels([("app", "a")]),
                namespaces: ["default".into()].into(),
                namespace_selector: LabelSelector::Nothing,
            };
            let required = Box::new([term]);
            spec.pod_anti_affinity =
                Some(Box::new(PodAffinity { required, ..PodAffinity::default() }));
        }
        if traits.best_effort {
            spec.class = PodClass::BestEffort;
        }
        if traits.resource_claim {
            let name = "device".into();
            let claim = PodResourceClaim { name, ..PodResourceClaim::default() };
            spec.resource_claims = [claim].into();
        }
        if traits.owner {
            spec.owners = Box::new([OwnerReference {
                api_version: "apps/v1".into(),
                kind: "ReplicaSet".into(),
                name: "rs".into(),
                uid: "r".into(),
                controller: true,
            }]);
        }
        if self.godel.as_ref().is_some_and(|godel| godel.unknown == 1) {
            spec.launcher = Launcher::Unknown;
        }
        spec.godel = self.godel.as_ref().map(|godel| Box::new(godel.annotations(self.node)));
    }
}

impl GodelSeed {
    /// Returns the annotations of a pod on this node.
    fn annotations(&self, node: u8) -> GodelPod {
        let state = match self.state % 5 {
            0 => "dispatched",
            1 => "",
            _ => "assumed",
        };
        let victim = |n: u8| Victim {
            namespace: "n".into(),
            name: "v".into(),
            uid: uid(n).to_string().into(),
        };
        let nominated_node = self.nomination.as_ref().map(|nomination| NominatedNode {
            node: node_name(nomination.elsewhere.unwrap_or(node)),
            victims: nomination.victims.map(victim).into(),
        });
        // A pod is assumed on one node: the nominated one if there is a nomination. If it names no node, it was assumed
        // by another scheduler.
        let may_name = state != "dispatched" && nominated_node.is_none();
        let place = self.place.as_ref();
        let taken = place.and_then(|place| place.takes);
        GodelPod {
            state: state.into(),
            selected_scheduler: (!state.is_empty()).then(|| "s".into()),
            assumed_node: self.assumed_on.filter(|_| may_name).map(node_name),
            nominated_node,
            movement: self.movement.map(movement_name),
            reserves: place.is_some_and(|place| place.reserves),
            reservation_index: place.map(|_| "web".into()),
            has_unknown_class: self.unknown == 2,
            matched_placeholder: taken
                .map(|n| format!("default/{}-placeholder", pod_name(n)).into()),
            ..GodelPod::default()
        }
    }
}

impl MovementSeed {
    /// Returns the movement.
    pub(super) fn movement(&self) -> Object {
        let task = |n: u8| MovementTask {
            namespace: "n".into(),
            name: "p".into(),
            uid: uid(n),
            node: node_name(n),
        };
        let place = |[owner_kind, node, desired, actual]: &[u8; 4]| {
            let (kind, name, uid) = match owner_kind % 2 {
                0 => ("PodGroup", "g", ""),
                _ => ("ReplicaSet", "rs", "r"),
            };
            let owner = OwnerKey {
                kind: kind.into(),
                namespace: "default".into(),
                name: name.into(),
                uid: uid.into(),
            };
            // The largest 64-bit number must be covered, too.
            let desired = if *desired == u8::MAX { u64::MAX } else { (desired % 4).into() };
            let placed = (0..actual % 4).map(|i| task((actual / 4).wrapping_add(i)));
            let again = placed.clone().filter(|_| self.is_repeated);
            let actual = placed.chain(again).collect();
            let nodes = Box::new([RecommendedNode { node: node_name(*node), desired, actual }]);
            MovementOwner { owner, nodes }
        };
        let creator = match self.creator {
            0 => Name::default(),
            n => format!("c{}", n % 3).into(),
        };
        Object::from(Movement {
            name: movement_name(self.name),
            creator,
            deleted: (0..self.name % 4).map(task).collect(),
            owners: self.places.iter().map(place).collect(),
            ..Movement::default()
        })
    }
}

impl NodeSeed {
    /// Returns the node.
    pub(super) fn node(&self) -> Node {
        let mut builder = node(node_name(self.name)).hostname().cpu(i64::from(self.shape) * 10);
        if self.zone < 200 {
            builder = builder.zone(format!("z{}", self.zone % 5));
        }
        if self.shape & 1 == 1 {
            builder = builder.image(["a:1", "a@1"], i64::from(self.shape));
        }
        if self.other_image {
            builder = builder.image(["other:1", "a:1"], 77);
        }
        if self.shape & 2 == 2 {
            let amount = i64::from(self.shape & 4);
            builder = builder.resource("example.com/gpu", Quantity::whole(amount));
        }
        if self.is_tainted {
            builder =
                builder.taint(Taint::new("k", "v", TaintEffect::NoSchedule)).unschedulable(true);
        }
        if let Some(scheduler) = self.scheduler {
            builder = builder.scheduler(scheduler_name(scheduler));
        }
        builder.build()
    }
}
