//! Preemption marks, end to end: which pods go for which others.

use std::time::Duration;

use portolan::log::Relist;
use portolan::model::{GodelPod, NominatedNode, Pod, Template, Timestamp, Uid, Victim, node, pod};
use portolan::snapshot::Cluster;
use portolan::{Config, Engine, GodelConfig, Writer};

const TTL: Duration = Duration::from_secs(60);

fn config() -> Config {
    let godel = GodelConfig { preemption_marks: true, ..GodelConfig::new("godel") };
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

/// A pod that was nominated to `n1`, and is there.
fn preemptor(name: &str, victims: &[&str]) -> Pod {
    let nominated_node = Some(nominated("n1", victims));
    let godel = GodelPod { nominated_node, ..GodelPod::default() };
    pod(name).cpu(100).spec(|spec| spec.godel = Some(Box::new(godel))).on("n1").build()
}

/// The same, as another scheduler's that the binder has not decided on.
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

/// Who goes from a node for whom, as `victim: preemptors`.
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
fn a_victim_is_marked_until_its_last_preemptor_goes() {
    let mut writer = writer();
    let (a, b) = (preemptor("a", &["v", "w"]), preemptor("b", &["v"]));
    writer.assume_pod(a.clone()).unwrap();
    writer.add_pod(b.clone()).unwrap();
    assert_eq!(on(writer.cluster(), "n1"), ["v: default/a default/b", "w: default/a"]);
    assert_eq!(writer.cluster().preemption_marks().unwrap().len(), 2);
    clean(&writer);
    writer.forget_pod(&a).unwrap();
    assert_eq!(on(writer.cluster(), "n1"), ["v: default/b"]);
    assert_eq!((is_marked(&writer, "v"), is_marked(&writer, "w")), (true, false));
    writer.remove_pod(&b).unwrap();
    assert!(writer.cluster().preemption_marks().unwrap().is_empty());
    assert!(!is_marked(&writer, "v"));
    clean(&writer);
}

#[test]
fn a_victim_that_is_gone_stays_marked_while_its_preemptor_is_there() {
    let mut writer = writer();
    let victim = pod("v").on("n1").build();
    writer.add_pod(victim.clone()).unwrap();
    writer.add_pod(preemptor("a", &["default/v"])).unwrap();
    writer.remove_pod(&victim).unwrap();
    assert!(is_marked(&writer, "default/v"));
}

#[test]
fn a_nominated_pod_marks_before_and_after_it_is_bound() {
    let mut writer = writer();
    let assumed = assumed_elsewhere("a", &["v"]);
    writer.add_pod(assumed.clone()).unwrap();
    assert_eq!(on(writer.cluster(), "n1"), ["v: default/a"]);
    writer.update_pod(&assumed.uid, preemptor("a", &["v"])).unwrap();
    assert_eq!(on(writer.cluster(), "n1"), ["v: default/a"]);
    clean(&writer);
}

#[test]
fn a_pod_that_the_binder_rejects_marks_nobody() {
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
fn a_pod_that_expires_marks_nobody() {
    let mut writer = writer();
    let pod = preemptor("a", &["v"]);
    writer.assume_pod(pod.clone()).unwrap();
    writer.finish_binding(&pod.uid, Timestamp::from_secs(0)).unwrap();
    writer.expire(Timestamp::from_secs(61)).unwrap();
    assert!(!is_marked(&writer, "v"));
    clean(&writer);
}

#[test]
fn a_pod_on_another_node_than_it_was_nominated_to_marks_nobody() {
    let mut writer = writer();
    writer.assume_pod(preemptor("a", &["v"])).unwrap();
    let elsewhere = Pod { node_name: Some("n2".into()), ..preemptor("a", &["v"]) };
    writer.add_pod(elsewhere).unwrap();
    assert!(!is_marked(&writer, "v"));
    assert_eq!(on(writer.cluster(), "n2"), Vec::<String>::new());
    clean(&writer);
}

#[test]
fn an_object_that_names_other_victims_is_believed() {
    let mut writer = writer();
    let pod = preemptor("a", &["v", "w"]);
    writer.add_pod(pod.clone()).unwrap();
    writer.update_pod(&pod.uid, preemptor("a", &["w", "x"])).unwrap();
    assert_eq!(on(writer.cluster(), "n1"), ["w: default/a", "x: default/a"]);
    clean(&writer);
}

#[test]
fn a_victim_that_is_named_twice_or_has_no_uid_is_no_more_than_it_is() {
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
fn a_victim_that_two_nodes_name_is_marked_until_both_do_not() {
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
fn a_list_without_the_preemptor_drops_its_marks() {
    let mut writer = writer();
    writer.add_pod(preemptor("a", &["v"])).unwrap();
    writer.relist(Relist::Pods(vec![preemptor("b", &["w"])])).unwrap();
    assert_eq!(on(writer.cluster(), "n1"), ["w: default/b"]);
    clean(&writer);
}

#[test]
fn a_fork_marks_for_itself() {
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

/// What Gödel's snapshots miss: the store of a node that is dropped and made anew counts
/// its generations from the start.
#[test]
fn a_mark_that_is_dropped_and_made_again_is_seen() {
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
        assert!(writer.dump().preemption_marks.is_empty());
        clean(&writer);
    }
}
