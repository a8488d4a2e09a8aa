//! Nominated pods and the filters.

use portolan::cache::Writer;
use portolan::model::{Pod, Uid, pod};
use portolan::plugin::Handle;
use portolan::{Algorithm, AlgorithmConfig, Framework};

use super::probe::cluster;

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
