//! Extension points: the order in which plugins are called, and the effect of their results.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use portolan::framework::{
    Algorithm, AlgorithmConfig, Bind, Code, Cycle, CycleState, Decision, Diagnosis, Feasible,
    Filter, FitError, Framework, FrameworkError, Handle, MAX_NODE_SCORE, MIN_NODE_SCORE,
    Nomination, Permit, Plugin, Point, PreFilter, PreFlight, PreScore, Recorder, ScheduleError,
    Score, ScoredNodes, Status, Step, SubCluster,
};
use portolan::model::{Name, Pod, Timestamp, Uid, node, pod};
use portolan::plugins::NodeResourcesFit;
use portolan::{Config, Engine, NodeInfo, Writer};

type Log = Arc<Mutex<Vec<String>>>;

/// A plugin that returns the configured code at each step, and logs its calls.
#[derive(Clone, Default)]
struct Probe {
    name: &'static str,
    log: Log,
    returns: BTreeMap<&'static str, Code>,
    only: Option<Vec<Name>>,
    on: Option<&'static str>,
    scores: i64,
    waits: Option<Duration>,
    skips: bool,
    nominates: Nomination,
}

impl Probe {
    fn new(name: &'static str, log: &Log) -> Probe {
        Probe { name, log: log.clone(), ..Probe::default() }
    }

    fn returns(mut self, step: &'static str, code: Code) -> Probe {
        self.returns.insert(step, code);
        self
    }

    fn call(&self, step: &'static str) -> Result<(), Status> {
        self.log.lock().unwrap().push(format!("{}.{step}", self.name));
        match self.returns.get(step) {
            Some(code) => Err(Status::new(*code, self.name, format!("{} says no", self.name))),
            None => Ok(()),
        }
    }
}

struct Judge<'a>(&'a Probe);

impl Plugin for Probe {
    fn name(&self) -> &'static str {
        self.name
    }

    fn points(&self) -> &'static [Point] {
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
        &POINTS
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
        assert_eq!(cycle.state.read::<Name>(self.name).as_deref(), Ok(&cycle.pod.name));
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

fn framework(probes: Vec<Probe>) -> Framework {
    let plugins = probes.into_iter().map(|p| (Box::new(p) as Box<dyn Plugin>, 1)).collect();
    Framework::new(plugins).unwrap()
}

fn cluster(nodes: &[&'static str]) -> Writer {
    let (mut writer, _) = Engine::inline(Config::default());
    for name in nodes {
        writer.add_node(node(*name).hostname().cpu(4_000).build()).unwrap();
    }
    writer
}

fn decide(framework: Framework, nodes: &[&'static str]) -> Result<Decision, ScheduleError> {
    let config = AlgorithmConfig { percentage_of_nodes: 100, seed: 1 };
    let pod = pod("p").cpu(100).build();
    Algorithm::new(framework, config, None).schedule(cluster(nodes).cluster(), &pod)
}

fn fit_error(result: Result<Decision, ScheduleError>) -> FitError {
    match result {
        Err(ScheduleError::Fit(error)) => *error,
        other => panic!("no node should be feasible: {other:?}"),
    }
}

fn failure(result: Result<Decision, ScheduleError>) -> String {
    match result {
        Err(ScheduleError::Plugin(status)) => {
            assert_eq!(status.code, Code::Error);
            status.to_string()
        }
        other => panic!("a plugin should fail: {other:?}"),
    }
}

/// Returns and clears the logged calls of these steps.
fn heard(log: &Log, steps: &[&str]) -> Vec<String> {
    let all = std::mem::take(&mut *log.lock().unwrap());
    all.into_iter().filter(|line| steps.iter().any(|s| line.ends_with(&format!(".{s}")))).collect()
}

#[test]
fn plugins_run_at_their_enabled_points_in_the_given_order() {
    let log = Log::default();
    let made = || framework(vec![Probe::new("a", &log), Probe::new("b", &log)]);
    let turned = made().with_plugins_at(Point::Filter, &["b", "a"]).unwrap();
    let turned = turned.with_plugins_at(Point::PreFilter, &["a"]).unwrap();
    decide(turned, &["n"]).unwrap();
    assert_eq!(
        heard(&log, &["PreFilter", "Filter"]),
        ["a.PreFilter", "b.PreFilter", "b.Filter", "a.Filter"]
    );
    let unknown = made().with_plugins_at(Point::Filter, &["c"]).err();
    assert_eq!(unknown, Some(FrameworkError::NotFound("c".to_owned())));
    let twice = made().with_plugins_at(Point::Bind, &["a", "a"]).err();
    let (plugin, point) = ("a".to_owned(), Point::Bind);
    assert_eq!(twice, Some(FrameworkError::Twice { plugin, point }));
    let other = Framework::default_profile().with_plugins_at(Point::Score, &["NodeName"]).err();
    assert_eq!(
        other.unwrap().to_string(),
        "plugin \"NodeName\" does not extend ScorePlugin plugin"
    );
}

#[test]
fn a_pod_is_queued_if_every_plugin_admits_it() {
    let log = Log::default();
    let gates = Probe::new("gates", &log).returns("PreEnqueue", Code::UnschedulableAndUnresolvable);
    let all = framework(vec![Probe::new("a", &log), gates, Probe::new("b", &log)]);
    let status = all.pre_enqueue(&pod("p").build()).unwrap_err();
    assert_eq!(status.plugin, "gates");
    assert_eq!(heard(&log, &["PreEnqueue"]), ["a.PreEnqueue", "gates.PreEnqueue"]);

    let gated = pod("p").spec(|spec| spec.scheduling_gates = ["one".into(), "two".into()].into());
    let status = Framework::default_profile().pre_enqueue(&gated.build()).unwrap_err();
    assert_eq!(status.message(), "waiting for scheduling gates: [one two]");
}

#[test]
fn unresolvable_rejections_end_pre_filter_and_others_do_not() {
    let log = Log::default();
    let [may, never, fails] =
        [Code::Unschedulable, Code::UnschedulableAndUnresolvable, Code::Error];
    let probes = |first: Code, second: Code| {
        vec![
            Probe::new("a", &log).returns("PreFilter", first),
            Probe::new("b", &log).returns("PreFilter", second),
            Probe::new("c", &log),
        ]
    };
    let asked = |framework| {
        let result = decide(framework, &["n"]);
        (result, heard(&log, &["PreFilter", "Filter"]))
    };
    let (result, all) = asked(framework(probes(may, may)));
    assert_eq!(fit_error(result).to_string(), "0/1 nodes are available: b says no.");
    assert_eq!(all, ["a.PreFilter", "b.PreFilter", "c.PreFilter"]);

    let (result, two) = asked(framework(probes(may, never)));
    let status = fit_error(result).pre_filter.unwrap();
    assert_eq!((status.plugin, status.code), ("b", never));
    assert_eq!(two, ["a.PreFilter", "b.PreFilter"]);

    let (result, one) = asked(framework(probes(never, may)));
    assert_eq!(fit_error(result).pre_filter.unwrap().plugin, "a");
    assert_eq!(one, ["a.PreFilter"]);

    let (result, two) = asked(framework(probes(may, fails)));
    assert_eq!(failure(result), "running PreFilter plugin \"b\": b says no");
    assert_eq!(two, ["a.PreFilter", "b.PreFilter"]);
}

#[test]
fn a_plugin_that_skips_does_not_filter_nodes() {
    let log = Log::default();
    let skips = Probe { skips: true, ..Probe::new("skips", &log) };
    decide(framework(vec![skips, Probe::new("a", &log)]), &["n", "m"]).unwrap();
    assert_eq!(
        heard(&log, &["Filter", "PreScore", "Score"]),
        ["a.Filter", "a.Filter", "skips.PreScore", "a.PreScore", "a.Score", "a.Score"]
    );
}

#[test]
fn named_nodes_are_intersected() {
    let log = Log::default();
    let only = |name, nodes: &[&str]| {
        let nodes = nodes.iter().map(|node| Name::from(*node)).collect();
        Probe { only: Some(nodes), ..Probe::new(name, &log) }
    };
    let nodes = ["x", "y", "z"];
    let both = vec![only("b", &["x", "y"]), only("a", &["y", "z"])];
    assert_eq!(&*decide(framework(both), &nodes).unwrap().node, "y");

    let rejects = Probe::new("r", &log).returns("Filter", Code::Unschedulable);
    let both = vec![only("b", &["x", "y"]), only("a", &["y", "z"]), rejects];
    assert_eq!(
        fit_error(decide(framework(both), &nodes)).to_string(),
        "0/3 nodes are available: 1 r says no, 2 node(s) didn't satisfy plugin(s) [a b]."
    );

    let none = vec![only("b", &["x"]), only("a", &["y"]), Probe::new("c", &log)];
    heard(&log, &[]);
    assert_eq!(
        fit_error(decide(framework(none), &nodes)).to_string(),
        "0/3 nodes are available: node(s) didn't satisfy plugin(s) [a b] simultaneously."
    );
    assert_eq!(heard(&log, &["PreFilter"]), ["b.PreFilter", "a.PreFilter"]);
    assert_eq!(
        fit_error(decide(framework(vec![only("b", &[])]), &nodes)).to_string(),
        "0/3 nodes are available: node(s) didn't satisfy plugin b."
    );
}

#[test]
fn a_node_that_is_named_twice_counts_once() {
    let log = Log::default();
    let names = |names: &[&str]| Some(names.iter().map(|name| Name::from(*name)).collect());
    let rejects = |only| {
        let probe = Probe::new("a", &log).returns("Filter", Code::Unschedulable);
        framework(vec![Probe { only, ..probe }])
    };
    assert_eq!(
        fit_error(decide(rejects(names(&["n", "n"])), &["n"])).to_string(),
        "0/1 nodes are available: 1 a says no."
    );
    let [one, other] = [names(&["m", "n", "n"]), names(&["n", "n", "o"])];
    let both =
        [("a", one), ("b", other)].map(|(name, only)| Probe { only, ..Probe::new(name, &log) });
    let decision = decide(framework(both.into()), &["n", "m", "o"]).unwrap();
    assert_eq!((&*decision.node, decision.looked_at), ("n", 1));
}

#[test]
fn named_nodes_that_do_not_exist_are_not_part_of_the_sample() {
    let log = Log::default();
    let names = (0..600).map(|n| Name::from(format!("n{n}"))).collect();
    let named = framework(vec![Probe { only: Some(names), ..Probe::new("a", &log) }]);
    let (mut writer, _) = Engine::inline(Config::default());
    for n in 0..300 {
        writer.add_node(node(format!("n{n}")).build()).unwrap();
    }
    let config = AlgorithmConfig { percentage_of_nodes: 50, seed: 1 };
    let mut algorithm = Algorithm::new(named, config, None);
    let pod = pod("p").build();
    let state = CycleState::default();
    let by_nodes = algorithm.decide_by_nodes(Cycle::new(writer.cluster(), &pod, &state)).unwrap();
    let decision = algorithm.schedule(writer.cluster(), &pod).unwrap();
    assert_eq!((decision.feasible, by_nodes.feasible), (150, 150));
}

#[test]
fn the_first_rejection_of_a_node_counts() {
    let log = Log::default();
    let rejects = |name| Probe::new(name, &log).returns("Filter", Code::Unschedulable);
    let error = fit_error(decide(
        framework(vec![Probe::new("a", &log), rejects("b"), rejects("c")]),
        &["n"],
    ));
    assert_eq!(error.reasons.into_iter().collect::<Vec<_>>(), [("b says no".to_owned(), 1)]);
    let asked = heard(&log, &["Filter"]);
    assert!(!asked.contains(&"c.Filter".to_owned()), "{asked:?}");
}

#[test]
fn an_error_on_one_node_ends_the_cycle() {
    let log = Log::default();
    for code in [Code::Error, Code::Wait, Code::Skip] {
        let fails = Probe { on: Some("m"), ..Probe::new("a", &log).returns("Filter", code) };
        let message = failure(decide(framework(vec![fails]), &["n", "m", "o"]));
        assert!(message.starts_with("running \"a\" filter plugin: "), "{message}");
        assert_eq!(message.ends_with("a says no"), code == Code::Error, "{message}");
    }
    let pending = Probe { on: Some("m"), ..Probe::new("a", &log).returns("Filter", Code::Pending) };
    assert_eq!(decide(framework(vec![pending]), &["n", "m", "o"]).unwrap().feasible, 2);
}

#[test]
fn post_filter_continues_until_a_plugin_is_certain() {
    let log = Log::default();
    let rejects = || Probe::new("r", &log).returns("Filter", Code::Unschedulable);
    let posts = |code: Option<Code>, nominates| {
        let probe = Probe { nominates, ..Probe::new("p", &log) };
        code.map_or(probe.clone(), |code| probe.returns("PostFilter", code))
    };
    let [may, never, fails] =
        [Code::Unschedulable, Code::UnschedulableAndUnresolvable, Code::Error];
    let after = |first: Probe| {
        let last = Probe { nominates: Nomination::Node("z".into()), ..Probe::new("l", &log) };
        let last = last.returns("PostFilter", may);
        let all = framework(vec![rejects(), first, last]);
        let all = all.with_plugins_at(Point::PostFilter, &["p", "l"]).unwrap();
        let error = fit_error(decide(all, &["n"]));
        (error, heard(&log, &["PostFilter"]).len())
    };
    let start = "0/1 nodes are available: 1 r says no.";
    // A plugin that succeeds ends PostFilter, and adds no message.
    let (error, asked) = after(posts(None, Nomination::Node("n".into())));
    assert_eq!((error.to_string(), asked), (start.to_owned(), 1));
    assert_eq!(error.nomination, Nomination::Node("n".into()));
    // The last explicit nomination counts, and the reasons are concatenated.
    let (error, asked) = after(posts(Some(may), Nomination::Clear));
    assert_eq!((error.to_string(), asked), (format!("{start} p says no, l says no"), 2));
    assert_eq!(error.nomination, Nomination::Node("z".into()));
    assert_eq!(error.post_filter.unwrap().plugin, "p");
    for (code, said) in [(never, never), (fails, fails), (Code::Wait, fails)] {
        let (error, asked) = after(posts(Some(code), Nomination::Clear));
        assert_eq!((error.post_filter.map(|s| s.code), asked), (Some(said), 1), "{code:?}");
        let kept = if code == never { Nomination::Clear } else { Nomination::Keep };
        assert_eq!(error.nomination, kept);
    }
}

#[test]
fn an_error_while_scoring_ends_the_cycle() {
    let log = Log::default();
    let made = |probe| framework(vec![Probe::new("ok", &log), probe]);
    let probe = || Probe::new("a", &log);
    for (probe, message) in [
        (
            probe().returns("PreScore", Code::Unschedulable),
            "running PreScore plugin \"a\": a says no",
        ),
        (
            probe().returns("Score", Code::Unschedulable),
            "running Score plugins: plugin \"a\" failed with: a says no",
        ),
        (
            probe().returns("Normalize", Code::Error),
            "running Normalize on Score plugins: plugin \"a\" failed with: a says no",
        ),
        (
            Probe { scores: 101, ..probe() },
            "applying score defaultWeights on Score plugins: plugin \"a\" returns an invalid \
             score 101, it should in the range of [0, 100] after normalizing",
        ),
        (
            Probe { scores: -1, ..probe() },
            "applying score defaultWeights on Score plugins: plugin \"a\" returns an invalid \
             score -1, it should in the range of [0, 100] after normalizing",
        ),
    ] {
        assert_eq!(failure(decide(made(probe.clone()), &["n", "m"])), message);
        // A single feasible node is not scored.
        assert!(decide(made(probe.clone()), &["n"]).is_ok());
        let cluster = cluster(&["n", "m"]);
        let failed = made(probe).evaluate(cluster.cluster(), &pod("p").build()).failed;
        assert_eq!(failed.map(|status| status.to_string()).as_deref(), Some(message));
    }
}

#[test]
fn without_score_plugins_the_first_feasible_node_is_chosen() {
    let log = Log::default();
    let none: [&str; 0] = [];
    let all = framework(vec![Probe::new("a", &log)]);
    let all = all.with_plugins_at(Point::Score, &none).unwrap();
    let decision = decide(all, &["x", "y", "z"]).unwrap();
    assert_eq!((decision.feasible, decision.looked_at), (1, 1));
}

/// Runs `work` in the cycle of a pod whose node is decided.
fn in_binding<R>(framework: &Framework, work: impl FnOnce(Cycle<'_>, &Name) -> R) -> R {
    let (cluster, pod) = (cluster(&["n"]), pod("p").build());
    let state = CycleState::default();
    let cycle = Cycle::new(cluster.cluster(), &pod, &state);
    assert!(framework.pre_filter(cycle).rejected().is_none());
    work(cycle, &"n".into())
}

#[test]
fn a_failed_reserve_is_the_last_and_all_are_undone_in_reverse_order() {
    let log = Log::default();
    for (code, message) in [
        (Code::Unschedulable, "b says no"),
        (Code::Error, "running Reserve plugin \"b\": b says no"),
    ] {
        let b = Probe::new("b", &log).returns("Reserve", code);
        let all = framework(vec![Probe::new("a", &log), b, Probe::new("c", &log)]);
        in_binding(&all, |cycle, node| {
            let status = all.reserve(cycle, node).unwrap_err();
            assert_eq!((status.code, status.plugin), (code, "b"));
            assert_eq!(status.to_string(), message);
            all.unreserve(cycle, node);
        });
        assert_eq!(
            heard(&log, &["Reserve", "Unreserve"]),
            ["a.Reserve", "b.Reserve", "c.Unreserve", "b.Unreserve", "a.Unreserve"]
        );
    }
}

#[test]
fn a_pod_waits_for_all_permits_unless_it_is_rejected() {
    let log = Log::default();
    let waits =
        |name, secs| Probe { waits: Some(Duration::from_secs(secs)), ..Probe::new(name, &log) };
    let now = Timestamp::from_secs(50);
    let no = |code| Probe::new("no", &log).returns("Permit", code);
    for (code, message) in [
        (Code::Unschedulable, "no says no"),
        (Code::Error, "running Permit plugin \"no\": no says no"),
    ] {
        let all = framework(vec![waits("a", 10), no(code), waits("b", 20)]);
        in_binding(&all, |cycle, node| {
            let status = all.permit(cycle, node, now).unwrap_err();
            assert_eq!((status.code, &*status.to_string()), (code, message));
            assert!(all.handle().waiting_pods().all().is_empty());
        });
        assert_eq!(heard(&log, &["Permit"]), ["a.Permit", "no.Permit"]);
    }
    let all = framework(vec![Probe::new("at once", &log), waits("a", 30), waits("b", 20)]);
    in_binding(&all, |cycle, node| {
        let wait = Permit::Wait(Duration::from_secs(20));
        assert_eq!(all.permit(cycle, node, now), Ok(wait));
        let waiting = all.handle().waiting_pods().get(&cycle.pod.uid).unwrap();
        assert_eq!(waiting.pending_plugins(), ["b", "a"]);
        assert_eq!(waiting.node(), node);
        waiting.allow("a");
        waiting.allow("b");
        assert_eq!(all.wait_on_permit(cycle.pod, || now), Ok(()));
        assert!(all.handle().waiting_pods().get(&cycle.pod.uid).is_none());

        all.permit(cycle, node, now).unwrap();
        let status = all.wait_on_permit(cycle.pod, || Timestamp::from_secs(70)).unwrap_err();
        assert_eq!(status.message(), "rejected due to timeout after waiting 20s at plugin b");

        all.permit(cycle, node, now).unwrap();
        assert!(all.handle().waiting_pods().reject(&cycle.pod.uid));
        let status = all.wait_on_permit(cycle.pod, || now).unwrap_err();
        assert_eq!((status.code, &*status.message()), (Code::Unschedulable, "removed"));
        // A pod that is not waiting is permitted.
        assert_eq!(all.wait_on_permit(cycle.pod, || now), Ok(()));
    });
}

#[test]
fn plugins_without_work_skip_pre_bind() {
    let log = Log::default();
    let skips = |name| Probe { skips: true, ..Probe::new(name, &log) };
    let all = framework(vec![skips("s"), Probe::new("a", &log)]);
    in_binding(&all, |cycle, node| {
        assert_eq!(all.pre_bind_pre_flight(cycle, node), Ok(PreFlight::Work));
        assert_eq!(all.pre_bind(cycle, node), Ok(()));
    });
    assert_eq!(heard(&log, &["PreBind"]), ["a.PreBind"]);
    let all = framework(vec![skips("s")]);
    in_binding(&all, |cycle, node| {
        assert_eq!(all.pre_bind_pre_flight(cycle, node), Ok(PreFlight::Skip));
    });
    for (code, message) in [
        (Code::Error, "running PreBindPreFlight \"a\": a says no"),
        (
            Code::Unschedulable,
            "PreBindPreFlight a returned \"Unschedulable\", which is unsupported. It is supposed \
             to return Success, Skip, or Error status",
        ),
    ] {
        let all = framework(vec![Probe::new("a", &log).returns("PreBindPreFlight", code)]);
        let status = in_binding(&all, |cycle, node| all.pre_bind_pre_flight(cycle, node));
        assert_eq!(status.unwrap_err().to_string(), message);
    }
    for (code, message) in [
        (Code::Unschedulable, "a says no"),
        (Code::Error, "running PreBind plugin \"a\": a says no"),
    ] {
        let a = Probe::new("a", &log).returns("PreBind", code);
        let all = framework(vec![a, Probe::new("b", &log)]);
        heard(&log, &[]);
        let status = in_binding(&all, |cycle, node| all.pre_bind(cycle, node)).unwrap_err();
        assert_eq!((status.code, &*status.to_string()), (code, message));
        assert_eq!(heard(&log, &["PreBind"]), ["a.PreBind"]);
    }
}

#[test]
fn the_first_plugin_that_does_not_skip_binds() {
    let log = Log::default();
    let skips = |name| Probe { skips: true, ..Probe::new(name, &log) };
    let all = framework(vec![skips("s"), Probe::new("a", &log), Probe::new("b", &log)]);
    in_binding(&all, |cycle, node| {
        assert_eq!(all.bind(cycle, node), Ok(Bind::Bound));
        all.post_bind(cycle, node);
    });
    assert_eq!(
        heard(&log, &["Bind", "PostBind"]),
        ["s.Bind", "a.Bind", "s.PostBind", "a.PostBind", "b.PostBind"]
    );
    let all = framework(vec![skips("s")]);
    assert_eq!(in_binding(&all, |cycle, node| all.bind(cycle, node)), Ok(Bind::Skip));
    let all = framework(vec![Probe::new("a", &log).returns("Bind", Code::Error)]);
    let status = in_binding(&all, |cycle, node| all.bind(cycle, node)).unwrap_err();
    assert_eq!(status.to_string(), "running Bind plugin \"a\": a says no");
}

#[test]
fn the_default_binder_binds_through_the_handle() {
    struct Bound(Mutex<Vec<(Uid, Name)>>);
    impl portolan::framework::Binder for Bound {
        fn bind(&self, pod: &Pod, node: &Name) -> Result<(), portolan::framework::BinderError> {
            match &**node {
                "gone" => Err("nodes \"gone\" not found".into()),
                _ => {
                    self.0.lock().unwrap().push((pod.uid.clone(), node.clone()));
                    Ok(())
                }
            }
        }
    }
    let bound = Arc::new(Bound(Mutex::default()));
    let all = Framework::default_profile_with(&Handle::default().with_binder(bound.clone()));
    in_binding(&all, |cycle, node| {
        assert_eq!(all.bind(cycle, node), Ok(Bind::Bound));
        assert_eq!(*bound.0.lock().unwrap(), [(cycle.pod.uid.clone(), node.clone())]);
        let status = all.bind(cycle, &"gone".into()).unwrap_err();
        let message = "running Bind plugin \"DefaultBinder\": nodes \"gone\" not found";
        assert_eq!(status.to_string(), message);
        let nobody = Framework::default_profile().bind(cycle, node).unwrap_err();
        assert!(nobody.to_string().contains("no binder"), "{nobody}");
    });
}

#[test]
fn pods_yield_to_nominated_pods_of_equal_or_higher_priority() {
    let cluster = cluster(&["n", "m"]);
    let pod = pod("p").cpu(3_000).priority(5).build();
    let decide = |nominated: &[(&str, i64, i32)], pod: &Pod| {
        let handle = Handle::default();
        for (name, cpu, priority) in nominated {
            let other = portolan::model::pod(*name).cpu(*cpu).priority(*priority).build();
            handle.nominator().add(other, "n".into());
        }
        let framework = Framework::default_profile_with(&handle);
        Algorithm::new(framework, AlgorithmConfig::default(), None).schedule(cluster.cluster(), pod)
    };
    assert_eq!(decide(&[], &pod).unwrap().feasible, 2);
    assert_eq!(decide(&[("low", 2_000, 4)], &pod).unwrap().feasible, 2);
    for priority in [5, 6] {
        let decision = decide(&[("high", 2_000, priority)], &pod).unwrap();
        assert_eq!((&*decision.node, decision.feasible), ("m", 1));
    }
    // Two nominated pods count together, and the pod itself does not count.
    let two = [("one", 600, 9), ("two", 600, 9), ("p", 4_000, 9)];
    assert_eq!(&*decide(&two, &pod).unwrap().node, "m");
    // A nominated pod is placed on its node if the node is feasible.
    let nominated = Pod { nominated_node_name: Some("n".into()), ..pod.clone() };
    let decision = decide(&[], &nominated).unwrap();
    assert_eq!((&*decision.node, decision.looked_at), ("n", 1));
    assert_eq!(&*decide(&[("high", 2_000, 6)], &nominated).unwrap().node, "m");
}

#[test]
fn a_node_must_be_feasible_without_the_nominated_pods_too() {
    use portolan::model::{LabelSelector, PodAffinity, PodAffinityTerm};
    let term = PodAffinityTerm {
        topology_key: "kubernetes.io/hostname".into(),
        selector: LabelSelector::from_labels([("app", "web")]),
        namespaces: Box::new(["default".into()]),
        namespace_selector: LabelSelector::Nothing,
    };
    let wants = || PodAffinity { required: Box::new([term.clone()]), ..PodAffinity::default() };
    let mut cluster = cluster(&["n", "m"]);
    let web = |name: &str| pod(name).label("app", "web").priority(9).build();
    let handle = Handle::default();
    handle.nominator().add(web("nominated"), "n".into());
    let all = Framework::default_profile_with(&handle);
    let statuses = |cluster: &Writer, pod: &Pod| -> Vec<bool> {
        let found = all.evaluate(cluster.cluster(), pod).nodes;
        ["n", "m"].map(|name| found[name].status.is_none()).to_vec()
    };
    // Affinity to the nominated pod does not count, because that pod may be placed elsewhere. Anti-affinity counts,
    // because it may be placed here.
    assert_eq!(statuses(&cluster, &pod("near").pod_affinity(wants()).build()), [false, false]);
    let far = pod("far").pod_anti_affinity(wants()).build();
    assert_eq!(statuses(&cluster, &far), [false, true]);
    cluster.add_pod(web("there").on("m")).unwrap();
    assert_eq!(statuses(&cluster, &far), [false, false]);
    // The anti-affinity of a nominated pod counts, too.
    let alone = pod("alone").priority(9).pod_anti_affinity(wants()).build();
    handle.nominator().add(alone, "m".into());
    let mut other = self::cluster(&["n", "m"]);
    other.add_pod(pod("apart").pod_anti_affinity(wants()).on("n").build()).unwrap();
    assert_eq!(statuses(&other, &web("web")), [false, false]);
    assert_eq!(handle.nominator().remove(&Uid::new("default/alone")), Some("m".into()));
    assert_eq!(statuses(&other, &web("web")), [false, true]);
}

#[test]
fn decisions_and_errors_do_not_depend_on_the_number_of_threads() {
    let (mut writer, _) = Engine::inline(Config::default());
    for n in 0..6_000_i64 {
        let node = node(format!("n{n}")).zone(format!("z{}", n % 5)).cpu(1_000 * (1 + n % 7));
        writer.add_node(node.memory(1 << 34).build()).unwrap();
    }
    let log = Log::default();
    let decisions = |threads: Option<usize>| {
        let pool = threads.map(|n| rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap());
        let pool = pool.map(Arc::new);
        let config = AlgorithmConfig { percentage_of_nodes: 100, seed: 7 };
        let mut good = Algorithm::new(Framework::default_profile(), config.clone(), pool.clone());
        let mut found = Vec::new();
        for n in 0..30 {
            let pod = pod(format!("p{n}")).cpu(100 * (n % 5)).memory(1 << 20).build();
            found.push(good.schedule(writer.cluster(), &pod));
        }
        // Two nodes fail: the error of the first in the order of chunks is reported.
        let fails =
            |name, on| Probe { on, ..Probe::new(name, &log).returns("Filter", Code::Error) };
        let all = framework(vec![fails("late", Some("n5998")), fails("early", Some("n2001"))]);
        found.push(Algorithm::new(all, config, pool).schedule(writer.cluster(), &pod("p").build()));
        found
    };
    let alone = decisions(None);
    assert!(matches!(alone.last(), Some(Err(ScheduleError::Plugin(_)))));
    for threads in [1, 2, 8] {
        assert_eq!(decisions(Some(threads)), alone, "{threads} threads");
    }
}

#[test]
fn a_recorder_gets_every_step_and_samples_plugins() {
    #[derive(Default)]
    struct Notes(Mutex<Vec<(&'static str, Step, Option<Code>)>>);
    impl Recorder for Notes {
        fn step(&self, step: Step, outcome: Option<Code>, _: Duration) {
            self.0.lock().unwrap().push(("", step, outcome));
        }
        fn plugin(&self, plugin: &'static str, step: Step, outcome: Option<Code>, _: Duration) {
            self.0.lock().unwrap().push((plugin, step, outcome));
        }
    }
    let log = Log::default();
    let notes = Arc::new(Notes::default());
    let all = framework(vec![Probe::new("a", &log)]).with_recorder(notes.clone(), 3);
    let mut scheduler = Algorithm::new(all, AlgorithmConfig::default(), None);
    let cluster = cluster(&["n", "m"]);
    let heard: Vec<_> = (0..3)
        .map(|_| {
            scheduler.schedule(cluster.cluster(), &pod("p").build()).unwrap();
            std::mem::take(&mut *notes.0.lock().unwrap())
        })
        .collect();
    let steps = [Step::PreFilter, Step::Filter, Step::PreScore, Step::Score];
    assert_eq!(heard[0].iter().map(|h| h.1).collect::<Vec<_>>(), steps);
    assert_eq!(heard[0], heard[1]);
    let with_plugins: Vec<_> = heard[2].iter().map(|h| (h.0, h.1)).collect();
    let both = steps.iter().flat_map(|step| [("a", *step), ("", *step)]);
    let mut both: Vec<_> = both.collect();
    // The scoring phase includes PreScore, so the order differs.
    both.sort();
    let mut sorted = with_plugins.clone();
    sorted.sort();
    assert_eq!(sorted, both);
}

/// A plugin that logs which nodes passed, and the status of the others.
struct Observer {
    log: Log,
    fails: bool,
}

impl Plugin for Observer {
    fn name(&self) -> &'static str {
        "Observer"
    }

    fn points(&self) -> &'static [Point] {
        &[]
    }

    fn has_after_filter(&self) -> bool {
        true
    }

    fn after_filter(
        &self,
        cycle: Cycle<'_>,
        feasible: &Feasible<'_>,
        diagnosis: &Diagnosis<'_>,
    ) -> Result<(), Status> {
        let mut passed: Vec<&str> = feasible.nodes().map(|node| &**node.name()).collect();
        passed.sort_unstable();
        let why = |node| Some(diagnosis.status(node)?.message());
        let others: Vec<String> = cycle.cluster.nodes().filter_map(why).collect();
        self.log.lock().unwrap().push(format!("{passed:?} {others:?}"));
        match self.fails {
            true => Err(Status::new(Code::Unschedulable, "", "the observer fails")),
            false => Ok(()),
        }
    }
}

#[test]
fn after_filter_runs_in_every_cycle() {
    let log = Log::default();
    let run = |probe: Probe, pod: &Pod, fails: bool| {
        let plugins: Vec<(Box<dyn Plugin>, i64)> =
            vec![(Box::new(probe), 1), (Box::new(Observer { log: log.clone(), fails }), 0)];
        let config = AlgorithmConfig { percentage_of_nodes: 100, seed: 1 };
        let mut scheduler = Algorithm::new(Framework::new(plugins).unwrap(), config, None);
        log.lock().unwrap().clear();
        let decided = scheduler.schedule(cluster(&["a", "b"]).cluster(), pod);
        let heard = std::mem::take(&mut *log.lock().unwrap());
        // AfterFilter runs before PostFilter and PreScore, which run only if they are needed.
        let steps = ["p.PostFilter", "p.PreScore", "["];
        let heard =
            heard.into_iter().filter(|line| steps.iter().any(|step| line.starts_with(step)));
        (decided, heard.collect::<Vec<String>>())
    };
    let made = |on: Option<&'static str>| {
        let made = Probe::new("p", &log);
        match on {
            Some("all") => made.returns("Filter", Code::Unschedulable),
            Some(on) => Probe { on: Some(on), ..made.returns("Filter", Code::Unschedulable) },
            None => made,
        }
    };
    let plain = pod("p").cpu(100).build();
    let (decided, heard) = run(made(None), &plain, false);
    assert!(decided.is_ok());
    assert_eq!(heard, [r#"["a", "b"] []"#, "p.PreScore"], "several feasible nodes");
    let (decided, heard) = run(made(Some("a")), &plain, false);
    assert_eq!(&*decided.unwrap().node, "b");
    assert_eq!(heard, [r#"["b"] ["p says no"]"#], "one feasible node, no scores");
    let (decided, heard) = run(made(Some("all")), &plain, false);
    assert!(decided.is_err());
    assert_eq!(heard, [r#"[] ["p says no", "p says no"]"#, "p.PostFilter"], "no feasible node");
    let nominated = Pod { nominated_node_name: Some("b".into()), ..plain.clone() };
    let (decided, heard) = run(made(None), &nominated, false);
    assert_eq!(&*decided.unwrap().node, "b");
    assert_eq!(heard, [r#"["b"] []"#], "a nominated node");
    let rejecting = Probe::new("p", &log).returns("PreFilter", Code::Unschedulable);
    let (decided, heard) = run(rejecting, &plain, false);
    assert!(decided.is_err());
    assert_eq!(
        heard,
        [r#"[] ["p says no", "p says no"]"#, "p.PostFilter"],
        "rejected by PreFilter"
    );
    let (decided, heard) = run(made(None), &plain, true);
    assert_eq!(failure(decided), "running AfterFilter plugin \"Observer\": the observer fails");
    assert_eq!(heard.len(), 1, "nothing is scored after an error");
}

/// Scores a node by its name in `normalize`.
struct ByName;

impl Plugin for ByName {
    fn name(&self) -> &'static str {
        "ByName"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::Score]
    }

    fn pre_score<'a>(&'a self, _: Cycle<'a>, _: &'a Feasible<'a>) -> Result<PreScore<'a>, Status> {
        Ok(PreScore::Score(Box::new(ByName)))
    }
}

impl Score for ByName {
    fn score(&self, node: NodeInfo<'_>) -> Result<i64, Status> {
        Ok(node.name()[1..].parse().unwrap())
    }

    fn needs_normalize(&self) -> bool {
        true
    }

    fn normalize(&self, nodes: &ScoredNodes<'_>, scores: &mut [i64]) -> Result<(), Status> {
        assert_eq!(nodes.iter().count(), scores.len());
        for (node, score) in nodes.iter().zip(scores) {
            assert_eq!(node.name()[1..].parse(), Ok(*score), "each score belongs to its node");
            *score = if &**node.name() == "n77" { MAX_NODE_SCORE } else { MIN_NODE_SCORE };
        }
        Ok(())
    }
}

#[test]
fn scores_are_normalized_with_the_names_of_their_nodes() {
    let (mut writer, _) = Engine::inline(Config::default());
    for n in 0..200 {
        let node = node(format!("n{n}")).zone(format!("z{}", n % 3));
        // Some lanes of a chunk are not feasible.
        writer.add_node(node.cpu(if n % 5 == 0 { 50 } else { 1_000 }).build()).unwrap();
    }
    let framework = || {
        let plugins: Vec<(Box<dyn Plugin>, i64)> =
            vec![(Box::new(NodeResourcesFit::default()), 1), (Box::new(ByName), 10)];
        Framework::new(plugins).unwrap()
    };
    let pod = pod("p").cpu(100).build();
    let config = AlgorithmConfig { percentage_of_nodes: 100, seed: 1 };
    let mut scheduler = Algorithm::new(framework(), config, None);
    assert_eq!(&*scheduler.schedule(writer.cluster(), &pod).unwrap().node, "n77");
    let state = CycleState::default();
    let by_nodes = scheduler.decide_by_nodes(Cycle::new(writer.cluster(), &pod, &state)).unwrap();
    assert_eq!(&*by_nodes.node, "n77");
    assert_eq!(framework().evaluate(writer.cluster(), &pod).failed, None);
}

/// A filter that fails on each node with the node's name.
struct FailsOnEachNode;

impl Plugin for FailsOnEachNode {
    fn name(&self) -> &'static str {
        "FailsOnEachNode"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::Filter]
    }

    fn pre_filter<'a>(&'a self, _: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        Ok(PreFilter::Filter(Box::new(FailsOnEachNode)))
    }
}

impl Filter for FailsOnEachNode {
    fn filter(&self, node: NodeInfo<'_>) -> Option<Status> {
        Some(Status::error("FailsOnEachNode", format!("no verdict on {}", node.name())))
    }
}

#[test]
fn of_several_failures_the_first_in_list_order_is_reported() {
    let (mut writer, _) = Engine::inline(Config::default());
    for n in 0..3 {
        let zone = format!("z{n}");
        writer.add_node(node(format!("n{n}")).zone(zone).cpu(1_000).build()).unwrap();
    }
    // Without scores one feasible node is enough, so the list is examined in order.
    let framework = Framework::new(vec![(Box::new(FailsOnEachNode) as Box<dyn Plugin>, 0)]);
    let mut algorithm = Algorithm::new(framework.unwrap(), AlgorithmConfig::default(), None);
    let error = algorithm.schedule(writer.cluster(), &pod("p").build()).unwrap_err();
    assert!(error.to_string().contains("no verdict on n0"), "{error}");
}

/// A plugin that allows only the nodes `red` and `blue`.
struct NamesBoth;

impl Plugin for NamesBoth {
    fn name(&self) -> &'static str {
        "NamesBoth"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::Filter]
    }

    fn pre_filter<'a>(&'a self, _: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        Ok(PreFilter::Only(vec!["blue".into(), "red".into()], Box::new(Anywhere)))
    }
}

struct Anywhere;

impl Filter for Anywhere {
    fn filter(&self, _: NodeInfo<'_>) -> Option<Status> {
        None
    }
}

/// Without NodeAffinity no filter repeats the restriction to the sub-cluster.
#[test]
fn nodes_outside_the_sub_cluster_are_not_chosen_even_if_named_or_nominated() {
    let (mut writer, _) = Engine::inline(Config::default());
    for region in ["blue", "red"] {
        writer.add_node(node(region).label("region", region).cpu(1_000).build()).unwrap();
    }
    let nominated = Pod { nominated_node_name: Some("blue".into()), ..pod("p").build() };
    let plugins: [Box<dyn Plugin>; 2] =
        [Box::new(NamesBoth), Box::new(NodeResourcesFit::default())];
    for (plugin, pod) in plugins.into_iter().zip([pod("p").build(), nominated]) {
        let framework = Framework::new(vec![(plugin, 1)]).unwrap();
        let mut red = Algorithm::new(framework, AlgorithmConfig::default(), None)
            .with_sub_cluster(SubCluster::new("region", "red"));
        let state = red.state();
        let cycle = Cycle::new(writer.cluster(), &pod, &state);
        let expected = red.decide_by_nodes(cycle).unwrap();
        assert_eq!((&*expected.node, expected.looked_at), ("red", 1));
        assert_eq!(red.decide(cycle).unwrap(), expected);
    }
}
