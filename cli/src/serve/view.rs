//! An immutable cluster that questions read: a reading of the source, or the state after a session's change.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use portolan::cache::{Engine, Snapshot};
use portolan::model::Pod;
use portolan_dra::Devices;
use portolan_k8s::{BudgetLimit, PodFacts};
use serde_json::{Value, json};

use crate::cluster::{Contents, Godel, Input, Loaded};
use crate::columns::{Columns, pool};
use crate::compare::Contest;
use crate::error::CommandError;
use crate::explain::{Form, Inquiry};
use crate::inspect::audit;
use crate::intake::Intake;
use crate::names::did_you_mean;
use crate::pod_list::PodList;
use crate::policy::Rules;
use crate::resource_claims::ClaimController;
use crate::selection::zones;
use crate::what_if::{Asked, Change, Checkpoint, Room};

use super::play::Moment;

/// The time for trying changes in an explanation: the default of `portolan explain`.
const TIME: Duration = Duration::from_millis(200);

/// The most copies of a pod that are placed to find out how many fit.
const MOST_COPIES: usize = 10_000;

/// A reading of the source. It does not change, and shares all that is equal with the readings before it.
#[derive(Clone)]
pub(super) struct Reading {
    /// The number of the reading, from 1.
    pub(super) generation: u64,
    /// The time of the reading.
    pub(super) taken: Timestamp,
    /// The moment of a replay.
    moment: Option<Moment>,
    loaded: Loaded,
}

impl Reading {
    pub(super) fn of(generation: u64, mut loaded: Loaded) -> Result<Reading, CommandError> {
        loaded.create_claims()?;
        Ok(Reading { generation, taken: Timestamp::now(), moment: None, loaded })
    }

    /// The same reading as the state of a replay at this moment.
    pub(super) fn at_moment(self, moment: Moment) -> Reading {
        Reading { moment: Some(moment), ..self }
    }

    pub(super) fn cluster(&self) -> &Arc<Snapshot> {
        &self.loaded.cluster
    }

    pub(super) fn pending(&self) -> &PodList {
        &self.loaded.pending
    }

    pub(super) fn budget_limits(&self) -> &[BudgetLimit] {
        self.loaded.contents.budget_limits()
    }

    /// The numbers of nodes, of pods, and of pending pods among them.
    pub(super) fn counts(&self) -> [usize; 3] {
        let pending = self.pending().len();
        [self.cluster().len(), self.cluster().pod_count() + pending, pending]
    }

    pub(super) fn facts(&self) -> &Arc<PodFacts> {
        self.loaded.contents.shared_facts()
    }

    pub(super) fn state(&self) -> State {
        State { cluster: self.cluster().clone(), facts: self.facts().clone() }
    }

    /// The reading in two parts.
    pub(super) fn into_parts(self) -> (Uncoupled, State) {
        let counts = self.counts();
        let Reading { generation, taken, moment, loaded } = self;
        let Loaded { mut contents, cluster, pending, claims } = loaded;
        let state = State { cluster, facts: contents.replace_facts(Arc::default()) };
        (Uncoupled { generation, taken, moment, counts, contents, pending, claims }, state)
    }
}

/// The parts of a reading that have data of all pods.
#[derive(Clone)]
pub(super) struct State {
    pub(super) cluster: Arc<Snapshot>,
    pub(super) facts: Arc<PodFacts>,
}

impl State {
    /// A state without objects, and with a store of devices if this one has such a store.
    pub(super) fn empty(&self) -> State {
        let config = Godel::default().config(None);
        let config = match self.cluster.store::<Devices>() {
            Ok(_) => config.with_store(Devices::default()),
            Err(_) => config,
        };
        State { cluster: Engine::inline(config).1.snapshot(), facts: Arc::default() }
    }
}

/// A reading without its state.
#[derive(Clone)]
pub(super) struct Uncoupled {
    pub(super) generation: u64,
    pub(super) taken: Timestamp,
    moment: Option<Moment>,
    counts: [usize; 3],
    contents: Contents,
    pending: PodList,
    claims: Option<ClaimController>,
}

impl Uncoupled {
    pub(super) fn with(self, State { cluster, facts }: State) -> Reading {
        let Uncoupled { generation, taken, moment, mut contents, pending, claims, .. } = self;
        contents.replace_facts(facts);
        Reading { generation, taken, moment, loaded: Loaded { contents, cluster, pending, claims } }
    }

    /// The reading as an item of lists.
    pub(super) fn json(&self) -> Value {
        let [nodes, pods, pending] = self.counts;
        json!({
            "generation": self.generation,
            "taken": self.taken.to_string(),
            "replay": self.moment.map(|moment| moment.json()),
            "nodes": nodes,
            "pods": pods,
            "pending": pending,
        })
    }
}

/// A cluster that questions read.
pub(super) struct View {
    pub(super) reading: Reading,
    /// Where simulations begin, made for the first of them.
    from: OnceLock<Arc<Checkpoint>>,
}

impl View {
    pub(super) fn of(reading: Reading) -> View {
        View { reading, from: OnceLock::new() }
    }

    /// The cluster after a change.
    pub(super) fn after(&self, change: &Change, from: Checkpoint) -> View {
        self.at(from, change.contents(self.contents()))
    }

    /// The cluster at a point of a simulation that began with this one.
    fn at(&self, from: Checkpoint, contents: Contents) -> View {
        let Checkpoint { cluster, pending, claims, .. } = &from;
        let (cluster, pending, claims) = (cluster.clone(), pending.clone(), claims.clone());
        let loaded = Loaded { contents, cluster, pending, claims };
        let reading = Reading { loaded, ..self.reading };
        View { reading, from: OnceLock::from(Arc::new(from)) }
    }

    /// The cluster after its scheduler has placed the pending pods that fit.
    pub(super) fn settled(self, rules: &Rules) -> Result<Reading, CommandError> {
        let is_wanted = Arc::new(AtomicBool::new(true));
        let after = self.asked(rules, &is_wanted).settled()?;
        Ok(self.at(after, self.reading.loaded.contents.clone()).reading)
    }

    fn generation(&self) -> u64 {
        self.reading.generation
    }

    fn contents(&self) -> &Contents {
        &self.reading.loaded.contents
    }

    fn cluster(&self) -> &Arc<Snapshot> {
        self.reading.cluster()
    }

    fn asked<'q>(&'q self, rules: &'q Rules, is_wanted: &Arc<AtomicBool>) -> Asked<'q> {
        Asked::new(rules, self.contents(), self.checkpoint(), is_wanted)
    }

    fn checkpoint(&self) -> &Arc<Checkpoint> {
        self.from.get_or_init(|| Arc::new(Checkpoint::of(&self.reading.loaded)))
    }

    fn inquiry<'q>(&self, rules: &'q Rules) -> Inquiry<'q> {
        let (namespace, node) = (None, None);
        Inquiry { rules, namespace, node, time: TIME, form: Form::Json, records: false }
    }

    /// The answer with the generation: the text of an object that is not empty.
    fn with_generation(&self, object: &str) -> String {
        let rest = object.strip_prefix('{').unwrap_or(object);
        format!("{{\"generation\":{},{rest}", self.generation())
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
        let [nodes, pods, pending] = self.reading.counts();
        json!({
            "generation": self.generation(),
            "taken": self.reading.taken.to_string(),
            "replay": self.reading.moment.map(|moment| moment.json()),
            "source": source,
            "session": session,
            "error": error,
            "nodes": nodes,
            "pods": pods,
            "pending": pending,
            "resources": resources.collect::<Vec<_>>(),
            "notes": self.contents().notes,
        })
    }

    /// All nodes with their resources. O(nodes).
    pub(super) fn nodes(&self) -> Value {
        let mut nodes = Columns::of(self.cluster()).nodes(self.cluster());
        nodes["generation"] = json!(self.generation());
        nodes
    }

    /// A node with its labels and pods, unless no node has this name.
    pub(super) fn node(&self, name: &str) -> Result<Value, String> {
        let columns = Columns::of(self.cluster());
        let info = self.cluster().node(name).ok_or_else(|| {
            let near = did_you_mean(name, self.cluster().nodes().map(|info| &**info.name()));
            format!("node {name} does not exist: {near}")
        })?;
        let scales = self.contents().scales();
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
        let mut node = json!(columns.node(info));
        node["generation"] = json!(self.generation());
        node["resources"] = json!(columns.json());
        node["list"] = pods.collect();
        let labels = info.node().into_iter().flat_map(|node| node.labels.iter());
        let labels = labels.map(|(key, value)| (key.to_string(), Value::from(value)));
        node["labels"] = Value::Object(labels.collect());
        Ok(node)
    }

    /// The pending pods by controller and cause, as `portolan explain --pending` prints them.
    pub(super) fn pending(&self, rules: &Rules) -> Result<String, CommandError> {
        Ok(self.with_generation(&self.inquiry(rules).pending(&self.reading.loaded)?.text))
    }

    /// Why a pod is pending, as `portolan explain` prints it.
    pub(super) fn explain(
        &self,
        pod: &str,
        namespace: Option<&str>,
        rules: &Rules,
    ) -> Result<String, CommandError> {
        let inquiry = Inquiry { namespace, ..self.inquiry(rules) };
        Ok(self.with_generation(&inquiry.named(pod, &self.reading.loaded)?.text))
    }

    /// Where further copies of a pod fit, by pool and zone, as `portolan what-if --fit-more` counts them.
    pub(super) fn headroom(
        &self,
        like: Pod,
        rules: &Rules,
        is_wanted: &Arc<AtomicBool>,
    ) -> Result<Value, CommandError> {
        let asked = self.asked(rules, is_wanted);
        let Room { now, nodes, cluster, not_simulated } = asked.room(like.clone(), MOST_COPIES)?;
        let mut by: BTreeMap<Place<'_>, (usize, usize)> = BTreeMap::new();
        for (name, copies) in nodes.iter().filter(|(_, copies)| **copies > 0) {
            let node = cluster.node(name).and_then(|info| info.node());
            let of = node.map_or((None, None), |node| (pool(node), zones(node).next()));
            let (nodes, of_place) = by.entry(of).or_default();
            *nodes += 1;
            *of_place += copies;
        }
        let count: usize = nodes.values().sum();
        // A simulation ends with the last of these copies, and finds none if none is asked for.
        let is_complete = count != MOST_COPIES || !asked.room(like, 0)?.nodes.is_empty();
        let by = by.into_iter().map(|((pool, zone), (nodes, copies))| {
            json!({ "pool": pool, "zone": zone, "nodes": nodes, "count": copies })
        });
        Ok(json!({
            "generation": self.generation(),
            "count": count,
            "now": now,
            "is_complete": is_complete,
            "by": by.collect::<Vec<_>>(),
            "not_simulated": not_simulated,
        }))
    }

    /// The pod of this namespace and name, as if it had no node.
    pub(super) fn pod(&self, asked: &str) -> Result<Pod, CommandError> {
        let (namespace, name) = asked.split_once('/').unwrap_or(("default", asked));
        let found = self.reading.loaded.pod(namespace, name);
        let found = found.map(|pod| Pod { node_name: None, ..pod });
        found.ok_or_else(|| {
            let what = format!("pod {namespace}/{name} does not exist: pass NAMESPACE/NAME");
            CommandError::Usage(what)
        })
    }

    /// Simulates a change, as `portolan what-if` does. Returns the answer, and what [`View::after`] needs. The failures of
    /// `each` are passed to `tell` when they are known.
    pub(super) fn what_if(
        &self,
        change: &Change,
        rules: &Rules,
        is_wanted: &Arc<AtomicBool>,
        tell: &(dyn Fn(Value) + Sync),
    ) -> Result<(Value, Checkpoint), CommandError> {
        let (mut answer, after) = self.asked(rules, is_wanted).change(change, tell)?;
        answer["generation"] = json!(self.generation());
        Ok((answer, after))
    }

    /// Schedules the pods under several configurations, as `portolan compare` does.
    pub(super) fn compare(
        &self,
        contest: &Contest,
        rules: &Rules,
        is_wanted: &Arc<AtomicBool>,
    ) -> Result<Value, CommandError> {
        let mut workload = self.checkpoint().workload(contest.pods);
        workload.intake = Intake::clone(&self.contents().intake);
        let mut answer = contest.answer(workload, rules, is_wanted)?;
        answer["generation"] = json!(self.generation());
        Ok(answer)
    }

    /// The findings about the input of this view, as `portolan audit` prints them. Without an input, the objects of the
    /// view are examined.
    pub(super) fn audit(
        &self,
        input: Option<&Input>,
        rules: &Rules,
    ) -> Result<String, CommandError> {
        let input = input.map_or_else(|| self.reading.loaded.to_input().as_read(), Input::as_read);
        let examined = audit::examined(input, &rules.config, &rules.godel)?;
        Ok(self.with_generation(&examined))
    }
}

/// The pool and the zone of a node.
type Place<'c> = (Option<&'c str>, Option<&'c str>);
