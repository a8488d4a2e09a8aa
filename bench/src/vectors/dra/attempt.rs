//! Compares one scheduling attempt: the verdict and the scores of each node, the chosen node, and the reservation.

use std::collections::{BTreeMap, BTreeSet};

use portolan::FitError;
use portolan::cache::{NodeInfo, Snapshot};
use portolan::model::{Name, Pod};
use portolan::plugin::{Code, Cycle, CycleState, Diagnosis, Feasible, Point, Snapshots, Status};
use portolan_dra::plugin::chosen_devices;
use serde_json::{Map, Value, json};

use super::normal::{self, normal};
use super::{Held, Run, items};

impl Run {
    pub(super) fn schedule(&mut self, step: &Value) -> Result<(), String> {
        let pod = crate::vectors::pod(&step["pod"])?;
        let gate = self.framework.pre_enqueue(&pod).err();
        self.differ("preEnqueue", &normal(&step["preEnqueue"]), &status(gate.as_ref()));
        let snapshot = self.world.snapshot();
        self.decide_at_once(step, &snapshot, &pod);
        let state = CycleState::default();
        let Some(node) = self.decide(step, &snapshot, &pod, &state)? else { return Ok(()) };
        self.differ("host", &step["host"], &json!(&*node));
        if !self.differences.is_empty() {
            return Ok(());
        }
        self.world.write(|writer| writer.assume_pod(pod.clone().on(node.clone())).map(drop))?;
        let reserved = self.framework.reserve(Cycle::new(&snapshot, &pod, &state), &node);
        let found = status(reserved.as_ref().err());
        self.differ("reserve", &normal(&step["reserve"]), &found);
        let held = Held { pod, state, node, snapshot };
        match (reserved, step["held"] == true) {
            (Err(_), _) => self.undo(&held),
            (Ok(()), true) => {
                self.held.insert(held.pod.key().to_string(), held);
                Ok(())
            }
            (Ok(()), false) => self.bind(step, held),
        }
    }

    /// Decides as a scheduler does.
    fn decide_at_once(&mut self, step: &Value, snapshot: &Snapshot, pod: &Pod) {
        let state = self.algorithm.state();
        match self.algorithm.decide_without_preemption(Cycle::new(snapshot, pod, &state)) {
            Ok(decision) => {
                let is_best = items(step, "best").any(|name| *name == *decision.node);
                self.differ("a best node is chosen", &json!(true), &json!(is_best));
            }
            Err(failure) if step["message"].is_string() => {
                let found = json!(failure.to_string());
                self.differ("message of the algorithm", &step["message"], &found);
            }
            // Which of several errors is reported depends on the order of the nodes.
            Err(_) => self.differ("the algorithm fails", &json!(null), &step["host"]),
        }
    }

    /// Decides node by node. Returns the node that kube-scheduler chooses, or `None` if there is none.
    fn decide(
        &mut self,
        step: &Value,
        snapshot: &Snapshot,
        pod: &Pod,
        state: &CycleState,
    ) -> Result<Option<Name>, String> {
        let framework = self.framework.clone();
        let cycle = Cycle::new(snapshot, pod, state);
        let filters = framework.pre_filter(cycle);
        let rejected = filters.rejected().cloned();
        self.differ("preFilter", &normal(&step["preFilter"]), &status(rejected.as_ref()));
        let mut feasible: Vec<NodeInfo<'_>> = Vec::new();
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        let mut error = None;
        for node in snapshot.nodes().filter(|_| rejected.is_none()) {
            let expected = &step["nodes"][&**node.name()];
            let Some(found) = filters.filter(node) else {
                feasible.push(node);
                self.compare_devices(expected, state, node.name());
                continue;
            };
            if found.code == Code::Error {
                error.get_or_insert_with(|| found.message());
            }
            found.reasons.iter().for_each(|why| *reasons.entry(why.clone()).or_default() += 1);
            self.differ(node.name(), &normal(expected), &status(Some(&found)));
        }
        self.differ("error", &step["error"], &json!(error));
        if error.is_some() || rejected.as_ref().is_some_and(|status| status.code == Code::Error) {
            return Ok(None);
        }
        if feasible.is_empty() {
            let mut fit = FitError::new(snapshot.nodes().count());
            fit.reasons = reasons;
            fit.pre_filter = rejected;
            self.differ("message", &step["message"], &json!(fit.to_string()));
            self.post_filter(step, cycle, &Diagnosis::new(&filters));
            return Ok(None);
        }
        self.score(step, cycle, &feasible)
    }

    /// Compares the devices that Filter chose on a feasible node.
    fn compare_devices(&mut self, expected: &Value, state: &CycleState, node: &str) {
        let mut expected = expected.clone();
        if let Some(expected) = expected.as_object_mut() {
            expected.remove("scores");
            expected.remove("total");
            if let Some(Value::Array(devices)) = expected.get_mut("devices") {
                let line = |device: &Value| normal::line(device.as_str().unwrap_or_default());
                *devices = devices.iter().map(line).collect();
            }
        }
        let found = json!({ "code": "Success", "devices": devices(state, node) });
        self.differ(node, &normal(&expected), &normal(&found));
    }

    fn post_filter(&mut self, step: &Value, cycle: Cycle<'_>, diagnosis: &Diagnosis<'_>) {
        let mut found: Option<Status> = None;
        for (plugin, _) in self.framework.plugins_at(Point::PostFilter) {
            let (_, status) = plugin.post_filter(cycle, diagnosis);
            let Some(status) = status else { continue };
            match &mut found {
                None => found = Some(Status { plugin: plugin.info().name(), ..status }),
                Some(found) => found.reasons.extend(status.reasons),
            }
        }
        self.differ("postFilter", &normal(&step["postFilter"]), &status(found.as_ref()));
    }

    fn score(
        &mut self,
        step: &Value,
        cycle: Cycle<'_>,
        nodes: &[NodeInfo<'_>],
    ) -> Result<Option<Name>, String> {
        let framework = self.framework.clone();
        let feasible = Feasible::of(cycle.cluster, nodes.iter().copied());
        let scored = framework.pre_score(cycle, &feasible).map_err(|status| status.message())?;
        let scores = scored.score(nodes).map_err(|status| status.message())?;
        let mut totals = Vec::new();
        for (node, scores) in nodes.iter().zip(&scores) {
            let expected = &step["nodes"][&**node.name()];
            let found: Map<String, Value> =
                scores.iter().map(|s| (s.plugin.to_owned(), json!(s.weighted))).collect();
            self.differ(&format!("{} scores", node.name()), &expected["scores"], &found.into());
            let total: i64 = scores.iter().map(|score| score.weighted).sum();
            self.differ(&format!("{} total", node.name()), &expected["total"], &json!(total));
            totals.push(total);
        }
        let largest = totals.iter().max().copied().unwrap_or_default();
        let best: BTreeSet<&str> = (nodes.iter().zip(&totals))
            .filter(|(_, total)| **total == largest)
            .map(|(node, _)| &**node.name())
            .collect();
        let expected: BTreeSet<&str> = items(step, "best").filter_map(Value::as_str).collect();
        self.differ("best", &json!(expected), &json!(best));
        Ok(Some(nodes[heap_root(&totals)].name().clone()))
    }
}

/// Returns the index of the root of Go's heap over the scores, of which there is at least one.
fn heap_root(totals: &[i64]) -> usize {
    let mut heap: Vec<usize> = (0..totals.len()).collect();
    for start in (0..heap.len() / 2).rev() {
        let mut at = start;
        loop {
            let mut child = 2 * at + 1;
            if child >= heap.len() {
                break;
            }
            if child + 1 < heap.len() && totals[heap[child + 1]] > totals[heap[child]] {
                child += 1;
            }
            if totals[heap[child]] <= totals[heap[at]] {
                break;
            }
            heap.swap(at, child);
            at = child;
        }
    }
    heap[0]
}

/// Returns the devices that Filter chose, as the vectors write them.
fn devices(state: &CycleState, node: &str) -> Vec<Value> {
    let mut lines = Vec::new();
    for of in chosen_devices(state, node).into_iter().flatten() {
        for result in of.devices {
            let (claim, request) = (of.claim.name(), &result.request);
            let mut line =
                format!("{claim} {request} {}/{}/{}", result.driver, result.pool, result.device);
            if result.admin_access == Some(true) {
                line += " admin";
            }
            if result.share_id.is_some() {
                let amounts = result.consumed_capacity.iter();
                let amounts: Vec<String> =
                    amounts.map(|(name, amount)| format!("{name}={}", amount.text())).collect();
                line += &format!(" shared {}", amounts.join(","));
            }
            lines.push(normal::line(&line));
        }
    }
    lines
}

pub(super) fn status(status: Option<&Status>) -> Value {
    let Some(status) = status else { return Value::Null };
    let mut found = json!({ "code": status.code.as_str(), "reasons": status.reasons });
    if !status.plugin.is_empty() {
        found["plugin"] = json!(status.plugin);
    }
    normal(&found)
}
