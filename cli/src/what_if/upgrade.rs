//! Upgrades nodes in steps, as managed node pools do.
//!
//! In each step, `--max-surge` nodes are replaced: a new node like the old one joins, the old
//! one is cordoned, drained and deleted. At the same time `--max-unavailable` nodes are
//! upgraded in place: they are cordoned, drained and return. Drains obey disruption budgets. A
//! real upgrade would hang in a step whose drains cannot end; the simulation ends there.

use std::sync::Arc;

use portolan::Cluster;
use portolan::model::{LabelLookup, Name, Node, NodeSelectorTerm, Operator, Requirement};
use portolan_k8s::IntOrPercent;

use crate::error::Failure;
use crate::simulation::{Simulation, closed};

use super::drain::{Drains, cordon};
use super::fail::remove_nodes;
use super::nodes::{Daemons, copy};
use super::record::Record;
use super::{Blocked, key, settle};

/// The nodes to upgrade or drain.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    text: String,
    term: NodeSelectorTerm,
}

impl Selection {
    /// Parses `all`, or a label selector of kubectl.
    pub(crate) fn parse(text: &str) -> Result<Selection, String> {
        let requirements: Vec<Requirement> = match text {
            "all" => Vec::new(),
            _ => split(text).into_iter().map(requirement).collect::<Result<_, _>>()?,
        };
        let term = NodeSelectorTerm {
            match_expressions: requirements.into(),
            ..NodeSelectorTerm::default()
        };
        Ok(Selection { text: text.to_owned(), term })
    }

    pub(crate) fn selects(&self, node: &Node) -> bool {
        self.selects_labels(&node.labels)
    }

    /// The selected nodes in the order of the cluster, at least one.
    pub(super) fn nodes(&self, cluster: &Cluster, option: &str) -> Result<Vec<Arc<Node>>, Failure> {
        let nodes = cluster.nodes().filter_map(|info| info.node().cloned());
        let nodes: Vec<_> = nodes.filter(|node| self.selects(node)).collect();
        if nodes.is_empty() {
            return Err(Failure::Usage(format!(
                "{option} {}: no node has these labels: check the selector",
                self.text
            )));
        }
        Ok(nodes)
    }

    pub(crate) fn selects_labels(&self, labels: &(impl LabelLookup + ?Sized)) -> bool {
        self.term.match_expressions.iter().all(|it| it.matches(labels))
    }
}

/// Splits a selector at the commas outside of parentheses.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_i32, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// One requirement: `a=b`, `a==b`, `a!=b`, `a in (b,c)`, `a notin (b,c)`, `a` or `!a`.
fn requirement(text: &str) -> Result<Requirement, String> {
    let text = text.trim();
    let wrong = || {
        format!(
            "{text:?} is not a label requirement: pass all, or a selector such as pool=a,zone!=b"
        )
    };
    let is_key = |key: &str| {
        let is_valid = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        !key.is_empty() && key.chars().all(is_valid)
    };
    let is_value = |value: &str| {
        let is_valid = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        value.len() <= 63 && value.chars().all(is_valid)
    };
    let make = |key: &str, operator: Operator, values: Vec<&str>| {
        let are_values = values.iter().all(|value| is_value(value.trim()));
        let (key, values) = (key.trim(), values.into_iter().map(str::trim).map(Name::from));
        if is_key(key) && are_values {
            Ok(Requirement::new(key, operator, values))
        } else {
            Err(wrong())
        }
    };
    let none = Vec::<&str>::new();
    for (word, operator) in [(" notin ", Operator::NotIn), (" in ", Operator::In)] {
        if let Some((key, list)) = text.split_once(word) {
            let list = list.trim().strip_prefix('(').and_then(|list| list.strip_suffix(')'));
            return make(key, operator, list.ok_or_else(wrong)?.split(',').collect());
        }
    }
    if let Some((key, value)) = text.split_once("!=") {
        return make(key, Operator::NotIn, vec![value]);
    }
    if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return make(key, Operator::In, vec![value]);
    }
    match text.strip_prefix('!') {
        Some(key) => make(key, Operator::DoesNotExist, none),
        None => make(text, Operator::Exists, none),
    }
}

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

/// An upgrade of nodes in the order of the cluster.
pub(super) struct Upgrade {
    nodes: Vec<Arc<Node>>,
    /// The numbers of nodes in a step that are replaced, and that are upgraded in place.
    size: (usize, usize),
    /// The number of nodes whose steps have ended.
    done: usize,
    pub(super) steps: Vec<Step>,
}

impl Upgrade {
    /// An upgrade that has not begun.
    pub(super) fn new(
        selection: &Selection,
        (surge, unavailable): (IntOrPercent, IntOrPercent),
        cluster: &Cluster,
    ) -> Result<Upgrade, Failure> {
        let nodes = selection.nodes(cluster, "--upgrade")?;
        // A percentage of a few nodes is at least one node, as in a rolling update.
        let total = i64::try_from(nodes.len()).unwrap_or(i64::MAX);
        let number = |of: IntOrPercent, up| usize::try_from(of.of(total, up)).unwrap_or(0);
        let mut size = (number(surge, true), number(unavailable, false));
        if size == (0, 0) {
            if !matches!(unavailable, IntOrPercent::Percent(1..)) {
                return Err(Failure::Usage(
                    "--max-surge and --max-unavailable are both 0: raise one of them".to_owned(),
                ));
            }
            size.1 = 1;
        }
        Ok(Upgrade { nodes, size, done: 0, steps: Vec::new() })
    }

    /// The number of nodes to upgrade.
    pub(super) fn selected(&self) -> usize {
        self.nodes.len()
    }

    /// The step that cannot end, counted from 1.
    pub(super) fn failed(&self) -> Option<usize> {
        self.steps.iter().position(|step| step.blocked > 0).map(|at| at + 1)
    }

    /// Upgrades the nodes until all are upgraded, or a step is blocked. May be called again, when pods that were being
    /// deleted have ended. Returns the pods that block the step.
    pub(super) fn proceed(
        &mut self,
        daemons: &mut Daemons,
        drains: &mut Drains<'_>,
        simulation: &mut Simulation,
        record: &mut Record,
    ) -> Result<Vec<Blocked>, Failure> {
        let (surge, away) = self.size;
        while self.done < self.nodes.len() {
            let end = self.done.saturating_add(surge.saturating_add(away)).min(self.nodes.len());
            let batch = &self.nodes[self.done..end];
            let (replaced, in_place) = batch.split_at(surge.min(batch.len()));
            if self.failed().is_none() {
                begin(replaced, batch, daemons, simulation)?;
                self.steps.push(Step {
                    nodes: batch.iter().map(|node| node.name.clone()).collect(),
                    surge: replaced.len(),
                    evicted: 0,
                    waits: 0,
                    blocked: 0,
                    pending: Vec::new(),
                });
            }
            let Some(step) = self.steps.last_mut() else { break };
            let mut blocked = Vec::new();
            for node in batch {
                let done = drains.run(&node.name, simulation, record)?;
                step.evicted += done.evicted;
                step.waits += done.waits;
                let stay = done.blocked.into_iter();
                blocked.extend(stay.map(|(pod, why)| (pod, node.name.clone(), why)));
            }
            drains.end(simulation, record)?;
            step.blocked = blocked.len();
            step.pending = record.displaced().map(key).collect();
            if !blocked.is_empty() {
                return Ok(blocked);
            }
            let replaced: Vec<Name> = replaced.iter().map(|node| node.name.clone()).collect();
            remove_nodes(&replaced, simulation, record)?;
            for node in in_place {
                cordon(&simulation.engine, node, node.unschedulable)?;
            }
            settle(simulation, record)?;
            simulation.expire_permits(record)?;
            self.done = end;
        }
        Ok(Vec::new())
    }
}

/// Begins a step: the new nodes join, and the old ones are cordoned.
fn begin(
    replaced: &[Arc<Node>],
    batch: &[Arc<Node>],
    daemons: &mut Daemons,
    simulation: &Simulation,
) -> Result<(), Failure> {
    let mut reader = simulation.engine.reader().map_err(closed)?;
    for node in replaced {
        let name: Name = format!("{}-upgraded", node.name).into();
        if reader.refresh().node(&name).is_some() {
            return Err(Failure::Usage(format!(
                "--upgrade: the new node would be named {name}, which exists: rename that node"
            )));
        }
        let new = Node { unschedulable: false, ..copy(node, name) };
        daemons.join(&simulation.engine, new)?;
    }
    batch.iter().try_for_each(|node| cordon(&simulation.engine, node, true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_read_as_kubectl_reads_them() {
        let matches = |selector: &str, labels: &[(&str, &str)]| {
            let labels = portolan::model::Labels::new(labels.iter().copied());
            let node = Node {
                labels: portolan::model::NodeLabels::new(&labels, &"n".into()),
                ..portolan::model::node("n").build()
            };
            Selection::parse(selector).expect(selector).selects(&node)
        };
        assert!(matches("all", &[]));
        assert!(matches("pool=a", &[("pool", "a")]) && !matches("pool=a", &[("pool", "b")]));
        assert!(matches("pool==a,zone!=x", &[("pool", "a")]));
        assert!(!matches("pool=a,zone!=x", &[("pool", "a"), ("zone", "x")]));
        assert!(matches("pool in (a, b),!old", &[("pool", "b")]));
        assert!(!matches("pool notin (a,b)", &[("pool", "b")]));
        assert!(matches("example.com/gpu", &[("example.com/gpu", "")]) && !matches("gpu", &[]));
        for wrong in ["", "a b", "pool in a", "=x", "a=b,,c"] {
            assert!(Selection::parse(wrong).is_err(), "{wrong}");
        }
    }
}
