//! The change of a question.

use portolan_k8s::{IntOrPercent, PodController};

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

impl Change {
    /// Whether the change does not remove the controller.
    pub(super) fn keeps(&self, controller: &PodController) -> bool {
        let namespace = self.namespace.as_deref();
        !self.remove.iter().any(|removal| removal.covers(controller))
            || namespace.is_some_and(|of| *of != *controller.namespace)
    }
}
