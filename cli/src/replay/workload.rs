//! The workload of a replay: nodes, and pods with their times.

#[cfg(feature = "cluster")]
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use portolan::cache::{Config, Engine, Snapshot};
use portolan::model::{DEFAULT_SCHEDULER, Node, Object, ObjectKind, Pod, Timestamp};

#[cfg(feature = "cluster")]
use crate::cluster::Contents;
use crate::cluster::{Godel, Rest, duplicate_node, duplicate_pod, reader};
use crate::creation::Creation;
use crate::error::CommandError;
use crate::files::Wrong;
use crate::files::openb::{self, Arrival, Priorities};
use crate::input;
use crate::intake::Intake;
#[cfg(feature = "cluster")]
use crate::pod_list::PodList;
#[cfg(feature = "cluster")]
use crate::replacement::is_of_node;
use crate::resource_claims::ClaimController;
use crate::text::count;

#[cfg(feature = "cluster")]
use super::WorkloadOptions;
use super::{Mode, Source};

/// The version of a cluster that a workload begins with, instead of objects.
pub(crate) struct Existing {
    pub(crate) cluster: Arc<Snapshot>,
    pub(crate) claims: Option<ClaimController>,
}

/// The pods of a cluster that are scheduled.
#[cfg(feature = "cluster")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Pods {
    /// Those without a node.
    #[default]
    Pending,
    /// Those as well that a scheduler has placed. They leave their nodes first.
    All,
}

/// When the pods of a workload arrive.
#[cfg(feature = "cluster")]
pub(crate) struct Span {
    /// The date of the first arrival, if the workload has dates.
    pub(crate) began: Option<jiff::Timestamp>,
    /// The seconds from the first arrival to the last one in timed mode, and otherwise the number of arrivals.
    pub(crate) length: f64,
}

/// A cluster and the pods that arrive.
#[derive(Default)]
pub(crate) struct Workload {
    /// Its name in the result.
    pub(crate) name: String,
    pub(crate) nodes: Vec<Node>,
    /// Other objects, such as namespaces and services.
    pub(crate) objects: Vec<Object>,
    /// The objects that an engine does not have.
    pub(crate) rest: Rest,
    /// Pods placed before the replay.
    pub(crate) placed: Vec<Pod>,
    pub(crate) arrivals: Vec<Arrival>,
    /// Whether the times of pods are dates; those of openb files begin anywhere.
    pub(super) is_dated: bool,
    /// The order and the admission of the pods that controllers create.
    pub(super) creation: Creation,
    /// Notes about the input for the reader of the result.
    pub(crate) notes: Vec<String>,
    /// The objects that were read and ignored.
    pub(crate) intake: Intake,
    /// If it is set, the cluster exists already: the nodes and the placed pods are those of this version.
    pub(crate) existing: Option<Existing>,
}

impl Workload {
    /// The workload of a cluster. Pods of nodes, pods that are being deleted, and pods with resource claims stay on
    /// their nodes. Others arrive in the order in which a scheduler's queue has them. O(pods).
    #[cfg(feature = "cluster")]
    pub(crate) fn of(
        existing: Existing,
        pending: &PodList,
        creation: Creation,
        pods: Pods,
    ) -> Workload {
        let (mut placed, mut arriving) = (Vec::new(), Vec::new());
        for info in existing.cluster.nodes().flat_map(|node| node.pods()) {
            let pod = info.to_pod();
            let stays = pods == Pods::Pending
                || is_of_node(&pod.template)
                || pod.deletion_time.is_some()
                || !pod.template.resource_claims.is_empty();
            if stays {
                placed.push(pod);
            } else {
                arriving.push(Pod { node_name: None, nominated_node_name: None, ..pod });
            }
        }
        arriving.extend(pending.iter().cloned());
        arriving.sort_by_cached_key(|pod| {
            (
                Reverse(pod.template.priority),
                pod.creation_time.map(|at| at.0),
                pod.key().to_string(),
            )
        });
        let nodes = existing.cluster.nodes().filter_map(|node| node.node());
        Workload {
            name: "the cluster".to_owned(),
            nodes: nodes.map(|node| Node::clone(node)).collect(),
            placed,
            arrivals: arriving.into_iter().map(|pod| Arrival { pod, times: None }).collect(),
            creation,
            existing: Some(existing),
            ..Workload::default()
        }
    }

    /// Adds the pods of a cluster, those on nodes only, and pods that arrive, some of which may be on nodes already.
    fn add_pods(&mut self, of_cluster: Vec<Pod>, arriving: Vec<Pod>, source: &Source) {
        let is_placed = |pod: &Pod| pod.node_name.is_some() || source.godel.is_assumed(pod);
        let known: HashSet<_> = arriving.iter().map(|pod| pod.uid.clone()).collect();
        let mut pending = 0;
        for pod in of_cluster {
            match is_placed(&pod) {
                // The pod is in both files.
                _ if known.contains(&pod.uid) => {
                    self.intake.unread("Pod", 1, "also in the file of --pods");
                }
                true => self.placed.push(pod),
                false => pending += 1,
            }
        }
        self.intake.unread("Pod", pending, "pending, but not in the file of --pods");
        for pod in arriving {
            if is_placed(&pod) {
                self.placed.push(pod);
            } else {
                let times = times(&pod);
                // In a trace, the time of deletion is the pod's end, not its state.
                let is_trace = source.options.mode == Mode::Timed && times.is_some();
                let deletion_time = pod.deletion_time.filter(|_| !is_trace);
                self.arrivals.push(Arrival { pod: Pod { deletion_time, ..pod }, times });
            }
        }
        for pod in &self.placed {
            if let Some(node) = pod.placed_on() {
                self.creation.runs(pod, node);
            }
        }
    }

    /// Whether a pod may have to wait for another, be preempted by it, or change more than
    /// its node when it is bound. Without such pods, a pod that was rejected once is rejected
    /// as long as pods only arrive, and the queue makes the same decisions as a plain replay.
    pub(super) fn needs_queue(&self) -> bool {
        let pods = || self.placed.iter().chain(self.arrivals.iter().map(|arrival| &arrival.pod));
        let first = pods().next().map(|pod| pod.template.priority);
        self.creation.is_needed()
            || pods().any(|pod| Some(pod.template.priority) != first || pod.group().is_some())
            || self.arrivals.iter().any(|arrival| depends_on_others(&arrival.pod))
    }

    /// The controller of the pods' claims, if there are any.
    pub(super) fn claims(&self) -> Option<ClaimController> {
        if let Some(existing) = &self.existing {
            return existing.claims.clone();
        }
        let arrivals = self.arrivals.iter().map(|arrival| &arrival.pod);
        ClaimController::of(&self.rest.devices, self.placed.iter().chain(arrivals), &[])
    }

    /// The engine before the objects and the placed pods are in it, if they are not those of a version.
    /// Questions about the cluster look pods up by name: `is_asked` makes that fast, and placements a tenth slower.
    pub(super) fn engine(
        &self,
        godel: &Godel,
        claims: Option<&ClaimController>,
        is_asked: bool,
    ) -> Engine {
        match &self.existing {
            Some(existing) => Engine::at(&existing.cluster, godel.config(None)),
            None => Engine::shared(Config { pod_names: is_asked, ..godel.config(claims) }),
        }
    }

    /// A note about pods that name other schedulers than the only one.
    pub(super) fn foreign(&self, scheduler: &str) -> Option<String> {
        let names = self.arrivals.iter().filter_map(|it| it.pod.template.scheduler_name.as_deref());
        let foreign = names.filter(|name| *name != scheduler && *name != DEFAULT_SCHEDULER);
        let foreign: Vec<&str> = foreign.collect();
        let first = foreign.first()?;
        Some(format!(
            "{scheduler} schedules {} for other schedulers (the first: {first})",
            count(foreign.len(), "pod")
        ))
    }

    /// The date of the first arrival, if the pods have dates and arrive as fast as recorded.
    pub(super) fn began(&self, first: Option<Timestamp>, load: f64) -> Option<jiff::Timestamp> {
        let first = first.filter(|_| self.is_dated && load == 1.0)?;
        jiff::Timestamp::from_nanosecond(first.0.into()).ok()
    }

    /// When the pods arrive.
    #[cfg(feature = "cluster")]
    pub(crate) fn span(&self, source: &Source) -> Result<Span, CommandError> {
        if source.options.mode == Mode::Fill {
            return Ok(Span { began: None, length: self.arrivals.len() as f64 });
        }
        let load = source.options.load.unwrap_or(1.0);
        let arrivals: Vec<Timestamp> = self.times(load)?.into_iter().map(|(at, _)| at).collect();
        let (first, last) = (arrivals.iter().min().copied(), arrivals.iter().max());
        let length = first.zip(last).map_or(0.0, |(first, last)| last.since(first).as_secs_f64());
        Ok(Span { began: self.began(first, load), length })
    }

    /// The objects that an engine does not have.
    #[cfg(feature = "cluster")]
    pub(crate) fn contents(&mut self, source: &Source) -> Contents {
        let WorkloadOptions { nodes, pods, .. } = &source.options;
        let mut files: Vec<PathBuf> = nodes.iter().chain(pods).cloned().collect();
        files.dedup();
        let (notes, intake) = (self.notes.clone(), std::mem::take(&mut self.intake));
        Contents::of(self.rest.clone(), files, source.limit, notes, intake)
    }

    /// The arrival time and the duration of each pod. `load` is a factor on the arrival
    /// rate; it does not change durations.
    pub(super) fn times(&self, load: f64) -> Result<Vec<(Timestamp, Duration)>, CommandError> {
        let times = self.arrivals.iter().map(|arrival| {
            let (from, to) = arrival.times.ok_or_else(|| {
                let pod = &arrival.pod;
                let what = format!(
                    "pod {}/{} has no creation time: use --mode fill, or pass pods with \
                     creationTimestamp, or an openb CSV file with the columns creation_time and \
                     deletion_time",
                    pod.namespace(),
                    pod.name
                );
                CommandError::Usage(format!("{}: {what}", self.name))
            })?;
            let arrives = Timestamp((from as f64 * 1e9 / load) as i64);
            Ok((arrives, Duration::from_secs(to.saturating_sub(from).max(0).unsigned_abs())))
        });
        times.collect()
    }
}

/// Whether the pod may fit later because of other pods, or changes volumes or claims.
fn depends_on_others(pod: &Pod) -> bool {
    let of = &pod.template;
    of.pod_affinity.is_some()
        || of.pod_anti_affinity.is_some()
        || !of.topology_spread.is_empty()
        || !of.volumes.is_empty()
        || !of.resource_claims.is_empty()
        || !of.scheduling_gates.is_empty()
        || of.godel.is_some()
        || pod.nominated_node_name.is_some()
        || pod.deletion_time.is_some()
}

/// The arrival and the end of a Kubernetes pod in seconds: when it was created, and when it
/// was or will be deleted. A pod without a time of deletion does not end.
fn times(pod: &Pod) -> Option<(i64, i64)> {
    let seconds = |time: Timestamp| time.0.div_euclid(1_000_000_000);
    let end = pod.deletion_time.map_or(i64::MAX, seconds);
    pod.creation_time.map(|created| (seconds(created), end))
}

/// Reads nodes and pods; files that end in .csv, .csv.gz or .csv.zst are openb CSV.
pub(super) fn load(
    nodes: &Path,
    pods: &Path,
    priorities: Priorities,
    source: &Source,
) -> Result<Workload, CommandError> {
    let mut workload = Workload {
        name: format!("{} on {}", file_name(pods), file_name(nodes)),
        is_dated: !input::is_csv(pods),
        ..Workload::default()
    };
    let mut kubernetes = Kubernetes { nodes: None, pods: None };
    for (file, what) in [(nodes, "nodes"), (pods, "pods")] {
        match (input::is_csv(file), what) {
            (true, "nodes") => workload.nodes = csv(file, openb::nodes)?,
            (true, _) => {
                workload.arrivals = csv(file, |bytes| openb::pods(bytes, priorities))?;
            }
            (false, "pods") if priorities == Priorities::ByQos => {
                let what = "--qos-priorities applies to openb CSV files only: a Kubernetes pod \
                            has a PriorityClass";
                return Err(CommandError::File { file: file.to_owned(), what: what.to_owned() });
            }
            (false, "nodes") => kubernetes.nodes = Some(file),
            (false, _) => kubernetes.pods = Some(file),
        }
    }
    if kubernetes.nodes.is_some() || kubernetes.pods.is_some() {
        kubernetes.read(source, &mut workload)?;
    }
    if workload.nodes.is_empty() && !workload.objects.iter().any(is_nm_node) {
        return Err(nothing("node", nodes, &workload.intake));
    }
    if workload.arrivals.is_empty() && workload.placed.is_empty() {
        return Err(nothing("pod", pods, &workload.intake));
    }
    unique(nodes, pods, &workload)?;
    Ok(workload)
}

fn csv<T>(file: &Path, read: impl Fn(&[u8]) -> Result<T, Wrong>) -> Result<T, CommandError> {
    read(&input::read(file)?).map_err(|wrong| CommandError::wrong(file, wrong))
}

/// Rejects duplicate nodes and pods.
fn unique(nodes: &Path, pods: &Path, workload: &Workload) -> Result<(), CommandError> {
    let files = if nodes == pods { vec![nodes] } else { vec![nodes, pods] };
    let mut names = HashSet::new();
    for node in &workload.nodes {
        if !names.insert(&*node.name) {
            return Err(duplicate_node(&files, &node.name));
        }
    }
    let mut uids = HashMap::new();
    for pod in workload.placed.iter().chain(workload.arrivals.iter().map(|a| &a.pod)) {
        let Some(known) = uids.insert(&pod.uid, pod) else { continue };
        if known.key() == pod.key() {
            return Err(duplicate_pod(&files, pod));
        }
        let what = format!(
            "pods {} and {} have the same uid {}: give each pod its own uid",
            known.key(),
            pod.key(),
            pod.uid
        );
        return Err(CommandError::File { file: pods.to_owned(), what });
    }
    Ok(())
}

/// The error for an input without objects of a kind, with those that were read and ignored.
fn nothing(kind: &str, file: &Path, intake: &Intake) -> CommandError {
    intake.print_warnings();
    let mut what = format!("no {kind}s found: pass a file with {kind}s");
    let line = intake.line();
    if !line.is_empty() {
        what.push_str("; ");
        what.push_str(&line);
    }
    CommandError::File { file: file.to_owned(), what }
}

/// The name of a file without its folder. A path that ends in no name, such as `.`, is its own name.
fn file_name(file: &Path) -> String {
    let name = file.file_name().unwrap_or(file.as_os_str());
    name.to_string_lossy().into_owned()
}

fn is_nm_node(object: &Object) -> bool {
    object.kind() == ObjectKind::NmNode
}

/// The objects of the files that are not CSV.
struct Kubernetes<'p> {
    nodes: Option<&'p Path>,
    pods: Option<&'p Path>,
}

impl Kubernetes<'_> {
    /// Reads the files together, so that objects of one may refer to objects of the other.
    fn read(self, source: &Source, workload: &mut Workload) -> Result<(), CommandError> {
        let strict = source.strict;
        let read = |file: Option<&Path>, workload: &mut Workload| {
            let files: Vec<PathBuf> = file.into_iter().map(Path::to_owned).collect();
            reader(&files, strict, &mut workload.intake)
        };
        let is_same = self.nodes.is_some() && self.nodes == self.pods;
        let of_nodes = read(self.nodes, workload)?;
        let of_pods = read(self.pods.filter(|_| !is_same), workload)?;
        let [mut cluster, mut added] = portolan_k8s::Reader::finish_together([of_nodes, of_pods]);
        for objects in [&cluster, &added] {
            workload.intake.count(objects);
            workload.notes.extend(source.godel.note(objects));
        }
        strict.check(&workload.intake)?;
        for (file, objects) in [(self.nodes, &cluster), (self.pods, &added)] {
            workload.notes.extend(file.and_then(|file| defaults(file, objects)));
        }
        if is_same {
            // One file has both the nodes and the pods.
            added.pods.append(&mut cluster.pods);
            added.controllers.append(&mut cluster.controllers);
        }
        match self.nodes {
            Some(_) => {
                let why = "nodes are those of --nodes";
                workload.intake.unread("Node", added.nodes.len(), why);
                added.nodes.clear();
            }
            // The nodes are CSV, for which daemon sets create pods, too.
            None => cluster.nodes.clone_from(&workload.nodes),
        }
        let expanded = source.limit.expand(0, &mut added, &cluster)?;
        cluster.admission.extend(&added.admission);
        let admission = std::mem::take(&mut cluster.admission);
        let created = std::mem::take(&mut added.created);
        workload.creation = Creation::new(&added.controllers, admission, created);
        if expanded > 0 {
            workload.notes.push(format!("created {} from controllers", count(expanded, "pod")));
        }
        if self.nodes.is_some() {
            workload.nodes = std::mem::take(&mut cluster.nodes);
        }
        workload.add_pods(std::mem::take(&mut cluster.pods), added.pods, source);
        workload.objects.append(&mut cluster.objects);
        workload.objects.append(&mut added.objects);
        cluster.devices.extend(added.devices);
        cluster.facts.merge(added.facts);
        cluster.controllers.append(&mut added.controllers);
        cluster.budget_limits.append(&mut added.budget_limits);
        workload.rest = Rest::take(&mut cluster);
        Ok(())
    }
}

/// A note about the defaults that were filled in.
fn defaults(file: &Path, objects: &portolan_k8s::Objects) -> Option<String> {
    let first = objects.defaulted.first()?;
    Some(format!(
        "{}: applied {}; the first: {} {} = {}",
        file_name(file),
        count(objects.defaulted.len(), "API server default"),
        first.object,
        first.field,
        first.value
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_has_a_name_in_the_result() {
        assert_eq!(file_name(Path::new("dump/pods.yaml")), "pods.yaml");
        assert_eq!(file_name(Path::new("dump/")), "dump");
        assert_eq!(file_name(Path::new(".")), ".");
        assert_eq!(file_name(Path::new("..")), "..");
    }
}
