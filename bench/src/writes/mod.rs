//! Compares the writes of a live scheduler with recorded writes of kube-scheduler: runs each scenario on an API server
//! in memory with three hollow nodes, as the recording had.

mod canonical;
mod cluster;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use serde::Deserialize;
use serde_json::Value;

use canonical::Streams;

/// The number of scenarios at once. Each waits most of the time.
const AT_ONCE: usize = 16;

/// The differences that a passing comparison allows.
pub(crate) const NAMED: [&str; 6] = [
    "status patches name the pod's uid, so that they never reach a pod of the same name",
    "deletions of victims name the victim's uid",
    "volumes and claims are patched with uid and resourceVersion, where kube-scheduler replaces the whole object",
    "attempts repeated with the same message count once: how often a pod is retried depends on other namespaces",
    "attempts that failed for lack of resources because of the previous scenario, or because the namespace was deleted, are \
     left out",
    "any of several equal nodes may be chosen, and with it its victims",
];

/// A recorded scenario.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Recorded {
    scenario: String,
    steps: Vec<Step>,
    writes: Vec<Write>,
    end: Vec<End>,
}

/// A step of a scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Step {
    Apply(Vec<Value>),
    Delete(Vec<Value>),
    Patch(Vec<Value>),
    Sleep(f64),
}

impl Step {
    /// The names of the pods that the step creates.
    fn pods(&self) -> BTreeSet<&str> {
        let Step::Apply(objects) = self else { return BTreeSet::new() };
        let pods = objects.iter().filter(|object| object["kind"] == "Pod");
        pods.filter_map(|pod| pod["metadata"]["name"].as_str()).collect()
    }
}

/// A write, recorded or our own.
#[derive(Clone, Debug, Deserialize)]
struct Write {
    verb: String,
    resource: String,
    name: String,
    #[serde(default)]
    body: Value,
    code: u16,
}

/// A pod at the end of a scenario.
#[derive(Clone, Debug, PartialEq, Deserialize)]
struct End {
    name: String,
    node: Option<String>,
    phase: Option<String>,
    nominated: Option<String>,
    scheduled: Option<Value>,
}

impl Recorded {
    /// Reads a scenario.
    pub(crate) fn read(value: &Value) -> Result<Recorded, String> {
        Recorded::deserialize(value).map_err(|error| error.to_string())
    }

    /// The name of the scenario.
    pub(crate) fn name(&self) -> &str {
        &self.scenario
    }

    /// The pods of the first step that creates pods.
    fn first_pods(&self) -> BTreeSet<&str> {
        self.steps.iter().map(Step::pods).find(|pods| !pods.is_empty()).unwrap_or_default()
    }

    /// Runs the scenario, and returns the differences.
    fn run(&self) -> Vec<String> {
        let (writes, end) = match cluster::run(self) {
            Ok(run) => run,
            Err(why) => return vec![why],
        };
        let mut theirs = Streams::of(&self.writes);
        let ours = Streams::of(&writes);
        theirs.forget_the_scenario_before(&self.first_pods(), &ours);
        let mut differences = theirs.differences(&ours);
        differences.extend(ends(&self.end, &end));
        differences
    }
}

/// Runs all scenarios, several at once, and returns the differences of each, in order.
pub(crate) fn run_all(scenarios: &[Recorded]) -> Vec<Vec<String>> {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(scenarios.len()) {
            scope.spawn(|| {
                loop {
                    // A ticket that guards no data.
                    let mine = next.fetch_add(1, Ordering::Relaxed);
                    let Some(scenario) = scenarios.get(mine) else { return };
                    let differences = scenario.run();
                    let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                    results.insert(mine, differences);
                }
            });
        }
    });
    results.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect()
}

/// Compares the pods at the end. Their nodes are not compared, since ties are broken at random.
fn ends(theirs: &[End], ours: &[End]) -> Vec<String> {
    let plain = |name: &str| canonical::without_numbers(&canonical::name(name));
    let pods = |ends: &[End]| -> Vec<String> {
        let mut pods: Vec<String> = ends
            .iter()
            .map(|end| {
                let scheduled = end.scheduled.clone().map(canonical::condition);
                let on = |node: &Option<String>| if node.is_some() { "a node" } else { "none" };
                format!(
                    "{}: node {}, phase {:?}, nominated {}, scheduled {scheduled:?}",
                    plain(&end.name),
                    on(&end.node),
                    end.phase,
                    on(&end.nominated)
                )
            })
            .collect();
        pods.sort();
        pods
    };
    let (expected, found) = (pods(theirs), pods(ours));
    match expected == found {
        true => Vec::new(),
        false => vec![format!("pods at the end: expected {expected:?}, found {found:?}")],
    }
}
