//! A scheduler whose extender is portolan.

use std::collections::BTreeMap;
use std::time::Duration;

use portolan_apiserver::ApiServer;

use super::stub::{Answer, Service, extender};
use super::world::{is_tried, portolan, post, schedule, stop};
use crate::support::{self, address, applied, node, node_of, pod, runtime, until};

fn backlog(server: &ApiServer) {
    for at in 0..5 {
        server.create(&node(&format!("n{at}"), 1_000 + 300 * at)).expect("created");
    }
    for at in 0..20 {
        server.create(&pod(&format!("p{at}"), 150 + 35 * (at % 7))).expect("created");
    }
}

/// Schedules the backlog, and returns the nodes of the pods.
fn placements(fields: Option<&str>) -> BTreeMap<String, Option<String>> {
    let (runtime, server) = (runtime(), support::server());
    backlog(&server);
    let own = fields.is_some().then(|| portolan(&runtime, &server, true));
    let configuration = match (&own, fields) {
        (Some((_, served)), Some(fields)) => extender(address(served), fields),
        _ => String::new(),
    };
    let process = schedule(&runtime, &server, &configuration);
    let is_over = |at: u32| is_tried(&server, &format!("p{at}"));
    runtime.block_on(until("all tried", || (0..20).all(is_over)));
    let placed = (0..20).map(|at| format!("p{at}"));
    let placed = placed.map(|name| (name.clone(), node_of(&server, &name))).collect();
    if fields.is_some_and(|fields| fields.contains("bindVerb")) {
        let bound = |agent: &str| {
            let writes = applied(&server, agent).into_iter();
            writes.filter(|write| write.resource == "pods/binding").count()
        };
        // The server records a write after it has shown the object.
        runtime.block_on(until("the bindings", || bound("extender") >= 20));
        assert_eq!((bound("scheduler"), bound("extender")), (0, 20));
        let events = || {
            let events = server.objects("events.events.k8s.io");
            events.iter().filter(|event| event["reason"] == "Scheduled").count()
        };
        runtime.block_on(until("the events", || events() >= 20));
        assert_eq!(events(), 20, "the scheduler alone records them");
    }
    if let Some((other, served)) = own {
        drop(served);
        runtime.block_on(other.live.stop(Duration::ZERO));
    }
    stop(runtime, process);
    placed
}

#[test]
fn pods_are_placed_as_without_an_extender_that_passes_the_same_nodes() {
    let expected = placements(None);
    assert!(expected.values().all(Option::is_some), "{expected:?}");
    let filter = "filterVerb: filter, preemptVerb: preempt, nodeCacheCapable: true";
    assert_eq!(placements(Some(filter)), expected, "names");
    assert_eq!(placements(Some("filterVerb: filter")), expected, "whole nodes");
    let bind = "filterVerb: filter, bindVerb: bind, nodeCacheCapable: true";
    assert_eq!(placements(Some(bind)), expected, "bindings");
}

#[test]
fn the_outcome_of_a_binding_without_an_answer_is_looked_up() {
    let (runtime, server) = (runtime(), support::server());
    server.create(&node("n1", 1_000)).expect("created");
    server.create(&pod("web", 100)).expect("created");
    let (own, served) = portolan(&runtime, &server, true);
    let behind = address(&served);
    // Passes the request on, and drops the answer.
    let service = Service::start(move |verb, body| {
        let answer = post(behind, verb, &body.to_string());
        assert!(answer.contains(r#"{"Error":""}"#), "{answer}");
        Answer::Break("")
    });
    let process = schedule(&runtime, &server, &service.extender("bindVerb: bind"));
    runtime.block_on(until("bound", || process.live.figures().bound == 1));
    assert_eq!(process.live.figures().not_bound, 0);
    assert_eq!(service.requests("bind").len(), 1);
    runtime.block_on(own.live.stop(Duration::ZERO));
    stop(runtime, process);
}
