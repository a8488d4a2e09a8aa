//! The rules for pods: which events follow from a change.

use std::sync::Arc;

use portolan::cache::Event;
use portolan::model::{self, Name, Pod, Timestamp, Uid};

use super::digest_of;
use crate::mirror::pod_rules::PodRules;
use crate::mirror::{KnownPod, PendingStatus, PodIndex};

fn rules() -> PodRules {
    let schedulers: Arc<[Name]> = ["default-scheduler".into(), "batch".into()].into();
    PodRules::new(Arc::new(PodIndex::default()), schedulers)
}

fn pending(uid: &str, version: u64) -> Pod {
    by(uid, version, "default-scheduler")
}

fn by(uid: &str, version: u64, scheduler: &str) -> Pod {
    let pod = model::pod(format!("pod-{uid}")).uid(uid).resource_version(version);
    pod.scheduler_name(scheduler).build()
}

fn placed(uid: &str, version: u64, node: &str) -> Pod {
    pending(uid, version).on(node)
}

fn terminating(mut pod: Pod) -> Pod {
    pod.deletion_time = Some(Timestamp::from_secs(1));
    pod
}

/// Names the events that follow from a pod.
fn put(rules: &PodRules, pod: Pod) -> Vec<String> {
    let mut events = Vec::new();
    rules.put(pod, 1, None, PendingStatus::default, &mut events);
    names(&events)
}

fn delete(rules: &PodRules, uid: &str, version: u64) -> Vec<String> {
    let mut events = Vec::new();
    rules.delete(&uid.into(), version, &mut events);
    names(&events)
}

fn end_list(rules: &PodRules) -> Vec<String> {
    let mut events = Vec::new();
    rules.end_list(&mut events);
    let mut names = names(&events);
    names.sort_unstable();
    names
}

fn names(events: &[Event]) -> Vec<String> {
    let name = |event: &Event| match event {
        Event::PutPod(pod) => format!("put {}", pod.uid),
        Event::RemovePod { uid, node: None } => format!("remove {uid}"),
        Event::RemovePending(uid) => format!("remove pending {uid}"),
        other => format!("{other:?}"),
    };
    events.iter().map(name).collect()
}

fn known(rules: &PodRules, uid: &str) -> Option<KnownPod> {
    rules.index().get(&Uid::new(uid))
}

#[test]
fn assigned_pods_are_added_whatever_their_scheduler() {
    let rules = rules();
    assert_eq!(put(&rules, placed("a", 1, "n1")), ["put a"]);
    assert_eq!(put(&rules, by("b", 2, "other").on("n1")), ["put b"]);
    assert_eq!(put(&rules, placed("a", 3, "n1")), ["put a"]);
    assert_eq!(delete(&rules, "a", 4), ["remove a"]);
    assert_eq!(known(&rules, "a"), None);
}

#[test]
fn unassigned_pods_are_pending_if_they_name_one_of_our_schedulers() {
    let rules = rules();
    assert_eq!(put(&rules, pending("a", 1)), ["put a"]);
    assert_eq!(put(&rules, by("b", 2, "batch")), ["put b"]);
    assert_eq!(put(&rules, by("c", 3, "other")), [""; 0]);
    assert!(known(&rules, "c").is_some_and(|pod| pod.pending.is_some()));
    assert_eq!(put(&rules, pending("a", 4)), ["put a"]);
    assert_eq!(delete(&rules, "a", 5), ["remove pending a"]);
    assert_eq!(delete(&rules, "c", 6), [""; 0]);
}

#[test]
fn a_pod_may_change_its_scheduler_while_it_is_unassigned() {
    let rules = rules();
    put(&rules, pending("a", 1));
    assert_eq!(put(&rules, by("a", 2, "other")), ["remove pending a"]);
    assert_eq!(put(&rules, by("a", 3, "other")), [""; 0]);
    assert_eq!(put(&rules, by("a", 4, "batch")), ["put a"]);
}

#[test]
fn an_assignment_adds_the_pod() {
    let rules = rules();
    put(&rules, pending("a", 1));
    assert_eq!(put(&rules, placed("a", 2, "n1")), ["put a"]);
    let pod = known(&rules, "a").expect("known");
    assert_eq!((pod.node.as_deref(), pod.pending), (Some("n1"), None));
    put(&rules, by("b", 3, "other"));
    assert_eq!(put(&rules, by("b", 4, "other").on("n1")), ["put b"]);
}

#[test]
fn a_pending_pod_that_terminates_is_removed_once_and_again_when_it_is_deleted() {
    let rules = rules();
    put(&rules, pending("a", 1));
    assert_eq!(put(&rules, terminating(pending("a", 2))), ["put a"]);
    assert!(known(&rules, "a").is_some_and(|pod| pod.is_terminating));
    assert_eq!(put(&rules, terminating(pending("a", 3))), [""; 0]);
    assert_eq!(delete(&rules, "a", 4), ["remove pending a"]);
    assert_eq!(put(&rules, terminating(placed("b", 5, "n1"))), ["put b"]);
}

#[test]
fn versions_that_are_not_newer_are_ignored_for_each_uid() {
    let rules = rules();
    put(&rules, placed("a", 10, "n1"));
    assert_eq!(put(&rules, placed("a", 10, "n1")), [""; 0]);
    assert_eq!(put(&rules, pending("a", 9)), [""; 0]);
    assert_eq!(delete(&rules, "a", 9), [""; 0]);
    assert_eq!(known(&rules, "a").map(|pod| pod.resource_version), Some(10));
    assert_eq!(put(&rules, pending("b", 3)), ["put b"]);
    assert_eq!(delete(&rules, "a", 10), ["remove a"]);
}

#[test]
fn a_pod_that_takes_the_name_of_another_removes_it() {
    let rules = rules();
    let renamed = |mut pod: Pod| {
        pod.name = "web-0".into();
        pod
    };
    put(&rules, renamed(placed("a", 1, "n1")));
    assert_eq!(put(&rules, renamed(pending("b", 2))), ["remove a", "put b"]);
    assert_eq!(put(&rules, renamed(placed("c", 3, "n2"))), ["remove pending b", "put c"]);
    assert_eq!(known(&rules, "c").expect("known").name, "web-0".into());
    assert_eq!(rules.index().len(), 1);
}

#[test]
fn a_list_removes_the_pods_that_are_missing_from_it() {
    let rules = rules();
    for pod in [placed("a", 1, "n1"), pending("b", 2), placed("c", 3, "n1"), pending("d", 4)] {
        put(&rules, pod);
    }
    put(&rules, by("e", 5, "other"));
    rules.begin_list();
    assert_eq!(put(&rules, placed("a", 1, "n1")), [""; 0], "unchanged");
    assert_eq!(put(&rules, placed("d", 9, "n2")), ["put d"], "bound meanwhile");
    assert_eq!(end_list(&rules), ["remove c", "remove pending b"]);
    assert_eq!(rules.index().len(), 2);
}

#[test]
fn a_list_that_starts_anew_forgets_what_the_first_attempt_saw() {
    let rules = rules();
    put(&rules, placed("a", 1, "n1"));
    rules.begin_list();
    put(&rules, placed("a", 1, "n1"));
    put(&rules, placed("b", 2, "n1"));
    rules.begin_list();
    put(&rules, placed("b", 2, "n1"));
    assert_eq!(end_list(&rules), ["remove a"]);
}

#[test]
fn a_list_keeps_a_pod_whose_new_version_cannot_be_read() {
    let rules = rules();
    put(&rules, placed("a", 1, "n1"));
    rules.begin_list();
    rules.keep(&"a".into());
    assert_eq!(end_list(&rules), [""; 0]);
    assert!(known(&rules, "a").is_some());
}

#[test]
fn a_deletion_of_an_unknown_pod_tries_both_sides() {
    assert_eq!(delete(&rules(), "a", 1), ["remove a", "remove pending a"]);
}

#[test]
fn a_pod_that_loses_its_node_to_another_scheduler_is_removed() {
    let rules = rules();
    put(&rules, placed("a", 1, "n1"));
    assert_eq!(put(&rules, placed("a", 2, "n2")), ["put a"]);
    assert_eq!(put(&rules, pending("a", 3)), ["put a"]);
    put(&rules, placed("b", 4, "n1"));
    assert_eq!(put(&rules, by("b", 5, "other")), ["remove b"]);
}

#[test]
fn a_version_that_was_refused_is_taken_in_again() {
    let rules = rules();
    put(&rules, placed("a", 7, "n1"));
    rules.index().distrust(&"a".into(), 6);
    assert_eq!(put(&rules, placed("a", 7, "n1")), [""; 0]);
    rules.index().distrust(&"a".into(), 7);
    assert_eq!(put(&rules, placed("a", 7, "n1")), ["put a"]);
}

#[test]
fn a_version_with_the_digest_of_the_last_one_is_known() {
    let rules = rules();
    let (one, other) = (digest_of("{}"), digest_of(r#"{"spec":{}}"#));
    let is_known = |version, digest| rules.is_known(&"a".into(), version, 4, digest);
    assert!(!is_known(1, one), "the pod is not known");
    let put = |pod: Pod, digest| {
        rules.put(pod, 1, digest, PendingStatus::default, &mut Vec::new());
    };
    put(pending("a", 1), one);
    assert!(!is_known(2, one), "pending pods are always passed on");
    put(placed("a", 2, "n1"), one);
    assert!(is_known(3, one));
    let pod = known(&rules, "a").expect("known");
    assert_eq!((pod.resource_version, pod.generation), (3, 4));
    assert!(!is_known(4, other) && !is_known(4, None) && !is_known(0, one));
    assert!(is_known(3, other) && is_known(2, None), "not newer");
    assert_eq!(known(&rules, "a").map(|pod| pod.resource_version), Some(3));
    put(placed("a", 5, "n1"), None);
    assert!(!is_known(6, one), "the last one has no digest");
}

#[test]
fn a_list_keeps_the_pods_that_are_known() {
    let rules = rules();
    let digest = digest_of("{}");
    for uid in ["a", "b", "c"] {
        rules.put(placed(uid, 1, "n1"), 1, digest, PendingStatus::default, &mut Vec::new());
    }
    rules.begin_list();
    assert!(rules.is_known(&"a".into(), 1, 1, digest));
    assert!(rules.is_known(&"b".into(), 2, 1, digest));
    assert_eq!(end_list(&rules), ["remove c"]);
}
