//! A plugin that logs its calls, and shared steps of the tests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use portolan::cache::{Config, Engine, NodeInfo, Writer};
use portolan::model::{Name, Pod, node, pod};
use portolan::plugin::{
    Bind, Code, Cycle, Diagnosis, Feasible, Filter, Nomination, Permit, Plugin, PluginInfo, Point,
    PreFilter, PreFlight, PreScore, Score, ScoredNodes, Status,
};
use portolan::{Algorithm, AlgorithmConfig, Decision, Failure, FitError, Framework};

pub(super) type Log = Arc<Mutex<Vec<String>>>;

/// A plugin that returns the configured code at each step, and logs its calls.
#[derive(Clone, Default)]
pub(super) struct Probe {
    pub(super) name: &'static str,
    pub(super) log: Log,
    pub(super) returns: BTreeMap<&'static str, Code>,
    pub(super) only: Option<Vec<Name>>,
    pub(super) on: Option<&'static str>,
    pub(super) scores: i64,
    pub(super) waits: Option<Duration>,
    pub(super) skips: bool,
    pub(super) nominates: Nomination,
}

impl Probe {
    pub(super) fn new(name: &'static str, log: &Log) -> Probe {
        Probe { name, log: log.clone(), ..Probe::default() }
    }

    pub(super) fn returns(mut self, step: &'static str, code: Code) -> Probe {
        self.returns.insert(step, code);
        self
    }

    pub(super) fn call(&self, step: &'static str) -> Result<(), Status> {
        self.log.lock().unwrap().push(format!("{}.{step}", self.name));
        match self.returns.get(step) {
            Some(code) => Err(Status::new(*code, self.name, format!("{} says no", self.name))),
            None => Ok(()),
        }
    }
}

struct Judge<'a>(&'a Probe);

impl Plugin for Probe {
    fn info(&self) -> PluginInfo {
        // All points except QueueSort, which only one plugin of a framework may extend.
        const POINTS: [Point; 11] = {
            let mut points = [Point::PreEnqueue; 11];
            let mut at = 1;
            while at < 11 {
                points[at] = Point::ALL[at + 1];
                at += 1;
            }
            points
        };
        PluginInfo::new(self.name, &POINTS)
    }

    fn pre_enqueue(&self, _: &Pod) -> Result<(), Status> {
        self.call("PreEnqueue")
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        self.call("PreFilter")?;
        cycle.state.write(self.name, cycle.pod.name.clone());
        Ok(match &self.only {
            _ if self.skips => PreFilter::Skip,
            Some(names) => PreFilter::Only(names.clone(), Box::new(Judge(self))),
            None => PreFilter::Filter(Box::new(Judge(self))),
        })
    }

    fn post_filter(&self, _: Cycle<'_>, _: &Diagnosis<'_>) -> (Nomination, Option<Status>) {
        (self.nominates.clone(), self.call("PostFilter").err())
    }

    fn pre_score<'a>(&'a self, _: Cycle<'a>, _: &'a Feasible<'a>) -> Result<PreScore<'a>, Status> {
        self.call("PreScore")?;
        Ok(if self.skips { PreScore::Skip } else { PreScore::Score(Box::new(Judge(self))) })
    }

    fn reserve(&self, _: Cycle<'_>, _: &Name) -> Result<(), Status> {
        self.call("Reserve")
    }

    fn unreserve(&self, _: Cycle<'_>, _: &Name) {
        let _ = self.call("Unreserve");
    }

    fn permit(&self, _: Cycle<'_>, _: &Name) -> Result<Permit, Status> {
        self.call("Permit")?;
        Ok(self.waits.map_or(Permit::Allow, Permit::Wait))
    }

    fn pre_bind_pre_flight(&self, _: Cycle<'_>, _: &Name) -> Result<PreFlight, Status> {
        self.call("PreBindPreFlight")?;
        Ok(if self.skips { PreFlight::Skip } else { PreFlight::Work })
    }

    fn pre_bind(&self, cycle: Cycle<'_>, _: &Name) -> Result<(), Status> {
        // The cycle state written by PreFilter lives as long as the cycle of the pod.
        assert_eq!(cycle.state.read::<Name>(self.name).as_deref(), Some(&cycle.pod.name));
        self.call("PreBind")
    }

    fn bind(&self, _: Cycle<'_>, _: &Name) -> Result<Bind, Status> {
        self.call("Bind")?;
        Ok(if self.skips { Bind::Skip } else { Bind::Bound })
    }

    fn post_bind(&self, _: Cycle<'_>, _: &Name) {
        let _ = self.call("PostBind");
    }
}

impl Filter for Judge<'_> {
    fn filter(&self, node: NodeInfo<'_>) -> Option<Status> {
        let asked = self.0.on.is_none_or(|name| **node.name() == *name);
        asked.then(|| self.0.call("Filter").err())?
    }
}

impl Score for Judge<'_> {
    fn score(&self, _: NodeInfo<'_>) -> Result<i64, Status> {
        self.0.call("Score").map(|()| self.0.scores)
    }

    fn needs_normalize(&self) -> bool {
        self.0.returns.contains_key("Normalize")
    }

    fn normalize(&self, _: &ScoredNodes<'_>, _: &mut [i64]) -> Result<(), Status> {
        self.0.call("Normalize")
    }
}

pub(super) fn framework(probes: Vec<Probe>) -> Framework {
    let plugins = probes.into_iter().map(|p| (Box::new(p) as Box<dyn Plugin>, 1)).collect();
    Framework::new(plugins).unwrap()
}

pub(super) fn cluster(nodes: &[&'static str]) -> Writer {
    let (mut writer, _) = Engine::inline(Config::default());
    for name in nodes {
        writer.add_node(node(*name).hostname().cpu(4_000).build()).unwrap();
    }
    writer
}

pub(super) fn decide(framework: Framework, nodes: &[&'static str]) -> Result<Decision, Failure> {
    let config = AlgorithmConfig { percentage_of_nodes: 100, seed: 1 };
    let pod = pod("p").cpu(100).build();
    Algorithm::new(framework, config, None).schedule(cluster(nodes).cluster(), &pod)
}

pub(super) fn fit_error(result: Result<Decision, Failure>) -> FitError {
    match result {
        Err(Failure::Fit(error)) => *error,
        other => panic!("no node should be feasible: {other:?}"),
    }
}

pub(super) fn failure(result: Result<Decision, Failure>) -> String {
    match result {
        Err(Failure::Plugin(status)) => {
            assert_eq!(status.code, Code::Error);
            status.to_string()
        }
        other => panic!("a plugin should fail: {other:?}"),
    }
}

/// Returns and clears the logged calls of these steps.
pub(super) fn heard(log: &Log, steps: &[&str]) -> Vec<String> {
    let all = std::mem::take(&mut *log.lock().unwrap());
    all.into_iter().filter(|line| steps.iter().any(|s| line.ends_with(&format!(".{s}")))).collect()
}
