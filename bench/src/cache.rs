//! `portolan-bench cache`: the cost of cache operations on `Pod` and `Node` values.
//!
//! Pods have five labels, and thirty pods share a template. Every twentieth pod has a claim
//! and its own template. Pods are built in batches outside the timed spans.

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use comfy_table::Table;
use hdrhistogram::Histogram;
use portolan::cache::{Applied, CommitPolicy, Config, Engine, Event, Reader, Relist, Writer};
use portolan::model::{EventError, Labels, Name, Node, NodeBuilder, Pod, Template, Uid, node, pod};
use serde_json::{Value, json};

use portolan_cli::CommandError;
use portolan_cli::Random;
use portolan_cli::live_bytes;
use portolan_cli::{Output, histogram, print};
use portolan_cli::{plain, right};

/// Measure adding, assuming, publishing and reading with one writer.
///
/// docs/benchmarks.md defines the rows.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Number of nodes, each with 4 cpu, 32 Gi and 110 pods, in three zones.
    #[arg(long, value_name = "COUNT", default_value_t = 5000)]
    nodes: usize,
    /// Number of pods placed on each node before the measurements.
    #[arg(long, value_name = "COUNT", default_value_t = 30)]
    pods_per_node: usize,
    /// Seed for uids and for the choice of nodes.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

const PUBLISH_EACH: usize = 100;
const SAMPLES: usize = 20_000;
const MOST_NODES: usize = 10_000_000;
const MOST_PODS: usize = 500_000_000;

/// Creates pods: number `i` is on node `i % nodes`.
struct Pods<'a> {
    names: &'a [Name],
    random: Random,
    template: Option<Arc<Template>>,
}

impl Pods<'_> {
    fn make(&mut self, i: usize) -> Arc<Pod> {
        let deployment = i / 30;
        if i.is_multiple_of(30) {
            self.template = None;
        }
        let template = if i.is_multiple_of(20) {
            template(deployment, Some(i))
        } else {
            self.template.get_or_insert_with(|| template(deployment, None)).clone()
        };
        let name = format!("app-{deployment}-7d4b9c6f5d-{:05x}", i & 0xf_ffff);
        self.with(template, &name, i % self.names.len())
    }

    fn uid(&mut self) -> Uid {
        self.random.uid()
    }

    fn with(&mut self, template: Arc<Template>, name: &str, node: usize) -> Arc<Pod> {
        Arc::new(Pod {
            uid: self.uid(),
            name: name.into(),
            template,
            resource_version: 1,
            node_name: Some(self.names[node].clone()),
            nominated_node_name: None,
            creation_time: None,
            start_time: None,
            deletion_time: None,
            claim_statuses: None,
            finished: false,
        })
    }

    fn somewhere(&mut self, template: &Arc<Template>, name: &str) -> Arc<Pod> {
        let node = self.random.below(self.names.len().max(1) as u64) as usize;
        self.with(template.clone(), name, node)
    }
}

fn template(deployment: usize, claim: Option<usize>) -> Arc<Template> {
    let pod = pod("template").cpu(100).memory(500 << 20).spec(|spec| {
        spec.labels = Labels::new([
            ("app", format!("app-{deployment}")),
            ("app.kubernetes.io/component", "web".to_owned()),
            ("pod-template-hash", format!("{:010x}", deployment * 2_654_435_761)),
            ("team", format!("team-{}", deployment % 50)),
            ("version", "v1".to_owned()),
        ])
    });
    match claim {
        Some(claim) => pod.claim(format!("data-{claim}")),
        None => pod,
    }
    .build()
    .template
}

pub(super) fn node_builder(name: &str, n: usize) -> NodeBuilder {
    node(name).hostname().zone(format!("zone-{}", n % 3)).cpu(4000).memory(32 << 30)
}

pub(super) fn make_node(name: &str, n: usize) -> Node {
    node_builder(name, n).build()
}

fn refused(error: EventError) -> CommandError {
    CommandError::Refused { object: "a benchmark pod or node".to_owned(), error }
}

/// The durations of single steps, in nanoseconds.
struct Steps(Histogram<u64>);

impl Steps {
    fn new() -> Result<Steps, CommandError> {
        histogram().map(Steps)
    }

    fn time<R>(&mut self, work: impl FnOnce() -> R) -> R {
        let started = Instant::now();
        let result = work();
        self.0.saturating_record(started.elapsed().as_nanos() as u64);
        result
    }

    /// Applies a change and publishes, timed as one step.
    fn publish<T>(
        &mut self,
        writer: &mut Writer,
        change: impl FnOnce(&mut Writer) -> Result<T, EventError>,
    ) -> Result<(), CommandError> {
        let changed = self.time(|| {
            let changed = change(writer);
            writer.publish();
            changed
        });
        changed.map(drop).map_err(refused)
    }

    fn micros(&self) -> Value {
        let [p50, p99, max] = [0.5, 0.99, 1.0].map(|at| self.at(at, 1000.0));
        json!({ "p50": p50, "p99": p99, "max": max })
    }

    /// Returns a quantile. `unit` is in nanoseconds.
    fn at(&self, quantile: f64, unit: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / unit
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, CommandError> {
    let (nodes, per_node) = (arguments.nodes, arguments.pods_per_node);
    if !(1..=MOST_NODES).contains(&nodes) {
        return Err(CommandError::Usage(format!("--nodes must be 1 to {MOST_NODES}")));
    }
    if per_node > MOST_PODS / nodes {
        let most = MOST_PODS / nodes;
        return Err(CommandError::Usage(format!(
            "--pods-per-node must be 0 to {most} for {nodes} nodes"
        )));
    }
    let mut result = json!({ "nodes": nodes, "pods_per_node": per_node });
    let names: Vec<Name> = (0..nodes).map(|n| format!("node-{n:07}").into()).collect();
    let mut pods = Pods { names: &names, random: Random::new(arguments.seed), template: None };
    // As in kube-scheduler's cache, to which this is compared, assumes are unchecked.
    let (mut writer, reader) =
        Engine::inline(Config { commit_check: CommitPolicy::Unchecked, ..Config::default() });
    load(per_node, &mut writer, &mut pods, &mut result)?;
    result["add_pod_us"] = add_pods(&mut writer, &mut pods)?;
    result["assume_publish_us"] = assume(&mut writer, &mut pods)?;
    node_changes(&mut writer, &mut result)?;
    result["fork_us"] = fork(&reader, &mut pods)?;
    result["pin_ns"] = pin(&reader)?;
    result["pin_busy_ns"] = pin_busy(&mut writer, &reader, &mut pods)?;
    result["peak_rss_bytes"] = json!(peak_rss());
    print(&match arguments.output {
        Output::Json => result.to_string(),
        Output::Table => table(&result),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Loads the nodes and pods, and measures their size and the time.
fn load(
    pods_per_node: usize,
    writer: &mut Writer,
    pods: &mut Pods<'_>,
    result: &mut Value,
) -> Result<(), CommandError> {
    const NO_NODES: [Node; 0] = [];
    const NO_PODS: [Pod; 0] = [];
    let names = pods.names;
    let started = Instant::now();
    let before = live_bytes();
    let nodes = names.iter().enumerate().map(|(i, name)| make_node(name, i));
    loaded(writer.load([], nodes, NO_PODS))?;
    writer.publish();
    let with_nodes = live_bytes();
    result["bytes_per_node"] = json!((with_nodes - before) / names.len() as i64);
    let total = names.len() * pods_per_node;
    loaded(writer.load([], NO_NODES, (0..total).map(|i| pods.make(i))))?;
    writer.publish();
    pods.template = None;
    result["load_s"] = json!(started.elapsed().as_secs_f64());
    writer.reclaim();
    if total > 0 {
        result["bytes_per_pod"] = json!((live_bytes() - with_nodes) / total as i64);
    }
    Ok(())
}

/// Returns the first object that a load rejected as an error.
fn loaded(applied: Applied) -> Result<(), CommandError> {
    match applied.rejected.into_iter().next() {
        None => Ok(()),
        Some((object, error)) => Err(CommandError::Refused { object, error }),
    }
}

/// Adds pods to a loaded cluster with a publish after every hundredth one, and removes them again.
fn add_pods(writer: &mut Writer, pods: &mut Pods<'_>) -> Result<Value, CommandError> {
    let template = template(3, None);
    let some: Vec<Arc<Pod>> =
        (0..SAMPLES).map(|i| pods.somewhere(&template, &format!("added-{i}"))).collect();
    let mut steps = Steps::new()?;
    for (i, pod) in some.iter().enumerate() {
        let added = steps.time(|| {
            let added = writer.add_pod(pod.clone());
            if i % PUBLISH_EACH == PUBLISH_EACH - 1 {
                writer.publish();
            }
            added
        });
        added.map_err(refused)?;
    }
    for pod in &some {
        writer.remove_pod(pod).map_err(refused)?;
    }
    writer.publish();
    Ok(steps.micros())
}

/// Assumes one pod and publishes, timed as one span. Pods are removed in between, so that
/// nodes do not fill up.
fn assume(writer: &mut Writer, pods: &mut Pods<'_>) -> Result<Value, CommandError> {
    let template = template(0, None);
    let mut steps = Steps::new()?;
    for i in 0..SAMPLES + SAMPLES / 4 {
        let pod = pods.somewhere(&template, &format!("assumed-{i}"));
        if i < SAMPLES / 4 {
            writer.assume_pod(pod.clone()).map_err(refused)?;
            writer.publish();
        } else {
            let pod = pod.clone();
            steps.publish(writer, |writer| writer.assume_pod(pod))?;
        }
        writer.apply(&Event::forget(&pod)).map_err(refused)?;
        writer.publish();
    }
    Ok(steps.micros())
}

/// A burst of node updates, one by one, and relists of all nodes. Each step ends with a publish.
fn node_changes(writer: &mut Writer, result: &mut Value) -> Result<(), CommandError> {
    const BURST: usize = 1000;
    let nodes = |writer: &Writer| -> Vec<Arc<Node>> {
        writer.cluster().nodes().filter_map(|node| node.node().cloned()).collect()
    };
    let all = nodes(writer);
    let (mut single, mut relists) = (Steps::new()?, Steps::new()?);
    for node in all.iter().step_by((all.len() / BURST).max(1)).take(BURST) {
        let changed = Arc::new(Node { allowed_pods: 111, ..Node::clone(node) });
        single.publish(writer, |writer| writer.update_node(changed).map(|_| ()))?;
    }
    for _ in 0..3 {
        let list = nodes(writer);
        relists.publish(writer, |writer| writer.relist(Relist::Nodes(list)))?;
    }
    result["node_update_publish_us"] = single.micros();
    result["node_relist_us"] = relists.micros();
    Ok(())
}

/// Forks the version, adds one pod, and drops the fork.
fn fork(reader: &Reader, pods: &mut Pods<'_>) -> Result<Value, CommandError> {
    let template = template(0, None);
    let snapshot = reader.snapshot();
    let mut steps = Steps::new()?;
    for i in 0..SAMPLES {
        let pod = pods.somewhere(&template, &format!("forked-{i}"));
        steps.time(|| snapshot.fork().add_pod(&pod)).map_err(refused)?;
    }
    Ok(steps.micros())
}

/// Nanoseconds per call, measured in batches of 100 calls.
fn batches(mut work: impl FnMut()) -> Result<Value, CommandError> {
    let mut steps = Steps::new()?;
    for _ in 0..SAMPLES {
        steps.time(|| (0..100).for_each(|_| work()));
    }
    let [p50, p99, p999, max] = [0.5, 0.99, 0.999, 1.0].map(|at| steps.at(at, 100.0));
    Ok(json!({ "p50": p50, "p99": p99, "p999": p999, "max": max }))
}

fn pin(reader: &Reader) -> Result<Value, CommandError> {
    batches(|| {
        black_box(reader.pin().generation());
    })
}

/// Pins while the writer publishes about 100,000 versions per second.
fn pin_busy(
    writer: &mut Writer,
    reader: &Reader,
    pods: &mut Pods<'_>,
) -> Result<Value, CommandError> {
    let template = template(2, None);
    let pod = pods.somewhere(&template, "busy");
    let stop = AtomicBool::new(false);
    let reader = reader.clone();
    let mut versions = 0_u64;
    let mut failed = None;
    let times = std::thread::scope(|scope| {
        let stop = &stop;
        let pins = scope.spawn(move || {
            let times = pin(&reader);
            // Relaxed: the flag orders no other memory.
            stop.store(true, Ordering::Relaxed);
            times
        });
        let mut next = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            let done = if versions.is_multiple_of(2) {
                writer.add_pod(pod.clone())
            } else {
                writer.remove_pod(&pod)
            };
            if let Err(error) = done {
                failed = Some(error);
            }
            writer.publish();
            versions += 1;
            next += Duration::from_micros(10);
            while Instant::now() < next && !stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        }
        pins.join()
    });
    match (failed, times) {
        (Some(error), _) => Err(refused(error)),
        (None, Ok(times)) => times,
        (None, Err(_)) => Err(CommandError::Panicked("the pinning thread")),
    }
}

/// The peak memory of the process in bytes; 0 if the system does not report it.
fn peak_rss() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_else(|_| String::new());
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// The name of a figure for people: `assume_publish_us.p50` is `assume publish, p50 (µs)`.
fn label(path: &str) -> String {
    let units =
        [("_per_s", "per second"), ("_us", "µs"), ("_ns", "ns"), ("_ms", "ms"), ("_s", "s")];
    let mut unit = None;
    let names = path.split('.').map(|name| {
        match units.iter().find_map(|(suffix, text)| Some((name.strip_suffix(suffix)?, *text))) {
            Some((name, text)) => {
                unit = Some(text);
                name.replace('_', " ")
            }
            None => name.replace('_', " "),
        }
    });
    let name = names.collect::<Vec<_>>().join(", ");
    unit.map_or_else(|| name.clone(), |unit| format!("{name} ({unit})"))
}

fn number(value: &Value) -> String {
    match value.as_f64() {
        Some(number) if number.fract() == 0.0 => format!("{number:.0}"),
        Some(number) => format!("{number:.2}"),
        None => value.to_string(),
    }
}

/// Two tables: measurements with their distribution, and single figures.
fn table(result: &Value) -> String {
    const COLUMNS: [&str; 3] = ["p50", "p99", "max"];
    let mut times = plain(std::iter::once("figure").chain(COLUMNS));
    let mut figures = plain(["figure", "value"]);
    fn rows(times: &mut Table, figures: &mut Table, prefix: &str, value: &Value) {
        match value {
            Value::Object(map) if COLUMNS.iter().all(|column| map.contains_key(*column)) => {
                let values = COLUMNS.map(|column| number(&map[column]));
                times.add_row(std::iter::once(label(prefix)).chain(values));
            }
            Value::Object(map) => {
                for (key, value) in map {
                    let dot = if prefix.is_empty() { "" } else { "." };
                    rows(times, figures, &format!("{prefix}{dot}{key}"), value);
                }
            }
            other => {
                figures.add_row([label(prefix), number(other)]);
            }
        }
    }
    rows(&mut times, &mut figures, "", result);
    format!("{}\n\n{}", right(times, &[1, 2, 3]).trim_fmt(), right(figures, &[1]).trim_fmt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_have_words_and_units() {
        assert_eq!(label("nodes"), "nodes");
        assert_eq!(label("add_node_per_s"), "add node (per second)");
        assert_eq!(label("assume_publish_us.p50"), "assume publish, p50 (µs)");
    }

    #[test]
    fn distributions_have_a_row_and_single_figures_follow() {
        let steps = json!({ "p50": 1.25, "p99": 3.0, "p999": 4.0, "max": 5.125 });
        let ratio = json!({ "p10": 0.5, "p50": 1.0, "p90": 2.0 });
        let found = table(&json!({ "nodes": 3, "a": { "pin_ns": steps, "b_ratio": ratio } }));
        let lines: Vec<Vec<&str>> =
            found.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["figure", "p50", "p99", "max"]);
        assert_eq!(lines[1], ["a,", "pin", "(ns)", "1.25", "3", "5.12"]);
        assert_eq!(lines[3], ["figure", "value"]);
        assert!(lines.contains(&vec!["a,", "b", "ratio,", "p90", "2"]), "{found}");
        assert!(lines.contains(&vec!["nodes", "3"]), "{found}");
    }
}
