//! Extenders: services outside the process that filter and score nodes, choose victims and bind pods (`extender.go`,
//! and the places of schedule_one.go and preemption.go that call them).
//!
//! All profiles of a scheduler share the extenders of its [`Handle`]. They are called after the plugins: filters one
//! after the other, each with the nodes that the previous ones passed; scores all at once. Ignorable extenders come
//! last. Calls block the deciding thread. Commit checks run in the writer and call no extender.
//!
//! Deviations from kube-scheduler: a node that an extender passes must be one that it was sent, even if the extender
//! answers with whole nodes. Totals of scores saturate, where Go's wrap around. Nodes that were not examined because
//! enough others were feasible count in the error of a pod and may be candidates for preemption.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::thread;

use crate::model::{Name, Pod, Uid};
use crate::snapshot::{Cluster, NodeInfo};

use super::filters::Filters;
use super::preemption::Candidate;
use super::{Bind, BinderError, Code, Cycle, FitError, Handle, MAX_NODE_SCORE, PREEMPTION, Status};

/// The name under which extenders are recorded among the plugins that rejected a pod. Every event retries such a pod,
/// because an extender registers for none.
pub const EXTENDER: &str = "Extender";

/// The highest score that an extender is expected to give to a node (`MaxExtenderPriority`). Scores are scaled from
/// this range to that of plugins.
pub const MAX_EXTENDER_SCORE: i64 = 10;

/// A service that takes part in decisions (k8s.io/kube-scheduler/framework `Extender`). Each of its parts is optional:
/// by default it filters, scores, preempts and binds nothing.
///
/// Methods may block, and may be called from several threads at once. A panic of `filter`, `prioritize`, `preempt`
/// or `bind` counts as a failure, and one of `is_interested` as interest. The other methods must not panic, and must
/// return the same value each time.
///
/// ```
/// use std::sync::Arc;
/// use portolan::cache::{Config, Engine, NodeInfo};
/// use portolan::model::{Pod, node, pod};
/// use portolan::plugin::{Extender, ExtenderError, ExtenderFilter, Handle};
/// use portolan::{Algorithm, AlgorithmConfig, Framework};
///
/// struct Licenses;
///
/// impl Extender for Licenses {
///     fn name(&self) -> &str { "http://licenses.example.com" }
///
///     fn is_filter(&self) -> bool { true }
///
///     fn filter(
///         &self, _: &Pod, nodes: &[NodeInfo<'_>],
///     ) -> Result<ExtenderFilter, ExtenderError> {
///         let mut answer = ExtenderFilter::default();
///         for node in nodes {
///             match &**node.name() {
///                 "licensed" => answer.passed.push(node.name().clone()),
///                 _ => answer.failed.push((node.name().clone(), "no license".to_owned())),
///             }
///         }
///         Ok(answer)
///     }
/// }
///
/// let (mut writer, reader) = Engine::inline(Config::default());
/// for name in ["licensed", "other"] {
///     writer.add_node(node(name).cpu(1_000).memory(1 << 30).build())?;
/// }
/// writer.publish();
///
/// let handle = Handle::default().with_extenders([Arc::new(Licenses) as Arc<dyn Extender>]);
/// let framework = Framework::default_profile_with(&handle);
/// let mut scheduler = Algorithm::new(framework, AlgorithmConfig::default(), None);
/// let decision = scheduler.schedule(&reader.snapshot(), &pod("a").cpu(10).build())?;
/// assert_eq!(&*decision.node, "licensed");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Extender: Send + Sync {
    /// Returns the name, which kube-scheduler's messages contain: the URL prefix of its configuration.
    fn name(&self) -> &str;

    /// Returns whether the extender is called for this pod at all.
    fn is_interested(&self, _pod: &Pod) -> bool {
        true
    }

    /// Returns whether decisions continue without the extender if it fails.
    fn is_ignorable(&self) -> bool {
        false
    }

    /// Returns whether the extender filters nodes.
    fn is_filter(&self) -> bool {
        false
    }

    /// Filters nodes that passed all plugins.
    ///
    /// # Errors
    ///
    /// The extender failed. Unless it is ignorable, the attempt to schedule the pod fails.
    fn filter(&self, _pod: &Pod, nodes: &[NodeInfo<'_>]) -> Result<ExtenderFilter, ExtenderError> {
        let passed = nodes.iter().map(|node| node.name().clone()).collect();
        Ok(ExtenderFilter { passed, ..ExtenderFilter::default() })
    }

    /// Returns the weight of the extender's scores, or `None` if it does not score nodes.
    fn weight(&self) -> Option<i64> {
        None
    }

    /// Scores nodes from 0 to [`MAX_EXTENDER_SCORE`]. Scores outside this range are used unchanged. Nodes that are
    /// missing score 0.
    ///
    /// # Errors
    ///
    /// The extender failed. Its scores are then left out.
    fn prioritize(
        &self,
        _pod: &Pod,
        _nodes: &[NodeInfo<'_>],
    ) -> Result<Vec<(Name, i64)>, ExtenderError> {
        Ok(Vec::new())
    }

    /// Returns whether the extender takes part in preemption.
    fn supports_preemption(&self) -> bool {
        false
    }

    /// Chooses among the candidates for preemption. The answer may leave nodes out, and may name other victims on them.
    ///
    /// # Errors
    ///
    /// The extender failed. Unless it is ignorable, no pod is preempted.
    fn preempt(
        &self,
        _pod: &Pod,
        candidates: &[Candidate],
    ) -> Result<Vec<ExtenderVictims>, ExtenderError> {
        Ok(candidates.iter().map(ExtenderVictims::of).collect())
    }

    /// Returns whether the extender binds the pods that it is interested in, in place of the Bind plugins.
    fn is_binder(&self) -> bool {
        false
    }

    /// Binds a pod to a node.
    ///
    /// # Errors
    ///
    /// Returns why the pod was not bound, or that the outcome is unknown. If the pod was not bound and the extender is
    /// ignorable, the next one or the Bind plugins bind the pod.
    fn bind(&self, _pod: &Pod, _node: &Name) -> Result<(), BinderError> {
        Err("unexpected empty bindVerb in extender".into())
    }
}

/// An extender failed. The text is its message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ExtenderError(String);

impl From<String> for ExtenderError {
    fn from(why: String) -> ExtenderError {
        ExtenderError(why)
    }
}

impl From<&str> for ExtenderError {
    fn from(why: &str) -> ExtenderError {
        ExtenderError(why.to_owned())
    }
}

/// Which nodes an extender passed. Nodes that are in none of the lists are rejected without a reason, and preemption is
/// not tried on them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExtenderFilter {
    /// The nodes that passed.
    pub passed: Vec<Name>,
    /// The rejected nodes on which preemption may help, each with its reason (`FailedNodes`).
    pub failed: Vec<(Name, String)>,
    /// The rejected nodes on which preemption does not help, each with its reason (`FailedAndUnresolvableNodes`). Takes
    /// precedence over `failed`.
    pub unresolvable: Vec<(Name, String)>,
}

/// The victims that an extender chose on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtenderVictims {
    /// The node.
    pub node: Name,
    /// The pods to evict, the most important first.
    pub pods: Vec<Uid>,
    /// The number of pods whose eviction violates a disruption budget.
    pub violations: usize,
}

impl ExtenderVictims {
    /// Returns the victims of a candidate.
    #[must_use]
    pub fn of(candidate: &Candidate) -> ExtenderVictims {
        ExtenderVictims {
            node: candidate.node.clone(),
            pods: candidate.victims.iter().map(|pod| pod.uid.clone()).collect(),
            violations: candidate.violations,
        }
    }
}

/// The statuses that extenders gave to nodes in one cycle.
#[derive(Default)]
pub(super) struct ExtenderVerdicts {
    statuses: BTreeMap<Name, Status>,
    /// Whether an extender rejected nodes of the last stage of the search.
    rejected: bool,
}

impl ExtenderVerdicts {
    /// Returns the status of a node, if an extender gave it one.
    pub(super) fn status(&self, node: &Name) -> Option<&Status> {
        self.statuses.get(node)
    }

    /// Replaces the bits of nodes that have a status in lanes by chunk number: sets those whose nodes may pass without
    /// some of their pods, and clears the others.
    pub(super) fn replace(&self, cluster: &Cluster, lanes: &mut [u64]) {
        for (name, status) in &self.statuses {
            let Some(node) = cluster.node(name) else { continue };
            let Some((id, _, _)) = cluster.chunk_of(node) else { continue };
            let (_, lane) = node.place();
            match status.code {
                Code::Unschedulable => lanes[id as usize] |= 1 << lane,
                _ => lanes[id as usize] &= !(1 << lane),
            }
        }
    }

    /// Completes the filters' error of a pod that fits on no node. The status of an extender replaces that of the
    /// plugins.
    pub(super) fn fit_error(&self, mut error: FitError, filters: &Filters<'_>) -> FitError {
        for (name, status) in &self.statuses {
            let node = filters.cycle.cluster.node(name);
            for reason in node
                .and_then(|node| filters.filter_with_nominated(node))
                .into_iter()
                .flat_map(|s| s.reasons)
            {
                if let Some(nodes) = error.reasons.get_mut(&reason) {
                    *nodes = nodes.saturating_sub(1);
                }
            }
            for reason in &status.reasons {
                *error.reasons.entry(reason.clone()).or_default() += 1;
            }
        }
        error.reasons.retain(|_, nodes| *nodes > 0);
        if self.rejected {
            error.unschedulable_plugins.insert(EXTENDER);
        }
        error
    }

    /// Returns the nodes that all extenders pass, in the given order (`findNodesThatPassExtenders`).
    ///
    /// # Errors
    ///
    /// Returns an error if an extender fails that is not ignorable.
    pub(super) fn filter<'a>(
        &mut self,
        handle: &Handle,
        pod: &Pod,
        mut nodes: Vec<NodeInfo<'a>>,
    ) -> Result<Vec<NodeInfo<'a>>, Status> {
        let count = nodes.len();
        for extender in handle.extenders().iter().filter(|extender| extender.is_filter()) {
            if nodes.is_empty() {
                break;
            }
            if !is_interested(handle, &**extender, pod) {
                continue;
            }
            let answer = guard(handle, "Filter", || extender.filter(pod, &nodes))
                .and_then(|answer| Ok((passed(&**extender, &nodes, &answer.passed)?, answer)));
            let (passed, answer) = match answer {
                Ok(answer) => answer,
                Err(_error) if extender.is_ignorable() => {
                    trace_event!(DEBUG, extender = extender.name(), error = %_error, "skipped");
                    continue;
                }
                Err(error) => return Err(error),
            };
            let codes = [
                (Code::Unschedulable, answer.failed),
                (Code::UnschedulableAndUnresolvable, answer.unresolvable),
            ];
            for (code, failed) in codes {
                let statuses =
                    failed.into_iter().map(|(name, reason)| (name, Status::new(code, "", reason)));
                self.statuses.extend(statuses);
            }
            nodes = passed;
        }
        self.rejected |= nodes.len() != count;
        Ok(nodes)
    }

    /// Returns whether all extenders pass a node that is tried before the others. If an extender fails, the node does
    /// not pass.
    pub(super) fn passes(&mut self, handle: &Handle, pod: &Pod, node: NodeInfo<'_>) -> bool {
        let before = self.rejected;
        let passed = self.filter(handle, pod, vec![node]);
        self.rejected = before;
        passed.is_ok_and(|nodes| !nodes.is_empty())
    }
}

/// Returns the nodes that the extender passed, in their order.
fn passed<'a>(
    extender: &dyn Extender,
    nodes: &[NodeInfo<'a>],
    names: &[Name],
) -> Result<Vec<NodeInfo<'a>>, Status> {
    let sent: BTreeSet<&Name> = nodes.iter().map(|node| node.name()).collect();
    if let Some(other) = names.iter().find(|name| !sent.contains(name)) {
        let why = format!(
            "extender {:?} claims a filtered node {other:?} which is not found in the input node list",
            extender.name()
        );
        return Err(Status::error("", why));
    }
    let names: BTreeSet<&Name> = names.iter().collect();
    Ok(nodes.iter().copied().filter(|node| names.contains(node.name())).collect())
}

/// Returns the sum of all extenders' scores for each node that has one, weighted and scaled to the range of plugins
/// (`prioritizeNodes`). The extenders are called at once, each on its own thread if there are several.
pub(super) fn scores(handle: &Handle, pod: &Pod, nodes: &[NodeInfo<'_>]) -> HashMap<Name, i64> {
    let asked: Vec<(&dyn Extender, i64)> = handle
        .extenders()
        .iter()
        .filter_map(|extender| Some((&**extender, extender.weight()?)))
        .filter(|(extender, _)| is_interested(handle, *extender, pod))
        .collect();
    let ask = &|extender: &dyn Extender| {
        guard(handle, "Score", || extender.prioritize(pod, nodes)).unwrap_or_else(|_error| {
            trace_event!(DEBUG, extender = extender.name(), error = %_error, "scores left out");
            Vec::new()
        })
    };
    let answers: Vec<Vec<(Name, i64)>> = match &asked[..] {
        [] => return HashMap::new(),
        [(extender, _)] => vec![ask(*extender)],
        several => thread::scope(|scope| {
            let spawn =
                |extender| thread::Builder::new().spawn_scoped(scope, move || ask(extender));
            let calls: Vec<_> =
                several.iter().map(|(extender, _)| (*extender, spawn(*extender))).collect();
            let answers = calls.into_iter().map(|(extender, call)| match call {
                // Panics of extenders are caught by the guard.
                Ok(call) => call.join().unwrap_or_default(),
                // The system cannot start another thread.
                Err(_) => ask(extender),
            });
            answers.collect()
        }),
    };
    let mut sums = HashMap::new();
    for ((_, weight), scores) in asked.iter().zip(answers) {
        for (node, score) in scores {
            let scaled =
                score.saturating_mul(*weight).saturating_mul(MAX_NODE_SCORE / MAX_EXTENDER_SCORE);
            let sum: &mut i64 = sums.entry(node).or_default();
            *sum = sum.saturating_add(scaled);
        }
    }
    sums
}

/// Returns whether an extender takes part in preemption for this pod.
pub(super) fn supports_preemption(handle: &Handle, pod: &Pod) -> bool {
    let mut extenders = handle.extenders().iter();
    extenders
        .any(|extender| extender.supports_preemption() && is_interested(handle, &**extender, pod))
}

/// Returns the candidates that the extenders keep (`callExtenders`), in the given order. Nodes that only an extender
/// named come last.
///
/// # Errors
///
/// Returns an error if an extender that is not ignorable fails, or names a node or a pod that does not exist.
pub(super) fn preempt(
    handle: &Handle,
    cycle: Cycle<'_>,
    mut candidates: Vec<Candidate>,
) -> Result<Vec<Candidate>, Status> {
    for extender in handle.extenders().iter().filter(|extender| extender.supports_preemption()) {
        if candidates.is_empty() {
            break;
        }
        if !is_interested(handle, &**extender, cycle.pod) {
            continue;
        }
        let answer = guard(handle, "PostFilter", || extender.preempt(cycle.pod, &candidates));
        let found = answer.and_then(|answer| {
            answer.iter().map(|victims| candidate(&**extender, cycle.cluster, victims)).collect()
        });
        let mut found: Vec<Candidate> = match found {
            Ok(found) => found,
            Err(_error) if extender.is_ignorable() => {
                trace_event!(DEBUG, extender = extender.name(), error = %_error, "skipped");
                continue;
            }
            Err(error) => return Err(error),
        };
        if extender.is_ignorable() {
            found.retain(|candidate| !candidate.victims.is_empty());
        }
        if let Some(empty) = found.iter().find(|candidate| candidate.victims.is_empty()) {
            return Err(Status::error(PREEMPTION, no_victim(&empty.node)));
        }
        let order: HashMap<&Name, usize> =
            candidates.iter().enumerate().map(|(at, candidate)| (&candidate.node, at)).collect();
        let last = order.len();
        found.sort_by_cached_key(|candidate| {
            (order.get(&candidate.node).copied().unwrap_or(last), candidate.node.clone())
        });
        candidates = found;
    }
    Ok(candidates)
}

/// Returns kube-scheduler's message about a candidate without victims.
pub(super) fn no_victim(node: &Name) -> String {
    format!("expected at least one victim pod on node {node:?}")
}

/// Looks the victims of an extender up (`convertToVictims`).
fn candidate(
    extender: &dyn Extender,
    cluster: &Cluster,
    victims: &ExtenderVictims,
) -> Result<Candidate, Status> {
    let ExtenderVictims { node: name, pods, violations } = victims;
    let missing = || Status::error("", format!("nodeinfo not found for node name {name:?}"));
    let node = cluster.node(name).ok_or_else(missing)?;
    let victims = pods.iter().map(|uid| {
        let found = node.pods().find(|pod| pod.uid() == *uid);
        found.map(|pod| pod.to_pod()).ok_or_else(|| {
            let why = format!(
                "extender: {} claims to preempt pod (UID: &{{{uid}}}) on node: {name}, but the pod is not \
                 found on that node",
                extender.name()
            );
            Status::error("", why)
        })
    });
    let victims = victims.collect::<Result<_, Status>>()?;
    Ok(Candidate { node: name.clone(), victims, violations: *violations })
}

/// Binds the pod through the first extender that binds it, or returns `None` if none does (`extendersBinding`).
pub(super) fn bind(handle: &Handle, pod: &Pod, node: &Name) -> Option<Result<Bind, Status>> {
    for extender in handle.extenders().iter().filter(|extender| extender.is_binder()) {
        if !is_interested(handle, &**extender, pod) {
            continue;
        }
        let panics = handle.panics();
        let bound = panics.guard(EXTENDER, "Bind", || Bind::of("", extender.bind(pod, node)));
        // If the outcome is unknown, the pod may be bound, so no other component must bind it. A refusal applies to
        // every binder.
        let is_over = matches!(bound, Ok(Bind::Bound | Bind::Unknown(_) | Bind::Refused(_)));
        if extender.is_ignorable() && !is_over {
            trace_event!(DEBUG, extender = extender.name(), error = ?bound, "skipped in Bind");
            continue;
        }
        return Some(bound);
    }
    None
}

/// Returns whether [`bind`] would ask an extender to bind the pod.
pub(super) fn is_bound_by_any(handle: &Handle, pod: &Pod) -> bool {
    let mut binders = handle.extenders().iter().filter(|extender| extender.is_binder());
    binders.any(|extender| is_interested(handle, &**extender, pod))
}

/// Returns whether the extender is interested in the pod. One that panics counts as interested.
fn is_interested(handle: &Handle, extender: &dyn Extender, pod: &Pod) -> bool {
    handle.panics().guard_or(EXTENDER, "IsInterested", true, || extender.is_interested(pod))
}

/// Calls an extender. A failure or a panic becomes an error status.
fn guard<T>(
    handle: &Handle,
    step: &'static str,
    ask: impl FnOnce() -> Result<T, ExtenderError>,
) -> Result<T, Status> {
    handle.panics().guard(EXTENDER, step, || ask().map_err(|why| Status::error("", why.0)))
}

/// Returns extenders in the order in which they are called: ignorable ones last.
pub(super) fn in_order(
    extenders: impl IntoIterator<Item = Arc<dyn Extender>>,
) -> Arc<[Arc<dyn Extender>]> {
    let mut extenders: Vec<Arc<dyn Extender>> = extenders.into_iter().collect();
    extenders.sort_by_key(|extender| extender.is_ignorable());
    extenders.into()
}
