//! Rows of tables for identical pods.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use portolan::model::{Name, Pod};

use super::difference::Row;
use crate::text::count;

/// The key of identical pods: their controller, or their template if they have none.
#[derive(PartialEq, Eq, Hash)]
enum Like<'p> {
    Owner(&'p str, &'p str, &'p str),
    Template(usize),
}

impl Like<'_> {
    fn of(pod: &Pod) -> Like<'_> {
        match pod.template.controller() {
            Some(owner) => Like::Owner(pod.namespace(), &owner.kind, &owner.name),
            None => Like::Template(Arc::as_ptr(&pod.template) as usize),
        }
    }
}

/// Identical pods with the same fate, in the order of the first of each.
fn alike<'p, T, F: Clone + Eq + std::hash::Hash>(
    items: &'p [T],
    pod: impl Fn(&'p T) -> &'p Pod,
    fate: impl Fn(&'p T) -> F,
) -> Vec<(Vec<&'p T>, F)> {
    let mut rows: Vec<(Vec<&T>, F)> = Vec::new();
    let mut at: HashMap<(Like<'_>, F), usize> = HashMap::new();
    for item in items {
        let fate = fate(item);
        match at.entry((Like::of(pod(item)), fate.clone())) {
            Entry::Occupied(row) => rows[*row.get()].0.push(item),
            Entry::Vacant(row) => {
                row.insert(rows.len());
                rows.push((vec![item], fate));
            }
        }
    }
    rows
}

/// The name of identical pods: that of the first, and the number of the others.
fn together(first: &Pod, pods: usize) -> String {
    let others = pods - 1;
    match (others, Like::of(first)) {
        (0, _) => first.key().to_string(),
        (_, Like::Owner(_, kind, name)) => {
            format!("{} and {others} more of {kind} {name}", first.key())
        }
        (_, Like::Template(_)) => format!("{} and {others} more like it", first.key()),
    }
}

/// A row for all identical pods with the same fate.
pub(super) fn group<'p, T>(
    items: &'p [T],
    pod: impl Fn(&'p T) -> &'p Pod + Copy,
    fate: impl Fn(&'p T) -> String,
) -> Vec<String> {
    let rows = alike(items, pod, fate).into_iter();
    rows.map(|(items, fate)| format!("{}{fate}", together(pod(items[0]), items.len()))).collect()
}

/// Maximum number of nodes that are named in a row.
const NODES: usize = 4;

/// A row for all identical pods from the same node, with the numbers of pods on their new nodes and a mark.
pub(super) fn placements(placed: &[Row], mark: impl Fn(&Row) -> &'static str) -> Vec<String> {
    let from = |row: &Row| match &row.from {
        Some(from) => (format!(": {from} → "), mark(row)),
        None => (" → ".to_owned(), mark(row)),
    };
    let rows = alike(placed, |row| &row.pod, from).into_iter().map(|(items, (from, mark))| {
        let mut nodes: Vec<(&Name, usize)> = Vec::new();
        let mut at: HashMap<&Name, usize> = HashMap::new();
        for node in items.iter().filter_map(|row| row.to.as_ref()) {
            let at = *at.entry(node).or_insert(nodes.len());
            if at == nodes.len() {
                nodes.push((node, 0));
            }
            nodes[at].1 += 1;
        }
        let several = nodes.len() > 1;
        let named = nodes.iter().take(NODES).map(|(node, pods)| match several {
            true => format!("{node} ({pods})"),
            false => node.to_string(),
        });
        let mut named: Vec<String> = named.collect();
        if nodes.len() > NODES {
            named.push(count(nodes.len() - NODES, "more node"));
        }
        format!("{}{from}{}{mark}", together(&items[0].pod, items.len()), named.join(", "))
    });
    rows.collect()
}
