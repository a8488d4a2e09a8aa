//! Reductions of the pod's requests.

use std::collections::BTreeMap;

use portolan::framework::Status;
use portolan::model::{Bytes, MilliCpu, Pod, Scalars};

use super::changes::Change;
use super::steps::changed;
use super::trial::{Rejection, Trial};
use super::{INSUFFICIENT, of, resource};
use crate::text::{Rounding, amounts};

/// Maximum number of sets of resources for which reductions are tried. The sets that most nodes lack come first.
const SETS: usize = 20;

/// By how much a node is short of each of some resources.
struct Shortfall {
    by: Vec<i64>,
    /// The largest shortfall of a resource as a part of the request.
    relative: f64,
}

/// For each set of resources that nodes lack, and that keep them from the pod alone: the smallest
/// reduction that makes the pod fit on one of them, and one that makes it fit on half of them.
pub(super) fn changes(trial: Trial<'_>, rejections: &[Rejection<'_>]) -> Vec<Change> {
    let mut changes: Vec<(f64, Change)> = Vec::new();
    let mut sets: Vec<_> = shortfalls(trial.pod, rejections).into_iter().collect();
    sets.sort_by_key(|(_, nodes)| std::cmp::Reverse(nodes.len()));
    for (names, mut short) in sets.into_iter().take(SETS) {
        short.sort_by(|a, b| a.relative.total_cmp(&b.relative));
        let mut best = 0;
        for first in [1, short.len().div_ceil(2)] {
            let Some((relative, by)) = largest(&short[..first]).filter(|(it, _)| *it < 1.0) else {
                continue;
            };
            let lower = reduced(trial.pod, &names, &by);
            let nodes = Trial { pod: &lower, ..trial }.fitting();
            if nodes.len() > best {
                best = nodes.len();
                let change = Change::single("request", text(trial.pod, &names, &by), nodes);
                changes.push((relative, change));
            }
        }
    }
    changes.sort_by(|a, b| a.0.total_cmp(&b.0));
    changes.into_iter().map(|(_, change)| change).collect()
}

/// The shortfalls of nodes that only lack resources, by the names of these.
fn shortfalls<'r>(
    pod: &Pod,
    rejections: &'r [Rejection<'_>],
) -> BTreeMap<Vec<&'r str>, Vec<Shortfall>> {
    let mut all: BTreeMap<Vec<&str>, Vec<Shortfall>> = BTreeMap::new();
    for Rejection { node, statuses } in rejections {
        let [Status { plugin: "NodeResourcesFit", reasons, .. }] = &statuses[..] else { continue };
        let names = reasons.iter().map(|reason| reason.strip_prefix(INSUFFICIENT));
        let Some(names) = names.collect::<Option<Vec<&str>>>() else { continue };
        let mut by = Vec::with_capacity(names.len());
        let mut relative = 0.0_f64;
        for name in &names {
            let (wanted, _, left) = resource(name, pod, *node);
            by.push(wanted.saturating_sub(left.max(0)));
            relative = relative.max(by[by.len() - 1] as f64 / wanted.max(1) as f64);
        }
        all.entry(names).or_default().push(Shortfall { by, relative });
    }
    all
}

/// The largest shortfall of each resource.
fn largest(short: &[Shortfall]) -> Option<(f64, Vec<i64>)> {
    let (first, others) = short.split_first()?;
    let mut largest = (first.relative, first.by.clone());
    for Shortfall { by, relative } in others {
        largest.0 = largest.0.max(*relative);
        for (most, by) in largest.1.iter_mut().zip(by) {
            *most = (*most).max(*by);
        }
    }
    Some(largest)
}

/// The pod with lower requests.
fn reduced(pod: &Pod, names: &[&str], by: &[i64]) -> Pod {
    changed(pod, |spec| {
        let incoming = &mut spec.resources.incoming;
        for (name, by) in names.iter().zip(by) {
            match *name {
                "cpu" => incoming.cpu = MilliCpu(incoming.cpu.0 - by),
                "memory" => incoming.memory = Bytes(incoming.memory.0 - by),
                "ephemeral-storage" => {
                    incoming.ephemeral_storage = Bytes(incoming.ephemeral_storage.0 - by);
                }
                name => {
                    let less = |known: &str| if *known == *name { *by } else { 0 };
                    let scalars = incoming.scalars.iter();
                    let scalars =
                        scalars.map(|(known, amount)| (known.clone(), amount - less(known)));
                    incoming.scalars = Scalars::new(scalars.collect::<Vec<_>>());
                }
            }
        }
    })
}

fn text(pod: &Pod, names: &[&str], by: &[i64]) -> String {
    let parts = names.iter().zip(by).map(|(name, by)| {
        let request = of(&pod.template.resources.incoming, name);
        let [from, to] = amounts(name, [request, request - by], Rounding::Down);
        format!("the {name} request from {from} to {to}")
    });
    format!("lower {}", parts.collect::<Vec<_>>().join(" and "))
}
