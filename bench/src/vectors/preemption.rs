//! Preemption vectors: for one unschedulable pod, its eligibility to preempt, the victims on
//! each candidate node, and the selected node.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use portolan::plugin::preemption::{DryRun, pick};
use portolan::plugin::{Code, Cycle, CycleState, Diagnosis, eligible};
use serde_json::Value;

use super::Tally;
use super::scheduling::{Scene, items};

pub(super) fn run(scenario: &Value, tally: &mut Tally) -> Result<(), String> {
    let scene = Scene::read(scenario)?;
    let id = scenario["id"].to_string();
    for (at, case) in items(scenario, "cases").enumerate() {
        let differences =
            compare(&scene, case).map_err(|error| format!("case {at} of {id}: {error}"))?;
        tally.case(&format!("{id} case {at}"), &differences);
    }
    Ok(())
}

fn compare(scene: &Scene, case: &Value) -> Result<Vec<String>, String> {
    let pod = super::pod(&case["pod"]).map_err(|error| format!("pod: {error}"))?;
    let state = CycleState::default();
    let cycle = Cycle::new(&scene.snapshot, &pod, &state);
    let filters = scene.framework.pre_filter(cycle);
    let diagnosis = Diagnosis::new(&filters);
    let mut differences = Vec::new();
    let why = eligible(cycle, &diagnosis, scene.framework.handle()).err();
    differ(&mut differences, "eligible", case["eligible"].as_bool(), Some(why.is_none()));
    differ(&mut differences, "why", case["why"].as_str(), why);
    let (mut candidates, mut not_helped) = (Vec::new(), BTreeMap::new());
    if why.is_none() {
        let run = DryRun::new(cycle, &filters);
        for node in diagnosis.nodes_with(Code::Unschedulable) {
            match run.on(node) {
                Ok(candidate) => candidates.push(candidate),
                Err(status) => {
                    not_helped.insert(node.name().to_string(), status.reasons);
                }
            }
        }
    }
    let picked: BTreeSet<&str> =
        pick(&candidates).into_iter().map(|at| &*candidates[at].node).collect();
    let expected = items(case, "pickedOneOf").filter_map(Value::as_str).collect();
    differ(&mut differences, "pickedOneOf", expected, picked);
    let expected: BTreeMap<String, BTreeSet<String>> =
        entries(case, "notHelped").map(|(node, reasons)| (node, strings(reasons))).collect();
    let found = not_helped.into_iter().map(|(n, reasons)| (n, reasons.into_iter().collect()));
    differ(&mut differences, "notHelped", expected, found.collect());
    let expected: BTreeMap<String, (Vec<String>, u64)> = entries(case, "candidates")
        .map(|(node, it)| {
            let victims = items(it, "victims").filter_map(Value::as_str).map(str::to_owned);
            (node, (victims.collect(), it["pdbViolations"].as_u64().unwrap_or_default()))
        })
        .collect();
    let found: BTreeMap<String, (Vec<String>, u64)> = candidates
        .iter()
        .map(|it| {
            let victims = it.victims.iter().map(|pod| pod.uid.to_string()).collect();
            (it.node.to_string(), (victims, it.violations as u64))
        })
        .collect();
    differ(&mut differences, "candidates", expected, found);
    Ok(differences)
}

fn differ<T: PartialEq + Debug>(differences: &mut Vec<String>, what: &str, expected: T, found: T) {
    if expected != found {
        differences.push(format!("{what}: expected {expected:?}, found {found:?}"));
    }
}

fn entries<'a>(case: &'a Value, key: &str) -> impl Iterator<Item = (String, &'a Value)> + use<'a> {
    case[key].as_object().into_iter().flatten().map(|(name, value)| (name.clone(), value))
}

fn strings(list: &Value) -> BTreeSet<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}
