//! The change of a question: the options of the program, which are also the fields of a JSON object.

use clap::Parser;
use portolan_k8s::IntOrPercent;
use serde_json::{Map, Value};

use super::nodes::Copies;
use super::{each, upgrade};
use crate::arguments;
use crate::selection::{Nodes, Selection};
use crate::targets::{self, Removal, Scale};

/// A change of the nodes and controllers of a cluster, and what is asked about it.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Change {
    /// Nodes to cordon and drain, as `kubectl drain` does.
    #[arg(long, value_parser = targets::node, num_args = 1.., value_name = "NODE")]
    pub(super) drain: Vec<String>,
    /// Cordon and drain the nodes with these labels instead, such as pool=a, as `kubectl drain
    /// --selector` does.
    #[arg(long, value_parser = Selection::parse, conflicts_with = "drain")]
    pub(super) selector: Option<Selection>,
    /// Accepted for compatibility with kubectl: pods of daemon sets always stay on drained nodes.
    #[arg(long)]
    pub(super) ignore_daemonsets: bool,
    /// Nodes that fail at the same moment and do not return, by name or by a label selector such as pool=a; budgets do
    /// not apply.
    ///
    /// Pods are replaced after the time for which they tolerate the failure. Pods without a
    /// controller are lost, which --force accepts.
    #[arg(long, value_parser = Nodes::parse, num_args = 1.., value_name = "NODE|SELECTOR")]
    pub(super) fail_node: Vec<Nodes>,
    /// Zones whose nodes all fail, as with --fail-node.
    ///
    /// The zone of a node is its label topology.kubernetes.io/zone or failure-domain.beta.kubernetes.io/zone.
    #[arg(long, value_parser = Nodes::zone, num_args = 1.., value_name = "ZONE")]
    pub(super) fail_zone: Vec<Nodes>,
    /// Let every node or zone fail in turn, each on its own, and list the worst failures.
    ///
    /// The failures begin with the cluster at the end of the other changes.
    #[arg(long, value_enum, conflicts_with_all = ["fail_node", "fail_zone"], value_name = "DOMAIN")]
    pub(super) each: Option<each::Domain>,
    /// Delete controllers with their pods, or single pods, such as deployment/web, pod/web-0, or pods/app=web for the
    /// pods with this label.
    ///
    /// A pod that has a controller is recreated. Controllers are selected by their own labels.
    #[arg(long, value_parser = Removal::parse, num_args = 1.., value_name = "KIND/NAME|KIND/SELECTOR")]
    pub(super) remove: Vec<Removal>,
    /// Change the number of pods of a controller, such as deployment/web=5.
    ///
    /// For a Job, this is the number of pods that run at once.
    #[arg(long, value_parser = Scale::parse, num_args = 1.., value_name = "KIND/NAME=N")]
    pub(super) scale: Vec<Scale>,
    /// Namespace of the objects of --remove and --scale, if several namespaces have an object of this name.
    #[arg(long, short, value_name = "NAMESPACE")]
    pub(super) namespace: Option<String>,
    /// Upgrade the nodes with these labels in steps, such as pool=a, or all.
    #[arg(long, value_parser = Selection::parse, value_name = "SELECTOR")]
    pub(super) upgrade: Option<Selection>,
    /// Nodes per step that are replaced by new nodes, as a number or a percentage.
    #[arg(long, value_parser = upgrade::amount, default_value = "1", requires = "upgrade", value_name = "N|N%")]
    pub(super) max_surge: IntOrPercent,
    /// Nodes per step that are upgraded in place, as a number or a percentage.
    #[arg(long, value_parser = upgrade::amount, default_value = "0", requires = "upgrade", value_name = "N|N%")]
    pub(super) max_unavailable: IntOrPercent,
    /// Also drain pods without a controller, and accept that they are lost with failed nodes.
    #[arg(long)]
    pub(super) force: bool,
    /// Also drain pods with local data, which would be lost.
    #[arg(long)]
    pub(super) delete_emptydir_data: bool,
    /// Add COUNT copies of a node in a file or in the cluster: 3xnode.yaml adds three copies of the node in node.yaml,
    /// and 3xn1 three copies of n1.
    ///
    /// The letter x separates the two, and COUNT is required, even for one copy: 1xnode.yaml. A file is read like one
    /// of --cluster; its first node is copied, with the CSINode of the same name. The copies of the node n are named
    /// n-1, n-2 and so on, and are not cordoned.
    #[arg(long, value_parser = Copies::parse, num_args = 1.., value_name = "COUNTxNODE")]
    pub(super) add: Vec<Copies>,
    /// Find a small set of nodes on which all pods fit, and the nodes that can be removed.
    ///
    /// The scheduler decides where pods go, and its constraints and the disruption budgets are respected. A lower bound
    /// is printed beside the number of nodes that remain.
    #[arg(long)]
    pub(super) consolidate: bool,
    /// Time limit of the search of --consolidate, in seconds.
    #[arg(
        long,
        alias = "budget",
        default_value_t = 10.0,
        requires = "consolidate",
        value_parser = arguments::seconds,
        value_name = "SECONDS",
    )]
    pub(super) time_limit: f64,
}

/// The most nodes that a JSON object adds, and the most pods of a controller that it scales.
const MOST: usize = 10_000;

impl Change {
    /// Parses a JSON object. Its fields have the names of the options with underscores, and the same values: a text, or
    /// a list of texts, or `true` for an option without a value. Names of files are not accepted.
    pub(crate) fn from_json(fields: &Map<String, Value>) -> Result<Change, String> {
        #[derive(Parser)]
        #[command(no_binary_name = true, disable_help_flag = true)]
        struct Fields {
            #[command(flatten)]
            change: Change,
        }
        let mut arguments = Vec::new();
        for (name, value) in fields {
            let is_name = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
            if name.is_empty() || !name.bytes().all(is_name) {
                return Err(format!("{name:?} is not a field of a change"));
            }
            let option = name.replace('_', "-");
            let is_list = value.is_array();
            let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
            for value in values {
                match value {
                    Value::Null | Value::Bool(false) if !is_list => {}
                    Value::Bool(true) if !is_list => arguments.push(format!("--{option}")),
                    Value::String(text) => arguments.push(format!("--{option}={text}")),
                    Value::Number(number) => arguments.push(format!("--{option}={number}")),
                    _ => return Err(format!("{name} must be a text or a list of texts")),
                }
            }
        }
        let parsed = Fields::try_parse_from(arguments);
        let mut change = parsed.map_err(|error| first_paragraph(&error.to_string()))?.change;
        change.add.iter_mut().for_each(Copies::refuse_files);
        let added: usize = change.add.iter().map(Copies::count).sum();
        let scaled: usize = change.scale.iter().map(|scale| scale.replicas).sum();
        if added > MOST || scaled > MOST {
            return Err(format!("add and scale are limited to {MOST} nodes and pods"));
        }
        Ok(change)
    }
}

/// The message of an error of the parser, without the usage of a command.
fn first_paragraph(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    text.split("\n\n").next().unwrap_or(text).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(fields: Value) -> Result<Change, String> {
        Change::from_json(fields.as_object().expect("an object"))
    }

    #[test]
    fn the_fields_are_the_options() {
        let change = parse(json!({
            "drain": ["n1", "node/n2"], "add": "3xn1", "scale": ["deployment/web=5"],
            "force": true, "delete_emptydir_data": false, "max_surge": 2, "upgrade": "pool=a",
        }));
        let change = change.expect("valid");
        assert_eq!(change.drain, ["n1", "n2"]);
        assert_eq!((change.add.len(), change.scale[0].replicas), (1, 5));
        assert!(change.force && !change.delete_emptydir_data);
    }

    #[test]
    fn other_fields_and_values_are_refused() {
        for (fields, what) in [
            (json!({ "cluster": "/etc/passwd" }), "unexpected argument '--cluster'"),
            (json!({ "pods": ["/etc/passwd"] }), "unexpected argument '--pods'"),
            (json!({ "drain=n1 --x": true }), "is not a field"),
            (json!({ "drain": {} }), "must be a text"),
            (json!({ "drain": [true] }), "must be a text"),
            (json!({ "scale": ["web"] }), "invalid value 'web'"),
            (json!({ "add": ["20000xn1"] }), "limited to 10000"),
            (json!({ "scale": ["deployment/web=20000"] }), "limited to 10000"),
            (json!({ "drain": ["n1"], "selector": "a=b" }), "cannot be used with"),
            (json!({ "help": true }), "unexpected argument"),
        ] {
            let refused = parse(fields).expect_err("refused");
            assert!(refused.contains(what), "{refused}");
            assert!(!refused.contains("Usage"), "{refused}");
        }
    }
}
