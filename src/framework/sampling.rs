//! Which nodes a cycle examines: all of them, or in rotating list order until enough nodes are feasible.

use std::num::NonZeroU32;
use std::ops::Range;

use crate::snapshot::{Chunk, Cluster, LANES, Lineage, without_lowest};

/// Returns the number of feasible nodes after which the search stops (`schedule_one.go` `numFeasibleNodesToFind`).
///
/// Below 100 nodes this is all of them. Otherwise it is `percentage` of the nodes, but at least 100. A percentage of 0
/// stands for 50 minus one for each 125 nodes, but at least 5.
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

/// The feasible nodes that a search found, node by node or chunk by chunk.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found<T> {
    pub(super) nodes: Vec<T>,
    /// The number of feasible nodes.
    pub(super) feasible: usize,
    /// The number of nodes examined.
    pub(super) looked_at: usize,
}

impl<T> Default for Found<T> {
    fn default() -> Found<T> {
        Found { nodes: Vec::new(), feasible: 0, looked_at: 0 }
    }
}

/// The list of nodes by chunk. It stays valid from one version to the next as long as no node is added, removed or
/// moved, and as long as the list is of the same part of the nodes.
///
/// The list takes one node of each zone in turn: round `r` contains one node of each zone that has more than `r` nodes.
/// A range of the list is therefore a range of each zone, and a range of a zone is a few chunks with some of their
/// lanes, so that nodes are never visited one by one.
#[derive(Default)]
pub(crate) struct Order {
    layout: Option<(Lineage, u64, u64)>,
    /// The section in which the next sample starts, at `next` modulo the section's length.
    section: Range<usize>,
    next: usize,
    nodes: usize,
    zones: Vec<Zone>,
    chunks: Vec<Listed>,
    /// For each chunk, 1 plus its index among the chunks reached so far, or 0. All zeros between samples.
    reached: Vec<u32>,
    /// The position at which the last sample ended, where the next one usually starts. `None` if the list has changed
    /// since.
    end: Option<usize>,
    /// The number of nodes of each zone before `end`.
    before_end: Vec<usize>,
    /// Kept between samples only to reuse the memory.
    scratch: Vec<usize>,
}

/// The chunks that follow a chunk in the list, which are often judged after it. They are looked up only if the chunk is
/// not cached, because the look-up takes time.
pub(super) struct Following<'a>(&'a [Listed]);

impl Following<'_> {
    /// Returns the numbers of the next two chunks.
    pub(super) fn ids(&self) -> [Option<u32>; 2] {
        [0, 1].map(|n| self.0.get(n).map(|chunk| chunk.id))
    }
}

/// Judges the chunks that a sample reaches.
pub(super) trait Judge<T> {
    /// Called before a range of the list is examined, with those of its chunks that were not reached before: roughly
    /// `most` at most.
    fn begin(&mut self, _most: usize, _chunks: impl Iterator<Item = u32>) {}

    /// Returns a value and the chunk's feasible lanes, or `None` if the chunk has none. Called once for each chunk that
    /// is reached, in the order of [`Judge::begin`], and perhaps for some that follow.
    fn judge(&mut self, id: u32, following: Following<'_>) -> Option<(T, u64)>;
}

/// The part of a list that a sample examines first: one of `of` equal parts, or the whole list if `of` is 1.
///
/// Schedulers with different sections examine and change different chunks, so their placements rarely conflict and the
/// caches of each stay valid. The sections rotate among the schedulers, so that each scheduler reaches all nodes even
/// if the others are idle. A turn lasts for as many events as the list has nodes, rounded up to a power of two. Shorter
/// turns would refill the caches too often; longer ones would let the sections differ by too many pods. Because of the
/// rounding, a few more or fewer nodes rarely move the sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) index: u32,
    pub(crate) of: NonZeroU32,
}

impl Default for Section {
    fn default() -> Section {
        Section { index: 0, of: NonZeroU32::MIN }
    }
}

impl Section {
    /// Returns the section's positions in a list of `nodes` nodes of this version. With fewer nodes than sections, this
    /// is the whole list.
    pub(crate) fn positions(self, cluster: &Cluster, nodes: usize) -> Range<usize> {
        let (nodes, of) = (nodes as u64, u64::from(self.of.get()));
        if nodes < of {
            return 0..nodes as usize;
        }
        let turn = cluster.generation().0 / nodes.next_power_of_two();
        let index = (u64::from(self.index) + turn % of) % of;
        let at = |index: u64| (nodes * index / of) as usize;
        at(index)..at(index + 1)
    }
}

struct Zone {
    /// The index of the zone's first chunk; its `chunks` chunks are consecutive.
    first: usize,
    chunks: usize,
    nodes: usize,
}

struct Listed {
    id: u32,
    live: u64,
    /// The number of lanes in `live`.
    nodes: usize,
    /// The number of nodes of the zone before the chunk's own nodes.
    before: usize,
}

/// A chunk that was reached: its index in the list of chunks, its feasible lanes, and those among them that are in the
/// sample.
struct Reached<T> {
    chunk: usize,
    /// The value that `judge` returned, if any.
    value: Option<T>,
    verdict: u64,
    mask: u64,
}

impl Order {
    /// Rebuilds the order for the nodes of this version that `within` selects in each chunk. `selection` differs if
    /// `within` selects other nodes than before. O(1) if the version has the same layout as the last one and the
    /// selection is the same, and O(chunks) otherwise.
    pub(crate) fn refresh(
        &mut self,
        cluster: &Cluster,
        section: Section,
        selection: u64,
        within: impl Fn(&Chunk) -> u64,
    ) {
        let layout = Some((cluster.lineage(), cluster.layout(), selection));
        if self.layout != layout {
            self.layout = layout;
            self.list(cluster, within);
        }
        self.section = section.positions(cluster, self.nodes);
    }

    fn list(&mut self, cluster: &Cluster, within: impl Fn(&Chunk) -> u64) {
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
                let nodes = live.count_ones() as usize;
                self.chunks.push(Listed { id, live, nodes, before: zone.nodes });
                zone.chunks += 1;
                zone.nodes += nodes;
            }
        }
        self.reached = vec![0; self.chunks.len()];
        self.end = None;
        self.nodes = self.zones.iter().map(|zone| zone.nodes).sum();
    }

    /// Returns the number of nodes in the list.
    pub(crate) fn nodes(&self) -> usize {
        self.nodes
    }

    /// Iterates over the chunks in list order: the number of each, and its lanes that are in the list.
    pub(crate) fn chunks(&self) -> impl ExactSizeIterator<Item = (u32, u64)> {
        self.chunks.iter().map(|chunk| (chunk.id, chunk.live))
    }

    /// Returns the ranges of a list of `nodes` nodes in the order in which the next sample examines them: the section
    /// from the start of the sample, the rest of the section, and the nodes after and before the section.
    pub(crate) fn ranges(&self, section: Range<usize>, nodes: usize) -> [Range<usize>; 4] {
        let start = section.start + self.next % section.len().max(1);
        [start..section.end, section.start..start, section.end..nodes, 0..section.start]
    }

    /// Returns where in the section the next sample starts, for [`Order::start_at`].
    pub(crate) fn next(&self) -> usize {
        self.next
    }

    /// Lets the next sample start here.
    pub(crate) fn start_at(&mut self, next: usize) {
        self.next = next;
    }

    /// Moves the start past the nodes that the last sample examined. It wraps around at the section's current length,
    /// which may differ from the length at the next sample (kube-scheduler `schedule_one.go`, `nextStartNodeIndex`).
    pub(crate) fn go_on(&mut self, looked_at: usize) {
        let length = self.section.len().max(1);
        self.next = (self.next % length + looked_at) % length;
    }

    /// Computes how many nodes of each zone are among the first `index` nodes of the list.
    fn positions(&self, index: usize, positions: &mut Vec<usize>) {
        let before =
            |round: usize| self.zones.iter().map(|zone| zone.nodes.min(round)).sum::<usize>();
        let largest = self.zones.iter().map(|zone| zone.nodes).max().unwrap_or(0);
        let (mut round, mut past) = (index / self.zones.len().max(1), largest + 1);
        // If all zones have the same size, the first guess is right.
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

    /// Examines the nodes in list order, from where the last sample ended and wrapping around, until `enough` nodes are
    /// feasible. The result does not depend on how chunks are judged. The values of `judge` are returned with the
    /// feasible lanes that were reached, in list order.
    pub(super) fn sample<T>(
        &mut self,
        enough: usize,
        judge: &mut impl Judge<T>,
    ) -> Found<(T, u64)> {
        // A range of a zone may begin and end within a chunk.
        let likely = (enough / LANES + 2 * self.zones.len()).min(self.chunks.len());
        let mut reached: Vec<Reached<T>> = Vec::with_capacity(likely);
        let mut found = Found::default();
        let mut last_end = self.end.take();
        let mut from = std::mem::take(&mut self.before_end);
        let mut to = std::mem::take(&mut self.scratch);
        for Range { start, end } in self.ranges(self.section.clone(), self.nodes) {
            let mut index = start;
            while index < end && found.feasible < enough {
                if last_end != Some(index) {
                    self.positions(index, &mut from);
                }
                let (missing, left) = (enough - found.feasible, end - index);
                // At least this many nodes are still to be examined, so the range does not go too far, and the last one
                // ends with a feasible node.
                let least = missing.min(left);
                let likely = match found.feasible {
                    0 => least,
                    feasible => missing.saturating_mul(found.looked_at) / feasible,
                };
                // Slightly fewer than the share of feasible nodes so far suggests.
                let most = (least + likely.saturating_sub(least) / 4 * 3).min(left);
                for step in [most, least] {
                    self.positions(index + step, &mut to);
                    let most = step / LANES + 2 * self.zones.len();
                    judge.begin(most, self.unreached(&from, &to));
                    let feasible = self.reach((&from, &to), &mut reached, judge);
                    if step == least || feasible < missing {
                        found.feasible += feasible;
                        (index, found.looked_at) = (index + step, found.looked_at + step);
                        break;
                    }
                    // The range may be too long, so it is removed again.
                    self.reach((&from, &to), &mut reached, judge);
                }
                last_end = Some(index);
                std::mem::swap(&mut from, &mut to);
            }
        }
        (self.end, self.before_end, self.scratch) = (last_end, from, to);
        reached.iter().for_each(|of| self.reached[of.chunk] = 0);
        // One range visits the chunks in order.
        if !reached.is_sorted_by_key(|of| of.chunk) {
            reached.sort_unstable_by_key(|of| of.chunk);
        }
        let with_feasible = reached.into_iter().filter(|of| of.mask != 0);
        found.nodes = with_feasible.filter_map(|of| Some((of.value?, of.mask))).collect();
        found
    }

    /// Returns the chunks between the positions `from` and `to` of each zone that were not reached yet.
    fn unreached(&self, from: &[usize], to: &[usize]) -> impl Iterator<Item = u32> {
        let zones = self.zones.iter().zip(from.iter().zip(to)).filter(|(_, (from, to))| from < to);
        let chunks = zones.flat_map(|(zone, (from, to))| {
            let chunks = &self.chunks[zone.first..zone.first + zone.chunks];
            zone.first + containing(chunks, *from)..=zone.first + containing(chunks, *to - 1)
        });
        chunks.filter(|at| self.reached[*at] == 0).map(|at| self.chunks[at].id)
    }

    /// Adds the feasible nodes of each zone between the positions `from` and `to` to the sample, and returns their
    /// number. A second call with the same range removes them.
    fn reach<T>(
        &mut self,
        (from, to): (&[usize], &[usize]),
        reached: &mut Vec<Reached<T>>,
        judge: &mut impl Judge<T>,
    ) -> usize {
        let mut feasible = 0;
        for (zone, (from, to)) in self.zones.iter().zip(from.iter().zip(to)) {
            let mut at =
                zone.first + containing(&self.chunks[zone.first..zone.first + zone.chunks], *from);
            let mut position = *from;
            while position < *to {
                let (chunk, following) = (&self.chunks[at], &self.chunks[at + 1..]);
                let last = (*to - chunk.before).min(chunk.nodes);
                let lanes = lane_range(chunk.live, position - chunk.before, last);
                let index = match self.reached[at] {
                    0 => {
                        let (value, verdict) = match judge.judge(chunk.id, Following(following)) {
                            Some((value, verdict)) => (Some(value), verdict),
                            None => (None, 0),
                        };
                        reached.push(Reached { chunk: at, value, verdict, mask: 0 });
                        self.reached[at] = reached.len() as u32;
                        reached.len() - 1
                    }
                    plus_one => plus_one as usize - 1,
                };
                let known = &mut reached[index];
                let passed = known.verdict & lanes;
                known.mask ^= passed;
                feasible += passed.count_ones() as usize;
                (position, at) = (chunk.before + last, at + 1);
            }
        }
        feasible
    }
}

/// Returns the index of the chunk of a zone that contains the node at this position of the zone.
fn containing(chunks: &[Listed], position: usize) -> usize {
    // A chunk has at most 64 nodes, and most chunks have that many.
    let first = (position / LANES).min(chunks.len());
    let later = &chunks[first..];
    let past = match later {
        [_, next, ..] if next.before > position => 1,
        _ => later.partition_point(|chunk| chunk.before <= position),
    };
    (first + past).saturating_sub(1)
}

/// Returns the lanes of `live` from the `from`-th up to, but excluding, the `to`-th, counted from 0.
fn lane_range(live: u64, from: usize, to: usize) -> u64 {
    let below = |count: usize| if count >= 64 { u64::MAX } else { (1 << count) - 1 };
    if live & live.wrapping_add(1) == 0 {
        return live & below(to) & !below(from);
    }
    let rest = without_lowest(live, from);
    rest & !without_lowest(rest, to - from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{Config, Engine};
    use crate::model::node;

    impl<T, F: FnMut(u32, Following<'_>) -> Option<(T, u64)>> Judge<T> for F {
        fn judge(&mut self, id: u32, following: Following<'_>) -> Option<(T, u64)> {
            self(id, following)
        }
    }

    /// Passes every third lane, and checks that each chunk is announced before it is judged.
    #[derive(Default)]
    struct Announced(std::collections::VecDeque<u32>, usize);

    impl Judge<u32> for Announced {
        fn begin(&mut self, most: usize, chunks: impl Iterator<Item = u32>) {
            assert_eq!(self.0, [], "announced and not judged");
            self.0.extend(chunks);
            // Chunks from which nodes were removed count more.
            assert!(self.0.len() <= 2 * most, "{} chunks, roughly at most {most}", self.0.len());
        }

        fn judge(&mut self, id: u32, _: Following<'_>) -> Option<(u32, u64)> {
            assert_eq!(self.0.pop_front(), Some(id));
            self.1 += 1;
            Some((id, 0x9249_2492_4924_9249))
        }
    }

    #[test]
    fn the_chunks_of_a_range_are_announced_in_the_order_in_which_they_are_judged() {
        let (mut writer, _) = Engine::inline(Config::default());
        for n in 0..900 {
            let zone = format!("z{}", if n % 7 == 0 { 0 } else { n % 4 });
            writer.add_node(node(format!("n{n}")).zone(zone).build()).unwrap();
        }
        for n in (0..900).step_by(5) {
            writer.remove_node(format!("n{n}")).unwrap();
        }
        let mut order = Order::default();
        for (start, enough) in (0..40).flat_map(|n| [(n * 17, 1 + n * 9), (n * 5, 1)]) {
            order.refresh(writer.cluster(), section(start as u32 % 3, 3), 0, Chunk::live);
            order.start_at(start);
            let mut judge = Announced::default();
            let found = order.sample(enough, &mut judge);
            assert!(judge.0.is_empty() && judge.1 > 0, "{:?}", judge.0);
            assert!(found.feasible == enough || found.looked_at == order.nodes());
        }
    }

    #[test]
    fn number_of_feasible_nodes_to_find_matches_kube_scheduler() {
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
    fn range_of_lanes_counts_only_live_lanes() {
        assert_eq!(lane_range(u64::MAX, 3, 64), u64::MAX << 3);
        assert_eq!(lane_range(0b1111, 1, 3), 0b0110);
        assert_eq!(lane_range(0b1011_0101, 1, 4), 0b0011_0100);
        assert_eq!(lane_range(0b1011_0101, 2, 2), 0);
    }

    #[test]
    fn sample_is_the_first_feasible_nodes_from_the_start() {
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
        order.refresh(cluster, Section::default(), 0, Chunk::live);
        let chunk = |id: u32| cluster.listed_chunk(id).map(|(_, chunk)| chunk).unwrap();
        // The feasible nodes are spread evenly, or are few at first and many later.
        let evenly: fn(i64) -> bool = |cpu| cpu % 3 != 1;
        let late: fn(i64) -> bool = |cpu| cpu % 11 == 1 || cpu > 150;
        let few = (0..240).map(|start| (start, 1 + start % 40));
        let starts = few.chain([(0, 10), (17, 40), (0, 60), (239, 30), (100, 1000)]);
        for ((start, enough), good) in starts.flat_map(|of| [(of, evenly), (of, late)]) {
            let list: Vec<_> = cluster.nodes().collect();
            let rotated = list[start..].iter().chain(&list[..start]);
            let mut expected = std::collections::BTreeSet::new();
            let mut looked_at = 0;
            for node in rotated {
                if expected.len() == enough {
                    break;
                }
                looked_at += 1;
                if good(node.allocatable().cpu.0) {
                    expected.insert(node.slot());
                }
            }
            order.next = start;
            let sample = order.sample(enough, &mut |id: u32, _: Following<'_>| {
                let feasible = super::super::plugin::each_lane(chunk(id).live(), |at| {
                    good(chunk(id).allocatable_cpu()[at])
                });
                Some((id, feasible))
            });
            let mut found = std::collections::BTreeSet::new();
            for (id, mask) in &sample.nodes {
                super::super::plugin::each_lane(*mask, |at| found.insert(chunk(*id).slot()[at]));
            }
            assert_eq!(found, expected);
            assert_eq!((sample.looked_at, sample.feasible), (looked_at, found.len()));
        }
    }

    /// Returns the positions in the list of the nodes that a sample finds, and the number of nodes examined.
    fn positions_found(
        order: &mut Order,
        cluster: &Cluster,
        enough: usize,
        good: impl Fn(usize) -> bool,
    ) -> (Vec<usize>, usize) {
        let slots: Vec<_> = cluster.nodes().map(|node| node.slot()).collect();
        let chunk = |id: u32| cluster.listed_chunk(id).map(|(_, chunk)| chunk).unwrap();
        let position = |id, at: usize| {
            let slot = chunk(id).slot()[at];
            slots.iter().position(|other| *other == slot).unwrap()
        };
        let sample = order.sample(enough, &mut |id: u32, _: Following<'_>| {
            let feasible =
                super::super::plugin::each_lane(chunk(id).live(), |at| good(position(id, at)));
            Some((id, feasible))
        });
        let mut found = Vec::new();
        for (id, mask) in &sample.nodes {
            found.extend((0..LANES).filter(|at| mask >> at & 1 != 0).map(|at| position(*id, at)));
        }
        found.sort_unstable();
        (found, sample.looked_at)
    }

    fn section(index: u32, of: u32) -> Section {
        Section { index, of: NonZeroU32::new(of).unwrap() }
    }

    #[test]
    fn a_sample_goes_on_in_its_section_and_then_after_and_before_it() {
        let (mut writer, _) = Engine::inline(Config::default());
        for n in 0..103 {
            writer.add_node(node(format!("n{n}")).zone(format!("z{}", n % 2)).build()).unwrap();
        }
        let cluster = writer.cluster();
        let mut order = Order::default();
        let all = |_| true;
        let range = |of: Range<usize>| of.collect::<Vec<_>>();
        order.refresh(cluster, section(1, 3), 0, Chunk::live);
        assert_eq!(positions_found(&mut order, cluster, 20, all), (range(34..54), 20));
        order.go_on(20);
        // The rest of the section comes before all other nodes.
        let wrapped = [range(34..40), range(54..68)].concat();
        assert_eq!(positions_found(&mut order, cluster, 20, all), (wrapped, 20));
        order.go_on(20);
        assert_eq!(order.next(), 6);
        assert_eq!(positions_found(&mut order, cluster, 20, all), (range(40..60), 20));
        // The nodes after the section come before those in front of it.
        let outside = |at: usize| !(34..68).contains(&at);
        assert_eq!(positions_found(&mut order, cluster, 20, outside), (range(68..88), 54));
        let before = positions_found(&mut order, cluster, 3, |at| at < 34);
        assert_eq!(before, (range(0..3), 72));
        assert_eq!(positions_found(&mut order, cluster, 1, |_| false), (Vec::new(), 103));
        // A section that has become shorter is entered where the start falls in it.
        order.go_on(24);
        order.refresh(cluster, section(3, 6), 0, Chunk::live);
        assert_eq!(positions_found(&mut order, cluster, 3, all), (range(64..67), 3));
    }

    #[test]
    fn positions_of_an_old_list_are_not_used_for_a_new_one() {
        let (mut writer, _) = Engine::inline(Config::default());
        let add = |writer: &mut crate::cache::Writer, n: usize, zone: &str| {
            writer.add_node(node(format!("n{n}")).zone(zone).build()).unwrap();
        };
        (0..100).for_each(|n| add(&mut writer, n, if n % 2 == 0 { "a" } else { "b" }));
        let mut order = Order::default();
        order.refresh(writer.cluster(), Section::default(), 0, Chunk::live);
        let found = positions_found(&mut order, writer.cluster(), 60, |_| true);
        assert_eq!(found, ((0..60).collect(), 60));
        order.go_on(60);
        // The list now has three nodes per round, so its first 60 nodes are others.
        (100..150).for_each(|n| add(&mut writer, n, "c"));
        order.refresh(writer.cluster(), Section::default(), 0, Chunk::live);
        let found = positions_found(&mut order, writer.cluster(), 60, |_| true);
        assert_eq!(found, ((60..120).collect(), 60));
    }

    #[test]
    fn the_sections_of_a_version_divide_the_list() {
        let (mut writer, _) = Engine::inline(Config::default());
        for _ in 0..30 {
            for nodes in 0..24 {
                for of in 1..9 {
                    let sections =
                        (0..of).map(|n| section(n, of).positions(writer.cluster(), nodes));
                    let mut sections: Vec<_> = sections.collect();
                    if nodes < of as usize {
                        assert!(sections.iter().all(|section| *section == (0..nodes)));
                        continue;
                    }
                    sections.sort_by_key(|section| section.start);
                    assert_eq!((sections[0].start, sections[of as usize - 1].end), (0, nodes));
                    assert!(sections.windows(2).all(|two| two[0].end == two[1].start));
                    let lengths = || sections.iter().map(|section| section.len());
                    let (least, most) = (lengths().min(), lengths().max());
                    assert!(least >= most.map(|most| most - 1), "{nodes} nodes, {of} sections");
                }
            }
            writer.expire(crate::model::Timestamp::from_secs(1)).unwrap();
        }
    }

    #[test]
    fn sections_stay_in_place_when_a_few_nodes_are_added() {
        let (mut writer, _) = Engine::inline(Config::default());
        let (mut last, mut changes) = (None, 0);
        for _ in 0..1_000 {
            let positions = |nodes| section(0, 8).positions(writer.cluster(), nodes);
            let eighth = 8 * positions(128).start / 128;
            assert!((65..128).all(|nodes| positions(nodes).start == nodes * eighth / 8));
            changes += usize::from(last.replace(eighth) != Some(eighth));
            writer.expire(crate::model::Timestamp::from_secs(1)).unwrap();
        }
        assert_eq!(changes, 1_000_usize.div_ceil(128));
    }
}
