//! The nodes that a scheduler tries first when several schedulers share a cluster.

use std::num::NonZeroU32;

use crate::model::Name;
use crate::snapshot::{Chunk, Cluster, NodeInfo};

use crate::framework::{ShardSet, each_lane};

/// A scheduler's own part of the nodes.
///
/// The scheduler searches its own nodes first, and the other nodes only if none of its own is feasible. Schedulers with
/// different partitions thus rarely choose the same node at once, in which case only one of them would succeed, and
/// their caches of verdicts stay valid longer. `AlgorithmConfig::percentage_of_nodes` applies to the part. A partition
/// does not apply to a pod that requests nodes by name, is nominated to a node, or has a
/// [`Preferred`](crate::plugin::Preferred) node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Partition {
    /// One of `of` shares of similar size, selected by `index` modulo `of`. Shares are assigned in blocks of up to 64
    /// adjacent nodes of a zone, so in a small cluster a share may be empty.
    Share {
        /// The index of the share, from 0.
        index: u32,
        /// The number of shares.
        of: NonZeroU32,
    },
    /// The nodes whose Node or NMNode names this scheduler ([`Node::scheduler`](crate::model::Node::scheduler)).
    /// Gödel's schedulers partition a cluster in this way.
    Scheduler(Name),
    /// The nodes of the shards that the scheduler holds, which may change between two cycles. A cycle costs O(nodes)
    /// after a change.
    Shards(ShardSet),
}

impl Partition {
    /// Returns whether the node belongs to this partition.
    #[doc(hidden)]
    #[must_use]
    pub fn includes(&self, node: NodeInfo<'_>) -> bool {
        let (chunk, lane) = node.place();
        self.lanes(node.cluster(), chunk, 1 << lane, self.selection()) != 0
    }

    /// Returns a number that differs if the partition includes other nodes than before although the nodes are the same.
    pub(in crate::framework) fn selection(&self) -> u64 {
        match self {
            Partition::Shards(shards) => shards.mask(),
            _ => 0,
        }
    }

    /// Returns the lanes of `mask` whose nodes belong to this partition of this selection.
    pub(in crate::framework) fn lanes(
        &self,
        cluster: &Cluster,
        chunk: &Chunk,
        mask: u64,
        selection: u64,
    ) -> u64 {
        match self {
            Partition::Shards(shards) => each_lane(mask, |lane| {
                let node = cluster.node_in(chunk, lane);
                node.is_some_and(|node| shards.has_node(selection, node.name()))
            }),
            Partition::Share { index, of } => {
                if chunk.sequence % *of == *index % *of {
                    mask
                } else {
                    0
                }
            }
            Partition::Scheduler(name) => each_lane(mask, |lane| {
                let node = cluster.node_in(chunk, lane);
                node.is_some_and(|node| node.schedulers().any(|scheduler| scheduler == name))
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{Config, Engine, Writer};
    use crate::framework::{Algorithm, AlgorithmConfig, Cycle, CycleState, Framework};
    use crate::model::{NmNode, Quantity, ResourceList, node, pod};

    #[test]
    fn own_nodes_come_first_and_others_only_if_none_is_feasible() {
        let (mut writer, _) = Engine::inline(Config::default());
        writer.add_node(node("mine").scheduler("red").cpu(1000).build()).unwrap();
        // This node is emptier, and would get a higher score.
        writer.add_node(node("theirs").scheduler("blue").cpu(64_000).build()).unwrap();
        let own = Partition::Scheduler("red".into());
        let scheduler =
            || Algorithm::new(Framework::default_profile(), AlgorithmConfig::default(), None);
        let (mut free, mut parted) = (scheduler(), scheduler().with_partition(own));
        let mut place = |n: u32| {
            let pod = pod(format!("p{n}")).cpu(400).build();
            let unbound = free.schedule(writer.cluster(), &pod).unwrap();
            assert_eq!((&*unbound.node, unbound.looked_at), ("theirs", 2));
            let decision = parted.schedule(writer.cluster(), &pod).unwrap();
            writer.assume_pod(pod.on(decision.node.clone())).unwrap();
            (decision.node.to_string(), decision.looked_at)
        };
        assert_eq!(place(0), ("mine".to_owned(), 1));
        assert_eq!(place(1), ("mine".to_owned(), 1));
        assert_eq!(place(2), ("theirs".to_owned(), 2), "the scheduler's own node is full");
    }

    #[test]
    fn node_or_nm_node_assigns_a_node_to_a_scheduler() {
        let (mut writer, _) = Engine::inline(Config::default());
        let given = |name: &str, to: &str| node(name).scheduler(to).cpu(4000).build();
        let managed = |to: Option<&str>| {
            let cpu = ResourceList::new([("cpu", Quantity::whole(4))]);
            let nm_node = NmNode::new("both").with_resources(cpu.clone(), cpu);
            NmNode { scheduler: to.map(Name::from), ..nm_node }
        };
        writer.add_node(given("one", "a")).unwrap();
        writer.add_node(given("both", "b")).unwrap();
        writer.add_node(node("unassigned").cpu(64_000).build()).unwrap();
        let mut schedulers = ["a", "b"].map(|name| {
            Algorithm::new(Framework::default_profile(), AlgorithmConfig::default(), None)
                .with_partition(Partition::Scheduler(name.into()))
        });
        let mut looked_at = |writer: &Writer| {
            schedulers.each_mut().map(|scheduler| {
                let decision = scheduler.schedule(writer.cluster(), &pod("p").cpu(100).build());
                decision.unwrap().looked_at
            })
        };
        assert_eq!(looked_at(&writer), [1, 1]);
        writer.put_object(managed(Some("a"))).unwrap();
        assert_eq!(looked_at(&writer), [2, 1], "the NMNode assigns the node to a as well");
        writer.put_object(managed(None)).unwrap();
        assert_eq!(looked_at(&writer), [1, 1]);
        writer.update_node(given("one", "b")).unwrap();
        assert_eq!(looked_at(&writer), [3, 2], "a has no nodes, so it examines the others");
    }

    #[test]
    fn nodes_of_a_shard_are_the_schedulers_own_as_soon_as_it_holds_the_shard() {
        let (mut writer, _) = Engine::inline(Config::default());
        let shards = ShardSet::new(NonZeroU32::new(2).unwrap()).unwrap();
        let name_in = |shard| {
            (0..).map(|n| format!("n{n}")).find(|name| shards.of_node(name) == shard).unwrap()
        };
        let names = [name_in(0), name_in(1)];
        names.iter().for_each(|name| {
            writer.add_node(node(&**name).cpu(4_000).build()).unwrap();
        });
        let mut scheduler =
            Algorithm::new(Framework::default_profile(), AlgorithmConfig::default(), None)
                .with_partition(Partition::Shards(shards.clone()));
        // The pods have one template, so the verdicts on the nodes are cached.
        let mut place = |n: u32| {
            let pod = pod(format!("p{n}")).cpu(100).build();
            let state = CycleState::default();
            let plain = scheduler.decide_by_nodes(Cycle::new(writer.cluster(), &pod, &state));
            let decision = scheduler.schedule(writer.cluster(), &pod).unwrap();
            assert_eq!(plain.unwrap().node, decision.node);
            (decision.node.to_string(), decision.looked_at)
        };
        assert_eq!(place(0).1, 2, "no node is its own, so it examines all");
        shards.add(1);
        assert_eq!(place(1), (names[1].clone(), 1));
        shards.add(0);
        assert_eq!(place(2).1, 2);
        shards.remove(1);
        assert_eq!(place(3), (names[0].clone(), 1));
    }

    #[test]
    fn every_node_is_in_one_share_and_every_share_has_nodes_of_all_zones() {
        let (mut writer, _) = Engine::inline(Config::default());
        for n in 0..1000 {
            let zone = format!("z{}", n % 3);
            writer.add_node(node(format!("n{n}")).zone(zone).build()).unwrap();
        }
        let of = NonZeroU32::new(4).unwrap();
        let shares = [0, 1, 2, 7].map(|index| Partition::Share { index, of });
        let mut counts = [[0; 3]; 4];
        for (n, node) in writer.cluster().nodes().enumerate() {
            let mine: Vec<usize> = (0..4).filter(|at| shares[*at].includes(node)).collect();
            assert_eq!(mine.len(), 1);
            counts[mine[0]][n % 3] += 1;
        }
        assert!(counts.iter().flatten().all(|count| *count >= 64), "{counts:?}");
    }
}
