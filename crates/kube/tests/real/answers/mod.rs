//! The same requests to kube-apiserver and to the server in memory.
//!
//! A series of requests is one function, which runs on each server in turn. It uses the answers of that server, so that
//! each request has that server's own uids and versions. The answers are compared afterwards, without uids, versions
//! and times.

mod access;
mod bindings;
mod deletions;
mod events;
mod leases;
mod lists;
mod malformed;
mod statuses;
mod volumes;
mod watches;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use portolan_apiserver::{ApiServer, Options};
use serde_json::{Value, json};

use crate::canonical::{canonical, differences};
use crate::cluster::{Cluster, User};
use crate::script::{Script, Step};

type Series = fn(&mut Script);

/// All series, each of which has a namespace of its own.
const SERIES: [(&str, Series); 9] = [
    ("bindings", bindings::run),
    ("statuses", statuses::run),
    ("deletions", deletions::run),
    ("events", events::run),
    ("leases", leases::run),
    ("volumes", volumes::run),
    ("lists", lists::run),
    ("watches", watches::run),
    ("malformed", malformed::run),
];

#[test]
fn the_server_in_memory_answers_as_kube_apiserver_does() {
    let Some(cluster) = Cluster::start() else { return };
    let cluster = Rc::new(RefCell::new(cluster));
    let options = Options { controllers: false, ..Options::default() };
    let fake = Rc::new(ApiServer::start(options).expect("a server"));
    let mut found = Vec::new();
    let chosen = std::env::var("PORTOLAN_SERIES").ok();
    for (name, series) in SERIES {
        if chosen.as_ref().is_some_and(|chosen| chosen != name) {
            continue;
        }
        let (compacted, forgets) = (cluster.clone(), fake.clone());
        let runtime = cluster.borrow().runtime().handle().clone();
        let config = cluster.borrow().config(Some(User::Admin));
        let of_real = answers(
            Script::new(
                runtime.clone(),
                config,
                name,
                Box::new(move || {
                    let mut cluster = compacted.borrow_mut();
                    cluster.compact();
                    // The server has the last versions in memory, too.
                    cluster.kill();
                    cluster.revive();
                }),
            ),
            series,
        );
        let config = kube::Config::new(fake.url().parse().expect("a URL"));
        let of_fake = answers(
            Script::new(
                runtime.clone(),
                config,
                name,
                Box::new(move || forgets.restart(Duration::ZERO).expect("restarted")),
            ),
            series,
        );
        if of_real.len() != of_fake.len() {
            found.push(format!("{name}: {} steps, in memory {}", of_real.len(), of_fake.len()));
        }
        for (index, (real, fake)) in of_real.iter().zip(&of_fake).enumerate() {
            let mut places = Vec::new();
            if real.request != fake.request {
                places.push(format!("another request in memory: {}", fake.request));
            }
            if real.answer["code"] == fake.answer["code"] {
                differences("", &real.answer, &fake.answer, &mut places);
            } else {
                // Nothing else is comparable.
                places.push(format!("{}\n    in memory {}", outline(real), outline(fake)));
            }
            if !places.is_empty() {
                let places = places.join("\n    ");
                found.push(format!("{name} {index}: {}\n    {places}", real.request));
            }
        }
        println!("{name}: {} requests", of_real.len());
    }
    access::check(&cluster.borrow());
    assert!(found.is_empty(), "{} answers differ:\n{}", found.len(), found.join("\n"));
}

/// The code of an answer, and its message if it is an error.
fn outline(step: &Step) -> String {
    let body = step.answer.get("body").or(step.answer.pointer("/lines/0"));
    let body = body.unwrap_or(&Value::Null);
    let body = body.get("object").unwrap_or(body);
    format!("{} {} {} {}", step.answer["code"], body["reason"], body["message"], body["details"])
}

fn answers(mut script: Script, series: Series) -> Vec<Step> {
    let name = script.namespace;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    script.post("/api/v1/namespaces", &namespace);
    // Without a controller that creates it. Its pods get no volume with a token.
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"},
        "automountServiceAccountToken": false});
    script.post(&script.path("serviceaccounts"), &account);
    series(&mut script);
    canonical(&script.steps)
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "registry.example.com/pause:1",
            "resources": {"requests": {"cpu": "100m"}}}]}})
}

/// A node without taints that admission would add: those of nodes that are not ready.
fn node(name: &str) -> Value {
    let amounts = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "status": {"capacity": amounts, "allocatable": amounts}})
}

fn binding(pod: &Value, uid: &str, node: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Binding",
        "metadata": {"name": pod["metadata"]["name"], "namespace": pod["metadata"]["namespace"], "uid": uid},
        "target": {"kind": "Node", "name": node}})
}
