//! An immutable cluster that questions read: a reading of the source, or the state after a session's change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use jiff::Timestamp;
use portolan::cache::Snapshot;
use portolan::model::{Name, Pod};
use portolan_k8s::Scales;
use serde_json::{Value, json};

use crate::cluster::{Contents, Loaded};
use crate::columns::{Columns, pool};
use crate::compare::Contest;
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
        Inquiry { rules, namespace, node, time: TIME, form: Form::Json, records: false }
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
        let mut sums = vec![(0.0, 0.0); columns.json().len()];
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
        let mut nodes = Columns::of(self.cluster()).nodes(self.cluster());
        nodes["generation"] = json!(self.generation);
        nodes
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
        Ok(self.with_generation(&self.inquiry(rules).pending(&self.loaded())?.text))
    }

    /// Why a pod is pending, as `portolan explain` prints it.
    pub(super) fn explain(
        &self,
        pod: &str,
        namespace: Option<&str>,
        rules: &Rules,
    ) -> Result<String, CommandError> {
        let inquiry = Inquiry { namespace, ..self.inquiry(rules) };
        Ok(self.with_generation(&inquiry.named(pod, &self.loaded())?.text))
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

    /// Schedules the pods under several configurations, as `portolan compare` does.
    pub(super) fn compare(
        &self,
        contest: &Contest,
        rules: &Rules,
        is_wanted: &Arc<AtomicBool>,
    ) -> Result<Value, CommandError> {
        let mut workload = self.from.workload(contest.pods);
        workload.intake.clone_from(&self.contents.intake);
        let mut answer = contest.answer(&workload, rules, is_wanted)?;
        answer["generation"] = json!(self.generation);
        Ok(answer)
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
