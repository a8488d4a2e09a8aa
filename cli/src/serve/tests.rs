//! The API document and the list of files match the sources.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{api, page};

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

#[test]
fn the_page_has_all_its_files() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/serve/page");
    let entries = std::fs::read_dir(folder).expect("the folder of the page");
    let files: BTreeSet<String> = entries
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| name != "index.html")
        .collect();
    assert_eq!(files, page::names().map(str::to_owned).collect());
}
