//! Upgrades nodes in steps, as managed node pools do.
//!
//! In each step, `--max-surge` nodes are replaced: a new node like the old one joins, the old
//! one is cordoned, drained and deleted. At the same time `--max-unavailable` nodes are
//! upgraded in place: they are cordoned, drained and return. Drains obey disruption budgets. A
//! real upgrade would hang in a step whose drains cannot end; the simulation ends there.

use portolan::model::{Name, Node};
use portolan_k8s::IntOrPercent;

use crate::error::Failure;
use crate::simulation::{Simulation, closed};

use super::answer::Answer;
use super::daemons::Daemons;
use super::drain::{Drains, cordon};
use super::fail::remove_nodes;
use super::model::Model;
use super::record::Record;
use super::selection::Selection;
use super::{Blocked, key};

/// Parses a number of nodes or a percentage of them.
pub(super) fn amount(text: &str) -> Result<IntOrPercent, String> {
    IntOrPercent::parse(text).ok_or_else(|| "pass a number such as 2, or 25%".to_owned())
}

/// One step of an upgrade.
pub(super) struct Step {
    pub(super) nodes: Vec<Name>,
    /// How many of the nodes are replaced by new ones before they are drained.
    pub(super) surge: usize,
    pub(super) evicted: usize,
    pub(super) waits: usize,
    /// The pods that block a drain.
    pub(super) blocked: usize,
    /// Pods without a node while the nodes of the step are away.
    pub(super) pending: Vec<String>,
}

/// An upgrade.
pub(super) struct Upgrade {
    pub(super) selected: usize,
    pub(super) steps: Vec<Step>,
}

impl Upgrade {
    /// The step that cannot end, counted from 1.
    pub(super) fn failed(&self) -> Option<usize> {
        self.steps.iter().position(|step| step.blocked > 0).map(|at| at + 1)
    }
}

/// Upgrades the selected nodes in the order of the cluster.
pub(super) fn upgrade(
    selection: &Selection,
    (surge, unavailable): (IntOrPercent, IntOrPercent),
    daemons: &mut Daemons,
    drains: &mut Drains<'_>,
    simulation: &mut Simulation,
    record: &mut Record,
    answer: &mut Answer,
) -> Result<Vec<Blocked>, Failure> {
    let mut reader = simulation.engine.reader().map_err(closed)?;
    let nodes = selection.nodes(reader.refresh(), "--upgrade")?;
    // A percentage of a few nodes is at least one node, as in a rolling update.
    let total = i64::try_from(nodes.len()).unwrap_or(i64::MAX);
    let number = |of: IntOrPercent, up| usize::try_from(of.of(total, up)).unwrap_or(0);
    let (surge, mut away) = (number(surge, true), number(unavailable, false));
    if surge == 0 && away == 0 {
        if !matches!(unavailable, IntOrPercent::Percent(1..)) {
            return Err(Failure::Usage(
                "--max-surge and --max-unavailable are both 0: raise one of them".to_owned(),
            ));
        }
        away = 1;
    }
    let mut upgrade = Upgrade { selected: nodes.len(), steps: Vec::new() };
    let mut blocked = Vec::new();
    for batch in nodes.chunks(surge.saturating_add(away)) {
        let (replaced, in_place) = batch.split_at(surge.min(batch.len()));
        for node in replaced {
            let name: Name = format!("{}-upgraded", node.name).into();
            if reader.refresh().node(&name).is_some() {
                return Err(Failure::Usage(format!(
                    "--upgrade: the new node would be named {name}, which exists: rename that node"
                )));
            }
            let model = Model::of(Node::clone(node), &[], reader.refresh());
            let new = model.copy(name.clone());
            if !new.has_limits {
                answer.without_limits.insert(name);
            }
            daemons.join(new, simulation, record)?;
        }
        simulation.settle(record)?;
        for node in batch {
            cordon(&simulation.engine, node, true)?;
        }
        let mut step = Step {
            nodes: batch.iter().map(|node| node.name.clone()).collect(),
            surge: replaced.len(),
            evicted: 0,
            waits: 0,
            blocked: 0,
            pending: Vec::new(),
        };
        for node in batch {
            let done = drains.run(&node.name, simulation, record)?;
            step.evicted += done.evicted;
            step.waits += done.waits;
            step.blocked += done.blocked.len();
            let stay = done.blocked.into_iter();
            blocked.extend(stay.map(|(pod, why)| (pod, node.name.clone(), why)));
        }
        drains.end(simulation, record)?;
        step.pending = record.displaced().map(key).collect();
        let is_blocked = step.blocked > 0;
        upgrade.steps.push(step);
        if is_blocked {
            break;
        }
        let replaced: Vec<Name> = replaced.iter().map(|node| node.name.clone()).collect();
        remove_nodes(&replaced, simulation, record)?;
        for node in in_place {
            cordon(&simulation.engine, node, node.unschedulable)?;
        }
        simulation.settle(record)?;
        simulation.expire_permits(record)?;
    }
    answer.upgrade = Some(upgrade);
    Ok(blocked)
}
