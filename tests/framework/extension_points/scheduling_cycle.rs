//! The extension points of the scheduling cycle.

use portolan::cache::{Config, Engine};
use portolan::model::{Name, node, pod};
use portolan::plugin::{Code, Cycle, CycleState, Nomination, Point};
use portolan::{Algorithm, AlgorithmConfig, Framework, FrameworkError};

use super::probe::{Log, Probe, cluster, decide, failure, fit_error, framework, heard};

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
