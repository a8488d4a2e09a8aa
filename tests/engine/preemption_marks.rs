//! Marks of victims, end to end: which pods are preempted, by which preemptors, and which pods are about to be deleted.

use std::time::Duration;

use std::sync::Arc;

use portolan::cache::{Cluster, CommitCheck, Config, Engine, Event, GodelConfig, Relist, Writer};
use portolan::model::{
    Change, EventError, Fact, Generation, GodelPod, NominatedNode, Pod, Template, Timestamp, Uid,
    Victim, node, pod,
};

const TTL: Duration = Duration::from_secs(60);

fn config() -> Config {
    let stores = GodelConfig::new("godel");
    let godel = GodelConfig { preemption_marks: true, deletion_marks: true, ..stores };
    Config { assumed_ttl: Some(TTL), godel: Some(godel), ..Config::default() }
}

fn writer() -> Writer {
    let mut writer = Engine::inline(config()).0;
    for name in ["n1", "n2"] {
        writer.add_node(node(name).cpu(1_000).build()).unwrap();
    }
    writer
}

fn nominated(node: &str, victims: &[&str]) -> NominatedNode {
    let victim = |uid: &&str| Victim {
        namespace: "default".into(),
        name: (*uid).into(),
        uid: (*uid).into(),
    };
    NominatedNode { node: node.into(), victims: victims.iter().map(victim).collect() }
}

/// Creates a pod that was nominated to `n1` and is on `n1`.
fn preemptor(name: &str, victims: &[&str]) -> Pod {
    let nominated_node = Some(nominated("n1", victims));
    let godel = GodelPod { nominated_node, ..GodelPod::default() };
    pod(name).cpu(100).spec(|spec| spec.godel = Some(Box::new(godel))).on("n1").build()
}

/// Like [`preemptor`], but assumed by another scheduler and not yet confirmed by the binder.
fn assumed_elsewhere(name: &str, victims: &[&str]) -> Pod {
    let mut pod = preemptor(name, victims);
    pod.node_name = None;
    changed(&pod, |godel| {
        godel.state = "assumed".into();
        godel.selected_scheduler = Some("another".into());
    })
}

fn changed(pod: &Pod, change: impl FnOnce(&mut GodelPod)) -> Pod {
    let mut spec = (**pod.template).clone();
    change(spec.godel.as_mut().unwrap());
    Pod { template: Template::new(spec), ..pod.clone() }
}

/// Returns the victims on a node, as `victim: preemptors`.
fn on(cluster: &Cluster, node: &str) -> Vec<String> {
    let marks = cluster.preemption_marks().unwrap();
    let describe = |victim: &Uid| {
        let preemptors: Vec<String> =
            marks.preemptors(node, victim).iter().map(ToString::to_string).collect();
        format!("{victim}: {}", preemptors.join(" "))
    };
    marks.on(node).iter().map(|mark| describe(&mark.victim)).collect()
}

fn is_marked(writer: &Writer, uid: &str) -> bool {
    writer.cluster().preemption_marks().unwrap().is_marked(&Uid::new(uid))
}

fn clean(writer: &Writer) {
    assert_eq!(writer.cluster().audit(), vec![]);
}

#[test]
fn a_victim_is_marked_until_its_last_preemptor_is_removed() {
    let mut writer = writer();
    let (a, b) = (preemptor("a", &["v", "w"]), preemptor("b", &["v"]));
    writer.assume_pod(a.clone()).unwrap();
    writer.add_pod(b.clone()).unwrap();
    assert_eq!(on(writer.cluster(), "n1"), ["v: default/a default/b", "w: default/a"]);
    assert_eq!(writer.cluster().preemption_marks().unwrap().len(), 2);
    clean(&writer);
    writer.apply(&Event::forget(&a)).unwrap();
    assert_eq!(on(writer.cluster(), "n1"), ["v: default/b"]);
    assert_eq!((is_marked(&writer, "v"), is_marked(&writer, "w")), (true, false));
    writer.remove_pod(&b).unwrap();
    assert!(writer.cluster().preemption_marks().unwrap().is_empty());
    assert!(!is_marked(&writer, "v"));
    clean(&writer);
}

#[test]
fn a_removed_victim_stays_marked_while_its_preemptor_exists() {
    let mut writer = writer();
    let victim = pod("v").on("n1").build();
    writer.add_pod(victim.clone()).unwrap();
    writer.add_pod(preemptor("a", &["default/v"])).unwrap();
    writer.remove_pod(&victim).unwrap();
    assert!(is_marked(&writer, "default/v"));
}

#[test]
fn a_nominated_pod_marks_its_victims_before_and_after_binding() {
    let mut writer = writer();
    let assumed = assumed_elsewhere("a", &["v"]);
    writer.add_pod(assumed.clone()).unwrap();
    assert_eq!(on(writer.cluster(), "n1"), ["v: default/a"]);
    writer.update_pod(&assumed.uid, preemptor("a", &["v"])).unwrap();
    assert_eq!(on(writer.cluster(), "n1"), ["v: default/a"]);
    clean(&writer);
}

#[test]
fn a_pod_rejected_by_the_binder_marks_no_victims() {
    let mut writer = writer();
    let assumed = assumed_elsewhere("a", &["v"]);
    writer.add_pod(assumed.clone()).unwrap();
    let rejected = changed(&assumed, |godel| {
        godel.state = "dispatched".into();
        godel.nominated_node = None;
    });
    writer.update_pod(&assumed.uid, rejected).unwrap();
    assert!(!is_marked(&writer, "v"));
    clean(&writer);
}

#[test]
fn an_expired_pod_marks_no_victims() {
    let mut writer = writer();
    let pod = preemptor("a", &["v"]);
    writer.assume_pod(pod.clone()).unwrap();
    writer.apply(&Event::finish_binding(&pod.uid, Timestamp::from_secs(0))).unwrap();
    writer.expire(Timestamp::from_secs(61)).unwrap();
    assert!(!is_marked(&writer, "v"));
    clean(&writer);
}

#[test]
fn a_pod_not_on_its_nominated_node_marks_no_victims() {
    let mut writer = writer();
    writer.assume_pod(preemptor("a", &["v"])).unwrap();
    let elsewhere = Pod { node_name: Some("n2".into()), ..preemptor("a", &["v"]) };
    writer.add_pod(elsewhere).unwrap();
    assert!(!is_marked(&writer, "v"));
    assert_eq!(on(writer.cluster(), "n2"), Vec::<String>::new());
    clean(&writer);
}

#[test]
fn an_updated_object_replaces_the_victims() {
    let mut writer = writer();
    let pod = preemptor("a", &["v", "w"]);
    writer.add_pod(pod.clone()).unwrap();
    writer.update_pod(&pod.uid, preemptor("a", &["w", "x"])).unwrap();
    assert_eq!(on(writer.cluster(), "n1"), ["w: default/a", "x: default/a"]);
    clean(&writer);
}

#[test]
fn repeated_victims_and_empty_uids_are_ignored() {
    let mut writer = writer();
    let twice = preemptor("a", &["v", "", "v"]);
    writer.add_pod(twice.clone()).unwrap();
    assert_eq!(on(writer.cluster(), "n1"), ["v: default/a"]);
    let nobody = preemptor("b", &["", ""]);
    writer.add_pod(nobody.clone()).unwrap();
    writer.remove_pod(&twice).unwrap();
    writer.remove_pod(&nobody).unwrap();
    assert!(writer.cluster().preemption_marks().unwrap().is_empty());
    clean(&writer);
}

#[test]
fn a_victim_marked_on_two_nodes_stays_marked_until_both_unmark_it() {
    let mut writer = writer();
    let here = preemptor("a", &["v"]);
    let mut there = changed(&preemptor("b", &[]), |godel| {
        godel.nominated_node = Some(nominated("n2", &["v"]));
    });
    there.node_name = Some("n2".into());
    writer.add_pod(here.clone()).unwrap();
    writer.add_pod(there.clone()).unwrap();
    writer.remove_pod(&here).unwrap();
    assert!(is_marked(&writer, "v"));
    assert_eq!((on(writer.cluster(), "n1").len(), on(writer.cluster(), "n2").len()), (0, 1));
    writer.remove_pod(&there).unwrap();
    assert!(!is_marked(&writer, "v"));
    clean(&writer);
}

#[test]
fn a_relist_without_the_preemptor_drops_its_marks() {
    let mut writer = writer();
    writer.add_pod(preemptor("a", &["v"])).unwrap();
    writer.relist(Relist::Pods(vec![preemptor("b", &["w"])])).unwrap();
    assert_eq!(on(writer.cluster(), "n1"), ["w: default/b"]);
    clean(&writer);
}

#[test]
fn a_fork_has_its_own_marks() {
    let mut writer = writer();
    writer.add_pod(preemptor("a", &["v"])).unwrap();
    let base = writer.cluster().fork();
    let mut fork = base.fork();
    fork.remove_pod(&Uid::new("default/a")).unwrap();
    fork.add_pod(&preemptor("b", &["w"])).unwrap();
    assert_eq!(on(&fork, "n1"), ["w: default/b"]);
    assert_eq!(on(&base, "n1"), ["v: default/a"]);
    assert_eq!((fork.audit(), base.audit()), (vec![], vec![]));
    assert_eq!(on(writer.cluster(), "n1"), ["v: default/a"]);
}

/// Gödel's snapshots miss this change: the store of a node that is dropped and recreated restarts its generations.
#[test]
fn a_dropped_and_recreated_mark_changes_the_generation() {
    let (mut writer, reader) = Engine::inline(config());
    writer.add_node(node("n1").build()).unwrap();
    writer.add_pod(preemptor("a", &["v1"])).unwrap();
    writer.publish();
    let before = reader.snapshot();
    writer.remove_pod(&preemptor("a", &["v1"])).unwrap();
    assert!(writer.cluster().preemption_marks().unwrap().is_empty());
    writer.add_pod(preemptor("a", &["v2"])).unwrap();
    writer.publish();
    let after = reader.snapshot();
    assert_eq!(on(&before, "n1"), ["v1: default/a"]);
    assert_eq!(on(&after, "n1"), ["v2: default/a"]);
    let generation = |cluster: &Cluster| cluster.preemption_marks().unwrap().generation();
    assert!(generation(&after) > generation(&before));
    clean(&writer);
}

#[test]
fn without_the_configuration_nothing_is_marked() {
    for godel in [None, Some(GodelConfig::new("godel"))] {
        let (mut writer, _) = Engine::inline(Config { godel, ..Config::default() });
        writer.add_pod(preemptor("a", &["v"])).unwrap();
        assert!(writer.cluster().preemption_marks().is_none());
        assert!(writer.cluster().dump().preemption_marks.is_empty());
        clean(&writer);
    }
}

/// A check of the requests of a node's pods against a limit.
struct Limit(i64);

impl CommitCheck for Limit {
    fn check(&self, cluster: &Cluster, pod: &Pod, node: &str) -> Result<(), String> {
        let taken = cluster.node(node).map_or(0, |node| node.requested().cpu.0);
        let wanted = pod.template.resources.placed.cpu.0;
        if taken + wanted <= self.0 { Ok(()) } else { Err("the node is full".to_owned()) }
    }
}

fn uids<const N: usize>(names: [&str; N]) -> [Uid; N] {
    names.map(|name| Uid::new(&format!("default/{name}")))
}

fn pods_on(cluster: &Cluster, node: &str) -> Vec<String> {
    let mut pods: Vec<String> =
        cluster.node(node).unwrap().pods().map(|pod| pod.name().to_owned()).collect();
    pods.sort();
    pods
}

/// Creates a node that two pods fill, with or without Gödel's stores.
fn full(godel: bool) -> Writer {
    full_with(godel, 1_000)
}

/// Like [`full`], with a given limit of the requests.
fn full_with(godel: bool, room: i64) -> Writer {
    let godel = config().godel.filter(|_| godel);
    let commit_check = Limit(room).into();
    let mut writer = Engine::inline(Config { godel, commit_check, ..config() }).0;
    writer.add_node(node("n1").cpu(1_000).build()).unwrap();
    writer.add_node(node("n2").cpu(1_000).build()).unwrap();
    writer.add_pod(pod("v").cpu(500).on("n1").build()).unwrap();
    writer.add_pod(pod("w").cpu(500).on("n1").build()).unwrap();
    writer
}

#[test]
fn victims_are_removed_in_the_step_that_assumes_their_preemptor() {
    let mut writer = full(false);
    let follower = writer.follow();
    let before = writer.cluster().generation();
    let generation = writer
        .apply(&Event::preempt(pod("p").cpu(600).on("n1").build(), uids(["v", "w"])))
        .unwrap()
        .generation;
    assert_eq!(generation, before.next());
    assert_eq!(pods_on(writer.cluster(), "n1"), ["p"]);
    assert!(writer.cluster().pod(&uids(["p"])[0]).unwrap().is_assumed());
    writer.publish();
    let mut gone = Vec::new();
    while let Ok(note) = follower.try_next() {
        assert_eq!(note.generation, generation);
        match note.fact {
            Fact::Changed(Change::Pod(diff)) if diff.new.is_none() => {
                gone.push(diff.old.unwrap().name.to_string());
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(gone, ["v", "w"]);
    clean(&writer);
}

/// `AssumePod` of the scheduler's cache does not remove victims: its preemption store marks them, and they count until
/// their objects are deleted.
#[test]
fn victims_in_godels_cache_stay_marked_until_their_preemptor_is_removed() {
    let mut writer = full(true);
    let preemptor = pod("p").cpu(600).on("n1").build();
    writer.apply(&Event::preempt(preemptor.clone(), uids(["w", "v"]))).unwrap();
    assert_eq!(pods_on(writer.cluster(), "n1"), ["p", "v", "w"]);
    assert_eq!(writer.cluster().node("n1").unwrap().requested().cpu.0, 1_600);
    let marked = ["default/v: default/p", "default/w: default/p"];
    assert_eq!(on(writer.cluster(), "n1"), marked);
    clean(&writer);
    writer.apply(&Event::forget(&preemptor)).unwrap();
    assert!(writer.cluster().preemption_marks().unwrap().is_empty());
    assert_eq!(pods_on(writer.cluster(), "n1"), ["v", "w"]);
    clean(&writer);
}

#[test]
fn victims_of_the_event_override_the_annotation() {
    let mut writer = full_with(true, 10_000);
    writer.apply(&Event::preempt(preemptor("a", &["x"]), uids(["v"]))).unwrap();
    assert_eq!(on(writer.cluster(), "n1"), ["default/v: default/a"]);
    // Without victims in the event the annotation counts, as in an assume.
    writer.apply(&Event::preempt(preemptor("b", &["y"]), uids([]))).unwrap();
    assert_eq!(on(writer.cluster(), "n1"), ["default/v: default/a", "y: default/b"]);
    clean(&writer);
}

#[test]
fn a_refused_preemptor_or_victim_changes_nothing() {
    for godel in [false, true] {
        let mut writer = full(godel);
        writer.add_pod(pod("else").cpu(1).on("n2").build()).unwrap();
        let fits = || pod("p").cpu(600).on("n1");
        let [v, w, p, elsewhere, unknown] = uids(["v", "w", "p", "else", "unknown"]);
        let not_found = |uid: &Uid| EventError::NotFound { uid: uid.clone() };
        let cases: Vec<(Pod, Vec<Uid>, EventError)> = vec![
            (fits().build(), vec![v.clone(), unknown.clone()], not_found(&unknown)),
            (fits().build(), vec![v.clone(), v.clone()], not_found(&v)),
            (fits().build(), vec![v.clone(), Uid::new("")], EventError::EmptyUid),
            (
                fits().build(),
                vec![v.clone(), elsewhere.clone()],
                EventError::OtherNode { uid: elsewhere, known: "n2".into(), given: "n1".into() },
            ),
            (pod("p").cpu(600).build(), vec![v.clone()], EventError::NoNodeName { uid: p.clone() }),
            (
                pod("v").cpu(1).on("n1").build(),
                vec![v.clone()],
                EventError::AlreadyInCache { uid: v.clone() },
            ),
            (
                fits().build(),
                vec![v.clone()],
                EventError::Conflict {
                    uid: p.clone(),
                    node: "n1".into(),
                    reason: "the node is full".into(),
                },
            ),
        ];
        for (pod, victims, why) in cases {
            let before = writer.cluster().dump();
            let decided_on = Some(Generation::ZERO);
            let event = Event::Preempt { pod: Arc::new(pod), victims: victims.into(), decided_on };
            assert_eq!(writer.apply(&event), Err(why));
            assert_eq!(writer.cluster().dump(), before);
        }
        // Without both victims the preemptor fits, so the check passes.
        let victims = Arc::new([v, w]);
        let decided_on = Some(Generation::ZERO);
        let event = Event::Preempt { pod: Arc::new(fits().build()), victims, decided_on };
        let applied = writer.apply(&event).unwrap();
        assert_eq!((applied.added, applied.removed), (1, if godel { 0 } else { 2 }));
        clean(&writer);
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_secs(seconds)
}

/// Returns the preemptor for which a pod is marked, and when the mark ends.
fn deletion(cluster: &Cluster, victim: &Uid) -> Option<(String, Timestamp)> {
    let mark = cluster.deletion_marks().unwrap().get(victim)?;
    Some((mark.preemptor.to_string(), mark.until))
}

#[test]
fn only_the_preemptor_that_marked_a_pod_can_unmark_it() {
    let mut writer = full(true);
    let [v, a, b] = uids(["v", "a", "b"]);
    writer.apply(&Event::mark_for_deletion(&v, &a, at(0))).unwrap();
    assert!(writer.cluster().deletion_marks().unwrap().is_marked(&v));
    let another = EventError::MarkedByAnother { victim: v.clone(), preemptor: a.clone() };
    assert_eq!(writer.apply(&Event::unmark_for_deletion(&v, &b)), Err(another));
    assert_eq!(deletion(writer.cluster(), &v), Some(("default/a".into(), at(600))));
    // The mark belongs to the last preemptor.
    writer.apply(&Event::mark_for_deletion(&v, &b, at(5))).unwrap();
    assert_eq!(deletion(writer.cluster(), &v), Some(("default/b".into(), at(605))));
    assert!(writer.apply(&Event::unmark_for_deletion(&v, &a)).is_err());
    clean(&writer);
    for _ in 0..2 {
        writer.apply(&Event::unmark_for_deletion(&v, &b)).unwrap();
        assert!(writer.cluster().deletion_marks().unwrap().is_empty());
    }
    clean(&writer);
}

#[test]
fn a_mark_for_deletion_expires_after_ten_minutes() {
    let mut writer = full(true);
    let [v, w, a] = uids(["v", "w", "a"]);
    writer.apply(&Event::mark_for_deletion(&v, &a, at(0))).unwrap();
    writer.apply(&Event::mark_for_deletion(&w, &a, at(1))).unwrap();
    for (now, marked) in [(600, [true, true]), (601, [false, true]), (602, [false, false])] {
        writer.expire(at(now)).unwrap();
        let marks = writer.cluster().deletion_marks().unwrap();
        assert_eq!([&v, &w].map(|uid| marks.is_marked(uid)), marked, "at {now}");
        clean(&writer);
    }
    assert_eq!(pods_on(writer.cluster(), "n1"), ["v", "w"]);
}

#[test]
fn a_mark_for_deletion_is_removed_with_its_pod_on_every_path() {
    type Way = fn(&mut Writer, &Pod);
    let unbound = |state: &str| {
        let mut pod = assumed_elsewhere("v", &[]);
        pod = changed(&pod, |godel| godel.state = state.into());
        if state != "assumed" {
            pod = changed(&pod, |godel| godel.nominated_node = None);
        }
        pod
    };
    let (dispatched, assumed) = (unbound("dispatched"), unbound("assumed"));
    let ways: [(&str, &Pod, Way); 6] = [
        ("removed", &dispatched, |writer, _| {
            writer.remove_pod(&pod("v").on("n1").build()).unwrap();
        }),
        ("not listed", &dispatched, |writer, _| {
            writer.relist(Relist::Pods(vec![pod("w").cpu(500).on("n1").build()])).unwrap();
        }),
        ("of another uid", &dispatched, |writer, _| {
            let mut renewed = pod("v").on("n1").build();
            renewed.uid = Uid::new("renewed");
            writer.update_pod(&Uid::new("default/v"), renewed).unwrap();
        }),
        ("updated to dispatched", &dispatched, |writer, pod| {
            writer.update_pod(&pod.uid, pod.clone()).unwrap();
        }),
        ("listed as dispatched", &dispatched, |writer, pod| {
            writer.relist(Relist::Pods(vec![pod.clone()])).unwrap();
        }),
        ("updated to assumed", &assumed, |writer, pod| {
            writer.update_pod(&pod.uid, pod.clone()).unwrap();
        }),
    ];
    for (what, pod, way) in ways {
        let mut writer = full(true);
        let [v, a] = uids(["v", "a"]);
        writer.apply(&Event::mark_for_deletion(&v, &a, at(0))).unwrap();
        let held = writer.cluster().fork();
        way(&mut writer, pod);
        assert!(!writer.cluster().deletion_marks().unwrap().is_marked(&v), "{what}");
        assert!(held.deletion_marks().unwrap().is_marked(&v));
        clean(&writer);
    }
}

#[test]
fn an_update_of_a_bound_pod_keeps_its_mark_for_deletion() {
    let mut writer = full(true);
    let [v, a] = uids(["v", "a"]);
    writer.apply(&Event::mark_for_deletion(&v, &a, at(0))).unwrap();
    writer.update_pod(&v, pod("v").cpu(400).on("n1").build()).unwrap();
    assert_eq!(deletion(writer.cluster(), &v), Some(("default/a".into(), at(600))));
    let mut fork = writer.cluster().fork();
    fork.add_pod(&pod("v").cpu(300).on("n1").build()).unwrap();
    assert!(fork.deletion_marks().unwrap().is_marked(&v));
    fork.remove_pod(&v).unwrap();
    assert!(fork.deletion_marks().unwrap().is_empty());
    assert_eq!(fork.audit(), vec![]);
    clean(&writer);
}

#[test]
fn only_bound_pods_are_marked_for_deletion() {
    let mut writer = full(true);
    let [v, a, mine, theirs, unknown] = uids(["v", "a", "mine", "theirs", "unknown"]);
    writer.assume_pod(pod("mine").on("n1").build()).unwrap();
    writer.add_pod(assumed_elsewhere("theirs", &[])).unwrap();
    for uid in [mine, theirs, unknown] {
        let before = writer.cluster().dump();
        let why = EventError::NotBound { uid: uid.clone() };
        assert_eq!(writer.apply(&Event::mark_for_deletion(&uid, &a, at(0))), Err(why));
        assert_eq!(writer.cluster().dump(), before);
    }
    let nobody = Uid::new("");
    for (victim, preemptor) in [(&v, &nobody), (&nobody, &a)] {
        let empty = Err(EventError::EmptyUid);
        assert_eq!(writer.apply(&Event::mark_for_deletion(victim, preemptor, at(0))), empty);
        assert_eq!(writer.apply(&Event::unmark_for_deletion(victim, preemptor)), empty);
    }
    let off =
        EventError::NotKept { store: "deletion marks".into(), field: "deletion_marks".into() };
    let mut without = full(false);
    assert_eq!(without.apply(&Event::mark_for_deletion(&v, &a, at(0))), Err(off.clone()));
    assert_eq!(without.apply(&Event::unmark_for_deletion(&v, &a)), Err(off));
    clean(&writer);
}
