//! An invalid input ends the program with status 2, without output, and with an error that
//! names the file, the line if known, and the remedy.

use std::io::Write;

use crate::common::{file, portolan};

const NODES: &str = "sn,cpu_milli,memory_mib,gpu,model\nn1,8000,1000,0,\n";
const PODS: &str = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np1,100,100,0,0\n";

/// Replays with these two files and checks that the error names `bad` and contains each of
/// the texts.
fn refused(test: &str, nodes: &[u8], pods: &[u8], bad: &str, says: &[&str]) {
    let extension = |bytes: &[u8]| match bytes.first() {
        Some(b'{' | b'[') => "json",
        Some(b'k') => "yaml",
        _ => "csv",
    };
    let n = file(test, &format!("nodes.{}", extension(nodes)), nodes);
    let p = file(test, &format!("pods.{}", extension(pods)), pods);
    let run = portolan(&["replay", "--nodes", &n, "--pods", &p, "--threads", "1"]);
    assert_eq!((run.code, &*run.out), (2, ""), "{}", run.err);
    assert!(!run.err.contains("panicked"), "{}", run.err);
    let place = match bad.strip_prefix("nodes") {
        Some(rest) => n + rest,
        None => p + bad.strip_prefix("pods").unwrap_or(bad),
    };
    assert!(run.err.contains(&place), "{:?} does not contain {place}", run.err);
    for text in says {
        assert!(run.err.contains(text), "{:?} does not contain {text:?}", run.err);
    }
}

fn nodes_refused(test: &str, nodes: &str, bad: &str, says: &[&str]) {
    refused(test, nodes.as_bytes(), PODS.as_bytes(), bad, says);
}

fn pods_refused(test: &str, pods: &str, bad: &str, says: &[&str]) {
    refused(test, NODES.as_bytes(), pods.as_bytes(), bad, says);
}

#[test]
fn a_missing_column_is_named() {
    let nodes = "sn,cpu_milli,gpu,model\nn1,8000,0,\n";
    nodes_refused(
        "column",
        nodes,
        "nodes:1: ",
        &["column \"memory_mib\" is missing: add it to the header"],
    );
}

#[test]
fn an_invalid_number_is_named_with_its_line() {
    let nodes = format!("{NODES}n2,eight,1000,0,\n");
    nodes_refused("number", &nodes, "nodes:3: ", &["cpu_milli is \"eight\": use a whole number"]);
    let pods = format!("{PODS}p2,-5,100,0,0\n");
    pods_refused(
        "negative",
        &pods,
        "pods:3: ",
        &["cpu_milli is \"-5\": use a whole number from 0 to"],
    );
    let pods = format!("{PODS}p2,9223372036854775807,100,0,0\n");
    pods_refused("large", &pods, "pods:3: ", &["from 0 to"]);
}

#[test]
fn a_row_with_too_few_fields_is_named() {
    let says = ["field count 2, expected 5 as in the header: correct the row"];
    nodes_refused("ragged", &format!("{NODES}n2,8000\n"), "nodes:3: ", &says);
}

#[test]
fn text_that_is_not_utf8_is_named() {
    let nodes = [NODES.as_bytes(), b"n\xff,1,1,0,\n"].concat();
    refused(
        "utf8",
        &nodes,
        PODS.as_bytes(),
        "nodes:3: ",
        &["the row is not UTF-8: save the file as UTF-8"],
    );
}

#[test]
fn duplicates_are_named_with_both_lines() {
    let says = ["duplicate node \"n1\", first on line 2: rename or remove one"];
    nodes_refused("node-twice", &format!("{NODES}n1,1,1,0,\n"), "nodes:3: ", &says);
    let says = ["duplicate pod \"p1\", first on line 2: rename or remove one"];
    pods_refused("pod-twice", &format!("{PODS}p1,1,1,0,0\n"), "pods:3: ", &says);
}

#[test]
fn a_file_without_content_is_refused() {
    nodes_refused("empty", "", "nodes: ", &["the file is empty"]);
    let says = ["no nodes found: pass a file with nodes"];
    nodes_refused("header", "sn,cpu_milli,memory_mib,gpu,model\n", "nodes: ", &says);
}

#[test]
fn addresses_are_not_taken_for_files() {
    let run = portolan(&["what-if", "-f", "https://example.com/cluster.yaml", "--drain", "n1"]);
    assert_eq!((run.code, &*run.out), (2, ""));
    assert!(run.err.contains("addresses are not read: download the file"), "{}", run.err);
}

#[test]
fn an_unsupported_kind_is_named() {
    let nodes = r#"{"apiVersion":"v1","kind":"Foo","metadata":{"name":"a"}}"#;
    let says = ["no nodes found: pass a file with nodes; ignored 1 Foo (kind not used)"];
    nodes_refused("kind", nodes, "nodes", &says);
}

#[test]
fn invalid_yaml_is_named_with_its_line_once() {
    nodes_refused(
        "yaml",
        "kind: Node\napiVersion: v1\nmetadata: [\n",
        "nodes",
        &[".yaml:3: column"],
    );
}

#[test]
fn an_invalid_quantity_is_named_with_its_field() {
    let nodes = r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"a"},
        "status":{"allocatable":{"cpu":"zz"}}}"#;
    nodes_refused("quantity", nodes, "nodes", &["status.allocatable.cpu", "\"zz\""]);
}

#[test]
fn arguments_out_of_range_are_refused() {
    for arguments in [
        &["replay", "--threads", "0"][..],
        &["replay", "--percentage-of-nodes", "101"],
        &["replay", "--mode", "timed"],
        &["replay", "--nodes", "nodes.csv"],
    ] {
        let run = portolan(arguments);
        assert_eq!((run.code, &*run.out), (2, ""), "{arguments:?}: {}", run.err);
        assert!(!run.err.contains("panicked"), "{arguments:?}: {}", run.err);
    }
}

#[test]
fn numbers_below_one_are_refused_in_plain_words() {
    for number in ["0", "-1", "some"] {
        let run = portolan(&["demo", "--nodes", number]);
        assert_eq!((run.code, &*run.out), (2, ""), "{}", run.err);
        let says = format!(
            "invalid value '{number}' for '--nodes <COUNT>': pass a whole number of at least 1"
        );
        assert!(run.err.contains(&says), "{}", run.err);
    }
}

/// A node, and a pod without a uid.
const NODE: &str =
    "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nstatus: {allocatable: {cpu: 4, pods: 9}}\n";
const POD: &str =
    "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: c, image: i}]}\n";

#[test]
fn duplicate_objects_are_named_with_both_places() {
    let nodes = file("twice", "nodes.yaml", NODE.as_bytes());
    let pods = file("twice", "pods.yaml", format!("{POD}---\n{POD}").as_bytes());
    let once = "pass each object once\n";
    let run = portolan(&["dump", "-f", &nodes, &nodes]);
    let says = format!("portolan: {nodes}:1: node n1 occurs twice, first at {nodes}:1: {once}");
    assert_eq!((run.code, run.err), (2, says));
    let says = format!("portolan: {pods}:6: pod default/x occurs twice, first at {pods}:1: {once}");
    for arguments in
        [&["dump", "-f", &nodes, &pods][..], &["replay", "--nodes", &nodes, "--pods", &pods]]
    {
        let run = portolan(arguments);
        assert_eq!((run.code, &*run.err), (2, &*says), "{arguments:?}");
    }
}

#[test]
fn an_input_without_nodes_is_named_with_the_objects_in_it() {
    let pods = [POD, &POD.replace("name: x", "name: z")].join("---\n");
    let pods = file("no-nodes", "pods.yaml", pods.as_bytes());
    let run = portolan(&["replay", "--nodes", &pods, "--pods", &pods]);
    let says = "no nodes found: pass a file with nodes; read 2 Pod\n";
    assert_eq!((run.code, run.err), (2, format!("portolan: {pods}: {says}")));
}

#[test]
fn openb_files_are_refused_where_objects_are_expected() {
    let nodes = file("openb", "nodes.csv", NODES.as_bytes());
    let pods = file("openb", "pods.csv", PODS.as_bytes());
    let yaml = file("openb", "nodes.yaml", NODE.as_bytes());
    for (cluster, bad) in [(&nodes, &nodes), (&yaml, &pods)] {
        let run = portolan(&["explain", "-f", cluster, "--pod", &pods]);
        let says = format!("portolan: {bad}: openb CSV is read by replay and compare only: pass ");
        assert!(run.code == 2 && run.err.starts_with(&says), "{}", run.err);
    }
}

#[test]
fn a_missing_file_is_refused() {
    let run = portolan(&["audit", "-f", "/nowhere/at-all.yaml.gz"]);
    assert_eq!((run.code, &*run.out), (2, ""));
    assert!(run.err.contains("/nowhere/at-all.yaml.gz: "), "{}", run.err);
    assert!(run.err.ends_with(": check the path and its permissions\n"), "{}", run.err);
}

#[test]
fn a_truncated_gzip_stream_is_refused() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    for n in 0..2000 {
        writeln!(encoder, "{{\"apiVersion\": \"v1\", \"kind\": \"Node\", \"n\": {n}}}")
            .expect("writing to memory succeeds");
    }
    let whole = encoder.finish().expect("writing to memory succeeds");
    let cut = file("gzip", "cut.json.gz", &whole[..whole.len() / 2]);
    let run = portolan(&["audit", "-f", &cut]);
    assert_eq!((run.code, &*run.out), (2, ""), "{}", run.err);
    assert!(run.err.contains(&cut) && run.err.contains("download the file again"), "{}", run.err);
}
