//! `--each`: every node or zone fails in turn.
//!
//! Each failure begins with the cluster at the end of the question's other changes. The failures are independent, and
//! all processors simulate them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use portolan::model::{Name, Node};
use serde::Serialize;

use crate::error::CommandError;
use crate::text::count;

use super::Change;
use super::difference::{Effects, Outcome, own};
use super::fail;
use super::start::Base;
use crate::selection::zones;

/// What fails at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Domain {
    /// One node.
    Node,
    /// All nodes of a zone.
    Zone,
}

/// The failures of all nodes or zones, the worst first.
pub(super) struct Failures {
    pub(super) domain: Domain,
    pub(super) failures: Vec<Harm>,
    /// The number of nodes that are in no zone.
    pub(super) without_zone: usize,
    pub(super) is_loss_accepted: bool,
}

/// The pods that a failure harms.
#[derive(Serialize)]
pub(super) struct Harm {
    pub(super) name: String,
    pub(super) nodes: Vec<String>,
    /// The pods without a node during the outage.
    pub(super) during: BTreeSet<Name>,
    /// The pods without a node after the Nodes are deleted.
    pub(super) after: BTreeSet<Name>,
    pub(super) lost: BTreeSet<Name>,
}

/// The name of a node or zone, and its nodes.
type Group = (String, Vec<String>);

impl Base<'_> {
    /// Simulates the failure of each node or zone.
    pub(super) fn each(&self, domain: Domain, change: &Change) -> Result<Failures, CommandError> {
        let (groups, without_zone) = self.groups(domain)?;
        let without = &self.without_change()?.outcomes;
        let next = AtomicUsize::new(0);
        let work = || {
            let mut done = Vec::new();
            while let Some((name, nodes)) = groups.get(next.fetch_add(1, Ordering::Relaxed)) {
                let harm = self.fail(name, nodes, without)?;
                (self.on_failure)(&harm, groups.len());
                done.push(harm);
            }
            Ok::<Vec<Harm>, CommandError>(done)
        };
        let threads = thread::available_parallelism().map_or(1, usize::from).min(groups.len());
        let done: Result<Vec<Vec<Harm>>, CommandError> = thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let joined = threads.into_iter().map(|it| it.join());
            joined
                .map(|it| it.unwrap_or(Err(CommandError::Panicked("a simulated failure"))))
                .collect()
        });
        let mut failures: Vec<Harm> = done?.into_iter().flatten().collect();
        let is_loss_accepted = change.force;
        failures.sort_by_cached_key(|it| {
            let last = it.after.len() + it.lost.len();
            (std::cmp::Reverse((it.pods(is_loss_accepted), last)), it.name.clone())
        });
        Ok(Failures { domain, failures, without_zone, is_loss_accepted })
    }

    /// The nodes that fail together, by name, and the number of nodes that never fail.
    fn groups(&self, domain: Domain) -> Result<(Vec<Group>, usize), CommandError> {
        let name = |node: &Node| node.name.to_string();
        let nodes = || self.from.cluster.nodes().filter_map(|info| info.node());
        if domain == Domain::Node {
            let groups = nodes().map(|node| (name(node), vec![name(node)]));
            return Ok((groups.collect(), 0));
        }
        let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for node in nodes() {
            let zones: BTreeSet<&str> = zones(node).collect();
            for zone in zones {
                groups.entry(zone.to_owned()).or_default().push(name(node));
            }
        }
        if groups.is_empty() {
            let what =
                "--each zone: no node has the label topology.kubernetes.io/zone: pass --each node";
            return Err(CommandError::Usage(what.to_owned()));
        }
        let without = nodes().filter(|node| zones(node).next().is_none()).count();
        Ok((groups.into_iter().collect(), without))
    }

    fn fail(
        &self,
        name: &str,
        nodes: &[String],
        [during, after]: &[Outcome; 2],
    ) -> Result<Harm, CommandError> {
        let mut start = self.start(None)?;
        let mut limits = start.settle(self)?;
        start.world.record.begin_change();
        let world = &mut start.world;
        let mut failed = fail::fail(nodes, self.contents.facts(), world)?;
        limits.update(world)?;
        failed.end_placed(world)?;
        let during = Effects::between(during, &start.outcome()?);
        let world = &mut start.world;
        failed.delete(world)?;
        start.end_terminating(&mut limits)?;
        let after = Effects::between(after, &start.outcome()?);
        let keys = |rows| own(rows).map(|row| row.pod.key()).collect();
        Ok(Harm {
            name: name.to_owned(),
            nodes: nodes.to_vec(),
            during: keys(&during.unplaced),
            after: keys(&after.unplaced),
            lost: keys(&after.lost),
        })
    }
}

impl Harm {
    /// The number of harmed pods.
    pub(super) fn pods(&self, is_loss_accepted: bool) -> usize {
        let lost = if is_loss_accepted { 0 } else { self.lost.len() };
        self.during.union(&self.after).count() + lost
    }
}

impl Failures {
    pub(super) fn harmful(&self) -> impl Iterator<Item = &Harm> {
        self.failures.iter().filter(|harm| harm.pods(self.is_loss_accepted) > 0)
    }

    pub(super) fn is_ok(&self) -> bool {
        self.harmful().next().is_none()
    }

    /// The clause of the first line.
    pub(super) fn headline(&self) -> String {
        let noun = match self.domain {
            Domain::Node => "node",
            Domain::Zone => "zone",
        };
        let all = self.failures.len();
        let is_lost = self.harmful().any(|harm| !harm.lost.is_empty()) && !self.is_loss_accepted;
        let harm = if is_lost { "an unschedulable or lost pod" } else { "an unschedulable pod" };
        let harmless = all - self.harmful().count();
        let mut line = format!("{harmless} of {} can fail without {harm}", count(all, noun));
        if let Some(worst) = self.harmful().next() {
            let pods = count(worst.pods(self.is_loss_accepted), "pod");
            line.push_str(&format!("; worst: {}: {pods}", worst.name));
        }
        match self.without_zone {
            0 => {}
            1 => line.push_str("; 1 node is in no zone"),
            nodes => line.push_str(&format!("; {nodes} nodes are in no zone")),
        }
        line
    }
}
