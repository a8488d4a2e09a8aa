//! Reductions of the pod's requests, in terms of its manifest: the requests of containers, or of the pod as a whole,
//! without the overhead of its runtime class.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;

use portolan::cache::NodeInfo;
use portolan::model::{ContainerKind, Name, Quantity, Requests, ResourceList};
use portolan::plugin::Status;
use rayon::prelude::*;

use super::INSUFFICIENT;
use super::changes::{Change, try_edits};
use super::edit::Edit;
use super::trial::{RejectedNodes, Trial};
use crate::text::{Rounding, amounts};

/// Maximum number of sets of resources for which reductions are tried. The sets that most nodes lack come first.
const SETS: usize = 20;

/// A lower request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lower {
    resource: Name,
    of: Of,
    from: i64,
    /// The amounts as they are printed, in one unit.
    texts: [String; 2],
    /// The printed amount, which may be rounded down.
    to: Quantity,
}

/// The part of the manifest that has a request.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Of {
    /// The pod as a whole.
    Pod,
    /// The container at this position, which has no name in the text if it is the only one.
    Container { at: usize, name: Option<String> },
}

impl Lower {
    fn new(resource: &str, of: Of, from: i64, to: i64) -> Option<Lower> {
        let texts = amounts(resource, [from, to], Rounding::Down);
        let to: Quantity = texts[1].parse().ok()?;
        (units(resource, to) > 0).then(|| Lower { resource: resource.into(), of, from, texts, to })
    }

    /// The reduction as a part of the request, in eighths.
    pub(super) fn eighths(&self) -> usize {
        let by = self.from.saturating_sub(units(&self.resource, self.to)).max(0);
        usize::try_from(i128::from(by) * 8 / i128::from(self.from.max(1))).unwrap_or(0)
    }

    pub(super) fn apply(&self, requests: &mut Requests) {
        let list = match self.of {
            Of::Pod => requests.pod_level.as_mut(),
            Of::Container { at, .. } => {
                requests.containers.get_mut(at).map(|container| &mut container.requests)
            }
        };
        if let Some(list) = list {
            list.set(self.resource.clone(), self.to);
        }
    }
}

impl fmt::Display for Lower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Lower { resource, of, texts: [from, to], .. } = self;
        write!(f, "the {resource} request")?;
        match of {
            Of::Pod => f.write_str(" of the pod")?,
            Of::Container { name: Some(name), .. } => write!(f, " of {name}")?,
            Of::Container { name: None, .. } => {}
        }
        write!(f, " from {from} to {to}")
    }
}

/// A quantity in the unit in which the engine counts the resource.
fn units(resource: &str, quantity: Quantity) -> i64 {
    if resource == "cpu" { quantity.milli_value() } else { quantity.value() }
}

/// The reductions after which the pod requests at most `target` of the resource, its overhead included. Reduces the
/// container with the largest request if that suffices, and otherwise all of them in proportion. Init containers that
/// need more are reduced by themselves. `None` if a request would be 0.
fn lowered(requests: &Requests, resource: &str, target: i64) -> Option<Vec<Lower>> {
    let amount = |list: &ResourceList| list.get(resource).map_or(0, |it| units(resource, it));
    let most = target.saturating_sub(amount(&requests.overhead));
    let of_pod = requests.pod_level.as_ref().filter(|list| list.get(resource).is_some());
    if let Some(of_pod) = of_pod.filter(|_| Requests::is_pod_level(resource)) {
        // The API server refuses a pod that requests less than its containers.
        let is_valid = most >= amount(&requests.aggregate());
        let lower = Lower::new(resource, Of::Pod, amount(of_pod), most);
        return lower.filter(|_| is_valid).map(|lower| vec![lower]);
    }
    let old: Vec<i64> = requests.containers.iter().map(|it| amount(&it.requests)).collect();
    let mut new = old.clone();
    let is_init = |at: &usize| requests.containers[*at].kind == ContainerKind::Init;
    let running: Vec<usize> = (0..old.len()).filter(|at| !is_init(at)).collect();
    let sum: i64 = running.iter().fold(0, |sum, at| sum.saturating_add(old[*at]));
    let excess = sum.saturating_sub(most);
    if excess > 0 {
        let largest =
            running.iter().copied().max_by_key(|at| (old[*at], std::cmp::Reverse(*at)))?;
        match old[largest] > excess {
            true => new[largest] -= excess,
            false => running.iter().for_each(|at| {
                let part = i128::from(old[*at]) * i128::from(most) / i128::from(sum);
                new[*at] = i64::try_from(part).unwrap_or(0);
            }),
        }
    }
    let mut sidecars = 0_i64;
    for (at, container) in requests.containers.iter().enumerate() {
        match container.kind {
            ContainerKind::Init => new[at] = new[at].min(most.saturating_sub(sidecars)),
            ContainerKind::Sidecar => sidecars = sidecars.saturating_add(new[at]),
            _ => {}
        }
    }
    let changed = (0..old.len()).filter(|at| old[*at] != new[*at]).map(|at| {
        let container = &requests.containers[at];
        let kind = if container.kind == ContainerKind::Main { "" } else { "init " };
        let name = || format!("{kind}container {}", container.name);
        let name = (old.len() > 1).then(name);
        Lower::new(resource, Of::Container { at, name }, old[at], new[at])
    });
    changed.collect::<Option<Vec<Lower>>>().filter(|all| !all.is_empty())
}

/// By how much a node is short of each of some resources.
struct Shortfall {
    by: Vec<i64>,
    /// The largest shortfall of a resource as a part of the request.
    relative: f64,
}

impl Shortfall {
    fn order(&self, other: &Shortfall) -> Ordering {
        self.relative.total_cmp(&other.relative).then_with(|| self.by.cmp(&other.by))
    }
}

/// For each set of resources that nodes lack, and that keep them from the pod alone: the smallest
/// reduction that makes the pod fit on one of them, and one that makes it fit on half of them.
pub(super) fn changes(trial: Trial<'_>, rejected: &[RejectedNodes<'_>]) -> Vec<Change> {
    let Some(requests) = trial.requests else { return Vec::new() };
    let mut changes = Vec::new();
    let mut sets: Vec<_> = shortfalls(trial, rejected).into_iter().collect();
    sets.sort_by_key(|(_, nodes)| std::cmp::Reverse(nodes.len()));
    for (names, mut short) in sets.into_iter().take(SETS) {
        let mut best = 0;
        for first in [1, short.len().div_ceil(2)] {
            short.select_nth_unstable_by(first - 1, Shortfall::order);
            let Some(by) = largest(&short[..first]) else { continue };
            let parts = names.iter().zip(by).map(|(name, by)| {
                lowered(requests, name, trial.requested(name).saturating_sub(by))
            });
            let Some(parts) = parts.collect::<Option<Vec<_>>>() else { continue };
            let change = try_edits(trial, vec![Edit::Lower(parts.concat())]);
            if let Some(change) = change.filter(|change| change.nodes.len() > best) {
                best = change.nodes.len();
                changes.push(change);
            }
        }
    }
    changes
}

/// The shortfalls of nodes that only lack resources, by the names of these.
fn shortfalls<'r>(
    trial: Trial<'_>,
    rejected: &'r [RejectedNodes<'_>],
) -> BTreeMap<Vec<&'r str>, Vec<Shortfall>> {
    let mut all: BTreeMap<Vec<&str>, Vec<Shortfall>> = BTreeMap::new();
    for RejectedNodes { statuses, nodes } in rejected {
        let [Status { plugin: "NodeResourcesFit", reasons, .. }] = &statuses[..] else { continue };
        let names = reasons.iter().map(|reason| reason.strip_prefix(INSUFFICIENT));
        let Some(names) = names.collect::<Option<Vec<&str>>>() else { continue };
        let wanted: Vec<i64> = names.iter().map(|name| trial.requested(name)).collect();
        let of_node = |node: &NodeInfo<'_>| {
            let (mut by, mut relative) = (Vec::with_capacity(names.len()), 0.0_f64);
            for (name, wanted) in names.iter().zip(&wanted) {
                let short = wanted.saturating_sub(trial.free(name, *node).max(0));
                relative = relative.max(short as f64 / (*wanted).max(1) as f64);
                by.push(short);
            }
            (relative < 1.0).then_some(Shortfall { by, relative })
        };
        let short: Vec<Shortfall> = nodes.par_iter().filter_map(of_node).collect();
        if !short.is_empty() {
            all.entry(names).or_default().extend(short);
        }
    }
    all
}

/// The largest shortfall of each resource.
fn largest(short: &[Shortfall]) -> Option<Vec<i64>> {
    let (first, others) = short.split_first()?;
    let mut largest = first.by.clone();
    for Shortfall { by, .. } in others {
        for (most, by) in largest.iter_mut().zip(by) {
            *most = (*most).max(*by);
        }
    }
    Some(largest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use portolan::model::Container;

    fn container(name: &str, kind: ContainerKind, cpu: i64) -> Container {
        let requests = ResourceList::new([("cpu", Quantity::milli(cpu))]);
        Container { name: name.into(), kind, requests, ..Container::default() }
    }

    fn texts(requests: &Requests, target: i64) -> Option<Vec<String>> {
        let all = lowered(requests, "cpu", target)?;
        let mut lower = requests.clone();
        all.iter().for_each(|it| it.apply(&mut lower));
        assert!(lower.compute().incoming.cpu.0 <= target, "{all:?}");
        Some(all.iter().map(Lower::to_string).collect())
    }

    #[test]
    fn requests_are_lowered_where_the_manifest_has_them() {
        use ContainerKind::{Init, Main, Sidecar};
        let of = |containers: &[Container]| Requests {
            containers: containers.to_vec(),
            ..Requests::default()
        };
        let two = of(&[container("a", Main, 1500), container("b", Main, 1000)]);
        assert_eq!(texts(&two, 2000).unwrap(), ["the cpu request of container a from 1.5 to 1"]);
        // The larger one alone is not enough.
        let both = [
            "the cpu request of container a from 1.5 to 0.3",
            "the cpu request of container b from 1 to 0.2",
        ];
        assert_eq!(texts(&two, 500).unwrap(), both);
        let init = of(&[container("i", Init, 3000), container("a", Main, 1000)]);
        assert_eq!(
            texts(&init, 2000).unwrap(),
            ["the cpu request of init container i from 3 to 2"]
        );
        let beside = of(&[
            container("s", Sidecar, 500),
            container("i", Init, 2000),
            container("a", Main, 100),
        ]);
        assert_eq!(
            texts(&beside, 2000).unwrap(),
            ["the cpu request of init container i from 2 to 1.5"]
        );
        let only = of(&[container("a", Main, 1500)]);
        let cpu = |milli| ResourceList::new([("cpu", Quantity::milli(milli))]);
        let overhead = Requests { overhead: cpu(1000), ..only.clone() };
        assert_eq!(texts(&overhead, 2000).unwrap(), ["the cpu request from 1.5 to 1"]);
        assert_eq!(texts(&overhead, 1000), None);
        let of_pod = Requests { pod_level: Some(cpu(3000)), ..only };
        assert_eq!(texts(&of_pod, 2000).unwrap(), ["the cpu request of the pod from 3 to 2"]);
        assert_eq!(texts(&of_pod, 1000), None);
    }
}
