//! Values that are computed from a version when they are first asked for.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use crate::hash::Keyed;
use crate::model::{LabelSelector, Name, PodAffinityTerm, Template};

use super::cluster::Cluster;

/// Returns the cell's value, and computes it if the cell is empty. No thread blocks another: two threads may both
/// compute the value, and one of the results is stored.
#[inline]
pub(super) fn known<T>(cell: &OnceLock<T>, make: impl FnOnce() -> T) -> &T {
    #[cold]
    #[inline(never)]
    fn fill<T>(cell: &OnceLock<T>, make: impl FnOnce() -> T) -> &T {
        let made = make();
        cell.get_or_init(|| made)
    }
    match cell.get() {
        Some(known) => known,
        None => fill(cell, make),
    }
}

/// A value that versions share until [`Known::forget`].
#[derive(Debug)]
pub(crate) struct Known<T>(Arc<OnceLock<Arc<T>>>);

impl<T> Clone for Known<T> {
    fn clone(&self) -> Known<T> {
        Known(self.0.clone())
    }
}

impl<T> Default for Known<T> {
    fn default() -> Known<T> {
        Known(Arc::default())
    }
}

impl<T> Known<T> {
    /// Discards the value, because what it is computed from is about to change. Older versions keep theirs.
    pub(super) fn forget(&mut self) {
        match Arc::get_mut(&mut self.0) {
            Some(mine) => {
                mine.take();
            }
            None => self.0 = Arc::default(),
        }
    }

    /// Returns the value of the version that owns this cell.
    pub(super) fn get(&self, make: impl FnOnce() -> T) -> &Arc<T> {
        known(&self.0, || Arc::new(make()))
    }
}

/// The numbers of label sets of pods, and of templates with affinity, by namespace. Each list is sorted.
#[derive(Debug, Default)]
pub(crate) struct ByNamespace {
    pub(super) labels: HashMap<Name, Vec<u32>, Keyed>,
    /// The templates with a term that lists the namespace.
    affine: HashMap<Name, Vec<u32>, Keyed>,
    /// The templates with a term that selects namespaces by their labels.
    of_selected: Vec<u32>,
}

impl ByNamespace {
    /// O(label sets + templates).
    pub(super) fn of(cluster: &Cluster) -> ByNamespace {
        let mut by = ByNamespace::default();
        for (number, namespace, _) in cluster.all_pod_labels() {
            by.labels.entry(namespace.clone()).or_default().push(number);
        }
        for (number, template) in cluster.affine_templates() {
            for term in terms(template) {
                for namespace in &term.namespaces {
                    let numbers = by.affine.entry(namespace.clone()).or_default();
                    if numbers.last() != Some(&number) {
                        numbers.push(number);
                    }
                }
                let selects = term.namespace_selector != LabelSelector::Nothing;
                if selects && by.of_selected.last() != Some(&number) {
                    by.of_selected.push(number);
                }
            }
        }
        by
    }

    /// Returns the templates whose affinity may concern pods of the namespace, in order.
    pub(super) fn affine(&self, namespace: &str) -> Vec<u32> {
        let listing = self.affine.get(namespace).into_iter().flatten();
        let mut numbers: Vec<u32> = listing.chain(&self.of_selected).copied().collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }
}

fn terms(template: &Template) -> impl Iterator<Item = &PodAffinityTerm> {
    let both = [&template.pod_affinity, &template.pod_anti_affinity].into_iter().flatten();
    both.flat_map(|affinity| {
        let preferred = affinity.preferred.iter().map(|weighted| &weighted.term);
        affinity.required.iter().chain(preferred)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::cache::{Cluster, Config, Engine};
    use crate::model::{HOSTNAME, LabelSelector, Pod, PodAffinity, PodAffinityTerm, node, pod};

    /// A pod with labels of its own and, unless `n` is a multiple of 4, a term that lists a namespace, selects
    /// namespaces, or both.
    fn made(n: usize) -> Pod {
        let space = |n: usize| format!("ns{}", n % 3);
        let made = pod(format!("p{n}")).namespace(space(n)).label("app", &(n % 7).to_string());
        let listed = if n % 4 == 2 { Vec::new() } else { vec![space(n / 2).into()] };
        let term = PodAffinityTerm {
            topology_key: HOSTNAME.into(),
            selector: LabelSelector::everything(),
            namespaces: listed.into(),
            namespace_selector: match n % 4 {
                1 => LabelSelector::Nothing,
                _ => LabelSelector::everything(),
            },
        };
        let affinity = PodAffinity { required: Box::new([term]), ..PodAffinity::default() };
        let made = made.on("a");
        if n.is_multiple_of(4) { made.build() } else { made.pod_anti_affinity(affinity).build() }
    }

    fn check(cluster: &Cluster) {
        for namespace in ["ns0", "ns1", "ns2", "ns3"] {
            let all = cluster.all_pod_labels().filter(|(_, of, _)| ***of == *namespace);
            let all: Vec<u32> = all.map(|(number, ..)| number).collect();
            let known: Vec<u32> = cluster.pod_labels_in(namespace).map(|(it, _)| it).collect();
            assert_eq!(known, all, "{namespace}");
            let concerns = |term: &PodAffinityTerm| {
                term.namespaces.iter().any(|of| **of == *namespace)
                    || term.namespace_selector != LabelSelector::Nothing
            };
            let all = cluster
                .affine_templates()
                .filter(|(_, template)| super::terms(template).any(concerns));
            let all: Vec<u32> = all.map(|(number, _)| number).collect();
            let known = cluster.affine_templates_about(namespace);
            let known: Vec<(u32, bool)> = known
                .map(|(it, found)| {
                    (it, cluster.template(it).is_some_and(|of| Arc::ptr_eq(of, found)))
                })
                .collect();
            assert_eq!(known, all.into_iter().map(|it| (it, true)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn numbers_by_namespace_belong_to_their_version() {
        let (mut writer, reader) = Engine::inline(Config::default());
        writer.add_node(node("a").pods(110).build()).unwrap();
        let mut held = Vec::new();
        for n in 0..60 {
            writer.add_pod(made(n)).unwrap();
            if n % 3 == 0 {
                drop(writer.remove_pod(&made(n / 2)));
            }
            check(writer.cluster());
            if n % 10 == 0 {
                writer.publish();
                held.push(reader.snapshot());
            }
        }
        let mut fork = held[2].fork();
        for n in 100..110 {
            fork.add_pod(&made(n)).unwrap();
            check(&fork);
        }
        held.iter().for_each(|version| check(version));
    }
}
