//! Extenders in the scheduling cycle: filters, scores, preemption, and the messages of kube-scheduler.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use portolan::cache::{Config, Engine, NodeInfo, Writer};
use portolan::model::{Name, Pod, PodBuilder, Uid, node, pod};
use portolan::plugin::preemption::Candidate;
use portolan::plugin::{
    Cycle, CycleState, EXTENDER, Eviction, Extender, ExtenderError, ExtenderFilter,
    ExtenderVictims, Handle, Nomination, Point,
};
use portolan::{Algorithm, AlgorithmConfig, Decision, Evictor, Failure, FitError, Framework};

type Filters = fn(&str) -> Verdict;
type Preempts = fn(&[Candidate]) -> Result<Vec<ExtenderVictims>, ExtenderError>;

enum Verdict {
    Pass,
    Fail(&'static str),
    Never(&'static str),
    Silence,
}
use Verdict::{Fail, Never, Pass, Silence};

/// An extender in the process, which records its calls.
#[derive(Default)]
struct Service {
    name: &'static str,
    is_ignorable: bool,
    wants: Option<&'static str>,
    filters: Option<Filters>,
    fails: Option<&'static str>,
    names_others: bool,
    panics: bool,
    scores: Option<(i64, Vec<(&'static str, i64)>)>,
    preempts: Option<Preempts>,
    calls: Mutex<Vec<String>>,
}

impl Service {
    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    fn note(&self, call: &str, nodes: &[NodeInfo<'_>]) -> Result<(), ExtenderError> {
        let mut names: Vec<&str> = nodes.iter().map(|node| &**node.name()).collect();
        names.sort_unstable();
        self.calls.lock().unwrap().push(format!("{} {call} {}", self.name, names.join(",")));
        assert!(!self.panics, "out of order");
        self.fails.map_or(Ok(()), |why| Err(why.into()))
    }
}

impl Extender for Service {
    fn name(&self) -> &str {
        self.name
    }

    fn is_interested(&self, pod: &Pod) -> bool {
        self.wants.is_none_or(|name| *name == *pod.name)
    }

    fn is_ignorable(&self) -> bool {
        self.is_ignorable
    }

    fn is_filter(&self) -> bool {
        self.filters.is_some()
    }

    fn filter(&self, _: &Pod, nodes: &[NodeInfo<'_>]) -> Result<ExtenderFilter, ExtenderError> {
        self.note("filter", nodes)?;
        let mut answer = ExtenderFilter::default();
        for name in nodes.iter().map(|node| node.name().clone()) {
            match self.filters.map_or(Pass, |filters| filters(&name)) {
                Pass => answer.passed.push(name),
                Fail(why) => answer.failed.push((name, why.to_owned())),
                Never(why) => {
                    // Takes precedence over the other list.
                    answer.failed.push((name.clone(), "overruled".to_owned()));
                    answer.unresolvable.push((name, why.to_owned()));
                }
                Silence => {}
            }
        }
        if self.names_others {
            answer.passed.push("n9".into());
        }
        Ok(answer)
    }

    fn weight(&self) -> Option<i64> {
        self.scores.as_ref().map(|(weight, _)| *weight)
    }

    fn prioritize(
        &self,
        _: &Pod,
        nodes: &[NodeInfo<'_>],
    ) -> Result<Vec<(Name, i64)>, ExtenderError> {
        self.note("score", nodes)?;
        let (_, scores) = self.scores.as_ref().expect("scores");
        Ok(scores.iter().map(|(name, score)| ((*name).into(), *score)).collect())
    }

    fn supports_preemption(&self) -> bool {
        self.preempts.is_some()
    }

    fn preempt(
        &self,
        _: &Pod,
        candidates: &[Candidate],
    ) -> Result<Vec<ExtenderVictims>, ExtenderError> {
        self.note("preempt", &[])?;
        self.preempts.expect("asked only if supported")(candidates)
    }
}

fn filter(name: &'static str, filters: Filters) -> Service {
    Service { name, filters: Some(filters), ..Service::default() }
}

/// Evicts nothing, and records the requested evictions.
#[derive(Default)]
struct Asked(Mutex<Vec<(Name, Vec<String>)>>);

impl Evictor for Asked {
    fn evict(&self, eviction: Eviction) {
        let victims = eviction.victims().iter().map(|pod| pod.name.to_string()).collect();
        self.0.lock().unwrap().push((eviction.node().clone(), victims));
    }
}

/// A cluster, and an algorithm with extenders and the default profile.
struct Setup {
    writer: Writer,
    algorithm: Algorithm,
    handle: Handle,
    evicted: Arc<Asked>,
}

fn setup<const N: usize>(nodes: &[(&str, i64)], extenders: [&Arc<Service>; N]) -> Setup {
    let (mut writer, _) = Engine::inline(Config::default());
    for (name, cpu) in nodes {
        writer.add_node(node(*name).cpu(*cpu).memory(64 << 30).pods(10).build()).unwrap();
    }
    let evicted = Arc::new(Asked::default());
    let extenders = extenders.map(|extender| extender.clone() as Arc<dyn Extender>);
    let handle = Handle::default().with_extenders(extenders).with_evictor(evicted.clone());
    let framework = Framework::default_profile_with(&handle);
    let algorithm = Algorithm::new(framework, AlgorithmConfig::default(), None);
    Setup { writer, algorithm, handle, evicted }
}

impl Setup {
    /// Returns the decision, which is the same by chunks and by nodes.
    fn decide(&mut self, pod: &Pod) -> Result<Decision, Failure> {
        let state = CycleState::default();
        let cycle = Cycle::new(self.writer.cluster(), pod, &state);
        let by_nodes = self.algorithm.decide_by_nodes(cycle);
        let decided = self.algorithm.decide(cycle);
        match (&decided, &by_nodes) {
            (Err(Failure::Fit(decided)), Err(Failure::Fit(by_nodes))) => {
                // Deciding by nodes does not preempt.
                assert_eq!(decided.reasons, by_nodes.reasons);
                assert_eq!(decided.unschedulable_plugins, by_nodes.unschedulable_plugins);
            }
            _ => assert_eq!(decided, by_nodes),
        }
        decided
    }

    fn node(&mut self, pod: &Pod) -> String {
        self.decide(pod).unwrap().node.to_string()
    }

    fn fit(&mut self, pod: &Pod) -> FitError {
        match self.decide(pod).unwrap_err() {
            Failure::Fit(error) => *error,
            error => panic!("{error}"),
        }
    }

    fn error(&mut self, pod: &Pod) -> String {
        self.decide(pod).unwrap_err().to_string()
    }

    fn add(&mut self, pod: PodBuilder, on: &str) {
        self.writer.add_pod(pod.on(on).build()).unwrap();
    }

    fn evicted(&self) -> Vec<(Name, Vec<String>)> {
        std::mem::take(&mut self.evicted.0.lock().unwrap())
    }
}

fn web() -> Pod {
    pod("web").cpu(100).build()
}

const FOUR: [(&str, i64); 4] = [("n1", 1_000), ("n2", 1_000), ("n3", 1_000), ("n4", 10)];

#[test]
fn extenders_are_called_in_order_with_the_remaining_nodes() {
    let first = Arc::new(filter("first", |node| if node == "n1" { Fail("taken") } else { Pass }));
    let ignorable = Service { is_ignorable: true, ..filter("ignorable", |_| Pass) };
    let (ignorable, last) = (Arc::new(ignorable), Arc::new(filter("last", |_| Pass)));
    let mut setup = setup(&FOUR, [&ignorable, &first, &last]);
    let node = setup.node(&web());
    assert!(node == "n2" || node == "n3", "{node}");
    let twice = |call: &str| vec![call.to_owned(); 2];
    assert_eq!(first.calls(), twice("first filter n1,n2,n3"));
    assert_eq!(last.calls(), twice("last filter n2,n3"));
    assert_eq!(ignorable.calls(), twice("ignorable filter n2,n3"));
    let names: Vec<&str> = setup.handle.extenders().iter().map(|of| of.name()).collect();
    assert_eq!(names, ["first", "last", "ignorable"]);
}

#[test]
fn the_message_counts_the_reasons_of_extenders_and_plugins() {
    let service = Arc::new(filter("e", |node| match node {
        "n1" => Fail("no license"),
        "n2" => Never("no slot"),
        _ => Silence,
    }));
    let mut setup = setup(&FOUR, [&service]);
    let error = setup.fit(&web());
    assert_eq!(
        error.to_string(),
        "0/4 nodes are available: 1 Insufficient cpu, 1 no license, 1 no slot. preemption: 0/4 nodes are \
         available: 1 No preemption victims found for incoming pod, 3 Preemption is not helpful for \
         scheduling."
    );
    let plugins: Vec<&str> = error.unschedulable_plugins.into_iter().collect();
    assert_eq!(plugins, [EXTENDER, "NodeResourcesFit"]);
}

#[test]
fn a_status_of_an_extender_replaces_that_of_plugins() {
    #[derive(Debug)]
    struct Meddling;
    impl Extender for Meddling {
        fn name(&self) -> &str {
            "meddling"
        }
        fn is_filter(&self) -> bool {
            true
        }
        fn filter(&self, _: &Pod, _: &[NodeInfo<'_>]) -> Result<ExtenderFilter, ExtenderError> {
            let mut answer = ExtenderFilter::default();
            answer.failed = vec![("n4".into(), "mine".into()), ("unknown".into(), "mine".into())];
            Ok(answer)
        }
    }
    let mut setup = setup(&FOUR, []);
    let handle = Handle::default().with_extenders([Arc::new(Meddling) as Arc<dyn Extender>]);
    let framework = Framework::default_profile_with(&handle);
    setup.algorithm = Algorithm::new(framework, AlgorithmConfig::default(), None);
    assert_eq!(setup.fit(&web()).reasons, BTreeMap::from([("mine".to_owned(), 2)]));
}

#[test]
fn a_failing_extender_fails_the_attempt_unless_it_is_ignorable() {
    let broken = || Service { fails: Some("connection refused"), ..filter("broken", |_| Pass) };
    let strict = Arc::new(broken());
    assert_eq!(setup(&FOUR, [&strict]).error(&web()), "connection refused");
    let ignorable = Arc::new(Service { is_ignorable: true, ..broken() });
    assert!(setup(&FOUR, [&ignorable]).decide(&web()).is_ok());
    let panicking = Arc::new(Service { panics: true, ..filter("e", |_| Pass) });
    let mut failing = setup(&FOUR, [&panicking]);
    assert_eq!(failing.error(&web()), "panicked in Filter: out of order");
    assert_eq!(failing.handle.panics().count(), 2);
}

#[test]
fn a_node_that_was_not_sent_is_an_error() {
    let service = |is_ignorable| Service {
        names_others: true,
        is_ignorable,
        ..filter("http://e", |node| if node == "n1" { Pass } else { Fail("no") })
    };
    let strict = Arc::new(service(false));
    assert_eq!(
        setup(&FOUR, [&strict]).error(&web()),
        "extender \"http://e\" claims a filtered node \"n9\" which is not found in the input node list"
    );
    // The whole answer of an ignorable extender is left out.
    let ignorable = Arc::new(service(true));
    assert_eq!(setup(&FOUR, [&ignorable]).decide(&web()).unwrap().feasible, 3);
}

#[test]
fn an_extender_is_not_called_for_pods_that_do_not_interest_it() {
    let service = Arc::new(Service { wants: Some("other"), ..filter("e", |_| Fail("no")) });
    let mut setup = setup(&FOUR, [&service]);
    assert!(setup.decide(&web()).is_ok());
    assert_eq!(service.calls(), Vec::<String>::new());
    assert_eq!(setup.fit(&pod("other").build()).reasons.get("no"), Some(&4));
}

#[test]
fn a_nominated_node_must_pass_the_extenders() {
    let service = Arc::new(filter("e", |node| if node == "n1" { Fail("no") } else { Pass }));
    let mut setup = setup(&FOUR, [&service]);
    let nominated = |node: &str| Pod { nominated_node_name: Some(node.into()), ..web() };
    assert_eq!(setup.node(&nominated("n2")), "n2");
    assert_eq!(service.calls(), vec!["e filter n2"; 2]);
    assert_ne!(setup.node(&nominated("n1")), "n1");
    assert_eq!(service.calls(), ["e filter n1", "e filter n1,n2,n3"].repeat(2));
}

#[test]
fn scores_are_weighted_and_scaled_to_those_of_plugins() {
    let scores = |weight, scores: &[(&'static str, i64)]| Service {
        name: "s",
        scores: Some((weight, scores.to_vec())),
        ..Service::default()
    };
    let base = setup(&FOUR, []).decide(&web()).unwrap().score;
    let one = Arc::new(scores(2, &[("n3", 7), ("n2", 1), ("unknown", 10), ("n2", 3)]));
    let decision = setup(&FOUR, [&one]).decide(&web()).unwrap();
    assert_eq!((&*decision.node, decision.score), ("n3", base + 7 * 2 * 10));
    // Several extenders are called at once. One that fails is left out, also if it is not ignorable.
    let other = Arc::new(scores(3, &[("n2", 8), ("n3", 1)]));
    let broken = Service { fails: Some("no"), ..scores(100, &[("n1", 10)]) };
    let decision = setup(&FOUR, [&one, &other, &Arc::new(broken)]).decide(&web()).unwrap();
    assert_eq!((&*decision.node, decision.score), ("n2", base + (4 * 2 + 8 * 3) * 10));
    let endless = Arc::new(scores(i64::MAX, &[("n1", i64::MAX), ("n2", i64::MIN)]));
    let decision = setup(&FOUR, [&endless, &endless]).decide(&web()).unwrap();
    assert_eq!((&*decision.node, decision.score), ("n1", i64::MAX));
}

#[test]
fn an_extender_that_scores_is_called_even_without_score_plugins() {
    let service = Service { name: "s", scores: Some((1, vec![("n3", 1)])), ..Service::default() };
    let service = Arc::new(service);
    let mut setup = setup(&FOUR, []);
    let handle = Handle::default().with_extenders([service.clone() as Arc<dyn Extender>]);
    let fit = portolan::plugin::NodeResourcesFit::default();
    let framework = Framework::new(vec![(Box::new(fit), 1)]).unwrap().with_handle(handle);
    let framework = framework.with_plugins_at(Point::Score, &[""; 0]).unwrap();
    setup.algorithm = Algorithm::new(framework, AlgorithmConfig::default(), None);
    let decision = setup.decide(&web()).unwrap();
    assert_eq!((&*decision.node, decision.score, decision.feasible), ("n3", 10, 3));
}

/// Two full nodes whose pods have a lower priority, and a preemptor.
fn full<const N: usize>(extenders: [&Arc<Service>; N]) -> (Setup, Pod) {
    let mut setup = setup(&[("n1", 1_000), ("n2", 1_000)], extenders);
    setup.add(pod("low").cpu(1_000).priority(1), "n1");
    setup.add(pod("mid").cpu(1_000).priority(2), "n2");
    (setup, pod("high").cpu(500).priority(10).build())
}

fn preempting(preempts: Preempts) -> Service {
    Service { name: "http://p", preempts: Some(preempts), ..Service::default() }
}

fn victims(node: &str, pods: &[&str]) -> ExtenderVictims {
    let pods = pods.iter().map(|uid| Uid::new(uid)).collect();
    ExtenderVictims { node: node.into(), pods, violations: 0 }
}

#[test]
fn extenders_choose_among_the_candidates() {
    let (mut plain, high) = full([]);
    assert_eq!(plain.fit(&high).nomination, Nomination::Node("n1".into()));
    let second = Arc::new(preempting(|found| {
        let mut names: Vec<&str> = found.iter().map(|candidate| &*candidate.node).collect();
        names.sort_unstable();
        assert_eq!(names, ["n1", "n2"]);
        Ok(vec![victims("n2", &["default/mid"])])
    }));
    let (mut setup, high) = full([&second]);
    assert_eq!(setup.fit(&high).nomination, Nomination::Node("n2".into()));
    assert_eq!(setup.evicted(), [("n2".into(), vec!["mid".to_owned()])]);
    // The next extender gets the candidates that the first one left.
    let next = Arc::new(preempting(|found| {
        assert_eq!(found.len(), 1);
        Ok(found.iter().map(ExtenderVictims::of).collect())
    }));
    let (mut setup, high) = full([&second, &next]);
    assert_eq!(setup.fit(&high).nomination, Nomination::Node("n2".into()));
}

#[test]
fn a_preemption_that_an_extender_prevents_has_kube_schedulers_message() {
    let message = |service: Service| {
        let (mut setup, high) = full([&Arc::new(service)]);
        let error = setup.fit(&high);
        assert_eq!((error.nomination, setup.evicted()), (Nomination::Keep, Vec::new()));
        error.post_filter.unwrap().message()
    };
    let none = preempting(|_| Ok(Vec::new()));
    assert_eq!(message(none), "preemption: no candidate node for preemption");
    let failing = || preempting(|_| Err("timeout".into()));
    assert_eq!(message(failing()), "preemption: timeout");
    let empty = || preempting(|_| Ok(vec![victims("n1", &[])]));
    assert_eq!(message(empty()), "preemption: expected at least one victim pod on node \"n1\"");
    let other = preempting(|_| Ok(vec![victims("n9", &["default/low"])]));
    assert_eq!(message(other), "preemption: nodeinfo not found for node name \"n9\"");
    let wrong = preempting(|_| Ok(vec![victims("n1", &["default/mid"])]));
    assert_eq!(
        message(wrong),
        "preemption: extender: http://p claims to preempt pod (UID: &{default/mid}) on node: n1, but the pod is \
         not found on that node"
    );
    let ignorable = |service: Service| {
        let (mut setup, high) = full([&Arc::new(Service { is_ignorable: true, ..service })]);
        setup.fit(&high).nomination
    };
    assert_eq!(ignorable(failing()), Nomination::Node("n1".into()));
    assert_eq!(ignorable(empty()), Nomination::Keep);
}

#[test]
fn preemption_is_tried_on_nodes_that_an_extender_rejects_as_resolvable() {
    // As in kube-scheduler, it is an error if the plugins pass the node without the removal of any pod.
    let fails = Arc::new(filter("e", |_| Fail("busy")));
    let setup_with = |service: &Arc<Service>| {
        let mut setup = setup(&[("n1", 1_000), ("n2", 1_000)], [service]);
        setup.add(pod("low").cpu(100).priority(1), "n1");
        setup.fit(&pod("high").cpu(100).priority(10).build()).to_string()
    };
    assert_eq!(
        setup_with(&fails),
        "0/2 nodes are available: 2 busy. preemption: expected at least one victim pod on node \"n1\""
    );
    let never = Arc::new(filter("e", |_| Never("broken")));
    assert_eq!(
        setup_with(&never),
        "0/2 nodes are available: 2 broken. preemption: 0/2 nodes are available: 2 Preemption is not helpful \
         for scheduling."
    );
}

#[test]
fn nodes_that_were_not_examined_count_in_the_message() {
    let mut nodes: Vec<(String, i64)> = (0..300).map(|at| (format!("m{at}"), 1_000)).collect();
    nodes.extend((0..5).map(|at| (format!("small{at}"), 10)));
    let nodes: Vec<(&str, i64)> = nodes.iter().map(|(name, cpu)| (&**name, *cpu)).collect();
    let service = Arc::new(filter("e", |_| Never("no")));
    let reasons = setup(&nodes, [&service]).fit(&web()).reasons;
    // 48 percent of the nodes passed the plugins and were sent. Kube-scheduler counts the small nodes only if its search
    // reached them.
    assert_eq!((reasons.get("no"), reasons.get("Insufficient cpu")), (Some(&146), Some(&5)));
}

#[test]
fn a_sampled_search_continues_with_the_nodes_that_extenders_pass() {
    let nodes: Vec<(String, i64)> = (0..300).map(|at| (format!("m{at}"), 1_000)).collect();
    let nodes: Vec<(&str, i64)> = nodes.iter().map(|(name, cpu)| (&**name, *cpu)).collect();
    let service = Arc::new(filter("e", |node| if node.ends_with('7') { Pass } else { Silence }));
    let mut setup = setup(&nodes, [&service]);
    let decision = setup.decide(&web()).unwrap();
    assert!(decision.node.ends_with('7'));
    // 48 percent of 300 nodes are examined, and one in ten of these passes.
    assert_eq!((decision.looked_at, decision.feasible), (144, 14));
}
