//! Which nodes are looked at: all of them, or the first so many that will do,
//! in rotating list order.

use crate::snapshot::{Chunk, Cluster, LANES, Lineage};

/// How many feasible nodes are enough (schedule_one.go
/// `numFeasibleNodesToFind`): all below 100 nodes; else `percentage` of them,
/// where 0 means 50 less one for each 125 nodes, at least 5; and never fewer
/// than 100.
#[must_use]
pub fn num_feasible_nodes_to_find(nodes: usize, percentage: u8) -> usize {
    if nodes < 100 {
        return nodes;
    }
    let percentage = match percentage {
        0 => 50_usize.saturating_sub(nodes / 125).max(5),
        100.. => return nodes,
        percentage => usize::from(percentage),
    };
    (nodes * percentage / 100).max(100)
}

/// The feasible nodes that a search found, one by one or by chunk.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found<T> {
    pub(super) nodes: Vec<T>,
    /// How many nodes there are in `nodes`.
    pub(super) feasible: usize,
    /// How many nodes were looked at.
    pub(super) looked_at: usize,
}

impl<T> Default for Found<T> {
    fn default() -> Found<T> {
        Found { nodes: Vec::new(), feasible: 0, looked_at: 0 }
    }
}

/// The list of nodes by chunk, kept from one version to the next while no node
/// comes, goes or moves.
///
/// In round `r` of the list each zone that has more than `r` nodes gives one. So a
/// stretch of the list is a stretch of each zone, and a stretch of a zone is a few
/// chunks with some of their lanes: nodes are never walked one by one.
#[derive(Default)]
pub(crate) struct Order {
    of: Option<(Lineage, u64)>,
    /// Where in the list the next sample starts, or some rounds further.
    next: usize,
    nodes: usize,
    zones: Vec<Zone>,
    chunks: Vec<Listed>,
    /// By chunk, 1 more than its place among those that were reached; all 0
    /// between samples.
    reached: Vec<u32>,
    /// Where the stretch at hand begins and ends in each zone; between samples, memory.
    stretches: (Vec<usize>, Vec<usize>),
}

struct Zone {
    /// Its chunks are so many from here on.
    first: usize,
    chunks: usize,
    nodes: usize,
}

struct Listed {
    id: u32,
    live: u64,
    /// How many nodes of its zone come before its own.
    before: usize,
}

/// A chunk that was reached: its place in the list of chunks, the lanes that will
/// do, and those of them that were in the stretch.
#[derive(Clone, Copy)]
struct Reached {
    chunk: usize,
    verdict: u64,
    mask: u64,
}

impl Order {
    /// The order of those nodes of this version that `within` says of each chunk. O(1)
    /// where it is that of the last one, O(chunks) otherwise.
    pub(crate) fn refresh(&mut self, cluster: &Cluster, within: impl Fn(&Chunk) -> u64) {
        let of = (cluster.line(), cluster.layout());
        if self.of.as_ref() == Some(&of) {
            return;
        }
        self.of = Some(of);
        self.zones.clear();
        self.chunks.clear();
        let mut current = None;
        for (zone, id) in cluster.chunk_ids() {
            if current != Some(zone) {
                current = Some(zone);
                self.zones.push(Zone { first: self.chunks.len(), chunks: 0, nodes: 0 });
            }
            let live = cluster.listed_chunk(id).map_or(0, |(_, chunk)| within(chunk));
            if let Some(zone) = self.zones.last_mut()
                && live != 0
            {
                self.chunks.push(Listed { id, live, before: zone.nodes });
                zone.chunks += 1;
                zone.nodes += live.count_ones() as usize;
            }
        }
        self.reached = vec![0; self.chunks.len()];
        self.nodes = self.zones.iter().map(|zone| zone.nodes).sum();
    }

    /// How many nodes are in the list.
    pub(crate) fn nodes(&self) -> usize {
        self.nodes
    }

    /// The number of every chunk, with those of its lanes that are in the list, in the
    /// order of the list.
    pub(crate) fn chunks(&self) -> impl ExactSizeIterator<Item = (u32, u64)> {
        self.chunks.iter().map(|chunk| (chunk.id, chunk.live))
    }

    /// Where a list of so many nodes is next begun.
    pub(crate) fn start(&self, nodes: usize) -> usize {
        self.next % nodes.max(1)
    }

    /// The next sample starts after what this one looked at, counted round the list as it is now and not as it is by
    /// then (kube-scheduler schedule_one.go, `nextStartNodeIndex`).
    pub(crate) fn go_on(&mut self, looked_at: usize) {
        self.next = (self.start(self.nodes) + looked_at) % self.nodes.max(1);
    }

    /// How many nodes of each zone are among the first `index` of the list.
    fn positions(&self, index: usize, positions: &mut Vec<usize>) {
        let before =
            |round: usize| self.zones.iter().map(|zone| zone.nodes.min(round)).sum::<usize>();
        let most = self.zones.iter().map(|zone| zone.nodes).max().unwrap_or(0);
        let (mut round, mut past) = (index / self.zones.len().max(1), most + 1);
        // Where all zones are alike the first guess is right.
        while past - round > 1 {
            let middle =
                if before(round + 1) > index { round + 1 } else { round + (past - round) / 2 };
            if before(middle) <= index { round = middle } else { past = middle }
        }
        let mut given = index - before(round).min(index);
        positions.clear();
        positions.extend(self.zones.iter().map(|zone| {
            let gives = zone.nodes > round && given > 0;
            given -= usize::from(gives);
            zone.nodes.min(round) + usize::from(gives)
        }));
    }

    /// Takes the nodes in list order from where the last sample ended, round to the ones
    /// before that, until `enough` will do. `judge` is asked once for each chunk that
    /// is reached, by number, and answers with a value and the lanes that will do; so what is found does not depend
    /// on who judges, or how. The values come back with the lanes that were found, in the order of the list.
    pub(super) fn sample<T>(
        &mut self,
        enough: usize,
        mut judge: impl FnMut(u32) -> (T, u64),
    ) -> Found<(T, u64)> {
        let (start, nodes) = (self.start(self.nodes), self.nodes);
        // A stretch of a zone ends in two chunks that are not whole.
        let likely = (enough / LANES + 2 * self.zones.len()).min(self.chunks.len());
        let mut reached: Vec<(Reached, T)> = Vec::with_capacity(likely);
        let mut found = Found::default();
        let (mut from, mut to) = std::mem::take(&mut self.stretches);
        for (first, end) in [(start, nodes), (0, start)] {
            let mut index = first;
            self.positions(index, &mut from);
            // So many at least are still to come: no stretch goes too far, and the
            // last one ends with a node that will do.
            while index < end && found.feasible < enough {
                let step = (enough - found.feasible).min(end - index);
                self.positions(index + step, &mut to);
                found.feasible += self.reach((&from, &to), &mut reached, &mut judge);
                (index, found.looked_at) = (index + step, found.looked_at + step);
                std::mem::swap(&mut from, &mut to);
            }
        }
        self.stretches = (from, to);
        reached.sort_unstable_by_key(|(reached, _)| reached.chunk);
        reached.iter().for_each(|(reached, _)| self.reached[reached.chunk] = 0);
        let with_nodes = reached.into_iter().filter(|(reached, _)| reached.mask != 0);
        found.nodes = with_nodes.map(|(reached, with)| (with, reached.mask)).collect();
        found
    }

    /// Takes the nodes of each zone from the positions `from` up to `to`, and returns how many of them will do.
    fn reach<T>(
        &mut self,
        (from, to): (&[usize], &[usize]),
        reached: &mut Vec<(Reached, T)>,
        judge: &mut impl FnMut(u32) -> (T, u64),
    ) -> usize {
        let mut feasible = 0;
        for (zone, (from, to)) in self.zones.iter().zip(from.iter().zip(to)) {
            let of_zone = &self.chunks[zone.first..zone.first + zone.chunks];
            let past = of_zone.partition_point(|chunk| chunk.before <= *from);
            let mut at = zone.first + past.saturating_sub(1);
            let mut position = *from;
            while position < *to {
                let chunk = &self.chunks[at];
                let last = (*to - chunk.before).min(chunk.live.count_ones() as usize);
                let lanes = stretch(chunk.live, position - chunk.before, last);
                if self.reached[at] == 0 {
                    let (with, verdict) = judge(chunk.id);
                    reached.push((Reached { chunk: at, verdict, mask: 0 }, with));
                    self.reached[at] = reached.len() as u32;
                }
                let (known, _) = &mut reached[self.reached[at] as usize - 1];
                known.mask |= known.verdict & lanes;
                feasible += (known.verdict & lanes).count_ones() as usize;
                (position, at) = (chunk.before + last, at + 1);
            }
        }
        feasible
    }
}

/// Those lanes of `live` that have at least `from` and less than `to` others
/// before them.
fn stretch(live: u64, from: usize, to: usize) -> u64 {
    let below = |count: usize| if count >= 64 { u64::MAX } else { (1 << count) - 1 };
    if live & live.wrapping_add(1) == 0 {
        return live & below(to) & !below(from);
    }
    let without =
        |lanes: u64, count: usize| (0..count).fold(lanes, |left, _| left & left.wrapping_sub(1));
    let rest = without(live, from);
    rest & !without(rest, to - from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::node;
    use crate::{Config, Engine};

    #[test]
    fn as_many_nodes_as_kube_scheduler_looks_for() {
        for (nodes, percentage, found) in [
            (99, 0, 99),
            (1000, 0, 420),
            (5000, 0, 500),
            (15_000, 0, 750),
            (1000, 5, 100),
            (1000, 100, 1000),
            (6000, 50, 3000),
        ] {
            assert_eq!(num_feasible_nodes_to_find(nodes, percentage), found, "{nodes}");
        }
    }

    #[test]
    fn a_stretch_of_lanes_is_counted_among_those_in_use() {
        assert_eq!(stretch(u64::MAX, 3, 64), u64::MAX << 3);
        assert_eq!(stretch(0b1111, 1, 3), 0b0110);
        assert_eq!(stretch(0b1011_0101, 1, 4), 0b0011_0100);
        assert_eq!(stretch(0b1011_0101, 2, 2), 0);
    }

    #[test]
    fn the_sample_is_the_first_feasible_of_the_list_from_its_start() {
        let (mut writer, _) = Engine::inline(Config::default());
        for n in 0..300 {
            let zone = format!("z{}", if n % 7 == 0 { 0 } else { n % 3 });
            writer.add_node(node(format!("n{n}")).zone(zone).cpu(n).build()).unwrap();
        }
        for n in (0..300).step_by(5) {
            writer.remove_node(format!("n{n}")).unwrap();
        }
        let cluster = writer.cluster();
        let mut order = Order::default();
        order.refresh(cluster, Chunk::live);
        let chunk = |id: u32| cluster.listed_chunk(id).map(|(_, chunk)| chunk).unwrap();
        let good = |cpu: i64| cpu % 3 != 1;
        let few = (0..240).map(|start| (start, 1 + start % 40));
        for (start, enough) in few.chain([(0, 10), (17, 40), (239, 30), (100, 1000)]) {
            let list: Vec<_> = cluster.nodes().collect();
            let turned = list[start..].iter().chain(&list[..start]);
            let mut wanted = std::collections::BTreeSet::new();
            let mut looked_at = 0;
            for node in turned {
                if wanted.len() == enough {
                    break;
                }
                looked_at += 1;
                if good(node.allocatable().cpu.0) {
                    wanted.insert(node.slot());
                }
            }
            order.next = start;
            let sample = order.sample(enough, |id| {
                let will_do = super::super::plugin::each_lane(chunk(id).live(), |at| {
                    good(chunk(id).allocatable_cpu()[at])
                });
                (id, will_do)
            });
            let mut found = std::collections::BTreeSet::new();
            for (id, mask) in &sample.nodes {
                super::super::plugin::each_lane(*mask, |at| found.insert(chunk(*id).slot()[at]));
            }
            assert_eq!(found, wanted);
            assert_eq!((sample.looked_at, sample.feasible), (looked_at, found.len()));
        }
    }
}
