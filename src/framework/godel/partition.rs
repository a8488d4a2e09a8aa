//! Which nodes a scheduler tries first, where several share a cluster.

use std::num::NonZeroU32;

use crate::model::{HOSTNAME, LabelSelector, Name};
use crate::snapshot::{Chunk, Cluster, NodeInfo};

use crate::framework::{each_lane, each_same};

/// A scheduler's own part of the nodes.
///
/// It looks for nodes there, and among the others only where none of its own will do.
/// So schedulers of one engine with parts of their own seldom decide for the same node
/// at once, which would let but one of them in; and what each remembers of its nodes
/// holds longer. Percentages of nodes are of the part. A pod that asks for nodes by
/// name, is nominated to one, or has a [`Preferred`](crate::framework::Preferred) one, is not bound by
/// parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Partition {
    /// One of `of` shares of like size: number `index`, counted from 0 and round.
    /// A share has up to 64 neighbours of a zone together, so in a cluster of few
    /// nodes it may have none.
    Share {
        /// Which share.
        index: u32,
        /// How many there are.
        of: NonZeroU32,
    },
    /// The nodes with such labels.
    Labels(LabelSelector),
    /// The nodes whose Node or NMNode names this scheduler
    /// ([`Node::scheduler`](crate::model::Node::scheduler)), as Gödel's shards share a
    /// cluster.
    Scheduler(Name),
}

impl Partition {
    /// Whether the node is of this part.
    #[must_use]
    pub fn includes(&self, node: NodeInfo<'_>) -> bool {
        let (chunk, lane) = node.place();
        self.lanes(node.cluster(), chunk, 1 << lane) != 0
    }

    /// The lanes of `mask` whose nodes are of this part.
    pub(in crate::framework) fn lanes(&self, cluster: &Cluster, chunk: &Chunk, mask: u64) -> u64 {
        match self {
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
            Partition::Labels(selector) if selector.asks_for(HOSTNAME) => each_lane(mask, |lane| {
                let node = cluster.node_in(chunk, lane).and_then(|node| node.node());
                node.is_some_and(|node| selector.matches(&node.labels))
            }),
            Partition::Labels(selector) => each_same(chunk.label_set(), mask, |lane, all| {
                let labels = cluster.label_set(chunk.label_set()[lane]);
                if selector.matches(labels) { all } else { 0 }
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framework::{Algorithm, AlgorithmConfig, Framework};
    use crate::model::{NmNode, Quantity, ResourceList, node, pod};
    use crate::{Config, Engine, Writer};

    #[test]
    fn own_nodes_come_first_and_the_others_where_none_of_them_will_do() {
        let (mut writer, _) = Engine::inline(Config::default());
        writer.add_node(node("mine").label("team", "red").cpu(1000).build()).unwrap();
        // It is emptier, and would be liked better.
        writer.add_node(node("theirs").label("team", "blue").cpu(64_000).build()).unwrap();
        let own = Partition::Labels(LabelSelector::from_labels([("team", "red")]));
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
        assert_eq!(place(2), ("theirs".to_owned(), 2), "what is its own is full");
    }

    #[test]
    fn a_node_is_of_the_part_that_its_node_or_its_nm_node_says() {
        let (mut writer, _) = Engine::inline(Config::default());
        let given = |name: &str, to: &str| node(name).scheduler(to).cpu(4000).build();
        let managed = |to: Option<&str>| {
            let cpu = ResourceList::new([("cpu", Quantity::whole(4))]);
            let nm_node = NmNode::new("both").with_resources(cpu.clone(), cpu);
            NmNode { scheduler: to.map(Name::from), ..nm_node }
        };
        writer.add_node(given("one", "a")).unwrap();
        writer.add_node(given("both", "b")).unwrap();
        writer.add_node(node("nobodys").cpu(64_000).build()).unwrap();
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
        assert_eq!(looked_at(&writer), [2, 1], "the NMNode gives it to a, too");
        writer.put_object(managed(None)).unwrap();
        assert_eq!(looked_at(&writer), [1, 1]);
        writer.update_node(given("one", "b")).unwrap();
        assert_eq!(looked_at(&writer), [3, 2], "a has none, and looks at the others");
    }

    #[test]
    fn every_node_is_of_one_share_and_zones_are_in_all() {
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
