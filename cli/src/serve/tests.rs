//! The API document matches the sources.

use std::collections::BTreeSet;

use serde_json::Value;

use super::api;

fn document() -> Value {
    serde_json::from_str(include_str!("openapi.json")).expect("JSON")
}

#[test]
fn the_document_has_all_paths_and_no_others() {
    let document = document();
    let documented: BTreeSet<&str> =
        document["paths"].as_object().expect("paths").keys().map(String::as_str).collect();
    assert_eq!(documented, api::paths().into_iter().collect());
}
