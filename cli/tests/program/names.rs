//! Names of objects cannot change the terminal, add lines to results, or make messages long.

use crate::common::{file, portolan};

#[test]
fn names_are_escaped_before_they_are_printed() {
    let nodes = r#"[{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n\u001b[31m\u009b2J"}},
        {"apiVersion": "v1", "kind": "Fo\u001b]0;x\u0007", "metadata": {"name": "x"}}]"#;
    let cluster = file("escaped", "cluster.json", nodes.as_bytes());
    let unsafe_in = |text: &str| text.chars().any(|c| c.is_control() && c != '\n');
    for arguments in [
        &["--store", "nodes"][..],
        &[],
        &["--output", "json"],
        &["--strict"],
        &["--store", "\u{1b}x"],
    ] {
        let run = portolan(&[&["dump", "--cluster", &cluster], arguments].concat());
        assert!(!unsafe_in(&run.out) && !unsafe_in(&run.err), "{:?} {:?}", run.out, run.err);
    }
    let run = portolan(&["dump", "--cluster", &cluster, "--store", "nodes", "--output", "json"]);
    let nodes: serde_json::Value = serde_json::from_str(&run.out).expect("JSON");
    assert!(nodes.to_string().contains("\u{9b}2J"), "{nodes}");
    let run = portolan(&["dump", "--cluster", &cluster, "--store", "nodes"]);
    assert!(run.out.contains(r"n\u001b[31m\u009b2J"), "{}", run.out);
    assert!(run.err.contains(r"1 Fo\u001b]0;x\u0007 (kind not used)"), "{}", run.err);
}

#[test]
fn names_add_no_lines_to_results() {
    let node = |name: &str| {
        format!(
            "{{apiVersion: v1, kind: Node, metadata: {{name: {name}}}, \
             status: {{allocatable: {{cpu: 4, memory: 8Gi, pods: 10}}}}}}\n---\n"
        )
    };
    let pod = |name: &str, on: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: d, \
             ownerReferences: [{{kind: ReplicaSet, name: \"w\\nforged\", controller: true}}]}}, \
             spec: {{{on} containers: [{{name: c, resources: {{requests: {{cpu: 1}}}}}}]}}}}\n---\n"
        )
    };
    let cluster = [
        node("n1"),
        node("\"n2\\nforged\""),
        pod("\"a\\nforged\"", "nodeName: n1,"),
        pod("\"b\\tforged\"", "nodeName: n1,"),
    ];
    let cluster = file("lines", "cluster.yaml", cluster.concat().as_bytes());
    let big = file(
        "lines",
        "big.yaml",
        pod("\"big\\nforged\"", "").replace("cpu: 1", "cpu: 9").as_bytes(),
    );
    let small = file("lines", "small.yaml", pod("small", "").as_bytes());
    for (arguments, expected) in [
        (&["what-if", "-f", &cluster, "--drain", "n1"][..], r"d/a\nforged"),
        (&["what-if", "-f", &cluster, "--drain", "n2\nforged"], r"drained   n2\nforged"),
        (&["what-if", "-f", &cluster, "--fail-node", "n2\nforged"], r"failed    n2\nforged"),
        (
            &["what-if", "-f", &cluster, "--scale", "rs/w\nforged=0"],
            r"ReplicaSet/d/w\nforged from 2",
        ),
        (&["what-if", "-f", &cluster, "--pods", &big], r"d/big\nforged: 0/2"),
        (&["what-if", "-f", &cluster, "--fit-more", &big], r"like big\nforged"),
        (&["explain", "-f", &cluster, "--pod", &small], r"n2\nforged  "),
        (&["explain", "-f", &cluster, "--pod", &big], r"pod d/big\nforged: fits"),
        (&["dump", "-f", &cluster, "--store", "nodes"], r"n2\nforged  "),
        (&["dump", "-f", &cluster, "--store", "nodes", "-o", "name"], r"node/n2\nforged"),
        (&["dump", "-f", &cluster, "--store", "pods"], r"b\tforged"),
        (&["replay", "--nodes", &cluster, "--pods", &big], "Insufficient cpu"),
    ] {
        let run = portolan(arguments);
        assert!(run.out.contains(expected), "{arguments:?}: {}{}", run.out, run.err);
        let lines = run.out.lines().chain(run.err.lines());
        let forged: Vec<&str> = lines.filter(|line| line.starts_with("forged")).collect();
        assert!(forged.is_empty() && !run.out.contains('\t'), "{arguments:?}: {}", run.out);
    }
}

#[test]
fn long_names_are_shortened_in_messages() {
    let nodes = "{apiVersion: v1, kind: Node, metadata: {name: n}, status: {allocatable: {cpu: 4, pods: 9}}}";
    let nodes = file("long", "nodes.yaml", nodes.as_bytes());
    let long = "x".repeat(5000);
    for (name, field) in [(&*long, &*long), ("a", "priorityClassName")] {
        let text = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{containers: [{{name: c}}], {field}: {long}}}}}"
        );
        let pod = file("long", "pod.yaml", text.as_bytes());
        let run = portolan(&["what-if", "--cluster", &nodes, "--pods", &pod, "--strict"]);
        assert_eq!(run.code, 2);
        assert!(run.err.chars().count() < 300, "{}", run.err);
    }
}
