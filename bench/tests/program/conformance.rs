//! Matching vectors pass. Other vectors fail with the operation, the field, the expected
//! value and the found value.

use std::path::{Path, PathBuf};

use crate::common::{file, portolan};
use serde_json::{Value, json};

fn pod(uid: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": uid, "namespace": "d", "uid": uid, "resourceVersion": "1"},
        "spec": {"nodeName": "n0", "containers": [{"name": "c", "image": "i"}]},
    })
}

/// One pod on a missing node, with `more` in the node's expected state.
fn vector(more: &Value) -> String {
    let mut node = json!({
        "hasNode": false, "pods": ["u1@1"],
        "nonZeroRequested": {"cpu": 100, "memory": 200 << 20},
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        node[key] = value.clone();
    }
    json!({"id": "s", "ttlMs": 0, "ops": [{
        "op": "addPod", "pod": pod("u1"), "atMs": 0, "podCount": 1, "nodeCount": 1,
        "state": {"nodes": {"n0": node}},
    }]})
    .to_string()
}

#[test]
fn a_matching_vector_passes() {
    let path = file("agrees", "cache.jsonl", vector(&json!({})).as_bytes());
    let run = portolan(&["conformance", &path, "--strict"]);
    assert_eq!(run.code, 0, "{}{}", run.out, run.err);
    assert_eq!(run.out.trim_end(), format!("{path}: 2 passed, 0 failed"));
}

#[test]
fn a_different_state_fails_with_its_path() {
    let path = file("state", "cache.jsonl", vector(&json!({"requested": {"cpu": 7}})).as_bytes());
    let run = portolan(&["conformance", &path]);
    assert_eq!(run.code, 1, "{}", run.out);
    assert!(run.out.starts_with(&format!("{path}: 1 passed, 1 failed\n")), "{}", run.out);
    for text in ["s state after op 0", "/nodes/n0/requested/cpu", "expected 7", "found 0"] {
        assert!(run.out.contains(text), "{:?} does not contain {text:?}", run.out);
    }
}

#[test]
fn a_different_operation_fails_with_its_field() {
    let op = |pods: i64, error: &str| {
        json!({"op": "addPod", "pod": pod("u1"), "atMs": 0, "podCount": pods, "nodeCount": 1,
            "error": error})
    };
    let ops = json!({"id": "s", "ttlMs": 0, "ops": [op(2, ""), op(1, ""), op(1, "already added")]});
    let path = file("op", "cache.jsonl", ops.to_string().as_bytes());
    let run = portolan(&["conformance", &path]);
    assert_eq!(run.code, 1, "{}", run.out);
    assert!(run.out.starts_with(&format!("{path}: 1 passed, 2 failed\n")), "{}", run.out);
    for text in ["op 0 (addPod)", "podCount: expected 2, found 1", "op 1 (addPod)", "error: "] {
        assert!(run.out.contains(text), "{:?} does not contain {text:?}", run.out);
    }
    let few = portolan(&["conformance", &path, "--show", "0"]);
    assert_eq!(few.out.trim_end(), format!("{path}: 1 passed, 2 failed"));
}

#[test]
fn a_stale_entry_is_counted_and_fails_with_strict() {
    let text = vector(&json!({"podsWithAffinity": ["gone"]}));
    let path = file("stale", "cache.jsonl", text.as_bytes());
    let run = portolan(&["conformance", &path]);
    assert_eq!(run.code, 0, "{}", run.out);
    let stale = "1 passed state matched only without stale affinity entries, which kube-scheduler \
                 keeps for removed pods (--strict counts them as failed)";
    assert_eq!(run.out, format!("{path}: 2 passed, 0 failed\n  {stale}\n"));
    let strict = portolan(&["conformance", &path, "--strict"]);
    assert_eq!(strict.code, 1, "{}", strict.out);
    assert!(strict.out.contains("1 passed, 1 failed"), "{}", strict.out);
    // The entry of an existing pod is never ignored.
    let path = file("stale", "own.jsonl", vector(&json!({"podsWithAffinity": ["u1"]})).as_bytes());
    assert_eq!(portolan(&["conformance", &path]).code, 1);
}

#[test]
fn the_cache_vectors_agree() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/vectors/cache.jsonl.gz");
    if !path.exists() {
        println!("SKIPPED: the golden vectors are not at {}", path.display());
        return;
    }
    let run = portolan(&["conformance", &path.to_string_lossy()]);
    println!("{}", run.out);
    assert_eq!(run.code, 0, "{}{}", run.out, run.err);
}

/// The vectors of this repository, in alphabetical order.
fn vectors_of_the_tree() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/vectors");
    let entries = std::fs::read_dir(folder).expect("the folder can be read");
    let paths = entries.map(|entry| entry.expect("the folder can be read").path());
    let mut files: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|it| it == "jsonl")).collect();
    files.sort();
    files
}

#[test]
fn the_vectors_of_the_tree_agree() {
    let files = vectors_of_the_tree();
    assert_eq!(files.len(), 5, "{files:?}");
    for file in files {
        let run = portolan(&["conformance", &file.to_string_lossy(), "--strict"]);
        assert_eq!(run.code, 0, "{}{}", run.out, run.err);
        assert!(!run.out.contains(" 0 passed"), "{}", run.out);
    }
}

#[test]
fn one_altered_answer_of_the_tree_fails() {
    for path in vectors_of_the_tree() {
        let text = std::fs::read_to_string(&path).expect("the vectors are UTF-8");
        let mut scenarios: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON lines")).collect();
        let scenario = scenarios.last_mut().expect("a scenario");
        alter(scenario);
        let lines: Vec<String> = scenarios.iter().map(Value::to_string).collect();
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name in UTF-8");
        let altered = file("altered", name, lines.join("\n").as_bytes());
        let run = portolan(&["conformance", &altered]);
        assert_eq!(run.code, 1, "{}{}", run.out, run.err);
        assert!(run.out.contains(" 1 failed\n"), "{}", run.out);
    }
}

/// Changes one answer of a scenario.
fn alter(scenario: &mut Value) {
    if let Some(op) = scenario.get_mut("ops").and_then(|ops| ops.get_mut(0)) {
        op["podCount"] = json!(7);
    } else if let Some(eligible) = scenario["cases"][0].get_mut("eligible") {
        *eligible = json!(false);
    } else {
        let nodes = scenario["cases"][0]["nodes"].as_object_mut().expect("verdicts on nodes");
        let verdict = nodes.values_mut().next().expect("a verdict");
        *verdict = json!({"code": "Unschedulable", "plugin": "NodePorts", "reasons": ["altered"]});
    }
}
