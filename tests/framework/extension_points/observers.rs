//! Observers of a cycle: recorders and AfterFilter. Also tests that the number of threads changes nothing.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use portolan::cache::{Config, Engine};
use portolan::model::{Pod, node, pod};
use portolan::plugin::{
    Code, Cycle, Diagnosis, Feasible, Measurement, Plugin, PreFilter, Recorder, Status, Step,
};
use portolan::{Algorithm, AlgorithmConfig, Failure, Framework};
use portolan_testkit::plugin;

use super::probe::{Log, Probe, cluster, failure, framework};

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
    assert!(matches!(alone.last(), Some(Err(Failure::Plugin(_)))));
    for threads in [1, 2, 8] {
        assert_eq!(decisions(Some(threads)), alone, "{threads} threads");
    }
}

#[derive(Default)]
struct Notes(Mutex<Vec<(&'static str, Step, Option<Code>)>>);

impl Recorder for Notes {
    fn record(&self, what: Measurement, _: Duration) {
        self.0.lock().unwrap().extend(match what {
            Measurement::Step(step, outcome) => Some(("", step, outcome)),
            Measurement::Plugin(plugin, step, outcome) => Some((plugin, step, outcome)),
            _ => None,
        });
    }
}

/// Switches the recording of plugins on for the pod `on`, and off for all others.
struct Switch;

impl Plugin for Switch {
    plugin!("Switch", PreFilter);

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        let was_recorded = cycle.state.records_plugin_metrics();
        cycle.state.set_records_plugin_metrics(&*cycle.pod.name == "on");
        assert_eq!(cycle.state.clone().records_plugin_metrics(), &*cycle.pod.name == "on");
        assert_eq!(was_recorded, &*cycle.pod.name != "on");
        Ok(PreFilter::Skip)
    }
}

#[test]
fn metrics_of_plugins_follow_the_state_of_the_cycle() {
    let cluster = cluster(&["n", "m"]);
    // By default, the plugins of every pod are recorded in the first run, and those of none in the second.
    for (one_in, name, is_recorded) in [(1, "off", false), (1_000, "on", true)] {
        let (log, notes) = (Log::default(), Arc::new(Notes::default()));
        let plugins: Vec<(Box<dyn Plugin>, i64)> =
            vec![(Box::new(Switch), 1), (Box::new(Probe::new("a", &log)), 1)];
        let all = Framework::new(plugins).unwrap().with_recorder(notes.clone(), one_in);
        let mut scheduler = Algorithm::new(all, AlgorithmConfig::default(), None);
        scheduler.schedule(cluster.cluster(), &pod(name).build()).unwrap();
        let heard = std::mem::take(&mut *notes.0.lock().unwrap());
        let of = |plugin: &str, step| heard.iter().any(|(a, b, _)| *a == plugin && *b == step);
        assert_eq!([of("a", Step::Filter), of("a", Step::Score)], [is_recorded; 2], "{name}");
        assert!(of("", Step::Filter) && of("", Step::Score), "steps are always recorded");
    }
}

#[test]
fn a_recorder_gets_every_step_and_samples_plugins() {
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
    plugin!("Observer"; .after_filter());

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
