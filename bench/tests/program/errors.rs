//! Invalid inputs and arguments end with status 2, without output.

use crate::common::{file, portolan};

#[test]
fn vectors_of_an_unknown_kind_are_refused() {
    let other = file("other", "other.jsonl", b"{\"id\":\"a\",\"things\":[]}\n");
    let run = portolan(&["conformance", &other]);
    assert_eq!(run.code, 2);
    assert!(
        run.err.contains(&format!("{other}:1: unknown kind of vector: pass cache vectors")),
        "{}",
        run.err
    );
}

#[test]
fn arguments_out_of_range_are_refused() {
    for arguments in [
        &["cache", "--nodes", "0"][..],
        &["cache", "--nodes", "18446744073709551615"],
        &["cache", "--nodes", "10", "--pods-per-node", "18446744073709551615"],
        &["conformance", &file("empty", "empty.jsonl", b"")],
    ] {
        let run = portolan(arguments);
        assert_eq!((run.code, &*run.out), (2, ""), "{arguments:?}: {}", run.err);
    }
}
