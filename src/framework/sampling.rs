//! Which nodes are looked at: all of them, or the first so many that will do,
//! in rotating list order.

use crate::snapshot::{Chunk, Cluster};

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

/// The first feasible nodes found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Feasible lanes, by position in the list of chunks.
    pub(crate) masks: Vec<u64>,
    /// How many nodes were looked at.
    pub(crate) looked_at: usize,
    pub(crate) feasible: usize,
}

/// Walks the nodes in list order from number `start` on, round to the ones
/// before it, until `enough` will do. `judge` is asked once for each chunk that
/// is reached; so what is found does not depend on who judges, or how.
pub(crate) fn sample<T: Copy + AsRef<Chunk>>(
    cluster: &Cluster,
    chunks: &[T],
    start: usize,
    enough: usize,
    mut judge: impl FnMut(T) -> u64,
) -> Sample {
    let mut verdicts: Vec<Option<u64>> = vec![None; chunks.len()];
    let mut sample = Sample { masks: vec![0; chunks.len()], ..Sample::default() };
    let nodes = cluster.len();
    let turns = [(start, nodes.saturating_sub(start)), (0, start)];
    for (from, count) in turns {
        let mut walk = Walk::starting_at(cluster, chunks, from);
        for _ in 0..count {
            if sample.feasible >= enough {
                return sample;
            }
            let Some((chunk, lane)) = walk.next() else { break };
            let verdict = *verdicts[chunk].get_or_insert_with(|| judge(chunks[chunk]));
            let will_do = verdict >> lane & 1;
            sample.masks[chunk] |= will_do << lane;
            sample.feasible += will_do as usize;
            sample.looked_at += 1;
        }
    }
    sample
}

/// Round robin over zones by cursors on lane masks.
struct Walk<'a, T> {
    chunks: &'a [T],
    cursors: Vec<Cursor>,
    next: usize,
}

struct Cursor {
    /// The zone's chunks are `chunks[at..end]`.
    at: usize,
    end: usize,
    left: u64,
}

impl<'a, T: AsRef<Chunk>> Walk<'a, T> {
    /// Before node number `start` of the list. O(zones × log nodes + chunks).
    ///
    /// In round `r` each zone that has more than `r` nodes gives one, so as many
    /// nodes come before it as there are in the first `r` of every zone.
    fn starting_at(cluster: &Cluster, chunks: &'a [T], start: usize) -> Walk<'a, T> {
        let sizes: Vec<usize> = cluster.zones().map(|zone| zone.len()).collect();
        let before = |round: usize| sizes.iter().map(|size| (*size).min(round)).sum::<usize>();
        let (mut round, mut past) = (0, sizes.iter().copied().max().unwrap_or(0) + 1);
        while past - round > 1 {
            let middle = round + (past - round) / 2;
            if before(middle) <= start { round = middle } else { past = middle }
        }
        let given = start - before(round).min(start);
        let mut cursors: Vec<Cursor> = Vec::with_capacity(sizes.len());
        let mut end = 0;
        for (zone, size) in cluster.zones().zip(&sizes) {
            let mut at = end;
            end += zone.chunks().count();
            if *size <= round {
                continue;
            }
            let live = |at: usize| chunks.get(at).map_or(0, |chunk: &T| chunk.as_ref().live());
            let mut skip = round + usize::from(cursors.len() < given);
            while at + 1 < end && live(at).count_ones() as usize <= skip {
                skip -= live(at).count_ones() as usize;
                at += 1;
            }
            let mut left = live(at);
            for _ in 0..skip {
                left &= left.wrapping_sub(1);
            }
            cursors.push(Cursor { at, end, left });
        }
        Walk { cursors, chunks, next: given }
    }

    fn next(&mut self) -> Option<(usize, usize)> {
        while !self.cursors.is_empty() {
            if self.next >= self.cursors.len() {
                self.next = 0;
            }
            let cursor = &mut self.cursors[self.next];
            while cursor.left == 0 && cursor.at + 1 < cursor.end {
                cursor.at += 1;
                cursor.left = self.chunks[cursor.at].as_ref().live();
            }
            if cursor.left == 0 {
                self.cursors.remove(self.next);
                continue;
            }
            let lane = cursor.left.trailing_zeros() as usize;
            cursor.left &= cursor.left - 1;
            self.next += 1;
            return Some((cursor.at, lane));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::node;
    use crate::{Config, Engine};

    #[derive(Clone, Copy)]
    struct One<'a>(&'a Chunk);

    impl AsRef<Chunk> for One<'_> {
        fn as_ref(&self) -> &Chunk {
            self.0
        }
    }

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
        let chunks: Vec<One<'_>> =
            cluster.zones().flat_map(|zone| zone.chunks()).map(One).collect();
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
            let sample = sample(cluster, &chunks, start, enough, |One(chunk)| {
                super::super::plugin::each_lane(chunk.live(), |at| {
                    good(chunk.allocatable_cpu()[at])
                })
            });
            let mut found = std::collections::BTreeSet::new();
            for (mask, One(chunk)) in sample.masks.iter().zip(&chunks) {
                super::super::plugin::each_lane(*mask, |at| found.insert(chunk.slot()[at]));
            }
            assert_eq!(found, wanted);
            assert_eq!((sample.looked_at, sample.feasible), (looked_at, found.len()));
        }
    }
}
