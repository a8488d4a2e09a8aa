//! The error of a pod that fits nowhere, and the nodes on which preemption is tried, are computed 64 nodes at a time.
//! Both must equal the results computed from the statuses of single nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use portolan::cache::{NodeInfo, Writer};
use portolan::model::{Name, Pod, Uid};
use portolan::plugin::preemption::DryRun;
use portolan::plugin::{
    Code, Cycle, Diagnosis, Filter, Handle, Nomination, Plugin, PluginInfo, Point, PreFilter,
    Status, default_plugins,
};
use portolan::{Algorithm, AlgorithmConfig, Failure, FitError, Framework};
use portolan_testkit::checks::decided_by_nodes;
use portolan_testkit::draw::Draw;
use portolan_testkit::plugin;
use proptest::prelude::*;

use super::chunk_paths::cluster;

/// How [`Own`] plugins answer in the next cycle.
const ACCEPTS: u64 = 0;
const REJECTS_SOME: u64 = 1;
const REJECTS_ALL: u64 = 2;
const NAMES_NODES: u64 = 3;
const REJECTS_THE_POD: u64 = 4;

/// A user's plugin, whose filter judges single nodes only.
struct Own {
    name: &'static str,
    is_local: bool,
    /// One of the constants. Constant if the plugin is local.
    mode: Arc<AtomicU64>,
}

struct OwnFilter {
    name: &'static str,
    mode: u64,
}

impl Plugin for Own {
    fn info(&self) -> PluginInfo {
        let info = PluginInfo::new(self.name, &[Point::PreFilter, Point::Filter]);
        if self.is_local { info.local() } else { info }
    }

    fn pre_filter<'a>(&'a self, _: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        let mode = self.mode.load(Ordering::Relaxed);
        let filter = Box::new(OwnFilter { name: self.name, mode });
        match mode {
            ACCEPTS => Ok(PreFilter::Skip),
            NAMES_NODES => {
                let names = [1, 2, 2, 40, 66, 130, 1_000].map(|n| Name::from(format!("n{n}")));
                Ok(PreFilter::Only(names.to_vec(), filter))
            }
            REJECTS_THE_POD => Err(Status::new(Code::Unschedulable, self.name, "not this pod")),
            _ => Ok(PreFilter::Filter(filter)),
        }
    }
}

impl Filter for OwnFilter {
    fn filter(&self, node: NodeInfo<'_>) -> Option<Status> {
        let number: u64 = node.name()[1..].parse().unwrap();
        let code = match number % 3 {
            0 => Code::Unschedulable,
            _ => Code::UnschedulableAndUnresolvable,
        };
        let reasons = match number % 5 {
            0 => vec![format!("{} rejects it", self.name), "five".to_owned()],
            1 => vec!["Insufficient cpu".to_owned()],
            rest => vec![format!("{rest} is left")],
        };
        let rejects = self.mode == REJECTS_ALL || number % 7 < 5;
        rejects.then_some(Status { code, plugin: self.name, reasons })
    }
}

/// The statuses of all nodes, computed one by one.
#[derive(Debug, Default)]
struct ByNodes {
    reasons: BTreeMap<String, usize>,
    plugins: BTreeSet<&'static str>,
    /// Whether PreFilter named the only nodes.
    are_named: bool,
    /// The nodes on which preemption may help.
    resolvable: BTreeSet<Name>,
    /// The same nodes, by chunk.
    by_chunk: BTreeSet<Name>,
    /// Those that are candidates, each with whether it needs no victims.
    candidates: BTreeMap<Name, bool>,
    /// Why the other nodes are not candidates.
    not_helped: BTreeMap<String, usize>,
}

/// Examines each node before preemption does.
struct Watch(Arc<Mutex<Option<ByNodes>>>);

impl Plugin for Watch {
    plugin!("Watch", PostFilter);

    fn post_filter(
        &self,
        cycle: Cycle<'_>,
        diagnosis: &Diagnosis<'_>,
    ) -> (Nomination, Option<Status>) {
        let are_named = diagnosis.filters().names().is_some();
        let mut found = ByNodes { are_named, ..ByNodes::default() };
        let run = DryRun::new(cycle, diagnosis.filters());
        for node in cycle.cluster.nodes() {
            let status = diagnosis.status(node).unwrap();
            found.plugins.extend(Some(status.plugin).filter(|plugin| !plugin.is_empty()));
            for reason in status.reasons {
                *found.reasons.entry(reason).or_default() += 1;
            }
            if status.code != Code::Unschedulable {
                let reason = "Preemption is not helpful for scheduling".to_owned();
                *found.not_helped.entry(reason).or_default() += 1;
                continue;
            }
            found.resolvable.insert(node.name().clone());
            match run.on(node) {
                Ok(candidate) => {
                    found.candidates.insert(node.name().clone(), candidate.victims.is_empty());
                }
                Err(status) => {
                    for reason in status.reasons {
                        *found.not_helped.entry(reason).or_default() += 1;
                    }
                }
            }
        }
        for (chunk, lanes) in diagnosis.resolvable() {
            let nodes = (0..64).filter(|lane| lanes >> lane & 1 == 1);
            let nodes = nodes.map(|lane| cycle.cluster.node_in(chunk, lane).unwrap());
            found.by_chunk.extend(nodes.map(|node| node.name().clone()));
        }
        *self.0.lock().unwrap() = Some(found);
        let status = Status { code: Code::Unschedulable, plugin: "Watch", reasons: Vec::new() };
        (Nomination::Keep, Some(status))
    }
}

/// A profile with the default plugins and [`Own`] ones.
struct Profile {
    algorithm: Algorithm,
    mode: Arc<AtomicU64>,
    watched: Arc<Mutex<Option<ByNodes>>>,
}

impl Profile {
    fn new(local: u64, percentage_of_nodes: u8) -> Profile {
        let (mode, watched) = (Arc::new(AtomicU64::new(ACCEPTS)), Arc::default());
        let own = |name, is_local, mode| Box::new(Own { name, is_local, mode });
        let mut plugins: Vec<(Box<dyn Plugin>, i64)> = vec![
            (own("OwnLocal", true, Arc::new(AtomicU64::new(local))), 0),
            (own("Own", false, Arc::clone(&mode)), 0),
            (Box::new(Watch(Arc::clone(&watched))), 0),
        ];
        plugins.extend(default_plugins(&Handle::default()));
        let framework = Framework::new(plugins).unwrap();
        let config = AlgorithmConfig { percentage_of_nodes, seed: 1 };
        Profile { algorithm: Algorithm::new(framework, config, None), mode, watched }
    }

    /// Schedules the pod, and checks the error if it fits nowhere.
    fn check(&mut self, writer: &Writer, pod: &Pod) {
        let cluster = writer.cluster();
        self.watched.lock().unwrap().take();
        let decided = decided_by_nodes(&mut self.algorithm, cluster, pod);
        let Err(Failure::Fit(error)) = decided else { return };
        let mut found = self.watched.lock().unwrap().take().unwrap();
        if found.are_named && error.pre_filter.is_none() {
            // The plugins that named nodes rejected the others, whose status has no plugin.
            let naming = ["NodeAffinity", "Own"];
            let naming = naming.into_iter().filter(|of| error.unschedulable_plugins.contains(of));
            found.plugins.extend(naming);
        }
        assert_eq!(error.reasons, found.reasons);
        assert_eq!(error.unschedulable_plugins, found.plugins);
        assert_eq!(found.by_chunk, found.resolvable);
        found.check_preemption(&error);
    }
}

impl ByNodes {
    /// Asserts that preemption chose a candidate, or gave the reasons of all nodes.
    fn check_preemption(self, error: &FitError) {
        if self.candidates.values().any(|needs_none| *needs_none) {
            return;
        }
        match (&error.nomination, &error.post_filter) {
            (Nomination::Node(node), None) => assert!(self.candidates.contains_key(node)),
            (_, Some(status)) if status.message().contains("not eligible") => {}
            (_, Some(status)) => {
                assert!(self.candidates.is_empty(), "{status}");
                let error = FitError { reasons: self.not_helped, ..FitError::new(error.nodes) };
                assert_eq!(status.message(), format!("preemption: {error}"));
            }
            (nomination, None) => panic!("{nomination:?} without a status"),
        }
    }
}

/// Changes a few nodes or pods, so that most chunks stay as they were.
fn change(draw: &mut Draw<'_>, writer: &mut Writer, nodes: usize, step: usize) {
    let at = draw.below(nodes as u64) as usize;
    match draw.below(8) {
        0 => drop(writer.update_node(draw.node(at))),
        1 => drop(writer.remove_node(format!("n{at}"))),
        2 => drop(writer.add_node(draw.node(at))),
        3 => drop(writer.put_object(draw.object())),
        4 | 5 => {
            let pods = writer.cluster().nodes().flat_map(|node| node.pods());
            let removed = pods.map(|pod| pod.to_pod()).nth(at);
            removed.iter().for_each(|pod| drop(writer.remove_pod(pod)));
        }
        _ => {
            let uid = Uid::new(&format!("default/added-{step}"));
            let added = Pod { uid, ..draw.pod(step) };
            // Sums that exceed 64 bits and nodes that do not exist are refused.
            drop(writer.add_pod(added.on(format!("n{at}"))));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn errors_and_candidates_equal_those_of_single_nodes(
        bits in any::<u64>(),
        nodes in 1..220_usize,
        local in prop_oneof![Just(ACCEPTS), Just(REJECTS_SOME), Just(REJECTS_ALL)],
        percentage in prop_oneof![Just(0_u8), Just(100)],
    ) {
        let mut draw = Draw::from(bits);
        let mut writer = cluster(&mut draw, nodes);
        let mut profile = Profile::new(local, percentage);
        let pods: Vec<Pod> = (0..3).map(|n| draw.pod(n)).collect();
        for step in 0..24 {
            let modes = [ACCEPTS, REJECTS_SOME, REJECTS_ALL, NAMES_NODES, REJECTS_THE_POD];
            profile.mode.store(draw.of(&modes), Ordering::Relaxed);
            if draw.one_in(3) {
                let nominator = profile.algorithm.framework().handle().nominator();
                let uid = Uid::new(&format!("default/nominated-{}", draw.below(4)));
                let node = format!("n{}", draw.below(nodes as u64));
                nominator.add(Pod { uid, ..draw.pod(step) }, node.into());
            }
            profile.check(&writer, &pods[step % 3]);
            change(&mut draw, &mut writer, nodes, step);
        }
    }
}
