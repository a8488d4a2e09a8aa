//! Compares requests with the requests of a kube-scheduler 1.36.2 (`live.jsonl.gz` of the golden vectors).
//!
//! Each recorded decision is repeated through the writers, and the bodies are compared. Two differences are expected
//! and taken out: the uid in patches and deletions, which kube-scheduler lacks, and the merge patches of volumes, which
//! replace updates of whole objects.

use std::collections::HashMap;
use std::io::Read;
use std::path::PathBuf;
use std::sync::mpsc::channel;

use portolan::model::{ClaimReference, Name, Pod, Uid, pod};
use portolan::plugin::{Eviction, Handle, Nomination};
use portolan::{Binder, Evictor};
use serde_json::{Value, json};

use super::bodies::{claim_ref, volume_patch};
use super::failure::{FailureReport, Reason};
use super::testing::{Answer, Seen, World, normalized};
use super::volumes::SELECTED_NODE;

/// Returns the recorded scenarios, or none, with a message, if they are absent.
fn scenarios() -> Vec<Value> {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vectors/live.jsonl.gz");
    let Ok(found) = std::fs::File::open(&path) else {
        eprintln!("skipped: {} does not exist", path.display());
        return Vec::new();
    };
    let mut text = String::new();
    flate2::read::GzDecoder::new(found).read_to_string(&mut text).expect("gzip");
    text.lines().map(|line| serde_json::from_str(line).expect("json")).collect()
}

/// The recorded writes of a scenario.
struct Recorded<'v>(Vec<(String, &'v str, &'v Value)>);

impl<'v> Recorded<'v> {
    fn of(scenario: &'v Value) -> Recorded<'v> {
        let writes = scenario["writes"].as_array().expect("writes").iter();
        let text = |value: &'v Value| value.as_str().expect("text");
        Recorded(
            writes
                .map(|write| {
                    let kind = format!("{} {}", text(&write["verb"]), text(&write["resource"]));
                    (kind, text(&write["name"]), &write["body"])
                })
                .collect(),
        )
    }

    fn bodies(&self, kind: &str) -> impl Iterator<Item = (&'v str, &'v Value)> {
        let found = self.0.iter().filter(move |write| write.0 == kind);
        found.map(|(_, name, body)| (*name, *body))
    }

    /// The namespace of the scenario, and the uids of its pods, by their bindings and events.
    fn pods(&self) -> HashMap<&'v str, Pod> {
        let bindings = self.bodies("create pods/binding").map(|(_, body)| &body["metadata"]);
        let events = self.bodies("create events").map(|(_, body)| &body["regarding"]);
        let pods = bindings.chain(events).map(|metadata| {
            let field = |name: &str| metadata[name].as_str().expect("a field");
            let made = pod(field("name")).namespace(field("namespace")).build();
            (field_of(metadata), Pod { uid: Uid::new(field("uid")), resource_version: 1, ..made })
        });
        pods.collect()
    }
}

fn field_of(metadata: &Value) -> &str {
    metadata["name"].as_str().expect("a name")
}

/// An API server that applies status patches of pending pods, and has the victims' conditions.
fn world(victims: HashMap<String, Value>) -> World {
    World::new(move |seen: &Seen, n| match &*seen.method {
        "GET" => {
            let name = seen.path.rsplit('/').next().expect("a name");
            Answer::Json(200, victims.get(name).cloned().unwrap_or_default())
        }
        "PATCH" => {
            let version = json!({"resourceVersion": (100 + n).to_string()});
            Answer::Json(200, json!({"metadata": version, "status": seen.body["status"]}))
        }
        _ => Answer::Json(201, json!({"kind": "Status", "status": "Success"})),
    })
}

/// Returns the bodies of the requests as the recorded ones are written, in a fixed order.
fn sorted(bodies: impl Iterator<Item = Value>) -> Vec<String> {
    let mut bodies: Vec<String> = bodies.map(|body| normalized(body).to_string()).collect();
    bodies.sort();
    bodies
}

fn without_uid(mut body: Value) -> Value {
    body.as_object_mut().expect("an object").remove("metadata").expect("the uid");
    body
}

fn patches(world: &World) -> Vec<Value> {
    let seen = world.seen();
    let patches = seen.into_iter().filter(|seen| seen.is("PATCH", "/status"));
    patches.map(|seen| without_uid(seen.body)).collect()
}

fn posts(world: &World, end: &str) -> Vec<Value> {
    let posts = world.seen().into_iter().filter(|seen| seen.is("POST", end));
    posts.map(|seen| seen.body).collect()
}

#[test]
fn bindings_and_their_events_are_those_of_kube_scheduler() {
    for scenario in scenarios() {
        let recorded = Recorded::of(&scenario);
        let (pods, world) = (recorded.pods(), world(HashMap::new()));
        for (name, body) in recorded.bodies("create pods/binding") {
            let node: Name = body["target"]["name"].as_str().expect("a node").into();
            world.writes.binder().bind(&pods[name], &node).expect("bound");
        }
        let expected: Vec<_> =
            recorded.bodies("create pods/binding").map(|(_, body)| body.clone()).collect();
        let seen = world.wait(2 * expected.len());
        let bindings = seen.into_iter().filter(|seen| seen.is("POST", "/binding"));
        assert_eq!(bindings.map(|seen| seen.body).collect::<Vec<_>>(), expected);
        let events = recorded.bodies("create events").map(|(_, body)| body.clone());
        let events = events.filter(|body| body["reason"] == "Scheduled");
        assert_eq!(sorted(posts(&world, "/events").into_iter()), sorted(events));
    }
}

#[test]
fn failures_are_reported_as_by_kube_scheduler() {
    for scenario in scenarios() {
        let recorded = Recorded::of(&scenario);
        let (mut pods, world) = (recorded.pods(), world(HashMap::new()));
        let status = world.writes.status();
        let is_failure = |body: &Value| body["status"]["conditions"][0]["type"] == "PodScheduled";
        let expected: Vec<(&str, &Value)> =
            recorded.bodies("patch pods/status").filter(|(_, body)| is_failure(body)).collect();
        let events = recorded.bodies("create events");
        let events: Vec<&Value> = events
            .map(|(_, body)| body)
            .filter(|body| body["reason"] == "FailedScheduling")
            .collect();
        // Each event is an attempt. An attempt after which the pod has the same status is not written.
        let mut messages: Vec<(&str, &str)> = Vec::new();
        for event in &events {
            let note = event["note"].as_str().expect("a note");
            messages.push((field_of(&event["regarding"]), note));
        }
        // The API server refuses events in a namespace that is being deleted, so this one was not recorded.
        let mut refused = 0;
        for (name, body) in &expected {
            let message = body["status"]["conditions"][0]["message"].as_str().expect("text");
            if !messages.contains(&(name, message)) {
                messages.push((name, message));
                refused += 1;
            }
        }
        for pod in pods.values() {
            world.add(pod);
        }
        for (name, message) in messages {
            let pod = pods.get_mut(name).expect("known");
            let patch = expected.iter().find(|(other, body)| {
                *other == name && body["status"]["conditions"][0]["message"] == message
            });
            let (_, patch) = patch.expect("every message was written once");
            let reason = match patch["status"]["conditions"][0]["reason"].as_str() {
                Some("SchedulerError") => Reason::SchedulerError,
                _ => Reason::Unschedulable,
            };
            let nomination = match patch["status"]["nominatedNodeName"].as_str() {
                Some(node) => Nomination::Node(node.into()),
                None => Nomination::Clear,
            };
            let done = || {
                let figures = status.figures();
                figures.sent + figures.unchanged
            };
            let before = done();
            status.report_failure(pod, FailureReport::new(reason, message, nomination));
            while done() == before {
                std::thread::yield_now();
            }
            // Each attempt saw another version of the pod.
            pod.resource_version += 1;
        }
        let expected = expected.into_iter().map(|(_, body)| body.clone());
        assert_eq!(
            sorted(patches(&world).into_iter()),
            sorted(expected),
            "{}",
            scenario["scenario"]
        );
        let count = events.len() + refused;
        world.wait_for(|seen| seen.iter().filter(|seen| seen.method == "POST").count() == count);
        let mut sent = sorted(posts(&world, "/events").into_iter());
        let expected = sorted(events.into_iter().cloned());
        sent.retain(|body| refused == 0 || !body.contains("is being terminated"));
        assert_eq!(sent, expected, "{}", scenario["scenario"]);
    }
}

#[test]
fn nominations_before_pre_bind_are_those_of_kube_scheduler() {
    for scenario in scenarios() {
        let recorded = Recorded::of(&scenario);
        for (name, body) in recorded.bodies("patch pods/status") {
            if !body["status"]["conditions"].is_null() {
                continue;
            }
            let node = body["status"]["nominatedNodeName"].as_str().expect("a node");
            let world = world(HashMap::new());
            let nominated = Pod { uid: Uid::new("<uid>"), ..pod(name).build() };
            world.add(&nominated);
            world.writes.binder().nominate(&nominated, &node.into()).expect("nominated");
            assert_eq!(patches(&world), std::slice::from_ref(body));
        }
    }
}

#[test]
fn evictions_are_those_of_kube_scheduler() {
    for scenario in scenarios() {
        let recorded = Recorded::of(&scenario);
        let pods = recorded.pods();
        let is_eviction =
            |body: &Value| body["status"]["conditions"][0]["type"] == "DisruptionTarget";
        let conditions: Vec<_> =
            recorded.bodies("patch pods/status").filter(|(_, body)| is_eviction(body)).collect();
        if conditions.is_empty() {
            continue;
        }
        let found = conditions.iter().map(|(name, body)| {
            let mut known = body["status"]["$setElementOrder/conditions"].clone();
            known.as_array_mut().expect("an order").pop();
            let metadata = json!({"uid": pods[name].uid.to_string(), "generation": 1});
            let found = json!({"metadata": metadata, "status": {"conditions": known}});
            ((*name).to_owned(), found)
        });
        let world = world(found.collect());
        let events = recorded.bodies("create events").map(|(_, body)| body);
        let events: Vec<_> = events.filter(|body| body["reason"] == "Preempted").collect();
        let (node, _) = events[0]["note"]
            .as_str()
            .and_then(|note| Some((note.rsplit(' ').next()?, ())))
            .expect("a node");
        let victims: Vec<Pod> = conditions.iter().map(|(name, _)| pods[name].clone()).collect();
        let (ended, end) = channel();
        let preemptor = pods["high"].clone();
        let eviction =
            Eviction::new(&Handle::default(), preemptor, node.into(), victims, move || {
                ended.send(()).expect("the test waits");
            });
        world.writes.evictor().evict(eviction);
        end.recv().expect("the eviction ends");
        world.wait(4 * conditions.len());
        let expected: Vec<String> =
            conditions.iter().map(|(_, body)| normalized((*body).clone()).to_string()).collect();
        let sent = patches(&world).into_iter().map(|body| normalized(body).to_string());
        assert_eq!(sent.collect::<Vec<_>>(), expected);
        let expected = events.into_iter().cloned();
        assert_eq!(sorted(posts(&world, "/events").into_iter()), sorted(expected));
        let deleted: Vec<&str> = recorded.bodies("delete pods").map(|(name, _)| name).collect();
        let seen = world.seen();
        let sent = seen.iter().filter(|seen| seen.method == "DELETE");
        let sent: Vec<&str> = sent.map(|seen| seen.path.rsplit('/').next().expect("a")).collect();
        assert_eq!(sent, deleted);
    }
}

/// Kube-scheduler sends the whole object, and portolan only the changes.
#[test]
fn volumes_are_written_with_the_changes_of_kube_scheduler() {
    for scenario in scenarios() {
        let recorded = Recorded::of(&scenario);
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        for (_, body) in recorded.bodies("update persistentvolumes") {
            let claim = &body["spec"]["claimRef"];
            let reference = ClaimReference {
                namespace: (&*text(&claim["namespace"])).into(),
                name: (&*text(&claim["name"])).into(),
                uid: (&*text(&claim["uid"])).into(),
            };
            let metadata = body["metadata"].to_string();
            let metadata = serde_json::from_str(&metadata).expect("metadata");
            let mark = Some(("pv.kubernetes.io/bound-by-controller", "yes"));
            let patch = volume_patch(&metadata, mark);
            assert_eq!(claim_ref(&reference, "<rv>"), *claim);
            assert_eq!(patch["metadata"]["annotations"], body["metadata"]["annotations"]);
        }
        for (_, body) in recorded.bodies("update persistentvolumeclaims") {
            let annotations = &body["metadata"]["annotations"];
            let node = text(&annotations[SELECTED_NODE]);
            let metadata = body["metadata"].to_string();
            let metadata = serde_json::from_str(&metadata).expect("metadata");
            let patch = volume_patch(&metadata, Some((SELECTED_NODE, &node)));
            assert_eq!(patch["metadata"]["annotations"], *annotations);
            assert_eq!(patch["metadata"]["uid"], body["metadata"]["uid"]);
        }
    }
}
