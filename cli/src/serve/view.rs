//! An immutable cluster that questions read: a reading of the source, or the state after a session's change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use jiff::Timestamp;
use portolan::cache::{NodeInfo, Snapshot};
use portolan::model::{Name, Node, Pod, Resources, Taint};
use portolan_k8s::Scales;
use serde_json::{Value, json};

use crate::cluster::{Contents, Loaded};
use crate::error::CommandError;
use crate::explain::{Form, Inquiry};
use crate::inspect::audit;
use crate::names::did_you_mean;
use crate::policy::Rules;
use crate::selection::zones;
use crate::what_if::{Asked, Change, Checkpoint, Room};

/// The time for trying changes in an explanation: the default of `portolan explain`.
const TIME: Duration = Duration::from_millis(200);

/// The most copies of a pod that are placed to find out how many fit.
const MOST_COPIES: usize = 10_000;

/// The most kinds of resources with columns of their own: a node may name any number.
const MOST_RESOURCES: usize = 12;

/// The labels by which providers name the pool of a node, and those by which people do.
const POOL_LABELS: [&str; 7] = [
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
    "karpenter.sh/nodepool",
    "node.kubernetes.io/pool",
    "pool",
    "node.kubernetes.io/instance-type",
];

/// A cluster that does not change.
pub(super) struct View {
    /// The number of the reading, from 1.
    pub(super) generation: u64,
    /// The time of the reading.
    pub(super) taken: Timestamp,
    /// The objects of the reading, with the controllers that are left.
    contents: Contents,
    from: Arc<Checkpoint>,
    /// Whether a session has changed the cluster.
    is_changed: bool,
}

impl View {
    /// The cluster of a reading. O(cluster).
    pub(super) fn of(generation: u64, mut loaded: Loaded) -> Result<View, CommandError> {
        loaded.create_claims()?;
        let from = Arc::new(Checkpoint::of(&loaded));
        let (taken, contents) = (Timestamp::now(), loaded.contents);
        Ok(View { generation, taken, contents, from, is_changed: false })
    }

    /// The cluster after its scheduler has placed the pending pods that fit.
    pub(super) fn settled(self, rules: &Rules) -> Result<View, CommandError> {
        let is_wanted = Arc::new(AtomicBool::new(true));
        let after = self.asked(rules, &is_wanted).settled()?;
        Ok(View { from: Arc::new(after), ..self })
    }

    fn cluster(&self) -> &Arc<Snapshot> {
        &self.from.cluster
    }

    /// The numbers of nodes, of pods, and of pending pods among them.
    pub(super) fn counts(&self) -> [usize; 3] {
        let pending = self.from.pending.len();
        [self.cluster().len(), self.cluster().pod_count() + pending, pending]
    }

    fn asked<'q>(&'q self, rules: &'q Rules, is_wanted: &Arc<AtomicBool>) -> Asked<'q> {
        Asked::new(rules, &self.contents, &self.from, is_wanted)
    }

    /// The cluster for an explanation. O(pending).
    fn loaded(&self) -> Loaded {
        Loaded {
            contents: self.contents.clone(),
            cluster: self.cluster().clone(),
            pending: self.from.pending.clone(),
            claims: self.from.claims.clone(),
        }
    }

    fn inquiry<'q>(&self, rules: &'q Rules) -> Inquiry<'q> {
        let (namespace, node) = (None, None);
        Inquiry { rules, namespace, node, time: TIME, form: Form::Json }
    }

    /// The answer with the generation: the text of an object that is not empty.
    fn with_generation(&self, object: &str) -> String {
        let rest = object.strip_prefix('{').unwrap_or(object);
        format!("{{\"generation\":{},{rest}", self.generation)
    }

    /// The numbers of nodes and pods, and the sums of their resources. O(nodes).
    pub(super) fn summary(
        &self,
        source: &str,
        session: Option<&str>,
        error: Option<&str>,
    ) -> Value {
        let columns = Columns::of(self.cluster());
        let mut sums = vec![(0.0, 0.0); columns.len()];
        for node in self.cluster().nodes() {
            let pairs = columns.allocatable(node).into_iter().zip(columns.requested(node));
            for (sum, (allocatable, requested)) in sums.iter_mut().zip(pairs) {
                *sum = (sum.0 + allocatable, sum.1 + requested);
            }
        }
        let resources = columns.json().into_iter().zip(sums);
        let resources = resources.map(|(mut resource, (allocatable, requested))| {
            resource["allocatable"] = json!(allocatable);
            resource["requested"] = json!(requested);
            resource
        });
        let [nodes, pods, pending] = self.counts();
        json!({
            "generation": self.generation,
            "taken": self.taken.to_string(),
            "source": source,
            "session": session,
            "error": error,
            "nodes": nodes,
            "pods": pods,
            "pending": pending,
            "resources": resources.collect::<Vec<_>>(),
            "notes": self.contents.notes,
        })
    }

    /// All nodes with their resources. O(nodes).
    pub(super) fn nodes(&self) -> Value {
        let columns = Columns::of(self.cluster());
        let nodes = self.cluster().nodes().map(|node| columns.node(node));
        json!({
            "generation": self.generation,
            "resources": columns.json(),
            "nodes": nodes.collect::<Vec<_>>(),
        })
    }

    /// A node with its labels and pods, unless no node has this name.
    pub(super) fn node(&self, name: &str) -> Result<Value, String> {
        let columns = Columns::of(self.cluster());
        let info = self.cluster().node(name).ok_or_else(|| {
            let near = did_you_mean(name, self.cluster().nodes().map(|info| &**info.name()));
            format!("node {name} does not exist: {near}")
        })?;
        let scales = Scales::of(self.contents.controllers());
        let pods = info.pods().map(|pod| {
            let template = pod.template();
            let of = scales.scaled(template);
            let of = of.map(|(kind, namespace, name)| format!("{kind} {namespace}/{name}"));
            json!({
                "pod": format!("{}/{}", pod.namespace(), pod.name()),
                "of": of,
                "priority": template.priority,
                "requested": columns.amounts(&template.resources.incoming, 1),
                "is_terminating": pod.deletion_time().is_some(),
                "is_assumed": pod.is_assumed(),
            })
        });
        let mut node = columns.node(info);
        node["generation"] = json!(self.generation);
        node["resources"] = json!(columns.json());
        node["list"] = pods.collect();
        let labels = info.node().into_iter().flat_map(|node| node.labels.iter());
        let labels = labels.map(|(key, value)| (key.to_string(), Value::from(value)));
        node["labels"] = Value::Object(labels.collect());
        Ok(node)
    }

    /// The pending pods by controller and cause, as `portolan explain --pending` prints them.
    pub(super) fn pending(&self, rules: &Rules) -> Result<String, CommandError> {
        Ok(self.with_generation(&self.inquiry(rules).pending(&self.loaded())?))
    }

    /// Why a pod is pending, as `portolan explain` prints it.
    pub(super) fn explain(
        &self,
        pod: &str,
        namespace: Option<&str>,
        rules: &Rules,
    ) -> Result<String, CommandError> {
        let inquiry = Inquiry { namespace, ..self.inquiry(rules) };
        Ok(self.with_generation(&inquiry.named(pod, &self.loaded())?))
    }

    /// Where further copies of a pod fit, by pool and zone, as `portolan what-if --fit-more` counts them.
    pub(super) fn headroom(
        &self,
        like: Pod,
        rules: &Rules,
        is_wanted: &Arc<AtomicBool>,
    ) -> Result<Value, CommandError> {
        let Room { now, nodes, cluster, not_simulated } =
            self.asked(rules, is_wanted).room(like, MOST_COPIES)?;
        let mut by: BTreeMap<Place<'_>, (BTreeSet<&Name>, usize)> = BTreeMap::new();
        for name in &nodes {
            let node = cluster.node(name).and_then(|info| info.node());
            let of = node.map_or((None, None), |node| (pool(node), zones(node).next()));
            let (nodes, copies) = by.entry(of).or_default();
            nodes.insert(name);
            *copies += 1;
        }
        let by = by.into_iter().map(|((pool, zone), (nodes, copies))| {
            json!({ "pool": pool, "zone": zone, "nodes": nodes.len(), "count": copies })
        });
        Ok(json!({
            "generation": self.generation,
            "count": nodes.len(),
            "now": now,
            "is_complete": nodes.len() < MOST_COPIES,
            "by": by.collect::<Vec<_>>(),
            "not_simulated": not_simulated,
        }))
    }

    /// The pod of this namespace and name, as if it had no node.
    pub(super) fn pod(&self, asked: &str) -> Result<Pod, CommandError> {
        let (namespace, name) = asked.split_once('/').unwrap_or(("default", asked));
        let found = self.loaded().pod(namespace, name);
        let found = found.map(|pod| Pod { node_name: None, ..pod });
        found.ok_or_else(|| {
            let what = format!("pod {namespace}/{name} does not exist: pass NAMESPACE/NAME");
            CommandError::Usage(what)
        })
    }

    /// Simulates a change, as `portolan what-if` does. Returns the answer, and the cluster after the change.
    pub(super) fn what_if(
        &self,
        change: &Change,
        rules: &Rules,
        is_wanted: &Arc<AtomicBool>,
    ) -> Result<(Value, View), CommandError> {
        let (mut answer, after, contents) = self.asked(rules, is_wanted).change(change)?;
        let View { generation, taken, .. } = *self;
        answer["generation"] = json!(generation);
        Ok((answer, View { generation, taken, contents, from: after.into(), is_changed: true }))
    }

    /// The findings, as `portolan audit` prints them. A session's cluster has no objects of its own to be examined.
    pub(super) fn audit(&self, rules: &Rules) -> Result<String, CommandError> {
        if self.is_changed {
            let what = "the audit examines the cluster as it was read, not that of a session";
            return Err(CommandError::Usage(what.to_owned()));
        }
        let contents = self.contents.as_read();
        Ok(self.with_generation(&audit::examined(contents, &rules.config, &rules.godel)?))
    }
}

/// The pool and the zone of a node.
type Place<'c> = (Option<&'c str>, Option<&'c str>);

/// The resources that nodes have, each with a column in the lists of nodes and pods.
struct Columns {
    /// The names of the scalar resources.
    scalars: Vec<Name>,
}

const GIB: f64 = (1_u64 << 30) as f64;

impl Columns {
    /// The resources of the nodes. O(nodes).
    fn of(cluster: &Snapshot) -> Columns {
        let mut scalars: BTreeMap<Name, usize> = BTreeMap::new();
        for node in cluster.nodes() {
            for (name, amount) in node.allocatable().scalars.iter() {
                if amount > 0 && !name.starts_with("hugepages-") {
                    *scalars.entry(name.clone()).or_default() += 1;
                }
            }
        }
        let mut scalars: Vec<(Name, usize)> = scalars.into_iter().collect();
        scalars.sort_by_key(|(_, nodes)| std::cmp::Reverse(*nodes));
        scalars.truncate(MOST_RESOURCES - 3);
        Columns { scalars: scalars.into_iter().map(|(name, _)| name).collect() }
    }

    fn len(&self) -> usize {
        3 + self.scalars.len()
    }

    fn json(&self) -> Vec<Value> {
        let fixed = [("cpu", "cores"), ("memory", "GiB"), ("pods", "")];
        let scalars = self.scalars.iter().map(|name| (&**name, ""));
        let columns = fixed.into_iter().chain(scalars);
        columns.map(|(name, unit)| json!({ "name": name, "unit": unit })).collect()
    }

    /// The amounts in the units of the columns.
    fn amounts(&self, of: &Resources, pods: i64) -> Vec<f64> {
        let fixed = [of.cpu.0 as f64 / 1000.0, of.memory.0 as f64 / GIB, pods as f64];
        let scalars = self.scalars.iter().map(|name| of.scalars.get(name).unwrap_or(0) as f64);
        fixed.into_iter().chain(scalars).collect()
    }

    fn allocatable(&self, node: NodeInfo<'_>) -> Vec<f64> {
        let pods = node.node().map_or(0, |node| node.allowed_pods);
        self.amounts(&node.allocatable(), pods)
    }

    fn requested(&self, node: NodeInfo<'_>) -> Vec<f64> {
        let pods = i64::try_from(node.pod_count()).unwrap_or(i64::MAX);
        self.amounts(&node.requested(), pods)
    }

    fn node(&self, info: NodeInfo<'_>) -> Value {
        let node = info.node();
        let taints = node.into_iter().flat_map(|node| node.taints.iter()).map(taint);
        json!({
            "name": &**info.name(),
            "zone": node.and_then(|node| zones(node).next()),
            "pool": node.and_then(|node| pool(node)),
            "is_cordoned": node.is_some_and(|node| node.unschedulable),
            "taints": taints.collect::<Vec<_>>(),
            "pods": info.pod_count(),
            "allocatable": self.allocatable(info),
            "requested": self.requested(info),
        })
    }
}

fn taint(taint: &Taint) -> String {
    let Taint { key, value, effect } = taint;
    let equals = if value.is_empty() { "" } else { "=" };
    format!("{key}{equals}{value}:{effect:?}")
}

fn pool(node: &Node) -> Option<&str> {
    POOL_LABELS.into_iter().find_map(|key| node.labels.get(key))
}
