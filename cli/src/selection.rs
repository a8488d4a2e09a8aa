//! Objects that an option names or selects by their labels, as kubectl does.

use std::sync::Arc;

use portolan::cache::Cluster;
use portolan::model::{LabelLookup, Name, Node, NodeSelectorTerm, Operator, Requirement};

use crate::error::CommandError;
use crate::names::did_you_mean;

use crate::targets;

/// A name, or a label selector in its place: names contain none of the characters that distinguish a selector.
pub(crate) fn is_selector(text: &str) -> bool {
    text.contains(['=', '!', '(', ' '])
}

/// Nodes by name or by their labels.
#[derive(Clone, Debug)]
pub(crate) enum Nodes {
    Named(String),
    Labeled(Selection),
    /// The nodes of a zone.
    Zone(String),
}

impl Nodes {
    /// Parses a name, `node/NAME` or a label selector.
    pub(crate) fn parse(text: &str) -> Result<Nodes, String> {
        match is_selector(text) {
            true => Selection::parse(text).map(Nodes::Labeled),
            false => targets::node(text).map(Nodes::Named),
        }
    }

    pub(crate) fn zone(name: &str) -> Result<Nodes, String> {
        Ok(Nodes::Zone(name.to_owned()))
    }

    /// The names of the nodes. A name is not looked up. O(nodes).
    pub(crate) fn names(&self, cluster: &Cluster) -> Result<Vec<String>, CommandError> {
        let name = |node: &Arc<Node>| node.name.to_string();
        match self {
            Nodes::Named(name) => Ok(vec![name.clone()]),
            Nodes::Labeled(selection) => {
                Ok(selection.nodes(cluster, "--fail-node")?.iter().map(name).collect())
            }
            Nodes::Zone(zone) => {
                let nodes = cluster.nodes().filter_map(|info| info.node().cloned());
                let nodes: Vec<Arc<Node>> = nodes.collect();
                let is_in = |node: &&Arc<Node>| zones(node).any(|of| of == zone);
                let names: Vec<String> = nodes.iter().filter(is_in).map(name).collect();
                if names.is_empty() {
                    let near = did_you_mean(zone, nodes.iter().flat_map(|node| zones(node)));
                    let what = format!("--fail-zone {zone}: no node is in this zone: {near}");
                    return Err(CommandError::Usage(what));
                }
                Ok(names)
            }
        }
    }
}

/// The zone of a node, by the label and by its former name.
pub(crate) fn zones(node: &Node) -> impl Iterator<Item = &str> {
    const LABELS: [&str; 2] =
        ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"];
    LABELS.into_iter().filter_map(|key| node.labels.get(key))
}

/// A label selector of kubectl.
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
    pub(crate) fn nodes(
        &self,
        cluster: &Cluster,
        option: &str,
    ) -> Result<Vec<Arc<Node>>, CommandError> {
        let nodes = cluster.nodes().filter_map(|info| info.node().cloned());
        let nodes: Vec<_> = nodes.filter(|node| self.selects(node)).collect();
        if nodes.is_empty() {
            return Err(CommandError::Usage(format!(
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
