//! The workload of a replay: nodes, and pods with their times.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use portolan::model::{Node, Object, ObjectKind, Pod, Timestamp};

use crate::cluster::{Godel, finished, not_read, skipped};
use crate::error::Failure;
use crate::files::Wrong;
use crate::files::openb::{self, Arrival, Priorities};
use crate::input;
use crate::text::count;

/// A cluster and the pods that arrive.
#[derive(Default)]
pub(crate) struct Workload {
    /// Its name in the result.
    pub(crate) name: String,
    pub(crate) nodes: Vec<Node>,
    /// Other objects, such as namespaces and services.
    pub(crate) objects: Vec<Object>,
    /// Pods placed before the replay.
    pub(crate) placed: Vec<Pod>,
    pub(crate) arrivals: Vec<Arrival>,
    /// Notes about the input for the reader of the result.
    pub(crate) notes: Vec<String>,
}

impl Workload {
    /// Whether a pod may have to wait for another, or be preempted by it.
    pub(super) fn needs_queue(&self) -> bool {
        let pods = || self.placed.iter().chain(self.arrivals.iter().map(|arrival| &arrival.pod));
        let first = pods().next().map(|pod| pod.template.priority);
        pods().any(|pod| Some(pod.template.priority) != first || pod.group().is_some())
    }

    /// The arrival time and the duration of each pod. `load` is a factor on the arrival
    /// rate; it does not change durations.
    pub(super) fn times(&self, load: f64) -> Result<Vec<(Timestamp, Duration)>, Failure> {
        let times = self.arrivals.iter().map(|arrival| {
            let (from, to) = arrival.times.ok_or_else(|| {
                let what = "the pods have no times: use --mode fill, or pass an openb CSV file \
                            with the columns creation_time and deletion_time";
                Failure::Usage(format!("{}: {what}", self.name))
            })?;
            let arrives = Timestamp((from as f64 * 1e9 / load) as i64);
            Ok((arrives, Duration::from_secs(to.saturating_sub(from).max(0).unsigned_abs())))
        });
        times.collect()
    }
}

/// Reads nodes and pods; files that end in .csv or .csv.gz are openb CSV.
pub(super) fn load(
    nodes: &Path,
    pods: &Path,
    priorities: Priorities,
    godel: &Godel,
) -> Result<Workload, Failure> {
    let is_csv = |file: &Path| {
        let name = file.to_string_lossy();
        name.trim_end_matches(".gz").ends_with(".csv")
    };
    let mut workload = Workload {
        name: format!("{} on {}", file_name(pods), file_name(nodes)),
        ..Workload::default()
    };
    for (file, what) in [(nodes, "nodes"), (pods, "pods")] {
        match (is_csv(file), what) {
            (true, "nodes") => workload.nodes = csv(file, openb::nodes)?,
            (true, _) => {
                workload.arrivals = csv(file, |bytes| openb::pods(bytes, priorities))?;
            }
            (false, "pods") if priorities == Priorities::ByQos => {
                let what = "--qos-priorities applies to openb CSV files only: a Kubernetes pod \
                            has a PriorityClass";
                return Err(Failure::File { file: file.to_owned(), what: what.to_owned() });
            }
            (false, what) => kubernetes(file, what, godel, &mut workload)?,
        }
    }
    if workload.nodes.is_empty() && !workload.objects.iter().any(is_nm_node) {
        let what = nothing("node", &workload.notes);
        return Err(Failure::File { file: nodes.to_owned(), what });
    }
    if workload.arrivals.is_empty() && workload.placed.is_empty() {
        let what = nothing("pod", &workload.notes);
        return Err(Failure::File { file: pods.to_owned(), what });
    }
    unique(nodes, pods, &workload)?;
    Ok(workload)
}

fn csv<T>(file: &Path, read: impl Fn(&[u8]) -> Result<T, Wrong>) -> Result<T, Failure> {
    read(&input::read(file)?).map_err(|wrong| Failure::wrong(file, wrong))
}

/// Rejects duplicate nodes and pods.
fn unique(nodes: &Path, file: &Path, workload: &Workload) -> Result<(), Failure> {
    let mut names = HashSet::new();
    for node in &workload.nodes {
        if !names.insert(&*node.name) {
            let what = format!("duplicate node {}: rename or remove one", node.name);
            return Err(Failure::File { file: nodes.to_owned(), what });
        }
    }
    let mut uids = HashSet::new();
    for pod in workload.placed.iter().chain(workload.arrivals.iter().map(|a| &a.pod)) {
        if !uids.insert(pod.uid.clone()) {
            let what = format!(
                "duplicate uid {2} of pod {0}/{1}: give each pod its own uid",
                pod.namespace(),
                pod.name,
                pod.uid
            );
            return Err(Failure::File { file: file.to_owned(), what });
        }
    }
    Ok(())
}

/// The error for an input without objects of a kind, with the notes about the input.
fn nothing(kind: &str, notes: &[String]) -> String {
    let mut text = format!("no {kind}s found: pass a file with {kind}s");
    for note in notes {
        text.push_str("; ");
        text.push_str(note);
    }
    text
}

fn file_name(file: &Path) -> String {
    file.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

fn is_nm_node(object: &Object) -> bool {
    object.kind() == ObjectKind::NmNode
}

fn kubernetes(
    file: &Path,
    what: &str,
    godel: &Godel,
    workload: &mut Workload,
) -> Result<(), Failure> {
    let bytes = input::read(file)?;
    let mut read = portolan_k8s::read(&bytes).map_err(|error| not_read(file, &error))?;
    workload.notes.extend(godel.note(&read));
    if what == "nodes" {
        workload.nodes = std::mem::take(&mut read.nodes);
    } else {
        if read.nodes.is_empty() {
            read.nodes.clone_from(&workload.nodes);
        }
        let expanded = read.expand();
        if expanded > 0 {
            workload.notes.push(format!("created {} from controllers", count(expanded, "pod")));
        }
        for pod in std::mem::take(&mut read.pods) {
            if pod.node_name.is_some() || godel.is_assumed(&pod) {
                workload.placed.push(pod);
            } else {
                workload.arrivals.push(Arrival { pod, times: None });
            }
        }
    }
    workload.objects.append(&mut read.objects);
    if !read.defaulted.is_empty() {
        let first = &read.defaulted[0];
        workload.notes.push(format!(
            "{}: applied {}; the first: {} {} = {}",
            file_name(file),
            count(read.defaulted.len(), "API server default"),
            first.object,
            first.field,
            first.value
        ));
    }
    if read.finished_pods > 0 {
        workload.notes.push(finished(read.finished_pods));
    }
    for (kind, number) in &read.skipped {
        workload.notes.push(skipped(kind, *number));
    }
    Ok(())
}
